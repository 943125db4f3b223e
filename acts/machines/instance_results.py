"""The instances of a batch: how a child reports on them, and what the run above makes of the report.

Laws of this file: functions over plain data and finished walks; they change nothing but a log that they are
asked to write to. The report is on the wire between a child and the run above, so its JSON form stays.
A *unit* is the planned Call of kind ``UNIT`` that stands for a batch child.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.expression_parser import parse
from acts.language.references import Path, paths
from acts.language.values import ABSENT, Json, get
from acts.machines.call_report import call_item, error_item
from acts.machines.call_state import SETTLED
from acts.plan.result_placement import build_message
from acts.plan.validate import ValidatedPlan, is_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.machines.walk import Walk
    from acts.machines.walk_view import WalkView
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall

    CallsByInstance = dict[str | None, dict[str, tuple[int, PlannedCall]]]

# The keys of a child's report on one instance
REPORT_KEYS: Final = ("status", "state", "calls", "errors", "written", "made", "order", "resumed")
# States that an instance or a batch ends with, the one that prevails first
_FAILURES: Final = ("cancelled", "failed", "rejected")


# -- status ----------------------------------------------------------------------


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


def status_of_plan(walk: WalkView) -> str:
    """How a plan ends, or would end now."""
    counts = walk.counts
    if walk.prepared.request.instances():
        status = _status_of_batch(walk)
    else:
        status = status_from_states(state for state, count in counts.items() if count)
    is_cancelled = walk.cancelling and (status == "completed" or counts["cancelled"])
    return "cancelled" if is_cancelled else status


def _status_of_batch(walk: WalkView) -> str:
    shared: list[str] = []
    parts: dict[str, list[str]] = {}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        if node.members:
            report = call.value or {}
            parts.update({id_: [report.get(id_, {}).get("status", call.state)] for id_ in node.members})
        elif node.instance is None:
            shared.append(call.state)
        else:
            parts.setdefault(node.instance, []).append(call.state)
    return status_of(status_from_states(shared), [status_from_states(states) for states in parts.values()])


def child_progress(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, calls}}`` of each instance that a batch child walks; its Calls once the child has ended."""
    out = {}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        for id_ in node.members:
            report = (call.value or {}).get(id_, {})
            out[id_] = {"status": report.get("status", call.state), "calls": report.get("calls", [])}
    return out


def statuses(walk: Walk) -> dict[str, str]:
    """The status of each instance: ``pending``, ``running``, or the one it ended with."""
    of_children: dict[str, str] = {}
    own: dict[str, list[str]] = {}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        if node.members:
            report = call.value or {}
            of_children.update(
                {id_: report[id_].get("status", call.state) if id_ in report else call.state for id_ in node.members}
            )
        if node.instance is not None:
            own.setdefault(node.instance, []).append(call.state)
    alone = {state: _status_so_far([state]) for state in sorted({*of_children.values()})}
    out = {id_: alone[state] for id_, state in of_children.items()}
    for id_, states in own.items():
        out[id_] = _status_so_far([of_children[id_], *states] if id_ in of_children else states)
    return out


def _status_so_far(states: Sequence[str]) -> str:
    unsettled = [state for state in states if state not in SETTLED]
    if not unsettled:
        return status_from_states(states)
    return unsettled[0] if len(states) == 1 or set(states) == {"pending"} else "running"


# -- the report of a child -------------------------------------------------------


def instance_summaries(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, calls, errors}}`` of each instance whose Calls this walk has."""
    out = {}
    for id_, ranks in _ranks_by_instance(walk).items():
        errors = (error_item(walk, rank) for rank in ranks)
        out[id_] = {
            "status": status_from_states(walk.calls[rank].state for rank in ranks),
            "calls": [_without_instance(call_item(walk, rank)) for rank in ranks],
            "errors": [_without_instance(error) for error in errors if error is not None],
        }
    return out


def _without_instance(item: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k != "instance"}


def _ranks_by_instance(walk: Walk) -> dict[str, list[int]]:
    """The ranks of each instance's Calls, in the order in which the plan lists them."""
    out: dict[str, list[int]] = {}
    for rank in sorted(range(len(walk.nodes)), key=lambda rank: walk.nodes[rank].index):
        instance = walk.nodes[rank].instance
        if instance is not None:
            out.setdefault(instance, []).append(rank)
    return out


def instance_report(walk: Walk, *, edited: bool) -> dict[str, dict[str, Any]]:
    """What a child reports: ``{id: {status, state, calls, errors, written | made, order?}}``.

    ``written`` has one entry per item of ``calls``: null for a Call that wrote nothing, else its date. The first
    date is ISO-8601, each other one the milliseconds since it. An entry is ``[outcome, date, [value, …]?]``
    where the outcome is not the first one, or ``state`` does not show the values any more. ``order`` lists
    the positions of ``calls`` in plan order, unless that is the order of the list. ``resumed`` has the ids of the Calls
    that were taken over from an earlier run.

    The run above makes messages of it, from the plan. It does not know a plan that was ``edited`` in the child;
    then ``made`` takes the place of ``written`` and ``order``: ``[position, path, method, the Call as planned,
    date, value?]`` for each write, in plan order.
    """
    ranks, out = _ranks_by_instance(walk), {}
    taken = {} if walk.past is None else walk.past.taken_calls(walk)
    for id_, summary in instance_summaries(walk).items():
        state, own = walk.state(id_), ranks[id_]
        order = sorted(range(len(own)), key=own.__getitem__)
        writes: dict[str, Any] = {} if order == sorted(order) else {"order": order}
        if edited:
            writes = {"made": [entry for at in order for entry in _entries_of_edited_plan(walk, own[at], at, state)]}
        else:
            writes["written"] = _entries_of_plan(walk, own, state)
        resumed = {"resumed": taken[id_]} if id_ in taken else {}
        out[id_] = {"status": summary["status"], "state": state, **summary, **writes, **resumed}
    return out


def _entries_of_edited_plan(walk: Walk, rank: int, at: int, state: Json) -> Iterable[list[Json]]:
    node = walk.nodes[rank]
    for path, value, date in walk.calls[rank].written:
        values = [] if _shows(state, path, value) else [value]
        yield [at, str(path), node.method, node.planned, date, *values]


def _entries_of_plan(walk: Walk, ranks: Sequence[int], state: Json) -> list[Json]:
    out: list[Json] = []
    first: str | None = None
    for rank in ranks:
        call = walk.calls[rank]
        if not call.written:
            out.append(None)
            continue
        date = call.written[0][2]
        entry_date = date if first is None else _ms_between(first, date)
        first = first or date
        are_shown = all(_shows(state, path, value) for path, value, _ in call.written)
        values = [] if are_shown else [[value for _, value, _ in call.written]]
        out.append([call.outcome, entry_date, *values] if values or call.outcome else entry_date)
    return out


def _shows(state: Json, path: Path, value: Json) -> bool:
    return path.kind == "state" and bool(get(state, path.names) == value)


def _ms_between(first: str, date: str) -> Json:
    """Milliseconds between two dates, or the second date itself if they would not give it back."""
    try:
        passed = round((datetime.fromisoformat(date) - datetime.fromisoformat(first)) / timedelta(milliseconds=1))
        return passed if _add_ms(first, passed) == date else date
    except (TypeError, ValueError):
        return date


def _add_ms(first: str, milliseconds: int) -> str:
    """The date that many milliseconds after the first, in the form of a walk's dates."""
    date = datetime.fromisoformat(first) + timedelta(milliseconds=milliseconds)
    return date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


# -- the report in the run above -------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReportedWrite:
    """One write of an instance's Call: ``rank`` is that of the Call in the unsplit plan."""

    rank: int
    planned: Json
    method: str
    path: Path
    value: Json
    date: str


def calls_by_instance(unsplit: ValidatedPlan) -> CallsByInstance:
    """The Calls of a plan with their ranks, by instance and id; those of a template under None, for every instance."""
    template = is_template(unsplit.request, unsplit.nodes)
    out: CallsByInstance = {}
    for rank, node in enumerate(unsplit.nodes):
        out.setdefault(None if template else node.instance, {})[node.id] = (rank, node)
    return out


def replay_into_log(log: Log, calls: CallsByInstance, id_: str, report: Mapping[str, Any]) -> None:
    """Write into an instance's view of the log what its Calls wrote.

    A message that was provided to all instances may be in the way of a write, which the child never saw so.
    Then the value is set that the child's state had.
    """
    view = log.view_of(id_)
    for rank, write in enumerate(_reported_writes(calls, id_, report)):
        method, value = write.method, write.value
        if view.find_conflict(write.path, method, value, rank) is not None:
            in_state = get(report["state"], write.path.names) if write.path.kind == "state" else ABSENT
            method, value = "set", value if in_state is ABSENT else in_state
        view.write(write.path, method, value, rank)


def instance_messages(calls: CallsByInstance, id_: str, report: Mapping[str, Any]) -> list[tuple[int, Json]]:
    """The messages that an instance's Calls appended, each with the rank of its Call in the unsplit plan."""
    return [
        (write.rank, build_message(write.planned, write.method, write.path, write.value, write.date, id_))
        for write in _reported_writes(calls, id_, report)
    ]


def _reported_writes(calls: CallsByInstance, id_: str, report: Mapping[str, Any]) -> Iterable[_ReportedWrite]:
    """What an instance's Calls wrote, in plan order; its Calls are those that name it, else those of the template."""
    own = calls.get(id_) or calls.get(None, {})
    listed = sorted(own.values(), key=lambda ranked: ranked[1].index)
    if "made" in report:
        return _writes_of_edited_plan(listed, report)
    return _writes_of_plan(listed, report)


def _writes_of_edited_plan(
    listed: Sequence[tuple[int, PlannedCall]], report: Mapping[str, Any]
) -> Iterable[_ReportedWrite]:
    for at, text, method, planned, date, *values in report["made"]:
        path = paths(parse(text))[0]
        value = values[0] if values else get(report["state"], path.names)
        rank, _ = listed[min(at, len(listed) - 1)]  # the edited plan may have more Calls
        yield _ReportedWrite(rank, planned, method, path, value, date)


def _writes_of_plan(listed: Sequence[tuple[int, PlannedCall]], report: Mapping[str, Any]) -> Iterable[_ReportedWrite]:
    entries = list(_full_entries(report.get("written") or []))
    for at in report.get("order") or range(len(entries)):
        entry = entries[at]
        if entry is None:
            continue
        rank, node = listed[at]
        outcome, date, *values = entry
        for n, path in enumerate(node.outcomes[outcome]):
            value = values[0][n] if values else get(report["state"], path.names)
            if value is not ABSENT:
                yield _ReportedWrite(rank, node.planned, node.method, path, value, date)


def _full_entries(written: Iterable[Json]) -> Iterable[list[Any] | None]:
    """The entries of ``written`` as ``[outcome, ISO date, values?]``, null ones as None."""
    first: str | None = None
    for entry in written:
        if entry is None:
            yield None
            continue
        outcome, entry_date, *values = entry if isinstance(entry, list) else [0, entry]
        is_offset = first is not None and isinstance(entry_date, int)
        date = _add_ms(str(first), entry_date) if is_offset else str(entry_date)
        first = first or date
        yield [outcome, date, *values]
