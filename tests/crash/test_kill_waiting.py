"""``kill -9`` of everything while people are waited for: what waits still waits, and what they say is done once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.model import model
from tests.crash.test_kill import OPTIONS, World, history, killed, request, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, ended, tool

Json = Any
PATIENCE = timedelta(seconds=180)
DATE_STEP = timedelta(milliseconds=1)  # of the dates in a result


async def waits_of(handle: Handle, *calls: str | None) -> list[dict[str, Json]]:
    """The waits, when these (a plan has no call) and nothing else wait."""

    async def found() -> list[dict[str, Json]]:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return listed if sorted(str(w.get("call")) for w in listed) == sorted(map(str, calls)) else []

    result: list[dict[str, Json]] = await assert_eventually(found, within=PATIENCE, why=f"{calls} wait")
    return result


async def each_call_ran_once(client: Client, world: World, *ids: str) -> None:
    for id_ in ids:
        _, scheduled, _ = await history(client, id_)
        assert set(scheduled.values()) <= {1}
    (done,) = world.rows("SELECT count(*), count(DISTINCT id) FROM done")
    (begun,) = world.rows("SELECT count(DISTINCT run || call), count(DISTINCT id) FROM begun")
    assert done[0] == done[1] == begun[0] == begun[1]


@pytest.mark.long
async def test_a_deadline_passes_while_everything_is_dead(tmp_path: Path) -> None:
    with world_in(tmp_path) as world:
        world.start("engine", "foreign")
        client = await Client.connect(world.server.address)
        plan = [call("add_one", "†state.a", value=1), call("add_one", "†state.b", value="†state.a")]
        config = {"approve": {"calls": True, "timeout": "2s", "onTimeout": "approve"}}
        id_ = f"{world.queue}/deadline"
        handle: Handle = await client.start_workflow(
            "Plan", request(world, *plan, **config), id=id_, task_queue=world.queue
        )

        async def first_deadline() -> datetime | None:
            """By its timer: on a busy machine it may have passed before anybody can ask what waits."""
            async for event in handle.fetch_history_events():
                duration = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
                if duration > timedelta(seconds=1):
                    return event.event_time.ToDatetime(UTC) + duration
            return None

        deadline = await assert_eventually(first_deadline, within=PATIENCE, why="the call waits")
        client = await killed(world, "server", "engine", "foreign")
        handle = client.get_workflow_handle(id_)
        result = await ended(handle, within=60)
        first, second = result["decisions"]
        assert (first["call"], first["by"], second["call"], second["by"]) == (
            "1:add_one", "onTimeout", "2:add_one", "onTimeout",
        )  # fmt: skip
        assert deadline is not None
        assert datetime.fromisoformat(first["date"]) >= deadline - DATE_STEP
        assert result["state"] == {"a": 2, "b": 3}
        await each_call_ran_once(client, world, id_)


def answer(tick: int) -> Json:
    """A plan of two Calls, then what came of them."""
    if tick > 1:
        return {"calls": [], "output": {"sum": "†state.b"}}
    plan = [call("add_one", "†state.a", value="†input.zero"), call("add_one", "†state.b", value="†state.a")]
    return {"calls": plan, "output": None}


@pytest.mark.long
async def test_an_agent_waits_through_kill_9_of_everything(tmp_path: Path) -> None:
    async with model(answer) as asked:
        with world_in(tmp_path) as world:
            world.programs["engine"].env |= {"OPENAI_BASE_URL": asked.url, "ACTS_OPENAI_API": "chat"}
            world.start("engine")
            client = await Client.connect(world.server.address)
            given = {
                "config": {"model": "openai:any", "approve": {"plan": True, "calls": ["add_one"], "timeout": "1h"}},
                "context": [{"type": "input", "zero": 0}, tool("add_one", activity="add_one", options=OPTIONS)],
            }
            id_ = f"{world.queue}/agent"
            handle: Handle = await client.start_workflow("Agent", given, id=id_, task_queue=world.queue)
            (before,) = await waits_of(handle, None)
            handle = (await killed(world, "server", "engine")).get_workflow_handle(id_)
            assert await waits_of(handle, None) == [before]
            await handle.execute_update("decide", {"decision": "approve", "by": "Ada"})
            (first,) = await waits_of(handle, "1:add_one")
            handle = (await killed(world, "server", "engine")).get_workflow_handle(id_)
            assert await waits_of(handle, "1:add_one") == [first], "the root knows of it without being told again"
            world.kill("engine")
            await handle.signal("approve", {"call": "1:add_one", "by": "Bob"})
            world.start("engine")
            await waits_of(handle, "2:add_one")
            client = await killed(world, "engine")
            handle = client.get_workflow_handle(id_)
            await handle.execute_update("decide", {"decision": "approve", "call": "2:add_one", "by": "Cleo"})
            result = await ended(handle, within=60)
            assert result["output"] == {"sum": 2}
            assert [(d.get("call"), d["by"]) for d in result["decisions"]] == [
                (None, "Ada"), ("1:add_one", "Bob"), ("2:add_one", "Cleo"),
            ]  # fmt: skip
            assert dict(asked.answered) == {1: 1, 2: 1}
            await each_call_ran_once(client, world, id_, f"{id_}/plan-1")
