"""Asks each model provider that has a key for a small plan, and prints what it takes.

    python -m tools.live_smoke [--model provider:name ...] [--tools 1,5,20]

Each request is one tick of an agent with so many Tools. ``strict``: the provider
took the schema; ``fell back``: it did not, and was asked in words; else the error. It costs a
few cents. For a server of your own, name one of its models with --model. Without a key
and without a base URL nothing is asked, and that is no failure.
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
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, PromptBlock
from acts.language.messages import parse_message
from acts.language.schemas import checker
from acts.language.tools import Tool, read_tool
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import render_planner_prompt

# provider: (what configures it, the model asked unless told otherwise)
PROVIDERS: Final = {
    "anthropic": (("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"), "claude-haiku-5-5"),
    "openai": (("OPENAI_API_KEY", "OPENAI_BASE_URL"), "gpt-5.6-luna"),
}
COUNTS: Final = "1,5,20"
# A first use of a schema is compiled by the provider, for up to three minutes
TIMEOUT_SECONDS: Final = 240
COLUMNS: Final = ("model", "tools", "schema", "seconds", "input", "cached", "output", "USD", "answer")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], metavar="PROVIDER:NAME", help="may be given repeatedly")
    parser.add_argument("--tools", default=COUNTS, metavar="N,N", help=f"numbers of Tools (default {COUNTS})")
    given = parser.parse_args()
    models = given.model or [
        f"{provider}:{model}" for provider, (names, model) in PROVIDERS.items() if any(map(os.environ.get, names))
    ]
    if not models:
        names = ", ".join(name for names, _ in PROVIDERS.values() for name in names)
        print(f"No model provider is configured, so nothing was asked. Set one of: {names}")
        return 0
    rows = asyncio.run(asked(models, [int(n) for n in given.tools.split(",")]))
    print_table([COLUMNS, *(row.cells() for row in rows)])
    return 0 if all(row.answer for row in rows) else 1


@dataclass
class Row:
    """One request and what became of it."""

    model: str
    tools: int
    seconds: float
    answer: ModelResponse | None
    verdict: str

    def cells(self) -> tuple[str, ...]:
        head = (self.model, str(self.tools))
        if self.answer is None:
            return (*head, "error", f"{self.seconds:.1f}", "", "", "", "", self.verdict)
        usage, cost = self.answer.usage, self.answer.cost
        counts = (str(usage.inputTokens), str(usage.cachedTokens), str(usage.outputTokens))
        price = "?" if cost is None else f"{cost:.5f}"
        schema = "strict" if self.answer.strict else "fell back"
        return (*head, schema, f"{self.seconds:.1f}", *counts, price, self.verdict)


async def asked(models: list[str], counts: list[int]) -> list[Row]:
    """One request after another: what is measured is not disturbed by the next one."""
    return [await one(model, count) for model in models for count in counts]


async def one(model: str, count: int) -> Row:
    offered = tools(count)
    schema = compose_solution_schema(offered, None)
    task = 'Call the tool "tool_1" once, with amount 12.5 and the note "smoke". Call nothing else.'
    said = parse_message({"type": "text", "text": task})
    prompt = render_planner_prompt([said], offered, None, mode="eager", step="plan", tick=1)
    question = ModelRequest(
        model=model,
        system=tuple(PromptBlock(text, cache=True) for text in prompt.system),
        user=tuple(PromptBlock(text) for text in prompt.user),
        schema=schema,
        maxOutputTokens=4_000,
        key="live-smoke",
    )
    begun = time.monotonic()
    answer: ModelResponse | None = None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer = await select.ask(model, question)
        verdict = judged(answer.value, schema)
    except ModelError as error:
        verdict = f"{error.code}: {error.message}"
    except TimeoutError:
        verdict = f"no answer within {TIMEOUT_SECONDS} seconds"
    return Row(model, count, time.monotonic() - begun, answer, verdict)


def judged(value: Any, schema: dict[str, Any]) -> str:
    """What is to be said about an answer."""
    defects = checker(schema).defects(value)
    if defects:
        return f"does not fit: {defects[0][1]}"
    called = [call["_tool"] for call in value["calls"]]
    return "ok" if called == ["tool_1"] else f"fits, but calls {called}"


def tools(count: int) -> dict[str, Tool]:
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
