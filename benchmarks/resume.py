"""kill -9 of the worker in mid-plan: when does it go on, and is anything done twice that was done?

Calls write a line when they begin and when they end. When a few are done, the worker that runs
the next is killed. Then: how long until that call runs again (on the worker that stands by, or
on one that is started at that moment), until a call runs that had not begun, and how many calls
began again although their result was in history.

A call that is cut off is noticed by its missing heartbeat (2 s here) and retried after 1 s.

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
from benchmarks import live, shapes
from benchmarks.live import Bench, Process
from benchmarks.shapes import Shape
from benchmarks.tables import Table, alone, median, say
from workflows.runtime.payloads import decode

ROUNDS: Final = 3
KILL_AFTER: Final = 8
CALL_SECONDS: Final = 0.3
TOOL: Final = "marked"
COLUMNS: Final = [
    "",
    "call cut off runs again after, s",
    "next call begins after, s",
    "done before the kill",
    "repeated of them",
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
            found = []
            for round_ in range(rounds):
                how = "another stands by" if standby else "another is started"
                say(f"resume: {what}, {how}, round {round_ + 1} of {rounds}")
                found.append(await _once(bench, slow, standby=standby))
            table.rows.append([
                f"{what}, {how}", median([f["again"] for f in found]), median([f["next"] for f in found]),
                sum(f["done"] for f in found), sum(f["repeated"] for f in found),
            ])  # fmt: skip
            table.raw.append({"case": f"{what}, {how}", "rounds": found})
    return table


async def _once(bench: Bench, shape: Shape, *, standby: bool) -> dict[str, Any]:
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
        begun = await _begun(marks, KILL_AFTER + 1)
        recorded = await _completed(handle)
        os.kill(begun[-1]["pid"], signal.SIGKILL)
        killed = time.time()
        if not standby:
            workers.append(await asyncio.to_thread(start))
        result = decode(await asyncio.wait_for(handle.result(), LIMIT_SECONDS))
        if result["status"] != "completed":
            raise RuntimeError(f"{shape.name} did not complete: {result['errors']}")
        return _judge(_lines(marks), killed, recorded)


def _judge(lines: list[Mark], killed: float, recorded: set[str]) -> dict[str, Any]:
    """What the marks tell."""
    after = [m for m in lines if m["what"] == "begin" and m["at"] > killed]
    before = {m["id"] for m in lines if m["at"] <= killed}
    again = [m["at"] - killed for m in after if m["id"] in before]
    new = [m["at"] - killed for m in after if m["id"] not in before]
    return {
        "again": min(again, default=None), "next": min(new, default=None), "done": len(recorded),
        "repeated": len({m["id"] for m in after} & recorded),
    }  # fmt: skip


async def _begun(marks: Path, count: int) -> list[Mark]:
    """The first calls to begin, when there are so many."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        found = [m for m in _lines(marks) if m["what"] == "begin"]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)
    raise RuntimeError("the plan does not get on")


def _lines(marks: Path) -> list[Mark]:
    return [json.loads(line) for line in marks.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]


async def _completed(handle: WorkflowHandle[Any, Any]) -> set[str]:
    """The ids of the calls whose result is in history."""
    ids: dict[int, str] = {}
    done: set[str] = set()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done.add(ids[event.activity_task_completed_event_attributes.scheduled_event_id])
    return done


if __name__ == "__main__":
    alone("resume", run)
