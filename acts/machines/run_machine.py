"""The base of all runs: what every run of a tree does alike, whatever it walks.

A run is a machine: ``handle`` takes one event and returns the commands that follow. It holds the
machines that it is made of (approvals, budget, and a walk or a loop), and applies their effects until
only commands for the driver are left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.usage import Usage
from acts.language.wire import CANCELLED_REPORT, ENGINE_ERROR, LIMIT_EXCEEDED
from acts.machines.approval_effects import AnswerUpdate, Decided, Note
from acts.machines.approvals import Approvals
from acts.machines.budget import BudgetMachine, BudgetRefused, Granted, SendRecord
from acts.machines.deliveries import Deliveries
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    DecisionReceived,
    Event,
    HistoryFull,
    QueuesChecked,
    RecordDelivered,
    RecordLost,
    RecordReceived,
    ResumeRequested,
    RunReset,
    TimerFired,
)
from acts.machines.model_waits import ModelWaits
from acts.machines.permit_gate import PermitGate
from acts.machines.permits import IDLE_TIMER, Permits
from acts.machines.queue_watch import QUEUE_TIMER, QueueWatch
from acts.machines.received_records import receive_record
from acts.machines.resync import ChildGone, ResetRecovery
from acts.machines.run_notes import add_note, has_note
from acts.tree.records import GrantedRequest, PermitLease, TreePosition
from acts.tree.signal_records import CancelledReport, DecisionAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from acts.language.config import Config
    from acts.machines.run_commands import RunCommand
    from acts.tree.decisions import Decision
    from acts.tree.signal_records import TreeSignal

# What a run that is over still handles: other runs, and people, wait for an answer
_AFTER_THE_END: Final = (DecisionReceived, RecordReceived, RecordDelivered, RecordLost, RunReset)


class RunMachine:
    """``own`` is the run's workflow id. Subclasses handle the events of their own kind in ``react``."""

    def __init__(
        self, own: str, position: TreePosition, advance: GrantedRequest | None = None, lease: PermitLease | None = None
    ) -> None:
        self.own, self.position = own, position
        self.price: tuple[float, float] | None = None  # US dollars per token of the model's input and output
        # Declared, because mypy reads the lambdas of ``received_records`` before this method
        self.approvals: Approvals = Approvals(own, position, self.check_decision)
        self.budget: BudgetMachine = BudgetMachine(own, position, advance)
        self.usage = Usage()
        self.notes: list[str] = []
        self.queue_watch = QueueWatch()
        self.model_waits: ModelWaits = ModelWaits()
        self.permits: Permits = Permits(own, position, lease)
        self.gate = PermitGate(self.permits)
        self.children: dict[str, str] = {}
        self.recovery: ResetRecovery = ResetRecovery(self.approvals, self.budget, self.permits, self.children)
        self.deliveries = Deliveries(self.approvals, self.budget, self.permits, self.recovery)
        self.cancelled_reports: dict[str, dict[str, Any]] = {}  # by workflow id: what cancelled children had done
        self.finished: str | None = None
        self.is_cancelling = False
        self.has_not_begun = True
        self.last_event_at = ""
        self._held_answers: list[Granted | BudgetRefused] = []  # of the budget, while the run is paused

    # -- for subclasses ---------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings of the run's Request."""
        raise NotImplementedError

    @property
    def phase(self) -> str:
        """``planning``, ``awaiting``, ``running``, ``paused``, or how the run ended."""
        raise NotImplementedError

    @property
    def is_paused(self) -> bool:
        """True while a person lets nothing start."""
        raise NotImplementedError

    @property
    def can_continue_as_new(self) -> bool:
        """True at a moment at which the run's state is all there is."""
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        """How many activities, children and requests the run waits for."""
        raise NotImplementedError

    @property
    def foreign_queues(self) -> tuple[str, ...]:
        """The task queues that the run's Tools name, if it looked up the Tools itself; else the run above asks."""
        return ()

    takes_back_starts = False
    """True for a run that can continue as new with starts that were postponed."""

    @property
    def wants_new_run(self) -> bool:
        """True at a moment at which the run should continue as new, however short its history is."""
        return False

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event of this kind of run."""
        raise NotImplementedError

    def check_decision(self, decision: Decision) -> Any:
        """Raise PlanError for a decision that cannot be carried out now; what is returned comes with ``Decided``."""

    def on_decided(self, effect: Decided, now: str) -> list[Any]:
        """A decision about this run was taken."""
        raise NotImplementedError

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        """The budget allows a purpose."""
        raise NotImplementedError

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """The budget does not allow a purpose."""
        raise NotImplementedError

    def on_child_started(self, event: ChildStarted) -> list[Any]:
        """A child runs, and can be sent records."""
        return []

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """A record came that only this kind of run takes."""
        return []

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """End with what there is: nothing more can be recorded."""
        raise NotImplementedError

    def snapshot_fields(self) -> dict[str, Any]:
        """What this kind of run carries over, beside what all carry."""
        raise NotImplementedError

    # -- events -----------------------------------------------------------------------------

    def handle(self, event: Event, now: str) -> list[RunCommand]:
        """Take one event; returns the commands that follow from it, in order."""
        if self.finished is not None and not isinstance(event, _AFTER_THE_END):
            return []
        self.last_event_at = now
        if isinstance(event, Begin):
            self.has_not_begun = False
        if isinstance(event, (CallCompleted, CallFailed)):
            self.queue_watch.record_end(event.key)
        self.gate.record_end(event)
        self.model_waits.record_end(event, self.own)
        shared = _SHARED.get(type(event))
        effects = list(shared(self, event, now) if shared is not None else self.react(event, now))
        if isinstance(event, Begin):
            effects += self.queue_watch.begin()
        if isinstance(event, CancelRequested):
            effects += self.approvals.answers.refuse_updates("the run was cancelled before the decision was judged")
        if isinstance(event, (CancelRequested, ResumeRequested)):
            effects, self._held_answers = [*effects, *self._held_answers], []
        if isinstance(event, CancelRequested):
            effects += self._void_waiting(now)
        return self._apply(effects, now) + self._start_more(now)

    def _start_more(self, now: str) -> list[RunCommand]:
        """Start what has waited for a permit, first of all what has its grant of the budget already."""
        if self.finished is not None or self.is_cancelling or self.is_paused or self.has_not_begun:
            return []
        return [*self.gate.admit_waiting(), *self._apply(self.start_held_calls(now), now)]

    def _void_waiting(self, now: str) -> list[Any]:
        """The run is cancelled: what waits for a permit has ended."""
        out: list[Any] = []
        for event in self.gate.void_waiting():
            out += self._child_ended(event, now) if isinstance(event, ChildEnded) else self.react(event, now)
        return out

    @property
    def waiting_starts(self) -> int:
        """How many Calls and requests could start with another permit."""
        return 0 if self.is_paused else len(self.gate.waiting)

    def start_held_calls(self, now: str) -> list[Any]:
        """Start Calls that were held back for want of permits."""
        return []

    def flush(self, now: str) -> list[RunCommand]:
        """What other runs should hear of after this task: reports of approvals and of the budget, and permits."""
        effects = [*self.approvals.flush(), *self.budget.flush()]
        if self.finished is None and not self.is_cancelling:
            effects += self.queue_watch.flush(is_busy=self.in_flight > 0)
            effects += self.permits.flush(self.waiting_starts, self.children)
        return self._apply(effects, now)

    def flush_at_end(self, now: str) -> list[RunCommand]:
        """At the end: what waited here is closed. What requests cost stands in the result; a cancelled run has none."""
        return self.flush(now) if self.is_cancelling else self._apply(self.approvals.flush(), now)

    def refuse_update(self, id_: str, text: str) -> list[RunCommand]:
        """Answer an update that could not be handled."""
        return [AnswerUpdate(id_, DecisionAnswer(id=id_, type=ENGINE_ERROR, message=text))]

    def report_cancelled(self, report: dict[str, Any]) -> SendRecord:
        """The message that tells the parent what this cancelled run had done."""
        record = CancelledReport(workflowId=self.own, report=report)
        return self._signed(SendRecord(self.position.ancestors[-1], CANCELLED_REPORT, record))

    def child_of_instance(self, instance: str) -> str:
        """The name of the child that walks an instance."""
        return instance

    def _apply(self, effects: Iterable[Any], now: str) -> list[RunCommand]:
        """Apply the effects that are for this run; the rest are commands."""
        out: list[RunCommand] = []
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            own = _OWN_EFFECTS.get(type(effect))
            if own is None:
                command = self.gate.admit(self._signed(effect) if isinstance(effect, SendRecord) else effect)
                out += [] if command is None else [command]
            else:
                queue.extendleft(reversed(own(self, effect, now)))
        return out

    def _signed(self, effect: SendRecord) -> SendRecord:
        """A message with the token of the tree, which its receiver asks for."""
        return replace(effect, record=effect.record.model_copy(update={"token": self.position.token}))

    def note(self, text: str) -> None:
        """A remark for ``status`` and the page."""
        add_note(self.notes, text)

    def _note(self, effect: Note, _now: str) -> list[Any]:
        self.note(effect.text)
        return []

    # -- what all runs do alike ---------------------------------------------------------------

    def _decision_received(self, event: DecisionReceived, now: str) -> list[Any]:
        return self.approvals.decide(event.raw, event.word, now, update=event.update, has_children=bool(self.children))

    @property
    def all_notes(self) -> list[str]:
        """What people should know: remarks, and what is wrong with task queues and models now."""
        return [*self.notes, *self.queue_watch.notes, *self.model_waits.notes(self.own)]

    def note_once(self, text: str) -> None:
        """A remark that further requests repeat."""
        if not has_note(self.notes, text):
            self.note(text)

    def _queues_checked(self, event: QueuesChecked, now: str) -> list[Any]:
        self.queue_watch.record_check(event.has_workers, now)
        return []

    def _timer_fired(self, event: TimerFired, now: str) -> list[Any]:
        if self.recovery.has_timer(event.name):
            return self.recovery.on_timer(event.name)
        if event.name == QUEUE_TIMER:
            return self.queue_watch.on_timer(is_busy=self.in_flight > 0)
        if event.name == IDLE_TIMER:
            return self.permits.on_timer(self.waiting_starts)
        return list(self.approvals.on_timer(event.name, now))

    def _child_started(self, event: ChildStarted, _now: str) -> list[Any]:
        self.children[event.key] = event.workflow_id
        is_late = self.recovery.may_have_ended(event) and not self.is_cancelling
        return [*(self.recovery.on_late_start(event.key) if is_late else ()), *self.on_child_started(event)]

    def _child_ended(self, event: ChildEnded, now: str) -> list[Any]:
        """Take what a child says beside its result, then its result."""
        workflow_id = self.children.pop(event.key, None)
        self.recovery.record_end(event.key)
        out: list[Any] = [*self.budget.child_ended(event.key, event.accounting)]
        out += self.permits.child_ended(event.key, workflow_id, event.accounting, is_ending=self.is_cancelling)
        if workflow_id is not None and event.report is None and workflow_id in self.cancelled_reports:
            event = replace(event, report=self.cancelled_reports.pop(workflow_id))
        self.usage.add((event.report or {}).get("usage"))
        if workflow_id is not None and event.accounting is None and not self.is_cancelling:
            out += self.recovery.forget_run(workflow_id)
        elif workflow_id is not None and self.position.is_root:
            out += self.approvals.forget(workflow_id)
        return [*out, *self.react(event, now)]

    def _restart_child(self, effect: ChildGone, _now: str) -> list[Any]:
        """A child is gone, and what it held with it."""
        workflow_id = self.children.pop(effect.key)
        return [*self.permits.child_gone(effect.key, workflow_id), *self.recovery.forget_run(workflow_id, effect.key)]

    def _budget_answered(self, effect: Granted | BudgetRefused, now: str) -> list[Any]:
        """What the budget allows starts, and what it refuses fails; a grant goes back when the run is over.

        A paused run holds both: a delegate may start in spite of a refusal.
        """
        if self.finished is not None or self.is_cancelling:
            return list(self.budget.settle(effect.key, None)) if isinstance(effect, Granted) else []
        if self.is_paused:
            self._held_answers.append(effect)
            return []
        return self.on_granted(effect, now) if isinstance(effect, Granted) else self.on_refused(effect, now)

    # -- carrying over ----------------------------------------------------------------------------

    def common_snapshot(self) -> dict[str, Any]:
        """The part of a snapshot that all runs have."""
        lease = self.permits.lease_of_next_run()
        return {"approvals": self.approvals.snapshot(), "budget": self.budget.snapshot(), "lease": lease}

    def restore_common(self, approvals: Mapping[str, Any], budget: Mapping[str, Any]) -> None:
        """Take it over."""
        self.approvals.restore(approvals)
        self.budget.restore(budget)


def _is_ending(run: RunMachine) -> bool:
    return run.is_cancelling or run.finished is not None


_SHARED: Final[dict[type, Callable[[RunMachine, Any, str], list[Any]]]] = {
    DecisionReceived: RunMachine._decision_received,  # noqa: SLF001 - the table of this class
    TimerFired: RunMachine._timer_fired,  # noqa: SLF001
    HistoryFull: lambda run, event, now: run.on_history_full(CallError(LIMIT_EXCEEDED, event.reason), now),
    ChildStarted: RunMachine._child_started,  # noqa: SLF001
    ChildEnded: RunMachine._child_ended,  # noqa: SLF001
    QueuesChecked: RunMachine._queues_checked,  # noqa: SLF001
    RunReset: lambda run, event, _now: run.recovery.on_reset(event.first_run_id, is_ending=_is_ending(run)),
    RecordReceived: receive_record,
    RecordDelivered: lambda run, event, _now: run.deliveries.delivered(event),
    RecordLost: lambda run, event, _now: run.deliveries.lost(event, is_over=run.finished is not None),
}
_OWN_EFFECTS: Final[dict[type, Callable[[RunMachine, Any, str], list[Any]]]] = {
    Decided: lambda run, effect, now: run.on_decided(effect, now),
    Granted: RunMachine._budget_answered,  # noqa: SLF001
    BudgetRefused: RunMachine._budget_answered,  # noqa: SLF001
    Note: RunMachine._note,  # noqa: SLF001
    ChildGone: RunMachine._restart_child,  # noqa: SLF001
}
