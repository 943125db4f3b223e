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
# Between two rounds: the SDK evicts asynchronously. Twice as long after each round that freed less than 2 %, up to the
# longest: then something else takes the memory, and evictions would only cost replays
ROUND_SECONDS: Final = 2.0
LONGEST_ROUND_SECONDS: Final = 60.0
USEFUL_SHARE: Final = 0.98
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
        self._pause = ROUND_SECONDS
        self._size_before = 0
        self._is_reported = False
        self.evictions = 0
        self._ended = 0
        self._size_collected = 0
        self.collect: Callable[[], None] = release_memory
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

    def find_idle(self) -> CachedRun | None:
        """The workflow that has been idle longest; None where all are busy, or none is in the cache."""
        idle = [run for run in list(self._runs.values()) if not run.is_busy]
        return min(idle, key=lambda run: run.last_use, default=None)

    def look(self, now: float | None = None) -> None:
        """Collect garbage, and evict some workflows where the process takes too much; called about twice per second."""
        now = time.monotonic() if now is None else now
        self._collect()
        if not self._mark or now < self._next_round:
            return
        size = self._measure()
        if size <= self._mark:
            self._is_reported, self._size_before = False, 0
            return
        is_useless = self._size_before and size > USEFUL_SHARE * self._size_before
        self._pause = min(2 * self._pause, LONGEST_ROUND_SECONDS) if is_useless else ROUND_SECONDS
        self._next_round, self._size_before = now + self._pause, size
        idle = sorted((r.last_use, id_) for id_, r in list(self._runs.items()) if not r.is_busy)
        idle = [(last, id_) for last, id_ in idle if now - last > IDLE_SECONDS]
        chosen = idle[: max(1, int(len(idle) * EVICTED_SHARE))]
        if not self._is_reported:
            self._is_reported = True
            logger.warning(
                "this worker takes %d MB, above its mark of %d MB: it gives up cached workflows (%d of %d now)",
                size >> 20, self._mark >> 20, len(chosen), len(self._runs),
            )  # fmt: skip
        self.evictions += len(chosen)
        for _, run_id in chosen:
            self.evict(run_id)
        self.collect()

    def _collect(self) -> None:
        """Free what ended workflows left, once it may be much."""
        if self._ended < COLLECTED_RUNS or self._measure() < self._size_collected + COLLECTED_BYTES:
            return
        self.collect()
        self._ended, self._size_collected = 0, self._measure()


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
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except AttributeError:  # musl gives it back by itself
            return


def read_container_limit() -> int:
    """What the container may take, in bytes; 0 without a limit."""
    for file in CGROUP_FILES:
        try:
            text = file.read_text("ascii").strip()
        except OSError:
            continue
        # Version 1 writes a number near 2**63 for "no limit"
        return int(text) if text.isdigit() and int(text) < 1 << 60 else 0
    return 0
