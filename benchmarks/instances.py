"""A thousand instances of a plan of five calls, beside a thousand hand-written child workflows.

Both have the same Activities do the same, with the same three arguments, options and labels,
and no more children at once than the engine's ``maxParallel``; then all of them at once. The
engine also runs with ten instances to a child. Events and bytes are those of the run and of all
its children. Each way has a worker of its own, so that its memory is known.

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
from benchmarks.tables import Cell, Table, alone, median, quarter, ratio, say

INSTANCES: Final = 1_000
PARALLEL: Final = 100
PER_CHILD: Final = 10
ROUNDS: Final = 5
# A run takes 20 to 60 s on a machine with nothing else to do, and ten times that on one that is busy
PATIENCE_SECONDS: Final = 900.0
AT_ONCE: Final = 50
WARM: Final = 20
COLUMNS: Final = [
    "", "wall, s: least", "p25", "median", "worker CPU, s", "server CPU, s", "events per call", "bytes per call",
    "peak memory, MB",
]  # fmt: skip
RATIOS: Final = ["", "wall, least", "wall, p25", "wall", "worker CPU, p25", "events", "bytes", "peak memory"]
NOTE: Final = (
    "CPU: 25th percentiles. Events and bytes: the run's and its children's, by the number of calls. "
    "Memory: of the worker's process, over all rounds."
)
TARGETS: Final = (
    "Engine / hand-written: of the least and the 25th percentiles, and the median of the rounds' ratios. "
    "Targets: wall at most 1.25, events and bytes at most 1.1."
)


@dataclass(frozen=True)
class Way:
    """One way to do it: ``start`` begins a run of so many and tells its cost; ``children`` are their ids."""

    name: str
    module: tuple[str, ...]
    run: Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]


def _engine(per_child: int, parallel: int) -> Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]:
    async def run(bench: Bench, process: Process, count: int) -> tuple[Cost, list[str]]:
        given = orders.orders(count)
        request = orders.request(given, maxParallel=parallel, instancesPerChild=per_child)
        cost, result = await bench.run(PLAN, process, request, PATIENCE_SECONDS)
        if {i: r["status"] for i, r in result["instances"].items()} != dict.fromkeys(given, "completed"):
            raise RuntimeError(f"a batch of the engine ended otherwise: {str(result)[:2000]}")
        ids = list(given)[::per_child]
        last: Any = await bench.client.get_workflow_handle(f"{cost.id}/{ids[-1]}").result()
        found = last["instances"] if per_child > 1 else {ids[-1]: last}
        for id_, item in found.items():
            _same(id_, item["state"], given)
        return cost, ids

    return run


def _by_hand(parallel: int | None) -> Callable[[Bench, Process, int], Awaitable[tuple[Cost, list[str]]]]:
    async def run(bench: Bench, process: Process, count: int) -> tuple[Cost, list[str]]:
        given = orders.orders(count)
        cost, result = await bench.run("Orders", process, {"orders": given, "parallel": parallel}, PATIENCE_SECONDS)
        for id_ in given:
            _same(id_, result[id_], given)
        return cost, list(given)

    return run


def _same(id_: str, state: Any, given: dict[str, Any]) -> None:
    wanted = orders.finished(given[id_])
    if state != wanted:
        raise RuntimeError(f"{id_} came to {state}, not {wanted}")


ENGINE: Final = "engine"
HAND: Final = "by hand"
ALL: Final = ", all at once"
WAYS: Final = (
    Way(ENGINE, live.ENGINE, _engine(1, PARALLEL)),
    Way(HAND, live.HANDWRITTEN, _by_hand(PARALLEL)),
    Way(ENGINE + ALL, live.ENGINE, _engine(1, INSTANCES)),
    Way(HAND + ALL, live.HANDWRITTEN, _by_hand(None)),
    Way(f"{ENGINE}, {PER_CHILD} to a child", live.ENGINE, _engine(PER_CHILD, PARALLEL)),
)
# What is compared with what
PAIRS: Final = ((ENGINE, HAND), (ENGINE + ALL, HAND + ALL), (f"{ENGINE}, {PER_CHILD} to a child", HAND))


def run(rounds: int | None = None) -> Iterator[Table]:
    """What each way costs, and the ratios."""
    yield from live.on_server(lambda bench: measure(bench, rounds or ROUNDS))


async def measure(
    bench: Bench, rounds: int, count: int = INSTANCES, ways: tuple[Way, ...] = WAYS, warm: int = WARM
) -> list[Table]:
    """Every way in each round, in alternating order."""
    found: dict[str, list[Cost]] = {way.name: [] for way in ways}
    with ExitStack() as stack:
        workers = {
            way.name: stack.enter_context(
                live.worker(
                    bench.server.address, way.module, queue=f"orders-{number}", ACTS_ACTIVITIES="benchmarks.orders"
                )
            )
            for number, way in enumerate(ways)  # names of equal length: they stand in many events
        }
        for way in ways:
            await way.run(bench, workers[way.name], warm)
        for round_ in range(rounds):
            say(f"instances: round {round_ + 1} of {rounds}")
            for way in ways if round_ % 2 else ways[::-1]:
                cost, children = await way.run(bench, workers[way.name], count)
                found[way.name].append(await whole(bench, cost, children))
        peaks = {way.name: peak(workers[way.name].pid) for way in ways}
    return [_costs(found, peaks, count), _ratios(found, peaks)]


async def whole(bench: Bench, cost: Cost, children: list[str]) -> Cost:
    """A cost with the histories of the children in it."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[int, int]:
        async with gate:
            info = await bench.info(f"{cost.id}/{name}")
            return info.history_length, info.history_size_bytes

    own = await asyncio.gather(*[one(name) for name in children])
    events, bytes_ = sum(e for e, _ in own), sum(b for _, b in own)
    return Cost(cost.wall, cost.events + events, cost.size + bytes_, cost.worker_cpu, cost.server_cpu, cost.id)


def peak(pid: int) -> float | None:
    """Megabytes that a process had in memory at most; None where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.is_file():
        return None
    line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _costs(found: dict[str, list[Cost]], peaks: dict[str, float | None], count: int) -> Table:
    out = Table(f"{count:,} instances of {orders.CALLS} calls", COLUMNS, note=NOTE)
    calls = count * orders.CALLS
    for name, costs in found.items():
        walls: list[float | None] = [c.wall for c in costs]
        out.rows.append([
            name, min(c.wall for c in costs), quarter(walls), median(walls), quarter([c.worker_cpu for c in costs]),
            quarter([c.server_cpu for c in costs]), median([c.events / calls for c in costs]),
            median([c.size / calls for c in costs]), peaks[name],
        ])  # fmt: skip
        out.raw.append({"case": name, "rounds": [asdict(c) for c in costs], "peak": peaks[name]})
    return out


def _ratios(found: dict[str, list[Cost]], peaks: dict[str, float | None]) -> Table:
    out = Table("engine beside hand-written workflows", RATIOS, note=TARGETS)
    for one, other in PAIRS:
        if one not in found or other not in found:
            continue
        mine, theirs = found[one], found[other]

        def quarters(what: str, mine: list[Cost] = mine, theirs: list[Cost] = theirs) -> Cell:
            return ratio(quarter([getattr(c, what) for c in mine]), quarter([getattr(c, what) for c in theirs]))

        out.rows.append([
            one, ratio(min(c.wall for c in mine), min(c.wall for c in theirs)), quarters("wall"),
            median([ratio(a.wall, b.wall) for a, b in zip(mine, theirs, strict=True)]), quarters("worker_cpu"),
            quarters("events"), quarters("size"), ratio(peaks[one], peaks[other]),
        ])  # fmt: skip
    return out


if __name__ == "__main__":
    alone("instances", run)
