"""``def`` Tools in processes: results, failures, heartbeats and cancellation; one that dies fails its call alone."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from cli.dev.temporal_server import DevServer
from tests.crash.test_stuck import SOON, Victim, start
from tests.support import assert_eventually

Json = Any


@pytest.fixture
def victim(server: DevServer, tmp_path: Path) -> Any:
    found = Victim(
        server, tmp_path, ACTS_ACTIVITIES="tests.crash.process_tools", ACTS_ACTIVITY_PROCESSES="2", MARKS=str(tmp_path)
    )
    yield found
    found.process.kill()
    found.process.wait()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_calls_run_in_processes_and_a_dead_one_fails_its_call_alone(server: DevServer, victim: Victim) -> None:
    client = await Client.connect(server.address)
    handle = await start(client, victim, ("describe", 1), ("die_once", 1), ("describe", 2), ("describe", 3))
    state = (await asyncio.wait_for(handle.result(), 2 * SOON))["state"]
    assert state["s1"] == "alive"
    described = [state[key] for key in ("s0", "s2", "s3")]
    assert {one["workflow"] for one in described} == {handle.id}
    assert {one["type"] for one in described} == {"describe"}
    assert len({one["id"] for one in described}) == 3
    assert victim.process.pid not in {one["pid"] for one in described}
    failing = await start(client, victim, ("refuse", 1))
    with pytest.raises(Exception) as failure:  # noqa: PT011 - its details are checked
        await asyncio.wait_for(failing.result(), 2 * SOON)
    assert "not today" in repr(failure.value.__cause__)
    (trace,) = [
        event.activity_task_failed_event_attributes.failure.stack_trace
        async for event in failing.fetch_history_events()
        if event.HasField("activity_task_failed_event_attributes")
    ]
    assert trace.splitlines()[0].endswith("in refuse")
    victim.process.send_signal(signal.SIGTERM)
    assert await victim.end() == 0


@pytest.mark.parametrize("how", ["polite", "deaf"])
async def test_a_cancelled_call_ends(server: DevServer, victim: Victim, tmp_path: Path, how: str) -> None:
    client = await Client.connect(server.address)
    handle = await start(client, victim, ("wait_for_cancel", how))
    within = timedelta(seconds=SOON)
    mark = tmp_path / f"pid-{how}"

    async def has_begun() -> bool:
        return mark.exists() and bool(mark.read_text())

    await assert_eventually(has_begun, within=within, why="the tool runs")
    pid = int(mark.read_text())
    await handle.cancel()

    async def has_ended() -> bool:
        return (tmp_path / f"cancelled-{how}").exists() and (how == "polite" or not is_alive(pid))

    await assert_eventually(has_ended, within=within, why="the cancellation reached the tool")
    assert is_alive(pid) == (how == "polite")
