"""The elements of a Call with ``_each``: how they are read, started and collected into one result.

Laws of this file: an element is a row of the table of states, as a Call is, with an id, a report and an error
of its own. What all elements share is read once, before the first starts, and kept: what is provided later does
not change it. Elements start in their order, as far as ``maxParallel`` lets them, and only those that run have a
row. The Call reports when all have settled: the list of results, or ``eachFailed``.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, EngineError
from acts.language.wire import CANCELLED, EACH_FAILED
from acts.machines.call_outcomes import apply_failure, apply_result
from acts.machines.commands import StartCall
from acts.machines.readiness import require_parameters, require_result, scoped_messages
from acts.plan.element_reading import ElementReading, read_elements
from acts.plan.result_placement import refuse_defects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.values import Json
    from acts.machines.walk import Walk
    from acts.plan.planned_call import PlannedCall

# Failures that the message of the Call names; its details have all of them
MAX_FAILURES_NAMED: Final = 3


@dataclass(slots=True)
class Elements:
    """The elements of one Call as they settle. The first ``started`` of ``total`` have been started once.

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

    def counts(self) -> dict[str, int]:
        """``{total, completed, failed, running}``."""
        running = len(self.running)
        completed = self.total - self.unstarted - running - self.failed - self.cancelled
        return {"total": self.total, "completed": completed, "failed": self.failed, "running": running}

    def release(self) -> None:
        """All have settled: forget everything but the counts."""
        self.reading, self.results, self.errors = None, [], {}

    def to_json(self) -> dict[str, Any]:
        """The elements at a moment when none runs. What they are made of is left out: it can be read again."""
        counts = {"n": self.total, "s": self.started, "f": self.failed, "c": self.cancelled, "k": self.provided}
        errors = list(map(list, self.errors.items()))
        parts = {**counts, "e": errors, "r": self.results, "p": sorted(self.postponed)}
        return {key: part for key, part in parts.items() if part}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Elements:
        """The elements of ``to_json``."""
        counts = {"provided": "k", "started": "s", "failed": "f", "cancelled": "c"}
        figures = {name: data.get(key, 0) for name, key in counts.items()}
        return cls(
            data.get("n", 0), results=list(data.get("r", ())), errors=dict(data.get("e", ())),
            postponed=list(data.get("p", ())), **figures,
        )  # fmt: skip


def find_next(walk: Walk, rank: int, now: str) -> PlannedCall | None:
    """The element of a Call that starts next; None when none does. Those that cannot start have failed then."""
    elements = _elements_of(walk, rank)
    while elements.next is None and elements.unstarted and walk.calls[rank].stage == "collecting":
        index = elements.postponed[0] if elements.postponed else elements.started
        node = walk.nodes[rank].element_node(index)
        try:
            call = (elements.reading or _read_again(walk, rank, elements)).resolve(index)
            require_parameters(walk, node, call)
        except CallError as error:
            _mark_started(walk, rank, node, "pending")
            walk.states.move(walk.rows[node.key], "start_failed")
            _fail(walk, walk.rows[node.key], error, now)
        else:
            if not _take_over(walk, rank, node, call, now):
                elements.next = node, call
    return None if elements.next is None else elements.next[0]


def _take_over(walk: Walk, rank: int, node: PlannedCall, call: dict[str, Any], now: str) -> bool:
    """Take what the element had come to in an earlier run; False when it has to run."""
    reading = _elements_of(walk, rank).reading
    past = None if walk.past is None or reading is None else walk.past.take_element(walk, node, call, reading.context)
    if past is None:
        return False
    _mark_started(walk, rank, node, "pending")
    row = walk.rows[node.key]
    walk.states.move(row, "detached_before" if past.state == "detached" else "taken_over")
    if past.state == "detached":
        record_end(walk, row, now)
    else:
        record_result(walk, row, past.value, now)
    return True


def start_next(walk: Walk, rank: int) -> StartCall:
    """Start the element that ``find_next`` found."""
    elements = _elements_of(walk, rank)
    if elements.next is None or elements.reading is None:
        raise EngineError(f"no element of call {walk.nodes[rank].id} is ready")
    (node, call), elements.next = elements.next, None
    row = _mark_started(walk, rank, node, "ready")
    elements.running[_index(node)] = None
    walk.states.move(row, "started")
    return StartCall(row, node, {**call, "_id": walk.identify(node)}, elements.reading.context)


def _mark_started(walk: Walk, rank: int, node: PlannedCall, stage: str) -> int:
    """The row of an element that starts: a new one, or that of an element that was postponed."""
    elements, index = _elements_of(walk, rank), _index(node)
    if elements.postponed and elements.postponed[0] == index:
        heapq.heappop(elements.postponed)
    else:
        elements.started += 1
        elements.results.append(None)
    row = walk.rows.get(node.key)
    return walk.states.add_element(rank, node, stage) if row is None else row


def postpone(walk: Walk, row: int) -> None:
    """An element that was about to start does so later."""
    elements, index = _elements_of(walk, walk.states.rank(row)), _index(walk.states.node(row))
    elements.running.pop(index, None)
    heapq.heappush(elements.postponed, index)
    elements.next = None


def _read_again(walk: Walk, rank: int, elements: Elements) -> ElementReading:
    """What the elements are made of, in a run that goes on with them: read as it was when the first started."""
    context = walk.context.as_of(elements.provided)
    scoped = scoped_messages(context, rank)
    elements.reading, _ = read_elements(walk.nodes[rank], context.reader(rank), scoped, walk.work)
    return elements.reading


def record_result(walk: Walk, row: int, value: Json, now: str) -> None:
    """Take the result of an element that has reported."""
    rank, node = walk.states.rank(row), walk.states.node(row)
    try:
        refuse_defects(walk.nodes[rank], value, levels=1)
        require_result(walk, node, value)
    except CallError as error:
        _fail(walk, row, error, now)
        return
    _elements_of(walk, rank).results[_index(node)] = value
    walk.states.move(row, "written")
    record_end(walk, row, now)


def record_failure(walk: Walk, row: int, error: CallError, now: str) -> None:
    """Take the failure of an element that has reported."""
    if not (walk.cancelling and error.code == CANCELLED):
        _fail(walk, row, error, now)
        return
    _elements_of(walk, walk.states.rank(row)).cancelled += 1
    walk.states.move(row, "cancelled")
    record_end(walk, row, now)


def _fail(walk: Walk, row: int, error: CallError, now: str) -> None:
    elements = _elements_of(walk, walk.states.rank(row))
    elements.errors[_index(walk.states.node(row))] = {"code": error.code, "message": error.message}
    elements.failed += 1
    walk.states.move(row, "failed")
    record_end(walk, row, now)


def record_end(walk: Walk, row: int, now: str) -> None:
    """An element has settled: report its Call, if it was the last one."""
    rank = walk.states.rank(row)
    _elements_of(walk, rank).running.pop(_index(walk.states.node(row)), None)
    report_if_settled(walk, rank, now)


def report_if_settled(walk: Walk, rank: int, now: str) -> None:
    """Report a Call whose elements have all settled, or of which no more will start."""
    elements, node = _elements_of(walk, rank), walk.nodes[rank]
    if elements.running or (elements.unstarted and not walk.cancelling) or walk.calls[rank].stage != "collecting":
        return
    if node.is_detached and not elements.errors and not elements.unstarted:
        walk.settle(rank, "all_detached", now)
    else:
        walk.states.move(rank, "collected")
        if elements.unstarted or elements.cancelled:
            walk.settle(rank, "cancelled", now)
        elif elements.errors:
            apply_failure(walk, rank, _each_failed(elements), now)
        else:
            apply_result(walk, rank, elements.results, now)
    if walk.calls[rank].stage != "cancelled":  # a run that resumes this one reads what its elements had come to
        elements.release()


def exhaust(walk: Walk, rank: int) -> None:
    """Nothing more can be recorded: the elements that run have failed."""
    elements = _elements_of(walk, rank)
    for index in elements.running:
        walk.states.move(walk.rows[walk.nodes[rank].element_node(index).key], "exhausted")
    elements.failed += len(elements.running)
    elements.running.clear()
    elements.release()


def _elements_of(walk: Walk, rank: int) -> Elements:
    elements = walk.calls[rank].elements
    if elements is None:
        raise EngineError(f"call {walk.nodes[rank].id} has no elements")
    return elements


def _index(node: PlannedCall) -> int:
    return node.element or 0


def _each_failed(elements: Elements) -> CallError:
    """``eachFailed`` with details ``{errors: [{index, code, message}], results}``."""
    errors = [{"index": index, **error} for index, error in sorted(elements.errors.items())]
    named = [f"[{e['index']}] {e['code']}: {e['message']}" for e in errors[:MAX_FAILURES_NAMED]]
    more = [f"… and {len(errors) - len(named)} more"] if len(errors) > len(named) else []
    text = f"{len(errors):,} of {elements.total:,} elements failed: {'; '.join([*named, *more])}"
    return CallError(EACH_FAILED, text, {"errors": errors, "results": elements.results})
