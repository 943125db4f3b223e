"""The watch over memory: above the mark it gives up idle workflows, the longest idle first."""

from __future__ import annotations

import itertools
import time

from worker_runtime.memory_watch import (
    COLLECTED_BYTES,
    COLLECTED_RUNS,
    HIGH_SHARE,
    ROUND_SECONDS,
    MemoryWatch,
    measure_memory,
)

LIMIT = 1_000


class Cache:
    """A watch over ``count`` idle workflows, each of ten bytes."""

    def __init__(self, count: int, limit: int = LIMIT) -> None:
        self.size = 10 * count
        self.evicted: list[str] = []
        self.watch = MemoryWatch(limit, lambda: self.size)
        self.watch.evict = self.evict
        self.collections = 0
        self.watch.collect = self.collect
        for number in range(count):
            self.watch.begin(f"run-{number}")
            self.watch.end(f"run-{number}", is_busy=False)

    def collect(self) -> None:
        self.collections += 1

    def evict(self, run_id: str) -> None:
        self.evicted.append(run_id)
        self.watch.remove(run_id)
        self.size -= 10


def later(rounds: int) -> float:
    return time.monotonic() + 60 + rounds * ROUND_SECONDS


def test_the_workflow_that_has_been_idle_longest_is_known_by_its_ids() -> None:
    watch = MemoryWatch()
    assert watch.find_idle() is None
    watch.begin("busy", "first")
    assert watch.find_idle() is None
    for run_id in ("idle", "later"):
        watch.begin(run_id, "second")
        watch.end(run_id, is_busy=False)
    idle = watch.find_idle()
    assert idle is not None
    assert (idle.run_id, idle.workflow_id) == ("idle", "second")


def test_below_the_mark_nothing_is_evicted() -> None:
    cache = Cache(int(LIMIT * HIGH_SHARE) // 10)
    cache.watch.look(later(0))
    assert cache.evicted == []


def test_without_a_limit_nothing_is_measured_or_evicted() -> None:
    cache = Cache(1_000, limit=0)
    cache.watch.look(later(0))
    assert cache.evicted == []


def test_what_ended_workflows_left_is_collected_when_the_process_has_grown() -> None:
    cache = Cache(0, limit=0)
    for number in range(2 * COLLECTED_RUNS):
        cache.watch.remove(f"run-{number}")
        cache.watch.look()
    assert cache.collections == 0
    cache.size += COLLECTED_BYTES
    cache.watch.look()
    cache.watch.look()
    assert cache.collections == 1
    cache.size += COLLECTED_BYTES
    cache.watch.look()
    assert cache.collections == 1  # nothing has ended since


def test_above_it_the_longest_idle_go_until_it_is_below() -> None:
    cache = Cache(100)
    for round_ in range(10):
        cache.watch.look(later(round_))
    assert cache.size <= LIMIT * HIGH_SHARE
    assert cache.evicted == [f"run-{number}" for number in range(len(cache.evicted))]
    assert len(cache.evicted) < 50


def test_rounds_have_a_distance() -> None:
    cache = Cache(1_000)
    now = later(0)
    cache.watch.look(now)
    first = len(cache.evicted)
    cache.watch.look(now + ROUND_SECONDS / 2)
    assert len(cache.evicted) == first > 0


def test_rounds_that_free_nothing_become_rare() -> None:
    cache = Cache(1_000)
    cache.watch.evict = cache.evicted.append
    rounds, now, before = list[float](), later(0), 0
    while len(rounds) < 8:
        now += 0.5
        cache.watch.look(now)
        if len(cache.evicted) > before:
            before = len(cache.evicted)
            rounds.append(now)
    pauses = [b - a for a, b in itertools.pairwise(rounds)]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_workflow_that_computes_or_waits_for_a_local_activity_is_kept() -> None:
    cache = Cache(0)
    cache.size = 10 * LIMIT
    cache.watch.begin("computes")
    cache.watch.begin("local")
    cache.watch.end("local", is_busy=True)
    cache.watch.look(later(0))
    assert cache.evicted == []
    cache.watch.end("local", is_busy=False)
    cache.watch.look(later(1))
    assert cache.evicted == ["local"]


def test_this_process_has_a_size() -> None:
    assert measure_memory() > 1_000_000
