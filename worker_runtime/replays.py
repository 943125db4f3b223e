"""Replays the history of a run with the workflow code that is here, in this process, as a worker would.

The SDK's Replayer says whether the code still makes the commands of a history. What it made of the run besides is kept
read here: the workflow object, when the last event has been applied and before the SDK takes it apart.

Laws of this file: it knows no workflow; it changes nothing on a server.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInstance,
    WorkflowRunner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
    from temporalio.converter import DataConverter
    from temporalio.worker import WorkflowInstanceDetails

# Ends that no workflow task has decided: the code has not seen them, and makes no command of them
_FORCED_ENDS: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
)  # fmt: skip
# Events that end a run, or that the commands of a task are followed by: there is nothing to apply after them
_ENDS: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
)  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """``failure`` says why the history does not replay; None: it does. ``answer`` is what was read of the run."""

    failure: str | None
    answer: Any = None


async def replay(
    history: WorkflowHistory, workflows: Sequence[type], converter: DataConverter,
    read: Callable[[object], Any] | None = None,
) -> Replay:  # fmt: skip
    """Replay a history to its end, whether the run has ended or not.

    ``read`` is called once with the workflow object when the last event has been applied; what it raises is raised.
    """
    # A thread with a loop of its own: a long task would stop the loop of a worker, and the SDK's detector, which fails
    # each task of two seconds, is off in debug mode only, in which tasks run in the loop
    return await asyncio.to_thread(asyncio.run, _replay(history, workflows, converter, _Capture(read)))


async def _replay(
    history: WorkflowHistory, workflows: Sequence[type], converter: DataConverter, capture: _Capture
) -> Replay:
    replayer = Replayer(
        workflows=workflows, workflow_runner=_CapturingRunner(capture), interceptors=[capture],
        data_converter=converter, debug_mode=True,
    )  # fmt: skip
    result = await replayer.replay_workflow(complete_last_task(history), raise_on_replay_failure=False)
    if capture.error is not None:
        raise capture.error
    return Replay(None if result.replay_failure is None else str(result.replay_failure), capture.answer)


def complete_last_task(history: WorkflowHistory) -> WorkflowHistory:
    """The history up to a workflow task that sees every event: what came after the last one has been seen by none.

    A run that was terminated, or runs, has such events; the result of an Activity may be among them.
    """
    events = list(history.events)
    while events and events[-1].event_type in _FORCED_ENDS:
        events.pop()
    if not events or events[-1].event_type in (*_ENDS, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED):
        return WorkflowHistory(history.workflow_id, events)
    if events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
        return WorkflowHistory(history.workflow_id, [*events, _started(events[-1])])
    scheduled = HistoryEvent(
        event_id=events[-1].event_id + 1, event_time=events[-1].event_time,
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    )  # fmt: skip
    scheduled.workflow_task_scheduled_event_attributes.attempt = 1
    return WorkflowHistory(history.workflow_id, [*events, scheduled, _started(scheduled)])


def _started(scheduled: HistoryEvent) -> HistoryEvent:
    event = HistoryEvent(
        event_id=scheduled.event_id + 1, event_time=scheduled.event_time,
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    )  # fmt: skip
    event.workflow_task_started_event_attributes.scheduled_event_id = scheduled.event_id
    return event


class _Capture(Interceptor):
    """Takes the workflow object when its run begins, and reads it before the SDK gives the run up."""

    def __init__(self, read: Callable[[object], Any] | None) -> None:
        self._read = read
        self._run: object | None = None
        self.answer: Any = None
        self.error: Exception | None = None

    def workflow_interceptor_class(self, input: Any) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002 - the SDK's name
        """Take the object."""
        capture = self

        class Inbound(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
                capture._run = workflow.instance()
                return await super().execute_workflow(input)

        return Inbound

    def on_eviction(self) -> None:
        """The SDK has applied every event, and takes the run apart next."""
        run, self._run = self._run, None
        if run is None or self._read is None:
            return
        try:
            self.answer = self._read(run)
        except Exception as error:  # noqa: BLE001 - raised where the replay is awaited
            self.error = error


class _CapturingRunner(WorkflowRunner):
    """Runs workflows without a sandbox, as the worker does."""

    def __init__(self, capture: _Capture) -> None:
        self._capture, self._inner = capture, UnsandboxedWorkflowRunner()

    def prepare_workflow(self, defn: Any) -> None:
        """Prepare as the inner runner does."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance of the inner runner that tells of its eviction."""
        return _CapturingInstance(self._capture, self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Set them as the inner runner does."""
        self._inner.set_worker_level_failure_exception_types(types)


class _CapturingInstance(WorkflowInstance):
    def __init__(self, capture: _Capture, inner: WorkflowInstance) -> None:
        self._capture, self._inner = capture, inner

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation; the last one is the eviction."""
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            self._capture.on_eviction()
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        """As the inner instance."""
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """As the inner instance."""
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        """As the inner instance."""
        return self._inner.get_info()

    def get_thread_id(self) -> Any:
        """As the inner instance."""
        return self._inner.get_thread_id()
