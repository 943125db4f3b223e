"""The engine compared with hand-written workflows of the same shape, on one server, in turns.

Two workers with the same settings, one process each. In each round each side runs every shape
once, in alternating order. Ratios are computed per round, so that other load on the machine affects
both sides.

    python -m benchmarks walk
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any, Final

from benchmarks import live, shapes
from benchmarks.live import Bench, Cost
from benchmarks.shapes import Shape
from benchmarks.tables import Table, median, percentile_25, print_progress, ratio, run_program

ROUNDS: Final = 7
SHAPES: Final = (shapes.chain(100), shapes.fan_out(500), shapes.layered(200))
# The Tool of the engine's calls; "local": local activities on both sides
SIDES: Final = ("plain", "engine", "handwritten")
TOOLS: Final = (shapes.STEP, "local")
COLUMNS: Final = [
    "", "engine, ms", "hand-written, ms", "SDK's worker, ms", "wall", "wall, p25", "wall, SDK's worker", "worker CPU",
    "CPU, p25", "server CPU", "events", "bytes",
]  # fmt: skip
NOTE: Final = (
    "Engine / hand-written: medians and 25th percentiles of the rounds' ratios. The hand-written workflows run in a worker "
    "with the engine's settings; and in the SDK's own worker, as its documentation starts one, without the sandbox. "
    "Targets: wall at most 1.15, with local activities 1.3; events at most 1.05."
)

Pair = dict[str, Cost]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table of ratios."""
    pairs = live.on_server(lambda bench: measure(bench, rounds or ROUNDS))
    yield table("engine and hand-written workflow", pairs)


async def measure(
    bench: Bench, rounds: int, shapes_: tuple[Shape, ...] = SHAPES, tools: tuple[str, ...] = TOOLS
) -> dict[str, list[Pair]]:
    """The cost of each round on either side, by shape and kind of activity."""
    out: dict[str, list[Pair]] = {_name(shape, tool): [] for tool in tools for shape in shapes_}
    address = bench.server.address
    with (
        live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten,
        live.worker(address, live.PLAIN) as plain,
    ):  # fmt: skip
        for round_ in range(-1, rounds):  # the first one warms up and does not count
            print_progress(f"walk: round {round_ + 1} of {rounds}")
            for tool, shape in product(tools, shapes_):
                pair: Pair = {}
                for side in SIDES if round_ % 2 else reversed(SIDES):
                    pair[side] = await (
                        bench.run_engine(engine, shape, tool, **_settings(shape, tool))
                        if side == "engine"
                        else bench.run_handwritten(
                            plain if side == "plain" else handwritten, shape, local=tool == "local"
                        )
                    )
                if round_ >= 0:
                    out[_name(shape, tool)].append(pair)
    return out


def _name(shape: Shape, tool: str) -> str:
    return f"{shape.name}, local" if tool == "local" else shape.name


def _settings(shape: Shape, tool: str) -> dict[str, Any]:
    """The hand-written workflow starts all local activities at once, so the engine may, too."""
    return {"maxParallel": max(100, shape.calls)} if tool == "local" else {}


def table(title: str, by_shape: dict[str, list[Pair]], note: str = NOTE) -> Table:
    """The ratios of each shape."""
    out = Table(title, COLUMNS, note=note)
    for name, pairs in by_shape.items():
        ours, theirs = [p["engine"] for p in pairs], [p["handwritten"] for p in pairs]
        plain = [p["plain"] for p in pairs if "plain" in p]

        def ratios(what: str, ours: list[Cost] = ours, theirs: list[Cost] = theirs) -> list[float | None]:
            return [ratio(getattr(a, what), getattr(b, what)) for a, b in zip(ours, theirs, strict=True)]

        out.rows.append([
            name, _median_ms(ours), _median_ms(theirs), _median_ms(plain), median(ratios("wall")),
            percentile_25(ratios("wall")), median([ratio(a.wall, b.wall) for a, b in zip(ours, plain, strict=False)]),
            median(ratios("worker_cpu")), percentile_25(ratios("worker_cpu")), median(ratios("server_cpu")),
            median(ratios("events")), median(ratios("size")),
        ])  # fmt: skip
        out.raw.append({"case": name, "rounds": [{side: asdict(cost) for side, cost in p.items()} for p in pairs]})
    return out


def _median_ms(costs: list[Cost]) -> Any:
    seconds = median([c.wall for c in costs])
    return None if seconds is None else seconds * 1000


if __name__ == "__main__":
    run_program("walk", run)
