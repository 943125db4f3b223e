"""``maxParallel`` holds for the whole tree: batch children, delegates, their plans, all at once."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.foreign import RESULT_SECONDS, Foreign, Handle, call, ended, of_type, tool

Json = Any


class Counter:
    """An Activity that knows how many of it run, and how many ran at most; the first ones wait until so many do."""

    def __init__(self, together: int = 1) -> None:
        self.now = self.most = self.total = 0
        self._together, self._have_met = together, asyncio.Event()

    def activity(self) -> Callable[..., Awaitable[int]]:
        async def count(call: Json, tool: Json, context: Json) -> int:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
            if self.most >= self._together:
                self._have_met.set()
            await asyncio.wait_for(self._have_met.wait(), RESULT_SECONDS)
            await asyncio.sleep(0.01)
            self.now -= 1
            return 1

        return count


def save(folder: Path, foreign: Foreign, *calls: Json, tools: tuple[Json, ...] = ()) -> str:
    """A definition that is walked without a planner; returns its name."""
    name = f"d-{uuid.uuid4().hex[:8]}"
    context = [foreign.tool("count"), *tools, {"type": "plan", "plan": list(calls), "run": True}]
    (folder / f"{name}.json").write_text(json.dumps({"context": context}), "utf-8")
    return name


async def permit_signals(handle: Handle) -> int:
    signals = await of_type(handle, "WORKFLOW_EXECUTION_SIGNALED")
    return sum(s.signal_name.startswith("permit") for s in signals)


@pytest.mark.parametrize("per_child", [1, 5])
async def test_children_of_a_batch_and_their_delegates_share_one_limit(
    foreign: Foreign, delegates_folder: Path, per_child: int
) -> None:
    counter = Counter(together=2)
    name = save(delegates_folder, foreign, *[call("count", f"†state.n{n}", value=n) for n in range(4)])
    plan = [
        call("count", "†state.a", value=1), call("count", "†state.b", value=2), call("help", "†state.c"),
        call("count", "†state.d", value="†state.c"),
    ]  # fmt: skip
    context = [tool("help", activity="", _delegate={"const": name})]
    context += [{"type": "state", "x": n, "_instance": f"i{n}"} for n in range(6)]
    async with foreign.serving(counter.activity()):
        handle = await foreign.start(
            foreign.request(*plan, context=context, maxParallel=4, instancesPerChild=per_child)
        )
        result = await ended(handle)
    assert result["status"] == "completed"
    assert counter.total == 6 * (3 + 4)
    assert 1 < counter.most <= 4
    assert await permit_signals(handle) < counter.total // 2


async def test_delegates_seven_deep_share_a_single_permit(foreign: Foreign, delegates_folder: Path) -> None:
    counter = Counter()
    tools: tuple[Json, ...] = ()
    calls = [call("count", "†state.a", value=1), call("count", "†state.b", value=2)]
    for _ in range(7):
        name = save(delegates_folder, foreign, *calls, tools=tools)
        tools = (tool("help", activity="", _delegate={"const": name}),)
        calls = [call("count", "†state.a", value=1), call("help", "†state.b")]
    async with foreign.serving(counter.activity()):
        handle = await foreign.start(foreign.request(*calls, context=list(tools), maxParallel=1))
        assert (await ended(handle))["status"] == "completed"
    assert (counter.total, counter.most) == (9, 1)
