"""What the engine's worker of these tests has loaded, as ``ACTS_ACTIVITIES`` would."""

from __future__ import annotations

import asyncio
import base64
import random
import sys
from collections import Counter
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError


@activity.defn
async def greet(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> str:
    return f"hello {call['name']}"


@activity.defn(name="house.count")
async def count(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    return len(call["items"])


@activity.defn
async def big(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> str:
    return "x" * int(call["n"])


_runs: Counter[str] = Counter()


@activity.defn(name="countedBig")
async def counted_big(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> dict[str, Any]:
    """A large text, and how often this Call has run."""
    _runs[call["_id"]] += 1
    return {"text": "x" * int(call["n"]), "runs": _runs[call["_id"]]}


@activity.defn
async def noise(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> str:
    """What cannot be compressed."""
    return base64.b64encode(random.randbytes(int(call["n"]) * 3 // 4)).decode()  # noqa: S311 - no secret


@activity.defn
async def small(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    return int(call["n"])


@activity.defn
async def loud(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> None:
    raise ApplicationError("no", "x" * int(call["n"]), type="loud", non_retryable=True)


def _fail_at(depth: int) -> None:
    if depth:
        _fail_at(depth - 1)
    raise OSError("the line is cut")


def _fail_for_reasons() -> None:
    """As a library does it that passes a failure on through two others, each with a stack of its own."""
    try:
        try:
            _fail_at(30)
        except OSError as error:
            raise ConnectionError("no connection") from error
    except ConnectionError as error:
        raise RuntimeError("not sent") from error


@activity.defn
async def break_in_loop(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> None:
    _fail_for_reasons()


@activity.defn
def break_in_thread(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> None:
    _fail_for_reasons()


@activity.defn
def break_oddly(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> None:
    """Fail as a Tool that runs out of an iterator, or as a library with a loop of attempts, each with its cause."""
    if call["how"] == "next":
        next(iter(()))
    error = OSError("the origin")
    for number in range(95):
        outer = RuntimeError(f"attempt {number}")
        outer.__cause__ = error
        error = outer
    raise error


@activity.defn
async def leave(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> None:
    sys.exit(3)


TOOLS = {
    "greet": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "_outputPath": {"type": "string"}},
        "required": ["name"],
    },
    "tally": {
        "type": "object",
        "properties": {
            "items": {"type": "array"},
            "_activity": {"const": "house.count"},
            "_outputPath": {"const": "†state.tally"},
        },
    },
}


_crowd: Counter[str] = Counter()


@activity.defn
async def crowd(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    """How many of these run at once."""
    _crowd["now"] += 1
    await asyncio.sleep(0.05)
    most = _crowd["now"]
    _crowd["now"] -= 1
    return most
