"""What looks after a worker while it runs, held together for ``worker.py``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from telemetry.process_metrics import ProcessCounts, ProcessSampler
from worker_runtime.log_guard import LogGuard
from worker_runtime.memory_watch import MemoryWatch, measure_memory
from worker_runtime.process_watch import ProcessWatch
from worker_runtime.tool_loop import ToolLoops
from worker_runtime.tool_processes import ToolProcesses
from worker_runtime.watchdog import TaskBoard, Watchdog
from worker_runtime.workflow_watch import WorkflowWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Watches:
    """What looks after a worker while it runs."""

    board: TaskBoard = field(default_factory=TaskBoard)
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    tools: ToolLoops = field(default_factory=ToolLoops)
    processes: list[ToolProcesses] = field(default_factory=list)
    logs: LogGuard = field(default_factory=LogGuard)

    def start_processes(self, most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What puts a plain ``def`` Activity into a process, or, without processes, leaves it as it is."""
        if not most:
            return lambda function: function
        self.processes.append(ToolProcesses(most))
        return self.processes[-1].wrap

    def close(self) -> None:
        """End what runs Tools: loops, and processes."""
        self.tools.close()
        for processes in self.processes:
            processes.close()

    @cached_property
    def tasks(self) -> WorkflowWatch:
        """The watch over workflow tasks."""
        return WorkflowWatch(self.board)

    def read_counts(self) -> ProcessCounts:
        """What the watches have seen so far."""
        return ProcessCounts(
            stuck_tasks=self.tasks.count, slow_tasks=self.tasks.slow_count, lost_threads=self.tasks.lost_threads,
            blocked_loops=self.tools.blocked_count, memory_bytes=measure_memory(), cached_runs=self.memory.cached_runs,
            evictions=self.memory.evictions,
        )  # fmt: skip

    @contextmanager
    def run(self, watchdog_seconds: float, purpose: str) -> Iterator[None]:
        """A block in which this process watches its threads, and another one watches this process."""
        with Watchdog(watchdog_seconds, purpose, self.board) as watchdog:
            self.tasks.set_aside(watchdog.read_stuck_runs())
            sampler = ProcessSampler(self.read_counts)
            with ProcessWatch((self.tasks.look, self.tools.look, self.memory.look, sampler.look)), self.logs.watch():
                yield
