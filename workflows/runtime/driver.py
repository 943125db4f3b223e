"""The driver: performs for one run machine what it wants done, whatever kind of run it is.

What Temporal brings (an activity or child that ended, a signal, an update, a timer) becomes an event of
one inbox. The driver hands the events to the machine in order and performs the commands that come back.
It decides nothing but when the history is long enough (``Lifetime``).

Determinism: workflows run without the SDK's sandbox (``docs/performance.md`` says why). What the sandbox
would forbid stays out by rule: no clock, randomness, I/O, threads, or iteration over sets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from acts.language.errors import CallError, truncate
from acts.language.wire import CANCELLED, DELEGATE, INSTANCE, MAX_PAYLOAD_BYTES, PLAN, PROVIDE
from acts.machines.agent_run import AgentRun
from acts.machines.approvals import AnswerUpdate, CancelTimer, StartTimer, iso
from acts.machines.budget import SendRecord
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallDetached,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Event,
    ModelAnswered,
    ModelFailed,
    PauseRequested,
    Provided,
    RecordDelivered,
    RecordLost,
    ResumeRequested,
    StartsHeld,
    StartsReleased,
    TimerFired,
)
from acts.machines.lifetime import DRAIN_TIMER, HistorySize, Lifetime
from acts.machines.run_commands import (
    AskOutput,
    AskSolution,
    Finish,
    RunCommand,
    SignalChildren,
    StartActivity,
    StartBackground,
    StartDelegate,
    StartInstances,
    StartPlanRun,
)
from acts.simulation.billable_actions import ACTIVITY, CHILD_WORKFLOW, CONTINUE_AS_NEW, TIMER, ActionCount
from acts.tree.records import Accounting
from workflows.runtime import model_calls
from workflows.runtime.activity_calls import ActivityCalls, call_error
from workflows.runtime.children import Children, ended_abruptly, failure_detail, start_background
from workflows.runtime.outbox import Outbox
from workflows.runtime.payloads import (
    MAX_TASK_BYTES,
    decode,
    decode_result,
    encode,
    encode_record,
    encode_state,
    payload_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from temporalio.common import RawValue

    from acts.language.config import Options
    from acts.machines.run_machine import RunMachine
    from acts.plan.planned_call import PlannedCall
    from acts.tree.records import VersionedRecord

    Performer = Callable[["Driver", Any], Coroutine[Any, Any, None]]


class Driver:
    """One run. ``inbox`` is filled by the handlers too; ``carry`` gives the state of the next run.

    ``show`` draws the page; ``answer`` takes the outcome of an update, by its id.
    """

    def __init__(
        self, run: RunMachine, inbox: deque[Event], carry: Callable[[dict[str, int]], VersionedRecord],
        show: Callable[[], None], answer: Callable[[AnswerUpdate], None], actions: ActionCount,
    ) -> None:  # fmt: skip
        self.run, self.inbox = run, inbox
        self.actions = actions
        self.outbox = Outbox()
        self.children = Children(self.outbox, run.note)
        self.lifetime = Lifetime()
        self._carry, self._show, self._answer = carry, show, answer
        self._activities = ActivityCalls()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._commands: deque[RunCommand] = deque()
        self._task_events, self._task_bytes = -1, 0

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
        early = [event for event in self.inbox if isinstance(event, (PauseRequested, ResumeRequested, Provided))]
        others = [event for event in self.inbox if event not in early]
        self.inbox.clear()
        self.inbox.extend((*early, Begin(), *others))

    async def _loop(self, is_over: Callable[[], bool]) -> None:
        self._show()
        while not is_over():
            await workflow.wait_condition(lambda: bool(self.inbox) or self._may_renew())
            held = self._hold()
            await self._empty_inbox()
            await self._perform_all(self.run.flush(_now()))
            if held:
                await self._empty_outbox()
            if not self.inbox and self.run.finished is None:
                await self._renew()
            if held:
                await self._handle(StartsReleased())
            self._show()

    async def _empty_outbox(self) -> None:
        """What is on its way would be lost with the run that sent it."""
        while self.run.can_continue_as_new and not self._tasks and not self.outbox.is_empty:
            await workflow.wait_condition(lambda: self.outbox.is_empty)
            await self._empty_inbox()
            await self._perform_all(self.run.flush(_now()))

    async def _empty_inbox(self) -> None:
        while self.inbox:
            await self._handle(self.inbox.popleft())

    async def _handle(self, event: Event) -> None:
        if isinstance(event, TimerFired):
            self._timers.pop(event.name, None)
            if event.name == DRAIN_TIMER:
                self.lifetime.end_drain()
                event = StartsReleased()
        await self._perform_all(self.run.handle(event, _now()))

    async def _perform_all(self, commands: list[RunCommand]) -> None:
        self._commands.extend(commands)
        while self._commands:
            await _PERFORMERS[type(self._commands[0])](self, self._commands[0])
            self._commands.popleft()

    async def _end(self) -> None:
        """Nothing is left undone: handlers have answered, and what is on its way to other runs has arrived."""
        while True:
            await self._empty_inbox()
            await self._perform_all(self.run.flush_at_end(_now()))
            if self._nothing_left():
                break
            await workflow.wait_condition(lambda: bool(self.inbox) or self._nothing_left())
        self._show()

    def _nothing_left(self) -> bool:
        return workflow.all_handlers_finished() and self.outbox.is_empty and not self.inbox

    async def _cancel(self) -> None:
        """Reach everything in flight, and wait until each has said how it ended."""
        self.inbox.append(CancelRequested())
        for command in self._commands:  # cut off by the cancellation
            self._void(command)
        self._commands.clear()
        for task in list(self._tasks.values()):
            task.cancel()
        await self._loop(lambda: self.run.finished is not None or not (self._tasks or self.inbox))
        await self._end()

    def _void(self, command: RunCommand) -> None:
        if isinstance(command, (StartActivity, AskOutput, StartDelegate, StartInstances, StartBackground)):
            error = CallError(CANCELLED, "the call was cancelled before it was started")
            key = command.node.key
            is_child = isinstance(command, (StartDelegate, StartInstances))
            self.inbox.append(ChildEnded(key, None, error) if is_child else CallFailed(key, error))

    # -- activities and requests to the model ------------------------------------------------------

    async def _start_activity(self, command: StartActivity) -> None:
        node = command.node
        try:
            args, size = self._activities.arguments(command)
            await self._make_room(size)
            is_local = self._activities.is_local(node)
            task = self._activities.start(node, args)
        except CallError as error:
            self.inbox.append(CallFailed(node.key, error))
            return
        self._count_activity(is_local=is_local)
        self._watch(node.key, task, partial(self._activity_ended, node))

    def _activity_ended(self, node: PlannedCall, task: asyncio.Task[Any]) -> Event:
        try:
            value = task.result()
            return CallCompleted(node.key, None if value is None else decode(value))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))

    async def _ask_output(self, command: AskOutput) -> None:
        node = command.node
        try:
            request = model_calls.output_request(self.run, command)
        except CallError as error:
            self.inbox.append(CallFailed(node.key, error))
            return
        await self._make_room(payload_bytes(request))
        task = model_calls.start_request(request, node.key, node.label)
        self._count_activity(is_local=False)
        self._watch(node.key, task, partial(self._output_ended, node.key))

    def _output_ended(self, key: str, task: asyncio.Task[Any]) -> Event:
        try:
            answer = decode(task.result())
            return CallCompleted(key, answer["output"], answer["path"], answer["usage"])
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            failure = call_error(error, model_calls.OPTIONS, workflow.info().task_queue)
            # The details of a model's failure are what it cost
            return CallFailed(key, CallError(failure.code, failure.message), model_calls.usage_of(error))

    async def _ask_solution(self, command: AskSolution) -> None:
        name = f"tick-{command.tick}"
        request = model_calls.solution_request(self.run, command)
        task = model_calls.start_request(request, name, f"tick {command.tick}")
        self._count_activity(is_local=False)
        self._watch(name, task, self._solution_ended)

    def _solution_ended(self, task: asyncio.Task[Any]) -> Event:
        try:
            return ModelAnswered(decode(task.result()))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the machine decides
            failure = call_error(error, model_calls.OPTIONS, workflow.info().task_queue)
            return ModelFailed(failure, model_calls.usage_of(error))

    def _watch(self, key: str, task: asyncio.Task[Any], to_event: Callable[[asyncio.Task[Any]], Event]) -> None:
        """What the task comes to is an event."""

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.pop(key, None)
            self.inbox.append(to_event(task))

        self._tasks[key] = task
        task.add_done_callback(ended)

    def _count_activity(self, *, is_local: bool) -> None:
        if is_local:
            self.actions.record_local_activity(workflow.info().get_current_history_length())
        else:
            self.actions.record(ACTIVITY)

    async def _make_room(self, size: int) -> None:
        """End this workflow task before its commands outgrow one gRPC message."""
        self._count_bytes(0)
        if self._task_bytes and self._task_bytes + size > MAX_TASK_BYTES:
            await workflow.sleep(timedelta(milliseconds=1), summary="large inputs go in several tasks")
            self.actions.record(TIMER)
        self._count_bytes(size)

    def _count_bytes(self, size: int) -> None:
        events = workflow.info().get_current_history_length()
        if events != self._task_events:
            self._task_events, self._task_bytes = events, 0
        self._task_bytes += size

    # -- children ------------------------------------------------------------------------------------

    async def _start_delegate(self, command: StartDelegate) -> None:
        options = command.node.tool.options
        seconds = options.timeout if "timeout" in options.model_fields_set else None
        node = command.node
        await self._start_child(DELEGATE, node.key, node.key, command.input, node.label, options, seconds)

    async def _start_instances(self, command: StartInstances) -> None:
        node = command.node
        await self._start_child(INSTANCE, node.members[0], node.key, command.input, node.label)

    async def _start_plan(self, command: StartPlanRun) -> None:
        await self._start_child(PLAN, command.name, command.name, command.input, command.label)

    async def _start_child(
        self, type_: str, name: str, key: str, record: VersionedRecord, label: str,
        options: Options = model_calls.OPTIONS, seconds: float | None = None,
    ) -> None:  # fmt: skip
        try:
            arg = encode_record(record)
        except CallError as error:
            self.inbox.append(ChildEnded(key, None, error, is_unstarted=True))
            return
        await self._make_room(payload_bytes(arg))
        self.children.expect(type_, name)
        run = self.children.run(type_, name, arg, label, lambda id_: self._child_started(key, id_), seconds)
        self._watch(key, asyncio.create_task(run), partial(self._child_ended, key, options))

    def _child_started(self, key: str, workflow_id: str) -> None:
        self.inbox.append(ChildStarted(key, workflow_id))

    def _child_ended(self, key: str, options: Options, task: asyncio.Task[Any]) -> Event:
        try:
            report = decode_result(task.result())
            return ChildEnded(key, report, accounting=self._account_for(report))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
                return ChildEnded(key, None, CallError(CANCELLED, "the call was cancelled"),
                                  accounting=self._account_for(None))  # fmt: skip
            failure = call_error(error, options, workflow.info().task_queue)
            report = failure_detail(error)
            report = report if isinstance(report, dict) else None
            return ChildEnded(key, report, failure, ended_abruptly(error), accounting=self._account_for(report))

    def _account_for(self, report: Any) -> Accounting | None:
        """What a child's work adds here; a child that reports nothing was started all the same."""
        data = report.get("accounting") if isinstance(report, dict) else None
        accounting = None if data is None else Accounting.from_json(data)
        self.actions.add(None if accounting is None else accounting.actions)
        return accounting

    async def _start_background(self, command: StartBackground) -> None:
        node = command.node
        try:
            arg = encode_record(command.input)
        except CallError as error:
            self.inbox.append(CallFailed(node.key, error))
            return
        await self._make_room(payload_bytes(arg))
        # It reports nothing: its start, and what it starts, count here
        self.actions.record(CHILD_WORKFLOW, 1 if command.input.delegate is None else 2)
        self.actions.record(ACTIVITY, 1 if command.input.delegate is None else 0)
        task = asyncio.create_task(start_background(node.key, arg, node.label))
        self._watch(node.key, task, partial(self._background_started, node))

    def _background_started(self, node: PlannedCall, task: asyncio.Task[Any]) -> Event:
        try:
            task.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))
        return CallDetached(node.key)

    # -- signals, timers, updates ----------------------------------------------------------------------

    async def _signal_children(self, command: SignalChildren) -> None:
        args: list[RawValue] = [encode(command.payload)] if command.has_payload else []
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

    async def _send_record(self, command: SendRecord) -> None:
        def outcome(error: BaseException | None) -> None:
            if error is None:
                self.inbox.append(RecordDelivered(command.key))
            else:
                self.inbox.append(RecordLost(command.key, truncate(str(error), 200)))

        target = workflow.get_external_workflow_handle(command.workflow_id)
        self.outbox.send(target, command.signal, (encode_record(command.record),), outcome)

    async def send_and_wait(self, command: SendRecord) -> None:
        """Send the last word of a run that ends; one that is too large, or for a run that is gone, is dropped."""
        try:
            await self._send_record(command)
        except CallError:
            return
        await workflow.wait_condition(lambda: self.outbox.is_empty)

    async def _start_timer(self, command: StartTimer) -> None:
        self.actions.record(TIMER)
        sleep = workflow.sleep(timedelta(seconds=command.seconds), summary=command.summary)
        timer = self._timers[command.name] = asyncio.create_task(sleep)
        timer.add_done_callback(partial(self._timer_ended, command.name))

    def _timer_ended(self, name: str, timer: asyncio.Task[None]) -> None:
        if not timer.cancelled():
            self.inbox.append(TimerFired(name))

    async def _cancel_timer(self, command: CancelTimer) -> None:
        timer = self._timers.pop(command.name, None)
        if timer is not None and not timer.done():
            timer.cancel()

    async def _answer_update(self, command: AnswerUpdate) -> None:
        self._answer(command)

    async def _finish(self, _command: Finish) -> None:
        """The machine says that it is over; the loop sees it."""

    # -- continue-as-new ----------------------------------------------------------------------------------

    def _history(self) -> HistorySize:
        info = workflow.info()
        return HistorySize(
            info.get_current_history_length(), info.get_current_history_size(), info.is_continue_as_new_suggested()
        )

    def _may_renew(self) -> bool:
        """True when a run that only waits has a long history all the same, of messages that changed nothing."""
        return self._is_quiet() and self.lifetime.is_due(self._history())

    def _is_quiet(self) -> bool:
        quiet = self.run.can_continue_as_new and not self.run.is_cancelling and self.outbox.is_empty
        return quiet and not self._tasks and workflow.all_handlers_finished()

    def _hold(self) -> bool:
        if self.run.is_cancelling or not self.lifetime.should_hold(
            self._history(), self.run.in_flight, len(self.inbox)
        ):
            return False
        self.inbox.appendleft(StartsHeld())
        return True

    async def _renew(self) -> None:
        """Continue as new when it is time and nothing is in flight; else make such a moment."""
        history = self._history()
        if self.run.is_cancelling or not self.lifetime.is_due(history):
            return
        if self._is_quiet():
            actions = {**self.actions.to_json(), CONTINUE_AS_NEW: self.actions.events.get(CONTINUE_AS_NEW, 0) + 1}
            state = encode_state(self._carry(actions))
            if payload_bytes(state) <= MAX_PAYLOAD_BYTES:
                workflow.continue_as_new(state)
            self.lifetime.stay(history)
            self.inbox.append(StartsReleased())
            return
        seconds = self.lifetime.drain_seconds(history)
        if seconds is None:
            return
        self.inbox.append(StartsHeld())
        if seconds:
            await self._perform_all([StartTimer(DRAIN_TIMER, seconds, DRAIN_TIMER)])


def _now() -> str:
    return iso(workflow.now())


_PERFORMERS: Final[dict[type, Performer]] = {
    StartActivity: Driver._start_activity,  # noqa: SLF001 - the table of this class
    AskOutput: Driver._ask_output,  # noqa: SLF001
    AskSolution: Driver._ask_solution,  # noqa: SLF001
    StartDelegate: Driver._start_delegate,  # noqa: SLF001
    StartInstances: Driver._start_instances,  # noqa: SLF001
    StartPlanRun: Driver._start_plan,  # noqa: SLF001
    StartBackground: Driver._start_background,  # noqa: SLF001
    SignalChildren: Driver._signal_children,  # noqa: SLF001
    SendRecord: Driver._send_record,  # noqa: SLF001
    StartTimer: Driver._start_timer,  # noqa: SLF001
    CancelTimer: Driver._cancel_timer,  # noqa: SLF001
    AnswerUpdate: Driver._answer_update,  # noqa: SLF001
    Finish: Driver._finish,  # noqa: SLF001
}
