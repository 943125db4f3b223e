"""Asks each configured model provider for small plans, and prints what it supports and costs.

    python -m benchmarks.live_smoke [--model provider:name | endpoint/name ...] [--tools 1,5,20,50] [--report FILE]

For each model: one tick of an agent with each number of Tools; the last of these again, which should be read from the
cache; and one with an effort. The column ``schema`` is the form in which the provider took the schema (docs/agents.md),
or ``error``; ``call`` are the seconds until the first Call, fewer than ``seconds`` where answers are streamed.
The report, ``live-DATE.md`` in the current folder, has the table, then each request's last turn, its schema and the
answer. Without a key and without a base URL nothing is requested or written, and that is no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from acts.activities.models import select
from acts.activities.models.interface import ModelError, ModelRequest, ModelTurn, PromptBlock
from acts.language.messages import parse_message
from acts.language.schemas import Checker
from acts.language.tools import Tool, read_tool
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import render_planner_prompt
from benchmarks.tables import Table

# provider: (the variables that configure it, the default model)
PROVIDERS = {
    "anthropic": (("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"), "claude-haiku-5-5"),
    "openai": (("OPENAI_API_KEY", "OPENAI_BASE_URL"), "gpt-5.6-luna"),
}
# A provider compiles a new schema for up to three minutes
TIMEOUT_SECONDS = 240
COLUMNS = ("model", "tools", "schema", "call", "seconds", "input", "cached", "output", "USD", "answer")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = "provider:name, or endpoint/name of ACTS_MODELS; may be repeated"
    parser.add_argument("--model", action="append", default=[], metavar="MODEL", help=text)
    parser.add_argument("--tools", default="1,5,20,50", metavar="N,N", help="numbers of Tools (default %(default)s)")
    report = f"live-{datetime.now(UTC):%Y-%m-%d}.md"
    parser.add_argument("--report", type=Path, default=Path(report), metavar="FILE", help="(default %(default)s)")
    arguments = parser.parse_args()
    defaults = [f"{name}:{model}" for name, (keys, model) in PROVIDERS.items() if any(map(os.environ.get, keys))]
    models = arguments.model or defaults
    if not models:
        names = ", ".join(name for names, _ in PROVIDERS.values() for name in names)
        print(f"No model provider is configured, so nothing was requested. Set one of: {names}")
        return 0
    transcripts: list[str] = []
    rows = asyncio.run(request_all(models, [int(n) for n in arguments.tools.split(",")], transcripts))
    table = Table(f"models, live, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", [*COLUMNS], [[*row] for row in rows]).text()
    print(table)
    arguments.report.write_text("\n".join([table, *transcripts]), "utf-8")
    return int(any(row[2] == "error" for row in rows))


async def request_all(models: list[str], counts: list[int], transcripts: list[str]) -> list[tuple[str, ...]]:
    """One request after another: concurrent ones would disturb each other's times."""
    checks: list[tuple[int, str, str | None]] = [(count, str(count), None) for count in counts]
    checks += [(counts[-1], f"{counts[-1]} again", None), (counts[0], f"{counts[0]}, effort low", "low")]
    return [await request_plan(model, *check, transcripts) for model in models for check in checks]


async def request_plan(
    model: str, count: int, check: str, effort: str | None, transcripts: list[str]
) -> tuple[str, ...]:
    """The row of one request; appends what was sent and answered."""
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
        text = str(error) or f"no answer within {TIMEOUT_SECONDS} s"
        transcripts.append(transcript(model, check, request, text))
        return (model, check, "error", "", f"{time.monotonic() - start:.1f}", *[""] * 4, text)
    transcripts.append(transcript(model, check, request, json.dumps(response.value, ensure_ascii=False, indent=1)))
    times = (f"{arrivals[0]:.1f}" if arrivals else "", f"{time.monotonic() - start:.1f}")
    used = response.tokens
    tokens = (str(used.inputTokens), str(used.cachedTokens), str(used.outputTokens))
    price = "?" if response.cost is None else f"{response.cost:.5f}"
    verdict = "ok"
    if defects := Checker(schema).defects(response.value):
        verdict = f"does not fit: {defects[0][1]}"
    elif (names := [call["_tool"] for call in response.value["calls"]]) != ["tool_1"]:
        verdict = f"fits, but calls {names}"
    return (model, check, response.form or "none", *times, *tokens, price, "; ".join([verdict, *response.notes]))


def transcript(model: str, check: str, request: ModelRequest, answer: str) -> str:
    """What was sent and answered, as Markdown. The rules, the same for all requests, are in ``acts prompt``."""
    sent = "\n\n".join(block.text for turn in request.turns for block in turn.blocks)
    parts = (("Sent", sent), ("Schema", json.dumps(request.schema)), ("Answered", answer))
    return "\n\n".join([f"### {model}, {check}", *(f"{title}:\n\n~~~~\n{text}\n~~~~" for title, text in parts), ""])


def build_tools(count: int) -> dict[str, Tool]:
    """Tools with a required and some optional parameters, one of them an open map."""
    out, text = {}, {"type": "string"}
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
