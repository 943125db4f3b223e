"""A run that walks a plan: the machine of ``Plan`` and of ``Instance``.

It holds the walk and turns its commands into those of a run: what stands behind a Call decides whether
an activity, a request to the model, a child or a run of its own starts, and whether the budget is asked
before. Nothing here waits for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, InvalidRequest, truncate
from acts.language.messages import Data
from acts.language.request_reader import parse_message
from acts.language.wire import CANCELLED, ENGINE_ERROR, NOT_RUN, PAUSE, PROVIDE, RESUME
from acts.machines.budget import BudgetRefused, Granted
from acts.machines.call_starts import CallStarts
from acts.machines.child_reports import SharedParts, decision_seen_from_above, reported_instances
from acts.machines.commands import AskHuman, CountElements, PlanFinished, StartCall
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallDetached,
    CallFailed,
    CancelRequested,
    ChildEnded,
    Event,
    PauseRequested,
    Provided,
    ResumeRequested,
    StartPostponed,
    StartsHeld,
    StartsReleased,
)
from acts.machines.plan_decisions import PlanDecisions
from acts.machines.plan_setup import PlanSetup, validate_extended
from acts.machines.queue_watch import foreign_queues
from acts.machines.run_commands import Finish, RunCommand, SignalChildren
from acts.machines.run_machine import RunMachine
from acts.machines.streamed_plan import extended_request
from acts.machines.walk import Walk
from acts.plan.planned_call import UNIT, PlannedCall
from acts.plan.validate import ValidatedPlan
from acts.tree.batches import count_calls
from acts.tree.decisions import Decision
from acts.tree.signal_records import PlanExtension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from acts.language.config import Config
    from acts.machines.approval_effects import Decided
    from acts.machines.commands import Command
    from acts.machines.past_calls import PastCalls
    from acts.machines.plan_decisions import Forecast
    from acts.tree.records import PlanState
    from acts.tree.signal_records import TreeSignal

# What of its input a run needs no more when it continues as new
_NOT_CARRIED: Final[dict[str, Any]] = {"request": {}, "capabilities": None, "settled": ()}


class PlanRun(RunMachine):
    """``identify`` gives a Call its ``_id``: stable, and different for every Call of every run.

    ``forecast`` says what a plan will cost that a person approves.
    """

    def __init__(self, own: str, setup: PlanSetup, identify: Callable[[PlannedCall], str], forecast: Forecast) -> None:
        super().__init__(own, setup.position, lease=setup.lease)
        self.setup = setup
        self.price = setup.capabilities.price
        self.raw = setup.raw
        self._starts = CallStarts(self)
        self._shared_parts = SharedParts()
        self._first_members: tuple[Sequence[PlannedCall], dict[str, str]] | None = None
        self.walk = Walk(setup.own_part(setup.prepared), identify, self._may_start)
        self.walk.counts_elements = self.budget.limits_calls
        self.decisions = PlanDecisions(self, forecast, is_approved=not asks_for_plan(setup.prepared))
        self.decisions.forecast = None if setup.input is None else setup.input.forecast
        self.notes += [p.text() for p in setup.prepared.warnings if p.code == "limitLowered"]
        self.walk.growing = setup.input is not None and setup.input.isGrowing
        if setup.past is not None:
            setup.past.digest_instance = self.digest_instance
            self._resume_from(setup.past)
        if setup.input is None:
            self.budget.count_calls(count_calls(setup.prepared))
        else:
            self.budget.take(setup.input.settled)

    def _resume_from(self, past: PastCalls) -> None:
        """Take over what an earlier run had done; a message to it that does not fit this one is left out."""
        self.walk.resume_from(past)
        for message in map(parse_message, past.provided):
            try:
                if isinstance(message, Data):
                    self.walk.context.provide(message)
            except InvalidRequest as error:
                self.note(f"a message to the run that this one resumes was left out: {error.problems[0].message}")

    # -- the run ------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings of the Request."""
        return self.walk.prepared.request.config

    @property
    def whole_plan(self) -> ValidatedPlan:
        """The plan as it was written, where the run walks a part of it and children the rest."""
        return self.walk.prepared.unsplit or self.walk.prepared

    def digest_instance(self, instance: str) -> str:
        """The digest of what a child is started with for an instance."""
        return self._starts.digest_instance(instance)

    @property
    def in_flight(self) -> int:
        """Activities, children and requests that the walk waits for."""
        return self.walk.running

    @property
    def is_paused(self) -> bool:
        """True while no Call starts."""
        return self.walk.paused

    @property
    def can_continue_as_new(self) -> bool:
        """True when nothing is in flight."""
        return self.walk.quiet and not self._starts.is_waiting

    takes_back_starts = True  # its Calls wait in the walk

    @property
    def phase(self) -> str:
        """``awaiting`` while something waits for a person and nothing else of the run goes on."""
        if self.finished is not None:
            return self.finished
        if self.is_cancelling:
            return "cancelled"
        if self.walk.paused:
            return "paused"
        if not self.decisions.is_approved:
            return "awaiting"
        waiting = self.approvals.below.count_waiting(self.children.values())
        waits = self.walk.running <= waiting and (self.walk.running or self.walk.counts.get("awaiting"))
        return "awaiting" if waits else "running"

    @property
    def foreign_queues(self) -> tuple[str, ...]:
        """The task queues of the plan's Tools; the run above asks about those of a part."""
        part = self.setup.input is not None and self.setup.input.part
        return () if part else foreign_queues(node.tool for node in self.whole_plan.nodes)

    def flush(self, now: str) -> list[RunCommand]:
        """As for every run; the next task has steps of its own."""
        self.walk.work.begin_task()
        return super().flush(now)

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event: what it does to the walk, and what the walk wants done."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None else handler(self, event, now)

    def _begin(self, _event: Begin, now: str) -> list[Any]:
        if self.decisions.is_approved:
            return self.perform(self.walk.begin(now), now)
        return self.decisions.ask_about_plan(now)

    def _completed(self, event: CallCompleted, now: str) -> list[Any]:
        self.usage.add(event.usage)
        out: list[Any] = [*self.budget.settle(event.key, event.usage)]
        return out + self.on_call(
            event.key, lambda rank: self.walk.completed(rank, event.value, now, chosen=event.chosen), now
        )

    def _failed(self, event: CallFailed, now: str) -> list[Any]:
        self.usage.add(event.usage)
        self._starts.withdraw(event.key)
        out: list[Any] = [*self.budget.settle(event.key, event.usage)]
        return out + self.on_call(event.key, lambda rank: self.walk.failed(rank, event.error, now), now)

    def _detached(self, event: CallDetached, now: str) -> list[Any]:
        return self.on_call(event.key, lambda rank: self.walk.detached(rank, now), now)

    def _postponed(self, event: StartPostponed, now: str) -> list[Any]:
        """A Call starts later, and asks for its request again."""
        out: list[Any] = [*self.budget.child_ended(event.key, None), *self.budget.settle(event.key, None)]
        return out + self.on_call(event.key, lambda row: self.walk.postponed(row, now), now)

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """What has not settled fails; what has completed is in the result."""
        return [*self.approvals.close_all(), *self.perform(self.walk.exhaust(error, now), now)]

    def on_call(self, key: str, event: Callable[[int], list[Command]], now: str) -> list[Any]:
        """Hand the walk the end of a Call or an element, by the row that it has now."""
        self.permits.release(key)
        row = self.walk.rows.get(key)
        return [] if row is None else self.perform(event(row), now)

    def _child_result(self, event: ChildEnded, now: str) -> list[Any]:
        """What a child came to: an instance's report, or the result of a delegated Call."""
        row = self.walk.rows.get(event.key)
        if row is None:
            return []
        node, report = self.walk.states.node(row), event.report
        self.approvals.records += [decision_seen_from_above(node, r) for r in (report or {}).get("decisions") or ()]
        if node.kind == UNIT:
            reports = self._shared_parts.share(reported_instances(node, report, event.error))
            return self.perform(self.walk.child_ended(row, reports, now), now)
        if event.error is not None or report is None:
            error = event.error or CallError(ENGINE_ERROR, "the child said nothing of its result")
            return self.perform(self.walk.failed(row, CallError(error.code, error.message), now), now)
        return self.perform(self.walk.completed(row, report.get("output"), now, chosen=report.get("path")), now)

    def _provided(self, event: Provided, now: str) -> list[Any]:
        """A message joins the context of the plan, and of the children that walk its instances."""
        message = event.message
        signal = SignalChildren(
            PROVIDE, message.raw, has_payload=True, instance=message.instance, instances_only=True
        )  # fmt: skip
        try:
            commands = self.walk.provide(message, now)
        except InvalidRequest as error:
            self.note(f"a message was refused: {error.problems[0].message}")
            return [signal]
        return [signal, *self.perform(commands, now)]  # a child that starts now has it in its Request

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """More of a plan that is still being written, or the word that no more follows."""
        if isinstance(record, PlanExtension):
            self.permits.add(record.permits)
        if not isinstance(record, PlanExtension) or not self.walk.growing:
            return []
        if record.dropped is not None:
            error = {"code": NOT_RUN, "message": truncate(record.dropped, 300)}
            return self.perform(self.walk.drop_unstarted(error, now), now)
        raw = extended_request(self.raw, record)
        prepared = validate_extended(self.setup, raw, is_complete=record.isComplete)
        self.raw = raw
        self.walk.growing = not record.isComplete
        return self.perform(self.walk.add_calls(prepared, now), now)

    def _pause(self, _event: PauseRequested, now: str) -> list[Any]:
        return [*self.perform(self.walk.pause(), now), SignalChildren(PAUSE)]

    def _resume(self, _event: ResumeRequested, now: str) -> list[Any]:
        return [*self.perform(self.walk.resume(now), now), SignalChildren(RESUME)]

    def _hold(self, _event: StartsHeld, now: str) -> list[Any]:
        return self.perform(self.walk.drain(now, on=True), now)

    def _release(self, _event: StartsReleased, now: str) -> list[Any]:
        return self.perform(self.walk.drain(now, on=False), now)

    def _cancel(self, _event: CancelRequested, now: str) -> list[Any]:
        """Nothing more starts; Calls that wait for a grant never will."""
        self.is_cancelling = True
        self.decisions.is_approved = True
        out: list[Any] = [*self.approvals.close_all(), *self.perform(self.walk.cancel(now), now)]
        error = CallError(CANCELLED, "the call was cancelled before it was started")
        for key in self._starts.withdraw_all():
            out += self.on_call(key, lambda rank: self.walk.failed(rank, error, now), now)
        return out

    # -- permits ------------------------------------------------------------------------------------

    def _may_start(self, node: PlannedCall) -> bool:
        """Take the permits of the next Call. One that has waited for its grant of the budget comes before it."""
        if len(self.gate.waiting) >= self.permits.usable:
            return False
        if node.kind == UNIT:
            members, waiting = len(node.members), self.walk.startable
            return self.permits.reserve_for_child(node.key, members, members * self._starts.widest_instance, waiting)
        return self._starts.has_room and self.permits.reserve(node.key)

    @property
    def waiting_starts(self) -> int:
        """The Calls that are ready, beside what waits at the gate."""
        return super().waiting_starts + self.walk.startable

    def start_held_calls(self, now: str) -> list[Any]:
        """Start ready Calls, as far as there are permits."""
        return self.perform(self.walk.start_more(now), now)

    # -- what the walk wants done -----------------------------------------------------------------

    def perform(self, commands: Iterable[Command], now: str) -> list[Any]:
        """Commands of the walk as effects of the run."""
        out: list[Any] = []
        starting: list[StartCall] = []
        for command in commands:
            if isinstance(command, PlanFinished):
                self.finished = command.status
                out.append(Finish(command.status))
            elif isinstance(command, AskHuman):
                out += self.decisions.ask_about_call(command, now)
            elif isinstance(command, CountElements):
                out += self._starts.count_elements(command)
            else:
                starting.append(command)
        return out + self._starts.start(starting, now)

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        """A Call has its request: start it, unless it does not run any more."""
        return self._starts.granted(effect, now)

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """A Call needs a request that the budget does not allow."""
        return self._starts.refused(effect, now)

    def child_of_instance(self, instance: str) -> str:
        """The name of the child that walks an instance: that of its first one."""
        nodes = self.walk.nodes
        if self._first_members is None or self._first_members[0] is not nodes:
            self._first_members = nodes, {member: n.members[0] for n in nodes for member in n.members}
        return self._first_members[1].get(instance, instance)

    # -- decisions -------------------------------------------------------------------------------

    def check_decision(self, decision: Decision) -> ValidatedPlan | None:
        """The edited plan, validated; raises as ``PlanDecisions.check``."""
        return self.decisions.check(decision)

    def on_decided(self, effect: Decided, now: str) -> list[Any]:
        """Carry out a decision."""
        return self.decisions.carry_out(effect, now)

    # -- carrying over ---------------------------------------------------------------------------

    def snapshot_fields(self) -> dict[str, Any]:
        """The fields of ``PlanState`` that a plan fills."""
        own = self.setup.input
        return {
            "request": self.raw, "position": self.position, "capabilities": self.setup.capabilities,
            "walk": self.walk.snapshot(),
            "input": None if own is None else own.model_copy(update=_NOT_CARRIED).to_json(),
            "usage": self.usage.to_json(), "version": self.decisions.version,
            "isApproved": self.decisions.is_approved, "forecast": self.decisions.forecast,
            "past": None if self.walk.past is None else self.walk.past.to_state(self.walk),
        }  # fmt: skip

    def restore(self, state: PlanState, parse: Callable[[Any], Data]) -> None:
        """Take over what the run before carried over."""
        self.walk.restore(state.walk, parse)
        self.restore_common(state.approvals, state.budget)
        self.usage.add(state.usage)
        decisions = self.decisions
        decisions.version, decisions.is_approved, decisions.forecast = state.version, state.isApproved, state.forecast


def asks_for_plan(prepared: ValidatedPlan) -> bool:
    """True when a person approves the plan before any of it runs: the default for lazy plans."""
    request = prepared.request
    required = request.config.approve.plan
    return required is True or (required is None and request.plan is not None and request.plan.mode == "lazy")


_HANDLERS: Final[dict[type, Callable[[PlanRun, Any, str], list[Any]]]] = {
    Begin: PlanRun._begin,  # noqa: SLF001 - the table of this class
    CallCompleted: PlanRun._completed,  # noqa: SLF001
    CallFailed: PlanRun._failed,  # noqa: SLF001
    CallDetached: PlanRun._detached,  # noqa: SLF001
    StartPostponed: PlanRun._postponed,  # noqa: SLF001
    ChildEnded: PlanRun._child_result,  # noqa: SLF001
    Provided: PlanRun._provided,  # noqa: SLF001
    PauseRequested: PlanRun._pause,  # noqa: SLF001
    ResumeRequested: PlanRun._resume,  # noqa: SLF001
    StartsHeld: PlanRun._hold,  # noqa: SLF001
    StartsReleased: PlanRun._release,  # noqa: SLF001
    CancelRequested: PlanRun._cancel,  # noqa: SLF001
}
