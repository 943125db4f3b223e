"""Asks each configured model provider for small plans, and prints what it supports and costs.

    python -m tools.live_smoke [--model provider:name | endpoint/name ...] [--tools 1,5,20,50]

For each model: one tick of an agent with each number of Tools; the last of these again, which should be read from the
cache; and one with an effort. The column ``schema`` is the form in which the provider took the schema (docs/models.md),
or ``error``; ``call`` are the seconds until the first Call, fewer than ``seconds`` where answers are streamed.
A run takes about a minute and costs a few cents. For a server of your own, name one of its models with --model. Without
a key and without a base URL nothing is requested, and that is no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, ModelTurn, PromptBlock
from acts.language.request_reader import parse_message
from acts.language.schemas import checker
from acts.language.tools import Tool, read_tool
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import PlannerView, render_planner_prompt

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
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="MODEL",
        help="provider:name, or endpoint/name of ACTS_MODELS; may be repeated",
    )
    parser.add_argument("--tools", default=COUNTS, metavar="N,N", help=f"numbers of Tools (default {COUNTS})")
    arguments = parser.parse_args()
    models = arguments.model or [
        f"{provider}:{model}" for provider, (names, model) in PROVIDERS.items() if any(map(os.environ.get, names))
    ]
    if not models:
        names = ", ".join(name for names, _ in PROVIDERS.values() for name in names)
        print(f"No model provider is configured, so nothing was requested. Set one of: {names}")
        return 0
    rows = asyncio.run(request_all(models, [int(n) for n in arguments.tools.split(",")]))
    print_table([COLUMNS, *(row.cells() for row in rows)])
    return 0 if all(row.response for row in rows) else 1


@dataclass
class Row:
    """One request and its outcome. ``first_call`` are the seconds until the first Call had arrived."""

    model: str
    check: str
    seconds: float
    first_call: float | None
    response: ModelResponse | None
    verdict: str

    def cells(self) -> tuple[str, ...]:
        head, seconds = (self.model, self.check), f"{self.seconds:.1f}"
        if self.response is None:
            return (*head, "error", "", seconds, "", "", "", "", self.verdict)
        tokens, cost = self.response.tokens, self.response.cost
        counts = (str(tokens.inputTokens), str(tokens.cachedTokens), str(tokens.outputTokens))
        price = "?" if cost is None else f"{cost:.5f}"
        first = "" if self.first_call is None else f"{self.first_call:.1f}"
        verdict = "; ".join([self.verdict, *self.response.notes])
        return (*head, self.response.form or "none", first, seconds, *counts, price, verdict)


async def request_all(models: list[str], counts: list[int]) -> list[Row]:
    """One request after another: concurrent ones would disturb each other's times."""
    rows = []
    for model in models:
        rows += [await request_plan(model, count, str(count)) for count in counts]
        again = await request_plan(model, counts[-1], f"{counts[-1]} again")
        if again.response is not None and not again.response.tokens.cachedTokens:
            again.verdict += "; nothing was read from the cache"
        rows += [again, await request_plan(model, counts[0], f"{counts[0]}, effort {EFFORT}", effort=EFFORT)]
    return rows


async def request_plan(model: str, count: int, check: str, effort: str | None = None) -> Row:
    tools = build_tools(count)
    schema = compose_solution_schema(tools, None)
    task = 'Call the tool "tool_1" once, with amount 12.5 and the note "smoke". Call nothing else.'
    message = parse_message({"type": "text", "text": task})
    prompt = render_planner_prompt([message], (), PlannerView(tools))
    request = ModelRequest(
        model=model,
        system=tuple(PromptBlock(part.text, is_cached=True) for part in prompt.system),
        turns=tuple(ModelTurn(turn.role, (PromptBlock(turn.text, is_cached=True),)) for turn in prompt.turns),
        schema=schema,
        maxOutputTokens=4_000,
        effort=effort,
        cache_key="live-smoke",
    )
    start, arrivals = time.monotonic(), list[float]()
    response: ModelResponse | None = None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            response = await select.ask(model, request, lambda *_: arrivals.append(time.monotonic() - start))
        verdict = judge_answer(response.value, schema)
    except ModelError as error:
        verdict = f"{error.code}: {error.message}"
    except TimeoutError:
        verdict = f"no answer within {TIMEOUT_SECONDS} seconds"
    return Row(model, check, time.monotonic() - start, arrivals[0] if arrivals else None, response, verdict)


def judge_answer(value: Any, schema: dict[str, Any]) -> str:
    """The verdict on an answer: ``ok``, or the reason why not."""
    defects = checker(schema).defects(value)
    if defects:
        return f"does not fit: {defects[0][1]}"
    names = [call["_tool"] for call in value["calls"]]
    return "ok" if names == ["tool_1"] else f"fits, but calls {names}"


def build_tools(count: int) -> dict[str, Tool]:
    """Tools with a required and some optional parameters, one of them an open map."""
    out = {}
    for name in (f"tool_{i}" for i in range(1, count + 1)):
        schema = {
            "type": "object",
            "description": f"Does what {name} does.",
            "properties": {
                "_tool": {"const": name},
                "_activity": {"const": name},
                "amount": {"type": "number"},
                "note": {"type": "string"},
                "level": {"enum": ["low", "high"]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "_outputPath": {"type": "string"},
            },
            "required": ["amount"],
            "additionalProperties": False,
        }
        tool, _ = read_tool(name, schema)
        if tool is not None:
            out[name] = tool
    return out


def print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS) - 1)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
