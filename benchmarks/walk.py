"""The engine beside hand-written workflows of the same shape, on one server, in turns.

Two workers with the same settings, one process each. In each round every shape is run once
by either, in alternating order; a ratio is taken per round, so that what else the machine
does weighs on both sides.

    python -m benchmarks walk
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from benchmarks import live, shapes
from benchmarks.live import Bench, Cost
from benchmarks.shapes import Shape
from benchmarks.tables import Table, alone, median, quarter, ratio, say

ROUNDS: Final = 7
SHAPES: Final = (shapes.chain(100), shapes.fan_out(500), shapes.layered(200))
COLUMNS: Final = [
    "", "engine, ms", "hand-written, ms", "wall", "wall, p25", "worker CPU", "CPU, p25", "server CPU", "events",
    "bytes",
]  # fmt: skip
NOTE: Final = (
    "Engine / hand-written: medians and 25th percentiles of the rounds' ratios. "
    "Targets: wall at most 1.15, events at most 1.05."
)

Pair = dict[str, Cost]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table of ratios."""
    pairs = live.on_server(lambda bench: measure(bench, rounds or ROUNDS))
    yield table("engine and hand-written workflow", pairs)


async def measure(bench: Bench, rounds: int, given: tuple[Shape, ...] = SHAPES) -> dict[str, list[Pair]]:
    """By shape: what each round cost on either side."""
    out: dict[str, list[Pair]] = {shape.name: [] for shape in given}
    address = bench.server.address
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        for round_ in range(-1, rounds):  # the first warms up and is not counted
            say(f"walk: round {round_ + 1} of {rounds}")
            for shape in given:
                pair: Pair = {}
                for side in ("engine", "handwritten") if round_ % 2 else ("handwritten", "engine"):
                    pair[side] = await (
                        bench.engine(engine, shape) if side == "engine" else bench.handwritten(handwritten, shape)
                    )
                if round_ >= 0:
                    out[shape.name].append(pair)
    return out


def table(title: str, pairs: dict[str, list[Pair]]) -> Table:
    """The ratios of each shape."""
    out = Table(title, COLUMNS, note=NOTE)
    for name, found in pairs.items():
        one, other = [p["engine"] for p in found], [p["handwritten"] for p in found]

        def ratios(what: str, one: list[Cost] = one, other: list[Cost] = other) -> list[float | None]:
            return [ratio(getattr(a, what), getattr(b, what)) for a, b in zip(one, other, strict=True)]

        out.rows.append([
            name, _ms(one), _ms(other), median(ratios("wall")), quarter(ratios("wall")),
            median(ratios("worker_cpu")), quarter(ratios("worker_cpu")), median(ratios("server_cpu")),
            median(ratios("events")), median(ratios("size")),
        ])  # fmt: skip
        out.raw.append({"case": name, "rounds": [{side: asdict(cost) for side, cost in p.items()} for p in found]})
    return out


def _ms(costs: list[Cost]) -> Any:
    found = median([c.wall for c in costs])
    return None if found is None else found * 1000


if __name__ == "__main__":
    alone("walk", run)
