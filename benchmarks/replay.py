"""Replaying recorded histories, as a worker does for a run that is not in its cache.

The histories are recorded first, on a server of their own; then this process replays each in
turns with that of the hand-written workflow. Figures are CPU time.

    python -m benchmarks replay
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from acts.worker import plugin
from acts.worker import serve as worker
from benchmarks import live, shapes
from benchmarks.handwritten import WORKFLOWS
from benchmarks.live import Bench
from benchmarks.tables import Table, median, percentile_25, print_progress, run_program

ROUNDS: Final = 7
SHAPES: Final = (shapes.chain(100), shapes.fan_out(500), shapes.layered(200))
COLUMNS: Final = ["", "events", "engine, ms", "hand-written, ms", "ratio", "ratio, p25", "engine, µs per call"]
SIDES: Final = ("engine", "handwritten")

Histories = dict[str, dict[str, WorkflowHistory]]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    histories = live.on_server(record)
    yield asyncio.run(_measure(histories, rounds or ROUNDS))


async def record(bench: Bench) -> Histories:
    """The histories of both sides, by shape."""
    out: Histories = {}
    address = bench.server.address
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        for shape in SHAPES:
            print_progress(f"replay: recording {shape.name}")
            ids = {
                "engine": (await bench.run_engine(engine, shape)).id,
                "handwritten": (await bench.run_handwritten(handwritten, shape)).id,
            }
            out[shape.name] = {s: await bench.client.get_workflow_handle(i).fetch_history() for s, i in ids.items()}
    return out


async def _measure(histories: Histories, rounds: int) -> Table:
    table = Table("replay", COLUMNS, note="Engine / hand-written, medians and 25th percentile of the rounds' ratios.")
    replayers = {
        "engine": Replayer(workflows=plugin.WORKFLOWS, workflow_runner=UnsandboxedWorkflowRunner(), debug_mode=True),
        "handwritten": Replayer(workflows=WORKFLOWS, workflow_runner=UnsandboxedWorkflowRunner(), debug_mode=True),
    }
    worker.freeze_imports()  # as a worker does
    for shape in SHAPES:
        print_progress(f"replay: {shape.name}")
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        for round_ in range(-1, rounds):
            for side in SIDES if round_ % 2 else SIDES[::-1]:
                start = time.process_time()
                await replayers[side].replay_workflow(histories[shape.name][side])
                if round_ >= 0:
                    seconds[side].append(time.process_time() - start)
        ratios = [a / b for a, b in zip(seconds["engine"], seconds["handwritten"], strict=True)]
        ours, theirs = median(seconds["engine"]) or 0.0, median(seconds["handwritten"]) or 0.0
        events = len(histories[shape.name]["engine"].events)
        table.rows.append(
            [
                shape.name,
                events,
                ours * 1e3,
                theirs * 1e3,
                median(ratios),
                percentile_25(ratios),
                ours / shape.calls * 1e6,
            ]
        )
        table.raw.append({"case": shape.name, **seconds})
    return table


if __name__ == "__main__":
    run_program("replay", run)
