"""Calls that take their time: how long the engine needs beside the slowest way through the graph.

Latencies are lognormal with a mean of 0.1 s. The critical path is what no engine can beat.
The wave bound is what one needs that starts a wave only when the one before is over, however
fast it is otherwise.

    python -m benchmarks makespan
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import live, shapes
from benchmarks.live import Bench
from benchmarks.tables import Table, alone, median, quarter, say

ROUNDS: Final = 5
SHAPES: Final = (
    shapes.with_latencies(shapes.layered(200)),
    shapes.with_latencies(shapes.layered(200, layers=20), seed=2),
    shapes.with_latencies(shapes.tangled(200), seed=3),
    shapes.with_latencies(shapes.tangled(100, near=20), seed=4),
)
NAMES: Final = ("200 calls, 5 layers", "200 calls, 20 layers", "200 calls, no layers", "100 calls, no layers")
COLUMNS: Final = ["", "longest way, calls", "critical path, s", "engine", "engine, p25", "hand-written", "wave bound"]
NOTE: Final = "Multiples of the critical path; medians. Target: the engine within 5 % of it."


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    yield live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))


async def _measure(bench: Bench, rounds: int) -> Table:
    address = bench.server.address
    found: list[dict[str, list[float]]] = [{"engine": [], "handwritten": []} for _ in SHAPES]
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        await bench.engine(engine, shapes.chain(3))
        await bench.handwritten(handwritten, shapes.chain(3))
        for round_ in range(rounds):
            say(f"makespan: round {round_ + 1} of {rounds}")
            for shape, walls in zip(SHAPES, found, strict=True):
                walls["engine"].append((await bench.engine(engine, shape)).wall)
                walls["handwritten"].append((await bench.handwritten(handwritten, shape)).wall)
    table = Table("calls with latencies", COLUMNS, note=NOTE)
    for name, shape, walls in zip(NAMES, SHAPES, found, strict=True):
        least = shape.critical_path()
        ours, theirs = ([wall / least for wall in walls[side]] for side in ("engine", "handwritten"))
        table.rows.append(
            [name, max(shape.depths()), least, median(ours), quarter(ours), median(theirs), shape.waves() / least]
        )
        table.raw.append({"case": name, "critical_path": least, "waves": shape.waves(), **walls})
    return table


if __name__ == "__main__":
    alone("makespan", run)
