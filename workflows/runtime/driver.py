"""The driver: performs for one run machine what it wants done, whatever kind of run it is.

What Temporal brings (an activity or child that ended, a signal, an update, a timer) becomes an event of
one inbox. The driver hands the events to the machine in order and performs the commands that come back.
It decides nothing but when the history is long enough (``Lifetime``).

A reset hands the new run the signals and updates of the old one again, mixed; a replay of that task has the signals
first. So updates always come after the signals of their workflow task.

Determinism: workflows run without the SDK's sandbox (``docs/performance.md`` says why). What the sandbox
would forbid stays out by rule: no clock, randomness, I/O, threads, or iteration over sets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow

from acts.language.errors import truncate
from acts.machines.approval_effects import AnswerUpdate, CancelTimer, StartTimer
from acts.machines.approvals import iso
from acts.machines.budget import SendRecord
from acts.machines.events import (
    Begin,
    CancelRequested,
    DecisionReceived,
    Event,
    HistoryFull,
    PauseRequested,
    Provided,
    RecordReceived,
    ResumeRequested,
    RunReset,
    StartPostponed,
    StartsHeld,
    StartsReleased,
    TimerFired,
)
from acts.machines.lifetime import DRAIN_TIMER, HistorySize, Lifetime
from acts.machines.queue_watch import CheckQueues
from acts.machines.run_commands import (
    AskOutput,
    AskSolution,
    Finish,
    RestartChild,
    RunCommand,
    SignalChildren,
    StartActivity,
    StartBackground,
    StartBatch,
    StartDelegate,
    StartInstances,
    StartPlanRun,
    StartSetActivity,
    Stop,
)
from acts.simulation.billable_actions import CONTINUE_AS_NEW, TIMER, ActionCount
from workflows.runtime.children import Children
from workflows.runtime.outbox import Outbox
from workflows.runtime.payloads import encode_state
from workflows.runtime.signal_sender import SignalSender
from workflows.runtime.start_queue import StartQueue, void_start
from workflows.runtime.task_room import TaskRoom
from workflows.runtime.tasks_in_flight import TasksInFlight
from workflows.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.machines.run_machine import RunMachine
    from acts.tree.wire_format import VersionedRecord
    from workflows.runtime.lifeline import Lifeline
    from workflows.runtime.prepared_start import StartCommand
    from workflows.runtime.run_index import RunIndex

    Performer = Callable[["Driver", Any], None]

# Any time will do: the server rounds it up to its own step, which is 1 ms in ours and a second by default
SLICE_PAUSE: Final = timedelta(milliseconds=1)
# What a run has to know before it begins
BEFORE_THE_BEGIN: Final = (RunReset, PauseRequested, ResumeRequested, Provided)
# What people and other programs can bring about by themselves
FROM_OUTSIDE: Final = (DecisionReceived, RecordReceived, Provided, PauseRequested, ResumeRequested)


class Driver:
    """One run. ``inbox`` is filled by the handlers too; ``carry`` gives the state of the next run.

    ``answer`` takes the outcome of an update, by its id.
    """

    def __init__(
        self, run: RunMachine, inbox: deque[Event], carry: Callable[[dict[str, int]], VersionedRecord],
        answer: Callable[[AnswerUpdate], None], actions: ActionCount, lifeline: Lifeline, index: RunIndex,
    ) -> None:  # fmt: skip
        self.run, self.inbox = run, inbox
        self.actions, self._index = actions, index
        room = TaskRoom(actions)
        self.outbox = Outbox(room)
        self.children = Children(self.outbox, run.note, lifeline)
        self.signals = SignalSender(run, self.children, self.outbox, inbox.append)
        self.timers = Timers(actions, inbox.append)
        self.lifetime = Lifetime(is_cron=workflow.info().cron_schedule is not None)
        self.lifeline, self.answer = lifeline, answer
        self._carry = carry
        self.tasks = TasksInFlight(run, self.children, actions, inbox.append, self._start_again)
        self.starts = StartQueue(self.tasks, self.children, self.lifetime, room, takes_back=run.takes_back_starts)
        self._slice_timer: asyncio.Task[None] | None = None
        self._size = self._history()

    # -- the loop --------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run to the end; raises CancelledError when the run was cancelled, after everything has ended."""
        self._begin()
        try:
            await self._loop(lambda: self.run.finished is not None)
        except asyncio.CancelledError:
            await self._cancel()
            raise
        await self._end()

    def _begin(self) -> None:
        """Begin after what came before: a run may be started paused. Decisions wait until the waits are open."""
        self._note_reset()
        early = [event for event in self.inbox if isinstance(event, BEFORE_THE_BEGIN)]
        others = [event for event in self.inbox if event not in early]
        self.inbox.clear()
        self.inbox.extend((*early, Begin(), *others))

    async def _loop(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await workflow.wait_condition(self._has_work)
            self._size = self._history()
            self._note_reset()
            is_held = self._hold(self._size)
            self._empty_inbox()
            self._perform_all(self.run.flush(_now()))
            if is_held:
                await self._empty_outbox()
            if not self.inbox and self.run.finished is None:  # what was on its way may have taken other tasks
                self._renew(self._history())
            if is_held:
                self._handle(StartsReleased())
            self._index.update()

    def _note_reset(self) -> None:
        if self.lifeline.noted_lineage != self.lifeline.lineage:
            self.lifeline.noted_lineage = self.lifeline.lineage
            self.inbox.append(RunReset(workflow.info().first_execution_run_id))

    def _has_work(self) -> bool:
        if self.inbox or self.lifeline.noted_lineage != self.lifeline.lineage:
            return True
        if not self.starts and not self._is_quiet():
            return False
        history = self._history()
        return self.starts.has_new_task(history) or (self._is_quiet() and self._is_due(history))

    async def _empty_outbox(self) -> None:
        """What is on its way would be lost with the run that sent it."""
        while self.run.can_continue_as_new and not self.tasks.in_flight and not self.outbox.is_empty:
            await workflow.wait_condition(lambda: self.outbox.is_empty)
            self._empty_inbox()
            self._perform_all(self.run.flush(_now()))

    def _empty_inbox(self) -> None:
        while self.inbox:
            self._handle(self.inbox.popleft())

    def _handle(self, event: Event) -> None:
        if isinstance(event, TimerFired):
            self.timers.forget(event.name)
            if event.name == DRAIN_TIMER:
                self.lifetime.end_drain()
                event = StartsReleased()
        self._perform_all(self._commands_for(event))

    def _commands_for(self, event: Event) -> list[RunCommand]:
        """What the machine makes of an event. One from outside, whatever it holds, does not fail the run."""
        self._index.meters.record_event(event)
        try:
            return self.run.handle(event, _now())
        except Exception as error:
            if not isinstance(event, FROM_OUTSIDE):
                raise
            workflow.logger.exception("an event from outside could not be handled")
            text = f"it could not be handled: {type(error).__name__}: {truncate(str(error), 100)}"
            self.run.note(f"{type(event).__name__} was ignored: {text}")
            if isinstance(event, DecisionReceived) and event.update is not None:
                return self.run.refuse_update(event.update, text)
            return []

    def _perform_all(self, commands: list[RunCommand]) -> None:
        for command in commands:
            _PERFORMERS[type(command)](self, command)
        self._send_starts()

    async def _end(self) -> None:
        """Nothing is left undone: handlers have answered, and what is on its way to other runs has arrived."""
        while True:
            self._note_reset()
            self._empty_inbox()
            self._perform_all(self.run.flush_at_end(_now()))
            self._index.update()
            if self._nothing_left():
                break
            await workflow.wait_condition(lambda: bool(self.inbox) or self._nothing_left())

    async def send_and_wait(self, command: SendRecord) -> None:
        """Send the last word of a run that ends; one that is too large, or for a run that is gone, is dropped."""
        self.signals.send_record(command)
        await self._end()

    def _nothing_left(self) -> bool:
        return workflow.all_handlers_finished() and self.outbox.is_empty and not self.inbox

    async def _cancel(self) -> None:
        """Reach everything in flight, and wait until each has said how it ended."""
        self.inbox.append(CancelRequested())
        for command in self.starts.take_all():
            self.inbox.extend(void_start(command))
        self.tasks.cancel()
        await self._loop(lambda: self.run.finished is not None or not (self.tasks.in_flight or self.inbox))
        await self._end()

    # -- starts ----------------------------------------------------------------------------------------

    def _start(self, command: StartCommand) -> None:
        """Start it now if there is room: commands reach the server in the machine's order, as replay expects."""
        self._index.meters.record_start(command)
        self.starts.add(command)
        self._send_starts()

    def _start_again(self, command: StartActivity) -> None:
        """A local activity has done its work, and an ordinary one is to return what it came to."""
        self._size = self._history()
        self.starts.add(command)
        self._send_starts()

    def _send_starts(self) -> None:
        """Start what there is room for; what there is none for goes back, or waits for the next workflow task."""
        if not self.starts or self.run.is_cancelling or self.run.finished is not None:
            return
        self.starts.send(self._size)
        if self.starts.is_out_of_room:
            self._hold_starts()
        elif self.starts.needs_task and (self._slice_timer is None or self._slice_timer.done()):
            self.actions.record(TIMER)
            sleep = workflow.sleep(SLICE_PAUSE, summary="the next workflow task starts more calls")
            self._slice_timer = asyncio.create_task(sleep)
            self._slice_timer.add_done_callback(lambda _: self.tasks.local.begin_task())

    def _hold_starts(self) -> None:
        """Start nothing more until ``StartsReleased``; what waits for a workflow task goes back to the machine."""
        self.inbox.append(StartsHeld())
        if self.run.takes_back_starts:
            for command in self.starts.take_all():
                if not isinstance(command, (AskSolution, StartPlanRun, StartBatch)):  # of runs that take nothing back
                    self.inbox.append(StartPostponed(command.node.key))

    # -- continue-as-new ----------------------------------------------------------------------------------

    def _history(self) -> HistorySize:
        info = workflow.info()
        return HistorySize(
            info.get_current_history_length(), info.get_current_history_size(), info.is_continue_as_new_suggested(),
            self.lifeline.signals,
        )  # fmt: skip

    def _is_quiet(self) -> bool:
        is_quiet = self.run.can_continue_as_new and not self.run.is_cancelling and not self.tasks.in_flight
        return is_quiet and self.outbox.is_empty and workflow.all_handlers_finished()

    def _is_due(self, history: HistorySize) -> bool:
        return self.run.wants_new_run or self.lifetime.is_due(history)

    def _hold(self, history: HistorySize) -> bool:
        if self.run.is_cancelling or not self.lifetime.should_hold(history, self.run.in_flight, len(self.inbox)):
            return False
        self.inbox.appendleft(StartsHeld())
        return True

    def _renew(self, history: HistorySize) -> None:
        """Continue as new when it is time and nothing is in flight; else make such a moment, or end."""
        if self.run.is_cancelling:
            return
        is_due = self._is_due(history)
        if is_due and self._is_quiet():
            self._renew_now(history)
        elif self.lifetime.must_end(history):
            self._handle(HistoryFull(history.full_text()))
        elif is_due:
            self._drain(history)

    def _renew_now(self, history: HistorySize) -> None:
        actions = {**self.actions.to_json(), CONTINUE_AS_NEW: self.actions.events.get(CONTINUE_AS_NEW, 0) + 1}
        state = encode_state(self._carry(actions))
        if state is not None:
            workflow.continue_as_new(state)
        if self.lifetime.stay(history) and not self.lifetime.must_end(history):
            self.inbox.append(StartsReleased())
        else:
            self._handle(HistoryFull(history.full_text()))

    def _drain(self, history: HistorySize) -> None:
        seconds = self.lifetime.drain_seconds(history)
        if seconds is None:
            return
        self._hold_starts()
        if seconds:
            self._perform_all([StartTimer(DRAIN_TIMER, seconds, DRAIN_TIMER)])


def _now() -> str:
    return _date_at(workflow.time_ns())


@lru_cache(maxsize=16)  # all events of a workflow task have its time
def _date_at(nanoseconds: int) -> str:
    return iso(datetime.fromtimestamp(nanoseconds / 1e9, UTC))


_STARTS: Final = (
    StartActivity, AskOutput, AskSolution, StartDelegate, StartInstances, StartPlanRun, StartBackground, StartBatch,
)  # fmt: skip
_PERFORMERS: Final[dict[type, Performer]] = {
    **dict.fromkeys(_STARTS, Driver._start),  # noqa: SLF001 - the table of this class
    **dict.fromkeys((CheckQueues, StartSetActivity), lambda driver, command: driver.tasks.start_at_once(command)),
    SignalChildren: lambda driver, command: driver.signals.signal_children(command),
    SendRecord: lambda driver, command: driver.signals.send_record(command),
    StartTimer: lambda driver, command: driver.timers.start(command),
    CancelTimer: lambda driver, command: driver.timers.cancel(command),
    AnswerUpdate: lambda driver, command: driver.answer(command),
    Finish: lambda _driver, _command: None,  # the loop sees that the machine is over
    RestartChild: lambda driver, command: driver.tasks.child_tasks.restart(command.key),
    Stop: lambda driver, command: driver.lifeline.supersede(command.run_id),
}
