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
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.messages import Data
from acts.language.tools import Tool
from acts.language.values import Json
from acts.plan.graph import Graph, WriterIndex, build_graph, paths_read
from acts.plan.planned_call import UNIT, PlannedCall, approval_needed
from acts.plan.validate import ValidatedPlan, is_template, literal_outputs
from acts.tree.compression import packed, unpacked
from acts.tree.plan_request import all_tools, needed_messages, own_messages, schema_messages, tool_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TOOL: Final = Tool(UNIT, {}, {}, {})
# Global data up to this size is handed to every child as it is; of more, the part that its Calls need
WHOLE_BYTES: Final = 4096


def needs_children(prepared: ValidatedPlan) -> bool:
    """True when the instances of a plan are walked by children of their own."""
    request = prepared.request
    if not request.instances():
        return False
    shared = WriterIndex()
    for rank, node in enumerate(prepared.nodes):
        if node.instance is None:
            shared.add(node, rank)
    own = [n for n in prepared.nodes if n.instance is not None]
    return bool(own) and not any(shared.written(p, None) for n in own for p in (*paths_read(n), *n.writes))


def split_into_children(prepared: ValidatedPlan) -> ValidatedPlan:
    """What the run itself walks: the global Calls, and a unit for each child."""
    graph, _ = build_graph([n for n in _listed(prepared) if n.instance is None], prepared.start.held)
    found = list(_units(prepared))
    both = Graph((*graph.order, *found), (*graph.waits, *(() for _ in found)), graph.writers)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=both, literal_outputs=literal_outputs(graph, mode)[0], unsplit=prepared)


def _listed(prepared: ValidatedPlan) -> list[PlannedCall]:
    return sorted(prepared.nodes, key=lambda n: n.index)


def _units(prepared: ValidatedPlan) -> Iterable[PlannedCall]:
    own = _calls(prepared)
    place = len(prepared.request.plan.calls) if prepared.request.plan is not None else 0
    for unit in group_instances(prepared):
        label = unit[0] if len(unit) == 1 else f"{unit[0]} … {unit[-1]}"
        plan = [own[i] for i in unit]
        yield PlannedCall(
            index=place, id=label, tool=_TOOL, planned={"_instance": list(unit), "plan": plan}, call={},
            pointer="", instance=None, kind=UNIT, delegate=None, reads=(), scopes=(), outcomes=(),
            result_outcome_count=0, error=None, method="set", name=f"{UNIT}/{unit[0]}", members=unit,
        )  # fmt: skip
        place += len(unit)


def group_instances(prepared: ValidatedPlan) -> list[tuple[str, ...]]:
    """The instances that each child walks."""
    own = _calls(prepared)
    ids = [i for i in prepared.request.instances() if own.get(i)]
    step = prepared.request.config.instancesPerChild
    return [tuple(ids[at : at + step]) for at in range(0, len(ids), step)]


def _calls(prepared: ValidatedPlan) -> dict[str, list[Json]]:
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

    def __init__(self, prepared: ValidatedPlan, config: Mapping[str, Json]) -> None:
        self._prepared = prepared
        self._log = prepared.start
        self._template = is_template(prepared.request, prepared.nodes)
        approve, own = prepared.request.config.approve, [n for n in prepared.nodes if n.instance is not None]
        self._changes = any(approval_needed(n, approve) for n in own)  # a person may turn a Call into any other
        self._config = _config(config)
        self._own: dict[str, list[Data]] = {}
        self._nodes: dict[str, list[PlannedCall]] = {}
        for message in prepared.request.data():
            if message.instance is not None:
                self._own.setdefault(message.instance, []).append(message)
        for node in _listed(prepared):
            if node.instance is not None:
                self._nodes.setdefault(node.instance, []).append(node)
        self._shared: list[Json] | None = None

    def handed(self, group_instances: Sequence[str], provided: Sequence[Data] = ()) -> dict[str, Any]:
        """``{request, instances, places?}`` for the child that walks these instances."""
        request = self._prepared.request
        plan = request.plan
        mode = plan.mode if plan is not None else "eager"
        if self._template:
            nodes = list(self._prepared.nodes)
            calls = list(plan.calls) if plan is not None else []
        else:
            nodes = sorted((n for i in group_instances for n in self._nodes.get(i, ())), key=lambda n: n.index)
            calls = [n.planned for n in nodes]
        context = [*self._common(nodes), *(m for i in group_instances for m in self._instance(i, nodes))]
        context += [m.raw for m in provided if m.instance is None or m.instance in group_instances]
        context.append({"type": "plan", "plan": calls, **({"mode": mode} if mode != "eager" else {})})
        out: dict[str, Any] = {
            "request": {"config": self._config, "context": context},
            "instances": list(group_instances),
        }
        return out if self._template else {**out, "places": [n.index for n in nodes]}

    def _common(self, nodes: Sequence[PlannedCall]) -> list[Json]:
        """Tools and global data: the same for every child of a template."""
        if self._template and self._shared is not None:
            return self._shared
        data = [m for m in self._prepared.request.data() if m.instance is None]
        out: list[Json] = [*(all_tools(self._prepared) if self._changes else tool_messages(nodes))]
        whole = [_without_origin(m) for m in data]
        if self._changes or len(json.dumps(whole, ensure_ascii=False)) <= WHOLE_BYTES:
            out += whole
        else:
            own = [m for i in {n.instance: None for n in nodes} if i is not None for m in self._own.get(i, ())]
            out += schema_messages(self._prepared.request, nodes)
            out += needed_messages(self._log, nodes, own)
        if self._template:
            self._shared = out
        return out

    def _instance(self, id_: str, nodes: Sequence[PlannedCall]) -> list[Json]:
        own = self._own.get(id_, [])
        found = [_without_origin(m) for m in own] if self._changes else own_messages(own, nodes)
        return found or [{"type": "state", "state": {}, "_instance": id_}]


def _without_origin(message: Data) -> dict[str, Any]:
    return {k: v for k, v in message.raw.items() if k not in ("_call", "_date")}


def keep_instance(planned: Mapping[str, Any], changed: Json, instance: str | None) -> Json:
    """An edited Call, in the instance that it was planned for; ``instance`` is the one that it is walked for.

    Raises:
        Refused: the edit names another one.
    """
    own = planned.get("_instance")
    if not isinstance(changed, dict) or (own is None and instance is None):
        return changed
    if changed.get("_instance") not in (None, own, instance):
        raise DecisionRefused(f"an edit of one call leaves it in its instance, {own or instance}")
    rest = {k: v for k, v in changed.items() if k != "_instance"}
    return rest if own is None else {"_instance": own, **rest}


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
    kept = ("model", "temperature", "maxOutputTokens", "maxParallel", "missing", "resolve")
    out = {k: config[k] for k in kept if config.get(k) is not None}
    approve = config.get("approve")
    asked = {**approve, "plan": False} if isinstance(approve, dict) else {"plan": False}
    return {**out, "approve": asked}


def count_calls(prepared: ValidatedPlan) -> int:
    """How many Calls a plan makes, over all of its instances."""
    times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
    return len(prepared.nodes) * max(1, times)


def expand_template(prepared: ValidatedPlan, group_instances: Sequence[str]) -> ValidatedPlan:
    """What a child of several instances of a template walks: its Calls once for each, side by side."""
    if len(group_instances) <= 1 or not is_template(prepared.request, prepared.nodes):
        return prepared
    nodes = [replace(n, instance=i, name=f"{i}/{n.id}") for i in group_instances for n in _listed(prepared)]
    graph, _ = build_graph(nodes, prepared.start.held)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=graph, literal_outputs=literal_outputs(graph, mode)[0])
