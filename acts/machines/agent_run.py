"""A run that plans and walks, tick after tick: the machine of ``Agent``, and of a ``Delegate``.

Theory of operation. Each tick is one request to the model, which answers with a Solution, ``{calls, output}``. Its
Calls are validated and walked as a plan of their own, by a child; what came of them joins the context, and so do
errors, which are the model's to deal with. A person may approve each plan before it starts. The run ends when an
output holds, or at a limit. A paused run begins nothing: neither a tick nor a plan.

Where the answer is streamed, the child starts with the first Calls of it, and gets the rest when they are written
(``StreamedPlan``). Then a request and a plan are under way at the same time; else it is one thing at a time.

A delegate without a planner has a definition's plan walked that says ``run`` (``WalkedDelegate``), or makes one Call
of one Tool, with nothing but its scopes and its input: ``anonymous`` (``AnonymousDelegate``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from acts.language import wire
from acts.language.errors import CallError, DecisionRefused, EngineError, InvalidRequest, Problem, TooComplex, truncate
from acts.language.messages import Data, Instruction, Request, output_schema
from acts.language.schemas import Checker
from acts.language.strict_json import json_size
from acts.language.values import Json, pointer
from acts.machines import agent_context, commands, events
from acts.machines.budget import RequestSize, context_bytes, latent_request_size, request_size
from acts.machines.run_machine import RunMachine
from acts.plan.calls import PlannedCall
from acts.plan.context_log import END
from acts.plan.validate import MAX_UNTIL_CALLS, ValidatedPlan
from acts.planner import turns
from acts.planner.prompt import TOOL_LIST_BYTES
from acts.planner.request_estimate import estimate_prompt_bytes
from acts.planner.turns import check_output, output_problems, shape_problems
from acts.tree.child_requests import plan_log, plan_output, with_answers, without_plan
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.identity import part_identity
from acts.tree.past_run import UndoStep
from acts.tree.records import (
    AgentState,
    Capabilities,
    ContextRef,
    DelegateInput,
    InnerPlan,
    PermitLease,
    PlanInput,
    SettledRequest,
    TreePosition,
    Turn,
    UnusableAnswers,
)
from acts.tree.signal_records import PlanExtension, StreamedCalls, TreeSignal
from acts.tree.subjects import calls_changes, plan_subject

_PLAN: Final = "plan"
TURN_TIMER: Final = "walk the plan again"
SAID_MORE: Final = Problem(
    "interrupted",
    "a person has said more since: what had not started was not run, and the output is not taken. Plan again",
)
# Failures of its plan that a delegate names in its own
MAX_FAILURES: Final = 5


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What an agent knows: ``raw`` is its Request as JSON, ``run_id`` that of this run, ``lease`` its permits.

    ``definition`` is where that of a delegate came from.
    """

    raw: dict[str, Any]
    request: Request
    capabilities: Capabilities
    position: TreePosition
    run_id: str
    lease: PermitLease | None = None
    definition: Mapping[str, str] = field(default_factory=dict)


class _TickPlan(NamedTuple):
    """The plan of a tick: ``ids`` are its Calls' ids in the Solution. Those of a template count once per instance."""

    request: dict[str, Any]
    ids: tuple[str, ...]
    call_count: int


class AgentRun(RunMachine):
    """``turns`` are complete; the one under way was requested at ``turn_at`` messages, and has the answer so far.

    ``version`` counts the plans that people were shown, edits included. Raises InvalidRequest: the Request cannot be
    run, with every problem.
    """

    takes_words = True

    def __init__(self, own: str, setup: AgentSetup) -> None:
        super().__init__(own, setup.position, setup.lease, setup.capabilities)
        self.setup, self.config, self.raw = setup, setup.request.config, setup.raw
        self.context = agent_context.AgentContext(setup.request, setup.capabilities.tools, setup.capabilities.served)
        self.known_tools, self.watched_tools = self.context.tools, self.context.tools.values()
        self.steps: list[UndoStep] = []  # what undoes what its ticks have completed, the latest first
        self.notes += [p.text() for p in self.context.warnings if p.code == "limitLowered"]
        self.tick = self.version = self.turn_at = self.plan_tick = 0
        self.turns: list[Turn] = []
        self.results = agent_context.TickResults()
        self.prepared: ValidatedPlan | None = None
        self.output: Json = None
        self.unusable = UnusableAnswers()
        self._answer: Json = None
        self.wanted_output: Json = None
        self.proposal: ValidatedPlan | None = None
        self._plan: _TickPlan | None = None
        # An answer that cannot be used, of which Calls had started: problems, Calls, and the text of one without JSON
        self._dropped: tuple[list[Problem], Sequence[Json], str | None] | None = None
        self.stream = agent_context.StreamedPlan(self.context, is_stuck=True)
        self._settled_before: tuple[SettledRequest, ...] = ()  # the child of the plan reports them with its own
        self._provided: list[Data | Instruction] = []
        self._phase = "planning"
        self._is_interrupted = False  # the answer that the model is giving counts no more
        self._is_asking = self._is_walking = self._is_partly_run = False
        self._is_tick_due = self._is_plan_held = False  # what a pause keeps from starting

    @property
    def request(self) -> Request:
        return self.context.request

    @property
    def live_phase(self) -> str:
        """As of any run; at the root ``awaiting`` also while a plan is walked in which something waits."""
        if self.is_paused and (self._is_tick_due or self._is_plan_held or self._held_answers):
            return "paused"
        is_waiting_below = self._phase == "running" and self.approvals.waits.count_runs_below(self.children.values())
        return "awaiting" if is_waiting_below else self._phase

    @property
    def in_flight(self) -> int:
        """The request while the model is asked, and the plan while it is walked: both while an answer is streamed."""
        return self._is_asking + self._is_walking + self.is_undoing

    def undo_steps(self) -> list[UndoStep]:
        return self.steps

    def steps_due(self, status: str) -> list[UndoStep]:
        return self.steps if self.undo_asked or (status == "failed" and self.config.onFailure) else []

    @property
    def can_continue_as_new(self) -> bool:
        """True between two ticks, and while a plan waits for a person."""
        return self.in_flight == 0 and not self._is_plan_held and not self._unpinned

    @property
    def current_calls(self) -> list[dict[str, Any]]:
        return [*self.results.calls, *self.results.walking]

    @property
    def proposed_calls(self) -> list[Json]:
        return [] if self.proposal is None else self.proposal.request.calls

    def react(self, event: events.Event, now: str) -> list[Any]:
        match event:
            case events.Begin():
                return self._propose(now) if self.proposal is not None else self._next_tick()
            case events.ModelEnded():
                return self._answered(event, now)
            case events.ChildEnded():
                return self._plan_ended(event, now)
            case events.Provided(message, is_urgent=is_urgent):
                self._provided.append(message)
                passed_on = [commands.SignalChildren(wire.PROVIDE, message.raw)] if isinstance(message, Data) else []
                return [*passed_on, *(self._interrupt() if is_urgent else ())]
            case events.PauseChanged(False) | events.HoldChanged(False):
                return self._go_on(now)
            case events.CancelRequested():
                self.is_cancelling, self._is_tick_due, self._is_plan_held = True, False, False
                return self.approvals.close_all()
        return []

    def _next_tick(self) -> list[Any]:
        """Ask the model, or end at the limit; a run that is paused, or is to continue as new, asks later."""
        if self.tick >= self.config.maxTicks:
            text = f"maxTicks {self.config.maxTicks} is reached and there is no output"
            return self._fail(f"{text}: raise maxTicks, or see the errors", wire.LIMIT_EXCEEDED)
        self._is_tick_due = self.is_paused or self.is_held
        if self._is_tick_due:
            return []
        self._join_provided()
        self._is_interrupted = False
        self.tick += 1
        self.turn_at, self._answer = self.context.count, None
        self._phase, self._is_asking = "planning", True
        self.stream = agent_context.StreamedPlan(self.context, is_stuck=not self._may_stream)
        size = RequestSize()  # of no matter where nothing limits it
        if self.budget.limits_requests:
            tools = self.context.known_tools(self.turns).values()
            tools_bytes = sum(json_size(tool.schema) for tool in tools)
            tools_bytes += TOOL_LIST_BYTES if len(tools) < len(self.context.tools) else 0
            shown_bytes = estimate_prompt_bytes(context_bytes(self.request.context, self.turns), tools_bytes)
            size = request_size(self.config, self.price, shown_bytes, self.unusable.cap)
        return self.budget.request([f"tick-{self.tick}"], size)

    @property
    def _may_stream(self) -> bool:
        """True when Calls may start while the model still writes: nothing is asked or counted first, no instances."""
        is_whole = self.config.step == "plan" and not self.request.instances()
        is_free = self.context.mode == "eager" and not self.request.asks_for_plan and not self.budget.limits_calls
        return self.config.stream and is_whole and is_free

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        if self._is_asking and effect.key == f"tick-{self.tick}":
            left = max(1, wire.MAX_UNUSABLE_ANSWERS - self.unusable.count)
            streams, cap = not self.stream.is_stuck, self.unusable.cap
            return [commands.AskSolution(self.tick, self.turn_at, effect.request, streams, left, cap)]
        if self._plan is not None and effect.key == f"plan-{self.tick}":
            return self._start_child(self._plan.request, self._plan.ids)
        return self.budget.settle(effect.key, None)

    def on_refused(self, effect: commands.BudgetRefused, now: str) -> list[Any]:
        if self._is_asking:
            self.tick, self._is_asking = self.tick - 1, False
            return self._fail(f"{effect.reason}, and there is no output", wire.LIMIT_EXCEEDED)
        self._is_walking = False
        return self._fail(f"tick {self.tick}: {effect.reason}", wire.LIMIT_EXCEEDED)

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        return self._fail(f"tick {self.tick}: {error.message}", error.code)

    def _fail(self, message: str, code: str) -> list[Any]:
        self.failure = CallError(code, message)
        return self.finish("failed")

    def _answered(self, event: events.ModelEnded, now: str) -> list[Any]:
        """Take a Solution, or an answer that is none: too many of these in a row end the run."""
        answer, error, start = event.answer or {"usage": event.usage}, event.error, f"tick {self.tick}:"
        self._is_asking = False
        self.usage.add(answer["usage"])
        out = self.budget.settle(f"tick-{self.tick}", answer["usage"])
        if self.is_cancelling:
            return out
        if error is not None and self.stream.is_walked:
            return out + self._refuse_unusable(error.code, error.message, now)
        if error is not None:
            return out + self._fail(f"{start} the model gave no answer: {error.message}", error.code)
        started, unusable = self.stream.started_calls, answer.get("unusable")
        if not started:
            self._join_provided()
        if unusable is None:
            self.unusable = UnusableAnswers(cap=self.unusable.cap)
            return out + self._take_solution(answer["solution"], now)
        self.unusable = self.unusable.added(unusable)
        if not started and self.unusable.count >= wire.MAX_UNUSABLE_ANSWERS:
            text = f"{self.unusable.count} answers of the model in a row could not be used; the last"
            return out + self._fail(f"{start} {text}: {unusable['message']}", unusable["code"])
        return out + self._refuse_unusable(unusable["code"], unusable["message"], now, unusable.get("text"))

    def _take_solution(self, solution: Json, now: str) -> list[Any]:
        self._answer = solution
        problems = list(shape_problems(solution)) or ([SAID_MORE] if self._is_interrupted else [])
        if problems:
            return self._refuse(problems, now, self.answer_calls)
        calls, self.wanted_output = solution.get("calls") or [], solution.get("output")
        problems = list(output_problems(self.wanted_output, self.context.log.shared.kinds()))
        wanted, unknown = turns.read_wanted_tools(solution.get("tools") or [], self.context.tools)
        wanted = [name for name in wanted if name not in self.context.known_tools(self.turns)]
        problems += unknown
        started = self.stream.started_calls
        if calls[: len(started)] != started:
            text = "the answer does not begin with the calls that had started while it was written"
            return self._refuse([Problem(wire.INVALID_SOLUTION, text, "/calls")], now, calls)
        if not calls and wanted and self.wanted_output is None:
            self._append_problems(problems)
            self._add_turn(({"tools": wanted, "outcome": turns.DESCRIBED},), problems)
            return self._next_tick()
        if not calls:
            problems = problems or self._check_output()
            return self._refuse(problems, now) if problems else self.finish("completed")
        refusal = self.budget.calls_refusal(self.request.count_calls(calls))
        if refusal:
            return self._fail(refusal, wire.LIMIT_EXCEEDED)
        try:
            prepared = self.context.validate(calls)
        except InvalidRequest as error:
            problems += [p for p in error.problems if p.fatal]
        if problems:
            return self._refuse(problems, now, calls)
        self.prepared = self.proposal = prepared
        self.plan_tick = self.tick
        if not self.request.asks_for_plan:
            return self._start_plan(now)
        self.version += 1
        return self._propose(now)

    def _check_output(self) -> list[Problem]:
        """Why the output does not hold; it is that of the run when it does, and nobody has said more since."""
        if any(isinstance(message, Instruction) for message in self.request.context[self.turn_at :]):
            return [SAID_MORE]
        schema, view = self.context.output_schema, self.context.log.shared
        kinds = frozenset(view.kinds())
        self.output, problems = check_output(self.wanted_output, schema, lambda path: view.read(path, END), kinds)
        return problems

    def _refuse_unusable(self, code: str, message: str, now: str, text: str | None = None) -> list[Any]:
        """The answer was no Solution, or none that can be run; ``text`` is one that was no JSON."""
        if not self.stream.started_calls:
            self.results.walking = []
        elif text is None:
            self._answer = {"calls": self.stream.started_calls}
        return self._refuse([Problem(code, message)], now, text=text)

    def _refuse(
        self, problems: list[Problem], now: str, calls: Sequence[Json] = (), text: str | None = None
    ) -> list[Any]:
        """The problems go back to the model; where Calls have started, once these have ended."""
        if self.stream.started_calls:
            self._dropped = (problems, calls, text)
            return self._complete_stream(PlanExtension(isComplete=True, dropped=problems[0].message), now)
        self._append_problems(problems, calls)
        self._add_turn(turns.unrun_outcomes(self.answer_calls), problems, text=text)
        return self._next_tick()

    def _append_problems(self, problems: Sequence[Problem], calls: Sequence[Json] = ()) -> None:
        errors = self.context.append_problems(problems, calls)
        self.results.errors += [{"call": None, "tick": self.tick, **error} for error in errors]

    @property
    def answer_calls(self) -> list[Json]:
        """The Calls of the answer, which need not be valid; none where it has no list of them."""
        calls = self._answer.get("calls") if isinstance(self._answer, dict) else None
        return calls if isinstance(calls, list) else []

    def _add_turn(
        self, outcomes: tuple[dict[str, Any], ...], problems: Sequence[Problem] = (), *, text: str | None = None,
        planned: Sequence[Json] | None = None,
    ) -> None:  # fmt: skip
        """Add the turn of this tick; ``planned`` are its Calls as the context's plan has them, None without a plan."""
        answer, is_same = self._answer, planned is not None and self.answer_calls == list(planned)
        if is_same:
            answer = {k: v for k, v in answer.items() if k != "calls"}
        changed = () if planned is None or is_same else tuple(planned)
        items = turns.problem_items(problems)
        self.turns.append(Turn(
            at=self.turn_at, answer=answer, hasPlan=is_same, text=text, outcomes=outcomes, problems=items,
            changed=changed,
        ))  # fmt: skip
        self._answer = None

    def _start_plan(self, now: str) -> list[Any]:
        """Start what was proposed: all of it, or with ``step: call`` the first Call that is to be run."""
        if self.proposal is None:
            raise EngineError("nothing is proposed")
        self._is_plan_held = self.is_paused and not self.stream.is_walked
        if self._is_plan_held:
            return []
        prepared, calls, self.proposal = self.proposal, self.proposed_calls, None
        nodes, request = self._begin_plan(prepared)
        self._is_partly_run = len(nodes) < len(prepared.nodes)
        self.context.append_plan(calls)
        count = self.request.count_calls([n.planned for n in nodes])
        self._plan = _TickPlan(request, tuple(n.id for n in nodes), count)
        if self.stream.is_walked:
            return self._complete_stream(self.stream.extension(request, is_complete=True), now)
        self._phase, self._is_walking = "running", True
        return self.budget.request_calls(f"plan-{self.tick}", count)

    def _interrupt(self) -> list[Any]:
        """What has not started of this tick does not; the model plans again when the rest has ended."""
        if self.proposal is not None:
            calls, self.proposal, self._is_plan_held = self.proposed_calls, None, False
            self.context.append_plan(calls)
            self._append_problems([SAID_MORE])
            self._add_turn(turns.unrun_outcomes(calls), [SAID_MORE], planned=calls)
            return [*self.approvals.close_all(), *self._next_tick()]
        self._is_interrupted = self.stream.is_stuck = self._is_asking or self.stream.is_stuck
        if not self._is_walking:
            return []
        if not self._is_asking:
            self._dropped = self._dropped or ([SAID_MORE], self.answer_calls, None)
        return [commands.SignalChildren(wire.INTERRUPT, SAID_MORE.message, is_told=True)]

    def _begin_plan(self, prepared: ValidatedPlan) -> tuple[list[PlannedCall], dict[str, Any]]:
        nodes = self.context.next_nodes(prepared)
        self.results.begin(nodes, self.tick)
        return nodes, self.context.plan_request(prepared, nodes)

    def _start_child(self, request: dict[str, Any], ids: Sequence[str], *, is_growing: bool = False) -> list[Any]:
        name = f"plan-{self.tick}"
        self._is_walking = True
        self._settled_before = self.budget.take_unreported()
        position = self.position.child(self.own, identity=part_identity(self.position.identity, name))
        position = position.guarded(self.config.approve.plan_rule) if self.request.asks_for_plan else position
        own = PlanInput(
            request=request, position=position, part=True, isGrowing=is_growing,
            capabilities=self.capabilities.model_copy(update={"tools": {}}),
            context=ContextRef(workflowId=self.own, runId=self.setup.run_id, messageCount=self.context.count),
            approve=with_answers(self.setup.raw.get("config") or {}, self.context.tools), settled=self._settled_before,
        )  # fmt: skip
        start = commands.StartChild(wire.PLAN, name, f"tick {self.tick}: {', '.join(ids)}", own)
        data = [message for message in self._provided if isinstance(message, Data)]
        is_dropped = self._dropped is not None  # while the plan waited for its grant
        stop = [commands.SignalChildren(wire.INTERRUPT, SAID_MORE.message, is_told=True)] if is_dropped else []
        return [start, *(commands.SignalChildren(wire.PROVIDE, message.raw) for message in data), *stop]

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """Calls of the answer that is being written: what can start is passed on."""
        stream = self.stream
        if not isinstance(record, StreamedCalls) or not self._is_asking or self.is_cancelling:
            return []
        prepared = stream.add(record, may_start=not self.is_paused) if record.tick == self.tick else None
        if prepared is None:
            return []
        self.prepared, self.plan_tick = prepared, self.tick
        nodes, request = self._begin_plan(prepared)
        if stream.has_started:
            return stream.extend(request)
        stream.begin(request)
        return self._start_child(request, [*(n.id for n in nodes), "…"], is_growing=True)

    def on_child_started(self, event: events.ChildStarted) -> list[Any]:
        return self.stream.child_started(event.workflow_id)

    def _complete_stream(self, last: PlanExtension, now: str) -> list[Any]:
        """The answer whose plan is walked already is complete; a plan that has ended since is judged now."""
        self._phase = "running"
        self.stream.is_over = True
        if self.stream.early_end is not None:
            return self._plan_ended(self.stream.early_end, now)
        permits = self.permits.hand_over(f"plan-{self.tick}")  # what has come free, as that of the request
        return self.stream.send(last.model_copy(update={"permits": permits}))

    def _plan_ended(self, event: events.ChildEnded, now: str) -> list[Any]:
        self._is_walking = False
        if self._is_asking and not self.is_cancelling:
            self.stream.is_stuck = True
            if event.is_unstarted:
                self.stream.passed_on = 0
            else:
                self.stream.early_end = event
            return []
        plan, self._plan = self._plan, None
        report = event.report or {}
        decisions = report.get("decisions") or ()
        self.steps = [*map(UndoStep.model_validate, report.get("undo") or ()), *self.steps]
        if event.accounting is None:
            self.budget.take(self._settled_before)  # it may not have reported them to the root
        if self.is_cancelling or event.error is not None:
            self.approvals.records += [{**record, "tick": self.tick} for record in decisions]
        if self.is_cancelling:
            if "calls" in report:  # what it had done
                self.context.append(report.get("context") or ())
                self.results.record(report, self.tick)
            return []
        if event.error is not None:
            return self._child_failed(event.error, plan if event.is_unstarted else None, now)
        self._join_provided()
        named = [self.results.with_full_id(record) for record in decisions]
        self.approvals.records += [{**record, "tick": self.tick} for record in named]
        for record in named:
            self.context.append_decision(record)
        return self._take_result(report, is_whole=plan is not None)

    def _child_failed(self, error: CallError, unstarted: _TickPlan | None, now: str) -> list[Any]:
        """The child did not end by itself, or never began since its input is too large."""
        self.stream = agent_context.StreamedPlan(self.context, is_stuck=True)
        if unstarted is not None:
            self.budget.count_calls(-unstarted.call_count)
            text = f"what this plan reads is too large for one plan: {error.message}"
            return self._refuse_unusable(error.code, text, now)
        return self._fail(
            f"tick {self.tick}: its plan did not end by itself: {error.code}: {error.message}", error.code
        )

    def _take_result(self, result: Mapping[str, Any], *, is_whole: bool) -> list[Any]:
        """What came of the tick's plan. ``is_whole``: all of its Calls are in the context's plan."""
        dropped, self._dropped = self._dropped, None
        if dropped is not None:
            result, planned = agent_context.started_part(result, self.prepared)
            if not is_whole:
                self.context.append_plan(planned)
        self.context.append(result.get("context") or ())
        count = len(self.results.calls)
        failures = self.results.record(result, self.tick)
        self.context.append({"type": "error", "data": data} for data in failures[: turns.MAX_PROBLEMS_SHOWN])
        nodes = self.prepared.nodes if self.prepared is not None else ()
        walked = (self.results.calls[count:], failures, nodes, self.context.log)
        if dropped is not None:
            problems, calls, text = dropped
            self._append_problems(problems, calls)
            reason = SAID_MORE.message if problems == [SAID_MORE] else agent_context.ANSWER_REFUSED
            outcomes = agent_context.describe_outcomes(*walked, unrun_reason=reason, answer=self.answer_calls)
            self._add_turn(outcomes, problems, text=text, planned=self.request.calls if is_whole else None)
            return self._next_tick()
        if result.get("undoAsked"):
            return self._end_undone("a person has what completed undone")
        is_withheld = bool(failures) or self._is_partly_run
        wants_output = self.wanted_output is not None
        problems = self._check_output() if wants_output and not is_withheld else []
        self._append_problems(problems)
        outcomes = agent_context.describe_outcomes(
            *walked, unrun_reason=agent_context.NOT_FIRST if self._is_partly_run else None
        )
        outcomes = (*outcomes, agent_context.OUTPUT_WITHHELD) if is_withheld and wants_output else outcomes
        self._add_turn(outcomes, problems, planned=self.request.calls)
        return self._next_tick() if is_withheld or not wants_output or problems else self.finish("completed")

    def _propose(self, now: str) -> list[Any]:
        self._phase = "awaiting"
        loads = self.load_pins(self.proposal.nodes if self.proposal is not None else ())
        if self._unpinned:
            return list(loads)
        rule, subject = self.config.approve.plan_rule, self._proposed_subject()
        return self.approvals.open("plan", self.version, rule, now, subject=subject)

    def on_void(self, now: str) -> list[Any]:
        if not (self._is_plan_held and self.request.asks_for_plan):
            return []
        self._is_plan_held = False
        self.version += 1
        return self._propose(now)

    def on_pinned(self, now: str) -> list[Any]:
        return self._propose(now) if self.proposal is not None and self._phase == "awaiting" else []

    def _proposed_subject(self) -> dict[str, Json]:
        nodes, log = () if self.proposal is None else self.proposal.nodes, self.context.log
        capabilities = self.capabilities
        return plan_subject(
            self.proposed_calls, nodes, lambda path, instance: log.read(path, END, instance), self.config, capabilities
        )

    def subject_of(self, wait: PendingApproval) -> Json:
        return self._proposed_subject()

    def check_decision(self, decision: Decision, wait: PendingApproval) -> ValidatedPlan | None:
        """The edited proposal, validated; None for what is no edit. Raises InvalidRequest, DecisionRefused: the edit
        cannot be made, and why.
        """
        self.check_open(decision)
        if decision.decision != wire.EDIT:
            return None
        calls = list(decision.calls) if decision.calls is not None else self.proposed_calls
        if decision.calls is None:
            nodes = self.proposal.nodes if self.proposal is not None else ()
            place = next((n.index for n in nodes if n.id == decision.call), None)
            if place is None:
                raise DecisionRefused(f"there is no call {decision.call} in the plan that waits")
            calls[place] = decision.call_with
        refusal = self.budget.calls_refusal(self.request.count_calls(calls))
        if refusal:
            raise InvalidRequest([Problem("limitExceeded", refusal, "/calls")])
        return self.context.validate(calls)

    def on_decided(self, effect: commands.Decided, now: str) -> list[Any]:
        decision = effect.decision
        if decision.decision == wire.REJECT:  # nothing of the plan runs; the model is told why and plans again
            calls, self.proposal, reason = self.proposed_calls, None, decision.reason or ""
            self.context.append_plan(calls)
            self._append_problems([Problem(wire.REJECTED, reason)])
            self._add_turn(turns.unrun_outcomes(calls, turns.REJECTED, reason), planned=calls)
            return self._next_tick()
        if decision.decision == wire.UNDO:
            return self._end_undone(decision.reason or "a person has what completed undone")
        if decision.decision not in (wire.APPROVE, wire.EDIT):
            return self._fail(self.approvals.expired or "nobody decided in time", wire.APPROVAL_TIMEOUT)
        calls = self.proposed_calls
        if decision.decision == wire.EDIT:
            self.prepared = self.proposal = effect.token
            self.version += 1
        self.context.append_decision(decision.record(effect.wait, ""))
        if decision.decision == wire.APPROVE:
            return self._start_plan(now)
        self.approvals.record_changes(calls_changes(calls, self.proposed_calls))
        self.approvals.raise_version(self.version, self._proposed_subject())
        return list(self.load_pins(self.proposal.nodes if self.proposal is not None else ()))

    def _end_undone(self, reason: str) -> list[Any]:
        self.undo_asked, self.failure = True, CallError(wire.REJECTED, reason)
        return self.finish(wire.REJECTED)

    def check_provided(self, message: Data | Instruction) -> None:
        super().check_provided(message)
        self.context.check_provided(message)

    def _join_provided(self) -> None:
        """What was provided joins the context; what that refuses becomes a note."""
        messages, self._provided = self._provided, []
        for message in messages:
            try:
                self.context.provide(message)
            except (InvalidRequest, CallError) as error:
                self.note(f"a message was refused: {truncate(str(error), 200)}")

    def _go_on(self, now: str) -> list[Any]:
        """Begin what a pause or a hold kept; a plan starts in spite of a hold, since no other run can start it."""
        if self.is_paused:
            return []
        if self._is_plan_held:
            return self._start_plan(now)
        return self._next_tick() if self._is_tick_due else []

    def snapshot(self) -> AgentState:
        """What the next run goes on from: between two ticks, or while a plan is proposed."""
        return AgentState(
            **self.common_snapshot(), request=self.setup.raw, capabilities=self.capabilities,
            position=self.position, isPaused=self.is_paused, version=self.version,
            provided=tuple(m.raw for m in self._provided), definition=self.setup.definition,
            context=tuple(self.context.appended()), tick=self.tick, planTick=self.plan_tick,
            usage=self.usage.to_json(), calls=tuple(self.results.calls), errors=tuple(self.results.errors),
            instances=self.results.instances, turns=tuple(self.turns),
            turnAt=self.turn_at, answer=self._answer, unusable=self.unusable,
            proposal=tuple(self.proposed_calls) if self.proposal is not None else None,
            wantedOutput=self.wanted_output if self.proposal is not None else None, undo=tuple(self.steps),
        )  # fmt: skip

    def restore(self, state: AgentState, provided: Iterable[Data | Instruction]) -> None:
        self.restore_common(state.approvals, state.budget)
        self.context.append(state.context)
        self.tick, self.plan_tick, self.turn_at = state.tick, state.planTick, state.turnAt
        self.usage.add(state.usage)
        self.results.calls, self.results.errors = list(state.calls), list(state.errors)
        self.results.instances = dict(state.instances)
        self.turns, self._answer = list(state.turns), state.answer
        self.unusable, self.steps = state.unusable, list(state.undo)
        self.version, self.is_paused = state.version, state.isPaused
        self._provided += provided
        if self.plan_tick and self.request.plan is not None:  # for whoever asks for its drawing
            with contextlib.suppress(InvalidRequest):
                self.prepared = self.context.validate(self.request.calls)
        if state.proposal is not None:
            self.wanted_output = state.wantedOutput
            self.prepared = self.proposal = self.context.validate(list(state.proposal))


class DelegateMachine(RunMachine):
    """A delegate without a planner: ``result`` is how it ended, ``failure`` why it failed."""

    def __init__(self, own: str, own_input: DelegateInput, position: TreePosition, request: Request) -> None:
        super().__init__(own, position, own_input.lease)
        self.request, self.config = request, request.config
        self.result: dict[str, Any] = {}
        self.steps: list[UndoStep] = []  # what undoes what an inner plan has completed: the run above does it
        self._begins_later = False

    @property
    def in_flight(self) -> int:
        return int(self.finished is None)

    def begin(self) -> list[Any]:
        raise NotImplementedError

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event; a paused delegate begins when it is resumed."""
        match event:
            case events.Begin():
                self._begins_later = self.is_paused
                return [] if self.is_paused else self.begin()
            case events.PauseChanged(False) if self._begins_later:
                self._begins_later = False
                return self.begin()
            case events.CancelRequested():
                self.is_cancelling, self._begins_later = True, False
        return []

    def on_refused(self, effect: commands.BudgetRefused, now: str) -> list[Any]:
        return self.end(CallError(wire.BUDGET_SPENT, effect.reason))

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        return self.end(error)

    def end(self, failure: CallError | None = None, **result: Any) -> list[Any]:
        """It has ended; ``result`` is what is known also of one that failed."""
        status = "completed" if failure is None else "failed"
        steps = {"undo": [step.to_json() for step in self.steps]} if self.steps else {}
        self.result, self.failure = {"status": status, **result, **steps}, failure
        return self.finish(status)


class WalkedDelegate(DelegateMachine):
    """Has the plan of a definition, or of a Call, walked by a child, and yields ``state.output``, else the state.

    One with ``until`` is walked again, as often as is allowed, until a child says that it holds.
    """

    def __init__(
        self, own: str, own_input: DelegateInput, position: TreePosition, request: Request, raw: dict[str, Any]
    ) -> None:
        super().__init__(own, own_input, position, request)
        self._raw, self._name = raw, own_input.delegate
        self._inner, self._is_inner, self._turn = own_input.plan or InnerPlan(tools=()), own_input.plan is not None, 0
        self._previous: Json = None  # the last state
        self._provided: list[Data] = []

    def begin(self) -> list[Any]:
        self._turn += 1
        name, calls = _PLAN if self._turn == 1 else f"{_PLAN}-{self._turn}", self.request.calls
        if self._inner.until is not None and len(calls) > MAX_UNTIL_CALLS:  # of a plan by name
            text = f"{self._name} has {len(calls):,} calls; with until at most {MAX_UNTIL_CALLS:,} are allowed"
            return self.end(CallError(wire.LIMIT_EXCEEDED, text))
        return self.budget.request_calls(name, self.request.count_calls(calls))

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event; what is provided before the plan starts reaches it then."""
        match event:
            case events.ChildEnded() if not self.is_cancelling:
                return self._plan_ended(event)
            case events.Provided(Data() as message):
                self._provided.append(message)
                return [commands.SignalChildren(wire.PROVIDE, message.raw)]
        return super().react(event, now)

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        name, inner = effect.key, self._inner
        position = self.position.child(self.own, identity=part_identity(self.position.identity, name))
        own = PlanInput(
            request=self._turn_request(), position=position, capabilities=inner.capabilities, until=inner.until
        )
        if inner.calls is not None:  # who decided about the Call has seen them; of what they start nobody has
            config = self._raw["config"]
            request = {**own.request, "config": {**config, "approve": without_plan(config.get("approve"))}}
            own = own.model_copy(update={"request": request, "approve": config.get("approve")})
        turn = "" if inner.max is None else f", {self._turn} of at most {inner.max}"
        start = commands.StartChild(wire.PLAN, name, f"the plan of {self._name}{turn}", own)
        return [start, *(commands.SignalChildren(wire.PROVIDE, message.raw) for message in self._provided)]

    def _turn_request(self) -> dict[str, Any]:
        if self._inner.max is None:
            return self._raw
        *rest, message = self._raw["context"]
        return {**self._raw, "context": [*rest, {**message, "input": {**message["input"], "previous": self._previous}}]}

    def _timer_fired(self, name: str, now: str) -> list[Any]:
        if name != TURN_TIMER:
            return super()._timer_fired(name, now)
        self._begins_later = self.is_paused and not self.is_cancelling
        return [] if self.is_paused or self.is_cancelling else self.begin()

    def _go_on(self, state: Json) -> list[Any]:
        """The plan has ended, and its ``until`` does not hold."""
        inner, most = self._inner, self._inner.max or 1
        if self._turn < most:
            self._previous = state
            timer = commands.StartTimer(TURN_TIMER, inner.every, f"{TURN_TIMER}, {self._turn + 1} of at most {most}")
            return [timer] if inner.every else self.begin()
        times = "the plan has ended" if most == 1 else f"the plan was walked {most} times"
        text = f"{times}, and this does not hold: {truncate(inner.until or '', 200)}"
        return self.end(CallError(wire.UNTIL_UNMET, text))

    def _plan_ended(self, event: events.ChildEnded) -> list[Any]:
        report = event.report or {}
        self.approvals.records += report.get("decisions") or ()
        if self._is_inner:
            self.steps = [*map(UndoStep.model_validate, report.get("undo") or ()), *self.steps]
        if event.error is not None:
            return self.end(CallError(event.error.code, event.error.message))
        errors = report["errors"]
        if report["status"] != "completed":
            lines = (f"{e['call']}: [{e['code']}] {truncate(str(e['message']), 300)}" for e in errors[:MAX_FAILURES])
            text = "; ".join(lines) or f"its plan was {report['status']}"
            return self.end(CallError(wire.PLAN_FAILED, text), errors=errors)
        log = plan_log(self.request.data(), report["context"])
        if self._inner.until is not None and not report.get("reached"):
            return self._go_on(log.state())
        output = plan_output(log)
        schema = output_schema(self.request.schema)
        try:
            defects = [] if schema is None else Checker(schema).defects(output)
        except TooComplex as error:
            return self.end(CallError(wire.TOO_COMPLEX, f"what the plan yields: {error}"))
        if defects:
            text = "; ".join(f"{pointer(*at) or 'it'}: {why}" for at, why in defects[:MAX_FAILURES])
            text = f"what the plan yields breaks the definition's schema: {text}"
            return self.end(CallError(wire.SCHEMA_MISMATCH, text))
        return self.end(output=output)


class AnonymousDelegate(DelegateMachine):
    """Makes one Call; its result is the Activity's own, or the model's."""

    def __init__(
        self, own: str, own_input: DelegateInput, position: TreePosition, prepared: ValidatedPlan,
        capabilities: Capabilities, source: ContextRef,
    ) -> None:  # fmt: skip
        super().__init__(own, own_input, position, prepared.request)
        self.prepared, self.capabilities = prepared, capabilities
        self.price, self._source = capabilities.price, source
        self.node = prepared.nodes[0]
        id_ = own_input.call.id if own_input.call is not None else ""
        self._call = {**self.node.call, **own_input.input, "_id": id_}
        self._context = list(own_input.context)

    def begin(self) -> list[Any]:
        if self.node.kind != "latent":
            return [commands.StartCall(self.node, self._call, self._context)]
        measured = [self._call, self._context, dict(self.node.tool.schema)]
        size = latent_request_size(self.config, self.price, context_bytes(self.request.context), [measured])
        return self.budget.request([self.node.key], size)

    def react(self, event: events.Event, now: str) -> list[Any]:
        match event:
            case events.CallEnded(value=value, chosen=chosen, usage=usage, error=error):
                self.usage.add(usage)
                out = self.budget.settle(self.node.key, usage)
                if error is None:
                    return out + self.end(output=value, path=chosen)
                return out if self.is_cancelling else out + self.end(error, details=error.details)
        return super().react(event, now)

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        return [commands.AskOutput(self.node, self._call, self._context, self._source, effect.request)]
