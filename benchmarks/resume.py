"""kill -9 of the worker in mid-plan: when does the plan continue, and does a completed call run again?

Calls write a line when they begin and when they end. When a few have ended, the worker that runs
the next one is killed. Measured are the time until that call runs again (on a standby worker, or on
one that starts at that moment), the time until a new call begins, and the number of calls that ran
again although their result was in history.

The server notices an interrupted call by its missing heartbeat (2 s here), and retries it after 1 s.

    python -m benchmarks resume
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue

from acts.language.wire import PLAN
from acts.workflows.payloads import decode
from benchmarks import live, shapes
from benchmarks.live import Bench, Process
from benchmarks.shapes import Shape
from benchmarks.tables import Table, median, print_progress, run_program

ROUNDS: Final = 3
KILL_AFTER: Final = 8
CALL_SECONDS: Final = 0.3
TOOL: Final = "marked"
COLUMNS: Final = [
    "",
    "interrupted call runs again after, s",
    "next call begins after, s",
    "completed before the kill",
    "of these repeated",
]
NOTE: Final = "Medians; the last two are sums. Target: 0 repeated."
LIMIT_SECONDS: Final = 120.0

Mark = dict[str, Any]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    yield live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))


async def _measure(bench: Bench, rounds: int) -> Table:
    table = Table("kill -9 of the worker", COLUMNS, note=NOTE)
    for shape, what in ((shapes.chain(20), "chain of 20"), (shapes.layered(40), "5 layers of 8")):
        slow = dataclasses.replace(shape, seconds=(CALL_SECONDS,) * shape.calls)
        for standby in (True, False):
            measured = []
            for round_ in range(rounds):
                how = "standby worker" if standby else "new worker"
                print_progress(f"resume: {what}, {how}, round {round_ + 1} of {rounds}")
                measured.append(await _measure_once(bench, slow, standby=standby))
            table.rows.append([
                f"{what}, {how}", median([m["again"] for m in measured]), median([m["next"] for m in measured]),
                sum(m["done"] for m in measured), sum(m["repeated"] for m in measured),
            ])  # fmt: skip
            table.raw.append({"case": f"{what}, {how}", "rounds": measured})
    return table


async def _measure_once(bench: Bench, shape: Shape, *, standby: bool) -> dict[str, Any]:
    queue = f"resume-{uuid.uuid4().hex[:8]}"
    address = bench.server.address
    with ExitStack() as stack:
        marks = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-bench-"))) / "marks"
        marks.touch()

        def start() -> Process:
            return stack.enter_context(live.worker(address, queue=queue, BENCH_MARKS=str(marks)))

        workers = [start() for _ in range(1 + standby)]
        handle: WorkflowHandle[Any, RawValue] = await bench.client.start_workflow(
            PLAN, shape.request(TOOL), id=queue, task_queue=queue, result_type=RawValue
        )
        begins = await _wait_for_begins(marks, KILL_AFTER + 1)
        completed = await _completed_ids(handle)
        os.kill(begins[-1]["pid"], signal.SIGKILL)
        kill_time = time.time()
        if not standby:
            workers.append(await asyncio.to_thread(start))
        result = decode(await asyncio.wait_for(handle.result(), LIMIT_SECONDS))
        if result["status"] != "completed":
            raise RuntimeError(f"{shape.name} did not complete: {result['errors']}")
        return _evaluate(_read_marks(marks), kill_time, completed)


def _evaluate(lines: list[Mark], kill_time: float, completed: set[str]) -> dict[str, Any]:
    """The measured times and counts, from the marks."""
    after = [m for m in lines if m["what"] == "begin" and m["at"] > kill_time]
    before = {m["id"] for m in lines if m["at"] <= kill_time}
    again = [m["at"] - kill_time for m in after if m["id"] in before]
    new = [m["at"] - kill_time for m in after if m["id"] not in before]
    return {
        "again": min(again, default=None), "next": min(new, default=None), "done": len(completed),
        "repeated": len({m["id"] for m in after} & completed),
    }  # fmt: skip


async def _wait_for_begins(marks: Path, count: int) -> list[Mark]:
    """Wait until ``count`` calls have begun; returns their marks."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        begins = [m for m in _read_marks(marks) if m["what"] == "begin"]
        if len(begins) >= count:
            return begins
        await asyncio.sleep(0.01)
    raise RuntimeError("the plan makes no progress")


def _read_marks(marks: Path) -> list[Mark]:
    return [json.loads(line) for line in marks.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]


async def _completed_ids(handle: WorkflowHandle[Any, Any]) -> set[str]:
    """The ids of the calls whose result is in history."""
    ids: dict[int, str] = {}
    completed: set[str] = set()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed.add(ids[event.activity_task_completed_event_attributes.scheduled_event_id])
    return completed


if __name__ == "__main__":
    run_program("resume", run)
