"""Makes a plan of the Calls of an answer: validated in the agent's context, and the Request that it is walked by.

Laws of this file: it changes nothing. The same Calls in the same context make the same plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused, InvalidRequest, Problem
from acts.language.request_reader import parse_message
from acts.language.values import MAX_DEPTH, Json, defect
from acts.language.wire import INVALID_SOLUTION, NOT_RUN
from acts.plan.planned_call import approval_needed
from acts.plan.validate import ValidatedPlan, validate_plan
from acts.planner.solution import DEPTH_RESERVE
from acts.tree.plan_request import full_request, minimal_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.tools import Tool
    from acts.machines.agent_context import AgentContext
    from acts.plan.planned_call import PlannedCall

# Settings of an agent that are none of its plans'
_NOT_FOR_PLANS: Final = ("maxTicks", "step", "budget", "approve")


class TickPlans:
    """The plans of one agent; ``context`` grows meanwhile."""

    def __init__(self, context: AgentContext, tools: Mapping[str, Tool], mode: str) -> None:
        self._context, self._tools, self._mode = context, tools, mode

    def message(self, calls: Sequence[Json]) -> dict[str, Any]:
        """These Calls as a message of the context."""
        return {"type": "plan", "plan": calls, "mode": self._mode}

    def validate(self, calls: list[Json], *, is_complete: bool = True) -> ValidatedPlan:
        """The plan of these Calls; one that is not complete is the beginning of a plan.

        Raises:
            InvalidRequest: with every problem.
        """
        request, log = self._context.request, self._context.log
        plan = parse_message(self.message(calls), len(request.context))
        unlimited = request.config.budget.model_copy(update={"calls": None})
        config = request.config.model_copy(update={"budget": unlimited})
        request = replace(request, config=config, context=(*request.context, plan))
        return validate_plan(request, self._tools, log, ("calls",), is_complete=is_complete)

    def validate_unread(self, calls: list[Json], *, is_complete: bool = True) -> ValidatedPlan:
        """``validate`` for Calls that nobody has checked to be fit to be stored."""
        broken = defect(calls, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem(INVALID_SOLUTION, broken[1], "/calls" + broken[0])])
        return self.validate(calls, is_complete=is_complete)

    def next_nodes(self, prepared: ValidatedPlan) -> list[PlannedCall]:
        """All Calls of a plan as listed, or with ``step: call`` the first one that is to be run."""
        nodes = sorted(prepared.nodes, key=lambda n: n.index)
        if self._context.request.config.step == "call":  # in plan order the first is ready; a thought is none
            return [next((n for n in prepared.nodes if n.outcomes or n.kind != "latent"), nodes[0])]
        return nodes

    def next_part(self, prepared: ValidatedPlan) -> tuple[ValidatedPlan, dict[str, Any]]:
        """What of a plan would be walked, and the Request that it would be walked by."""
        nodes = self.next_nodes(prepared)
        part = prepared if len(nodes) == len(prepared.nodes) else self.validate([n.planned for n in nodes])
        return part, self.request_for(prepared, nodes)

    def request_for(self, prepared: ValidatedPlan, nodes: list[PlannedCall]) -> dict[str, Any]:
        """The Request that these Calls of a plan are walked by."""
        request = self._context.request
        settings = request.raw.get("config") or {}
        approve = {**(settings.get("approve") or {}), "plan": False}
        config = {**{k: v for k, v in settings.items() if k not in _NOT_FOR_PLANS}, "approve": approve}
        # A person may change a Call that waits into any that the agent could make
        whole = any(approval_needed(n, request.config.approve) for n in nodes)
        return (full_request if whole else minimal_request)(prepared, self._context.log, nodes, config)


def with_changed_call(prepared: ValidatedPlan | None, calls: list[Json], id_: str | None, changed: Json) -> list[Json]:
    """The Calls of a plan with one in place of that of this id.

    Raises:
        DecisionRefused: the plan has no such Call.
    """
    nodes = prepared.nodes if prepared is not None else ()
    place = next((n.index for n in nodes if n.id == id_), None)
    if place is None:
        raise DecisionRefused(f"there is no call {id_} in the plan that waits")
    return [*calls[:place], changed, *calls[place + 1 :]]


def started_part(result: Mapping[str, Any], prepared: ValidatedPlan | None) -> tuple[dict[str, Any], list[Json]]:
    """The result of a plan without the Calls that had not started when it was dropped, and the plan of the others."""
    calls = [call for call in result["calls"] if (call.get("error") or {}).get("code") != NOT_RUN]
    places = {int(call["id"].partition(":")[0]) - 1 for call in calls}
    plan = prepared.request.plan if prepared is not None else None
    planned = [call for i, call in enumerate(plan.calls if plan is not None else ()) if i in places]
    return {**result, "calls": calls}, planned
