"""An agent of a hundred ticks with a large context: the cost of each tick.

The context has about 45,000 tokens. In each tick the scripted model plans one call, whose
result of about a kilobyte is added to a list. The cost of a tick must not grow with the
ticks before it: its history bytes, and the new part of its prompt.

    python -m benchmarks agent
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

from temporalio.api.history.v1 import HistoryEvent

from acts.language.messages import parse_message
from acts.language.tools import read_tool
from acts.language.wire import PROMPT_CONTEXT
from acts.planner.prompt import Prompt, render_planner_prompt
from acts.planner.request_estimate import conversation_room
from acts.tree.records import Turn
from benchmarks import live
from benchmarks.live import Bench
from benchmarks.tables import Table, median, print_progress, run_program

TICKS: Final = 100
CONTEXT_BYTES: Final = 160_000  # 45,000 tokens; with what the ticks add, it just fills the room of a small window
DOCUMENTS: Final = 200
COLUMNS: Final = ["ticks", "history bytes per tick", "history of its plan", "prompt bytes", "of these new", "wall, ms"]
NOTE: Final = (
    "Medians over the ticks of a row. The first history is that of the agent, without its first event (the Request); the "
    "second that of the tick's plan, a child. New bytes follow the part that equals the previous request."
)


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables: per tick, and for the whole run."""
    yield from live.on_server(lambda bench: _measure(bench, rounds or 1))


def _build_request() -> dict[str, Any]:
    size = CONTEXT_BYTES // DOCUMENTS
    text = "A line of a document that somebody wrote. "
    documents = [
        {"type": "data", "kind": "documents", "data": {f"d{i}": (text * (size // len(text) + 1))[: size - 10]}}
        for i in range(DOCUMENTS)
    ]  # fmt: skip
    tool = {
        "description": "Write down one finding",
        "properties": {
            "_tool": {"const": "note"}, "_activity": {"const": "bench.note"}, "finding": {"type": "string"},
            "_outputPath": {"const": "†state.notes"}, "_outputMethod": {"const": "push"},
        },
        "required": ["finding"],
    }  # fmt: skip
    return {
        "config": {"model": "scripted:hundred", "maxTicks": TICKS + 1},
        "context": [
            {"type": "system", "message": "Read the documents and note one thing of each."},
            {"type": "tool", "tool": tool},
            *documents,
        ],
    }


def _write_script(folder: Path) -> None:
    answers: list[dict[str, Any]] = [
        {"when": {"tick": i + 1}, "solution": {"calls": [{"_tool": "note", "finding": f"thing {i} " + "x" * 900}]}}
        for i in range(TICKS)
    ]
    answers.append({"when": {"tick": TICKS + 1}, "solution": {"output": {"first": "†state.notes.0"}}})
    (folder / "hundred.json").write_text(json.dumps({"answers": answers}), "utf-8")


async def _measure(bench: Bench, rounds: int) -> list[Table]:
    tables: list[Table] = []
    with tempfile.TemporaryDirectory(prefix="acts-bench-") as folder:
        _write_script(Path(folder))
        with live.worker(bench.server.address, ACTS_SCRIPTS=folder) as process:
            for round_ in range(rounds):
                print_progress(f"agent: round {round_ + 1} of {rounds}")
                tables = await _measure_once(bench, process)
    return tables


async def _measure_once(bench: Bench, process: live.Process) -> list[Table]:
    request = _build_request()
    start = time.monotonic()
    handle = await bench.client.start_workflow("Agent", request, id=f"agent-{start}", task_queue=process.queue)
    result = await handle.result()
    wall = time.monotonic() - start
    if result["status"] != "completed" or result["ticks"] != TICKS + 1:
        raise RuntimeError(f"unexpected end of the agent: {result['status']}, {result['ticks']} ticks")
    events = [e async for e in handle.fetch_history_events()]
    ticks = _group_by_tick(events)
    own = [sum(e.ByteSize() for e in tick) for tick in ticks]
    child = []
    for i in range(TICKS):
        part = bench.client.get_workflow_handle(f"{handle.id}/plan-{i + 1}")
        child.append(sum([e.ByteSize() async for e in part.fetch_history_events()]))
    walls = [(t[-1].event_time.ToMilliseconds() - t[0].event_time.ToMilliseconds()) for t in ticks]
    prompts = await _render_prompts(handle, ticks)
    sizes = [len(prompt.text.encode()) for prompt in prompts]
    new_bytes = [sizes[0], *(_count_new_bytes(a, b) for a, b in pairwise(prompts))]
    per_tick = Table("an agent, tick by tick", COLUMNS, note=NOTE)
    for low, high in ((1, 10), (11, 30), (31, 50), (51, 70), (71, 90), (91, TICKS)):
        part_ = slice(low - 1, high)
        per_tick.rows.append(
            [f"{low}–{high}", *(median(values[part_]) for values in (own, child, sizes, new_bytes, walls))]
        )
    per_tick.raw.append({"own": own, "child": child, "prompt": sizes, "new": new_bytes, "ms": walls})
    usage = result["usage"]
    whole = Table("an agent of 100 ticks", ["", "figure"])
    whole.rows = [
        ["requests", usage["requests"]],
        ["input tokens, as the script estimates them", usage["inputTokens"]],
        ["context, bytes", len(json.dumps(request["context"]).encode())],
        ["agent's history, bytes", sum(e.ByteSize() for e in events)],
        ["agent's history, events", len(events)],
        ["histories of its plans, bytes", sum(child)],
        ["wall, s", wall],
    ]
    return [per_tick, whole]


def _group_by_tick(events: list[HistoryEvent]) -> list[list[HistoryEvent]]:
    """The events of each tick: from the scheduling of its request to that of the next one."""
    ticks: list[list[HistoryEvent]] = []
    for event in events:
        if event.activity_task_scheduled_event_attributes.activity_id.startswith("tick-"):
            ticks.append([])
        if ticks:
            ticks[-1].append(event)
    return ticks


async def _render_prompts(handle: Any, ticks: list[list[HistoryEvent]]) -> list[Prompt]:
    """The prompt of each request, rendered again from what the run answers."""
    page = await handle.query(PROMPT_CONTEXT, {"offset": 0, "turns": [0, len(ticks)]})
    messages = [parse_message(raw, i) for i, raw in enumerate(page["messages"])]
    turns = [Turn.from_json(turn) for turn in page["turns"]]
    tool, _ = read_tool("note", page["tools"]["note"]["schema"])
    tools, room = {} if tool is None else {"note": tool}, conversation_room("scripted:hundred", None)
    out = []
    for number, tick in enumerate(ticks):
        query = json.loads(tick[0].activity_task_scheduled_event_attributes.input.payloads[0].data)
        out.append(render_planner_prompt(messages[: query["source"]["messageCount"]], turns[:number], tools, room=room))
    return out


def _count_new_bytes(before: Prompt, now: Prompt) -> int:
    """Bytes of ``now`` that do not begin it as they began ``before``; all of the turns where they were cut."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before.turns, now.turns, strict=False)))
    return sum(len(turn.text.encode()) for turn in now.turns[same:])


if __name__ == "__main__":
    run_program("agent", run)
