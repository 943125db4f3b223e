"""Requests that would each stop a worker start together, and a small run beside them goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from tests.fuzz.worst_requests import WORST
from tests.workflow.foreign import Foreign, Handle, call, ended, failure, states
from tests.workflow.tools import echo

# Of one answer. It takes 2 s at most where the tests have two processors for themselves; a laptop under full load
# takes ten times that, and a worker that stands still gives none within the minutes of a single hostile Request
PATIENCE = timedelta(seconds=180)
STEPS = 6


def small_plan() -> Iterator[dict[str, object]]:
    for i in range(STEPS):
        yield call("echo", f"†state.c{i}", value=f"†state.c{i - 1}" if i else "through")


async def test_neighbours_of_hostile_requests_run_and_answer(foreign: Foreign) -> None:
    hostile: dict[str, Handle] = {}
    async with foreign.serving(echo):
        for name, (make, _, _) in list(WORST.items())[::2]:
            hostile[name] = await foreign.start(make())
        run = await foreign.start(foreign.request(*small_plan()))
        is_over = asyncio.create_task(ended(run, within=120))
        while not is_over.done():
            status = await run.query("status", rpc_timeout=PATIENCE)
            assert status["phase"] in ("running", "completed")
        result = await is_over
    assert set(states(result).values()) == {"completed"}
    assert result["state"][f"c{STEPS - 1}"] == "through"
    for name, handle in hostile.items():
        _, type_, expected = WORST[name]
        error = await failure(handle, within=120)
        assert (error.type, expected in error.message) == (type_, True), f"{name}: {error.message[:300]}"
        assert "Traceback" not in error.message, name
