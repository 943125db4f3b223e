"""The states of a Call in a walk, the events that move it between them, what is kept of each Call, and its report.

Laws of this file: plain data and a table. A walk moves a Call from one *stage* to another only as ``NEXT_STAGES``
says. Usual ways are::

    pending ─▶ ready ─▶ running, collecting, sleeping ─▶ applying ─▶ completed, failed
       ├─▶ awaiting ─▶ ready, rejected, pending (something else is to be approved now), applying (a person answered)
       ├─▶ awaiting_input ─▶ pending
       ├─▶ applying, skipped

* A Call stays ``pending`` until every writer that it depends on has settled; then it is checked.
* A Call with ``_each`` is ``collecting`` while its elements run. Each element is a ``CallState`` of its own whose
  ``parent`` is the Call. What all elements share is read once: what is provided later does not change it. One that a
  person answers does not run, it is ``awaiting``.
* ``applying``: it does not run (any more), and its result or failure is known. The result takes effect when no earlier
  write can still decide whether it may. So does a failure that has an error outcome; one without ends the Call.
* ``cancelled`` ends what has not started. A running Call ends when it reports, cancelled or not.

People and results see *states*: a stage, except for those that are a finer view of one (``STATE_OF``).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from acts.language.config import Rule
from acts.language.errors import MAX_NAME, CallError, EngineError, truncate
from acts.language.references import Path, conjunction
from acts.language.tools import FAILURES
from acts.language.values import Json
from acts.language.wire import EACH_FAILED, MCP_TOOL_ERROR
from acts.machines.commands import StartCall
from acts.plan.calls import UNIT, ElementReading, PlannedCall
from acts.tree.past_run import UndoStep
from acts.tree.records import CallRecord

NOT_STARTED: Final = ("pending", "awaiting_input", "awaiting", "ready")
NEXT_STAGES: Final[dict[str, tuple[str, ...]]] = {
    # Every writer that the Call depends on has settled; its result may be known, or an earlier run have done it
    "pending": ("ready", "awaiting", "awaiting_input", "applying", "skipped", "detached", "cancelled"),
    # A message or a decision arrives; the plan may end here
    "awaiting_input": ("pending", "failed", "cancelled"),
    "awaiting": ("ready", "pending", "rejected", "applying", "failed", "cancelled"),
    "ready": ("running", "awaiting", "collecting", "sleeping", "applying", "failed", "cancelled"),
    # Nothing runs: the Call ends at a time
    "sleeping": ("applying", "failed", "cancelled"),
    # The Call runs, or its elements do; the shell may have no room for it now
    "running": ("applying", "detached", "ready", "failed", "cancelled"),
    "collecting": ("applying", "detached", "failed", "cancelled"),
    # Its result takes effect, or its failure (a result that cannot is one); a batch child ends as its instances did
    "applying": ("applying", "completed", "failed", "rejected", "cancelled"),
}
SETTLED: Final = frozenset({"completed", "failed", "skipped", "rejected", "cancelled", "detached"})
# Stages that people see as another state
STATE_OF: Final = {"awaiting_input": "awaiting", "applying": "running", "collecting": "running", "sleeping": "running"}
# Failures of elements that the message of the Call names; its details have all of them
MAX_FAILURES_NAMED: Final = 3
# Results of elements in the error of a Call, in a status that is asked for again and again
MAX_RESULTS_SHOWN: Final = 100


@dataclass(slots=True)
class Elements:
    total: int
    provided: int = 0  # messages that had been provided when the list was read
    reading: ElementReading | None = None  # None until it is read again in another run, and once all have settled
    started: int = 0  # the first so many have been started once
    failed: int = 0
    cancelled: int = 0
    results: list[Json] = field(default_factory=list)  # null for what has not settled, or has failed
    errors: dict[int, dict[str, Any]] = field(default_factory=dict)
    running: dict[int, None] = field(default_factory=dict)
    postponed: list[int] = field(default_factory=list)  # a heap: they start again
    is_held: bool = False  # a reset made their approval void: those left wait for another one
    next: StartCall | None = None  # starts the next element

    @property
    def unstarted(self) -> int:
        return self.total - self.started + len(self.postponed)

    @property
    def left(self) -> int:
        """How many of them are to be made."""
        skipped = () if self.reading is None else self.reading.skipped
        return self.unstarted - sum(i >= self.started or i in self.postponed for i in skipped)

    @property
    def next_index(self) -> int:
        """The index of the element that starts next, while there is one."""
        return self.postponed[0] if self.postponed else self.started

    def start(self) -> None:
        self.running[self.next_index] = None
        self.next = None
        if self.postponed:
            heapq.heappop(self.postponed)
        else:
            self.started += 1
            self.results.append(None)

    def skip(self) -> None:
        """The next element does not start: its result is null."""
        index = self.next_index
        self.start()
        del self.running[index]

    def postpone(self, index: int) -> None:
        """An element that was about to start does so later."""
        self.running.pop(index, None)
        heapq.heappush(self.postponed, index)
        self.next = None

    def settle(self, element: CallState, value: Json) -> None:
        index = element.node.element or 0
        self.running.pop(index, None)
        if element.stage == "completed":
            self.results[index] = value
        elif element.stage == "cancelled":
            self.cancelled += 1
        elif element.error is not None:
            self.failed += 1
            self.errors[index] = element.error

    def refuse(self, error: dict[str, Any]) -> None:
        """Those left do not start: each has failed with this error."""
        self.errors |= dict.fromkeys((*self.postponed, *range(self.started, self.total)), error)
        self.failed += self.unstarted
        self.results += [None] * (self.total - self.started)
        self.started, self.postponed, self.next = self.total, [], None

    def release(self) -> None:
        self.reading, self.results, self.errors = None, [], {}

    def counts(self) -> dict[str, int]:
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


@dataclass(slots=True)
class CallState:
    """What a walk keeps of one Call, or of one element of a Call with ``_each``."""

    node: PlannedCall
    rank: int  # in plan order; an element has that of its Call
    parent: CallState | None = field(default=None, repr=False)
    stage: str = "pending"
    outcome: int | None = None  # the index of the one that was taken
    values: tuple[Json, ...] = ()  # what is, or while the Call is ``applying`` will be, written to its paths
    date: str = ""  # when the Call reported
    error: dict[str, Any] | None = None
    place: str | None = None  # the file and line of the Tool that failed
    missing: tuple[str, ...] = ()  # the references that it waits for
    approved: dict[str, Any] | None = None  # the subject that a person approved, as ``subjects.keep`` keeps it
    asked: dict[str, Any] | None = None  # … that a person is asked about
    rule: Rule | None = None  # … by which rule
    edited: bool = False  # a person put the Call into the plan
    resolved: dict[str, Any] | None = None  # the Call with its references resolved, from ready until it reports
    value: Json = None  # the report of a batch child, by instance
    reason: str | None = None  # why it was skipped
    cause: str | None = None  # the id of the Call that did not write what it needs, or of what that was skipped for
    until: str | None = None  # the date at which a Call of the Tool ``wait`` ends
    elements: Elements | None = None  # of a Call with ``_each``, once it is ready
    undo: dict[int, tuple[UndoStep, ...]] = field(default_factory=dict)  # what undoes it: of an element, by its index

    @property
    def state(self) -> str:
        is_asked = self.stage == "collecting" and self.node.kind == "person"
        is_held = self.stage == "collecting" and self.is_asked_about and not self.own_elements.running
        return "awaiting" if is_held or is_asked else STATE_OF.get(self.stage, self.stage)

    @property
    def is_asked_about(self) -> bool:
        """True while a person has to decide about the Call, or about the elements that are left of it."""
        return self.stage == "awaiting" or (self.stage == "collecting" and self.own_elements.is_held)

    @property
    def has_started(self) -> bool:
        """True when the Call runs or ran, or settled without running: no edit may touch it."""
        return self.stage not in NOT_STARTED

    @property
    def writes(self) -> Iterator[tuple[Path, Json]]:
        paths = () if self.outcome is None or not self.values else self.node.outcomes[self.outcome]
        return zip(paths, self.values, strict=bool(paths))

    @property
    def written(self) -> tuple[tuple[Path, Json, str], ...]:
        return tuple([(*write, self.date) for write in self.writes]) if self.stage == "completed" else ()

    @property
    def own_elements(self) -> Elements:
        if self.elements is None:
            raise EngineError(f"call {self.node.id} has no elements")
        return self.elements

    def to_record(self) -> CallRecord:
        """What outlives a quiet moment. A Call that has not started is assessed anew in the next run."""
        if not self.has_started:
            return CallRecord(approved=self.approved, asked=self.asked, rule=self.rule, edited=self.edited)
        return CallRecord.model_validate(self, from_attributes=True)

    @classmethod
    def from_record(cls, node: PlannedCall, rank: int, record: CallRecord) -> CallState:
        elements = None if record.elements is None else Elements(**dict(record.elements))
        return cls(node, rank, **{**dict(record), "elements": elements})


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


# -- the report on each Call, as results, ``status`` and pages show it ------------------------------------------


def call_item(call: CallState, in_queue: Collection[str] = ()) -> dict[str, Any]:
    """``{id, tool, state, instance?, answeredBy?, outputPath?, error?, place?, undeclared?, reason?, cause?, elements?,
    call?, waitsFor?, waitsUntil?, taskQueue?}``.

    ``undeclared`` names what took its error path and is no failure that its Tool declares. ``reason`` says why a Call
    was skipped, ``cause`` is the Call to which that goes back; ``elements`` is ``{total, completed, failed, running}``.
    ``call`` is the Call as planned, if a person put it into the plan and it failed: no plan message has it. The results
    of many elements are left out of the ``error``: ``errors`` has them. ``in_queue`` are the keys of Calls that no
    worker has taken: they are ``ready``, in their ``taskQueue``.
    """
    node, error = call.node, call.error
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "state": call.state}
    if call.state == "running" and node.key in in_queue:
        out |= {"state": "ready", "taskQueue": node.tool.options.taskQueue}
    details = error.get("details") if error is not None and error["code"] == EACH_FAILED else None
    if isinstance(details, dict) and len(details.get("results", ())) > MAX_RESULTS_SHOWN:
        error = {**(error or {}), "details": {"errors": details["errors"][:MAX_RESULTS_SHOWN]}}
    has_failed_edit = call.edited and call.state in _FAILURES
    more = {
        "instance": node.instance, "answeredBy": {"latent": "model", "person": "person"}.get(node.kind),
        "outputPath": conjunction([path for path, _, _ in call.written]) or None, "error": error, "place": call.place,
        "undeclared": undeclared_failure(call),
        "reason": call.reason, "cause": call.cause,
        "elements": call.elements and call.elements.counts(), "call": node.planned if has_failed_edit else None,
        "waitsFor": list(call.missing) or None, "waitsUntil": call.until if call.stage == "sleeping" else None,
    }  # fmt: skip
    return out | {name: value for name, value in more.items() if value is not None}


_SLASH: Final = r"[/\\]"


def undeclared_failure(call: CallState) -> str | None:
    """``KeyError in refund (tools.py:31)``: a bug or an outage, most likely, that took an error path all the same."""
    tool, error = call.node.tool, call.error
    if error is None or call.stage != "completed" or call.node.kind != "activity":
        return None
    details = error.get("details") if error["code"] == EACH_FAILED else None
    failures = details["errors"] if isinstance(details, dict) else [error]
    declared = {*tool.schema.get(FAILURES, ()), MCP_TOOL_ERROR}  # an MCP server has no other way to say it
    others = [str(failure["code"]) for failure in failures if failure["code"] not in declared]
    place = f" ({re.split(_SLASH, call.place)[-1]})" if call.place else ""
    return f"{truncate(others[0], MAX_NAME)} in {tool.name}{place}" if others else None


def call_items(calls: Iterable[CallState], in_queue: Collection[str] = ()) -> list[dict[str, Any]]:
    """Every Call, in the order in which the plan lists them; batch children are none. ``in_queue``: ``call_item``."""
    listed = sorted(calls, key=lambda call: call.node.index)
    return [call_item(call, in_queue) for call in listed if call.node.kind != UNIT]


def error_item(call: CallState) -> dict[str, Any] | None:
    """``{call, instance?, code, message, place?}`` of a Call that failed without an error path, or None."""
    if call.state not in ("failed", "rejected") or call.error is None:
        return None
    item = {"call": call.node.id, **call.error, **({} if call.place is None else {"place": call.place})}
    return item if call.node.instance is None else {**item, "instance": call.node.instance}


def error_items(calls: Sequence[CallState]) -> list[dict[str, Any]]:
    """The failures that no error path took, those in batch children among them."""
    own = [error for call in calls if (error := error_item(call)) is not None]
    reports = (item for call in calls for item in (call.value or {}).items())
    return [*own, *({**error, "instance": id_} for id_, report in reports for error in report["errors"])]
