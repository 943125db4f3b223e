"""Calls end while the server is away, and a worker stops in the middle of some: none is lost, or runs twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.model import model
from tests.crash.test_kill import World, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import call, came_to, tool

Json = Any
PATIENCE = timedelta(seconds=90)
GIVEN_UP = "Network error while completing activity"  # the SDK, of a report
GATES = 4


def opened(world: World) -> Path:
    return Path(f"{world.effects}.open")


async def written(world: World, name: str, text: str, times: int) -> None:
    """The log of a worker says so, so often."""

    async def found() -> bool:
        return (world.folder / f"{name}.log").read_text().count(text) >= times

    await assert_eventually(found, within=PATIENCE, why=text)


@pytest.mark.long
async def test_what_ends_while_the_server_is_away_is_done_once_and_reported_when_it_is_back(tmp_path: Path) -> None:
    def answer(_: Json) -> Json:
        return {"calls": [call("add_one", "†state.n", value=1)], "output": {"sum": "†state.n"}}

    async with model(answer) as asked:
        with world_in(tmp_path) as world:
            asked.held.add(1)
            world.programs["engine"].env |= {"OPENAI_BASE_URL": asked.url, "ACTS_OPENAI_API": "chat"}
            world.start("engine")
            client = await Client.connect(world.server.address)
            options = {"timeout": "10m"}
            plan = [call("gated", f"†state.n{n}", value=n) for n in range(GATES)]
            runs = {
                "Plan": {"context": [tool("gated", activity="gated", options=options), {"type": "plan", "plan": plan}]},
                "Agent": {"config": {"model": "openai:any"}, "context": [tool("add_one", activity="add_one")]},
            }
            for type_, request in runs.items():
                await client.start_workflow(type_, request, id=f"{world.queue}/{type_}", task_queue=world.queue)

            async def all_run() -> bool:
                return world.begun() == GATES and asked.waiting.is_set()

            await assert_eventually(all_run, within=PATIENCE, why="all calls run")
            world.kill("server")
            opened(world).touch()
            asked.release.set()
            await written(world, "engine", GIVEN_UP, GATES + 1)
            world.start("server")
            client = await Client.connect(world.server.address)
            results = [await came_to(client.get_workflow_handle(f"{world.queue}/{type_}"), within=30) for type_ in runs]
            assert results[0]["state"] == {f"n{n}": n + 1 for n in range(GATES)}
            assert results[1]["output"] == {"sum": 2}
            assert dict(asked.asked) == {1: 1}
            assert world.rows("SELECT count(*), count(DISTINCT id) FROM begun") == [(GATES + 1, GATES + 1)]


@pytest.mark.long
async def test_a_worker_that_stops_gives_back_what_it_cannot_finish(tmp_path: Path) -> None:
    with world_in(tmp_path) as world:
        world.programs["engine"].env["ACTS_SHUTDOWN_SECONDS"] = "4"
        world.start("engine")
        client = await Client.connect(world.server.address)
        tools = [tool("plain", activity="plain", options={"timeout": "24h"}),
                 tool("gated", activity="gated", options={"timeout": "24h"})]  # fmt: skip
        once = tool("once", activity="plain", options={"timeout": "24h", "retry": {"maxAttempts": 1}})
        calls = [call("plain", "†state.thread"), call("gated", "†state.loop", value=1), call("once", "†state.once")]
        request = {"context": [*tools, once, {"type": "plan", "plan": calls}]}
        handle = await client.start_workflow("Plan", request, id=f"{world.queue}/stop", task_queue=world.queue)

        async def all_run() -> bool:
            return world.begun() == len(calls)

        await assert_eventually(all_run, within=PATIENCE, why="all calls run")
        world.programs["engine"].stop()

        async def given_back() -> list[tuple[str, str]]:
            """The two Calls that may be tried again, and why their attempts failed."""
            described = (await handle.describe()).raw_description.pending_activities
            failures = [p.last_failure for p in described if p.attempt == 2]
            found = [(f.application_failure_info.type, f.message.partition(",")[0]) for f in failures]
            return found if len(found) == 2 else []

        found = await assert_eventually(given_back, within=PATIENCE, why="both calls wait for a worker")
        assert found == [("WorkerStopped", "the worker is stopping")] * 2
        opened(world).touch()
        world.start("engine")
        result = await came_to(handle, within=60)
        assert result["state"] == {"thread": 2, "loop": 2}
        assert [(e["call"], e["code"]) for e in result["errors"]] == [("3:once", "WorkerStopped")]
