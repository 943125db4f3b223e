"""The Activities of the measured calls, the same for the engine and for hand-written workflows.

The worker loads them with ``ACTS_ACTIVITIES=benchmarks.activities``. A hand-written workflow passes
the first argument only; the engine passes the Call, the Tool and the scoped context.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any, Final

from temporalio import activity

Json = dict[str, Any]

STEP: Final = "bench.step"
MARKED: Final = "bench.marked"
GATE: Final = "bench.gate"
CARRY: Final = "bench.carry"

# 16 characters: with the depth, a result has about 40 bytes
_TEXT: Final = "0123456789abcdef"
_BEAT_SECONDS: Final = 0.25

_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "_activity": {"const": STEP},
        "_outputPath": {"type": "string", "pattern": "^†"},
        "_output": {
            "type": "object",
            "properties": {"depth": {"type": "integer", "minimum": 1}, "text": {"type": "string"}},
            "required": ["depth", "text"],
        },
        "inputs": {"type": ["array", "object"]},
        "seconds": {"type": "number", "minimum": 0},
    },
    "required": ["inputs"],
    "additionalProperties": False,
}


def _step_schema(**properties: Json) -> Json:
    return {**_SCHEMA, "properties": {**_SCHEMA["properties"], **properties}}


TOOLS: Final[dict[str, Json]] = {
    "carry": {
        "type": "object",
        "properties": {
            "_activity": {"const": CARRY},
            "_outputPath": {"type": "string"},
            "_output": True,
            "value": {"type": "object"},
        },
    },
    "step": _SCHEMA,
    "confirm": _SCHEMA,
    "local": _step_schema(_options={"const": {"local": True}}),
    "gate": _step_schema(
        _activity={"const": GATE},
        _options={"const": {"timeout": "24h", "heartbeat": "10s", "retry": {"maxAttempts": 100, "backoff": 1}}},
    ),
    "marked": _step_schema(_activity={"const": MARKED}, _options={"const": {"heartbeat": "2s"}}),
}


@activity.defn(name=STEP)
async def step(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Wait ``seconds``; return a depth one greater than that of the deepest input."""
    if call.get("seconds"):
        await asyncio.sleep(call["seconds"])
    inputs = call["inputs"]
    results = inputs.values() if isinstance(inputs, dict) else inputs
    return {"depth": 1 + max((i["depth"] for i in results), default=0), "text": _TEXT}


@activity.defn(name="bench.note")
async def note(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Return the finding of the Call unchanged."""
    return {"finding": call["finding"]}


@activity.defn(name=CARRY)
async def carry(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Return the value of the Call, with its count one greater."""
    value: Json = call["value"]
    return {**value, "count": value["count"] + 1}


@activity.defn(name=GATE)
async def gate(call: Json, tool: Any = None, context: Any = None) -> Json:
    """A ``step`` that waits, with heartbeats, until the file exists that ``BENCH_GATE`` names."""
    path = Path(os.environ["BENCH_GATE"])
    while not path.exists():  # noqa: ASYNC240 - a local file
        activity.heartbeat()
        await asyncio.sleep(1)
    return await step(call, tool, context)


@activity.defn(name=MARKED)
async def marked(call: Json, tool: Any = None, context: Any = None) -> Json:
    """A ``step`` that writes a line when it begins and when it ends, and sends heartbeats in between."""
    start = time.monotonic()
    _mark("begin")
    while time.monotonic() - start < call.get("seconds", 0):
        activity.heartbeat()
        await asyncio.sleep(min(_BEAT_SECONDS, call["seconds"]))
    result = await step({**call, "seconds": 0}, tool, context)
    _mark("end")
    return result


def _mark(what: str) -> None:
    """Write a line to the file that ``BENCH_MARKS`` names, before anything else happens."""
    info = activity.info()
    line = {"what": what, "id": info.activity_id, "attempt": info.attempt, "pid": os.getpid(), "at": time.time()}
    with Path(os.environ["BENCH_MARKS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
