"""The states of a Call in a walk, the events that move it between them, and what is kept of each Call.

Laws of this file: plain data and a table. ``CallStates.move`` alone moves a Call, and only as
``TRANSITIONS`` says: a (stage, event) pair without a row changes nothing and is noted in ``ignored``.
It knows neither why an event comes nor what follows from it.

Theory of operation. A Call is in one *stage* at a time::

    pending ─ became_ready ─▶ ready ─ started ─▶ running ─ reported ─▶ applying ─ written ─▶ completed
       │                        ▲ └─ spread ─▶ collecting ─ collected ▶ applying  ├─ failed ───▶ failed
       │                     approved, postponed                                  ├─ all_rejected ─▶ rejected
       ├─ approval_needed ─▶ awaiting ─ rejected ─▶ rejected                      └─ cancelled ─▶ cancelled
       ├─ input_missing ───▶ awaiting_input ─ input_provided ─▶ pending
       ├─ skipped ─────────▶ skipped
       └─ start_failed, literal_used, nothing_to_start, taken_over ─▶ applying

* A Call with ``_each`` is ``collecting`` while its elements run. They are rows of the same table, after those of
  the plan's Calls: each is started, reports and settles as a Call does. The last one to settle ends the collecting.
* A Call stays ``pending`` until every writer that it depends on has settled. Then it is checked
  (``readiness.assess_call``), and the outcome of the check is an event.
* ``applying`` means that the Call does not run (any more) and its result or failure is known. The
  result takes effect when no earlier write can still decide whether it may. A failure that has an
  error outcome is such a result; one without ends the Call.
* ``cancelled`` ends what has not started. A running Call ends when it reports, cancelled or not.

The table has every row, the picture the usual ones. People and results see *states*: a stage, except for those
that are a finer view of one (``STATE_OF``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.references import Path
    from acts.language.values import Json
    from acts.machines.elements import Elements
    from acts.plan.planned_call import PlannedCall
    from acts.plan.result_placement import Writes

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
    ("awaiting_input", "exhausted"): "failed",
    ("awaiting", "exhausted"): "failed",
    ("ready", "exhausted"): "failed",
    ("running", "exhausted"): "failed",
    ("collecting", "exhausted"): "failed",
    # The plan is cancelled
    ("pending", "cancelled"): "cancelled",
    ("awaiting_input", "cancelled"): "cancelled",
    ("awaiting", "cancelled"): "cancelled",
    ("ready", "cancelled"): "cancelled",
}
NOT_STARTED: Final = ("pending", "awaiting_input", "awaiting", "ready")
SETTLED: Final = frozenset({"completed", "failed", "skipped", "rejected", "cancelled", "detached"})
# Stages that people see as another state
STATE_OF: Final = {"awaiting_input": "awaiting", "applying": "running", "collecting": "running"}
STAGES: Final = (*NOT_STARTED, "collecting", "running", "applying", *sorted(SETTLED))
# How many ignored events are kept, for people to see
MAX_IGNORED: Final = 20


@dataclass(slots=True)
class CallState:
    """What a walk keeps of one Call.

    ``resolved`` is the Call with its references resolved, from ready until it reports. ``missing`` are the
    references that it waits for. ``effect`` is a result that is not written yet: its writes and its date;
    ``written`` what was written: path, value, date. ``outcome`` is the index of the outcome that was taken.
    ``edited`` marks a Call that a person put into the plan. ``value`` is the report of a batch child, by instance.
    ``reason`` says why a Call was skipped. ``elements`` are those of a Call with ``_each``, once it is ready.
    """

    stage: str = "pending"
    outcome: int | None = None
    error: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    approved: bool = False
    edited: bool = False
    resolved: dict[str, Any] | None = None
    effect: tuple[Writes, str] | None = None
    written: tuple[tuple[Path, Json, str], ...] = ()
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


class CallStates:
    """The states of all Calls of a plan by rank, followed by those of elements: together, by *row*.

    ``unsettled`` is how many Calls have not settled; ``ignored`` describes the last events that changed nothing.
    """

    def __init__(self, nodes: Sequence[PlannedCall], states: Mapping[int, CallState]) -> None:
        self.by_rank = [states.get(rank) or CallState() for rank in range(len(nodes))]
        self.row_of_key = {node.key: rank for rank, node in enumerate(nodes)}
        self.ignored: list[str] = []
        self.unsettled = sum(call.stage not in SETTLED for call in self.by_rank)
        self._rows: list[tuple[PlannedCall, CallState, int]] = [
            (node, call, rank) for rank, (node, call) in enumerate(zip(nodes, self.by_rank, strict=True))
        ]
        self._in_stage = dict.fromkeys(STAGES, 0)
        self._running_elements = 0
        for call in self.by_rank:
            self._in_stage[call.stage] += 1

    def add_element(self, rank: int, node: PlannedCall, stage: str = "pending") -> int:
        """A new row for an element of the Call of ``rank``."""
        row = len(self._rows)
        self._rows.append((node, CallState(stage), rank))
        self.row_of_key[node.key] = row
        self._running_elements += stage == "running"
        return row

    def node(self, row: int) -> PlannedCall:
        """The Call, or the element, of a row."""
        return self._rows[row][0]

    def call(self, row: int) -> CallState:
        """The state of a row."""
        return self._rows[row][1]

    def rank(self, row: int) -> int:
        """The rank of the Call of a row, which may be an element of it."""
        return self._rows[row][2]

    def move(self, row: int, event: str) -> bool:
        """Move a Call or an element as the table says; False when its stage has no row for the event."""
        if not 0 <= row < len(self._rows):
            self._ignore(event, f"the plan has no call of rank {row}")
            return False
        node, call, _ = self._rows[row]
        stage = TRANSITIONS.get((call.stage, event))
        if stage is None:
            self._ignore(event, f"call {node.key} is {call.state}")
            return False
        if node.element is None:
            self._in_stage[call.stage] -= 1
            self._in_stage[stage] += 1
            self.unsettled -= stage in SETTLED
        else:
            self._running_elements += (stage == "running") - (call.stage == "running")
        call.stage = stage
        return True

    def _ignore(self, event: str, reason: str) -> None:
        self.ignored.append(f'the event "{event}" was ignored: {reason}')
        del self.ignored[:-MAX_IGNORED]

    @property
    def running(self) -> int:
        """How many Calls and elements run."""
        return self._in_stage["running"] + self._running_elements

    def counts(self) -> dict[str, int]:
        """How many Calls are in each state, as people see states."""
        out: dict[str, int] = {}
        for stage, count in self._in_stage.items():
            state = STATE_OF.get(stage, stage)
            out[state] = out.get(state, 0) + count
        return out
