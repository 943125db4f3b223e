"""The share of input that a prompt cache would serve: between the ticks of an agent, and between latent calls of a tick.

The requests are those of the model activity, sent by the real SDKs to a server of our own, which keeps their bodies;
``cache_rules.py`` applies the providers' rules to them. No Temporal server, no provider. The figures are exact for these
rules, so there are no rounds.

    python -m benchmarks cache
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

from acts.activities.ask_model import build_task
from acts.activities.model_context import PromptContext
from acts.activities.models import select
from acts.activities.models.adapters import close_clients
from acts.language.messages import parse_message
from acts.language.tools import read_tool
from acts.tree.records import ModelQuestion, Turn
from benchmarks.cache_rules import MODELS, PromptCache, Rules, Share
from benchmarks.tables import Table, print_progress, run_program
from tests.models import rawserver
from tests.models.rawserver import RawServer, Reply

TICKS: Final = 20
LATENT_CALLS: Final = 10
TOOLS: Final = 10
# The context of the first tick in bytes: a short task, a document, a folder of documents
CONTEXTS: Final = (1_000, 20_000, 160_000)
_RESULT_BYTES: Final = 1_000
_DOCUMENT_BYTES: Final = 1_000
_TEXT: Final = "A line of a document that somebody wrote. "
_ROOM: Final = 1e9  # nothing is compacted: what compaction costs a cache is measured by `agent`
_NOTE: Final = (
    "read: share of the input that the cache serves; cost: of the input, as a multiple of sending all of it anew. "
    "Entries never expire here, and tokens are estimated by bytes."
)


def run(rounds: int | None = None) -> Iterator[Table]:  # noqa: ARG001 - the figures are exact
    """Two tables: between ticks, and between latent calls."""
    ticks = Table(
        f"between the {TICKS} ticks of an agent",
        _columns("read, ticks 2–5", "read, ticks 6–20", "cost of all"),
        note=_NOTE,
    )
    latent = Table(
        f"between {LATENT_CALLS} latent calls of one tick",
        _columns("read, all at once", "read, one first", "cost, all at once", "cost, one first"),
        note=f"{_NOTE} The calls share the context; one first: the others begin when its answer does. "
        "Of 160,000 bytes in one place a latent call is shown a part.",
    )
    for rules in MODELS:
        for size in CONTEXTS:
            print_progress(f"cache: {rules.model}, {size:,} bytes")
            bodies = asyncio.run(_record(rules, size))
            _add_ticks(ticks, rules, size, bodies[:TICKS])
            _add_latent(latent, rules, size, bodies[TICKS:])
    yield ticks
    yield latent


def _columns(*names: str) -> list[str]:
    return ["model, bytes of context", "input tokens", *names]


def _add_ticks(table: Table, rules: Rules, size: int, bodies: list[dict[str, Any]]) -> None:
    cache = PromptCache(rules)
    shares = [share for body in bodies for share in cache.serve(body)]
    table.rows.append(
        [f"{rules.model}, {size:,}", round(_total(shares)), _read(shares[1:5]), _read(shares[5:]), _cost(shares, rules)]
    )
    table.raw.append({"model": rules.model, "context": size, "read": [s.read for s in shares]})


def _add_latent(table: Table, rules: Rules, size: int, bodies: list[dict[str, Any]]) -> None:
    together = PromptCache(rules).serve(*bodies)
    cache = PromptCache(rules)
    after_one = [*cache.serve(bodies[0]), *cache.serve(*bodies[1:])]
    figures = [_read(together), _read(after_one), _cost(together, rules), _cost(after_one, rules)]
    table.rows.append([f"{rules.model}, {size:,}", round(_total(together)), *figures])
    table.raw.append({"model": rules.model, "context": size, "read": [s.read for s in after_one]})


def _total(shares: list[Share]) -> float:
    return sum(share.total for share in shares)


def _read(shares: list[Share]) -> str:
    return f"{100 * sum(share.read for share in shares) / _total(shares):.0f} %"


def _cost(shares: list[Share], rules: Rules) -> float:
    return sum(share.cost(rules) for share in shares) / _total(shares)


# -- requests ----------------------------------------------------------------------


async def _record(rules: Rules, size: int) -> list[dict[str, Any]]:
    """The bodies of the requests of all ticks, then of the latent calls."""
    provider = "anthropic" if rules.api == "anthropic" else "openai"
    model = f"{provider}:{rules.model}"
    source = {"workflowId": "benchmark", "runId": "1", "messageCount": 1}
    settings = {"model": model, "source": source}
    async with rawserver.raw_server() as server:
        with _environment(server):
            for tick in range(1, TICKS + 1):
                request = {**settings, "ask": "solution", "tick": tick}
                await _send(server, rules, request, _context(size, tick - 1), '{"calls": [], "output": null}')
            for number in range(LATENT_CALLS):
                call = {"_tool": "tool_0", "finding": f"number {number}: " + "z" * 300}
                request = {**settings, "ask": "output", "tool": "tool_0", "call": call, "paths": ["†state.x"]}
                await _send(server, rules, {**request, "scoped": None}, _context(size, 0), '{"output": "x"}')
            await close_clients()
        return [request.body for request in server.requests]


def _environment(server: RawServer) -> Any:
    import os
    from unittest.mock import patch

    own = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1", "ACTS_OPENAI_API": "responses"}
    return patch.dict(os.environ, own)


async def _send(server: RawServer, rules: Rules, request: dict[str, Any], context: PromptContext, text: str) -> None:
    stream = rawserver.claude if rules.api == "anthropic" else rawserver.responses
    server.reply_with(Reply(events=stream(text)))
    own, _ = build_task(ModelQuestion.model_validate(request), context, _ROOM)
    await select.ask(request["model"], own)


def _context(size: int, turns: int) -> PromptContext:
    """The context of an agent after so many answers, each of one call with a result of about a kilobyte."""
    # Many documents of a kilobyte: one value alone would be shown in part
    text = (_TEXT * (_DOCUMENT_BYTES // len(_TEXT) + 1))[:_DOCUMENT_BYTES]
    messages: list[Any] = [
        {"type": "text", "text": "Read the document and note one thing of each part."},
        *({"type": "data", "kind": "documents", "data": {f"d{i}": text}} for i in range(size // _DOCUMENT_BYTES)),
    ]
    parsed = [parse_message(raw, i) for i, raw in enumerate(messages)]
    done = [Turn(at=len(parsed), answer=_answer(i), outcomes=(_outcome(i),)) for i in range(turns)]
    return PromptContext(_tools(), max_ticks=TICKS + 1, messages=parsed, turns=done)


def _answer(number: int) -> dict[str, Any]:
    return {"calls": [{"_tool": "tool_1", "finding": f"thing {number}"}], "output": None}


def _outcome(number: int) -> dict[str, Any]:
    return {"call": "1:tool_1", "outcome": "completed", "result": json.dumps(number) + "y" * _RESULT_BYTES}


def _tools() -> dict[str, Any]:
    out = {}
    for number in range(TOOLS):
        name = f"tool_{number}"
        parameters = {f"value_{i}": {"type": "string", "description": f"What is meant by {i}"} for i in range(4)}
        own = {"finding": {"type": "string"}, **parameters, "_output": {"type": "string"}}
        schema = {"description": f"Do the thing of number {number}", "properties": own, "required": ["finding"]}
        tool, _ = read_tool(name, schema)
        if tool is not None:
            out[name] = tool
    return out


if __name__ == "__main__":
    run_program("cache", run)
