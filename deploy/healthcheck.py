"""Is this container's worker alive? Exit 0 when the server has lately seen it poll, else 1.

Laws of this file: it uses the worker's own settings and adds none; it opens no port and
writes no file; it asks the server, because a worker that runs but cannot reach its queue
is not healthy. It recognises its worker by the end of the identity that Temporal's SDK
gives by default, `<pid>@<host name>`: both run in one container, so in one host name.
"""

# ruff: noqa: INP001 - a program that is copied into the image, not a package

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig

# The server answers an idle poll after about 1 minute and the worker then polls again, so
# 2 minutes without a poll is one missed, not one late.
FRESH = timedelta(minutes=2)
# Below the 10 s that the Dockerfile allows the whole check.
RPC_TIMEOUT = timedelta(seconds=5)
# Either will do: a worker whose activity slots are all taken polls for workflows only.
KINDS = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)


def is_ours(poller: PollerInfo, now: datetime) -> bool:
    """Tell whether this container made the poll, and within `FRESH`."""
    seen = poller.last_access_time.ToDatetime(tzinfo=UTC)
    return poller.identity.endswith(f"@{socket.gethostname()}") and now - seen < FRESH


async def polls(client: Client, queue: str) -> bool:
    """Ask the server who polls `queue`; true if this container does."""
    now = datetime.now(UTC)
    for kind in KINDS:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=kind,
        )
        answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        if any(is_ours(poller, now) for poller in answer.pollers):
            return True
    return False


async def main() -> int:
    """Run the check once; the exit code of the process."""
    queue = os.environ.get("ACTS_TASK_QUEUE") or "acts"
    try:
        config = ClientConfig.load_client_connect_config()
        config.setdefault("target_host", "127.0.0.1:7233")  # as the worker does
        client = await asyncio.wait_for(Client.connect(**config), RPC_TIMEOUT.total_seconds())
        if await polls(client, queue):
            return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        sys.stderr.write(f"unhealthy: {type(error).__name__}: {error}\n")
        return 1
    sys.stderr.write(f"unhealthy: no poll of task queue {queue!r} by {socket.gethostname()!r} within {FRESH}\n")
    return 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stderr.flush()
    # Not sys.exit: the SDK's threads sometimes crash an interpreter that ends this soon after
    # connecting (exit code 139), and a healthy worker would be called sick.
    os._exit(code)
