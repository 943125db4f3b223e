"""Queries that the server hands to a new worker before the workflow task of what came meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from acts.cli.dev.temporal_server import DevServer
from acts.worker.plugin import build_replayer
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, ended, phase
from tests.workflow.tools import echo

RUNS, QUERIES = 8, 3
QUERY_TIMEOUT = timedelta(seconds=10)
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
        queries = [
            asyncio.create_task(handle.query("status", rpc_timeout=QUERY_TIMEOUT))
            for handle in runs
            for _ in range(QUERIES)
        ]
        for _ in range(5):  # the queries wait at the server for a worker
            await asyncio.gather(*(handle.describe() for handle in runs))
        await asyncio.gather(*(handle.signal("approve", {"call": "1:echo"}) for handle in runs))
        decision: Any = {"decision": "approve", "call": "2:echo"}
        updates = [asyncio.create_task(handle.execute_update("decide", decision)) for handle in runs]
        async with engine_on(server, queue):
            await asyncio.gather(*updates)
            answers = await asyncio.gather(*queries, return_exceptions=True)
            results = [await ended(handle) for handle in runs]
    # The SDK's core drops the queries that it holds for a run that it evicts: their callers time out, and ask again
    assert not [a for a in answers if isinstance(a, BaseException) and not isinstance(a, RPCError)]
    assert [result["state"] for result in results] == [EXPECTED] * RUNS
    for handle in runs:
        await build_replayer().replay_workflow(await handle.fetch_history())
