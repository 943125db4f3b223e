"""Requests that would each stop a worker start together, and a small run beside them goes on."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from acts.cli.dev.temporal_server import DevServer
from acts.worker import serve
from acts.worker.plugin import build_replayer
from tests.fuzz.worst_requests import WORST
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, ended, failure, note_of, of_type, phase, states, tool
from tests.workflow.tools import echo

# Of one answer. It takes 2 s at most where the tests have two processors for themselves; a laptop under full load
# takes ten times that, and a worker that stands still gives none within the minutes of a single hostile Request
PATIENCE = timedelta(seconds=180)
STEPS = 6


def small_plan() -> Iterator[dict[str, object]]:
    for i in range(STEPS):
        yield call("echo", f"†state.c{i}", value=f"†state.c{i - 1}" if i else "through")


@pytest.mark.long
async def test_neighbours_of_hostile_requests_run_and_answer(foreign: Foreign) -> None:
    hostile: dict[str, Handle] = {}
    async with foreign.serving(echo):
        for name, (make, _, _) in list(WORST.items())[::3]:
            hostile[name] = await foreign.start(make())
        run = await foreign.start(foreign.request(*small_plan()))
        is_over = asyncio.create_task(ended(run, within=120))
        while not is_over.done():
            status = await run.query("status", rpc_timeout=PATIENCE)
            assert status["phase"] in ("planning", "running", "completed")
        result = await is_over
    assert set(states(result).values()) == {"completed"}
    assert result["state"][f"c{STEPS - 1}"] == "through"
    for name, handle in hostile.items():
        _, type_, expected = WORST[name]
        error = await failure(handle, within=120)
        assert (error.type, expected in error.message) == (type_, True), f"{name}: {error.message[:300]}"
        assert "Traceback" not in error.message, name


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


@pytest.fixture
def own_engine(foreign: Foreign) -> Foreign:
    """The same user, with an engine of its own that a test may stop."""
    return Foreign(foreign.client, f"engine-{uuid.uuid4().hex[:8]}", foreign.queue)


async def heard(handle: Handle, count: int) -> list[str]:
    async def all_of_it() -> list[str]:
        found = [s.signal_name for s in await of_type(handle, "WORKFLOW_EXECUTION_SIGNALED")]
        return found if len(found) == count else []

    return await assert_eventually(all_of_it)


async def test_an_edit_below_and_the_approval_after_it_arrive_in_order(
    server: DevServer, own_engine: Foreign, tmp_path: Path
) -> None:
    """The approval is of what was there before the edit, and so approves nothing; were it first, the old would run."""
    user = own_engine
    plan = {"type": "plan", "run": True, "plan": [call("echo", "†state.output", value="unedited")]}
    definition = {"config": {"approve": {"calls": True}}, "context": [user.tool("echo"), plan]}
    (tmp_path / "asks.json").write_text(json.dumps(definition), "utf-8")
    context = [tool("ask", activity="", _delegate={"const": "asks"})]
    below = [f"{n}:ask/plan" for n in range(1, 7)]
    async with user.serving(echo):
        async with engine_on(server, user.engine, tmp_path):
            handle = await user.start(user.request(*(call("ask", f"†state.x{n}") for n in range(6)), context=context))

            async def all_wait() -> bool:
                return len(await handle.query("pending")) == len(below)

            await assert_eventually(all_wait)
        for name in below:
            aim = {"workflowId": f"{handle.id}/{name}", "call": "1:echo"}
            await handle.signal("edit", {**aim, "with": call("echo", "†state.output", value="edited")})
            await handle.signal("approve", aim)
        async with engine_on(server, user.engine, tmp_path):
            for name in below:
                child = user.client.get_workflow_handle(f"{handle.id}/{name}")
                assert await heard(child, 2) == ["forwardedDecision"] * 2
                signals = await of_type(child, "WORKFLOW_EXECUTION_SIGNALED")
                records = [json.loads(s.input.payloads[0].data) for s in signals]
                assert [record["decision"]["decision"] for record in records] == ["edit", "approve"]
            await note_of(handle, "version 1")

            async def all_are_edited() -> bool:
                return [wait["version"] for wait in await handle.query("pending")] == [2] * len(below)

            await assert_eventually(all_are_edited)
            for name in below:
                aim = {"workflowId": f"{handle.id}/{name}", "call": "1:echo", "version": 2}
                await handle.execute_update("decide", {"decision": "approve", **aim})
            result = await ended(handle)
    assert set(result["state"].values()) == {"edited"}


LANE = 2


async def test_local_activities_beyond_the_lane_wait_and_a_run_beside_them_goes_on(
    server: DevServer, plain_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "LOCAL_ACTIVITIES", LANE)
    user = Foreign(plain_client, queue := f"lane-{uuid.uuid4().hex[:8]}", f"{queue}-tools")
    local = tool("crowd", activity="crowd", options={"local": True})
    many = user.request(*[call("crowd", f"†state.c{n}") for n in range(10 * LANE)], context=[local])
    async with user.serving(echo), engine_on(server, queue):
        runs = [await user.start(many) for _ in range(3)]
        beside = await ended(await user.start(user.request(*small_plan())))
        results = [await ended(run) for run in runs]
    assert beside["state"][f"c{STEPS - 1}"] == "through"
    assert [len(result["state"]) for result in results] == [10 * LANE] * 3
    assert max(most for result in results for most in result["state"].values()) == LANE
