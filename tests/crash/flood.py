"""Too much at once, by a program: ``python -m tests.crash.flood [NAME …]``, or ``make flood``.

Each scenario has a server on disk and worker processes of its own, and fails with what it saw. Too slow for the tests:
together they take some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from cli.dev.temporal_server import dev_server
from tests.crash.test_kill import Program

Json = Any
QUEUE: Final = "flood"
STARTS: Final = 1_000
CANCELLED: Final = 500
SIGNALS: Final = 10_000
MEMORY_RUNS: Final = 200
MEMORY_MB: Final = 300
DISK_MB: Final = 24
DISK_RUNS: Final = 40
# For everything of a scenario to end; on two idle cores it takes a tenth of that
END_SECONDS: Final = 600.0


def tool_of(activity: str) -> Json:
    """A Tool that takes any value and writes anywhere."""
    # A result that cannot be reported is lost, and its call is made again after this
    options = {"timeout": "15s", "retry": {"maxAttempts": 20}}
    fixed = {"_activity": {"const": activity}, "_options": {"const": options}}
    properties = {**fixed, "_outputPath": {"type": "string"}, "value": {}}
    return {"type": "tool", "tool": {activity: {"properties": properties}}}


class Scene:
    """A server, a worker, a client."""

    def __init__(self, folder: Path, state: Path, stack: ExitStack) -> None:
        self.folder, self.state, self.stack = folder, state, stack
        self.server = stack.enter_context(dev_server(state=state, ui=False))
        self.client: Client

    def worker(self, **settings: str) -> Program:
        """A worker process; stopped at the end."""
        environment = {
            "TEMPORAL_ADDRESS": self.server.address, "ACTS_TASK_QUEUE": QUEUE, "TMPDIR": str(self.folder),
            "ACTS_ACTIVITIES": "tests.crash.blockers", **settings,
        }  # fmt: skip
        program = Program([sys.executable, "-m", "worker"], environment, self.folder / "worker.log")
        program.start()
        self.stack.callback(program.kill)
        return program

    async def start(self, id_: str, request: Json) -> Any:
        return await self.client.start_workflow("Plan", request, id=id_, task_queue=QUEUE)


def plan(*values: Json, missing: str = "fail") -> Json:
    """A chain of echoes."""
    calls = [{"_tool": "echo", "value": value, "_outputPath": f"†state.s{i}"} for i, value in enumerate(values)]
    return {"config": {"missing": missing}, "context": [tool_of("echo"), {"type": "plan", "plan": calls}]}


async def status_of(handle: Any) -> str:
    """How a run has ended, awaited."""
    with suppress(WorkflowFailureError):
        result = await asyncio.wait_for(handle.result(), END_SECONDS)
        return str(result["status"])
    return str((await handle.describe()).status.name).lower()


async def run_starts(scene: Scene) -> str:
    """1,000 starts at once, and 500 of the runs cancelled at once: the others complete."""
    scene.worker()
    request = plan("a", "†state.s0", "†state.s1")
    begin = time.monotonic()
    handles = await asyncio.gather(*[scene.start(f"start-{i}", request) for i in range(STARTS)])
    started = time.monotonic() - begin
    await asyncio.gather(*[handle.cancel() for handle in handles[:CANCELLED]], return_exceptions=True)
    ends = await asyncio.gather(*[status_of(handle) for handle in handles])
    rest, cancelled = set(ends[CANCELLED:]), set(ends[:CANCELLED])
    require(rest == {"completed"}, f"runs that nobody cancelled ended as {sorted(rest)}")
    require(cancelled <= {"completed", "canceled", "cancelled"}, f"cancelled runs ended as {sorted(cancelled)}")
    return f"started in {started:.1f} s, all ended after {time.monotonic() - begin:.1f} s"


async def run_signals(scene: Scene) -> str:
    """10,000 signals to one run, most of no use: it goes on with the right one."""
    scene.worker()
    handle = await scene.start("signals", plan("†input.name", missing="wait"))
    begin, refused = time.monotonic(), 0
    for first in range(0, SIGNALS, 100):
        names = ("provide", "pausee", "resume", "spend")
        sent = [handle.signal(names[i % len(names)], {"type": "inptu"}) for i in range(first, first + 100)]
        refused += sum(isinstance(one, RPCError) for one in await asyncio.gather(*sent, return_exceptions=True))
    seconds = time.monotonic() - begin
    await retry(lambda: handle.signal("provide", {"type": "input", "name": "Ada"}))
    result = await asyncio.wait_for(handle.result(), END_SECONDS)
    require(result["state"] == {"s0": "Ada"}, f"the run ended with {result['state']}")
    return f"{SIGNALS} signals in {seconds:.1f} s, {refused} refused by the server"


async def run_memory(scene: Scene) -> str:
    """200 runs on a worker with 300 MB: it stays below, and all complete."""
    program = scene.worker(ACTS_WORKER_MEMORY=str(MEMORY_MB))
    request = plan(*["x" * 2_000] * 20, "†input.name", missing="wait")
    handles = await asyncio.gather(*[scene.start(f"memory-{i}", request) for i in range(MEMORY_RUNS)])
    for handle in handles:
        await handle.signal("provide", {"type": "input", "name": "Ada"})
    ends = set(await asyncio.gather(*[status_of(handle) for handle in handles]))
    require(ends == {"completed"}, f"runs ended as {sorted(ends)}")
    peak = peak_mb(program.pid)
    require(peak < MEMORY_MB, f"the worker took {peak:.0f} MB")
    return f"peak {peak:.0f} MB"


async def run_clock(scene: Scene) -> str:
    """The worker's clock is set a day back, then a day forth, while runs are under way: nothing notices."""
    shift, library = scene.folder / "shift", scene.folder / "shifted_clock.so"
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)  # noqa: S607
    shift.write_text("0")
    scene.worker(LD_PRELOAD=str(library), SHIFT_FILE=str(shift))
    request, ends = plan(*["a"] * 30, "†input.name", *["b"] * 30, missing="wait"), list[str]()
    for number, seconds in enumerate((0, -86_400, 86_400, -86_400, 0)):
        handles = [await scene.start(f"clock-{number}-{i}", request) for i in range(5)]
        shift.write_text(str(seconds))
        for handle in handles:
            await handle.signal("provide", {"type": "input", "name": "Ada"})
        ends += await asyncio.gather(*[status_of(handle) for handle in handles])
    require(set(ends) == {"completed"}, f"runs ended as {sorted(set(ends))}")
    return f"{len(ends)} runs of 61 calls completed"


def peak_mb(pid: int) -> float:
    """The peak of what a process takes."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


async def run_disk(scene: Scene) -> str:
    """The disk under the server gets full, and has room again: every run that was accepted completes, once."""
    ledger = scene.folder / "effects.db"
    scene.worker(ACTS_ACTIVITIES="tests.crash.effects", EFFECTS=str(ledger))
    ballast = scene.state / "ballast"
    handles, begin, was_full = [], time.monotonic(), False
    calls = [{"_tool": "add_one", "value": i, "_outputPath": f"†state.s{i}"} for i in range(10)]
    request = {"context": [tool_of("add_one"), {"type": "text", "text": "x" * 20_000}, {"type": "plan", "plan": calls}]}
    for number in range(DISK_RUNS):
        if number == DISK_RUNS // 4:
            fill(ballast)
        try:
            handles.append(await asyncio.wait_for(scene.start(f"disk-{number}", request), 2))
        except (RPCError, TimeoutError):
            was_full = True
    require(was_full, "the disk did not get full")
    ballast.unlink()
    ends = set(await asyncio.gather(*[status_of(handle) for handle in handles]))
    require(ends == {"completed"}, f"runs ended as {sorted(ends)}")
    done = Counter(run for (run,) in effects(ledger))
    require(set(done.values()) <= {len(calls)}, f"effects per run: {sorted(set(done.values()))}, not {len(calls)}")
    return f"{len(handles)} of {DISK_RUNS} runs were accepted; all completed after {time.monotonic() - begin:.1f} s"


def effects(ledger: Path) -> list[tuple[str]]:
    """The run of each effect."""
    with closing(sqlite3.connect(ledger)) as connection:
        return connection.execute("SELECT run FROM done").fetchall()


def fill(file: Path) -> None:
    """Write until there is no room."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 65_536)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of some megabytes in memory; needs root."""
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    subprocess.run(options, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - the system's


async def retry(action: Callable[[], Awaitable[Any]]) -> None:
    """Until the server has accepted it, or the time is up."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        try:
            await action()
        except RPCError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
        else:
            return


def require(condition: bool, text: str) -> None:  # noqa: FBT001 - as assert
    """Fail the scenario."""
    if not condition:
        raise AssertionError(text)


SCENARIOS: Final[dict[str, Callable[[Scene], Awaitable[str]]]] = {
    "starts": run_starts, "signals": run_signals, "memory": run_memory, "disk": run_disk, "clock": run_clock,
}  # fmt: skip


def run(name: str) -> str:
    """One scenario; what it measured."""

    async def connected(scene: Scene) -> str:
        scene.client = await Client.connect(scene.server.address)
        return await SCENARIOS[name](scene)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-flood-")))
        state = stack.enter_context(small_disk(folder / "disk")) if name == "disk" else folder / "state"
        return asyncio.run(connected(Scene(folder, state, stack)))


def main() -> int:
    """Run the named scenarios; 1 when one fails."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m tests.crash.flood")
    parser.add_argument(
        "names", nargs="*", default=[], choices=[*SCENARIOS, []], metavar="name", help=", ".join(SCENARIOS)
    )
    failures = 0
    for name in parser.parse_args().names or SCENARIOS:
        begin = time.monotonic()
        try:
            text = run(name)
        except Exception as error:  # noqa: BLE001 - the others run as well
            failures += 1
            text = f"FAILED: {type(error).__name__}: {error}"
        sys.stdout.write(f"{name:<8} {time.monotonic() - begin:6.1f} s  {text}\n")
        sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
