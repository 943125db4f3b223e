"""Tools of a user: plain Activities, and two that a test holds in its hand. Nothing of the engine is imported here."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from tests.support import assert_eventually

Json = Any
QUICK = {"retry": {"maxAttempts": 2, "initialInterval": "1ms"}}
ONCE = {"retry": {"maxAttempts": 1}}


async def echo(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    """Gives back its parameter ``value``."""
    return call.get("value")


async def text(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> str:
    return str(call["letter"] * call["count"])


async def length(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> int:
    """That of its ``value``, and of its scopes as JSON."""
    return len(call.get("value", "")) + sum(len(json.dumps(m)) for m in context)


def noise(size: int) -> str:
    """A text that cannot be compressed to less than half."""
    return random.Random(size).randbytes(size // 2).hex()  # noqa: S311


def merged(messages: list[Json]) -> dict[str, Json]:
    """What data messages hold together."""
    return {k: v for m in messages if m["type"] == "data" for k, v in m.get("data", {}).items()}


async def refuse(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    raise ApplicationError("no funds", {"balance": 3}, type="declined", non_retryable=True)


class Gate:
    """An Activity that waits to be let through; it knows who came and who is inside."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.arrived: list[dict[str, Json]] = []
        self.inside = self.most = 0

    def activity(self, name: str = "wait") -> Callable[..., Awaitable[Json]]:
        @activity.defn(name=name)
        async def wait(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
            self.arrived.append(call)
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.opened.wait()
            finally:
                self.inside -= 1
            return call.get("value", "through")

        return wait

    async def reached(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len(self.arrived) >= count

        await assert_eventually(enough, why=f"{count} calls run")


class Heart:
    """An Activity that heartbeats until it is cancelled."""

    def __init__(self) -> None:
        self.beating, self.stopped = asyncio.Event(), asyncio.Event()

    def activity(self) -> Callable[..., Awaitable[Json]]:
        @activity.defn
        async def beat(call: Json, tool: Json, context: Json) -> None:
            self.beating.set()
            try:
                while True:
                    activity.heartbeat()
                    await asyncio.sleep(0.02)  # a heart beats in time; what is tested waits for nothing
            finally:
                self.stopped.set()

        return beat
