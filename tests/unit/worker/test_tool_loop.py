"""Async tools in loops of their own: a blocked loop keeps nothing that could begin elsewhere."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from temporalio.exceptions import ApplicationError

from acts.worker import tool_runs as tools
from acts.worker.interceptors import ReportTurns
from acts.worker.tool_runs import ToolCall, ToolLoops

LIMIT = 60.0  # of a wait that ends at once unless the machine is very busy


@pytest.fixture
def loops() -> Iterator[ToolLoops]:
    found = ToolLoops()
    yield found
    found.close()


async def end(call: ToolCall) -> object:
    return await asyncio.wait_for(asyncio.wrap_future(call.outcome), LIMIT)


async def thread_name() -> str:
    return threading.current_thread().name


async def test_a_tool_runs_in_a_thread_that_is_not_this_one(loops: ToolLoops) -> None:
    calls = [loops.submit(thread_name(), "n") for _ in range(3)]
    assert {await end(call) for call in calls} == {"tools-1"}


async def test_calls_after_a_tool_that_blocks_begin_in_another_loop(
    loops: ToolLoops, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tools, "BLOCKED_SECONDS", 0.05)
    begun, release = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        release.wait(LIMIT)

    blocking = loops.submit(block(), "tool block of run x")
    await asyncio.to_thread(begun.wait, LIMIT)
    with caplog.at_level(logging.WARNING):
        while not loops.blocked_count:
            loops.look()
            await asyncio.sleep(0.01)
    assert await end(loops.submit(thread_name(), "q")) == "tools-2"
    assert "tool block of run x blocks the event loop" in caplog.text
    assert "test_tool_loop.py" in caplog.text
    release.set()
    await end(blocking)


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

    call = loops.submit(work(), "w")
    await asyncio.to_thread(begun.wait, LIMIT)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await end(call)
    assert cleaned == [True]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_a_tool_that_asks_to_exit_fails_alone(loops: ToolLoops, error: BaseException) -> None:
    async def leave() -> None:
        raise error

    leaving = loops.submit(leave(), "l")
    with pytest.raises((type(error), ApplicationError)):
        await asyncio.to_thread(leaving.outcome.result, LIMIT)
    assert await end(loops.submit(thread_name(), "w")) == "tools-1"


async def test_what_ends_at_once_is_reported_for_one_run_after_another() -> None:
    turns, reported = ReportTurns(1), list[str]()

    async def end(run: str, call: str) -> None:
        await turns.wait(run)
        reported.append(call)

    calls = [("set", "a"), ("set", "b"), ("set", "c"), ("set", "cancelled"), ("small", "d")]
    tasks = [asyncio.create_task(end(*call)) for call in calls]
    await asyncio.sleep(0)
    tasks[3].cancel()  # its work is done
    await asyncio.gather(*tasks)
    assert [call for call in reported if call != "cancelled"] == ["a", "b", "d", "c"]
    assert len(reported) == len(calls)
