"""The tasks that wait for children: delegates, instances, Batches, plans of an agent, runs in the background.

Each is prepared, started through ``Children``, restarted where its result cannot come, and ends with one event. That
event carries what the child's work adds to the accounting of this run. Nothing here decides what an outcome means.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from acts.language.errors import CallError
from acts.language.wire import BATCH, CANCELLED, DELEGATE, INSTANCE, PLAN
from acts.machines.events import CallDetached, CallFailed, ChildEnded, ChildStarted, Event
from acts.machines.run_commands import StartBackground, StartBatch, StartDelegate, StartInstances, StartPlanRun
from acts.simulation.billable_actions import ACTIVITY, CHILD_WORKFLOW, ActionCount
from acts.tree.records import Accounting
from workflows.runtime import model_calls
from workflows.runtime.activity_calls import call_error
from workflows.runtime.children import Children, failure_detail
from workflows.runtime.payloads import decode_result, encode_record
from workflows.runtime.prepared_start import Start, command_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.language.config import Options
    from acts.machines.run_machine import RunMachine
    from acts.plan.planned_call import PlannedCall
    from acts.tree.wire_format import VersionedRecord
    from workflows.runtime.tasks_in_flight import TasksInFlight

    Task = asyncio.Task[Any]
    Handle = workflow.ChildWorkflowHandle[Any, Any]

ChildStart = StartDelegate | StartInstances | StartPlanRun | StartBatch


class ChildTasks:
    """The children of one run. ``tasks`` watches them; ``emit`` takes the events that are not the end of a task."""

    def __init__(
        self, tasks: TasksInFlight, run: RunMachine, children: Children, actions: ActionCount,
        emit: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self._tasks, self._run, self._children, self._actions, self._emit = tasks, run, children, actions, emit
        self._sends: dict[str, Callable[[], None]] = {}  # by key: how each child is started again

    def prepare(self, command: ChildStart | StartBackground) -> Start | None:
        """What this command sends; None for one that cannot be sent: its failure is emitted."""
        try:
            return _PREPARERS[type(command)](self, command)
        except CallError as error:
            if isinstance(command, StartBackground):
                self._emit(CallFailed(command.node.key, error))
            else:
                self._children.forget(*child_name(command))
                key = command.name if isinstance(command, (StartPlanRun, StartBatch)) else command.node.key
                self._emit(ChildEnded(key, None, error, is_unstarted=True))
            return None

    def _delegate(self, command: StartDelegate) -> Start:
        options = command.node.tool.options
        seconds = options.timeout if "timeout" in options.model_fields_set else None
        return self._child(command, command.node.key, command.node.label, options, seconds)

    def _instances(self, command: StartInstances) -> Start:
        return self._child(command, command.node.key, command.node.label)

    def _plan(self, command: StartPlanRun | StartBatch) -> Start:
        return self._child(command, command.name, command.label)

    def _child(
        self, command: ChildStart, key: str, label: str, options: Options = model_calls.OPTIONS,
        seconds: float | None = None,
    ) -> Start:  # fmt: skip
        record: VersionedRecord = command.input
        arg = encode_record(record)
        type_, name = child_name(command)

        def send() -> None:
            started = partial(self._child_started, key)
            run = asyncio.create_task(self._children.run(type_, name, arg, label, started, seconds))
            self._sends[key] = partial(self._send_again, type_, name, send)
            self._tasks.watch(key, run, partial(self._child_ended, key, options), type_)

        return Start(type_, command_bytes(arg), send)

    def restart(self, key: str) -> None:
        """Start a child again whose result does not come; what waited for that waits in vain."""
        send_again = self._sends.get(key)
        if send_again is None or self._tasks.in_flight.pop(key, None) is None:
            return
        if self._run.is_cancelling or self._run.finished is not None:
            self._emit(ChildEnded(key, None, CallError(CANCELLED, "the call was cancelled")))
        else:
            send_again()

    def _send_again(self, type_: str, name: str, send: Callable[[], None]) -> None:
        self._tasks.expected.ended(type_, None)
        self._children.expect(type_, name)
        send()

    def _child_started(self, key: str, child: Handle, is_of_before_reset: bool) -> None:  # noqa: FBT001
        self._emit(ChildStarted(key, child.id, is_of_before_reset, child.first_execution_run_id or ""))

    def _child_ended(self, key: str, options: Options, task: Task) -> Event:
        self._sends.pop(key, None)
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

    # -- in the background ---------------------------------------------------------------------------

    def _background(self, command: StartBackground) -> Start:
        arg = encode_record(command.input)
        return Start(command.node.tool.name, command_bytes(arg), partial(self._detach, command, arg))

    def _detach(self, command: StartBackground, arg: RawValue) -> None:
        node = command.node
        # It reports nothing: its start, and what it starts, count here
        self._actions.record(CHILD_WORKFLOW, 1 if command.input.delegate is None else 2)
        self._actions.record(ACTIVITY, 1 if command.input.delegate is None else 0)
        task = asyncio.create_task(self._children.start_background(node.key, arg, node.label))
        self._tasks.watch(node.key, task, partial(_background_started, node), "")


def _background_started(node: PlannedCall, task: Task) -> Event:
    try:
        task.result()
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
        return CallFailed(node.key, call_error(error, node.tool.options, workflow.info().task_queue))
    return CallDetached(node.key)


def child_name(command: ChildStart) -> tuple[str, str]:
    """The type and the name of the child that a command starts."""
    if isinstance(command, StartBatch):
        return BATCH, command.name
    if isinstance(command, StartPlanRun):
        return PLAN, command.name
    if isinstance(command, StartInstances):
        return INSTANCE, command.node.members[0]
    return DELEGATE, command.node.key


_PREPARERS: Final[dict[type, Callable[[ChildTasks, Any], Start]]] = {
    StartDelegate: ChildTasks._delegate,  # noqa: SLF001 - the table of this class
    StartInstances: ChildTasks._instances,  # noqa: SLF001
    StartPlanRun: ChildTasks._plan,  # noqa: SLF001
    StartBatch: ChildTasks._plan,  # noqa: SLF001
    StartBackground: ChildTasks._background,  # noqa: SLF001
}
