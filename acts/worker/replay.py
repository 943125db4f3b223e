"""Replays the history of a run with the workflow code that is here, in this process, as a worker would.

The SDK's Replayer says whether the code still makes the commands of a history. What it made of the run besides is read
here from the workflow object, which keeps its state when the SDK has given the run up.

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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.converter import DataConverter


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

    ``read`` is called once with the workflow object, after the last event.
    """
    # A thread with a loop of its own: a long task would stop the loop of a worker, and the SDK's detector, which fails
    # each task of two seconds, is off in debug mode only, in which tasks run in the loop
    return await asyncio.to_thread(asyncio.run, _replay(history, workflows, converter, read))


async def _replay(
    history: WorkflowHistory, workflows: Sequence[type], converter: DataConverter, read: Callable[[object], Any] | None
) -> Replay:
    capture = _Capture()
    replayer = Replayer(
        workflows=workflows, workflow_runner=UnsandboxedWorkflowRunner(), interceptors=[capture],
        data_converter=converter, debug_mode=True,
    )  # fmt: skip
    result = await replayer.replay_workflow(complete_last_task(history), raise_on_replay_failure=False)
    failure = None if result.replay_failure is None else str(result.replay_failure)
    return Replay(failure, None if read is None or capture.run is None else read(capture.run))


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
    """Takes the workflow object when its run begins."""

    run: object | None = None

    def workflow_interceptor_class(self, input: Any) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002 - the SDK's name
        """Take the object."""
        capture = self

        class Inbound(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
                capture.run = workflow.instance()
                return await super().execute_workflow(input)

        return Inbound
