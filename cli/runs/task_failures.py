"""Why a run makes no progress although a worker serves it: what its last workflow task failed with.

Laws of this file: it reads the history from its end, and no more than it needs; nothing is printed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client

# Since its last completed task a run has received so many events at most, or nobody waits for this answer
_MAX_EVENTS: Final = 200


async def last_task_failure(client: Client, id_: str, run_id: str | None) -> str:
    """The text of the failure if the run's last workflow task failed, else "".

    The server records the first failure of a task; those of later attempts are in the log of the worker.
    """
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
    from temporalio.service import RPCError

    execution = WorkflowExecution(workflow_id=id_, run_id=run_id or "")
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=_MAX_EVENTS
    )
    try:
        page = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=server.RPC)
    except RPCError:
        return ""
    for event in page.history.events:
        if event.HasField("workflow_task_completed_event_attributes"):
            return ""
        if event.HasField("workflow_task_failed_event_attributes"):
            failure = event.workflow_task_failed_event_attributes.failure
            decoded = await client.data_converter.decode_failure(failure)
            return str(getattr(decoded, "message", "") or decoded)
    return ""
