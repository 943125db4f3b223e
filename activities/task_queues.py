"""The activity ``acts.queues``: asks the server which task queues have workers for activities.

The server lists who polled a queue within the last five minutes. A worker whose slots are all busy for longer does
not poll and is not listed; a worker that was killed still is.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError

from acts.language.wire import QUEUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.client import Client

# The workflow task waits for the answer: a slow server must not hold up the run
_RPC_TIMEOUT: Final = timedelta(seconds=2)


async def read_pollers(client: Client, queue: str) -> Sequence[PollerInfo]:
    """Who polls a task queue for activities.

    Raises:
        RPCError: the server does not say.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=_RPC_TIMEOUT)
    return answer.pollers


@activity.defn(name=QUEUES)
async def check_queues(request: dict[str, Any]) -> dict[str, bool]:
    """``{"queues": [names]}`` → ``{name: has workers}``; a queue that the server says nothing of is left out."""
    client = activity.client()

    async def has_pollers(queue: str) -> tuple[str, bool] | None:
        try:
            return queue, bool(await read_pollers(client, queue))
        except RPCError:
            return None

    answers = await asyncio.gather(*map(has_pollers, request["queues"]))
    return dict(item for item in answers if item is not None)
