"""A walk as JSON, and a walk from that JSON: how it continues in the next run of its workflow.

Laws of this file: a snapshot is taken while no Call runs, and restoring it gives the same walk. What is
kept of a Call is what ``FIELDS`` lists, for JSON and for an edited plan alike.

WARNING: the keys are on the wire between two runs, which may be of different versions of the engine.
A new field of ``CallState`` that outlives a quiet moment needs a row in ``FIELDS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import EngineError
from acts.language.values import ABSENT
from acts.machines.call_state import SETTLED, CallState
from acts.machines.elements import Elements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acts.language.messages import Data
    from acts.language.values import Json
    from acts.machines.walk import Walk
    from acts.plan.planned_call import PlannedCall


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of ``CallState`` and its key in a snapshot.

    ``dump`` yields its JSON, or ABSENT where there is nothing to keep. ``load`` reads that JSON; it gets
    the planned Call and the whole item besides.
    """

    name: str
    key: str
    dump: Callable[[CallState], Json]
    load: Callable[[Json, PlannedCall, Mapping[str, Any]], Any] = lambda value, _node, _item: value


def _dump_outcome(call: CallState) -> Json:
    return call.outcome if call.written or call.effect is not None else ABSENT


def _dump_written(call: CallState) -> Json:
    return [[value, date] for _, value, date in call.written] or ABSENT


def _load_written(value: Json, node: PlannedCall, item: Mapping[str, Any]) -> Any:
    pairs = zip(node.outcomes[item["o"]], value, strict=True)
    return tuple((path, written, date) for path, (written, date) in pairs)


def _dump_effect(call: CallState) -> Json:
    return ABSENT if call.effect is None else [[value for _, value in call.effect[0]], call.effect[1]]


def _load_effect(value: Json, node: PlannedCall, item: Mapping[str, Any]) -> Any:
    values, date = value
    return tuple(zip(node.outcomes[item["o"]], values, strict=True)), date


def _dump_elements(call: CallState) -> Json:
    """The elements of a Call from when the first has started; before, the list is read anew."""
    return call.elements.to_json() if call.elements is not None and call.has_started else ABSENT


FIELDS: Final = (
    _Field("stage", "s", lambda call: call.stage if call.stage in (*SETTLED, "collecting") else ABSENT),
    _Field("error", "e", lambda call: ABSENT if call.error is None else call.error),
    _Field("approved", "a", lambda call: call.approved or ABSENT),
    _Field("edited", "c", lambda call: call.edited or ABSENT),
    _Field("outcome", "o", _dump_outcome),
    _Field("written", "w", _dump_written, _load_written),
    _Field("effect", "p", _dump_effect, _load_effect),
    _Field("value", "v", lambda call: ABSENT if call.value is None else call.value),
    _Field("reason", "r", lambda call: ABSENT if call.reason is None else call.reason),
    _Field("elements", "n", _dump_elements, lambda value, _node, _item: Elements.from_json(value)),
)


def take_snapshot(walk: Walk) -> dict[str, Any]:
    """``{runs: {rank: item}, provided, paused, growing?}``: the walk as JSON.

    Raises:
        EngineError: a Call runs.
    """
    if not walk.quiet:
        raise EngineError("a snapshot is taken when nothing runs")
    items = {}
    for rank, call in enumerate(walk.calls):
        item = {f.key: value for f in FIELDS if (value := f.dump(call)) is not ABSENT}
        if item:
            items[str(rank)] = item
    growing = {"growing": True} if walk.growing else {}
    return {"runs": items, "provided": walk.provided, "paused": walk.paused, **growing}


def restore_snapshot(walk: Walk, data: Mapping[str, Any], parse: Callable[[Json], Data]) -> None:
    """Load the snapshot of a walk of the same plan into a walk that has not begun."""
    walk.paused, walk.growing = bool(data["paused"]), bool(data.get("growing"))
    calls = {int(rank): _load_call(walk.nodes[int(rank)], item) for rank, item in data["runs"].items()}
    walk.load(walk.prepared, [parse(raw) for raw in data["provided"]], calls)


def _load_call(node: PlannedCall, item: Mapping[str, Any]) -> CallState:
    fields = {f.name: f.load(item[f.key], node, item) for f in FIELDS if f.key in item}
    if "effect" in fields:
        fields["stage"] = "applying"
    return CallState(**fields)


def keep_call(call: CallState) -> CallState:
    """What an edited plan keeps of a Call that it leaves alone.

    A Call that has not started is assessed anew; what people decided about it remains.
    """
    if not call.has_started:
        return CallState(approved=call.approved, edited=call.edited)
    return CallState(**{f.name: getattr(call, f.name) for f in FIELDS})
