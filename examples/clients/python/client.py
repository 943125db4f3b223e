"""Starts a plan, approves it and prints its result: plain temporalio and JSON, no code of the engine.

    TEMPORAL_ADDRESS=127.0.0.1:7233 python examples/clients/python/client.py examples/clients/request.json order-17

While the run waits or runs, a second start with the same id uses it, and starts no other one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig


async def main(request: dict[str, Any], run_id: str) -> None:
    """Start, approve, wait."""
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY … as in every Temporal SDK
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "127.0.0.1:7233")
    client = await Client.connect(**settings)
    handle = await client.start_workflow(
        "Plan", request, id=run_id, task_queue=os.environ.get("ACTS_TASK_QUEUE", "acts"), result_type=dict,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )  # fmt: skip
    status: dict[str, Any] = await handle.execute_update("decide", {"decision": "approve", "by": "a client"})
    print(f"approved; the plan is {status['phase']}", file=sys.stderr)
    print(json.dumps(await handle.result()), flush=True)


if __name__ == "__main__":
    file, name = sys.argv[1:]
    asyncio.run(main(json.loads(Path(file).read_text("utf-8")), name))
    os._exit(0)  # an interpreter that ends so soon after the SDK connected may crash
