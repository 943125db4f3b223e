"""Serves the tool ``factorize`` on a task queue of its own: plain temporalio, no code of the engine.

    TEMPORAL_ADDRESS=127.0.0.1:7233 python examples/clients/python/worker.py

The tool names this queue in its ``_options.taskQueue``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

TASK_QUEUE = os.environ.get("TASK_QUEUE", "examples-clients")
THREADS = 4


@activity.defn(name="factorize")
def factorize(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> dict[str, Any]:
    """Returns the prime factors of ``number``, with their multiplicity."""
    number = rest = int(call["number"])
    factors = []
    divisor = 2
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            factors.append(divisor)
            rest //= divisor
        divisor += 1
    return {"number": number, "factors": factors + [rest] * (rest > 1)}


async def main() -> None:
    """Serve until Ctrl-C or SIGTERM; running activities end first."""
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE … as in every Temporal SDK; by default 127.0.0.1:7233.
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "127.0.0.1:7233")
    client = await Client.connect(**settings)
    with ThreadPoolExecutor(THREADS) as threads:
        async with Worker(client, task_queue=TASK_QUEUE, activities=[factorize], activity_executor=threads):
            print("serving", TASK_QUEUE, flush=True)
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
