"""Keeps the memory of this process below a limit, by giving up workflows that are cached and idle.

The SDK bounds its cache by the number of workflows only. One that waits for a person takes about 85 kB, one in mid-plan
with thousands of Calls some tens of megabytes. So the watch measures what the process takes, and above its mark lets
the SDK evict those that have been idle longest. An evicted run is no worse off than after a restart: its next workflow
task replays its history.

A workflow that has ended is garbage with cycles in it, megabytes for one of hundreds of Calls. The interpreter's full
collections wait until what is alive has grown by a quarter; so the watch collects as well, as workflows end.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# Of the limit: the rest is for what comes between two looks, such as the results of many Activities
HIGH_SHARE: Final = 0.8
# Of the idle workflows, at each round: small steps, since a run that is evicted costs a replay
EVICTED_SHARE: Final = 0.25
# Between two rounds: the SDK evicts asynchronously
ROUND_SECONDS: Final = 2.0
# A workflow that computed a moment ago will do so again
IDLE_SECONDS: Final = 1.0
# Growth since the last collection, and workflows that have ended meanwhile, from which on a collection is worth the
# pause: a full collection stops the interpreter for up to half a second beside a batch of 20,000 instances
COLLECTED_BYTES: Final = 48 * 1024 * 1024
COLLECTED_RUNS: Final = 10
# Where Linux says what a container may take; "max" or a huge number where there is no limit
CGROUP_FILES: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(slots=True)
class CachedRun:
    """A workflow in the SDK's cache. ``is_busy``: it computes, or waits for a local Activity."""

    last_use: float
    run_id: str
    workflow_id: str = ""
    is_busy: bool = True


class MemoryWatch:
    """The workflows in the cache. ``limit_bytes`` 0: no limit. ``evict`` asks the SDK to give one up, by run id."""

    def __init__(self, limit_bytes: int = 0, measure: Callable[[], int] | None = None) -> None:
        self._mark = int(limit_bytes * HIGH_SHARE)
        self._measure = measure or measure_memory
        self._runs: dict[str, CachedRun] = {}
        self._next_round = 0.0
        self._ended = self._size_collected = 0
        self.evictions = 0
        self.evict: Callable[[str], None] = lambda _run_id: None

    @property
    def cached_runs(self) -> int:
        """How many workflows are in the cache."""
        return len(self._runs)

    def begin(self, run_id: str, workflow_id: str = "") -> None:
        """A workflow computes."""
        self._runs[run_id] = CachedRun(time.monotonic(), run_id, workflow_id)

    def end(self, run_id: str, *, is_busy: bool) -> None:
        """It has computed; ``is_busy``: its task goes on, with a local Activity."""
        run = self._runs.get(run_id)
        if run is not None:
            run.last_use, run.is_busy = time.monotonic(), is_busy

    def remove(self, run_id: str) -> None:
        """It is no longer cached."""
        self._runs.pop(run_id, None)
        self._ended += 1

    def find_idle(self) -> list[CachedRun]:
        """The workflows that do nothing, the longest idle first."""
        return sorted((run for run in list(self._runs.values()) if not run.is_busy), key=lambda run: run.last_use)

    def look(self, now: float | None = None) -> None:
        """Collect garbage, and evict some workflows where the process takes too much; called about twice per second."""
        now = time.monotonic() if now is None else now
        if self._ended >= COLLECTED_RUNS and self._measure() >= self._size_collected + COLLECTED_BYTES:
            release_memory()
            self._ended, self._size_collected = 0, self._measure()
        if not self._mark or now < self._next_round or (size := self._measure()) <= self._mark:
            return
        self._next_round = now + ROUND_SECONDS
        idle = [run for run in self.find_idle() if now - run.last_use > IDLE_SECONDS]
        if not idle:
            return
        chosen = idle[: max(1, int(len(idle) * EVICTED_SHARE))]
        logger.warning(
            "this worker takes %d MB, above its mark of %d MB: it gives up %d of %d cached workflows",
            size >> 20, self._mark >> 20, len(chosen), len(self._runs),
        )  # fmt: skip
        self.evictions += len(chosen)
        for run in chosen:
            self.evict(run.run_id)
        release_memory()


def measure_memory() -> int:
    """What this process takes, in bytes; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def release_memory() -> None:
    """Collect what earlier evictions left in cycles, and give free memory back to the system."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError):  # musl gives it back by itself
            ctypes.CDLL(None).malloc_trim(0)


def read_container_limit() -> int:
    """What the container may take, in bytes; 0 without a limit."""
    for file in CGROUP_FILES:
        with suppress(OSError):
            text = file.read_text("ascii").strip()
            # Version 1 writes a number near 2**63 for "no limit"
            return int(text) if text.isdigit() and int(text) < 1 << 60 else 0
    return 0
