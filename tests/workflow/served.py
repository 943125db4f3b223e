"""What the engine's worker of these tests has loaded, as ``ACTS_ACTIVITIES`` would."""

from __future__ import annotations

from typing import Any

from temporalio import activity


@activity.defn
async def greet(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> str:
    return f"hello {call['name']}"


@activity.defn(name="house.count")
async def count(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    return len(call["items"])


@activity.defn
async def big(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> str:
    return "x" * int(call["n"])


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
