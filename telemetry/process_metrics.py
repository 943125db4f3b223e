"""Counts what the watches of this process have seen: stuck tasks, blocked loops, memory, evictions.

Laws of this file: it reads numbers that others keep, once in some seconds, from the watching thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

# Between two samples: a third of a usual scrape interval
SAMPLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What a worker process came to so far; ``memory_bytes`` and ``cached_runs`` are as of now."""

    stuck_tasks: int
    slow_tasks: int
    lost_threads: int
    blocked_loops: int
    memory_bytes: int
    cached_runs: int
    evictions: int


class ProcessSampler:
    """``look`` is called about twice per second, and records what ``read`` returns."""

    def __init__(self, read: Callable[[], ProcessCounts]) -> None:
        self._read = read
        self._next = 0.0

    def look(self) -> None:
        """Record a sample when it is time."""
        meters, now = metrics.meters(), time.monotonic()
        if meters is None or now < self._next:
            return
        self._next = now + SAMPLE_SECONDS
        counts = self._read()
        meters.raise_to(metrics.STUCK_TASKS, counts.stuck_tasks)
        meters.raise_to(metrics.SLOW_TASKS, counts.slow_tasks)
        meters.raise_to(metrics.BLOCKED_LOOPS, counts.blocked_loops)
        meters.raise_to(metrics.EVICTIONS, counts.evictions)
        meters.raise_to(metrics.INTERPRETER_SECONDS, time.process_time())
        meters.set(metrics.LOST_THREADS, counts.lost_threads)
        meters.set(metrics.MEMORY, counts.memory_bytes)
        meters.set(metrics.CACHED_RUNS, counts.cached_runs)
