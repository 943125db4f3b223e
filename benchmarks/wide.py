"""Fan-outs from 1 to 2,000 calls, all in flight at once: what one call costs, beside a hand-written workflow.

The server's cost per call should not depend on the width. The hand-written workflow schedules all activities in
one workflow task; the engine starts them in slices (``workflows/in_flight.py``). ``--rounds`` 1 takes
about a minute.

    python -m benchmarks wide
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from benchmarks import live, shapes
from benchmarks.live import Bench, Cost
from benchmarks.tables import Cell, Table, median, print_progress, run_program

ROUNDS: Final = 3
WIDTHS: Final = (1, 10, 100, 500, 1000, 2000)
# Not below the default: a narrow fan-out is to be measured with the settings that people have
LEAST_PARALLEL: Final = 100
# Of maxParallel
MOST_PARALLEL: Final = 2000
SIDES: Final = ("engine", "hand-written")

Costs = dict[tuple[int, str], list[Cost]]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table: a row per width and side."""
    yield _table(live.on_server(lambda bench: measure(bench, rounds or ROUNDS)))


async def measure(bench: Bench, rounds: int, widths: tuple[int, ...] = WIDTHS) -> Costs:
    """The cost of each round, by width and side."""
    out: Costs = {(width, side): [] for width in widths for side in SIDES}
    address = bench.server.address
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        for round_ in range(-1, rounds):  # the first one warms up, with narrow shapes only, and does not count
            print_progress(f"wide: round {round_ + 1} of {rounds}")
            for width in widths if round_ >= 0 else widths[:3]:
                shape = shapes.fan_out(width)
                for side in SIDES if round_ % 2 else reversed(SIDES):
                    if side == "engine":
                        parallel = min(max(width, LEAST_PARALLEL), MOST_PARALLEL)
                        cost = await bench.run_engine(engine, shape, maxParallel=parallel)
                    else:
                        cost = await bench.run_handwritten(handwritten, shape)
                    if round_ >= 0:
                        out[width, side].append(cost)
    return out


def _table(costs: Costs) -> Table:
    table = Table(
        "fan-outs, per call",
        ["", "calls", "wall, ms", "worker CPU, ms", "server CPU, ms", "events"],
        note="Medians of the rounds, divided by the number of calls: the parallel ones and the one that reads them.",
    )
    for (width, side), rounds in costs.items():
        calls = width + 1
        figures = [
            median([getattr(cost, what) for cost in rounds]) for what in ("wall", "worker_cpu", "server_cpu", "events")
        ]
        row: list[Cell] = [None if figure is None else figure / calls for figure in figures]
        table.rows.append([side, calls, *(None if cell is None else float(cell) * 1000 for cell in row[:3]), row[3]])
        table.raw.append({"case": f"{side}, {width}", "rounds": [asdict(cost) for cost in rounds]})
    return table


if __name__ == "__main__":
    run_program("wide", run)
