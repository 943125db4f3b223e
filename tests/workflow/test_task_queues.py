"""A backlog is no failure: Calls wait for a worker as long as it takes, and people see a queue that has none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acts.machines import run_machine
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, of_type, states, status, tool
from tests.workflow.tools import echo

Json = Any


async def test_a_queue_without_a_worker_is_shown_at_once_and_heals_when_one_comes(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_machine, "FIRST_SECONDS", 0.05)
    hold = asyncio.Event()

    async def held(call: Json, tool: Json, context: Json) -> int:
        await hold.wait()
        return 1

    near = tool("count", activity="house.count", options={})
    request = foreign.request(
        call("count", "†state.here", items=[1]), call("echo", "†state.there", value=1), call("held", "†state.x"),
        context=[near],
    )  # fmt: skip
    handle = await foreign.start(request)

    async def is_shown() -> bool:
        seen = await status(handle)
        assert states(seen) == {"1:count": "completed", "2:echo": "ready", "3:held": "ready"}
        assert [c.get("taskQueue") for c in seen["calls"]] == [None, foreign.queue, foreign.queue]
        return any(foreign.queue in note and "no worker polls" in note for note in seen.get("notes", ()))

    assert await assert_eventually(is_shown)
    details = await handle.query("__temporal_workflow_metadata")
    assert "no worker polls" in str(details)
    assert foreign.queue in str(details)

    async with foreign.serving(echo, held):

        async def is_healed() -> bool:
            seen = await status(handle)
            return "notes" not in seen and states(seen)["3:held"] == "running"

        assert await assert_eventually(is_healed)
        hold.set()
        assert (await ended(handle))["state"] == {"here": 1, "there": 1, "x": 1}


async def test_a_backlog_fails_no_call_however_short_its_timeout(foreign: Foreign) -> None:
    """Calls behind one slot, which another keeps for longer than an attempt of theirs may take."""

    async def keep_slot(call: Json, tool: Json, context: Json) -> None:
        await asyncio.sleep(2.5)

    once = {"retry": {"maxAttempts": 1}}
    tools = [foreign.tool("keep_slot", options=once), foreign.tool("echo", options={"timeout": "2s", **once})]
    calls = [call("echo", f"†state.n{n}", value=n) for n in range(5)]
    async with foreign.serving(keep_slot, echo, max_concurrent_activities=1):
        result = await foreign.run(call("keep_slot", "†data.x"), *calls, context=tools)
    assert result["state"] == {f"n{n}": n for n in range(5)}


async def test_only_the_run_that_looked_up_the_tools_asks_about_their_queues(foreign: Foreign) -> None:
    instances = [{"type": "state", "n": n, "_instance": f"i{n}"} for n in range(2)]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("echo", "†state.out", value="†state.n"), context=instances))
        await ended(handle)
        child = foreign.client.get_workflow_handle(f"{handle.id}/i0")
        assert [len(await of_type(h, "MARKER_RECORDED")) for h in (handle, child)] == [3, 0]
