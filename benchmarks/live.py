"""A real server, real worker processes, and the cost of one run.

The server is our development server with a temporary database file. Workers are processes of
their own, as in production, so that their CPU time is separate from the client's and the server's.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue

from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.language.wire import PLAN
from acts.workflows.payloads import decode
from benchmarks import shapes
from benchmarks.shapes import Shape

ROOT: Final = Path(__file__).parents[1]
ENGINE: Final = ("worker",)
PLAIN: Final = ("benchmarks.plain_worker",)
HANDWRITTEN: Final = ("benchmarks.served", "handwritten")

_READY_SECONDS: Final = 60.0
_RUN_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 30.0
_LOG_LINES: Final = 15

_CPU_CLOCK: Final = 2
"""CPUCLOCK_SCHED: with the process id, Linux's id of another process's CPU clock."""


@dataclass(frozen=True)
class Process:
    """A worker that serves ``queue``."""

    queue: str
    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid


@dataclass(frozen=True)
class Cost:
    """The cost of one run. CPU is in seconds, None where it is not known."""

    wall: float
    events: int
    size: int
    worker_cpu: float | None
    server_cpu: float | None
    id: str


def cpu_seconds(pid: int) -> float | None:
    """CPU seconds of all threads of a process so far; None where the system does not report them."""
    if sys.platform != "linux":
        return None
    return time.clock_gettime((~pid) << 3 | _CPU_CLOCK)


@contextmanager
def server(*extra: str) -> Iterator[DevServer]:
    """Our development server with a database file of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="acts-bench-") as folder,
        dev_server(state=Path(folder), ui=False, extra_args=extra) as running,
    ):
        yield running


@contextmanager
def worker(
    address: str, module: Sequence[str] = ENGINE, *, queue: str | None = None, **environment: str
) -> Iterator[Process]:
    """``python -m …`` as a worker, from its first poll until it has stopped."""
    queue = queue or f"{'-'.join(module)}-{uuid.uuid4().hex[:8]}"
    own = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_"))},
        "TEMPORAL_ADDRESS": address,
        "ACTS_TASK_QUEUE": queue,
        "ACTS_ACTIVITIES": "benchmarks.activities",
        "ACTS_SHUTDOWN_SECONDS": "1",
        **environment,
    }
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-bench-"))) / "worker.log"
        output = stack.enter_context(log.open("ab"))
        popen = subprocess.Popen(  # noqa: S603 - our own interpreter, arguments of our own
            [sys.executable, "-m", *module], cwd=ROOT, env=own, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        stack.callback(_stop, popen)
        deadline = time.monotonic() + _READY_SECONDS
        while "acts worker: task queue" not in (text := log.read_text("utf-8", "replace")):
            if popen.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(text.splitlines()[-_LOG_LINES:])
                raise RuntimeError(f"the worker {' '.join(module)} did not start:\n{tail}")
            time.sleep(0.02)
        yield Process(queue, popen)


def _stop(popen: subprocess.Popen[bytes]) -> None:
    popen.terminate()
    with suppress(subprocess.TimeoutExpired):
        popen.wait(_STOP_SECONDS)
        return
    popen.kill()
    popen.wait()


class Bench:
    """Measures runs on one server, one at a time."""

    def __init__(self, client: Client, server_: DevServer) -> None:
        self.client = client
        self.server = server_

    async def run_engine(self, process: Process, shape: Shape, tool: str = shapes.STEP, **config: Any) -> Cost:
        """Run a shape as a plan of the engine."""
        cost, result = await self.run(PLAN, process, shape.request(tool, **config))
        if result["status"] != "completed":
            raise RuntimeError(f"{shape.name}: {result}")
        state = result["state"]
        _require_depth(
            shape, max(r["depth"] for r in (*state["parts"].values(), *([state["last"]] if shape.joined else ())))
        )
        return cost

    async def run_handwritten(self, process: Process, shape: Shape, *, local: bool = False) -> Cost:
        """Run the hand-written workflow of a shape; ``local``: with local activities."""
        kind = {"chain": "Chain", "fan": "FanOut"}.get(shape.name.split("-")[0], "Graph")
        graph = {"reads": [list(r) for r in shape.reads], "seconds": list(shape.seconds), "local": local}
        cost, result = await self.run(kind, process, graph)
        _require_depth(shape, result["depth"])
        return cost

    async def run(self, kind: str, process: Process, arg: Any, seconds: float = _RUN_SECONDS) -> tuple[Cost, Any]:
        """Start a workflow and wait for its result; the clock measures nothing else."""
        id_ = f"{kind}-{uuid.uuid4().hex[:8]}"
        before = cpu_seconds(process.pid), cpu_seconds(self.server.pid)
        start = time.perf_counter()
        handle: WorkflowHandle[Any, RawValue] = await self.client.start_workflow(
            kind, arg, id=id_, task_queue=process.queue, result_type=RawValue
        )
        result = await asyncio.wait_for(handle.result(), seconds)
        wall = time.perf_counter() - start
        after = cpu_seconds(process.pid), cpu_seconds(self.server.pid)
        info = await self.info(id_)
        cpu = [None if a is None or b is None else a - b for a, b in zip(after, before, strict=True)]
        return Cost(wall, info.history_length, info.history_size_bytes, cpu[0], cpu[1], id_), decode(result)

    async def info(self, id_: str) -> WorkflowExecutionInfo:
        """The server's description of a closed run. It counts the last event a moment after the result is known."""
        for _ in range(100):
            info = (await self.client.get_workflow_handle(id_).describe()).raw_description.workflow_execution_info
            if info.history_size_bytes:
                return info
            await asyncio.sleep(0.01)
        raise RuntimeError(f"the server does not report the size of {id_}")


def _require_depth(shape: Shape, depth: int) -> None:
    expected = max(shape.depths())
    if depth != expected:
        raise RuntimeError(f"the depth of {shape.name} is {depth}, not {expected}: a call read the wrong data")


def on_server(work: Callable[[Bench], Coroutine[Any, Any, Any]], *extra: str) -> Any:
    """Run ``work`` with a client of a new server."""

    async def connected(running: DevServer) -> Any:
        return await work(Bench(await Client.connect(running.address, namespace=running.namespace), running))

    with server(*extra) as running:
        return asyncio.run(connected(running))
