"""A small plan beside a set that takes whatever a worker has: how long the small one takes, alone and beside it.

The set has as many Calls in flight as a Request may ask for, each of some seconds, so all slots for Activities are
taken, and a backlog stands in the task queue. The small plan is a chain of three Calls that take no time.

    python -m benchmarks.beside
    BENCH_BESIDE_ROWS=6000 python -m benchmarks.beside
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from acts.language.config import MAX_PARALLEL
from acts.language.wire import PLAN
from benchmarks import live, shapes
from benchmarks.live import Bench, Process
from benchmarks.sets import write_rows
from benchmarks.tables import Cell, Table, median, print_progress, ratio, run_program

ROWS: Final = int(os.environ.get("BENCH_BESIDE_ROWS", "4000"))
CALL_SECONDS: Final = 5.0
RUN_SECONDS: Final = 900.0
SMALL: Final = shapes.chain(3)
ALONE_RUNS: Final = 12
# The first runs of a worker load what the others find
WARM: Final = 2
PAUSE_SECONDS: Final = 0.5
TARGET_RATIO: Final = 3.0
TARGET_SECONDS: Final = 1.0


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table; a round is a set of its own."""
    with tempfile.TemporaryDirectory(prefix="acts-beside-") as name:
        write_rows(Path(name) / "orders.jsonl", ROWS)
        yield live.on_server(lambda bench: _measure(bench, Path(name), rounds or 1))


def request(number: int) -> dict[str, Any]:
    """A Call of some seconds for each row."""
    call = {"_tool": "step", "inputs": ["†order"], "seconds": CALL_SECONDS, "_outputPath": "†state.one"}
    rows = {"source": "orders.jsonl", "id": "orderId"}
    context = [
        {"type": "tool", "tool": "step"}, {"type": "data", "kind": "order", "_instances": rows},
        {"type": "plan", "plan": [call]},
    ]  # fmt: skip
    return {"config": {"maxParallel": MAX_PARALLEL, "results": f"out-{number}.jsonl"}, "context": context}


async def _measure(bench: Bench, folder: Path, rounds: int) -> Table:
    with live.worker(bench.server.address, ACTS_DATA=str(folder), ACTS_RESULTS=str(folder)) as process:
        alone = [(await bench.run_engine(process, SMALL)).wall for _ in range(ALONE_RUNS)][WARM:]
        beside: list[float] = []
        start = time.monotonic()
        for number in range(rounds):
            whole = asyncio.create_task(bench.run(PLAN, process, request(number), RUN_SECONDS))
            await _repeat_small(bench, process, whole, beside)
            if (result := (await whole)[1])["status"] != "completed":
                raise RuntimeError(f"the set did not complete: {str(result)[:2000]}")
        wall = (time.monotonic() - start) / rounds
    own, others = median([*alone]), median([*beside])
    rows: list[list[Cell]] = [
        ["three calls alone: median, s", own, "–"],
        ["… slowest, s", max(alone), "–"],
        [f"three calls beside the set: median of {len(beside)}, s", others, "–"],
        ["… slowest, s", max(beside), f"{TARGET_SECONDS:g}"],
        ["… times as long (medians)", ratio(others, own), f"{TARGET_RATIO:g}"],
        ["the set: wall, s", wall, "–"],
        ["… calls per second", ROWS / wall, "–"],
    ]
    title = f"a small plan beside a set of {ROWS:,} calls of {CALL_SECONDS:g} s with maxParallel {MAX_PARALLEL:,}"
    return Table(title, ["", "", "target"], rows, raw=[{"alone": alone, "beside": beside, "wall": wall}])


async def _repeat_small(bench: Bench, process: Process, whole: asyncio.Task[Any], walls: list[float]) -> None:
    while not whole.done():
        await asyncio.wait({whole}, timeout=PAUSE_SECONDS)
        walls.append((await bench.run_engine(process, SMALL)).wall)
        print_progress(f"beside: {walls[-1]:.2f} s")


if __name__ == "__main__":
    run_program("beside", run)
