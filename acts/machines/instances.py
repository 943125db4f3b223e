"""The instances of a batch: their statuses, the report of a child on them, and how the run above receives it.

Laws of this file: functions over walks and plain data; they change nothing. What the run above makes of a report,
``walk_context`` says. A *unit* is the planned Call of kind ``UNIT`` that stands for a batch child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.values import Json, get
from acts.language.wire import CANCELLED, ENGINE_ERROR
from acts.machines.call_state import SETTLED, call_item, error_item, status_from_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.machines.walk import Walk
    from acts.plan.calls import PlannedCall

# The keys of a child's report on one instance
REPORT_KEYS: Final = ("status", "state", "calls", "errors", "writes", "resumed")


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
    states = {id_: [item["status"]] for id_, item in child_progress(walk).items()}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        if node.instance is not None:
            states.setdefault(node.instance, []).append(call.state)
    return {id_: _status_so_far(own) for id_, own in states.items()}


def _status_so_far(states: Sequence[str]) -> str:
    unsettled = [state for state in states if state not in SETTLED]
    if not unsettled:
        return status_from_states(states)
    return unsettled[0] if len(states) == 1 or set(states) == {"pending"} else "running"


# -- the report of a child -------------------------------------------------------


def instance_summaries(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, calls, errors}}`` of each instance whose Calls this walk has."""
    return {id_: _summary(walk, ranks) for id_, ranks in _ranks_by_instance(walk).items()}


def _summary(walk: Walk, ranks: Sequence[int]) -> dict[str, Any]:
    calls = [call_item(walk.calls[rank]) for rank in ranks]
    errors = [error for rank in ranks if (error := error_item(walk.calls[rank])) is not None]
    return {
        "status": status_from_states(walk.calls[rank].state for rank in ranks),
        "calls": [_without_instance(call) for call in calls],
        "errors": [_without_instance(error) for error in errors],
    }


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
    """What a child reports: ``{id: {status, state, calls, errors, writes, resumed?}}``.

    ``writes`` are in plan order: ``[place in calls, path, date, edited, value?]``, with the value where ``state`` does
    not show it any more. The run above makes messages of them, from the plan. It does not know a plan that was
    ``edited`` in the child; then each has the method and the Call as planned, else null. ``resumed`` has the ids of the
    Calls that were taken over from an earlier run.
    """
    out, taken = {}, {} if walk.past is None else walk.past.taken_calls(walk.calls)
    for id_, ranks in _ranks_by_instance(walk).items():
        state = walk.context.state(id_)
        writes = list(_writes(walk, ranks, state, edited=edited))
        resumed = {"resumed": taken[id_]} if id_ in taken else {}
        out[id_] = {**_summary(walk, ranks), "state": state, "writes": writes, **resumed}
    return out


def _writes(walk: Walk, ranks: Sequence[int], state: Json, *, edited: bool) -> Iterable[list[Json]]:
    for at in sorted(range(len(ranks)), key=ranks.__getitem__):
        node = walk.nodes[ranks[at]]
        for path, value, date in walk.calls[ranks[at]].written:
            in_state = path.kind == "state" and get(state, path.names) == value
            as_edited = {"method": node.method, "planned": node.planned} if edited else None
            yield [at, str(path), date, as_edited, *([] if in_state else [value])]


# -- in the run above ------------------------------------------------------------


def decision_seen_from_above(node: PlannedCall, record: dict[str, Any]) -> dict[str, Any]:
    """A decision that was made in a child: of which instance of this run, or below which Call."""
    if node.members:
        return {"instance": node.members[0], **record}
    # The instances of a delegate are none of ours, and it does not know for whom it works
    inner = {} if record.get("instance") is None else {"inner": record.get("inner", record["instance"])}
    own = {} if node.instance is None else {"instance": node.instance}
    return {**{k: v for k, v in record.items() if k != "instance"}, **inner, "below": node.id, **own}


def reported_instances(node: PlannedCall, report: Any, error: CallError | None) -> dict[str, Any]:
    """What each instance of a unit came to, by id; ``error`` where the child said nothing."""
    if isinstance(report, dict) and isinstance(report.get("instances"), dict):
        return dict(report["instances"])
    if isinstance(report, dict) and "status" in report:
        return {node.members[0]: {k: report[k] for k in REPORT_KEYS if k in report}}
    cause = error or CallError(ENGINE_ERROR, "the child that walked it said nothing of it")
    item = {"call": None, "code": cause.code, "message": cause.message}
    status = "cancelled" if cause.code == CANCELLED else "failed"
    nothing = {"status": status, "state": {}, "calls": [], "errors": [item], "writes": []}
    return dict.fromkeys(node.members, nothing)
