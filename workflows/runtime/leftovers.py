"""Runs that an earlier run of this one left behind: after a reset or a retry, its children may still be there.

The server ends a run that is reset without a word to the children that it started after the point of the reset.
They go on, and the new run starts the same work under the same ids. So the new run tells such a child that it is
superseded, waits until it has stopped whatever it does, and takes its id. Only a run of the same tree obeys: the
message carries the tree's token. Any other run keeps its id, and the new child gets another. A run that was not reset
itself may meet such a run too, when a run above or before it was.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from acts.language.wire import SUPERSEDED
from acts.tree.signal_records import Superseded
from workflows.runtime.lifeline import exact_date
from workflows.runtime.payloads import encode_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workflows.runtime.lifeline import Lifeline

    Handle = workflow.ChildWorkflowHandle[Any, Any]

# When to try the id again. A run stops within a task of its own and one for each level below it: some 10 ms each, and
# some seconds while workers start. 19 seconds in all: longer than the 10 or 15 s after which the server begins a
# workflow task again that died with its worker
_WAITS_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 6.4)
# … and of a run that was not reset: mostly, the id is that of a run of another tree, which does not stop
_FEW_WAITS: Final = 4


async def replace_leftover(
    id_: str, lifeline: Lifeline, start: Callable[[str], Awaitable[Handle | None]]
) -> Handle | None:
    """Stop the run of this id and start another in its place; None when it is not one of this tree, or does not end."""
    info = workflow.info()
    sent_at = exact_date(workflow.now())
    record = Superseded(token=lifeline.token, workflowId=info.workflow_id, runId=info.run_id, sentAt=sent_at)
    try:
        await workflow.get_external_workflow_handle(id_).signal(SUPERSEDED, encode_record(record))
    except ApplicationError:
        return await start(id_)  # it has just ended
    for seconds in _WAITS_SECONDS if lifeline.is_repetition else _WAITS_SECONDS[:_FEW_WAITS]:
        await workflow.sleep(timedelta(seconds=seconds), summary=f"until the earlier {id_} has stopped")
        handle = await start(id_)
        if handle is not None:
            return handle
    return None
