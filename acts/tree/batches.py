"""Splits a plan over many instances into child runs, and builds each child's Request.

* A plan whose Calls name no instance is a *template*: every instance runs all of it.
  Otherwise a Call runs in the instance that it names, and a Call without one runs once, globally.
* A child runs the Calls of one instance, or of ``instancesPerChild``. Its parent schedules it as
  a *unit*: a planned Call without reads and writes, started, counted and paused like any other.
* If a Call of an instance touches what a global Call of the same plan writes, there are no
  children: one workflow runs all Calls, and the log separates the instances.

A child receives the messages of its own instances and the global ones, never another instance's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.config import MODEL_SETTINGS
from acts.language.errors import DecisionRefused
from acts.language.messages import Data
from acts.language.tools import Tool
from acts.language.values import Json
from acts.plan.calls import UNIT, PlannedCall, approval_needed
from acts.plan.graph import Graph, WriterIndex, build_graph, paths_read
from acts.plan.validate import ValidatedPlan, find_literal_outputs, is_template
from acts.tree.plan_request import PartRequests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TOOL: Final = Tool(UNIT, {}, {}, {})
# Every child receives all global data up to this size in bytes; above it, only what its Calls need
MAX_UNFILTERED_DATA: Final = 4096


def needs_children(prepared: ValidatedPlan) -> bool:
    """True when the instances of a plan run in child workflows."""
    request = prepared.request
    if not request.instances():
        return False
    shared = WriterIndex()
    for rank, node in enumerate(prepared.nodes):
        if node.instance is None:
            shared.add(node, rank)
    local = [n for n in prepared.nodes if n.instance is not None]
    return bool(local) and not any(shared.has_writer(p, None) for n in local for p in (*paths_read(n), *n.writes))


def split_into_children(prepared: ValidatedPlan) -> ValidatedPlan:
    """The plan that the parent runs: the global Calls, and a unit for each child."""
    graph, _ = build_graph([n for n in _listed(prepared) if n.instance is None], prepared.initial_log.has_initially)
    units = list(_build_units(prepared))
    combined = Graph((*graph.order, *units), (*graph.waits, *(() for _ in units)), graph.writers)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=combined, literal_outputs=find_literal_outputs(graph, mode)[0], unsplit=prepared)


def _listed(prepared: ValidatedPlan) -> list[PlannedCall]:
    return sorted(prepared.nodes, key=lambda n: n.index)


def _build_units(prepared: ValidatedPlan) -> Iterable[PlannedCall]:
    calls = _calls_by_instance(prepared)
    index = len(prepared.request.plan.calls) if prepared.request.plan is not None else 0
    for ids in group_instances(prepared):
        label = ids[0] if len(ids) == 1 else f"{ids[0]} … {ids[-1]}"
        plan = [calls[i] for i in ids]
        yield PlannedCall(
            index=index, id=label, tool=_TOOL, planned={"_instance": list(ids), "plan": plan}, call={},
            pointer="", instance=None, kind=UNIT, delegate=None, reads=(), scopes=(), outcomes=(),
            result_outcome_count=0, error=None, method="set", name=f"{UNIT}/{ids[0]}", members=ids,
        )  # fmt: skip
        index += len(ids)


def group_instances(prepared: ValidatedPlan) -> list[tuple[str, ...]]:
    """The instances of each child, in the order of the Request."""
    calls = _calls_by_instance(prepared)
    ids = [i for i in prepared.request.instances() if calls.get(i)]
    step = prepared.request.config.instancesPerChild
    return [tuple(ids[at : at + step]) for at in range(0, len(ids), step)]


def _calls_by_instance(prepared: ValidatedPlan) -> dict[str, list[Json]]:
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


# -- the Request of a child ------------------------------------------------------


class Batch:
    """The Requests of the children of one plan."""

    def __init__(self, prepared: ValidatedPlan, config: Mapping[str, Json]) -> None:
        approve, listed = prepared.request.config.approve, _listed(prepared)
        local = [n for n in listed if n.instance is not None]
        is_editable = any(approval_needed(n, approve) for n in local)
        self._requests = PartRequests(
            prepared, prepared.initial_log, _child_config(config), is_editable=is_editable,
            unfiltered_bytes=MAX_UNFILTERED_DATA,
        )  # fmt: skip
        self._template = listed if is_template(prepared.request, prepared.nodes) else None
        self._template_calls = list(prepared.request.plan.calls) if prepared.request.plan is not None else []
        self._nodes: dict[str, list[PlannedCall]] = {}
        for node in local:
            self._nodes.setdefault(str(node.instance), []).append(node)

    def request_for(
        self, instances: Sequence[str], provided: Sequence[Data] = ()
    ) -> tuple[dict[str, Any], tuple[int, ...] | None]:
        """The Request of the child that runs these instances, and the index of each of its Calls in the parent's plan.

        The indices are None for a template: every instance runs all of it.
        """
        if self._template is not None:
            return self._requests.build(self._template, self._template_calls, instances, provided), None
        nodes = sorted((n for i in instances for n in self._nodes.get(i, ())), key=lambda n: n.index)
        request = self._requests.build(nodes, [n.planned for n in nodes], instances, provided)
        return request, tuple(n.index for n in nodes)


def keep_instance(planned: Mapping[str, Any], changed: Json, instance: str | None) -> Json:
    """The edited Call ``changed``, in the instance of the Call that it replaces.

    ``instance`` is the instance that the Call runs for; a template's Call names none itself.

    Raises:
        DecisionRefused: the edit names another instance.
    """
    own = planned.get("_instance")
    if not isinstance(changed, dict) or (own is None and instance is None):
        return changed
    if changed.get("_instance") not in (None, own, instance):
        raise DecisionRefused(f"an edit of one call cannot change its instance, {own or instance}")
    rest = {k: v for k, v in changed.items() if k != "_instance"}
    return rest if own is None else {"_instance": own, **rest}


def _child_config(config: Mapping[str, Json]) -> dict[str, Any]:
    """The settings that apply in a child; its parent keeps the budget, and the plan is approved already."""
    keys = (*MODEL_SETTINGS, "maxParallel", "missing", "resolve")
    out = {k: config[k] for k in keys if config.get(k) is not None}
    approve = config.get("approve")
    child_approve = {**approve, "plan": False} if isinstance(approve, dict) else {"plan": False}
    return {**out, "approve": child_approve}


def count_calls(prepared: ValidatedPlan) -> int:
    """The number of Calls of a plan, over all of its instances."""
    times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
    return len(prepared.nodes) * max(1, times)


def expand_template(prepared: ValidatedPlan, instances: Sequence[str]) -> ValidatedPlan:
    """The plan of a child with several instances of a template: its Calls, once for each instance."""
    if len(instances) <= 1 or not is_template(prepared.request, prepared.nodes):
        return prepared
    return copy_for_instances(prepared, instances)


def copy_for_instances(prepared: ValidatedPlan, instances: Sequence[str]) -> ValidatedPlan:
    """A template with its Calls once for each instance, to be walked by one run."""
    nodes = [replace(n, instance=i, name=f"{i}/{n.id}") for i in instances for n in _listed(prepared)]
    graph, _ = build_graph(nodes, prepared.initial_log.has_initially)
    mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
    return replace(prepared, graph=graph, literal_outputs=find_literal_outputs(graph, mode)[0])
