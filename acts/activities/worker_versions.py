"""Workers of different versions on one task queue, as in every rolling deploy: what each lacks, and who polls.

A worker's *version* is a digest of its Tools and of the names of its Activities; its identity begins with it. The
server lists who polled a queue within the last five minutes. A worker whose slots are all busy for longer does not
poll and is not listed; a worker that was killed still is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.language.errors import format_choices
from acts.language.wire import NOT_SERVED, QUEUES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.client import Client
    from temporalio.worker import ExecuteActivityInput

    from acts.activities.registry import Registry

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


def registry_version(registry: Registry) -> str:
    """Eight hex digits that differ where Tools, or the names of Activities, differ."""
    content = json.dumps([registry.tools, sorted(registry.names)], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def poller_deployment(poller: PollerInfo) -> tuple[str, str]:
    """The name and the build id of a worker's deployment version; two empty strings for an unversioned one."""
    options = poller.deployment_options
    if options.worker_versioning_mode != WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
        return "", ""
    return options.deployment_name, options.build_id


def worker_identity(version: str) -> str:
    """The name of this worker on the server and in the Web UI."""
    return f"acts/{version} {os.getpid()}@{socket.gethostname()}"


@activity.defn(dynamic=True)
async def missing_activity(_args: Sequence[RawValue]) -> None:
    """The activity of every name that a worker does not have: ``refuse_missing`` refuses it before it begins."""


def refuse_missing(identity: str, names: Sequence[str]) -> Callable[..., Awaitable[Any]]:
    """The step that refuses the Activities that this worker does not have, so that the run tries another one."""

    async def refuse(call: ExecuteActivityInput, proceed: Callable[[ExecuteActivityInput], Awaitable[Any]]) -> Any:
        if call.fn is not missing_activity:
            return await proceed(call)
        info = activity.info()
        text = f'{identity} has no activity "{info.activity_type}"; it has {format_choices(names)}'
        raise ApplicationError(text, {"miss": {"attempt": info.attempt}}, type=NOT_SERVED, non_retryable=True)

    return refuse
