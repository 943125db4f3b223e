"""Large values with external storage: what they cost in history, time, memory and disk.

In a folder, or with ``--s3`` in moto's server of S3 on this machine, a process of its own: its figures say what the
engine adds, not how fast S3 is.

* A chain of 50 calls, each of which reads a state and writes it changed: of 1 kB, of 100 kB and of 5 MB.
* 2,000 calls that each start with the same 1 MB, 100 at a time (a folder only).

    python -m benchmarks.storage [--s3]
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from temporalio.client import Client

from acts.language.wire import PLAN
from acts.payloads.converter import VARIABLE, client_converter
from benchmarks import live
from benchmarks.instances import peak_memory
from benchmarks.live import Bench, Cost, Process
from benchmarks.tables import Cell, Table, median, print_progress, ratio, run_program

ROUNDS: Final = 3
CALLS: Final = 50
SIZES: Final = {"1 kB": 1_000, "100 kB": 100_000, "5 MB": 5_000_000}
WIDE_CALLS: Final = 2_000
WIDE_BYTES: Final = 1_000_000
WIDE_SECONDS: Final = 1_200.0
TARGET: Final = "Target: a history of at most 1.3 times that of 1 kB."
COLUMNS: Final = [
    "", "wall, s", "worker CPU, s", "history, kB", "of 1 kB", "events", "stored, MB", "values", "peak memory, MB",
]  # fmt: skip


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables."""
    yield live.on_server(lambda bench: _measure_chains(bench, rounds or ROUNDS, _Folder))
    yield live.on_server(_measure_wide)


def run_in_s3(rounds: int | None = None) -> Iterator[Table]:
    """The first of them, with values in S3."""
    yield live.on_server(lambda bench: _measure_chains(bench, rounds or ROUNDS, _Bucket))


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


async def _measure_chains(bench: Bench, rounds: int, place: type[_Folder | _Bucket]) -> Table:
    table = Table(
        f"{CALLS} calls that carry a state, values in {place.title}", COLUMNS, note=f"Medians of {rounds}. {TARGET}"
    )
    base: float | None = None
    for name, size in SIZES.items():
        with _Storing(bench, place()) as own:
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
    with _Storing(bench, _Folder()) as own:
        print_progress(f"storage: {WIDE_CALLS:,} calls with {WIDE_BYTES:,} bytes each")
        cost, result = await own.run(wide())
        if len(result["state"]) != WIDE_CALLS:
            raise RuntimeError(f"of {WIDE_CALLS} calls {len(result['state'])} have a result: {result['errors'][:3]}")
        table.rows.append(own.row("one run", [cost], cost.size / 1000, None))
    return table


class _Folder:
    """A folder of this machine."""

    title = "a folder"

    def open(self, stack: ExitStack) -> dict[str, str]:
        """The settings that lead to it."""
        self._path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-bench-")))
        return {VARIABLE: f"file:{self._path}"}

    def sizes(self) -> list[int]:
        """Bytes of each value."""
        return [path.stat().st_size for path in (self._path / "values").rglob("*") if path.is_file()]


class _Bucket:
    """A bucket of moto's server, which is a process of its own."""

    title = "S3 (moto)"

    def open(self, stack: ExitStack) -> dict[str, str]:
        """The settings that lead to it."""
        import boto3

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        stack.callback(process.wait)
        stack.callback(process.terminate)
        names = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
        settings = {**names, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", VARIABLE: f"s3://bench-{port}/values"}
        os.environ |= settings
        self._name, self._s3 = f"bench-{port}", boto3.session.Session().client("s3")
        while True:
            try:
                self._s3.create_bucket(Bucket=self._name)
            except Exception:
                if process.poll() is not None:
                    raise
            else:
                return settings

    def sizes(self) -> list[int]:
        """Bytes of each value."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix="values/ns/")
        return [item["Size"] for page in pages for item in page.get("Contents", ())]


class _Storing:
    """A worker with a storage of its own, and a client that shares it."""

    def __init__(self, bench: Bench, place: _Folder | _Bucket) -> None:
        self._bench, self._place = bench, place
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._settings = self._place.open(self._stack)
        self.process: Process = self._stack.enter_context(live.worker(self._bench.server.address, **self._settings))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def run(self, request: dict[str, Any]) -> tuple[Cost, Any]:
        """Run a request with a client of this storage."""
        os.environ |= self._settings
        address, namespace = self._bench.server.address, self._bench.server.namespace
        client = await Client.connect(address, namespace=namespace, data_converter=client_converter())
        return await Bench(client, self._bench.server).run(PLAN, self.process, request, WIDE_SECONDS)

    def row(self, name: str, costs: list[Cost], kilobytes: float | None, of_base: float | None) -> list[Cell]:
        """The figures of some runs, and of the storage and the worker after them."""
        sizes = self._place.sizes()
        return [
            name, median([c.wall for c in costs]), median([c.worker_cpu for c in costs]), kilobytes, of_base,
            median([float(c.events) for c in costs]), sum(sizes) / 1e6 / len(costs),
            len(sizes) / len(costs), peak_memory(self.process.pid),
        ]  # fmt: skip


if __name__ == "__main__":
    run_program("storage", run, {"--s3": ("values in S3 (moto), not in a folder", run_in_s3)})
