"""A thousand instances of a plan of five calls, compared with a thousand hand-written child workflows.

Both run the same Activities with the same three arguments, options and labels, with at most the
engine's ``maxParallel`` children at once; then with all of them. The engine also runs with ten
instances per child. Events and bytes are those of the run and of all its children. Each variant has
a worker of its own, to measure its memory.

    python -m benchmarks instances
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from acts.language.wire import PLAN
from benchmarks import live, orders
from benchmarks.live import Bench, Cost, Process
from benchmarks.tables import Cell, Table, median, percentile_25, print_progress, ratio, run_program

INSTANCES: Final = 1_000
PARALLEL: Final = 100
PER_CHILD: Final = 10
ROUNDS: Final = 5
# A run takes 20 to 60 s on an idle machine, and ten times as long on a busy one
RUN_SECONDS: Final = 900.0
AT_ONCE: Final = 50
WARM: Final = 20
COLUMNS: Final = [
    "", "wall, s: minimum", "p25", "median", "worker CPU, s", "server CPU, s", "events per call", "bytes per call",
    "peak memory, MB",
]  # fmt: skip
RATIOS: Final = ["", "wall, minimum", "wall, p25", "wall", "worker CPU, p25", "events", "bytes", "peak memory"]
NOTE: Final = (
    "CPU: 25th percentiles. Events and bytes: of the run and its children, per call. "
    "Memory: the peak of the worker's process over all rounds."
)
TARGETS: Final = (
    "Engine / hand-written: of the minima and the 25th percentiles, and the median of the rounds' ratios. "
    "Targets: wall at most 1.25, events and bytes at most 1.1."
)


@dataclass(frozen=True)
class Variant:
    """One variant: ``run`` runs ``count`` orders; it returns the cost of the run and the names of its children."""

    name: str
    module: tuple[str, ...]
    run: Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]


def _engine(per_child: int, parallel: int) -> Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]:
    async def run(bench: Bench, process: Process, count: int) -> tuple[Cost, list[str]]:
        batch = orders.orders(count)
        request = orders.request(batch, maxParallel=parallel, instancesPerChild=per_child)
        cost, result = await bench.run(PLAN, process, request, RUN_SECONDS)
        if {i: r["status"] for i, r in result["instances"].items()} != dict.fromkeys(batch, "completed"):
            raise RuntimeError(f"unexpected result of a batch: {str(result)[:2000]}")
        ids = list(batch)[::per_child]
        last: Any = await bench.client.get_workflow_handle(f"{cost.id}/{ids[-1]}").result()
        reports = last["instances"] if per_child > 1 else {ids[-1]: last}
        for id_, report in reports.items():
            _require_state(id_, report["state"], batch)
        return cost, ids

    return run


def _by_hand(parallel: int | None) -> Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]:
    async def run(bench: Bench, process: Process, count: int) -> tuple[Cost, list[str]]:
        batch = orders.orders(count)
        cost, result = await bench.run("Orders", process, {"orders": batch, "parallel": parallel}, RUN_SECONDS)
        for id_ in batch:
            _require_state(id_, result[id_], batch)
        return cost, list(batch)

    return run


def _require_state(id_: str, state: Any, batch: dict[str, Any]) -> None:
    expected = orders.final_state(batch[id_])
    if state != expected:
        raise RuntimeError(f"the state of {id_} is {state}, not {expected}")


ENGINE: Final = "engine"
HAND: Final = "hand-written"
ALL: Final = ", all at once"
VARIANTS: Final = (
    Variant(ENGINE, live.ENGINE, _engine(1, PARALLEL)),
    Variant(HAND, live.HANDWRITTEN, _by_hand(PARALLEL)),
    Variant(ENGINE + ALL, live.ENGINE, _engine(1, INSTANCES)),
    Variant(HAND + ALL, live.HANDWRITTEN, _by_hand(None)),
    Variant(f"{ENGINE}, {PER_CHILD} per child", live.ENGINE, _engine(PER_CHILD, PARALLEL)),
)
# The variants that are compared
PAIRS: Final = ((ENGINE, HAND), (ENGINE + ALL, HAND + ALL), (f"{ENGINE}, {PER_CHILD} per child", HAND))


def run(rounds: int | None = None) -> Iterator[Table]:
    """The cost of each variant, and the ratios."""
    yield from live.on_server(lambda bench: measure(bench, rounds or ROUNDS))


async def measure(
    bench: Bench, rounds: int, count: int = INSTANCES, variants: tuple[Variant, ...] = VARIANTS, warm: int = WARM
) -> list[Table]:
    """Run every variant in each round, in alternating order."""
    costs: dict[str, list[Cost]] = {variant.name: [] for variant in variants}
    with ExitStack() as stack:
        workers = {
            variant.name: stack.enter_context(
                live.worker(
                    bench.server.address, variant.module, queue=f"orders-{number}", ACTS_ACTIVITIES="benchmarks.orders"
                )
            )
            for number, variant in enumerate(variants)  # names of equal length, since many events contain them
        }
        for variant in variants:
            await variant.run(bench, workers[variant.name], warm)
        for round_ in range(rounds):
            print_progress(f"instances: round {round_ + 1} of {rounds}")
            for variant in variants if round_ % 2 else variants[::-1]:
                cost, children = await variant.run(bench, workers[variant.name], count)
                costs[variant.name].append(await add_children(bench, cost, children))
        peaks = {variant.name: peak_memory(workers[variant.name].pid) for variant in variants}
    return [_cost_table(costs, peaks, count), _ratio_table(costs, peaks)]


async def add_children(bench: Bench, cost: Cost, children: list[str]) -> Cost:
    """The cost of a run with the histories of its children."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def measure_history(name: str) -> tuple[int, int]:
        async with gate:
            info = await bench.info(f"{cost.id}/{name}")
            return info.history_length, info.history_size_bytes

    sizes = await asyncio.gather(*[measure_history(name) for name in children])
    events, bytes_ = sum(e for e, _ in sizes), sum(b for _, b in sizes)
    return Cost(cost.wall, cost.events + events, cost.size + bytes_, cost.worker_cpu, cost.server_cpu, cost.id)


def peak_memory(pid: int) -> float | None:
    """The peak memory of a process in megabytes; None where the system does not report it."""
    status = Path(f"/proc/{pid}/status")
    if not status.is_file():
        return None
    line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _cost_table(costs: dict[str, list[Cost]], peaks: dict[str, float | None], count: int) -> Table:
    out = Table(f"{count:,} instances of {orders.CALLS} calls", COLUMNS, note=NOTE)
    calls = count * orders.CALLS
    for name, rounds in costs.items():
        walls: list[float | None] = [c.wall for c in rounds]
        out.rows.append([
            name, min(c.wall for c in rounds), percentile_25(walls), median(walls), percentile_25([c.worker_cpu for c in rounds]),
            percentile_25([c.server_cpu for c in rounds]), median([c.events / calls for c in rounds]),
            median([c.size / calls for c in rounds]), peaks[name],
        ])  # fmt: skip
        out.raw.append({"case": name, "rounds": [asdict(c) for c in rounds], "peak": peaks[name]})
    return out


def _ratio_table(costs: dict[str, list[Cost]], peaks: dict[str, float | None]) -> Table:
    out = Table("engine and hand-written workflows", RATIOS, note=TARGETS)
    for name, baseline in PAIRS:
        if name not in costs or baseline not in costs:
            continue
        ours, theirs = costs[name], costs[baseline]

        def p25_ratio(what: str, ours: list[Cost] = ours, theirs: list[Cost] = theirs) -> Cell:
            return ratio(
                percentile_25([getattr(c, what) for c in ours]), percentile_25([getattr(c, what) for c in theirs])
            )

        out.rows.append([
            name, ratio(min(c.wall for c in ours), min(c.wall for c in theirs)), p25_ratio("wall"),
            median([ratio(a.wall, b.wall) for a, b in zip(ours, theirs, strict=True)]), p25_ratio("worker_cpu"),
            p25_ratio("events"), p25_ratio("size"), ratio(peaks[name], peaks[baseline]),
        ])  # fmt: skip
    return out


if __name__ == "__main__":
    run_program("instances", run)
