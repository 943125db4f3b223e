"""An agent of a hundred ticks over a large context: what each tick costs, first to last.

The context holds about 200,000 tokens. Each tick the scripted model plans one call, whose
result of about a kilobyte is added to a list. Nothing of a tick may grow with the ticks
before it: history bytes, and what of the prompt differs from the last one.

    python -m benchmarks agent
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from temporalio.api.history.v1 import HistoryEvent

from acts.language.messages import parse_message
from acts.language.tools import Tool, read_tool
from acts.planner.prompt import Prompt, render_planner_prompt
from benchmarks import live
from benchmarks.live import Bench
from benchmarks.tables import Table, alone, median, say

TICKS: Final = 100
CONTEXT_BYTES: Final = 800_000  # 200,000 tokens of four bytes
DOCUMENTS: Final = 200
COLUMNS: Final = ["ticks", "history bytes per tick", "its plan's history", "prompt bytes", "of them new", "wall, ms"]
NOTE: Final = (
    "Medians over the ticks of a row. History is the agent's own, without its first event (the Request), and that of "
    "the tick's plan, a child. New are the bytes after the part that is the same as in the request before."
)


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables: per tick, and the whole."""
    yield from live.on_server(lambda bench: _measure(bench, rounds or 1))


def _request() -> dict[str, Any]:
    size = CONTEXT_BYTES // DOCUMENTS
    text = "A line of a document that somebody wrote. "
    documents = {f"d{i}": f"{i}: " + (text * (size // len(text) + 1))[: size - 10] for i in range(DOCUMENTS)}
    tool = {
        "description": "Write down one thing that was found",
        "properties": {
            "_tool": {"const": "note"}, "_activity": {"const": "bench.note"}, "found": {"type": "string"},
            "_outputPath": {"const": "†state.notes"}, "_outputMethod": {"const": "push"},
        },
        "required": ["found"],
    }  # fmt: skip
    return {
        "config": {"model": "scripted:hundred", "maxTicks": TICKS + 1},
        "context": [
            {"type": "system", "message": "Read the documents and note one thing of each."},
            {"type": "data", "kind": "documents", "data": documents},
            {"type": "tool", "tool": tool},
        ],
    }


def _script(folder: Path) -> None:
    answers: list[dict[str, Any]] = [
        {"when": {"tick": i + 1}, "solution": {"calls": [{"_tool": "note", "found": f"thing {i} " + "x" * 900}]}}
        for i in range(TICKS)
    ]
    answers.append({"when": {"tick": TICKS + 1}, "solution": {"output": {"first": "†state.notes.0"}}})
    (folder / "hundred.json").write_text(json.dumps({"answers": answers}), "utf-8")


async def _measure(bench: Bench, rounds: int) -> list[Table]:
    tables: list[Table] = []
    with tempfile.TemporaryDirectory(prefix="acts-bench-") as folder:
        _script(Path(folder))
        with live.worker(bench.server.address, ACTS_SCRIPTS=folder) as process:
            for round_ in range(rounds):
                say(f"agent: round {round_ + 1} of {rounds}")
                tables = await _once(bench, process)
    return tables


async def _once(bench: Bench, process: live.Process) -> list[Table]:
    request = _request()
    began = time.monotonic()
    handle = await bench.client.start_workflow("Agent", request, id=f"agent-{began}", task_queue=process.queue)
    result = await handle.result()
    wall = time.monotonic() - began
    if result["status"] != "completed" or result["ticks"] != TICKS + 1:
        raise RuntimeError(f"the agent ended otherwise: {result['status']}, {result['ticks']} ticks")
    events = [e async for e in handle.fetch_history_events()]
    ticks = _by_tick(events)
    own = [sum(e.ByteSize() for e in tick) for tick in ticks]
    child = []
    for i in range(TICKS):
        part = bench.client.get_workflow_handle(f"{handle.id}/plan-{i + 1}")
        child.append(sum([e.ByteSize() async for e in part.fetch_history_events()]))
    walls = [(t[-1].event_time.ToMilliseconds() - t[0].event_time.ToMilliseconds()) for t in ticks]
    prompts = _prompts(request, result, ticks)
    sizes = [sum(len(text.encode()) for text in (*p.system, *p.user)) for p in prompts]
    fresh = [sizes[0], *(_new(a, b) for a, b in pairwise(prompts))]
    per_tick = Table("an agent, tick by tick", COLUMNS, note=NOTE)
    for low, high in ((1, 10), (11, 30), (31, 50), (51, 70), (71, 90), (91, TICKS)):
        part_ = slice(low - 1, high)
        per_tick.rows.append(
            [f"{low}–{high}", *(median(values[part_]) for values in (own, child, sizes, fresh, walls))]
        )
    per_tick.raw.append({"own": own, "child": child, "prompt": sizes, "new": fresh, "ms": walls})
    usage = result["usage"]
    whole = Table("an agent of 100 ticks", ["", "figure"])
    whole.rows = [
        ["requests", usage["requests"]],
        ["tokens in, as the script estimates them", usage["inputTokens"]],
        ["context, bytes", len(json.dumps(request["context"]).encode())],
        ["agent's history, bytes", sum(e.ByteSize() for e in events)],
        ["agent's history, events", len(events)],
        ["histories of its plans, bytes", sum(child)],
        ["wall, s", wall],
    ]
    return [per_tick, whole]


def _by_tick(events: list[HistoryEvent]) -> list[list[HistoryEvent]]:
    """The events of each tick: from the request's scheduling up to the next one's."""
    ticks: list[list[HistoryEvent]] = []
    for event in events:
        if event.activity_task_scheduled_event_attributes.activity_id.startswith("tick-"):
            ticks.append([])
        if ticks:
            ticks[-1].append(event)
    return ticks


def _prompts(request: dict[str, Any], result: dict[str, Any], ticks: list[list[HistoryEvent]]) -> list[Prompt]:
    """The prompts, made again from what each request was told."""
    messages = [parse_message(raw, i) for i, raw in enumerate([*request["context"], *result["context"]])]
    tool, _ = read_tool("note", request["context"][2]["tool"])
    tools: dict[str, Tool] = {} if tool is None else {"note": tool}
    out = []
    for number, tick in enumerate(ticks):
        asked = json.loads(tick[0].activity_task_scheduled_event_attributes.input.payloads[0].data)
        shown = messages[: asked["source"]["upto"]]
        out.append(render_planner_prompt(shown, tools, None, mode="eager", step="plan", tick=number + 1))
    return out


def _new(before: Prompt, now: Prompt) -> int:
    """Bytes of ``now`` after the stable part of ``before``."""
    kept = (*before.system, *before.user[: before.stable_blocks])
    shown = (*now.system, *now.user)
    if shown[: len(kept)] != kept:
        raise RuntimeError("a request does not begin with the stable part of the one before")
    return sum(len(text.encode()) for text in shown[len(kept) :])


if __name__ == "__main__":
    alone("agent", run)
