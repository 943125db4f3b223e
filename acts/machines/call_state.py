"""The states of a Call in a walk, the events that move it between them, and what is kept of each Call.

Laws of this file: plain data and a table. ``CallStates.move`` alone moves a Call, and only as
``TRANSITIONS`` says: a (stage, event) pair without a row changes nothing.
It knows neither why an event comes nor what follows from it.

Theory of operation. A Call is in one *stage* at a time::

    pending ─ became_ready ─▶ ready ─ started ─▶ running ─ reported ─▶ applying ─ written ─▶ completed
       │                        ▲ └─ spread ─▶ collecting ─ collected ▶ applying  ├─ failed ───▶ failed
       │                     approved, postponed                                  ├─ all_rejected ─▶ rejected
       ├─ approval_needed ─▶ awaiting ─ rejected ─▶ rejected                      └─ cancelled ─▶ cancelled
       ├─ input_missing ───▶ awaiting_input ─ input_provided ─▶ pending
       ├─ skipped ─────────▶ skipped
       └─ start_failed, literal_used, nothing_to_start, taken_over ─▶ applying

* A Call with ``_each`` is ``collecting`` while its elements run. Each element is a ``CallState`` of its own whose
  ``parent`` is the Call: it is started, reports and settles as a Call does. The last one to settle ends the collecting.
  What all elements share is read once, before the first starts: what is provided later does not change it.
* A Call stays ``pending`` until every writer that it depends on has settled. Then it is checked
  (``Readiness.assess``), and the outcome of the check is an event.
* ``applying`` means that the Call does not run (any more) and its result or failure is known. The
  result takes effect when no earlier write can still decide whether it may. A failure that has an
  error outcome is such a result; one without ends the Call.
* ``cancelled`` ends what has not started. A running Call ends when it reports, cancelled or not.

The table has every row, the picture the usual ones. People and results see *states*: a stage, except for those
that are a finer view of one (``STATE_OF``).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, EngineError
from acts.language.references import Path, conjunction
from acts.language.wire import EACH_FAILED
from acts.tree.records import CallRecord, ElementsRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from acts.language.values import Json
    from acts.plan.calls import ElementReading, PlannedCall

NOT_STARTED: Final = ("pending", "awaiting_input", "awaiting", "ready")
# (stage, event): the next stage
TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    # Every writer that the Call depends on has settled
    ("pending", "became_ready"): "ready",
    ("pending", "approval_needed"): "awaiting",
    ("pending", "input_missing"): "awaiting_input",
    ("pending", "skipped"): "skipped",
    ("pending", "start_failed"): "applying",
    ("pending", "literal_used"): "applying",
    ("pending", "nothing_to_start"): "applying",
    # An earlier run has done it: its result is known, or nobody waits for one
    ("pending", "taken_over"): "applying",
    ("pending", "detached_before"): "detached",
    # A message or a decision arrived
    ("awaiting_input", "input_provided"): "pending",
    ("awaiting", "approved"): "ready",
    ("awaiting", "rejected"): "rejected",
    ("awaiting", "decision_overdue"): "applying",
    # The Call runs, or its plan holds its output already
    ("ready", "literal_used"): "applying",
    ("ready", "started"): "running",
    ("running", "reported"): "applying",
    ("running", "postponed"): "ready",
    ("running", "detached"): "detached",
    # Its elements run
    ("ready", "spread"): "collecting",
    ("collecting", "collected"): "applying",
    ("collecting", "all_detached"): "detached",
    # Its result or its failure is applied; a batch child ends as its instances did
    ("applying", "written"): "completed",
    ("applying", "failed"): "failed",
    ("applying", "all_rejected"): "rejected",
    ("applying", "cancelled"): "cancelled",
    # Nothing more can be recorded: the plan ends here
    **{(stage, "exhausted"): "failed" for stage in ("awaiting_input", "awaiting", "ready", "running", "collecting")},
    # The plan is cancelled
    **{(stage, "cancelled"): "cancelled" for stage in NOT_STARTED},
}
SETTLED: Final = frozenset({"completed", "failed", "skipped", "rejected", "cancelled", "detached"})
# Stages that people see as another state
STATE_OF: Final = {"awaiting_input": "awaiting", "applying": "running", "collecting": "running"}
STAGES: Final = (*NOT_STARTED, "collecting", "running", "applying", *sorted(SETTLED))
# Failures of elements that the message of the Call names; its details have all of them
MAX_FAILURES_NAMED: Final = 3


@dataclass(slots=True)
class Elements:
    """The elements of one Call with ``_each``. The first ``started`` of ``total`` have been started once.

    ``results`` has null for what has not settled, or has failed; ``errors`` are by index. ``running`` are indexes;
    so are ``postponed``, a heap: they start again. ``provided`` is how many messages had been provided when the
    list was read. ``reading`` is None until it is read again in another run, and, like results and errors, once
    all have settled. ``next`` is the element that starts next, and its resolved Call.
    """

    total: int
    provided: int = 0
    reading: ElementReading | None = None
    started: int = 0
    failed: int = 0
    cancelled: int = 0
    results: list[Json] = field(default_factory=list)
    errors: dict[int, dict[str, Any]] = field(default_factory=dict)
    running: dict[int, None] = field(default_factory=dict)
    postponed: list[int] = field(default_factory=list)
    next: tuple[PlannedCall, dict[str, Any]] | None = None

    @property
    def unstarted(self) -> int:
        """How many elements are still to be started."""
        return self.total - self.started + len(self.postponed)

    @property
    def next_index(self) -> int:
        """The index of the element that starts next, while there is one."""
        return self.postponed[0] if self.postponed else self.started

    def start(self) -> None:
        """The next element starts."""
        self.running[self.next_index] = None
        if self.postponed:
            heapq.heappop(self.postponed)
        else:
            self.started += 1
            self.results.append(None)

    def postpone(self, index: int) -> None:
        """An element that was about to start does so later."""
        self.running.pop(index, None)
        heapq.heappush(self.postponed, index)
        self.next = None

    def take_over(self, results: Sequence[Json], unfinished: list[int]) -> None:
        """The first elements have these results from an earlier run; the ``unfinished`` ones start again."""
        self.results, self.started, self.postponed = list(results), len(results), unfinished

    def settle(self, index: int, stage: str, value: Json, error: dict[str, Any] | None) -> None:
        """An element has settled in this stage, with its result or its error."""
        self.running.pop(index, None)
        if stage == "completed":
            self.results[index] = value
        elif stage == "cancelled":
            self.cancelled += 1
        elif error is not None:
            self.failed += 1
            self.errors[index] = error

    def exhaust(self) -> None:
        """Nothing more can be recorded: the elements that run have failed."""
        self.failed += len(self.running)
        self.running.clear()
        self.release()

    def release(self) -> None:
        """All have settled: forget everything but the counts."""
        self.reading, self.results, self.errors = None, [], {}

    def counts(self) -> dict[str, int]:
        """``{total, completed, failed, running}``."""
        running = len(self.running)
        completed = self.total - self.unstarted - running - self.failed - self.cancelled
        return {"total": self.total, "completed": completed, "failed": self.failed, "running": running}

    def failure(self) -> CallError:
        """``eachFailed`` with details ``{errors: [{index, code, message}], results}``."""
        errors = [{"index": index, **error} for index, error in sorted(self.errors.items())]
        named = [f"[{e['index']}] {e['code']}: {e['message']}" for e in errors[:MAX_FAILURES_NAMED]]
        more = [f"… and {len(errors) - len(named)} more"] if len(errors) > len(named) else []
        text = f"{len(errors):,} of {self.total:,} elements failed: {'; '.join([*named, *more])}"
        return CallError(EACH_FAILED, text, {"errors": errors, "results": self.results})

    def to_record(self) -> ElementsRecord:
        """The elements at a moment when none runs. What they are made of is left out: it can be read again."""
        return ElementsRecord(**{name: getattr(self, name) for name in ElementsRecord.model_fields})

    @classmethod
    def from_record(cls, record: ElementsRecord) -> Elements:
        """The elements as the run before left them."""
        return cls(**{**dict(record), "results": list(record.results), "postponed": list(record.postponed)})


@dataclass(slots=True)
class CallState:
    """What a walk keeps of one Call, or of one element of a Call with ``_each``.

    ``rank`` is the place of the Call in plan order; an element has that of its Call, which is its ``parent``.
    ``resolved`` is the Call with its references resolved, from ready until it reports. ``missing`` are the
    references that it waits for. ``outcome`` is the index of the outcome that was taken, ``values`` what is, or while
    the Call is ``applying`` will be, written to its paths, and ``date`` when the Call reported.
    ``edited`` marks a Call that a person put into the plan. ``value`` is the report of a batch child, by instance.
    ``reason`` says why a Call was skipped. ``elements`` are those of a Call with ``_each``, once it is ready.
    """

    node: PlannedCall
    rank: int
    parent: CallState | None = field(default=None, repr=False)
    stage: str = "pending"
    outcome: int | None = None
    values: tuple[Json, ...] = ()
    date: str = ""
    error: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    approved: bool = False
    edited: bool = False
    resolved: dict[str, Any] | None = None
    value: Json = None
    reason: str | None = None
    elements: Elements | None = None

    @property
    def state(self) -> str:
        """The state as results and ``status`` show it."""
        return STATE_OF.get(self.stage, self.stage)

    @property
    def has_started(self) -> bool:
        """True when the Call runs or ran, or settled without running: no edit may touch it."""
        return self.stage not in NOT_STARTED

    @property
    def writes(self) -> Iterator[tuple[Path, Json]]:
        """The paths of the outcome that was taken, and their values."""
        paths = () if self.outcome is None or not self.values else self.node.outcomes[self.outcome]
        return zip(paths, self.values, strict=bool(paths))

    @property
    def written(self) -> tuple[tuple[Path, Json, str], ...]:
        """What was written: path, value, date."""
        return tuple((*write, self.date) for write in self.writes) if self.stage == "completed" else ()

    @property
    def output_path(self) -> str | None:
        """The paths that the Call wrote, as one expression, or None."""
        return conjunction(path for path, _, _ in self.written) or None

    @property
    def own_elements(self) -> Elements:
        """The elements of a Call with ``_each`` that is ready, or was."""
        if self.elements is None:
            raise EngineError(f"call {self.node.id} has no elements")
        return self.elements

    def keep_for(self, node: PlannedCall, rank: int) -> CallState:
        """What an edited plan keeps of a Call that it leaves alone.

        A Call that has not started is assessed anew; what people decided about it remains.
        """
        if not self.has_started:
            return CallState(node, rank, approved=self.approved, edited=self.edited)
        return replace(self, node=node, rank=rank, resolved=None, missing=())

    def to_record(self) -> CallRecord:
        """What outlives a quiet moment. A Call that has not started is assessed anew in the next run."""
        if not self.has_started:
            return CallRecord(approved=self.approved, edited=self.edited)
        own = {name: getattr(self, name) for name in CallRecord.model_fields}
        return CallRecord(**{**own, "elements": self.elements and self.elements.to_record()})

    @classmethod
    def from_record(cls, node: PlannedCall, rank: int, record: CallRecord) -> CallState:
        """The state of a Call as the run before left it."""
        elements = None if record.elements is None else Elements.from_record(record.elements)
        return cls(node, rank, **{**dict(record), "elements": elements})


class CallStates:
    """The states of all Calls of a plan by rank, and of its Calls and the elements that have started by key.

    ``unsettled`` is how many Calls have not settled, ``running`` how many Calls and elements run.
    """

    def __init__(self, nodes: Sequence[PlannedCall], states: Mapping[int, CallState]) -> None:
        self.by_rank = [states.get(rank) or CallState(node, rank) for rank, node in enumerate(nodes)]
        self.by_key = {call.node.key: call for call in self.by_rank}
        self.unsettled = sum(call.stage not in SETTLED for call in self.by_rank)
        self.running = 0
        self._in_stage = dict.fromkeys(STAGES, 0)
        for call in self.by_rank:
            self._in_stage[call.stage] += 1
            self.running += call.stage == "running"
            for index in call.elements.running if call.elements is not None else ():
                self.add_element(call, call.node.element_node(index), "running")

    def add_element(self, parent: CallState, node: PlannedCall, stage: str) -> CallState:
        """The state of an element of a Call that starts."""
        call = self.by_key[node.key] = CallState(node, parent.rank, parent, stage)
        self.running += stage == "running"
        return call

    def move_key(self, key: str, event: str) -> CallState | None:
        """Move the Call or the element of a key; None when the event changes nothing."""
        call = self.by_key.get(key)
        return call if call is not None and self.move(call, event) else None

    def move(self, call: CallState, event: str) -> bool:
        """Move a Call or an element as the table says; False when its stage has no row for the event."""
        stage = TRANSITIONS.get((call.stage, event))
        if stage is None:
            return False
        self.running += (stage == "running") - (call.stage == "running")
        if call.parent is None:
            self._in_stage[call.stage] -= 1
            self._in_stage[stage] += 1
            self.unsettled -= stage in SETTLED
        call.stage = stage
        return True

    def counts(self) -> dict[str, int]:
        """How many Calls are in each state, as people see states."""
        out: dict[str, int] = {}
        for stage, count in self._in_stage.items():
            state = STATE_OF.get(stage, stage)
            out[state] = out.get(state, 0) + count
        return out


# -- how an instance or a batch ends -------------------------------------------------------------------

# States that an instance or a batch ends with, the one that prevails first
_FAILURES: Final = ("cancelled", "failed", "rejected")


def status_from_states(states: Iterable[str]) -> str:
    """The status of one instance, or of the global Calls, from the states of its Calls."""
    present = dict.fromkeys(states)
    return next((state for state in _FAILURES if state in present), "completed")


def status_of(shared: str, parts: Sequence[str]) -> str:
    """The status of a batch from that of its global Calls and those of its instances: it fails when all of them do."""
    if shared != "completed" or not parts or all(part == "completed" for part in parts):
        return shared
    if "completed" in parts or "partial" in parts:
        return "partial"
    return next((state for state in _FAILURES if state in parts), "failed")
