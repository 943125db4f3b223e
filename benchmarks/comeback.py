"""Fifty runs with long histories wait; all workers are killed, and one comes back.

Each run is a chain of calls that has ended, beside one call that still runs, so that its history could not be cut by
continue-as-new. The one worker that comes back has none of the runs in its cache: it replays every history, for the
next workflow task of each. A task that takes longer than the server's limit of 10 s begins again from the start, so
too many replays side by side would never end.

Measured are the seconds from the start of that worker until every run has completed, and how many workflow tasks timed
out on the way.

    python -m benchmarks comeback
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue

from acts.language.wire import PLAN
from benchmarks import live
from benchmarks.instances import peak_memory
from benchmarks.live import Bench
from benchmarks.tables import Table, print_progress, run_program
from workflows.runtime.payloads import decode

RUNS: Final = 50
EVENTS: Final = 15_000
# Two events more than a call's three for each workflow task, one per call of a chain
EVENTS_PER_CALL: Final = 6
TARGET_SECONDS: Final = 120.0
# Twice the target, so that a miss is measured as well
LIMIT_SECONDS: Final = 2 * TARGET_SECONDS
# A chain of 2,500 calls takes a minute alone; fifty of them share two cores
PREPARE_SECONDS: Final = 7_200.0
POLL_SECONDS: Final = 0.5
COLUMNS: Final = [
    "", "runs", "events of each", "first run completes, s", "half, s", "all, s", "tasks timed out", "peak memory, MB",
]  # fmt: skip
NOTE: Final = f"Seconds from the start of the worker that comes back. Target: all within {TARGET_SECONDS:g} s."


@dataclass
class Herd:
    """The waiting runs, the queue they wait on, and the file that lets their last calls end."""

    queue: str
    gate: Path
    ids: list[str]
    events: int


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    yield live.on_server(lambda bench: _measure(bench, rounds or 1))


async def _measure(bench: Bench, rounds: int) -> Table:
    table = Table("all workers are killed, and one comes back", COLUMNS, note=NOTE)
    for round_ in range(rounds):
        print_progress(f"comeback: round {round_ + 1} of {rounds}; preparing takes a quarter of an hour")
        with tempfile.TemporaryDirectory(prefix="acts-bench-") as folder:
            herd = await prepare(bench, Path(folder) / "gate", RUNS, EVENTS)
            measured = await come_back(bench, herd)
        table.rows.append([f"round {round_ + 1}", *measured.values()])
        table.raw.append(measured)
    return table


async def prepare(bench: Bench, gate: Path, runs: int, events: int) -> Herd:
    """Start the runs, wait until each waits for its last call only, and kill the worker."""
    queue = f"comeback-{uuid.uuid4().hex[:8]}"
    request = _request(events // EVENTS_PER_CALL)
    herd = Herd(queue, gate, [f"{queue}/{number}" for number in range(runs)], 0)
    with live.worker(bench.server.address, queue=queue, BENCH_GATE=str(gate)) as process:
        for id_ in herd.ids:
            await bench.client.start_workflow(PLAN, request, id=id_, task_queue=queue)
        herd.events = min(await asyncio.gather(*[_rest(bench, id_) for id_ in herd.ids]))
        os.kill(process.pid, signal.SIGKILL)
    return herd


def _request(calls: int) -> dict[str, Any]:
    """A chain, and a call beside it that lasts until the gate is open; the last call reads the ends of both."""
    plan: list[dict[str, Any]] = [{"_tool": "gate", "inputs": [], "_outputPath": "†state.gate"}]
    for i in range(calls):
        plan.append({"_tool": "step", "inputs": [f"†state.c{i - 1}"] if i else [], "_outputPath": f"†state.c{i}"})
    plan.append({"_tool": "step", "inputs": ["†state.gate", f"†state.c{calls - 1}"], "_outputPath": "†state.end"})
    tools = [{"type": "tool", "tool": name} for name in ("gate", "step")]
    return {"config": {}, "context": [*tools, {"type": "plan", "plan": plan}]}


async def _rest(bench: Bench, id_: str) -> int:
    """Wait until a history has stopped growing; returns its events."""
    handle = bench.client.get_workflow_handle(id_)
    deadline, before = time.monotonic() + PREPARE_SECONDS, 0
    while time.monotonic() < deadline:
        description = await handle.describe()
        pending = [a.activity_type.name for a in description.raw_description.pending_activities]
        if pending == ["bench.gate"] and description.history_length == before:
            return before
        before = description.history_length
        await asyncio.sleep(5)
    raise RuntimeError(f"{id_} still walks its chain: {before} events")


async def come_back(bench: Bench, herd: Herd, **environment: str) -> dict[str, Any]:
    """Open the gate, start one worker, and wait for all runs."""
    herd.gate.touch()
    with ExitStack() as stack:
        start = time.monotonic()
        process = stack.enter_context(
            live.worker(bench.server.address, queue=herd.queue, BENCH_GATE=str(herd.gate), **environment)
        )
        ends = sorted(await asyncio.gather(*[_end(bench, id_, start) for id_ in herd.ids]))
        peak = peak_memory(process.pid)
    timeouts = sum([await _timeouts(bench, id_) for id_ in herd.ids])
    return {
        "runs": len(herd.ids), "events": herd.events, "first": ends[0], "half": ends[len(ends) // 2],
        "all": ends[-1], "timeouts": timeouts, "peak": peak,
    }  # fmt: skip


async def _end(bench: Bench, id_: str, start: float) -> float:
    """Seconds until a run has completed; infinite when it has not by the limit."""
    handle: WorkflowHandle[Any, RawValue] = bench.client.get_workflow_handle(id_, result_type=RawValue)
    try:
        result = decode(await asyncio.wait_for(handle.result(), LIMIT_SECONDS))
    except TimeoutError:
        return float("inf")
    if result["status"] != "completed":
        raise RuntimeError(f"{id_} did not complete: {result['errors']}")
    return time.monotonic() - start


async def _timeouts(bench: Bench, id_: str) -> int:
    """Workflow tasks in the history of a run that took longer than the server allows."""
    timed_out = EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
    events = bench.client.get_workflow_handle(id_).fetch_history_events()
    return sum(
        [
            event.event_type == timed_out and event.workflow_task_timed_out_event_attributes.timeout_type == 1
            async for event in events
        ]
    )


if __name__ == "__main__":
    run_program("comeback", run)
