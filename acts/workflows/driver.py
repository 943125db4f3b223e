"""The one driver: what Temporal brings becomes events of one inbox, and the machine's commands are performed in order.

Activities, children, signals, updates and timers fill the inbox. The driver hands the events to the machine and
performs the commands that come back. It decides nothing but when the history is long enough (``Lifetime``), and how
much one workflow task starts (``StartQueue``).

A reset hands the new run the signals and updates of the old one again, mixed; a replay of that task has the signals
first. So updates always come after the signals of their workflow task.

Determinism: workflows run without the SDK's sandbox (``docs/performance.md`` says why). What the sandbox would forbid
stays out by rule: no clock, randomness, I/O, threads, or iteration over sets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from temporalio import workflow

from acts.language.errors import CallError, truncate
from acts.language.wire import CANCELLED, ENGINE_ERROR, INSTANCE, PLAN, PROVIDE
from acts.machines import commands, events
from acts.machines.agent_run import AgentRun
from acts.machines.approvals import iso
from acts.machines.lifetime import DRAIN_TIMER, HistorySize, Lifetime
from acts.tree.signal_records import DecisionAnswer
from acts.workflows.children import Children
from acts.workflows.in_flight import Start, StartCommand, TasksInFlight
from acts.workflows.payloads import MAX_TASK_BYTES, encode, encode_record, encode_state
from acts.workflows.signals import Outbox, TaskRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.machines.run_machine import RunMachine
    from acts.tree.wire_format import VersionedRecord
    from acts.workflows.lifeline import Lifeline
    from acts.workflows.observe import RunIndex

# Large arguments of Activities that are in memory at a time, beside one that is larger: a quarter of a small worker
MAX_HELD_BYTES: Final = 256 * 1024 * 1024
# A quarter of the server's cache of events, which holds what is started and what has just ended, of all runs
MAX_SLICE_BYTES: Final = 128 * 1024


class StartQueue:
    """The starts of one run that wait for a workflow task. ``takes_back``: the run can start them in the next run.

    *A slice* is what one workflow task starts. The server keeps the events of a run in a cache of 512 KiB by default,
    and reads them anew from its database for whatever does not fit, once or twice for every Call that was scheduled
    with them. A fan-out of 2,000 in one task costs twenty times as much per Call as one in slices.

    A task ends when the workflow waits for something that is not there. What brings the next one is the first result of
    the slice, or a timer of a millisecond: without it, slow Calls would hold back those behind them. Where the history
    has no room, the queue stops; the driver hands what is left back to the machine. Where memory has none, it waits for
    the results of Activities that hold it.
    """

    def __init__(
        self, tasks: TasksInFlight, children: Children, lifetime: Lifetime, room: TaskRoom, *, takes_back: bool
    ) -> None:
        self._tasks, self._children, self._lifetime, self._takes_back = tasks, children, lifetime, takes_back
        self._room = room
        self._waiting: deque[StartCommand] = deque()
        self._head: Start | None = None
        self._task, self._task_bytes = -1, 0
        self.is_out_of_room = self._waits_for_results = False

    @property
    def needs_task(self) -> bool:
        """True when another workflow task would start more."""
        return bool(self._waiting) and not self._waits_for_results

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, command: StartCommand) -> None:
        """Start this in its turn. A signal for a child that waits here reaches it once it is there."""
        if isinstance(command, commands.StartChild):
            self._children.expect(command.type, command.name)
        self._waiting.append(command)

    def has_new_task(self, history: HistorySize) -> bool:
        """True when something waits, and a workflow task has begun that has started nothing."""
        return bool(self._waiting) and history.events != self._task

    def send(self, history: HistorySize) -> None:
        """Start what this workflow task and the history have room for."""
        if history.events != self._task:
            self._task, self._task_bytes = history.events, 0
        self._waits_for_results = False
        while self._waiting:
            start = self._head = self._head or self._tasks.prepare(self._waiting[0])
            if start is not None:
                if start.held and self._tasks.held_bytes and self._tasks.held_bytes + start.held > MAX_HELD_BYTES:
                    self._waits_for_results = True
                    return
                if not self._fits_task(start):
                    return
                if not self._fits_history(start, history):
                    self.is_out_of_room = True
                    return
                start.send()
                self._task_bytes += start.size
                self._room.add(start.size)
            self._waiting.popleft()
            self._head = None

    def take_all(self) -> list[StartCommand]:
        """Empty the queue: nothing of it has started."""
        waiting = list(self._waiting)
        for command in waiting:
            if isinstance(command, commands.StartChild):
                self._children.forget(command.type, command.name)
        self._waiting.clear()
        self._head, self.is_out_of_room = None, False
        return waiting

    def _fits_task(self, start: Start) -> bool:
        """True when this task can carry it: a slice, or one of any size, beside the outcomes of local activities."""
        if start.is_local:
            return self._task_bytes <= MAX_SLICE_BYTES
        local = self._tasks.local.bytes + self._room.used - self._task_bytes  # and signals to other runs
        is_slice = self._task_bytes == 0 or self._task_bytes + start.size <= MAX_SLICE_BYTES
        return is_slice and (local == 0 or local + self._task_bytes + start.size <= MAX_TASK_BYTES)

    def _fits_history(self, start: Start, history: HistorySize) -> bool:
        # Its share of the budget would be lost with a delegate in the background
        command = self._waiting[0]
        is_lost = isinstance(command, commands.StartBackground) and command.input.delegate is not None
        if not self._takes_back or is_lost:
            return True
        expected = self._tasks.expected
        new_bytes = self._task_bytes + start.size + expected.total + expected.of(start.source)
        return self._lifetime.has_room(history, new_bytes, expected.in_flight)


# Any time will do: the server rounds it up to its own step, which is 1 ms in ours and a second by default
SLICE_PAUSE: Final = timedelta(milliseconds=1)
# What a run has to know before it begins
BEFORE_THE_BEGIN: Final = (events.RunReset, events.PauseRequested, events.ResumeRequested, events.Provided)
# What people and other programs can bring about by themselves
FROM_OUTSIDE: Final = (*BEFORE_THE_BEGIN[1:], events.DecisionReceived, events.RecordReceived)


class Driver:
    """One run. ``inbox`` is filled by the handlers too; ``carry`` gives the state of the next run.

    ``answer`` takes the outcome of an update, by its id.
    """

    def __init__(
        self, run: RunMachine, inbox: deque[events.Event], carry: Callable[[], VersionedRecord],
        answer: Callable[[commands.AnswerUpdate], None], lifeline: Lifeline, index: RunIndex,
    ) -> None:  # fmt: skip
        self.run, self.inbox = run, inbox
        self._index = index
        room = TaskRoom()
        self.outbox = Outbox(room)
        self.children = Children(self.outbox, run.note, lifeline)
        self._timers: dict[str, asyncio.Task[None]] = {}
        self.lifetime = Lifetime(is_cron=workflow.info().cron_schedule is not None)
        self.lifeline, self.answer = lifeline, answer
        self._carry = carry
        self.tasks = TasksInFlight(run, self.children, inbox.append, self._start_again)
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
        self.inbox.extend((*early, events.Begin(), *others))

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
                self._handle(events.StartsReleased())
            self._index.update()

    def _note_reset(self) -> None:
        if self.lifeline.noted_lineage != self.lifeline.lineage:
            self.lifeline.noted_lineage = self.lifeline.lineage
            self.inbox.append(events.RunReset(workflow.info().first_execution_run_id))

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

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.TimerFired):
            self._timers.pop(event.name, None)
            if event.name == DRAIN_TIMER:
                self.lifetime.end_drain()
                event = events.StartsReleased()
        self._perform_all(self._commands_for(event))

    def _commands_for(self, event: events.Event) -> list[commands.RunCommand]:
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
            if isinstance(event, events.DecisionReceived) and event.update is not None:
                answer = DecisionAnswer(id=event.update, type=ENGINE_ERROR, message=text)
                return [commands.AnswerUpdate(event.update, answer)]
            return []

    def _perform_all(self, effects: list[commands.RunCommand]) -> None:
        for command in effects:
            self._perform(command)
        self._send_starts()

    def _perform(self, command: commands.RunCommand) -> None:
        match command:
            case commands.StartTimer():
                self._start_timer(command)
            case commands.CancelTimer():
                self._cancel_timer(command.name)
            case commands.SignalChildren():
                self._signal_children(command)
            case commands.SendRecord():
                self._send_record(command)
            case commands.AnswerUpdate():
                self.answer(command)
            case commands.CheckQueues():
                self.tasks.check_queues(command)
            case commands.StartSetActivity():
                self.tasks.start_set_activity(command)
            case commands.RestartChild():
                self.tasks.restart_child(command.key)
            case commands.Stop():
                self.lifeline.supersede(command.run_id)
            case commands.Finish():
                pass  # the loop sees that the machine is over
            case _:
                self._start(command)

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

    async def send_and_wait(self, command: commands.SendRecord) -> None:
        """Send the last word of a run that ends; one that is too large, or for a run that is gone, is dropped."""
        self._send_record(command)
        await self._end()

    def _nothing_left(self) -> bool:
        return workflow.all_handlers_finished() and self.outbox.is_empty and not self.inbox

    async def _cancel(self) -> None:
        """Reach everything in flight, and wait until each has said how it ended."""
        self.inbox.append(events.CancelRequested())
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

    def _start_again(self, command: commands.StartCall) -> None:
        """A local activity has done its work, and an ordinary one is to return how it ended."""
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
            sleep = workflow.sleep(SLICE_PAUSE, summary="the next workflow task starts more calls")
            self._slice_timer = asyncio.create_task(sleep)
            self._slice_timer.add_done_callback(lambda _: self.tasks.local.begin_task())

    def _hold_starts(self) -> None:
        """Start nothing more until ``StartsReleased``; starts that wait for a workflow task go back to the machine."""
        self.inbox.append(events.StartsHeld())
        if self.run.takes_back_starts:
            for command in self.starts.take_all():
                if not isinstance(command, commands.AskSolution):  # of a run that takes nothing back
                    key = command.key if isinstance(command, commands.StartChild) else command.node.key
                    self.inbox.append(events.StartPostponed(key))

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
        self.inbox.appendleft(events.StartsHeld())
        return True

    def _renew(self, history: HistorySize) -> None:
        """Continue as new when it is time and nothing is in flight; else make such a moment, or end."""
        if self.run.is_cancelling:
            return
        is_due = self._is_due(history)
        if is_due and self._is_quiet():
            self._renew_now(history)
        elif self.lifetime.must_end(history):
            self._handle(events.HistoryFull(history.full_text()))
        elif is_due:
            self._drain(history)

    def _renew_now(self, history: HistorySize) -> None:
        state = encode_state(self._carry())
        if state is not None:
            workflow.continue_as_new(state)
        if self.lifetime.stay(history) and not self.lifetime.must_end(history):
            self.inbox.append(events.StartsReleased())
        else:
            self._handle(events.HistoryFull(history.full_text()))

    def _drain(self, history: HistorySize) -> None:
        seconds = self.lifetime.drain_seconds(history)
        if seconds is None:
            return
        self._hold_starts()
        if seconds:
            self._perform_all([commands.StartTimer(DRAIN_TIMER, seconds, DRAIN_TIMER)])

    # -- timers and signals -------------------------------------------------------------------------------

    def _start_timer(self, command: commands.StartTimer) -> None:
        sleep = workflow.sleep(timedelta(seconds=command.seconds), summary=command.summary)
        timer = self._timers[command.name] = asyncio.create_task(sleep)
        timer.add_done_callback(partial(self._timer_ended, command.name))

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and not timer.done():
            timer.cancel()

    def _timer_ended(self, name: str, timer: asyncio.Task[None]) -> None:
        if self._timers.get(name) is timer and not timer.cancelled():
            self.inbox.append(events.TimerFired(name))

    def _signal_children(self, command: commands.SignalChildren) -> None:
        """Signal all children, all instances, or the child that walks one; note a payload that is too large."""
        try:
            args: list[RawValue] = [encode(command.payload)] if command.payload is not None else []
        except CallError as error:
            self.run.note(f"{command.signal} was not passed on: {error.message}")
            return
        if command.instance is not None and command.instances_only:
            name = self.run.child_of_instance(command.instance)
            self.children.signal_named(INSTANCE, name, command.signal, *args)
        else:
            type_ = INSTANCE if command.instances_only else None
            self.children.signal_all(command.signal, *args, type_=type_)

    def signal_instance(self, name: str, signal: str, value: RawValue) -> bool:
        """Pass a person's signal on to the child that walks an instance, or through an agent's plan to it."""
        if isinstance(self.run, AgentRun):
            self.children.signal_all(signal, value)
            return True
        args = (value,) if signal == PROVIDE else ()
        return self.children.signal_named(INSTANCE, name, signal, *args)

    def _send_record(self, command: commands.SendRecord) -> None:
        """Send a record to a run of the tree; ``RecordEnded`` follows."""

        def outcome(error: BaseException | None) -> None:
            if error is None:
                self.inbox.append(events.RecordEnded(command.key))
            else:
                self.inbox.append(events.RecordEnded(command.key, truncate(str(error), 200)))

        try:
            payload = encode_record(command.record)
        except CallError as error:
            self.inbox.append(events.RecordEnded(command.key, error.message))
            return
        target = workflow.get_external_workflow_handle(command.workflow_id)
        self.outbox.send(target, command.signal, (payload,), outcome)


def _now() -> str:
    return _date_at(workflow.time_ns())


@lru_cache(maxsize=16)  # all events of a workflow task have its time
def _date_at(nanoseconds: int) -> str:
    return iso(datetime.fromtimestamp(nanoseconds / 1e9, UTC))


def void_start(command: StartCommand) -> list[events.Event]:
    """How what a cancelled run does not start any more has ended."""
    error = CallError(CANCELLED, "the call was cancelled before it was started")
    match command:
        case commands.StartChild(type=type_) if type_ != PLAN:
            return [events.ChildEnded(command.key, None, error)]
        case commands.StartCall() | commands.AskOutput() | commands.StartBackground():
            return [events.CallEnded(command.node.key, error=error)]
        case _:
            return []
