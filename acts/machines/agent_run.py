"""A run that plans and walks, tick after tick: the machine of ``Agent``, and of a ``Delegate`` with a planner.

It holds the loop and turns its steps into commands: a request to the model (after the budget was asked),
a child that walks the plan of the tick, or a wait for a person. One step is under way at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.wire import LIMIT_EXCEEDED, PAUSE, RESUME
from acts.machines.budget import BudgetRefused, Granted
from acts.machines.events import (
    Begin,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Event,
    ModelAnswered,
    ModelFailed,
    PauseRequested,
    Provided,
    ResumeRequested,
    StartsHeld,
    StartsReleased,
)
from acts.machines.ledger import RequestSize
from acts.machines.loop import Loop
from acts.machines.loop_steps import AskModel, AwaitApproval, DropRest, Finished, StartPlan, Step
from acts.machines.plan_proposal import PlanProposals
from acts.machines.provided_messages import ProvidedMessages, provide_signal
from acts.machines.queue_watch import foreign_queues
from acts.machines.request_size import ContextBytes, planner_request_size
from acts.machines.run_commands import AskSolution, Finish, SignalChildren
from acts.machines.run_machine import RunMachine
from acts.machines.tick_child import TickChild
from acts.tree.decisions import Decision
from acts.tree.signal_records import StreamedCalls, TreeSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acts.language.config import Config
    from acts.language.messages import Data
    from acts.machines.agent_setup import AgentSetup
    from acts.machines.approval_effects import Decided
    from acts.machines.streamed_plan import StreamedPlan
    from acts.plan.validate import ValidatedPlan
    from acts.tree.records import AgentState


class AgentRun(RunMachine):
    """``forecast`` says what a proposed plan will cost when a child walks it."""

    def __init__(self, own: str, setup: AgentSetup, forecast: Callable[[ValidatedPlan], dict[str, Any] | None]) -> None:
        super().__init__(own, setup.position, setup.advance, setup.lease)
        if setup.refusal is not None:
            self.budget.refuse_first(setup.refusal)
        self.setup = setup
        self.price = setup.capabilities.price
        capabilities = setup.capabilities
        self.loop = Loop(setup.request, capabilities.tools, capabilities.served, self.budget.calls_refusal)
        self.loop.usage = self.usage
        self.proposals = PlanProposals(self.loop, forecast)
        self.failure: Finished | None = None
        self._phase = "planning"
        self._is_paused = False
        self._is_held = False
        self._context_bytes = ContextBytes()
        self._held_step: AskModel | StartPlan | DropRest | None = None
        self._child = TickChild(self)
        self._step: Step | None = None
        self.provided = ProvidedMessages()
        self.notes += [p.text() for p in self.loop.warnings if p.code == "limitLowered"]

    # -- what can be seen -----------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings of the Request."""
        return self.setup.request.config

    @property
    def phase(self) -> str:
        """As of any run; at the root ``awaiting`` also while a plan is walked in which something waits."""
        if self.finished is not None:
            return self.finished
        if self.is_cancelling:
            return "cancelled"
        if self._is_paused and (self._held_step is not None or self._held_answers):
            return "paused"
        return "awaiting" if self._phase == "running" and self.approvals.below.run_count else self._phase

    @property
    def in_flight(self) -> int:
        """The request while the model is asked, and the plan while it is walked: both while an answer is streamed."""
        steps = int(isinstance(self._step, (AskModel, StartPlan, DropRest)) and self._held_step is None)
        return steps + int(isinstance(self._step, AskModel) and self._child.is_streaming)

    @property
    def streamed_count(self) -> int:
        """How many Calls of the answer that is being written have arrived."""
        return 0 if self._child.stream is None else self._child.stream.received

    @property
    def is_paused(self) -> bool:
        """True while no step begins."""
        return self._is_paused

    @property
    def can_continue_as_new(self) -> bool:
        """True between two ticks, and while a plan waits for a person."""
        return self.in_flight == 0 and not isinstance(self._held_step, StartPlan)

    @property
    def foreign_queues(self) -> tuple[str, ...]:
        """The task queues of the Tools that may be planned with."""
        return foreign_queues(self.loop.tools.values())

    # -- steps ----------------------------------------------------------------------------------

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event on the loop."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None else handler(self, event, now)

    def _begin(self, _event: Begin, now: str) -> list[Any]:
        return self._take_step(self.loop.begin(), now)

    def _take_step(self, step: Step, now: str) -> list[Any]:
        """Do the next step of the loop; a paused run keeps it, and one that is to continue as new keeps the next tick.

        A plan starts even so: between a Solution and its plan no run can continue as new.
        """
        self._step = step
        if isinstance(step, Finished):
            return self._finish(step)
        if isinstance(step, AwaitApproval):
            self._phase = "awaiting"
            plan, approve = self.loop.proposed_calls, self.config.approve
            return list(self.approvals.open("plan", self.version, approve, now, subject=lambda: plan))
        stream = self._child.stream
        if isinstance(step, (StartPlan, DropRest)) and stream is not None and self._child.is_streaming:
            return self._complete_plan(stream, step, now)
        if self._is_paused or (self._is_held and isinstance(step, AskModel)):
            self._held_step = step
            return []
        if isinstance(step, StartPlan):
            self._phase = "running"
            return list(self.budget.request_calls(f"plan-{step.tick}", step.calls))
        self._join_provided()
        self._phase = "planning"
        self._step = step = self.loop.ask()
        self._child.expect_answer()
        return list(self.budget.request([f"tick-{step.tick}"], self._size()))

    def _take_held_step(self, now: str) -> list[Any]:
        step, self._held_step = self._held_step, None
        return [] if step is None else self._take_step(step, now)

    def _size(self) -> RequestSize:
        """The size of the request of this tick; of no matter where nothing limits it."""
        if not self.budget.limits_requests:
            return RequestSize()
        price, loop = self.setup.capabilities.price, self.loop
        shown = self._context_bytes.count(loop.request.context, loop.turn_log.turns)
        return planner_request_size(self.config, price, shown, loop.tools, loop.unusable.cap)

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        """The budget allows the request of a tick, or the Calls of its plan."""
        step = self._step
        if isinstance(step, AskModel) and effect.key == f"tick-{step.tick}":
            unusable, streams = self.loop.unusable, self._child.stream is not None
            return [AskSolution(step.tick, step.message_count, effect.request, streams, unusable.left, unusable.cap)]
        if isinstance(step, StartPlan) and effect.key == f"plan-{step.tick}":
            return self._child.start(step.tick, step.request, step.ids)
        return list(self.budget.settle(effect.key, None))

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """A limit of the budget ends the run; what was done is kept."""
        if isinstance(self._step, AskModel):
            self.loop.undo_tick()
            return self._finish(Finished("failed", f"{effect.reason}, and there is no output", LIMIT_EXCEEDED))
        return self._finish(Finished("failed", f"tick {self.loop.tick}: {effect.reason}", LIMIT_EXCEEDED))

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """The run ends as at any other limit; what was done is kept."""
        return self._finish(Finished("failed", f"tick {self.loop.tick}: {error.message}", error.code))

    def _finish(self, end: Finished) -> list[Any]:
        self.failure = end if end.status != "completed" else None
        self.finished = end.status
        return [*self.approvals.close_all(), Finish(end.status)]

    # -- results ----------------------------------------------------------------------------------

    def _answered(self, event: ModelAnswered, now: str) -> list[Any]:
        answer = event.answer
        self.usage.add(answer["usage"])
        out: list[Any] = list(self.budget.settle(f"tick-{self.loop.tick}", answer["usage"]))
        if self.is_cancelling:
            return out
        started = self._child.started_calls
        if not started:
            self._join_provided()
        if "unusable" in answer:
            return out + self._take_unusable(answer["unusable"], answer["usage"], started, now)
        self.loop.unusable.reset()
        step = self.loop.answered(answer["solution"], started)
        self.proposals.version += isinstance(step, AwaitApproval)
        return out + self._take_step(step, now)

    def _take_unusable(
        self, unusable: dict[str, Any], usage: dict[str, Any], started: list[Any], now: str
    ) -> list[Any]:
        """The planner is shown what is wrong with its answer; too many of these in a row end the run."""
        fault = {k: unusable[k] for k in ("code", "message", "text") if k in unusable}
        self.loop.unusable.record(unusable, usage)
        end = None if started else self.loop.unusable.end_text(fault["message"])
        if end is not None:
            return self._finish(Finished("failed", f"tick {self.loop.tick}: {end}", fault["code"]))
        return self._take_step(self.loop.answer_unusable(**fault, started=started), now)

    def _model_failed(self, event: ModelFailed, now: str) -> list[Any]:
        self.usage.add(event.usage)
        out: list[Any] = list(self.budget.settle(f"tick-{self.loop.tick}", event.usage))
        if self.is_cancelling:
            return out
        if self._child.is_streaming:
            error = event.error
            step = self.loop.answer_unusable(error.code, error.message, started=self._child.started_calls)
            return out + self._take_step(step, now)
        text = f"tick {self.loop.tick}: the model gave no answer: {event.error.message}"
        return out + self._finish(Finished("failed", text, event.error.code))

    # -- the plan of a tick -------------------------------------------------------------------------

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """Calls of the answer that is being written: what can start is passed on."""
        step = self._step
        if not isinstance(record, StreamedCalls) or not isinstance(step, AskModel) or self.is_cancelling:
            return []
        return self._child.extend(record, step)

    def on_child_started(self, event: ChildStarted) -> list[Any]:
        """The plan gets what has been written since its start."""
        return self._child.started(event.workflow_id)

    def _complete_plan(self, stream: StreamedPlan, step: StartPlan | DropRest, now: str) -> list[Any]:
        """The answer whose plan is walked already is complete; a plan that has ended since is judged now."""
        self._phase = "running"
        stream.is_over = True
        return self._child.complete(step) if stream.early_end is None else self._plan_ended(stream.early_end, now)

    def _plan_ended(self, event: ChildEnded, now: str) -> list[Any]:
        if isinstance(self._step, AskModel) and not self.is_cancelling and self._child.ended_early(event):
            return []
        report, tick = event.report or {}, self.loop.tick
        decisions = report.get("decisions") or ()
        if event.accounting is None:
            self.budget.take(self._child.settled_before)  # it may not have reported them to the root
        if self.is_cancelling or event.error is not None:
            self.approvals.records += [{**record, "tick": tick} for record in decisions]
        if self.is_cancelling:
            self.loop.plan_cancelled(report if "calls" in report else {})
            return []
        if event.error is not None:
            if event.is_unstarted and isinstance(self._step, StartPlan):
                self.budget.count_calls(-self._step.calls)
                text = f"what this plan reads is too large for one plan: {event.error.message}"
                return self._take_step(self.loop.answer_unusable(event.error.code, text), now)
            text = f"tick {tick}: its plan did not end by itself: {event.error.code}: {event.error.message}"
            return self._finish(Finished("failed", text, event.error.code))
        self._join_provided()
        if "forecast" in report:
            self.proposals.forecasts.append(report["forecast"])
        named = [self.loop.results.with_full_id(record) for record in decisions]
        self.approvals.records += [{**record, "tick": tick} for record in named]
        for record in named:
            self.loop.context.append_decision(record)
        return self._take_step(self.loop.plan_ended(report), now)

    # -- people -------------------------------------------------------------------------------------

    def _provide(self, event: Provided, _now: str) -> list[Any]:
        """A message joins the context before the next step; the plan that is walked gets it too."""
        self.provided.add([event.message])
        return [provide_signal(event.message)]

    def _join_provided(self) -> None:
        self.provided.join(self.loop.provide, self.note)

    def _pause(self, _event: PauseRequested, _now: str) -> list[Any]:
        self._is_paused = True
        return [SignalChildren(PAUSE)]

    def _resume(self, _event: ResumeRequested, now: str) -> list[Any]:
        self._is_paused = False
        return [SignalChildren(RESUME), *([] if self._is_held else self._take_held_step(now))]

    def _hold(self, _event: StartsHeld, _now: str) -> list[Any]:
        self._is_held = True
        return []

    def _release(self, _event: StartsReleased, now: str) -> list[Any]:
        self._is_held = False
        return [] if self._is_paused else self._take_held_step(now)

    def _cancel(self, _event: CancelRequested, _now: str) -> list[Any]:
        self.is_cancelling = True
        self._held_step = None
        return list(self.approvals.close_all())

    @property
    def version(self) -> int:
        """How many plans have been proposed, edits included."""
        return self.proposals.version

    def check_decision(self, decision: Decision) -> ValidatedPlan | None:
        """The edited proposal; raises as ``PlanProposals.check_decision``."""
        return self.proposals.check_decision(decision)

    def on_decided(self, effect: Decided, now: str) -> list[Any]:
        """A person decided about the plan of this tick."""
        step = self.proposals.decide(effect, self.approvals.expired)
        if step is not None:
            return self._take_step(step, now)
        self.approvals.raise_version(self.version, lambda: self.loop.proposed_calls)
        return []

    # -- carrying over ---------------------------------------------------------------------------

    def snapshot_fields(self) -> dict[str, Any]:
        """The fields of ``AgentState`` that an agent fills."""
        loop = self.loop.snapshot()
        if isinstance(self._held_step, AskModel):
            loop["tick"] -= 1  # the next run begins this tick
        return {
            "request": self.setup.raw, "capabilities": self.setup.capabilities, "position": self.position,
            "loop": loop, "isPaused": self._is_paused, "version": self.version,
            "forecasts": tuple(self.proposals.forecasts), "provided": tuple(m.raw for m in self.provided.messages),
        }  # fmt: skip

    def restore(self, state: AgentState, provided: Iterable[Data]) -> None:
        """Take over what the run before carried over."""
        self.loop.restore(state.loop)
        self.restore_common(state.approvals, state.budget)
        self._is_paused = state.isPaused
        self.proposals.version = state.version
        self.proposals.forecasts = list(state.forecasts)
        self.provided.add(provided)


_HANDLERS: Final[dict[type, Callable[[AgentRun, Any, str], list[Any]]]] = {
    Begin: AgentRun._begin,  # noqa: SLF001 - the table of this class
    ModelAnswered: AgentRun._answered,  # noqa: SLF001
    ModelFailed: AgentRun._model_failed,  # noqa: SLF001
    ChildEnded: AgentRun._plan_ended,  # noqa: SLF001
    Provided: AgentRun._provide,  # noqa: SLF001
    PauseRequested: AgentRun._pause,  # noqa: SLF001
    ResumeRequested: AgentRun._resume,  # noqa: SLF001
    StartsHeld: AgentRun._hold,  # noqa: SLF001
    StartsReleased: AgentRun._release,  # noqa: SLF001
    CancelRequested: AgentRun._cancel,  # noqa: SLF001
}
