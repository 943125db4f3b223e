"""One plan over many instances: who walks what, and what all of them came to.

* A plan none of whose Calls names an instance is a *template*: all of it runs for each.
  Else the Calls that name one run there, and the others once, globally.
* Each child walks the Calls of one instance (or of a few). The run that starts it sees it
  as a *unit*: a node without reads and writes, so that starting, counting, pausing and
  carrying over are the walk's as ever.
* Where a Call of an instance touches what a global Call of the same plan writes, one
  workflow walks them all: the layers of the log keep the instances apart.

A child is handed its own instance's messages and the global ones, and nothing of another.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from acts.calls import Node
from acts.graph import Chains, Graph, build, reading
from acts.handover import needed_part, own_messages, schema_messages, tool_messages
from acts.outputs import appended
from acts.packing import packed, unpacked
from acts.runs import SETTLED
from acts.tools import Tool
from acts.validate import Prepared, given_outputs, is_template
from acts.values import ABSENT, Json, get

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.context import Log
    from acts.messages import Data
    from acts.references import Path
    from acts.walk import Walk

    Known = dict[tuple[str | None, str], tuple[int, Node]]

UNIT: Final = "instance"
_TOOL: Final = Tool(UNIT, {}, {}, {})
# Global data up to this size is handed to every child as it is; of more, the part that its Calls need
WHOLE_BYTES: Final = 4096
_FAILURES: Final = ("cancelled", "failed", "rejected")


def apart(prepared: Prepared) -> bool:
    """True when the instances of a plan are walked by children of their own."""
    request = prepared.request
    if not request.instances():
        return False
    shared = Chains()
    for rank, node in enumerate(prepared.nodes):
        if node.instance is None:
            shared.add(node, rank)
    own = [n for n in prepared.nodes if n.instance is not None]
    return bool(own) and not any(shared.written(p, None) for n in own for p in (*reading(n), *n.writes))


def units(prepared: Prepared) -> Prepared:
    """What the run itself walks: the global Calls, and a unit for each child."""
    graph, _ = build([n for n in _listed(prepared) if n.instance is None], prepared.log().held)
    found = list(_units(prepared))
    both = Graph((*graph.order, *found), (*graph.waits, *(() for _ in found)), graph.chains, graph.ahead)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=both, given=given_outputs(graph, mode)[0], whole=prepared)


def _listed(prepared: Prepared) -> list[Node]:
    return sorted(prepared.nodes, key=lambda n: n.index)


def _units(prepared: Prepared) -> Iterable[Node]:
    own = _calls(prepared)
    ids = [i for i in prepared.request.instances() if own.get(i)]
    step = prepared.request.config.instancesPerChild
    place = len(prepared.request.plan.calls) if prepared.request.plan is not None else 0
    for at in range(0, len(ids), step):
        members = tuple(ids[at : at + step])
        label = members[0] if len(members) == 1 else f"{members[0]} … {members[-1]}"
        plan = [own[i] for i in members]
        yield Node(
            index=place + at, id=label, tool=_TOOL, planned={"_instance": list(members), "plan": plan}, call={},
            pointer="", instance=None, how=UNIT, delegate=None, reads=(), scopes=(), outcomes=(), choices=0,
            error=None, method="set", name=f"{UNIT}/{members[0]}", members=members,
        )  # fmt: skip


def _calls(prepared: Prepared) -> dict[str, list[Json]]:
    """The planned Calls of each instance."""
    request = prepared.request
    calls = list(request.plan.calls) if request.plan is not None else []
    if is_template(request, prepared.nodes):
        return dict.fromkeys(request.instances(), calls)
    out: dict[str, list[Json]] = {}
    for node in _listed(prepared):
        if node.instance is not None:
            out.setdefault(node.instance, []).append(node.planned)
    return out


# -- what a child is handed ------------------------------------------------------


class Batch:
    """The Requests of the children of one plan."""

    def __init__(self, prepared: Prepared, config: Mapping[str, Json]) -> None:
        self._prepared = prepared
        self._log = prepared.log()
        self._template = is_template(prepared.request, prepared.nodes)
        self._config = _config(config)
        self._own: dict[str, list[Data]] = {}
        self._nodes: dict[str, list[Node]] = {}
        for message in prepared.request.data():
            if message.instance is not None:
                self._own.setdefault(message.instance, []).append(message)
        for node in _listed(prepared):
            if node.instance is not None:
                self._nodes.setdefault(node.instance, []).append(node)
        self._shared: list[Json] | None = None

    def handed(self, members: Sequence[str], provided: Sequence[Data] = ()) -> dict[str, Any]:
        """``{request, instances, places?}`` for the child that walks these instances."""
        request = self._prepared.request
        plan = request.plan
        mode = plan.mode if plan is not None else "eager"
        if self._template:
            nodes = list(self._prepared.nodes)
            calls = list(plan.calls) if plan is not None else []
        else:
            nodes = sorted((n for i in members for n in self._nodes.get(i, ())), key=lambda n: n.index)
            calls = [n.planned for n in nodes]
        context = [*self._common(nodes), *(m for i in members for m in self._instance(i, nodes))]
        context += [m.raw for m in provided if m.instance is None or m.instance in members]
        context.append({"type": "plan", "plan": calls, **({"mode": mode} if mode != "eager" else {})})
        out: dict[str, Any] = {"request": {"config": self._config, "context": context}, "instances": list(members)}
        return out if self._template else {**out, "places": [n.index for n in nodes]}

    def _common(self, nodes: Sequence[Node]) -> list[Json]:
        """Tools and global data: the same for every child of a template."""
        if self._template and self._shared is not None:
            return self._shared
        data = [m for m in self._prepared.request.data() if m.instance is None]
        out: list[Json] = [*tool_messages(nodes)]
        whole = [{k: v for k, v in m.raw.items() if k not in ("_call", "_date")} for m in data]
        if len(json.dumps(whole, ensure_ascii=False)) <= WHOLE_BYTES:
            out += whole
        else:
            own = [m for i in {n.instance: None for n in nodes} if i is not None for m in self._own.get(i, ())]
            out += schema_messages(self._prepared.request, nodes)
            out += needed_part(self._log, nodes, own)
        if self._template:
            self._shared = out
        return out

    def _instance(self, id_: str, nodes: Sequence[Node]) -> list[Json]:
        own = self._own.get(id_, [])
        return own_messages(own, nodes) or [{"type": "state", "state": {}, "_instance": id_}]


def slim(handed: Mapping[str, Any]) -> dict[str, Any]:
    """What a child is handed, as it is recorded, twice for each child: ``{instances, context, shared}``.

    ``context`` are the messages of its own, to be read by a person; ``shared`` is what other children are
    handed as well, packed.
    """
    request = handed["request"]
    context = request["context"]
    first = next((i for i, m in enumerate(context) if m.get("_instance") is not None), len(context) - 1)
    rest = {k: v for k, v in handed.items() if k != "instances"}
    shared = {**rest, "request": {**request, "context": [*context[:first], context[-1]]}}
    return {"instances": handed["instances"], "context": context[first:-1], "shared": packed(shared)}


def opened(handed: Mapping[str, Any]) -> dict[str, Any]:
    """What was handed over, of what ``slim`` made of it.

    Raises:
        ValueError: it is something else.
    """
    try:
        shared = unpacked(handed["shared"])
        *common, plan = shared["request"]["context"]
        request = {**shared["request"], "context": [*common, *handed["context"], plan]}
        return {**shared, "request": request, "instances": handed["instances"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what a child is handed: {error!r}") from None


def _config(config: Mapping[str, Json]) -> dict[str, Any]:
    """The settings that hold in a child; its parent keeps the budget, and the plan has been approved."""
    kept = ("model", "temperature", "maxOutputTokens", "maxParallel", "missing")
    out = {k: config[k] for k in kept if config.get(k) is not None}
    approve = config.get("approve")
    asked = {**approve, "plan": False} if isinstance(approve, dict) else {"plan": False}
    return {**out, "approve": asked}


def count_calls(prepared: Prepared) -> int:
    """How many Calls a plan makes, over all of its instances."""
    times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
    return len(prepared.nodes) * max(1, times)


def together(prepared: Prepared, members: Sequence[str]) -> Prepared:
    """What a child of several instances of a template walks: its Calls once for each, side by side."""
    if len(members) <= 1 or not is_template(prepared.request, prepared.nodes):
        return prepared
    nodes = [replace(n, instance=i, name=f"{i}/{n.id}") for i in members for n in _listed(prepared)]
    graph, _ = build(nodes, prepared.log().held)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=graph, given=given_outputs(graph, mode)[0])


# -- what came of them -----------------------------------------------------------


def status_of(shared: str, parts: Sequence[str]) -> str:
    """The status of a batch: a failing instance does not touch the others, and all of them fail it."""
    if shared != "completed" or not parts or all(p == "completed" for p in parts):
        return shared
    if "completed" in parts or "partial" in parts:
        return "partial"
    return next((s for s in _FAILURES if s in parts), "failed")


def of_states(states: Iterable[str]) -> str:
    """The status of one instance (or of the global Calls), by the states of its Calls."""
    found = dict.fromkeys(states)
    return next((s for s in _FAILURES if s in found), "completed")


def walked(walk: Walk) -> dict[str, dict[str, Any]]:
    """What the instances that a walk has Calls of came to: ``{id: {status, state, calls, errors, written}}``.

    ``written`` says of each of the ``calls`` when it wrote: None for not at all, else the date, of all but the
    first of them as the milliseconds since that one. In ``[outcome, when, [value, …]?]`` it says more, where the
    outcome is not the first, or the state does not show the values any more.
    """
    from acts.report import call_item, error_item

    ranks: dict[str, list[int]] = {}
    for rank in sorted(range(len(walk.nodes)), key=lambda r: walk.nodes[r].index):
        instance = walk.nodes[rank].instance
        if instance is not None:
            ranks.setdefault(instance, []).append(rank)
    out = {}
    for id_, own in ranks.items():
        state = walk.state(id_)
        errors = (error_item(walk, rank) for rank in own)
        out[id_] = {
            "status": of_states(walk.runs[rank].state for rank in own),
            "state": state,
            "calls": [{k: v for k, v in call_item(walk, rank).items() if k != "instance"} for rank in own],
            "errors": [{k: v for k, v in e.items() if k != "instance"} for e in errors if e is not None],
            "written": _written(walk, own, state),
        }
    return out


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


def taken(log: Log, whole: Known, id_: str, item: Mapping[str, Any]) -> None:
    """Put what an instance's Calls wrote into its layer of the log."""
    layer = log.layer(id_)
    for rank, (_, node, path, value, _) in enumerate(_effects(whole, id_, item)):
        if layer.conflict(path, node.method, value, rank) is None:
            layer.write(path, node.method, value, rank)


def messages(whole: Known, id_: str, item: Mapping[str, Any]) -> list[tuple[int, Json]]:
    """The Messages that an instance's Calls appended, each with the rank of its Call in the whole plan."""
    return [(rank, appended(n, path, value, date)) for rank, n, path, value, date in _effects(whole, id_, item)]


def _effects(whole: Known, id_: str, item: Mapping[str, Any]) -> Iterable[tuple[int, Node, Path, Json, str]]:
    for rank, known, (outcome, date, *values) in sorted(_dated(whole, id_, item), key=itemgetter(0)):
        node = replace(known, instance=id_)
        for at, path in enumerate(node.outcomes[outcome]):
            value = values[0][at] if values else get(item["state"], path.names)
            if value is not ABSENT:
                yield rank, node, path, value, date


def _dated(whole: Known, id_: str, item: Mapping[str, Any]) -> Iterable[tuple[int, Node, list[Any]]]:
    """The Calls that wrote, each with its rank and ``[outcome, date, values?]``."""
    first: str | None = None
    for call, entry in zip(item["calls"], item["written"], strict=True):
        if entry is None:
            continue
        outcome, when, *values = entry if isinstance(entry, list) else [0, entry]
        date = _later(first, when) if first is not None and isinstance(when, int) else str(when)
        first = first or date
        found = whole.get((id_, call["id"])) or whole.get((None, call["id"]))
        if found is not None:
            yield *found, [outcome, date, *values]


def by_id(prepared: Prepared) -> Known:
    """The Calls of a plan, and their ranks, by instance and id; those of a template stand for every instance."""
    template = is_template(prepared.request, prepared.nodes)
    return {(None if template else n.instance, n.id): (rank, n) for rank, n in enumerate(prepared.nodes)}


def statuses(walk: Walk) -> dict[str, str]:
    """How far each instance is: ``pending``, ``running``, or what it came to."""
    states: dict[str, list[str]] = {}
    for node, run in zip(walk.nodes, walk.runs, strict=True):
        for id_ in node.members:
            found = run.value.get(id_, {}) if isinstance(run.value, dict) else {}
            states[id_] = [found.get("status", run.state)]
        if node.instance is not None:
            states.setdefault(node.instance, []).append(run.state)
    return {id_: _so_far(found) for id_, found in states.items()}


def _so_far(states: Sequence[str]) -> str:
    open_ = [s for s in states if s not in SETTLED]
    if not open_:
        return of_states(states)
    return "pending" if all(s == "pending" for s in states) else open_[0] if len(states) == 1 else "running"
