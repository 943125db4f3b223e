"""The effect of each setting: one at a time is reset, and compared with the shipped settings.

Each server setting needs a server, each worker setting a worker; all run at the same time, and
idle ones cost almost nothing. In each round every variant runs once, directly before or after a run
with the shipped settings, and the ratio is that of the two.

    python -m benchmarks settings
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Final

from temporalio.client import Client

from benchmarks import live, shapes
from benchmarks.live import Bench, Cost, Process
from benchmarks.shapes import Shape
from benchmarks.tables import Cell, Table, median, percentile_25, print_progress, ratio, run_program

ROUNDS: Final = 5
SHAPES: Final = (shapes.chain(100), shapes.fan_out(500))
SHIPPED: Final = "as shipped, twice"
"""Its ratio is the noise."""

_RATE: Final = "history.{}ProcessorMaxPollRPS=20"
# Arguments of the server that restore a default of Temporal
SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "transferProcessorMaxPollRPS=20 (default)": ("--dynamic-config-value", _RATE.format("transfer")),
    "maximumBufferedEventsBatch=100 (default)": ("--dynamic-config-value", "history.maximumBufferedEventsBatch=100"),
    "synchronous=FULL, WAL": ("--sqlite-pragma", "synchronous=FULL"),
    "journal_mode=DELETE, synchronous=FULL (default)": (
        "--sqlite-pragma", "journal_mode=DELETE", "--sqlite-pragma", "synchronous=FULL",
    ),
}  # fmt: skip
# Names of benchmarks.served
WORKERS: Final[dict[str, str]] = {
    "no eager activities": "no-eager",
    "3 eager reservations (default)": "few-reservations",
    "in the sandbox (default)": "sandboxed",
}
# Of the Request: the arguments of Bench.run_engine
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "maxParallel=25": {"maxParallel": 25},
    "maxParallel=200": {"maxParallel": 200},
    "maxParallel=500": {"maxParallel": 500},
    "a tool with _options.local": {"tool": "local"},
}
NOTE: Final = "Multiples of the shipped settings (above 1: slower without the setting): medians and 25th percentiles of the rounds' ratios."

Variant = tuple[Bench, Process, dict[str, Any]]
Pair = tuple[Cost, Cost]
"""A run of the variant, and the run with the shipped settings beside it."""


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table per shape."""
    measured = live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))
    for shape in SHAPES:
        yield _table(shape, measured[shape.name])


async def _measure(bench: Bench, rounds: int) -> dict[str, dict[str, list[Pair]]]:
    with ExitStack() as stack:
        shipped = stack.enter_context(live.worker(bench.server.address))
        variants = await _variants(bench, shipped, stack)
        out: dict[str, dict[str, list[Pair]]] = {s.name: {name: [] for name in variants} for s in SHAPES}
        for round_ in range(-1, rounds):  # the first one warms up and does not count
            print_progress(f"settings: round {round_ + 1} of {rounds}")
            for shape in SHAPES:
                for name, (where, process, config) in variants.items():
                    if round_ % 2:
                        base = await bench.run_engine(shipped, shape)
                        cost = await where.run_engine(process, shape, **config)
                    else:
                        cost = await where.run_engine(process, shape, **config)
                        base = await bench.run_engine(shipped, shape)
                    if round_ >= 0:
                        out[shape.name][name].append((cost, base))
    return out


async def _variants(bench: Bench, shipped: Process, stack: ExitStack) -> dict[str, Variant]:
    out: dict[str, Variant] = {SHIPPED: (bench, shipped, {})}
    for name, extra in SERVERS.items():
        running = stack.enter_context(live.server(*extra))
        other = Bench(await Client.connect(running.address, namespace=running.namespace), running)
        out[name] = (other, stack.enter_context(live.worker(running.address)), {})
    for name, change in WORKERS.items():
        served = stack.enter_context(live.worker(bench.server.address, ("benchmarks.served", change)))
        out[name] = (bench, served, {})
    for name, config in REQUESTS.items():
        out[name] = (bench, shipped, config)
    return out


def _table(shape: Shape, variants: dict[str, list[Pair]]) -> Table:
    columns = ["", "wall, ms", "wall", "wall, p25", "worker CPU", "server CPU", "events"]
    table = Table(shape.name, columns, note=NOTE)
    for name, pairs in variants.items():

        def ratios(what: str, pairs: list[Pair] = pairs) -> list[float | None]:
            return [ratio(getattr(cost, what), getattr(base, what)) for cost, base in pairs]

        wall = median([cost.wall for cost, _ in pairs])
        row: list[Cell] = [
            name,
            None if wall is None else wall * 1000,
            median(ratios("wall")),
            percentile_25(ratios("wall")),
        ]
        table.rows.append([*row, *[median(ratios(w)) for w in ("worker_cpu", "server_cpu", "events")]])
        table.raw.append({"case": name, "rounds": [[asdict(cost), asdict(base)] for cost, base in pairs]})
    return table


if __name__ == "__main__":
    run_program("settings", run)
