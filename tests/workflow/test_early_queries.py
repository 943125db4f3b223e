"""Queries that the server hands to a new worker before the workflow task of what came meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from temporalio.client import Client

from cli.dev.temporal_server import DevServer
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, ended, phase
from tests.workflow.tools import echo
from worker import build_replayer

RUNS, QUERIES = 8, 3
EXPECTED = {"a": 1, "b": 2}


async def test_a_query_leaves_a_history_that_replays(server: DevServer, plain_client: Client) -> None:
    """Two decisions come while no worker is there: queries of before, with the new worker, see only the first."""
    queue = f"early-{uuid.uuid4().hex[:8]}"
    user = Foreign(plain_client, queue, f"{queue}-tools")
    request = user.request(
        call("echo", "†state.a", value=1), call("echo", "†state.b", value=2), approve={"calls": True}
    )
    async with user.serving(echo):
        async with engine_on(server, queue):
            runs = [await user.start(request) for _ in range(RUNS)]
            await asyncio.gather(*(phase(handle, "awaiting") for handle in runs))
        queries = [asyncio.create_task(handle.query("status")) for handle in runs for _ in range(QUERIES)]
        for _ in range(5):  # the queries wait at the server for a worker
            await asyncio.gather(*(handle.describe() for handle in runs))
        await asyncio.gather(*(handle.signal("approve", {"call": "1:echo"}) for handle in runs))
        decision: Any = {"decision": "approve", "call": "2:echo"}
        updates = [asyncio.create_task(handle.execute_update("decide", decision)) for handle in runs]
        async with engine_on(server, queue):
            await asyncio.gather(*queries, *updates)
            results = [await ended(handle) for handle in runs]
    assert [result["state"] for result in results] == [EXPECTED] * RUNS
    for handle in runs:
        await build_replayer().replay_workflow(await handle.fetch_history())
