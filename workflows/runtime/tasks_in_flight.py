"""What a run has in flight: activities, requests to the model, children. Each ends with one event.

Nothing here decides what an outcome means: an error becomes the event that says so. ``start_queue`` decides when
something is sent: ``prepare`` gives it a ``Start`` whose size is known. ``child_tasks`` prepares and reads children.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from acts.language.errors import CallError
from acts.language.wire import LOCAL_DEFERRED, PLAN, QUEUES
from acts.machines.events import (
    CallCompleted,
    CallFailed,
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
    StartSetActivity,
)
from acts.simulation.billable_actions import ACTIVITY, ActionCount
from workflows.runtime import model_calls
from workflows.runtime.activity_calls import ActivityCalls, call_error
from workflows.runtime.child_tasks import ChildTasks
from workflows.runtime.children import Children
from workflows.runtime.local_outcomes import LocalLane
from workflows.runtime.missed_activities import Miss, MissedActivity, miss_of
from workflows.runtime.payload_limits import recorded_bytes
from workflows.runtime.payloads import decode
from workflows.runtime.prepared_start import COMMAND_BYTES, Start, StartCommand, command_bytes
from workflows.runtime.queue_checks import start_check
from workflows.runtime.set_activities import set_activity_event, start_set_activity

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.machines.queue_watch import CheckQueues
    from acts.machines.run_machine import RunMachine
    from acts.plan.planned_call import PlannedCall

    Task = asyncio.Task[Any]


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
        self._run, self._actions, self._emit, self._defer = run, actions, emit, defer
        self.child_tasks = ChildTasks(self, run, children, actions, emit)
        self._activities = ActivityCalls()
        self._deferred: set[str] = set()

    def cancel(self) -> None:
        """Cancel everything; each ends with an event."""
        for task in list(self.in_flight.values()):
            task.cancel()

    def prepare(self, command: StartCommand) -> Start | None:
        """What this command sends; None for one that cannot be sent: its failure is emitted."""
        if not isinstance(command, (StartActivity, AskOutput, AskSolution)):
            return self.child_tasks.prepare(command)
        try:
            return _PREPARERS[type(command)](self, command)
        except CallError as error:
            if isinstance(command, AskSolution):
                raise  # it has no parameters that could be too large
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
        self.watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

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
        self.watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

    def _output_request(self, command: AskOutput) -> Start:
        request = model_calls.output_request(self._run, command)
        send = partial(self._ask_output, command.node, request)
        return Start(command.node.tool.name, command_bytes(request), send)

    def _ask_output(self, node: PlannedCall, request: RawValue) -> None:
        task = model_calls.start_request(request, node.key, node.label)
        self._actions.record(ACTIVITY)
        self.watch(node.key, task, partial(self._output_ended, node.key), node.tool.name)

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
        return Start(PLAN, command_bytes(request), send)

    def _ask_solution(self, command: AskSolution, request: RawValue) -> None:
        name = f"tick-{command.tick}"
        task = model_calls.start_request(request, name, f"tick {command.tick}")
        self._actions.record(ACTIVITY)
        self.watch(name, task, self._solution_ended, PLAN)

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

    def watch(self, key: str, task: Task, to_event: Callable[[Task], Event | None], source: str) -> None:
        """Keep a task in flight until it ends: then emit its event, if any. Only a new workflow task brings its end."""

        def ended(task: Task) -> None:
            if self.in_flight.get(key) is not task:  # nobody waits for it any more
                _ = task.cancelled() or task.exception()  # else asyncio logs a failure as lost
                return
            self.in_flight.pop(key)
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
        self.watch(QUEUES, start_check(command.queues), _queues_checked, "")

    def _start_set_activity(self, command: StartSetActivity) -> None:
        try:
            task = start_set_activity(command)
        except CallError as error:
            self._emit(SetActivityEnded(command.key, error=error))
            return
        self._actions.record(ACTIVITY)
        self.watch(command.key, task, partial(set_activity_event, command.key), command.activity)


def _queues_checked(task: Task) -> Event:
    try:
        return QueuesChecked(task.result())
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - then nothing is known, and nothing is shown
        return QueuesChecked({})


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
}
