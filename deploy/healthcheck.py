"""Checks that this container's worker is alive: exits 0 when the server has recently seen it poll, else 1.

It uses the worker's settings and adds none; it opens no port and writes no file. With ACTS_HEALTH the worker answers
itself (/ready), which costs a tenth of the CPU: the SDK is not imported. Else the server is asked, because a worker
that runs but cannot reach its task queue is not healthy. It recognises the worker by the end of its identity,
`<pid>@<host name>`: both run in one container, so they have one host name.
"""

# ruff: noqa: INP001 - a program that is copied into the image, not a package

from __future__ import annotations

import os
import socket
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

# The server answers an idle poll after about a minute, and the worker then polls again: after 2 minutes, one was missed
MAX_POLL_AGE = timedelta(minutes=2)
# Below the 10 s that the Dockerfile allows the whole check
RPC_TIMEOUT = timedelta(seconds=5)


async def find_fault(queue: str) -> str:
    """Why the server does not take this container's worker for healthy, or ""."""
    import asyncio

    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig

    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")  # as the worker does
    client = await asyncio.wait_for(Client.connect(**config), RPC_TIMEOUT.total_seconds())
    # One of the two is enough: a worker whose activity slots are all in use polls for workflows only
    for kind in (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY):
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        own = [p for p in answer.pollers if p.identity.endswith(f"@{socket.gethostname()}")]
        if any(datetime.now(UTC) - p.last_access_time.ToDatetime(tzinfo=UTC) < MAX_POLL_AGE for p in own):
            return ""
    return f"no poll of task queue {queue!r} by {socket.gethostname()!r} within {MAX_POLL_AGE}"


if __name__ == "__main__":
    fault = ""
    try:
        if address := os.environ.get("ACTS_HEALTH"):  # it listens on all interfaces or on this one
            port = address.rpartition(":")[2]
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=RPC_TIMEOUT.total_seconds()).close()
        else:
            import asyncio

            fault = asyncio.run(find_fault(os.environ.get("ACTS_TASK_QUEUE") or "acts"))
    except Exception as error:  # noqa: BLE001 - every failure means unhealthy
        fault = f"{type(error).__name__}: {error}"
    if fault:
        sys.stderr.write(f"unhealthy: {fault}\n")
        sys.stderr.flush()
    # Not sys.exit: the SDK's threads sometimes crash an interpreter that exits this soon after connecting (exit code
    # 139), and a healthy worker would be reported as unhealthy
    os._exit(bool(fault))
