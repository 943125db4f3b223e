"""What a run has in flight: activities, requests to the model, children. What each comes to is one event.

Nothing here decides what an outcome means: an error becomes the event that says so. When something is sent is
for ``start_queue`` to say: ``prepare`` gives it a ``Start`` whose size is known.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import CallError
from acts.language.wire import BATCH, CANCELLED, DELEGATE, INSTANCE, LOCAL_DEFERRED, PLAN, QUEUES
from acts.machines.events import (
    CallCompleted,
    CallDetached,
    CallFailed,
    ChildEnded,
    ChildStarted,
    Event,
    ModelAnswered,
    ModelFailed,
    QueuesChecked,
    SetActivityEnded,
)
from acts.machines.lifetime import ExpectedResults
from acts.machines.run_commands import (
    AskOutput,
    AskSolution,
    StartActivity,
    StartBackground,
    StartBatch,
    StartDelegate,
    StartInstances,
    StartPlanRun,
    StartSetActivity,
)
from acts.simulation.billable_actions import ACTIVITY, CHILD_WORKFLOW, ActionCount
from acts.tree.records import Accounting
from workflows.runtime import model_calls
from workflows.runtime.activity_calls import ActivityCalls, call_error
from workflows.runtime.children import Children, failure_detail
from workflows.runtime.local_outcomes import LocalLane
from workflows.runtime.missed_activities import Miss, MissedActivity, miss_of
from workflows.runtime.payload_limits import payload_bytes, recorded_bytes
from workflows.runtime.payloads import decode, decode_result, encode_record
from workflows.runtime.queue_checks import start_check
from workflows.runtime.set_activities import set_activity_event, start_set_activity

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.language.config import Options
    from acts.machines.queue_watch import CheckQueues
    from acts.machines.run_machine import RunMachine
    from acts.plan.planned_call import PlannedCall
    from acts.tree.wire_format import VersionedRecord

    Task = asyncio.Task[Any]
    Handle = workflow.ChildWorkflowHandle[Any, Any]

StartCommand = (
    StartActivity
    | AskOutput
    | AskSolution
    | StartDelegate
    | StartInstances
    | StartBackground
    | StartPlanRun
    | StartBatch
)
# What a command and its event take beside their payloads: ids, types, a label, timeouts, a retry policy
COMMAND_BYTES: Final = 384


@dataclass(frozen=True, slots=True)
class Start:
    """What is ready to be sent. ``size`` is what it adds to the message of its workflow task, in bytes.

    ``source`` is what its result is expected to be like. A local one adds nothing before it ends. ``held`` are the
    bytes of large arguments, which stay in memory until the result is there.
    """

    source: str
    size: int
    send: Callable[[], None]
    is_local: bool = False
    held: int = 0


class TasksInFlight:
    """The tasks of one run, by their keys in ``in_flight``; ``emit`` takes the event of each that ends.

    ``defer`` takes the command of a local activity whose outcome an ordinary one is to return.
    """

    def __init__(
        self, run: RunMachine, children: Children, actions: ActionCount, emit: Callable[[Event], None],
        defer: Callable[[StartActivity], None],
    ) -> None:  # fmt: skip
        self.in_flight: dict[str, Task] = {}
        self.expected = ExpectedResults()
        self.local = LocalLane()
        self.held_bytes = 0
        self._held: dict[str, int] = {}  # by key: the bytes of large arguments in memory
        self._run, self._children, self._actions, self._emit, self._defer = run, children, actions, emit, defer
        self._activities = ActivityCalls()
        self._deferred: set[str] = set()
        self._sends: dict[str, Callable[[], None]] = {}  # by key: how each child was started

    def cancel(self) -> None:
        """Cancel everything; each ends with an event."""
        for task in list(self.in_flight.values()):
            task.cancel()

    def prepare(self, command: StartCommand) -> Start | None:
        """What this command sends; None for one that cannot be sent: its failure is emitted."""
        try:
            return _PREPARERS[type(command)](self, command)
        except CallError as error:
            if isinstance(command, AskSolution):
                raise  # it has no parameters that could be too large
            if isinstance(command, (StartDelegate, StartInstances, StartPlanRun, StartBatch)):
                self._children.forget(*child_name(command))
                key = command.name if isinstance(command, (StartPlanRun, StartBatch)) else command.node.key
                self._emit(ChildEnded(key, None, error, is_unstarted=True))
            else:
                self._emit(CallFailed(command.node.key, error))
            return None

    # -- activities and requests to the model ------------------------------------------------------

    def _activity(self, command: StartActivity) -> Start:
        node = command.node
        args, total, size = self._activities.arguments(command)
        if node.tool.options.local and node.key not in self._deferred and self.local.has_room():
            return Start(node.tool.name, 0, partial(self._start_local, command, args), is_local=True)
        self._deferred.discard(node.key)
        held = total if size < total else 0
        send = partial(self._start_activity, node, args, held)
        return Start(node.tool.name, size + COMMAND_BYTES, send, held=held)

    def _start_activity(self, node: PlannedCall, args: list[RawValue], held: int) -> None:
        task = self._activities.start(node, args)
        self._actions.record(ACTIVITY)
        if held:
            self._held[node.key] = held
            self.held_bytes += held
        self._watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

    def _start_local(self, command: StartActivity, args: list[RawValue]) -> None:
        node = command.node
        task = self._activities.start_local(node, args)
        self._actions.record_local_activity(workflow.info().get_current_history_length())
        self.local.start()
        self.in_flight[node.key] = task
        task.add_done_callback(partial(self._local_ended, command, args))

    def _local_ended(self, command: StartActivity, args: list[RawValue], task: Task) -> None:
        node = command.node
        self.in_flight.pop(node.key, None)
        self.local.end(_result_bytes(task) or 0)
        if _is_deferred(task):
            self._deferred.add(node.key)
            self._defer(command)
        elif (event := self._activity_ended(node, args, task)) is not None:
            self._emit(event)

    def _activity_ended(self, node: PlannedCall, args: list[RawValue], task: Task) -> Event | None:
        try:
            value = task.result()
            return CallCompleted(node.key, None if value is None else decode(value))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            miss = miss_of(error, node.tool.options)
            if miss is not None:
                self._run_elsewhere(node, args, miss)
                return None
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))

    def _run_elsewhere(self, node: PlannedCall, args: list[RawValue], miss: Miss) -> None:
        """The Call stays in flight until a worker that has its Activity takes it."""
        show = partial(self._run.queue_watch.record_miss, node.key)

        def start(attempts: int) -> workflow.ActivityHandle[Any]:
            self._actions.record(ACTIVITY)
            return self._activities.start(node, args, attempts)

        missed = MissedActivity(start, node.tool.options, show)
        task = asyncio.create_task(missed.run(miss))
        self._watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

    def _output_request(self, command: AskOutput) -> Start:
        request = model_calls.output_request(self._run, command)
        send = partial(self._ask_output, command.node, request)
        return Start(command.node.tool.name, _command_bytes(request), send)

    def _ask_output(self, node: PlannedCall, request: RawValue) -> None:
        task = model_calls.start_request(request, node.key, node.label)
        self._actions.record(ACTIVITY)
        self._watch(node.key, task, partial(self._output_ended, node.key), node.tool.name)

    def _output_ended(self, key: str, task: Task) -> Event:
        try:
            answer = self._read_answer(task)
            return CallCompleted(key, answer["output"], answer["path"], answer["usage"])
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            failure = call_error(error, model_calls.OPTIONS, workflow.info().task_queue)
            # The details of a model's failure are what it cost
            return CallFailed(key, CallError(failure.code, failure.message), model_calls.usage_of(error))

    def _solution_request(self, command: AskSolution) -> Start:
        request = model_calls.solution_request(self._run, command)
        send = partial(self._ask_solution, command, request)
        return Start(PLAN, _command_bytes(request), send)

    def _ask_solution(self, command: AskSolution, request: RawValue) -> None:
        name = f"tick-{command.tick}"
        task = model_calls.start_request(request, name, f"tick {command.tick}")
        self._actions.record(ACTIVITY)
        self._watch(name, task, self._solution_ended, PLAN)

    def _solution_ended(self, task: Task) -> Event:
        try:
            return ModelAnswered(self._read_answer(task))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the machine decides
            failure = call_error(error, model_calls.OPTIONS, workflow.info().task_queue)
            return ModelFailed(failure, model_calls.usage_of(error))

    def _read_answer(self, task: Task) -> Any:
        """What a model's activity returned; its notes go to the run."""
        answer = decode(task.result())
        for note in answer.get("notes") or ():
            self._run.note_once(note)
        return answer

    def _watch(self, key: str, task: Task, to_event: Callable[[Task], Event | None], source: str) -> None:
        """What the task comes to is an event, which only a new workflow task brings; None: it goes on as another."""

        def ended(task: Task) -> None:
            if self.in_flight.get(key) is not task:  # nobody waits for it any more
                _ = task.cancelled() or task.exception()  # else asyncio logs a failure as lost
                return
            self.in_flight.pop(key)
            self._sends.pop(key, None)
            self.held_bytes -= self._held.pop(key, 0)
            self.expected.ended(source, _result_bytes(task))
            self.local.begin_task()
            event = to_event(task)
            if event is not None:
                self._emit(event)

        self.in_flight[key] = task
        self.expected.started(source)
        task.add_done_callback(ended)

    def start_at_once(self, command: CheckQueues | StartSetActivity) -> None:
        """Ask which task queues have workers, or start an activity of a set: neither waits for room."""
        if isinstance(command, StartSetActivity):
            self._start_set_activity(command)
            return
        self._actions.record_local_activity(workflow.info().get_current_history_length())
        self._watch(QUEUES, start_check(command.queues), _queues_checked, "")

    def _start_set_activity(self, command: StartSetActivity) -> None:
        try:
            task = start_set_activity(command)
        except CallError as error:
            self._emit(SetActivityEnded(command.key, error=error))
            return
        self._actions.record(ACTIVITY)
        self._watch(command.key, task, partial(set_activity_event, command.key), command.activity)

    # -- children ------------------------------------------------------------------------------------

    def _delegate(self, command: StartDelegate) -> Start:
        options = command.node.tool.options
        seconds = options.timeout if "timeout" in options.model_fields_set else None
        return self._child(command, command.node.key, command.node.label, options, seconds)

    def _instances(self, command: StartInstances) -> Start:
        return self._child(command, command.node.key, command.node.label)

    def _plan(self, command: StartPlanRun | StartBatch) -> Start:
        return self._child(command, command.name, command.label)

    def _child(
        self, command: StartDelegate | StartInstances | StartPlanRun | StartBatch, key: str, label: str,
        options: Options = model_calls.OPTIONS, seconds: float | None = None,
    ) -> Start:  # fmt: skip
        record: VersionedRecord = command.input
        arg = encode_record(record)
        type_, name = child_name(command)

        def send() -> None:
            started = partial(self._child_started, key)
            run = asyncio.create_task(self._children.run(type_, name, arg, label, started, seconds))
            self._sends[key] = partial(self._send_again, type_, name, send)
            self._watch(key, run, partial(self._child_ended, key, options), type_)

        return Start(type_, _command_bytes(arg), send)

    def restart_child(self, key: str) -> None:
        """Start a child again whose result does not come; what waited for that waits in vain."""
        send_again = self._sends.get(key)
        if send_again is None or self.in_flight.pop(key, None) is None:
            return
        if self._run.is_cancelling or self._run.finished is not None:
            self._emit(ChildEnded(key, None, CallError(CANCELLED, "the call was cancelled")))
        else:
            send_again()

    def _send_again(self, type_: str, name: str, send: Callable[[], None]) -> None:
        self.expected.ended(type_, None)
        self._children.expect(type_, name)
        send()

    def _child_started(self, key: str, child: Handle, is_of_before_reset: bool) -> None:  # noqa: FBT001
        self._emit(ChildStarted(key, child.id, is_of_before_reset, child.first_execution_run_id or ""))

    def _child_ended(self, key: str, options: Options, task: Task) -> Event:
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
            return ChildEnded(key, report, failure, accounting=self._account_for(report))

    def _account_for(self, report: Any) -> Accounting | None:
        """What a child's work adds here; a child that reports nothing was started all the same."""
        data = report.get("accounting") if isinstance(report, dict) else None
        accounting = None if data is None else Accounting.from_json(data)
        self._actions.add(None if accounting is None else accounting.actions)
        return accounting

    def _background(self, command: StartBackground) -> Start:
        arg = encode_record(command.input)
        return Start(command.node.tool.name, _command_bytes(arg), partial(self._detach, command, arg))

    def _detach(self, command: StartBackground, arg: RawValue) -> None:
        node = command.node
        # It reports nothing: its start, and what it starts, count here
        self._actions.record(CHILD_WORKFLOW, 1 if command.input.delegate is None else 2)
        self._actions.record(ACTIVITY, 1 if command.input.delegate is None else 0)
        task = asyncio.create_task(self._children.start_background(node.key, arg, node.label))
        self._watch(node.key, task, partial(self._background_started, node), "")

    def _background_started(self, node: PlannedCall, task: Task) -> Event:
        try:
            task.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))
        return CallDetached(node.key)


def _queues_checked(task: Task) -> Event:
    try:
        return QueuesChecked(task.result())
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - then nothing is known, and nothing is shown
        return QueuesChecked({})


def child_name(command: StartDelegate | StartInstances | StartPlanRun | StartBatch) -> tuple[str, str]:
    """The type and the name of the child that a command starts."""
    if isinstance(command, StartBatch):
        return BATCH, command.name
    if isinstance(command, StartPlanRun):
        return PLAN, command.name
    if isinstance(command, StartInstances):
        return INSTANCE, command.node.members[0]
    return DELEGATE, command.node.key


def _command_bytes(arg: RawValue) -> int:
    """What a command with this argument adds to history."""
    return recorded_bytes(payload_bytes(arg)) + COMMAND_BYTES


def _result_bytes(task: Task) -> int | None:
    """What history has of the payload that a task returned; None for one that failed, or returned none."""
    if task.cancelled() or task.exception() is not None:
        return None
    payload = getattr(task.result(), "payload", None)
    return None if payload is None else recorded_bytes(payload.ByteSize())


def _is_deferred(task: Task) -> bool:
    error = None if task.cancelled() else task.exception()
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    return isinstance(cause, ApplicationError) and cause.type == LOCAL_DEFERRED


_PREPARERS: Final[dict[type, Callable[[TasksInFlight, Any], Start]]] = {
    StartActivity: TasksInFlight._activity,  # noqa: SLF001 - the table of this class
    AskOutput: TasksInFlight._output_request,  # noqa: SLF001
    AskSolution: TasksInFlight._solution_request,  # noqa: SLF001
    StartDelegate: TasksInFlight._delegate,  # noqa: SLF001
    StartInstances: TasksInFlight._instances,  # noqa: SLF001
    StartPlanRun: TasksInFlight._plan,  # noqa: SLF001
    StartBatch: TasksInFlight._plan,  # noqa: SLF001
    StartBackground: TasksInFlight._background,  # noqa: SLF001
}
