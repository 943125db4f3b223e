"""A run of 1,000 calls that a hundred readers watch over HTTP, compared with one that nobody watches.

The plan waits for approval until all readers are there. It is approved by an update, and so is one of its calls, while
the others run: how long both answers take is measured, too. The readers are a process of their own; each gets every
event. CPU is that of the worker's process, from the approval until a second after the end.

    python -m benchmarks watching
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from temporalio.client import WorkflowHandle

from benchmarks import live, shapes
from benchmarks.live import ROOT, Bench, Process, cpu_seconds
from benchmarks.tables import Table, median, print_progress, ratio, run_program

ROUNDS: Final = 7
CALLS: Final = 1_000
READERS: Final = 100
SETTLE_SECONDS: Final = 1.0  # what readers still get after the end
NOTE: Final = "Medians of the rounds; the ratio is that of each round to the run without readers beside it."
COLUMNS: Final = [
    "",
    "wall, s",
    "worker CPU, s",
    "CPU, ratio",
    "history, events",
    "approval, ms",
    "… while it runs, ms",
]
_TEXT: Final = {"type": "string"}
# A Call of it waits for a person
GATE: Final = {
    "type": "object",
    "properties": {
        "_tool": {"const": "gate"}, "_activity": {"const": "bench.step"}, "_approval": {"const": True},
        "inputs": {"type": "array"}, "_outputPath": _TEXT, "_output": True,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Watched:
    wall: float
    cpu: float
    events: int
    plan_seconds: float
    call_seconds: float
    received: int  # events that all readers got together


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    measured = live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))
    table = Table(f"{CALLS:,} calls", COLUMNS, note=NOTE)
    alone = measured["nobody"]
    for name, runs in measured.items():
        ratios = [ratio(one.cpu, other.cpu) for one, other in zip(runs, alone, strict=True)]
        events = {one.events for one in runs}
        cells = [median([getattr(one, key) for one in runs]) for key in ("wall", "cpu", "plan_seconds", "call_seconds")]
        milli = [None if cell is None else cell * 1000 for cell in cells[2:]]
        table.rows.append([name, *cells[:2], median(ratios), max(events), *milli])
        table.raw.append({"case": name, "rounds": [asdict(one) for one in runs]})
    yield table


async def _measure(bench: Bench, rounds: int) -> dict[str, list[Watched]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    out: dict[str, list[Watched]] = {"nobody": [], f"{READERS} readers": []}
    with live.worker(bench.server.address, ACTS_HEALTH=f"127.0.0.1:{port}") as process:
        for round_ in range(-1, rounds):  # the first one warms up and does not count
            print_progress(f"watching: round {round_ + 1} of {rounds}")
            for name, readers in ((name, READERS if "readers" in name else 0) for name in out):
                result = await _run_watched(bench, process, port, readers)
                if round_ >= 0:
                    out[name].append(result)
    return out


async def _run_watched(bench: Bench, process: Process, port: int, readers: int) -> Watched:
    request = shapes.fan_out(CALLS).request()
    gate = {"_tool": "gate", "inputs": [], "_outputPath": "†state.gate"}
    tool, plan = request["context"]
    request["context"] = [tool, {"type": "tool", "tool": GATE}, {**plan, "plan": [gate, *plan["plan"]], "mode": "lazy"}]
    handle: WorkflowHandle[Any, Any] = await bench.client.start_workflow(
        "Plan", request, id=f"watched-{uuid.uuid4().hex[:8]}", task_queue=process.queue
    )
    await _await_wait(handle)
    watching = await _start_readers(port, handle.id, readers)
    cpu, start = cpu_seconds(process.pid) or 0.0, time.perf_counter()
    plan_seconds = await _approve(handle)
    await _await_wait(handle)
    call_seconds = await _approve(handle)
    await handle.result()
    wall = time.perf_counter() - start
    received = await _end_readers(watching)
    await asyncio.sleep(SETTLE_SECONDS)
    used = (cpu_seconds(process.pid) or 0.0) - cpu
    return Watched(wall, used, (await bench.info(handle.id)).history_length, plan_seconds, call_seconds, received)


async def _await_wait(handle: WorkflowHandle[Any, Any]) -> None:
    while not await handle.query("pending"):  # noqa: ASYNC110 - a query is the only way to see that it waits
        await asyncio.sleep(0.02)


async def _approve(handle: WorkflowHandle[Any, Any]) -> float:
    start = time.perf_counter()
    await handle.execute_update("decide", {"decision": "approve", "by": "the benchmark"})
    return time.perf_counter() - start


# -- readers, in a process of their own ----------------------------------------------------------------


async def _start_readers(port: int, run_id: str, count: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "benchmarks.watching", "--read", str(port), run_id, str(count))
    pipe = subprocess.PIPE
    watching = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe)
    if watching.stdout is None or await watching.stdout.readline() != b"ready\n":
        raise RuntimeError("the readers did not start")
    return watching


async def _end_readers(watching: asyncio.subprocess.Process) -> int:
    out, _ = await watching.communicate()
    return int(out)


async def _read_all(port: int, run_id: str, count: int) -> None:
    ready = asyncio.Barrier(count + 1)
    readers = [asyncio.create_task(_read(port, run_id, ready)) for _ in range(count)]
    await ready.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout.write(str(sum(await asyncio.gather(*readers))))


async def _read(port: int, run_id: str, ready: asyncio.Barrier) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    text = await reader.readuntil(b"RUN_STARTED")
    await ready.wait()
    while part := await reader.read(1 << 16):
        text += part
    if b'"RUN_FINISHED"' not in text:
        raise RuntimeError(f"a reader was dropped after {len(text):,} bytes")
    return text.count(b"\nid: ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        asyncio.run(_read_all(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        run_program("watching", run)
