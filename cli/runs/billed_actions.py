"""Temporal's billable actions of a run, counted in its history and in those of its children.

Laws of this file:
- it counts as Temporal's own Web UI does (docs.temporal.io/cloud/actions): a signal in the run that
  receives it, a child in the run that starts it, the local activities of a workflow task together;
- retries are in it; queries, heartbeats and refused updates leave no event, and are not;
- the number of runs that are read is bounded: beyond it nothing is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.simulation.billable_actions import (
    ACTIONS,
    ACTIVITY,
    CHILD_WORKFLOW,
    CONTINUE_AS_NEW,
    LOCAL_ACTIVITIES,
    SEARCH_UPDATE,
    SIGNAL,
    TIMER,
    UPDATE,
    WORKFLOW,
)
from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client

MAX_RUNS: Final = 200
# The SDK's marker of a local activity; that of a change of version is not billed
_LOCAL_ACTIVITY: Final = "core_local_activity"
_PREFIX: Final = "EVENT_TYPE_"
_KINDS: Final = {
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED": CHILD_WORKFLOW, "ACTIVITY_TASK_SCHEDULED": ACTIVITY,
    "TIMER_STARTED": TIMER, "WORKFLOW_EXECUTION_SIGNALED": SIGNAL, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED": UPDATE,
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES": SEARCH_UPDATE,
}  # fmt: skip


async def count_actions(client: Client, workflow_id: str, first_run_id: str) -> int | None:
    """The actions of a chain of runs and of all children; None when they are more than ``MAX_RUNS``."""
    pending, total, count = [(workflow_id, first_run_id)], 0, 0
    while pending:
        count += 1
        if count > MAX_RUNS:
            return None
        actions, others = await _read_history(client, *pending.pop())
        total += actions
        pending += others
    return total


async def _read_history(client: Client, workflow_id: str, run_id: str) -> tuple[int, list[tuple[str, str]]]:
    """The actions of one run, and the ids of the runs that it started."""
    from temporalio.api.enums.v1 import EventType

    total, others, tasks = 0, [], dict[int, None]()
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events(rpc_timeout=server.RPC):
        name = EventType.Name(event.event_type).removeprefix(_PREFIX)
        total += ACTIONS[_KINDS[name]] if name in _KINDS and not _is_of_patch(event) else 0
        if name == "WORKFLOW_EXECUTION_STARTED":
            total += _actions_of_start(event.workflow_execution_started_event_attributes)
        elif name == "ACTIVITY_TASK_STARTED":
            total += ACTIONS[ACTIVITY] * (event.activity_task_started_event_attributes.attempt - 1)
        elif event.marker_recorded_event_attributes.marker_name == _LOCAL_ACTIVITY:
            tasks[event.marker_recorded_event_attributes.workflow_task_completed_event_id] = None
        elif name == "CHILD_WORKFLOW_EXECUTION_STARTED":
            child = event.child_workflow_execution_started_event_attributes.workflow_execution
            others.append((child.workflow_id, child.run_id))
        elif name == "WORKFLOW_EXECUTION_CONTINUED_AS_NEW":
            others.append(
                (workflow_id, event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id)
            )
    return total + ACTIONS[LOCAL_ACTIVITIES] * len(tasks), others


def _is_of_patch(event: Any) -> bool:
    """True for the upsert by which the SDK makes a patch searchable: it is not billed."""
    upserted = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    return list(upserted) == ["TemporalChangeVersion"]


def _actions_of_start(started: Any) -> int:
    """Of a child, its parent has counted the start."""
    if started.continued_execution_run_id:
        return ACTIONS[CONTINUE_AS_NEW]
    return 0 if started.parent_workflow_execution.workflow_id else ACTIONS[WORKFLOW]
