"""Asks each configured model provider for small plans, and prints what it supports and costs.

    python -m tools.live_smoke [--model provider:name | endpoint/name ...] [--tools 1,5,20,50]

For each model: one tick of an agent with each number of Tools; the last of these again, which should be read from the
cache; and one with an effort. The column ``schema`` is the form in which the provider took the schema (docs/models.md),
or ``error``; ``call`` are the seconds until the first Call, fewer than ``seconds`` where answers are streamed.
Without a key and without a base URL nothing is requested, and that is no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from acts.activities.models import select
from acts.activities.models.interface import ModelError, ModelRequest, ModelTurn, PromptBlock
from acts.language.messages import parse_message
from acts.language.schemas import Checker
from acts.language.tools import Tool, read_tool
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import render_planner_prompt

# provider: (the variables that configure it, the default model)
PROVIDERS: Final = {
    "anthropic": (("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"), "claude-haiku-5-5"),
    "openai": (("OPENAI_API_KEY", "OPENAI_BASE_URL"), "gpt-5.6-luna"),
}
COUNTS: Final = "1,5,20,50"
# A provider compiles a new schema for up to three minutes
TIMEOUT_SECONDS: Final = 240
COLUMNS: Final = ("model", "tools", "schema", "call", "seconds", "input", "cached", "output", "USD", "answer")
EFFORT: Final = "low"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = "provider:name, or endpoint/name of ACTS_MODELS; may be repeated"
    parser.add_argument("--model", action="append", default=[], metavar="MODEL", help=text)
    parser.add_argument("--tools", default=COUNTS, metavar="N,N", help=f"numbers of Tools (default {COUNTS})")
    arguments = parser.parse_args()
    defaults = [f"{name}:{model}" for name, (keys, model) in PROVIDERS.items() if any(map(os.environ.get, keys))]
    models = arguments.model or defaults
    if not models:
        names = ", ".join(name for names, _ in PROVIDERS.values() for name in names)
        print(f"No model provider is configured, so nothing was requested. Set one of: {names}")
        return 0
    rows = asyncio.run(request_all(models, [int(n) for n in arguments.tools.split(",")]))
    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=200, markup=False).print(table)
    return int(any(row[2] == "error" for row in rows))


Row = tuple[str, ...]


async def request_all(models: list[str], counts: list[int]) -> list[Row]:
    """One request after another: concurrent ones would disturb each other's times."""
    rows = []
    for model in models:
        rows += [await request_plan(model, count, str(count)) for count in counts]
        rows.append(await request_plan(model, counts[-1], f"{counts[-1]} again"))
        rows.append(await request_plan(model, counts[0], f"{counts[0]}, effort {EFFORT}", effort=EFFORT))
    return rows


async def request_plan(model: str, count: int, check: str, effort: str | None = None) -> Row:
    """The row of one request."""
    tools = build_tools(count)
    schema = compose_solution_schema(tools, None)
    task = 'Call the tool "tool_1" once, with amount 12.5 and the note "smoke". Call nothing else.'
    prompt = render_planner_prompt([parse_message({"type": "text", "text": task})], (), tools)
    request = ModelRequest(
        model, tuple(PromptBlock(part.text, is_cached=True) for part in prompt.system),
        tuple(ModelTurn(turn.role, (PromptBlock(turn.text, is_cached=True),)) for turn in prompt.turns),
        schema, maxOutputTokens=4_000, effort=effort, cache_key="live-smoke",
    )  # fmt: skip
    start, arrivals = time.monotonic(), list[float]()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            response = await select.ask(model, request, lambda *_: arrivals.append(time.monotonic() - start))
    except (ModelError, TimeoutError) as error:
        seconds = f"{time.monotonic() - start:.1f}"
        return (
            model,
            check,
            "error",
            "",
            seconds,
            "",
            "",
            "",
            "",
            str(error) or f"no answer within {TIMEOUT_SECONDS} s",
        )
    times = (f"{arrivals[0]:.1f}" if arrivals else "", f"{time.monotonic() - start:.1f}")
    tokens = response.tokens
    counts = (str(tokens.inputTokens), str(tokens.cachedTokens), str(tokens.outputTokens))
    price = "?" if response.cost is None else f"{response.cost:.5f}"
    verdict = "; ".join([judge_answer(response.value, schema), *response.notes])
    return (model, check, response.form or "none", *times, *counts, price, verdict)


def judge_answer(value: Any, schema: dict[str, Any]) -> str:
    """The verdict on an answer: ``ok``, or the reason why not."""
    if defects := Checker(schema).defects(value):
        return f"does not fit: {defects[0][1]}"
    names = [call["_tool"] for call in value["calls"]]
    return "ok" if names == ["tool_1"] else f"fits, but calls {names}"


def build_tools(count: int) -> dict[str, Tool]:
    """Tools with a required and some optional parameters, one of them an open map."""
    out = {}
    text = {"type": "string"}
    for name in (f"tool_{i}" for i in range(1, count + 1)):
        properties = {
            "_tool": {"const": name}, "_activity": {"const": name}, "amount": {"type": "number"}, "note": text,
            "level": {"enum": ["low", "high"]}, "labels": {"type": "object", "additionalProperties": text},
            "_outputPath": text,
        }  # fmt: skip
        schema = {"type": "object", "description": f"Does what {name} does.", "properties": properties}
        tool, _ = read_tool(name, {**schema, "required": ["amount"], "additionalProperties": False})
        if tool is not None:
            out[name] = tool
    return out


if __name__ == "__main__":
    sys.exit(main())
