"""What a run has in flight: activities, requests to the model, children. What each comes to is one event.

Nothing here decides what an outcome means: an error becomes the event that says so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from acts.language.errors import CallError
from acts.language.wire import CANCELLED, DELEGATE, INSTANCE, PLAN, QUEUES
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
)
from acts.simulation.billable_actions import ACTIVITY, CHILD_WORKFLOW, ActionCount
from acts.tree.records import Accounting
from workflows.runtime import model_calls
from workflows.runtime.activity_calls import ActivityCalls, call_error
from workflows.runtime.children import Children, ended_abruptly, failure_detail
from workflows.runtime.payloads import decode, decode_result, encode_record, payload_bytes
from workflows.runtime.queue_checks import start_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.language.config import Options
    from acts.machines.queue_watch import CheckQueues
    from acts.machines.run_commands import (
        AskOutput,
        AskSolution,
        StartActivity,
        StartBackground,
        StartDelegate,
        StartInstances,
        StartPlanRun,
    )
    from acts.machines.run_machine import RunMachine
    from acts.plan.planned_call import PlannedCall
    from acts.tree.wire_format import VersionedRecord
    from workflows.runtime.task_room import TaskRoom


class TasksInFlight:
    """The tasks of one run, by their keys in ``in_flight``; ``emit`` takes the event of each that ends."""

    def __init__(
        self, run: RunMachine, children: Children, actions: ActionCount, room: TaskRoom, emit: Callable[[Event], None]
    ) -> None:
        self.in_flight: dict[str, asyncio.Task[Any]] = {}
        self._run, self._children, self._actions, self._emit = run, children, actions, emit
        self._room = room
        self._activities = ActivityCalls()

    def cancel(self) -> None:
        """Cancel everything; each ends with an event."""
        for task in list(self.in_flight.values()):
            task.cancel()

    # -- activities and requests to the model ------------------------------------------------------

    async def start_activity(self, command: StartActivity) -> None:
        node = command.node
        try:
            args, size = self._activities.arguments(command)
            await self._room.make(size)
            is_local = self._activities.is_local(node)
            task = self._activities.start(node, args)
        except CallError as error:
            self._emit(CallFailed(node.key, error))
            return
        self._count_activity(is_local=is_local)
        self._watch(node.key, task, partial(self._activity_ended, node))

    def _activity_ended(self, node: PlannedCall, task: asyncio.Task[Any]) -> Event:
        try:
            value = task.result()
            return CallCompleted(node.key, None if value is None else decode(value))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))

    async def ask_output(self, command: AskOutput) -> None:
        node = command.node
        try:
            request = model_calls.output_request(self._run, command)
        except CallError as error:
            self._emit(CallFailed(node.key, error))
            return
        await self._room.make(payload_bytes(request))
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

    async def ask_solution(self, command: AskSolution) -> None:
        name = f"tick-{command.tick}"
        request = model_calls.solution_request(self._run, command)
        task = model_calls.start_request(request, name, f"tick {command.tick}")
        self._count_activity(is_local=False)
        self._watch(name, task, self._solution_ended)

    def _solution_ended(self, task: asyncio.Task[Any]) -> Event:
        try:
            return ModelAnswered(decode(task.result()))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the machine decides
            failure = call_error(error, model_calls.OPTIONS, workflow.info().task_queue)
            return ModelFailed(failure, model_calls.usage_of(error))

    async def check_queues(self, command: CheckQueues) -> None:
        self._count_activity(is_local=True)
        self._watch(QUEUES, start_check(command.queues), _queues_checked)

    def _watch(self, key: str, task: asyncio.Task[Any], to_event: Callable[[asyncio.Task[Any]], Event]) -> None:
        """What the task comes to is an event."""

        def ended(task: asyncio.Task[Any]) -> None:
            self.in_flight.pop(key, None)
            self._emit(to_event(task))

        self.in_flight[key] = task
        task.add_done_callback(ended)

    def _count_activity(self, *, is_local: bool) -> None:
        if is_local:
            self._actions.record_local_activity(workflow.info().get_current_history_length())
        else:
            self._actions.record(ACTIVITY)

    # -- children ------------------------------------------------------------------------------------

    async def start_delegate(self, command: StartDelegate) -> None:
        options = command.node.tool.options
        seconds = options.timeout if "timeout" in options.model_fields_set else None
        node = command.node
        await self._start_child(DELEGATE, node.key, node.key, command.input, node.label, options, seconds)

    async def start_instances(self, command: StartInstances) -> None:
        node = command.node
        await self._start_child(INSTANCE, node.members[0], node.key, command.input, node.label)

    async def start_plan(self, command: StartPlanRun) -> None:
        await self._start_child(PLAN, command.name, command.name, command.input, command.label)

    async def _start_child(
        self, type_: str, name: str, key: str, record: VersionedRecord, label: str,
        options: Options = model_calls.OPTIONS, seconds: float | None = None,
    ) -> None:  # fmt: skip
        try:
            arg = encode_record(record)
        except CallError as error:
            self._emit(ChildEnded(key, None, error, is_unstarted=True))
            return
        await self._room.make(payload_bytes(arg))
        self._children.expect(type_, name)
        run = self._children.run(type_, name, arg, label, lambda id_: self._child_started(key, id_), seconds)
        self._watch(key, asyncio.create_task(run), partial(self._child_ended, key, options))

    def _child_started(self, key: str, workflow_id: str) -> None:
        self._emit(ChildStarted(key, workflow_id))

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
        self._actions.add(None if accounting is None else accounting.actions)
        return accounting

    async def start_background(self, command: StartBackground) -> None:
        node = command.node
        try:
            arg = encode_record(command.input)
        except CallError as error:
            self._emit(CallFailed(node.key, error))
            return
        await self._room.make(payload_bytes(arg))
        # It reports nothing: its start, and what it starts, count here
        self._actions.record(CHILD_WORKFLOW, 1 if command.input.delegate is None else 2)
        self._actions.record(ACTIVITY, 1 if command.input.delegate is None else 0)
        task = asyncio.create_task(self._children.start_background(node.key, arg, node.label))
        self._watch(node.key, task, partial(self._background_started, node))

    def _background_started(self, node: PlannedCall, task: asyncio.Task[Any]) -> Event:
        try:
            task.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))
        return CallDetached(node.key)


def _queues_checked(task: asyncio.Task[Any]) -> Event:
    try:
        return QueuesChecked(task.result())
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - then nothing is known, and nothing is shown
        return QueuesChecked({})
