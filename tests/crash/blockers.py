"""Tools that block, and a fault in the engine: what the worker of ``test_stuck`` has loaded."""

from __future__ import annotations

import asyncio
import ctypes
import re
import time
from typing import Any

from temporalio import activity

import acts.machines.walk

Json = Any
LONG_SECONDS = 600  # much longer than a test waits for anything; the process is killed at its end


@activity.defn
async def block_loop(call: Json, tool: Json, context: Json) -> str:
    time.sleep(LONG_SECONDS)  # noqa: ASYNC251 - the mistake that the test is about
    return "late"


@activity.defn
def hang(call: Json, tool: Json, context: Json) -> str:
    time.sleep(LONG_SECONDS)
    return "late"


@activity.defn
async def wait(call: Json, tool: Json, context: Json) -> None:
    activity.logger.warning("it waits")
    await asyncio.Event().wait()


@activity.defn
def hold_lock(call: Json, tool: Json, context: Json) -> str:
    ctypes.PyDLL(None).sleep(LONG_SECONDS)  # a function of a PyDLL keeps the interpreter lock
    return "late"


@activity.defn
async def echo(call: Json, tool: Json, context: Json) -> Json:
    activity.heartbeat("here")
    return call["value"]


def tool_of(name: str) -> Json:
    properties = {"_activity": {"const": name}, "_outputPath": {"type": "string"}, "value": {}}
    return {"type": "object", "properties": properties}


TOOLS = {name: tool_of(name) for name in ("block_loop", "hang", "wait", "hold_lock", "echo")}

_completed = acts.machines.walk.Walk.completed


def spin_or_sleep(self: Any, key: str, *args: Any, **options: Any) -> Any:
    """The result of a Call whose ``value`` is "spin", "sleep" or "hold" is never written."""
    value = self.by_key[key].node.planned.get("value")
    if value == "hold":
        re.match(r"(a+)+$", "a" * 60 + "b")  # does not end, and keeps the interpreter lock
    while value == "spin":
        pass
    if value == "sleep":
        time.sleep(LONG_SECONDS)
    return _completed(self, key, *args, **options)


acts.machines.walk.Walk.completed = spin_or_sleep  # type: ignore[method-assign]
