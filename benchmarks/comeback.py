"""Fifty runs with long histories wait; all workers are killed, and one comes back.

Each run is a chain of calls that has ended. What it waits for decides how long its history is: beside a *call* that
still runs, it could not continue as new; with nothing in flight, for an *approval*, it has. The one worker that comes
back has none of the runs in its cache: it replays every history, for the next workflow task of each. A task that takes
longer than the server's limit begins again from the start, so too many replays side by side would never end.

Measured are the seconds from the start of that worker until every run has completed, and how many workflow tasks timed
out on the way.

    python -m benchmarks.comeback [--for call|approval] [--herd FOLDER [--prepare N]]

Preparing takes much longer than measuring. With ``--herd``, the waiting runs are kept in a folder and each round works
on a copy of it, with as many runs as it has; ``--prepare N`` adds N runs to it and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.language.wire import PLAN
from acts.workflows.payloads import decode
from benchmarks import live
from benchmarks.instances import peak_memory
from benchmarks.live import Bench
from benchmarks.tables import Table, add_options, print_progress, run_and_print

RUNS: Final = 50
EVENTS: Final = 15_000
# Two events more than a call's three for each workflow task, one per call of a chain
EVENTS_PER_CALL: Final = 6
# A chain that has ended has nearly all of its events: some workflow tasks bring two results
REST_SHARE: Final = 0.9
TARGET_SECONDS: Final = 120.0
# Twice the target, so that a miss is measured as well
LIMIT_SECONDS: Final = 2 * TARGET_SECONDS
# A chain of 2,500 calls takes a minute alone; fifty of them share two cores
PREPARE_SECONDS: Final = 7_200.0
POLL_SECONDS: Final = 0.5
CALL: Final = "call"
APPROVAL: Final = "approval"
COLUMNS: Final = [
    "", "runs", "events of each", "first run completes, s", "half, s", "all, s", "tasks timed out",
    "worker CPU, s", "peak memory, MB",
]  # fmt: skip
NOTE: Final = f"Seconds from the start of the worker that comes back. Target: all within {TARGET_SECONDS:g} s."


@dataclass
class Herd:
    """The waiting runs and the queue they wait on."""

    queue: str
    ids: list[str]
    events: int
    awaited: str = CALL


class Folder:
    """Where a herd is kept: the server's state, the herd itself, and the file that lets the last calls end."""

    def __init__(self, path: Path) -> None:
        self.path, self.state, self.gate = path, path / "state", path / "gate"

    def read(self, awaited: str = CALL) -> Herd:
        """The runs that wait in this folder; without any, none that wait for ``awaited``."""
        file = self.path / "herd.json"
        return Herd(**json.loads(file.read_text("utf-8"))) if file.exists() else Herd(_new_queue(), [], 0, awaited)

    def write(self, herd: Herd) -> None:
        """Keep what has been prepared."""
        (self.path / "herd.json").write_text(json.dumps(asdict(herd)), "utf-8")

    def on_server(self, work: Callable[[Bench], Coroutine[Any, Any, Any]]) -> Any:
        """Run ``work`` with a client of a server on this state."""

        async def connected(running: DevServer) -> Any:
            return await work(Bench(await Client.connect(running.address, namespace=running.namespace), running))

        with dev_server(state=self.state, ui=False) as running:
            return asyncio.run(connected(running))


def _new_queue() -> str:
    return f"comeback-{uuid.uuid4().hex[:8]}"


def run(rounds: int | None = None, path: Path | None = None, awaited: str = CALL) -> Iterator[Table]:
    """One table; the herd of ``path``, or one of its own that waits for ``awaited``."""
    table = Table("all workers are killed, and one comes back", COLUMNS, note=NOTE)
    with _temporary() as temporary:
        folder = Folder(path or temporary)
        if not folder.read().ids:
            print_progress("comeback: preparing the runs takes a quarter of an hour on two idle cores")
            prepare(folder, RUNS, awaited)
        for round_ in range(rounds or 1):
            print_progress(f"comeback: round {round_ + 1} of {rounds or 1}")
            with _temporary() as place:
                copy = Folder(Path(shutil.copytree(folder.path, place / "herd")))
                measured = copy.on_server(lambda bench, copy=copy: come_back(bench, copy))
            table.rows.append([f"round {round_ + 1}", *measured.values()])
            table.raw.append(measured)
    yield table


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="acts-bench-") as name:
        yield Path(name)


def prepare(folder: Folder, runs: int, awaited: str = CALL) -> None:
    """Start so many more runs, wait until each waits for its last call only, and kill the worker and the server."""
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(folder.on_server(lambda bench: _prepare(bench, folder, runs, awaited)))


async def _prepare(bench: Bench, folder: Folder, runs: int, awaited: str) -> Herd:
    herd = folder.read(awaited)
    request = _request(EVENTS // EVENTS_PER_CALL, herd.awaited)
    with live.worker(bench.server.address, queue=herd.queue, BENCH_GATE=str(folder.gate)) as process:
        ids = [f"{herd.queue}/{len(herd.ids) + number}" for number in range(runs)]
        for id_ in ids:
            await bench.client.start_workflow(PLAN, request, id=id_, task_queue=herd.queue)
        rest = _rest if herd.awaited == CALL else _rest_for_approval
        smallest = min(await asyncio.gather(*[rest(bench, id_) for id_ in ids]))
        os.kill(process.pid, signal.SIGKILL)
    return Herd(herd.queue, [*herd.ids, *ids], min(smallest, herd.events or smallest), herd.awaited)


def _request(calls: int, awaited: str) -> dict[str, Any]:
    """A chain; the last call reads its end, and waits for a call beside it, or for an approval."""
    plan = [
        {"_tool": "step", "inputs": [f"†state.c{i - 1}"] if i else [], "_outputPath": f"†state.c{i}"}
        for i in range(calls)
    ]
    last, config = {"_tool": "step", "inputs": [f"†state.c{calls - 1}"], "_outputPath": "†state.end"}, {}
    if awaited == APPROVAL:
        last, config = {**last, "_tool": "confirm"}, {"approve": {"calls": ["confirm"]}}
    else:
        plan.insert(0, {"_tool": "gate", "inputs": [], "_outputPath": "†state.gate"})
        last = {**last, "inputs": ["†state.gate", *last["inputs"]]}
    tools = [{"type": "tool", "tool": name} for name in ("gate", "step", "confirm")]
    return {"config": config, "context": [*tools, {"type": "plan", "plan": [*plan, last]}]}


async def _has_pending(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether a run waits for a decision; False where it just continues as new, and nobody answers."""
    try:
        return bool(await handle.query("pending"))
    except RPCError as error:
        if error.status is not RPCStatusCode.CANCELLED:
            raise
        return False


async def _rest_for_approval(bench: Bench, id_: str) -> int:
    """Wait until a run has nothing but the decision to wait for; returns the events of its last part."""
    handle = bench.client.get_workflow_handle(id_)
    deadline = time.monotonic() + PREPARE_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(5)
        if await _has_pending(handle):
            return (await handle.describe()).history_length
    raise RuntimeError(f"{id_} does not wait for its approval")


async def _rest(bench: Bench, id_: str) -> int:
    """Wait until a history has stopped growing; returns its events. It also rests where it tries to continue as new."""
    handle = bench.client.get_workflow_handle(id_)
    deadline, before = time.monotonic() + PREPARE_SECONDS, 0
    while time.monotonic() < deadline:
        description = await handle.describe()
        pending = [a.activity_type.name for a in description.raw_description.pending_activities]
        is_at_rest = pending == ["bench.gate"] and description.history_length == before
        if is_at_rest and before > REST_SHARE * EVENTS:
            return before
        before = description.history_length
        await asyncio.sleep(5)
    raise RuntimeError(f"{id_} still walks its chain: {before} events")


async def come_back(bench: Bench, folder: Folder, **environment: str) -> dict[str, Any]:
    """Open the gate, approve, start one worker, and wait for all runs."""
    herd = folder.read()
    folder.gate.touch()
    if herd.awaited == APPROVAL:
        await asyncio.gather(*[bench.client.get_workflow_handle(id_).signal("approve", {}) for id_ in herd.ids])
    start = time.monotonic()
    with live.worker(bench.server.address, queue=herd.queue, BENCH_GATE=str(folder.gate), **environment) as process:
        ends = sorted(await asyncio.gather(*[_end(bench, id_, start) for id_ in herd.ids]))
        peak, cpu = peak_memory(process.pid), live.cpu_seconds(process.pid)
    timeouts = sum([await _timeouts(bench, id_) for id_ in herd.ids])
    return {
        "runs": len(herd.ids), "events": herd.events, "first": ends[0], "half": ends[len(ends) // 2],
        "all": ends[-1], "timeouts": timeouts, "cpu": cpu, "peak": peak,
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


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comeback")
    add_options(parser)
    parser.add_argument("--for", dest="awaited", choices=[CALL, APPROVAL], default=CALL, help="what the runs wait for")
    parser.add_argument("--herd", type=Path, default=None, metavar="FOLDER", help="keep the waiting runs here")
    parser.add_argument("--prepare", type=int, default=0, metavar="N", help="add N runs to the folder, and end")
    arguments = parser.parse_args()
    if arguments.prepare and arguments.herd is None:
        parser.error("--prepare needs --herd")
    if arguments.prepare:
        prepare(Folder(arguments.herd), arguments.prepare, arguments.awaited)
    else:
        run_and_print(
            {"comeback": lambda rounds: run(rounds, arguments.herd, arguments.awaited)},
            arguments.rounds,
            arguments.json,
        )


if __name__ == "__main__":
    main()
