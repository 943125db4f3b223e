"""Calls with latencies: the time of the engine, compared with the critical path of the graph.

Latencies are lognormal with a mean of 0.1 s. The critical path is the lower bound of every engine.
The wave bound is that of an engine that starts a wave only when the previous one has ended.

    python -m benchmarks makespan
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import live, shapes
from benchmarks.live import Bench
from benchmarks.tables import Table, median, percentile_25, print_progress, run_program

ROUNDS: Final = 5
SHAPES: Final = (
    shapes.with_latencies(shapes.layered(200)),
    shapes.with_latencies(shapes.layered(200, layers=20), seed=2),
    shapes.with_latencies(shapes.tangled(200), seed=3),
    shapes.with_latencies(shapes.tangled(100, near=20), seed=4),
)
NAMES: Final = ("200 calls, 5 layers", "200 calls, 20 layers", "200 calls, no layers", "100 calls, no layers")
COLUMNS: Final = ["", "longest path, calls", "critical path, s", "engine", "engine, p25", "hand-written", "wave bound"]
NOTE: Final = "Multiples of the critical path; medians. Target: the engine within 5 % of it."


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    yield live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))


async def _measure(bench: Bench, rounds: int) -> Table:
    address = bench.server.address
    measured: list[dict[str, list[float]]] = [{"engine": [], "handwritten": []} for _ in SHAPES]
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        await bench.run_engine(engine, shapes.chain(3))
        await bench.run_handwritten(handwritten, shapes.chain(3))
        for round_ in range(rounds):
            print_progress(f"makespan: round {round_ + 1} of {rounds}")
            for shape, walls in zip(SHAPES, measured, strict=True):
                walls["engine"].append((await bench.run_engine(engine, shape)).wall)
                walls["handwritten"].append((await bench.run_handwritten(handwritten, shape)).wall)
    table = Table("calls with latencies", COLUMNS, note=NOTE)
    for name, shape, walls in zip(NAMES, SHAPES, measured, strict=True):
        critical_path = shape.critical_path()
        ours, theirs = ([wall / critical_path for wall in walls[side]] for side in ("engine", "handwritten"))
        table.rows.append(
            [
                name,
                max(shape.depths()),
                critical_path,
                median(ours),
                percentile_25(ours),
                median(theirs),
                shape.wave_bound() / critical_path,
            ]
        )
        table.raw.append({"case": name, "critical_path": critical_path, "waves": shape.wave_bound(), **walls})
    return table


if __name__ == "__main__":
    run_program("makespan", run)
