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

# Below the 10 s that the Dockerfile allows the whole check
LIMIT_SECONDS = 5.0


async def find_fault(queue: str) -> str:
    """Why the server does not take this container's worker for healthy, or ""."""
    import asyncio

    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig

    from acts.telemetry.observation import MAX_POLL_SECONDS, has_polled

    config, host = ClientConfig.load_client_connect_config(), socket.gethostname()
    config.setdefault("target_host", "127.0.0.1:7233")  # as the worker does
    async with asyncio.timeout(LIMIT_SECONDS):
        client = await Client.connect(**config)
        if await has_polled(client, queue, f"@{host}"):
            return ""
    return f"no poll of task queue {queue!r} by {host!r} within {MAX_POLL_SECONDS:.0f} s"


if __name__ == "__main__":
    fault = ""
    try:
        if address := os.environ.get("ACTS_HEALTH"):  # it listens on all interfaces or on this one
            port = address.rpartition(":")[2]
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=LIMIT_SECONDS).close()
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
