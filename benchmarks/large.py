"""A batch of thousands of instances, and what else happens on its worker meanwhile.

* 20,000 instances of a chain of five calls, 100 to a child. Measured are the time until all have completed, the
  slowest answer to ``status`` on the way, the most Activities that were in flight at a time (by the times of their
  events, so a queue that is too long shows as well), the messages about permits, and the worker's peak memory.
* A chain of ten calls, alone and beside that batch.
* 400 calls of a second, each with a timeout of 20 s, on a worker with five slots: a backlog fails none.

    python -m benchmarks.large
    BENCH_INSTANCES=2000 python -m benchmarks.large
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue

from acts.language.wire import PLAN
from acts.workflows.payloads import decode
from benchmarks import live, shapes
from benchmarks.instances import peak_memory
from benchmarks.live import Bench, Process
from benchmarks.tables import Cell, Table, median, print_progress, ratio, run_program

INSTANCES: Final = int(os.environ.get("BENCH_INSTANCES", "20000"))
CALLS: Final = 5
PER_CHILD: Final = 100
PARALLEL: Final = 100
# 20,000 instances take ten minutes on two cores that do other work, too
RUN_SECONDS: Final = 3_600.0
STATUS_SECONDS: Final = 1.0
STATUS_TARGET: Final = 2.0
SMALL: Final = shapes.chain(10)
ALONE_RUNS: Final = 9
# The first runs of a worker load what the others find
WARM: Final = 2
SMALL_TARGET: Final = 3.0
# Between two small plans beside the batch, so that they are no load of their own
SMALL_PAUSE_SECONDS: Final = 5.0
AT_ONCE: Final = 8
SLOTS: Final = 5
SLOW_CALLS: Final = 400
SLOW_TIMEOUT: Final = "20s"
PERMIT_SIGNALS: Final = frozenset({"permitRequest", "permitGrant", "permitReturn"})
_SCHEDULED: Final = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
_COMPLETED: Final = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
_TIMED_OUT: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
_SIGNALED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


@dataclass
class Histories:
    """What the histories of a batch show."""

    events: int = 0
    permit_signals: int = 0
    timeouts: int = 0
    calls: int = 0
    _changes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, events: list[Any]) -> None:
        """Count one history."""
        self.events += len(events)
        for event in events:
            kind = event.event_type
            if kind == _SCHEDULED:
                self._changes.append((event.event_time.ToNanoseconds(), 1))
            elif kind == _COMPLETED:
                self.calls += 1
                self._changes.append((event.event_time.ToNanoseconds(), -1))
            elif kind == _TIMED_OUT:
                self.timeouts += event.workflow_task_timed_out_event_attributes.timeout_type == 1
            elif kind == _SIGNALED:
                self.permit_signals += event.workflow_execution_signaled_event_attributes.signal_name in PERMIT_SIGNALS

    def most_in_flight(self) -> int:
        """The most Activities that were scheduled and had not ended, at any time. At the same time, ends come first."""
        now = most = 0
        for _, change in sorted(self._changes):
            now += change
            most = max(most, now)
        return most


def run(rounds: int | None = None) -> Iterator[Table]:
    """Two tables."""
    yield from live.on_server(lambda bench: _measure(bench, rounds or 1))


async def _measure(bench: Bench, rounds: int) -> list[Table]:
    batch = Table(f"{INSTANCES:,} instances of {CALLS} calls, {PER_CHILD} to a child", ["", "figure", "target"])
    backlog = Table(f"{SLOW_CALLS} calls of a second behind {SLOTS} slots", ["", "figure", "target"])
    for round_ in range(rounds):
        print_progress(f"large: round {round_ + 1} of {rounds}")
        with live.worker(bench.server.address, ACTS_MAX_ACTIVITIES=str(SLOTS)) as process:
            backlog.rows += await _measure_backlog(bench, process)
        print_progress(backlog.text())
        with live.worker(bench.server.address) as process:
            batch.rows += await _measure_batch(bench, process)
    return [batch, backlog]


# -- the batch -------------------------------------------------------------------------------------------------


def request(instances: int) -> dict[str, Any]:
    """Each instance has a depth to begin with, and each call adds one: so the end shows that each read its own."""
    calls = [{"_tool": "step", "inputs": [f"†state.c{i}"], "_outputPath": f"†state.c{i + 1}"} for i in range(CALLS)]
    data = [{"type": "state", "c0": {"depth": n + 1}, "_instance": f"i{n}"} for n in range(instances)]
    config = {"instancesPerChild": PER_CHILD, "maxParallel": PARALLEL}
    context = [{"type": "tool", "tool": "step"}, *data, {"type": "plan", "plan": calls}]
    return {"config": config, "context": context}


async def _measure_batch(bench: Bench, process: Process) -> list[list[Cell]]:
    alone: list[float | None] = [(await bench.run_engine(process, SMALL)).wall for _ in range(ALONE_RUNS)][WARM:]
    start = time.monotonic()
    handle: WorkflowHandle[Any, RawValue] = await bench.client.start_workflow(
        PLAN, request(INSTANCES), id=f"large-{INSTANCES}", task_queue=process.queue, result_type=RawValue
    )
    answers: list[float] = []
    beside: list[float] = []
    async with _repeated(_ask_status(handle, answers)), _repeated(_run_small(bench, process, beside)):
        result = decode(await asyncio.wait_for(handle.result(), RUN_SECONDS))
    wall = time.monotonic() - start
    peak = peak_memory(process.pid)
    states = Counter(item["status"] for item in result["instances"].values())
    if states != {"completed": INSTANCES}:
        raise RuntimeError(f"not all instances completed: {states}; {str(result['errors'])[:2000]}")
    print_progress(f"large: completed after {wall:.0f} s; reading the histories")
    seen = await _read_histories(bench, handle.id)
    if seen.calls != INSTANCES * CALLS:
        raise RuntimeError(f"{seen.calls} calls completed, not {INSTANCES * CALLS}")
    own, others = median(alone), median([*beside])
    slow = sum(seconds > STATUS_TARGET for seconds in answers)
    return [
        ["wall, s", wall, "–"],
        ["calls per second", seen.calls / wall, "–"],
        [f"status: slowest of {len(answers):,} answers, s", max(answers), f"{STATUS_TARGET:g}"],
        [f"status: answers above {STATUS_TARGET:g} s", slow, "0"],
        ["most activities in flight", seen.most_in_flight(), f"{PARALLEL}"],
        ["permit signals per 1,000 calls", 1000 * seen.permit_signals / seen.calls, "–"],
        ["events per call", seen.events / seen.calls, "–"],
        ["workflow tasks timed out", seen.timeouts, "0"],
        ["worker's peak memory, MB", peak, "–"],
        ["worker's CPU, ms per call", 1000 * (live.cpu_seconds(process.pid) or 0) / seen.calls, "–"],
        ["ten calls alone: median, s", own, "–"],
        [f"ten calls beside it: median of {len(beside)}, s", others, "–"],
        ["… slowest, s", max(beside, default=None), "–"],
        ["… times as long (medians)", ratio(others, own), f"{SMALL_TARGET:g}"],
    ]


@asynccontextmanager
async def _repeated(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()


async def _ask_status(handle: WorkflowHandle[Any, Any], answers: list[float]) -> None:
    began = time.monotonic()
    while True:
        start = time.monotonic()
        await handle.query("status", result_type=RawValue)
        answers.append(time.monotonic() - start)
        if answers[-1] > STATUS_TARGET:
            print_progress(
                f"large: status took {answers[-1]:.1f} s, asked {start - began:.0f} s after the start of the batch"
            )
        await asyncio.sleep(STATUS_SECONDS)


async def _run_small(bench: Bench, process: Process, walls: list[float]) -> None:
    while True:
        await asyncio.sleep(SMALL_PAUSE_SECONDS)
        walls.append((await bench.run_engine(process, SMALL)).wall)


async def _read_histories(bench: Bench, root: str) -> Histories:
    """All runs of the batch, those of a chain of continue-as-new included."""
    seen = Histories()
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(id_: str, run_id: str | None) -> None:
        async with gate:
            while run_id is not None:
                handle = bench.client.get_workflow_handle(id_, run_id=run_id)
                events = [event async for event in handle.fetch_history_events()]
                seen.add(events)
                run_id = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None

    first = (await bench.client.get_workflow_handle(root).describe()).raw_description.workflow_execution_info
    runs = [(root, first.first_run_id or first.execution.run_id)]
    for n in range(0, INSTANCES, PER_CHILD):
        child = await bench.client.get_workflow_handle(f"{root}/i{n}").describe()
        info = child.raw_description.workflow_execution_info
        runs.append((child.id, info.first_run_id or info.execution.run_id))
    await asyncio.gather(*[read(id_, run_id) for id_, run_id in runs])
    return seen


# -- a backlog -------------------------------------------------------------------------------------------------


async def _measure_backlog(bench: Bench, process: Process) -> list[list[Cell]]:
    tool = {
        "_tool": {"const": "slow"}, "_activity": {"const": "bench.step"}, "_outputPath": {"type": "string"},
        "_options": {"const": {"timeout": SLOW_TIMEOUT, "retry": {"maxAttempts": 1}}}, "inputs": True, "seconds": True,
    }  # fmt: skip
    plan = [{"_tool": "slow", "inputs": [], "seconds": 1, "_outputPath": f"†state.n{n}"} for n in range(SLOW_CALLS)]
    context = [{"type": "tool", "tool": {"properties": tool}}, {"type": "plan", "plan": plan}]
    cost, result = await bench.run(PLAN, process, {"config": {"maxParallel": SLOW_CALLS}, "context": context})
    failed = Counter(error["code"] for error in result["errors"])
    if set(failed):
        print_progress(f"large: {failed} {result['errors'][0]}")
    return [
        ["calls that failed", failed.total(), "0"],
        ["wall, s", cost.wall, f"{SLOW_CALLS / SLOTS:g}"],
    ]


if __name__ == "__main__":
    run_program("large", run)
