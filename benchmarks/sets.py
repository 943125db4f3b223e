"""A set of many rows from a file: time per row, the worker's memory, the largest history, and kills in the middle.

Every row makes three Calls, one after another. The worker is killed (``kill -9``) while the run is on its way and started
again; at the end the results file is read, and every row must have exactly one line.

    python -m benchmarks.sets [rows …] [--kills N] [--per-child N] [--local]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from acts.language.wire import PLAN, STATUS
from benchmarks import live
from benchmarks.activities import TOOLS
from benchmarks.tables import Table, add_options, print_progress, run_and_print

ROWS: Final = (10_000, 100_000)
QUEUE: Final = "sets"
_POLL_SECONDS: Final = 0.5
_STATUS_SECONDS: Final = 5.0
_KB: Final = 1024


@dataclass
class Measured:
    """One run. Memory is the largest resident set of any worker, in MB; CPU is that of all workers, in seconds."""

    rows: int
    wall: float = 0.0
    cpu: float = 0.0
    server_cpu: float = 0.0
    memory: float = 0.0
    events: int = 0
    size: int = 0
    largest: str = ""
    runs: int = 0
    kills: int = 0
    lines: int = 0
    repeated: int = 0


def request(source: str, results: str, per_child: int | None, *, local: bool) -> dict[str, Any]:
    """A plan of three Calls for each row."""
    tool = "local" if local else "step"
    meta = TOOLS[tool]["properties"]
    # What a killed worker had begun is tried again after this timeout: a Tool without a heartbeat waits for it
    options = {"local": local, "timeout": "5s", "retry": {"maxAttempts": 20, "initialInterval": "10ms"}}
    own = {**TOOLS[tool], "properties": {**meta, "_tool": {"const": tool}, "_options": {"const": options}}}
    calls = [
        {"_tool": tool, "inputs": ["†order"], "_outputPath": "†state.one"},
        {"_tool": tool, "inputs": ["†state.one"], "_outputPath": "†state.two"},
        {"_tool": tool, "inputs": ["†state.two"], "_outputPath": "†state.three"},
    ]
    config: dict[str, Any] = {"results": results}
    if per_child is not None:
        config["instancesPerChild"] = per_child
    return {
        "config": config,
        "context": [
            {"type": "tool", "tool": own},
            {"type": "data", "kind": "order", "_instances": {"source": source, "id": "orderId"}},
            {"type": "plan", "plan": calls},
        ],
    }


def write_rows(path: Path, count: int) -> None:
    """A file of orders, of about 100 bytes each."""
    with path.open("w", encoding="utf-8") as file:
        for n in range(count):
            row = {"orderId": f"A-{n:07}", "customer": f"customer {n % 977}", "depth": 1, "text": "0123456789abcdef"}
            file.write(json.dumps(row) + "\n")


def _resident_mb(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/statm").read_text("ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / _KB / _KB
    return 0.0


class _Workers:
    """One worker at a time, in a folder of its own; ``kill`` ends it at once and starts the next."""

    def __init__(self, address: str, folder: Path, measured: Measured) -> None:
        self._address, self._folder, self._measured = address, folder, measured
        self._stack = ExitStack()
        self._process: live.Process | None = None

    def start(self) -> None:
        names = {"ACTS_DATA": str(self._folder), "ACTS_RESULTS": str(self._folder)}
        self._process = self._stack.enter_context(live.worker(self._address, queue=QUEUE, **names))

    def sample(self) -> None:
        if self._process is not None:
            self._measured.memory = max(self._measured.memory, _resident_mb(self._process.pid))

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        self._measured.kills += 1
        self.start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            with suppress(OSError):
                self._measured.cpu += live.cpu_seconds(self._process.pid) or 0.0
            self._process.popen.send_signal(number)
            self._process.popen.wait()
        self._stack.close()


async def measure(rows: int, kills: int, per_child: int | None, *, local: bool) -> Measured:
    """Run a set of so many rows, with a server of its own."""
    measured = Measured(rows)
    with tempfile.TemporaryDirectory(prefix="acts-sets-") as name, live.server() as server:
        folder = Path(name)
        write_rows(folder / "orders.jsonl", rows)
        client = await Client.connect(server.address)
        workers = _Workers(server.address, folder, measured)
        workers.start()
        began, server_began = time.monotonic(), live.cpu_seconds(server.pid) or 0.0
        handle = await client.start_workflow(
            PLAN, request("orders.jsonl", "out.jsonl", per_child, local=local), id=f"set-{rows}", task_queue=QUEUE
        )
        await _follow(handle, workers, rows, kills)
        measured.wall = time.monotonic() - began
        measured.server_cpu = (live.cpu_seconds(server.pid) or 0.0) - server_began
        workers.sample()
        workers.stop()
        await _read_histories(client, measured)
        lines = [json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines()]
        measured.lines, measured.repeated = len(lines), len(lines) - len({line["id"] for line in lines})
        wrong = [line for line in lines if line["status"] != "completed"]
        if wrong or measured.lines != rows or measured.repeated:
            sys.exit(f"{measured}: {len(wrong)} failed, like {wrong[:1]}")
    return measured


async def _follow(handle: WorkflowHandle[Any, Any], workers: _Workers, rows: int, kills: int) -> None:
    """Kill the worker at equal distances of progress, until the run has ended."""
    ending = asyncio.ensure_future(handle.result())
    killed, shown = 0, 0.0
    while not ending.done():
        await asyncio.wait({ending}, timeout=_POLL_SECONDS)
        workers.sample()
        if time.monotonic() - shown < _STATUS_SECONDS or ending.done():
            continue
        shown = time.monotonic()
        with suppress(RPCError, TimeoutError):
            counts = (await asyncio.wait_for(handle.query(STATUS), _STATUS_SECONDS))["instances"]
            done = counts["completed"] + counts["failed"]
            print_progress(f"{done:,} of {rows:,} rows")
            if killed < kills and done >= rows * (killed + 1) // (kills + 1):
                killed += 1
                await asyncio.to_thread(workers.kill)
    result = await ending
    print_progress(f"{result['status']}: {result['instances']}")


async def _read_histories(client: Client, measured: Measured) -> None:
    """The largest history of all runs, as the server counted it."""
    async for run in client.list_workflows(""):
        measured.runs += 1
        events = run.raw_info.history_length
        measured.size = max(measured.size, run.raw_info.history_size_bytes)
        if events > measured.events:
            measured.events, measured.largest = events, f"{run.workflow_type} {run.id}"


def _table(measured: Measured, per_child: int | None) -> Table:
    return Table(
        f"a set of {measured.rows:,} rows of three Calls each, {per_child or 25} to a child",
        ["", "figure"],
        [
            ["wall, s", measured.wall],
            ["wall, ms per row", 1000 * measured.wall / measured.rows],
            ["worker CPU, ms per row", 1000 * measured.cpu / measured.rows],
            ["server CPU, ms per row", 1000 * measured.server_cpu / measured.rows],
            ["peak memory of a worker, MB", measured.memory],
            [f"events of the largest history ({measured.largest.partition(' ')[0]})", measured.events],
            ["bytes of the largest history", measured.size],
            ["runs", measured.runs],
            ["kills of the worker", measured.kills],
            ["lines of results", measured.lines],
            ["rows with two lines", measured.repeated],
        ],
        raw=[asdict(measured)],
    )


def main() -> None:
    """Measure, and print a table for each number of rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sets")
    parser.add_argument("rows", nargs="*", type=int, default=list(ROWS))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--per-child", type=int)
    parser.add_argument("--local", action="store_true")
    add_options(parser)
    options = parser.parse_args()

    def run(_: int | None) -> Iterator[Table]:
        for rows in options.rows:
            measured = asyncio.run(measure(rows, options.kills, options.per_child, local=options.local))
            yield _table(measured, options.per_child)

    run_and_print({"sets": run}, None, options.json)


if __name__ == "__main__":
    main()
