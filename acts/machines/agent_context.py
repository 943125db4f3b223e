"""What an agent works with: its messages and the log that folds them, its Tools, and the plans made of its answers.

Laws of this file: messages are appended and never changed, and the same Calls in the same context make the same plan.
Nothing here knows what a tick is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.messages import Data, Message, Request, output_schema, parse_message
from acts.language.references import Expression, Path, evaluate
from acts.language.schemas import find_schema_problem
from acts.language.tools import Tool, read_tools
from acts.language.values import ABSENT, MAX_DEPTH, Json, defect
from acts.language.wire import INVALID_SOLUTION
from acts.plan.calls import approval_needed
from acts.plan.context_log import Log
from acts.plan.validate import ValidatedPlan, set_refusal, settings_problems_of, validate_plan
from acts.planner import turns
from acts.planner.solution import DEPTH_RESERVE, call_at
from acts.tree.child_requests import part_request
from acts.tree.decisions import DECISION_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.plan.calls import PlannedCall

# Settings of an agent that are none of its plans'
_NOT_FOR_PLANS: Final = ("maxTicks", "step", "budget", "approve")


class AgentContext:
    """``request`` is the Request with everything that joined its context since; ``warnings`` are its problems.

    Raises:
        InvalidRequest: the Request cannot be run, with every problem.
    """

    def __init__(self, request: Request, registry: Mapping[str, Json], served: Iterable[str]) -> None:
        tools = read_tools(request, registry, frozenset(served).__contains__)
        self.request = request
        self.log = Log(request.data())
        self.output_schema = output_schema(request.schema)
        problems = [*_find_problems(request, tools.problems, self.output_schema), *self.log.problems]
        problems.extend(set_refusal(request, "an agent"))
        if any(p.fatal for p in problems):
            raise InvalidRequest(problems)
        self.warnings = tuple(problems)
        self.tools: Mapping[str, Tool] = tools.by_name
        self.mode = request.mode
        self._own_count = len(request.context)

    # -- messages ----------------------------------------------------------------------------------

    def append(self, raws: Iterable[Json]) -> None:
        """Messages join the context, and the log."""
        start = len(self.request.context)
        parsed: list[Message] = [parse_message(raw, start + i) for i, raw in enumerate(raws)]
        for message in parsed:
            if isinstance(message, Data):
                self.log.fold(message)
        self.request = replace(self.request, context=(*self.request.context, *parsed))

    def append_plan(self, calls: Sequence[Json]) -> None:
        """These Calls join the context as its plan."""
        self.append([self._plan_message(calls)])

    def append_problems(self, problems: Sequence[Problem], calls: Sequence[Json]) -> list[dict[str, Any]]:
        """Problems join the context as error messages, each with the Call that it is about; returns what was shown."""
        items = turns.problem_items(problems)
        for item in items:
            error = {key: value for key, value in item.items() if key != "call"}
            self.append([{"type": "error", "data": {"call": call_at(item.get("pointer", ""), calls), "error": error}}])
        return [item for item in items if item["code"] != turns.MORE_PROBLEMS]

    def append_decision(self, record: Mapping[str, Any]) -> None:
        """Who decided what becomes part of the context, in place of the decision before.

        What is about an instance belongs to it: models of the others are not shown it.
        """
        data = {k: v for k, v in record.items() if k in DECISION_KEYS}
        message = {"type": "data", "kind": "decision", "data": data, "_outputPath": "†decision"}
        instance = record.get("instance")
        own = instance in self.log.own
        self.append([{**message, "_instance": instance} if own else message])

    def provide(self, message: Data) -> None:
        """A message from outside joins the context.

        Raises:
            InvalidRequest: it cannot be folded into it, or would not fit into the Request of a plan.
        """
        broken = defect(message.raw, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem("invalidMessage", broken[1], broken[0])])
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
        refused = self.log.fold(message)
        if refused:
            raise InvalidRequest([Problem("invalidMessage", refused.message)])
        again = replace(message, index=len(self.request.context))
        self.request = replace(self.request, context=(*self.request.context, again))

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.request.context)

    def appended(self) -> list[Json]:
        """The messages that came after the Request's."""
        return [m.raw for m in self.request.context[self._own_count :]]

    def read(self, path: Path) -> Json:
        """What is at a path now."""
        return self.log.read(path, 0)

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """What an expression yields now."""
        return evaluate(tree, lambda path: self.log.read(path, 0, instance))

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        view = self.log.read_kind("state", instance=instance)
        return {} if view is ABSENT else view

    # -- plans -------------------------------------------------------------------------------------

    def validate(self, calls: list[Json], *, is_complete: bool = True) -> ValidatedPlan:
        """The plan of these Calls; one that is not complete is the beginning of a plan.

        Raises:
            InvalidRequest: with every problem.
        """
        broken = defect(calls, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem(INVALID_SOLUTION, broken[1], "/calls" + broken[0])])
        plan = parse_message(self._plan_message(calls), self.count)
        unlimited = self.request.config.budget.model_copy(update={"calls": None})
        config = self.request.config.model_copy(update={"budget": unlimited})
        request = replace(self.request, config=config, context=(*self.request.context, plan))
        return validate_plan(request, self.tools, self.log, ("calls",), is_complete=is_complete)

    def next_nodes(self, prepared: ValidatedPlan) -> list[PlannedCall]:
        """All Calls of a plan as listed, or with ``step: call`` the first one that is to be run."""
        nodes = sorted(prepared.nodes, key=lambda n: n.index)
        if self.request.config.step == "call":  # in plan order the first is ready; a thought is none
            return [next((n for n in prepared.nodes if n.outcomes or n.kind != "latent"), nodes[0])]
        return nodes

    def next_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What of a plan would be walked."""
        nodes = self.next_nodes(prepared)
        return prepared if len(nodes) == len(prepared.nodes) else self.validate([n.planned for n in nodes])

    def plan_request(self, prepared: ValidatedPlan, nodes: list[PlannedCall]) -> dict[str, Any]:
        """The Request that these Calls of a plan are walked by."""
        settings = self.request.raw.get("config") or {}
        approve = {**(settings.get("approve") or {}), "plan": False}
        config = {**{k: v for k, v in settings.items() if k not in _NOT_FOR_PLANS}, "approve": approve}
        # A person may change a Call that waits into any that the agent could make
        is_editable = any(approval_needed(n, self.request.config.approve) for n in nodes)
        return part_request(prepared, self.log, nodes, config, is_editable=is_editable)

    def _plan_message(self, calls: Sequence[Json]) -> dict[str, Any]:
        return {"type": "plan", "plan": calls, "mode": self.mode}


def _find_problems(request: Request, tool_problems: Iterable[Problem], schema: Json) -> list[Problem]:
    """What is wrong with the Request of an agent, apart from its context; ``schema`` is that of its output."""
    problems = [*request.problems, *settings_problems_of(request), *tool_problems]
    if request.config.model is None:
        models = '"anthropic:…", "openai:…", "scripted:…" or "ENDPOINT/…"'
        hint = f"set config.model, e.g. {models}; a plan without a planner is a Plan"
        problems.append(Problem("noModel", "an agent needs a model to plan", "/config/model", hint=hint))
    if schema is not None and not any(p.pointer == "/schema" for p in problems):
        problem = find_schema_problem(schema, ("schema",), "invalidSchema")
        problems.extend([problem] if problem is not None else [])
    return problems
