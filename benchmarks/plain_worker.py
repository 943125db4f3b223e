"""The hand-written workflows in the SDK's own worker, as its documentation starts one; the sandbox is left out.

    python -m benchmarks.plain_worker

What the engine's worker changes for the better (polls, eager starts, payloads that are not visited) is missing here.
"""

from __future__ import annotations

import asyncio
import os
import signal

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.activities import step
from benchmarks.handwritten import WORKFLOWS


async def serve() -> None:
    """Serve until stopped."""
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    queue, end = os.environ["ACTS_TASK_QUEUE"], asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=WORKFLOWS, activities=[step], workflow_runner=runner):
        print(f"acts worker: task queue {queue}", flush=True)
        await end.wait()


if __name__ == "__main__":
    asyncio.run(serve())
