"""A worker without any code of the engine: plain temporalio, one Activity, a task queue of its own.

It represents a service of another team, in another process, on another machine, in any language that
has a Temporal SDK. Its Activity takes three arguments (the Call, the Tool, the context) and returns
JSON. Start it beside the project's own worker::

    TEMPORAL_ADDRESS=127.0.0.1:7233 python examples/foreign/worker.py
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

TASK_QUEUE = "examples-foreign"  # the Tool's _options in the plan name it
THREADS = 4

logger = logging.getLogger("examples.foreign")


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
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE … as in every Temporal SDK; by default 127.0.0.1:7233.
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "127.0.0.1:7233")
    client = await Client.connect(**settings)
    with ThreadPoolExecutor(THREADS) as threads:
        async with Worker(client, task_queue=TASK_QUEUE, activities=[factorize], activity_executor=threads):
            logger.info("serving %s", TASK_QUEUE)
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
