"""A tree of two hundred delegates, three deep, with a budget for half of them.

Each of eight delegates has four, and each of these has five: saved Requests, loaded from a
folder, each an agent with one request to the model. The root keeps the budget of all of them.
The tables have the usage against the budget, and the cost of the tree with and without a budget.

    python -m benchmarks tree
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from temporalio.client import WorkflowFailureError

from acts.language.wire import DELEGATE, PLAN
from benchmarks import live
from benchmarks.live import Bench, Process
from benchmarks.tables import Cell, Table, median, print_progress, run_program

# The name of each level's definition (its script finds it by this name), and its width
LEVELS: Final = (("team", 8), ("group", 4), ("clerk", 5))
DELEGATES: Final = 8 + 8 * 4 + 8 * 4 * 5
# The usage of each request of the scripted model; all together use twice the budget of either case
TOKENS: Final = 1_000
CASES: Final[dict[str, dict[str, Any]]] = {
    "no budget": {},
    "requests: 100": {"requests": DELEGATES // 2},
    "tokens: 100,000": {"tokens": DELEGATES // 2 * TOKENS},
}
ROUNDS: Final = 3
USAGE_COLUMNS: Final = ["", "requests", "tokens", "over the budget", "over, at most", "delegates started"]
COST_COLUMNS: Final = [
    "", "wall, s", "worker CPU, s", "server CPU, s", "runs", "events per delegate", "bytes per delegate",
    "signals to the root", "events of the root", "bytes of the root",
]  # fmt: skip
NOTE: Final = f"{DELEGATES} delegates make a request each, of {TOKENS:,} tokens. Medians of the rounds."
HISTORIES: Final = "Runs, events and bytes: of all delegates and the plans of their ticks, without the root."


@dataclass
class Cost:
    """The usage and the cost of one tree."""

    wall: float
    worker_cpu: float | None
    server_cpu: float | None
    requests: int
    tokens: int
    runs: int = 0
    delegates: int = 0
    events: int = 0
    size: int = 0
    root: tuple[int, int] = (0, 0)
    signals: Counter[str] = field(default_factory=Counter)


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables: the usage, and the cost."""
    yield from live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))


# -- the tree ------------------------------------------------------------------


def _tool(name: str) -> dict[str, Any]:
    path = {"type": "string", "pattern": "^†"}
    properties = {"_tool": {"const": name}, "_delegate": {"const": name}, "_outputPath": path, "_errorPath": path}
    return {"type": "tool", "tool": {"properties": {**properties, "part": {"type": "integer"}}, "required": ["part"]}}


def _calls(name: str, width: int) -> list[dict[str, Any]]:
    return [
        {"_tool": name, "part": n, "_outputPath": f"†state.part{n}", "_errorPath": f"†state.refused{n}"}
        for n in range(width)
    ]


def _below(level: int) -> tuple[str, int] | None:
    return LEVELS[level + 1] if level + 1 < len(LEVELS) else None


def _write_definitions(folder: Path) -> None:
    """Write a definition for each level."""
    for level, (name, _) in enumerate(LEVELS):
        below = _below(level)
        schema = {"type": "object", "properties": {"part": {"type": "integer"}}}
        context = [
            {"type": "system", "message": f"You are the {name} for one part of the work. Divide it, and report."},
            *([_tool(below[0])] if below else []),
            {"type": "input", "schema": schema},
        ]
        (folder / f"{name}.json").write_text(json.dumps({"context": context}, ensure_ascii=False), "utf-8")


def _write_script(folder: Path) -> None:
    """Write the answers of the model at each level: the parts, or the end."""
    answers: list[dict[str, Any]] = []
    for level, (name, _) in enumerate(LEVELS):
        below = _below(level)
        solution = {"calls": _calls(*below), "output": "†state"} if below else {"calls": [], "output": {"done": True}}
        usage = {"inputTokens": TOKENS - 100, "outputTokens": 100}
        answers.append({"when": {"says": [f"You are the {name} "]}, "solution": solution, "usage": usage})
    (folder / "tree.json").write_text(json.dumps({"answers": answers}, ensure_ascii=False), "utf-8")


def request(budget: dict[str, Any]) -> dict[str, Any]:
    """The plan at the root."""
    config = {"model": "scripted:tree", **({"budget": budget} if budget else {})}
    return {"config": config, "context": [_tool(LEVELS[0][0]), {"type": "plan", "plan": _calls(*LEVELS[0])}]}


# -- measuring -----------------------------------------------------------------


async def _measure(bench: Bench, rounds: int) -> list[Table]:
    costs: dict[str, list[Cost]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory(prefix="acts-bench-") as name:
        folder = Path(name)
        _write_definitions(folder)
        _write_script(folder)
        with live.worker(bench.server.address, ACTS_SCRIPTS=name, ACTS_DELEGATES=name) as process:
            await _measure_once(bench, process, "warm", {"requests": 12})
            for round_ in range(rounds):
                print_progress(f"tree: round {round_ + 1} of {rounds}")
                for case, budget in CASES.items():
                    costs[case].append(await _measure_once(bench, process, f"tree-{len(costs[case])}", budget))
    return [_usage_table(costs), _cost_table(costs)]


async def _measure_once(bench: Bench, process: Process, name: str, budget: dict[str, Any]) -> Cost:
    before = live.cpu_seconds(process.pid), live.cpu_seconds(bench.server.pid)
    start = time.perf_counter()
    handle = await bench.client.start_workflow(
        PLAN, request(budget), id=f"{name}-{time.monotonic_ns()}", task_queue=process.queue
    )
    try:
        result = await handle.result()
    except WorkflowFailureError as error:
        result = error.cause.details[0]  # type: ignore[union-attr] - it fails with its result
    wall = time.perf_counter() - start
    cpu = [
        None if a is None or b is None else a - b
        for a, b in zip((live.cpu_seconds(process.pid), live.cpu_seconds(bench.server.pid)), before, strict=True)
    ]
    usage = result["usage"]
    cost = Cost(wall, cpu[0], cpu[1], usage["requests"], usage["inputTokens"] + usage["outputTokens"])
    await _read_histories(bench, handle.id, cost)
    _require_within(cost, budget)
    return cost


async def _read_histories(bench: Bench, root: str, cost: Cost) -> None:
    """Add the histories of a tree to its cost, from its root down."""
    unread = [(root, PLAN)]
    while unread:
        id_, kind = unread.pop()
        info = await bench.info(id_)
        events = [e async for e in bench.client.get_workflow_handle(id_).fetch_history_events()]
        if id_ == root:
            cost.root = (info.history_length, info.history_size_bytes)
            names = (e.workflow_execution_signaled_event_attributes.signal_name for e in events)
            cost.signals = Counter(name for name in names if name)
        else:
            cost.runs += 1
            cost.delegates += kind == DELEGATE
            cost.events += info.history_length
            cost.size += info.history_size_bytes
        starts = (e.child_workflow_execution_started_event_attributes for e in events)
        unread += [(s.workflow_execution.workflow_id, s.workflow_type.name) for s in starts if s.workflow_type.name]


def _require_within(cost: Cost, budget: dict[str, Any]) -> None:
    """Raise RuntimeError unless the tree made every request or, with a budget, stayed within it (and a small error)."""
    if not budget and (cost.requests, cost.delegates) != (DELEGATES, DELEGATES):
        raise RuntimeError(f"{cost.requests} requests and {cost.delegates} delegates, not {DELEGATES}")
    if cost.requests > budget.get("requests", DELEGATES):
        raise RuntimeError(f"{cost.requests} requests of {budget}")
    if "tokens" in budget and cost.tokens > 1.05 * budget["tokens"]:
        raise RuntimeError(f"{cost.tokens} tokens of {budget}")


def _usage_table(by_case: dict[str, list[Cost]]) -> Table:
    out = Table(f"{DELEGATES} delegates, three deep, and one budget", USAGE_COLUMNS, note=NOTE)
    for case, costs in by_case.items():
        budget = CASES[case]
        over: Cell = None
        if "requests" in budget:
            over = max(c.requests - budget["requests"] for c in costs)
        elif "tokens" in budget:
            over = max(c.tokens - budget["tokens"] for c in costs)
        out.rows.append([
            case, median([c.requests for c in costs]), median([c.tokens for c in costs]), over,
            None if over is None else f"{over / (budget.get('requests') or budget['tokens']):+.1%}",
            median([c.delegates for c in costs]),
        ])  # fmt: skip
    return out


def _cost_table(by_case: dict[str, list[Cost]]) -> Table:
    out = Table("the cost of the tree", COST_COLUMNS, note=HISTORIES)
    for case, costs in by_case.items():
        each = [(c, max(1, c.delegates)) for c in costs]
        out.rows.append([
            case, median([c.wall for c in costs]), median([c.worker_cpu for c in costs]),
            median([c.server_cpu for c in costs]), median([c.runs for c in costs]),
            median([c.events / n for c, n in each]), median([c.size / n for c, n in each]),
            median([c.signals["budgetRequest"] + c.signals["budgetReport"] for c in costs]),
            median([c.root[0] for c in costs]), median([c.root[1] for c in costs]),
        ])  # fmt: skip
        out.raw.append({"case": case, "rounds": [vars(c) for c in costs]})
    return out


if __name__ == "__main__":
    run_program("tree", run)
