"""The activity that finds the first attempt of a cron run that its retry policy repeats.

    {"workflowId": id, "runId": "<the attempt before this one>"} → "<the run id of the first attempt>"

All attempts of a cron run have the same ``_id``s, those of its other runs have others. A workflow sees only the
attempt before it, so the chain is read from the server, one event of each attempt.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from acts.language.wire import FIRST_ATTEMPT


@activity.defn(name=FIRST_ATTEMPT)
async def first_attempt(query: dict[str, str]) -> str:
    """The run id under which the first attempt began; of the oldest attempt left, where the server has deleted it."""
    run_id = query["runId"]
    while True:
        handle = activity.client().get_workflow_handle(query["workflowId"], run_id=run_id)
        try:
            begin = await anext(aiter(handle.fetch_history_events(page_size=1)))
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return run_id
        started = begin.workflow_execution_started_event_attributes
        if started.attempt <= 1 or not started.continued_execution_run_id:
            return str(started.original_execution_run_id)
        run_id = started.continued_execution_run_id
