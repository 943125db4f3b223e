"""Checks that this container's worker is alive: exits 0 when the server has recently seen it poll, else 1.

Laws of this file: it uses the worker's settings and adds none; it opens no port and writes
no file. With ACTS_HEALTH the worker answers itself (/ready), which costs a tenth of the CPU:
the SDK is not imported. Else the server is asked, because a worker that runs but cannot reach
its task queue is not healthy. It recognises the worker by the end of its identity, `<pid>@<host name>`:
both run in one container, so they have one host name.
"""

# ruff: noqa: INP001 - a program that is copied into the image, not a package

from __future__ import annotations

import os
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.client import Client

# The server answers an idle poll after about 1 minute, and the worker then polls again: after
# 2 minutes without a poll, one was missed.
MAX_POLL_AGE = timedelta(minutes=2)
# Below the 10 s that the Dockerfile allows the whole check.
RPC_TIMEOUT = timedelta(seconds=5)
# One of the two is enough: a worker whose activity slots are all in use polls for workflows only.
KINDS = ("TASK_QUEUE_TYPE_WORKFLOW", "TASK_QUEUE_TYPE_ACTIVITY")


def ask_worker(address: str) -> int:
    """The exit code by the worker's own answer at host:port; it listens on all interfaces or on this one."""
    port = address.rpartition(":")[2]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=RPC_TIMEOUT.total_seconds()):
            return 0
    except OSError as error:  # URLError and HTTPError are such
        sys.stderr.write(f"unhealthy: /ready at port {port}: {error}\n")
        return 1


def is_own_poll(poller: PollerInfo, now: datetime) -> bool:
    """True when this container polled within `MAX_POLL_AGE`."""
    import socket

    polled_at = poller.last_access_time.ToDatetime(tzinfo=UTC)
    return poller.identity.endswith(f"@{socket.gethostname()}") and now - polled_at < MAX_POLL_AGE


async def is_polling(client: Client, queue: str) -> bool:
    """True when the server has recently seen this container poll `queue`."""
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    now = datetime.now(UTC)
    for kind in KINDS:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.Value(kind),
        )
        answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        if any(is_own_poll(poller, now) for poller in answer.pollers):
            return True
    return False


async def main() -> int:
    """Ask the server once; returns the exit code."""
    import asyncio
    import socket

    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig

    queue = os.environ.get("ACTS_TASK_QUEUE") or "acts"
    try:
        config = ClientConfig.load_client_connect_config()
        config.setdefault("target_host", "127.0.0.1:7233")  # as the worker does
        client = await asyncio.wait_for(Client.connect(**config), RPC_TIMEOUT.total_seconds())
        if await is_polling(client, queue):
            return 0
    except Exception as error:  # noqa: BLE001 - every failure means unhealthy
        sys.stderr.write(f"unhealthy: {type(error).__name__}: {error}\n")
        return 1
    sys.stderr.write(f"unhealthy: no poll of task queue {queue!r} by {socket.gethostname()!r} within {MAX_POLL_AGE}\n")
    return 1


if __name__ == "__main__":
    if os.environ.get("ACTS_HEALTH"):
        sys.exit(ask_worker(os.environ["ACTS_HEALTH"]))
    import asyncio

    code = asyncio.run(main())
    sys.stderr.flush()
    # Not sys.exit: the SDK's threads sometimes crash an interpreter that exits this soon after
    # connecting (exit code 139), and a healthy worker would be reported as unhealthy.
    os._exit(code)
