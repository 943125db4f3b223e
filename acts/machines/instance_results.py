"""What the instances of a batch came to: as a walk has it, as a child tells it, as the run above takes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.references import Path, parse, paths
from acts.language.values import ABSENT, Json, get
from acts.machines.call_report import call_item, error_item
from acts.machines.call_state import SETTLED
from acts.plan.result_placement import build_message
from acts.plan.validate import ValidatedPlan, is_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.machines.walk import Walk
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall

    Known = dict[str | None, dict[str, tuple[int, PlannedCall]]]

# What a child says of an instance
TOLD: Final = ("status", "state", "calls", "errors", "written", "made", "order")
_FAILURES: Final = ("cancelled", "failed", "rejected")


def status_of(shared: str, parts: Sequence[str]) -> str:
    """The status of a batch: a failing instance does not touch the others, and all of them fail it."""
    if shared != "completed" or not parts or all(p == "completed" for p in parts):
        return shared
    if "completed" in parts or "partial" in parts:
        return "partial"
    return next((s for s in _FAILURES if s in parts), "failed")


def status_from_states(states: Iterable[str]) -> str:
    """The status of one instance (or of the global Calls), by the states of its Calls."""
    found = dict.fromkeys(states)
    return next((s for s in _FAILURES if s in found), "completed")


def instance_summaries(walk: Walk) -> dict[str, dict[str, Any]]:
    """What the instances that a walk has Calls of came to: ``{id: {status, calls, errors}}``."""
    out = {}
    for id_, own in _by_instance(walk).items():
        errors = (error_item(walk, rank) for rank in own)
        out[id_] = {
            "status": status_from_states(walk.runs[rank].state for rank in own),
            "calls": [{k: v for k, v in call_item(walk, rank).items() if k != "instance"} for rank in own],
            "errors": [{k: v for k, v in e.items() if k != "instance"} for e in errors if e is not None],
        }
    return out


def _by_instance(walk: Walk) -> dict[str, list[int]]:
    """The ranks of each instance's Calls, as listed in the plan."""
    out: dict[str, list[int]] = {}
    for rank in sorted(range(len(walk.nodes)), key=lambda r: walk.nodes[r].index):
        instance = walk.nodes[rank].instance
        if instance is not None:
            out.setdefault(instance, []).append(rank)
    return out


def instance_report(walk: Walk, *, edited: bool) -> dict[str, dict[str, Any]]:
    """What a child says of its instances: ``{id: {status, state, calls, errors, written | made, order?}}``.

    ``written`` says of each of the ``calls`` when it wrote: None for not at all, else the date, of all but the
    first of them as the milliseconds since that one. In ``[outcome, when, [value, …]?]`` it says more, where the
    outcome is not the first, or the state does not show the values any more. ``order`` are the places of the
    ``calls`` in plan order, where that is not the order in which they are listed.

    The run above makes Messages of it, by the plan. Of a plan that was ``edited`` below, which it does not know, it
    is told what was ``made`` instead: ``[place of the Call, path, method, the Call as planned, date, value?]``.
    """
    ranks, out = _by_instance(walk), {}
    for id_, item in instance_summaries(walk).items():
        state, own = walk.state(id_), ranks[id_]
        places = sorted(range(len(own)), key=own.__getitem__)
        how: dict[str, Any] = {} if places == sorted(places) else {"order": places}
        if edited:
            how = {"made": [made for at in places for made in _made(walk, own[at], at, state)]}
        else:
            how["written"] = _written(walk, own, state)
        out[id_] = {"status": item["status"], "state": state, "calls": item["calls"], "errors": item["errors"], **how}
    return out


def _made(walk: Walk, rank: int, at: int, state: Json) -> Iterable[list[Json]]:
    node = walk.nodes[rank]
    for path, value, date in walk.runs[rank].written:
        shown = path.kind == "state" and get(state, path.names) == value
        yield [at, str(path), node.method, node.planned, date, *([] if shown else [value])]


def _own_calls(known: Known, id_: str) -> dict[str, tuple[int, PlannedCall]]:
    """The Calls that name an instance; else those that name none: it is one of a template."""
    return known.get(id_) or known.get(None, {})


def _written(walk: Walk, ranks: Sequence[int], state: Json) -> list[Json]:
    out: list[Json] = []
    first: str | None = None
    for rank in ranks:
        run = walk.runs[rank]
        if not run.written:
            out.append(None)
            continue
        date = run.written[0][2]
        when = date if first is None else _since(first, date)
        first = first or date
        shown = all(path.kind == "state" and get(state, path.names) == value for path, value, _ in run.written)
        values = [] if shown else [[value for _, value, _ in run.written]]
        out.append([run.outcome, when, *values] if values or run.outcome else when)
    return out


def _since(first: str, date: str) -> Json:
    """Milliseconds between two dates, or the second as it is, where it could not be found from them again."""
    try:
        passed = round((datetime.fromisoformat(date) - datetime.fromisoformat(first)) / timedelta(milliseconds=1))
        return passed if _later(first, passed) == date else date
    except (TypeError, ValueError):
        return date


def _later(first: str, milliseconds: int) -> str:
    """The date so much after the first, in the form of a walk's dates."""
    date = datetime.fromisoformat(first) + timedelta(milliseconds=milliseconds)
    return date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass(frozen=True, slots=True)
class _Effect:
    """One write of an instance's Call: ``rank`` is that of the Call in the whole plan."""

    rank: int
    planned: Json
    method: str
    path: Path
    value: Json
    date: str


def replay_into_log(log: Log, whole: Known, id_: str, item: Mapping[str, Any]) -> None:
    """Put what an instance's Calls wrote into its layer of the log.

    What was provided to all of them may not go with it: then what the child saw stands there.
    """
    layer = log.layer(id_)
    for rank, effect in enumerate(_effects(whole, id_, item)):
        path, method, value = effect.path, effect.method, effect.value
        if layer.conflict(path, method, value, rank) is not None:
            seen = get(item["state"], path.names) if path.kind == "state" else ABSENT
            method, value = "set", value if seen is ABSENT else seen
        layer.write(path, method, value, rank)


def instance_messages(whole: Known, id_: str, item: Mapping[str, Any]) -> list[tuple[int, Json]]:
    """The Messages that an instance's Calls appended, each with the rank of its Call in the whole plan."""
    found = _effects(whole, id_, item)
    return [(e.rank, build_message(e.planned, e.method, e.path, e.value, e.date, id_)) for e in found]


def _effects(whole: Known, id_: str, item: Mapping[str, Any]) -> Iterable[_Effect]:
    """What an instance's Calls wrote, in plan order."""
    nodes = sorted(_own_calls(whole, id_).values(), key=lambda found: found[1].index)
    if "made" in item:
        for at, text, method, planned, date, *values in item["made"]:
            path = paths(parse(text))[0]
            value = values[0] if values else get(item["state"], path.names)
            yield _Effect(nodes[min(at, len(nodes) - 1)][0], planned, method, path, value, date)
        return
    written = list(_dated(item.get("written") or []))
    for at in item.get("order") or range(len(written)):
        entry = written[at]
        if entry is None:
            continue
        rank, node = nodes[at]
        outcome, date, *values = entry
        for n, path in enumerate(node.outcomes[outcome]):
            value = values[0][n] if values else get(item["state"], path.names)
            if value is not ABSENT:
                yield _Effect(rank, node.planned, node.method, path, value, date)


def _dated(written: Iterable[Json]) -> Iterable[list[Any] | None]:
    """What is told of each Call, as ``[outcome, date, values?]``; None of one that did not write."""
    first: str | None = None
    for entry in written:
        if entry is None:
            yield None
            continue
        outcome, when, *values = entry if isinstance(entry, list) else [0, entry]
        date = _later(first, when) if first is not None and isinstance(when, int) else str(when)
        first = first or date
        yield [outcome, date, *values]


def calls_by_instance(prepared: ValidatedPlan) -> Known:
    """The Calls of a plan, and their ranks, by instance and id; those of a template stand for every instance."""
    template = is_template(prepared.request, prepared.nodes)
    out: Known = {}
    for rank, node in enumerate(prepared.nodes):
        out.setdefault(None if template else node.instance, {})[node.id] = (rank, node)
    return out


def child_progress(walk: Walk) -> dict[str, dict[str, Any]]:
    """How far the instances are that children walk: ``{id: {status, calls}}``, no Calls of one that goes on."""
    out = {}
    for node, run in zip(walk.nodes, walk.runs, strict=True):
        for id_ in node.members:
            found = run.value.get(id_, {}) if isinstance(run.value, dict) else {}
            out[id_] = {"status": found.get("status", run.state), "calls": found.get("calls", [])}
    return out


def statuses(walk: Walk) -> dict[str, str]:
    """How far each instance is: ``pending``, ``running``, or what it came to."""
    states = {id_: [item["status"]] for id_, item in child_progress(walk).items()}
    for node, run in zip(walk.nodes, walk.runs, strict=True):
        if node.instance is not None:
            states.setdefault(node.instance, []).append(run.state)
    return {id_: _so_far(found) for id_, found in states.items()}


def _so_far(states: Sequence[str]) -> str:
    open_ = [s for s in states if s not in SETTLED]
    if not open_:
        return status_from_states(states)
    return "pending" if all(s == "pending" for s in states) else open_[0] if len(states) == 1 else "running"
