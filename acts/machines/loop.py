"""The loop of an agent: Solutions and results in, the next step out.

Each tick is one request to the model, which answers with a Solution, ``{calls, output}``. Its Calls are
validated and walked as a plan of their own; what came of them joins the context, and so do errors, which
are the model's to deal with. The loop ends when an output holds, or at a limit.

Plain data, like the walk: no clock, no Temporal. ``AgentRun`` performs the steps.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from acts.language.errors import EngineError, InvalidRequest, Problem
from acts.language.messages import Data, Request, output_schema
from acts.language.schemas import find_schema_problem
from acts.language.tools import Tool, read_tools
from acts.language.usage import Usage
from acts.language.values import Json
from acts.language.wire import (
    INVALID_SOLUTION,
    LIMIT_EXCEEDED,
    REJECTED,
)
from acts.machines.agent_context import MAX_ERRORS_SHOWN, AgentContext
from acts.machines.loop_steps import AskModel, AwaitApproval, DropRest, Finished, StartPlan, Step
from acts.machines.output_check import OutputCheck
from acts.machines.tick_plans import TickPlans, started_part, with_changed_call
from acts.machines.tick_results import TickResults
from acts.machines.turn_log import ANSWER_REFUSED, NOT_FIRST, TickOutcome, TurnLog
from acts.machines.unusable_answers import UnusableAnswers
from acts.plan.validate import ValidatedPlan, set_refusal, settings_problems_of
from acts.planner.solution import output_problems, shape_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Loop:
    """One agent. ``begin``, then feed each answer and each result; do what comes back.

    ``calls_refusal`` says why the budget does not allow so many more Calls, as far as that is known here.

    Raises:
        InvalidRequest: when the Request cannot be run, with every problem.
    """

    def __init__(
        self, request: Request, registry: Mapping[str, Json], served: Iterable[str],
        calls_refusal: Callable[[int], str | None] = lambda _: None,
    ) -> None:  # fmt: skip
        tools = read_tools(request, registry, frozenset(served).__contains__)
        self.output_schema = output_schema(request.schema)
        problems = _find_problems(request, tools.problems, self.output_schema)
        self.context = AgentContext(request)
        problems.extend(self.context.log.problems)
        problems.extend(set_refusal(request, "an agent"))
        if any(p.fatal for p in problems):
            raise InvalidRequest(problems)
        self.warnings = tuple(problems)
        self.tools: Mapping[str, Tool] = tools.by_name
        self.mode = request.plan.mode if request.plan is not None else "eager"
        self.plans = TickPlans(self.context, self.tools, self.mode)
        self._output = OutputCheck(self.output_schema)
        self.tick = 0
        self.usage = Usage()
        self.results = TickResults()
        self.turn_log = TurnLog()
        self.plan_tick = 0
        self.prepared: ValidatedPlan | None = None
        self._calls_refusal = calls_refusal
        self._proposal: tuple[ValidatedPlan, list[Json]] | None = None
        self._is_partly_run = False
        self.unusable = UnusableAnswers()
        self._dropped: tuple[list[Problem], list[Json], str | None] | None = None

    @property
    def request(self) -> Request:
        """The Request, with everything that joined its context since."""
        return self.context.request

    # -- ticks ----------------------------------------------------------------------------------

    def begin(self) -> Step:
        """The first step: a plan that was proposed before continue-as-new still is; else the next tick."""
        return AwaitApproval(self.tick) if self.is_proposing else self.next_tick()

    def next_tick(self) -> AskModel | Finished:
        """The next tick, or the limit that allows none."""
        limit = self.request.config.maxTicks
        if self.tick >= limit:
            text = f"maxTicks {limit} is reached and there is no output"
            return Finished("failed", f"{text}: raise maxTicks, or see the errors", LIMIT_EXCEEDED)
        self.tick += 1
        return self.ask()

    def ask(self) -> AskModel:
        """The request of this tick, with the context as it is now."""
        self.turn_log.begin(len(self.request.context))
        return AskModel(self.tick, self.turn_log.at)

    def undo_tick(self) -> None:
        """Take back a tick that was not begun."""
        self.tick -= 1

    def answered(self, solution: Json, started: Sequence[Json] = ()) -> Step:
        """The model's Solution for this tick; ``started`` are its Calls that are walked already."""
        self.turn_log.answer = solution
        problems = list(shape_problems(solution))
        if problems:
            return self._refuse(problems, [], started)
        calls, self._output.wanted = solution.get("calls") or [], solution.get("output")
        problems = list(output_problems(self._output.wanted))
        if started and calls[: len(started)] != list(started):
            text = "the answer does not begin with the calls that had started while it was written"
            return self._refuse([Problem(INVALID_SOLUTION, text, "/calls")], calls, started)
        if not calls:
            return self._refuse(problems, calls) if problems else self._finish() or self.next_tick()
        refusal = self._refusal_of(calls)
        if refusal:
            return Finished("failed", refusal, LIMIT_EXCEEDED)
        try:
            prepared = self.plans.validate(calls)
        except InvalidRequest as error:
            return self._refuse([*problems, *(p for p in error.problems if p.fatal)], calls, started)
        if problems:
            return self._refuse(problems, calls, started)
        self._proposal = (prepared, calls)
        self.prepared, self.plan_tick = prepared, self.tick
        return AwaitApproval(self.tick) if self.asks_for_plan else self.approved()

    def answer_unusable(self, code: str, message: str, text: str | None = None, started: Sequence[Json] = ()) -> Step:
        """The model's answer was no Solution, or none that can be run; ``text`` is one that was no JSON.

        ``started`` as in ``answered``.
        """
        if not started:
            self.results.walking = []
        elif text is None:
            self.turn_log.answer = {"calls": list(started)}
        return self._refuse([Problem(code, message)], [], started, text)

    def plan_ended(self, result: Mapping[str, Any]) -> Step:
        """The plan of this tick has been walked; ``result`` is that of a Plan."""
        if self._dropped is not None:
            result, planned = started_part(result, self.prepared)
            self.context.append([self.plans.message(planned)])
        self.context.append(result.get("context") or ())
        count = len(self.results.calls)
        failures = self.results.record(result, self.tick)
        self.context.append({"type": "error", "data": data} for data in failures[:MAX_ERRORS_SHOWN])
        nodes, plan = self.prepared.nodes if self.prepared is not None else (), self.request.plan
        outcome = TickOutcome(self.results.calls[count:], failures, nodes, self.context)
        if self._dropped is not None:
            (problems, calls, text), self._dropped = self._dropped, None
            self._append_problems(problems, calls)
            outcomes = outcome.outcomes(ANSWER_REFUSED, self.turn_log.answer_calls)
            self.turn_log.record_broken(outcomes, problems, text)
            return self.next_tick()
        is_withheld = bool(failures) or self._is_partly_run
        wants_output = self._output.wanted is not None
        problems = self._find_output_problems() if wants_output and not is_withheld else []
        self._append_problems(problems, [])
        self.turn_log.record_plan(
            outcome.outcomes(NOT_FIRST if self._is_partly_run else None), problems,
            plan.calls if plan is not None else (), withholds_output=is_withheld and wants_output,
        )  # fmt: skip
        return self.next_tick() if is_withheld or not wants_output or problems else Finished("completed")

    def plan_cancelled(self, result: Mapping[str, Any]) -> None:
        """The plan of this tick was cancelled; ``result`` is what it had done, or nothing."""
        if result:
            self.context.append(result.get("context") or ())
            self.results.record(result, self.tick)

    # -- an answer that is still being written -----------------------------------------------------

    def streamed_request(self, prepared: ValidatedPlan) -> dict[str, Any]:
        """The Request of the beginning of a plan, which is walked from now on."""
        nodes = self.plans.next_nodes(prepared)
        self.prepared, self.plan_tick = prepared, self.tick
        self.results.begin(nodes, self.tick)
        return self.plans.request_for(prepared, nodes)

    # -- decisions about the plan of a tick -------------------------------------------------------

    @property
    def asks_for_plan(self) -> bool:
        """True when a person approves each plan: the default where the model only plans."""
        required = self.request.config.approve.plan
        return self.mode == "lazy" if required is None else required

    @property
    def is_proposing(self) -> bool:
        """True while a plan waits for a person."""
        return self._proposal is not None

    @property
    def proposed_calls(self) -> list[Json]:
        """The Calls that are proposed."""
        return [] if self._proposal is None else self._proposal[1]

    def approved(self) -> Step:
        """Run what was proposed."""
        if self._proposal is None:
            raise EngineError("nothing is proposed")
        (prepared, calls), self._proposal = self._proposal, None
        return self._start(prepared, calls)

    def rejected(self, reason: str) -> Step:
        """Nothing of it runs; the model is told why and plans again."""
        calls, self._proposal = self.proposed_calls, None
        self.context.append([self.plans.message(calls)])
        self._append_problems([Problem(REJECTED, reason)], [])
        self.turn_log.reject(reason, calls)
        return self.next_tick()

    def check_edit(self, id_: str | None, changed: Json, plan: tuple[Json, ...] | None) -> ValidatedPlan:
        """The proposed plan as an edit makes it, validated: a whole plan, or one Call of it changed.

        Raises:
            InvalidRequest, DecisionRefused: with every problem.
        """
        calls = list(plan) if plan is not None else with_changed_call(self.prepared, self.proposed_calls, id_, changed)
        refusal = self._refusal_of(calls)
        if refusal:
            raise InvalidRequest([Problem("limitExceeded", refusal, "/calls")])
        return self.plans.validate_unread(calls)

    def edited(self, prepared: ValidatedPlan) -> None:
        """Another plan is proposed instead, as ``check_edit`` returned it."""
        plan = prepared.request.plan
        self.prepared = prepared
        self._proposal = (prepared, list(plan.calls) if plan is not None else [])

    def _refusal_of(self, calls: list[Json]) -> str | None:
        return self._calls_refusal(self.request.count_calls(calls))

    # -- parts ------------------------------------------------------------------------------------

    def pending_plan_request(self) -> tuple[ValidatedPlan, dict[str, Any]]:
        """What of the proposal would be walked, and the Request that it would be walked by."""
        if self._proposal is None:
            raise EngineError("nothing is proposed")
        return self.plans.next_part(self._proposal[0])

    def _start(self, prepared: ValidatedPlan, calls: list[Json]) -> StartPlan:
        """Start the plan: all of it, or with ``step: call`` the first Call that is to be run."""
        nodes = self.plans.next_nodes(prepared)
        self._is_partly_run = len(nodes) < len(prepared.nodes)
        self.results.begin(nodes, self.tick)
        request = self.plans.request_for(prepared, nodes)
        self.context.append([self.plans.message(calls)])
        count = self.request.count_calls([n.planned for n in nodes])
        return StartPlan(self.tick, request, tuple(n.id for n in nodes), count)

    def _finish(self) -> Finished | None:
        """The end, when the output holds; else an error message that says why it does not."""
        problems = self._find_output_problems()
        if problems:
            self._append_problems(problems, [])
            self.turn_log.refuse(problems)
            return None
        return Finished("completed")

    def _find_output_problems(self) -> list[Problem]:
        kinds = frozenset(self.context.log.view_of(None).kinds())
        return self._output.find_problems(lambda path: self.context.log.read(path, 0), kinds)

    def _refuse(
        self, problems: list[Problem], calls: list[Json], started: Sequence[Json] = (), text: str | None = None
    ) -> AskModel | DropRest | Finished:
        """The problems go back to the model; where Calls have started, once these have ended."""
        if started:
            self._dropped = (problems, calls, text)
            return DropRest(self.tick, problems[0].message)
        self._append_problems(problems, calls)
        self.turn_log.refuse(problems, text)
        return self.next_tick()

    def _append_problems(self, problems: list[Problem], calls: list[Json]) -> None:
        for shown in self.context.append_problems(problems, calls):
            call = shown.pop("call")
            self.results.errors.append({"call": call, "tick": self.tick, **shown})

    # -- what can be seen -------------------------------------------------------------------------

    @property
    def output(self) -> Json:
        """The output, once one holds."""
        return self._output.value

    def provide(self, message: Data) -> None:
        """A message from outside joins the context; raises InvalidRequest when it cannot."""
        self.context.provide(message)

    def current_calls(self) -> list[dict[str, Any]]:
        """Every Call so far, those of the plan that is being walked at the end."""
        return [*self.results.calls, *self.results.walking]

    def latest_calls(self) -> list[dict[str, Any]]:
        """The Calls of the latest plan, those of a template once for each instance that was walked."""
        return [c for c in self.current_calls() if c["tick"] == self.plan_tick]

    # -- carrying over ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The loop as JSON, between two ticks or while a plan is proposed."""
        proposal = {"calls": self.proposed_calls, "output": self._output.wanted} if self.is_proposing else None
        return {
            "context": self.context.appended(), "tick": self.tick, "usage": self.usage.to_json(),
            "planTick": self.plan_tick, "results": self.results.snapshot(), "proposal": proposal,
            "conversation": self.turn_log.snapshot(),
            **({"unusable": unusable} if (unusable := self.unusable.snapshot()) else {}),
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot of the same Request."""
        self.context.append(data["context"])
        self.tick, self.plan_tick = data["tick"], data["planTick"]
        self.usage.add(data["usage"])
        self.results.restore(data["results"])
        self.turn_log.restore(data.get("conversation") or {})
        self.unusable.restore(data.get("unusable") or {})
        if self.plan_tick and self.request.plan is not None:  # for whoever asks for its drawing
            with contextlib.suppress(InvalidRequest):
                self.prepared = self.plans.validate(list(self.request.plan.calls))
        proposal = data["proposal"]
        if proposal is not None:
            self._output.wanted = proposal["output"]
            self.edited(self.plans.validate(list(proposal["calls"])))


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
