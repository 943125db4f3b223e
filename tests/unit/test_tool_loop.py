"""Async tools in loops of their own: a blocked loop keeps nothing that could begin elsewhere."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from worker_runtime import tool_loop
from worker_runtime.tool_loop import ToolCall, ToolLoops

LIMIT = 60.0  # of a wait that ends at once unless the machine is very busy


@pytest.fixture
def loops() -> Iterator[ToolLoops]:
    found = ToolLoops()
    yield found
    found.close()


async def end(call: ToolCall) -> object:
    return await asyncio.wait_for(asyncio.wrap_future(call.outcome), LIMIT)


async def test_a_tool_runs_in_a_thread_that_is_not_this_one(loops: ToolLoops) -> None:
    async def name() -> str:
        return threading.current_thread().name

    calls = [ToolCall(name, (), "n", "x") for _ in range(3)]
    for call in calls:
        loops.submit(call)
    assert {await end(call) for call in calls} == {"tools-1"}


async def test_calls_behind_a_tool_that_blocks_begin_in_another_loop(
    loops: ToolLoops, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tool_loop, "BLOCKED_SECONDS", 0.05)
    begun, release = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        release.wait(LIMIT)

    async def quick() -> str:
        return threading.current_thread().name

    blocking, behind = ToolCall(block, (), "block", "x"), ToolCall(quick, (), "q", "y")
    loops.submit(blocking)
    await asyncio.to_thread(begun.wait, LIMIT)
    loops.submit(behind)
    with caplog.at_level(logging.WARNING):
        while not behind.outcome.done():
            loops.look()
            await asyncio.sleep(0.01)
    assert await end(behind) != "tools-1"  # "tools-2", if the machine is not so busy that it looks blocked, too
    assert "tool block of run x blocks the event loop" in caplog.text
    assert "test_tool_loop.py" in caplog.text
    assert [call for call, _ in loops.blocked_calls()] == [blocking]
    release.set()
    await end(blocking)
    assert loops.blocked_calls() == []
    assert not tool_loop._calls


async def test_a_cancelled_tool_may_clean_up_and_its_end_is_awaited(loops: ToolLoops) -> None:
    begun = threading.Event()
    cleaned = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    call = ToolCall(work, (), "w", "x")
    loops.submit(call)
    await asyncio.to_thread(begun.wait, LIMIT)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await end(call)
    assert cleaned == [True]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_a_tool_that_asks_to_exit_fails_alone(loops: ToolLoops, error: BaseException) -> None:
    begun, release = threading.Event(), asyncio.Event()

    async def leave() -> None:
        raise error

    async def wait() -> str:
        begun.set()
        await release.wait()
        return threading.current_thread().name

    waiting, leaving = ToolCall(wait, (), "w", "x"), ToolCall(leave, (), "l", "y")
    loops.submit(waiting)
    await asyncio.to_thread(begun.wait, LIMIT)
    loops.submit(leaving)
    with pytest.raises(type(error)):
        await asyncio.to_thread(leaving.outcome.result, LIMIT)
    waiting._task.get_loop().call_soon_threadsafe(release.set)  # type: ignore[union-attr]
    assert await end(waiting) == "tools-1"


def test_a_function_that_runs_out_of_an_iterator_says_so() -> None:
    with pytest.raises(RuntimeError, match="next\\(\\) found nothing"):
        tool_loop._without_stop_iteration(next)(iter(()))
    assert tool_loop._without_stop_iteration(next)(iter("a")) == "a"
