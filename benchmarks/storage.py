"""Large values with external storage in a folder: what they cost in history, time, memory and disk.

* A chain of 50 calls, each of which reads a state and writes it changed: of 1 kB, of 100 kB and of 5 MB.
* 2,000 calls that each start with the same 1 MB, 100 at a time.

    python -m benchmarks.storage
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from temporalio.client import Client

from acts.language.wire import PLAN
from benchmarks import live
from benchmarks.instances import peak_memory
from benchmarks.live import Bench, Cost, Process
from benchmarks.tables import Cell, Table, median, print_progress, ratio, run_program
from connection.converter import client_converter
from connection.storage import VARIABLE

ROUNDS: Final = 3
CALLS: Final = 50
SIZES: Final = {"1 kB": 1_000, "100 kB": 100_000, "5 MB": 5_000_000}
WIDE_CALLS: Final = 2_000
WIDE_BYTES: Final = 1_000_000
WIDE_SECONDS: Final = 1_200.0
TARGET: Final = "Target: a history of at most 1.3 times that of 1 kB."
COLUMNS: Final = [
    "", "wall, s", "worker CPU, s", "history, kB", "of 1 kB", "events", "stored, MB", "files", "peak memory, MB",
]  # fmt: skip


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables."""
    yield live.on_server(lambda bench: _measure_chains(bench, rounds or ROUNDS))
    yield live.on_server(_measure_wide)


def chain(size: int) -> dict[str, Any]:
    """A plan that carries a state of so many bytes through its calls."""
    text = random.Random(size).randbytes(size // 2).hex()  # noqa: S311 - so that nothing compresses it much
    plan = [{"_tool": "carry", "_outputPath": "†state.document", "value": "†state.document"}] * CALLS
    state = {"type": "state", "state": {"document": {"count": 0, "text": text}}}
    return {"config": {}, "context": [{"type": "tool", "tool": "Tool.carry"}, state, {"type": "plan", "plan": plan}]}


def wide() -> dict[str, Any]:
    """A plan whose calls each get the same large value."""
    text = random.Random(0).randbytes(WIDE_BYTES // 2).hex()  # noqa: S311
    tool = {
        "type": "object",
        "properties": {"_tool": {"const": "note"}, "_activity": {"const": "bench.note"}, "_outputPath": {"type": "string"},
                       "_output": True},
    }  # fmt: skip
    plan = [
        {"_tool": "note", "_outputPath": f"†state.n{i}", "finding": i, "text": "†data.text"} for i in range(WIDE_CALLS)
    ]
    context = [{"type": "tool", "tool": tool}, {"type": "data", "data": {"text": text}}, {"type": "plan", "plan": plan}]
    return {"config": {}, "context": context}


async def _measure_chains(bench: Bench, rounds: int) -> Table:
    table = Table(f"{CALLS} calls that carry a state", COLUMNS, note=f"Medians of {rounds}. {TARGET}")
    base: float | None = None
    for name, size in SIZES.items():
        with _Storing(bench) as own:
            costs = []
            for number in range(rounds):
                print_progress(f"storage: {CALLS} calls with {name}, round {number + 1} of {rounds}")
                cost, result = await own.run(chain(size))
                if result["state"]["document"]["count"] != CALLS:
                    raise RuntimeError(f"the state is wrong: {result['status']}")
                costs.append(cost)
            kilobytes = median([cost.size / 1000 for cost in costs])
            base = base or kilobytes
            table.rows.append(own.row(name, costs, kilobytes, ratio(kilobytes, base)))
    return table


async def _measure_wide(bench: Bench) -> Table:
    table = Table(f"{WIDE_CALLS:,} calls that each start with {WIDE_BYTES / 1e6:g} MB", COLUMNS)
    with _Storing(bench) as own:
        print_progress(f"storage: {WIDE_CALLS:,} calls with {WIDE_BYTES:,} bytes each")
        cost, result = await own.run(wide())
        if len(result["state"]) != WIDE_CALLS:
            raise RuntimeError(f"of {WIDE_CALLS} calls {len(result['state'])} have a result: {result['errors'][:3]}")
        table.rows.append(own.row("one run", [cost], cost.size / 1000, None))
    return table


class _Storing:
    """A worker with a storage of its own, and a client that shares it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-bench-")))
        setting = {VARIABLE: f"file:{self.folder}"}
        self.process: Process = self._stack.enter_context(live.worker(self._bench.server.address, **setting))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def run(self, request: dict[str, Any]) -> tuple[Cost, Any]:
        """Run a request with a client of this storage."""
        os.environ[VARIABLE] = f"file:{self.folder}"
        address, namespace = self._bench.server.address, self._bench.server.namespace
        client = await Client.connect(address, namespace=namespace, data_converter=client_converter())
        return await Bench(client, self._bench.server).run(PLAN, self.process, request, WIDE_SECONDS)

    def row(self, name: str, costs: list[Cost], kilobytes: float | None, of_base: float | None) -> list[Cell]:
        """The figures of some runs, and of the folder and the worker after them."""
        files = [path for path in (self.folder / "values").rglob("*") if path.is_file()]
        return [
            name, median([c.wall for c in costs]), median([c.worker_cpu for c in costs]), kilobytes, of_base,
            median([float(c.events) for c in costs]), sum(f.stat().st_size for f in files) / 1e6 / len(costs),
            len(files) / len(costs), peak_memory(self.process.pid),
        ]  # fmt: skip


if __name__ == "__main__":
    run_program("storage", run)
