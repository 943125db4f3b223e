"""A thousand runs that wait for approval: memory and CPU while nothing happens.

Each run is a lazy plan of five calls that waits for its approval. Measured are the memory of the
worker's process and the CPU time of worker and server in half a minute, with the runs and without
them; then all of them are approved.

    python -m benchmarks waiting
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from temporalio.client import WorkflowHandle

from benchmarks import live, shapes
from benchmarks.live import Bench, Process
from benchmarks.tables import Cell, Table, print_progress, run_program

RUNS: Final = 1_000
AT_ONCE: Final = 50
REST_SECONDS: Final = 30.0
COLUMNS: Final = ["", "worker memory, MB", "worker CPU, s", "server CPU, s"]
NOTE: Final = f"CPU seconds in {REST_SECONDS:g} s of rest. Most workflows of a thousand are in the worker's cache."


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables."""
    yield from live.on_server(lambda bench: _measure(bench, rounds or 1))


async def _measure(bench: Bench, rounds: int) -> list[Table]:
    tables: list[Table] = []
    for round_ in range(rounds):
        print_progress(f"waiting: round {round_ + 1} of {rounds}")
        with live.worker(bench.server.address) as process:
            await bench.run_engine(process, shapes.chain(3))
            tables = await _measure_once(bench, process)
    return tables


async def _measure_once(bench: Bench, process: Process) -> list[Table]:
    rest = Table("worker and server at rest", COLUMNS, note=NOTE)
    rest.rows.append(["no run", *await _rest(bench, process)])
    request = shapes.chain(5).request(shapes.STEP)
    request["context"][-1]["mode"] = "lazy"
    start = time.monotonic()
    handles = await _run_all(RUNS, lambda i: _start(bench, process, request, i))
    start_seconds = time.monotonic() - start
    rest.rows.append([f"{RUNS:,} waiting runs", *await _rest(bench, process)])
    start = time.monotonic()
    await _run_all(RUNS, lambda i: _approve(handles[i]))
    approval_seconds = time.monotonic() - start
    summary = Table("the runs", ["", "figure"])
    summary.rows = [
        ["started and waiting, s", start_seconds], ["approved and completed, s", approval_seconds],
        ["events of one", (await handles[0].describe()).history_length],
    ]  # fmt: skip
    return [rest, summary]


async def _rest(bench: Bench, process: Process) -> list[Cell]:
    before = live.cpu_seconds(process.pid), live.cpu_seconds(bench.server.pid)
    await asyncio.sleep(REST_SECONDS)
    after = live.cpu_seconds(process.pid), live.cpu_seconds(bench.server.pid)
    cpu: list[Cell] = [None if a is None or b is None else b - a for a, b in zip(before, after, strict=True)]
    return [_memory(process.pid), *cpu]


def _memory(pid: int) -> float | None:
    """The resident memory of a process in megabytes; None where the system does not report it."""
    status = Path(f"/proc/{pid}/status")
    if not status.is_file():
        return None
    line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def _start(bench: Bench, process: Process, request: Any, number: int) -> WorkflowHandle[Any, Any]:
    handle = await bench.client.start_workflow("Plan", request, id=f"waits-{number}", task_queue=process.queue)
    while not await handle.query("pending"):  # noqa: ASYNC110 - a query is the only way to see that it waits
        await asyncio.sleep(0.05)
    return handle


async def _approve(handle: WorkflowHandle[Any, Any]) -> None:
    await handle.signal("approve", {"by": "the benchmark"})
    await handle.result()


async def _run_all(count: int, action: Any) -> list[Any]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def within(number: int) -> Any:
        async with gate:
            return await action(number)

    return await asyncio.gather(*[within(i) for i in range(count)])


if __name__ == "__main__":
    run_program("waiting", run)
