"""Workflow tasks of one process: how many are accepted, whose computes next, and which queries come too early."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from acts.worker.slots import (
    AT_WORK_SECONDS,
    BUSY_SECONDS,
    LATE_SECONDS,
    LONG_SECONDS,
    MAX_HOLD_SECONDS,
    MAX_OTHERS,
    MAX_STICKY,
    MIN_STICKY,
    QUERY_ID,
    SLOW_SECONDS,
    ActivitySlots,
    Permit,
    TaskSlots,
    Turn,
    Turns,
    WatchedInstance,
)
from acts.worker.watch import MemoryWatch

NEW: Any = SimpleNamespace(is_sticky=False)
STICKY: Any = SimpleNamespace(is_sticky=True)


def run_task(slots: TaskSlots, permit: Any, seconds: float = 0.0) -> None:
    """A task that took so long uses the slot, and gives it back."""
    slots.mark_slot_used(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]
    permit.start = time.monotonic() - seconds
    slots.release_slot(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]


def count_free(slots: TaskSlots, context: Any) -> int:
    count = 0
    while slots.try_reserve_slot(context) is not None:
        count += 1
    return count


@pytest.mark.parametrize(
    ("seconds", "accepted"), [([], 1), ([0.01], 2), ([0.01] * 99, MAX_OTHERS), ([0.01] * 99 + [2 * SLOW_SECONDS], 1)]
)
def test_each_quick_task_lets_in_one_more_and_a_slow_one_only_one(seconds: list[float], accepted: int) -> None:
    slots = TaskSlots()
    for duration in seconds:
        run_task(slots, slots.try_reserve_slot(NEW), duration)
    assert count_free(slots, NEW) == accepted


@pytest.mark.parametrize(
    ("seconds", "accepted"),
    [([], MIN_STICKY), ([0.01] * 999, MAX_STICKY), ([0.01] * 999 + [2 * LATE_SECONDS], MIN_STICKY)],
)
def test_many_tasks_of_cached_runs_are_accepted_while_each_is_done_soon(seconds: list[float], accepted: int) -> None:
    slots = TaskSlots()
    for waited in seconds:
        run_task(slots, slots.try_reserve_slot(STICKY), 100 * LATE_SECONDS)  # the SDK may keep the slot for several
        slots.adjust_sticky(waited)
    slots.count_waiting(2)  # they wait for local Activities
    assert count_free(slots, STICKY) == accepted + 2


async def test_a_sticky_slot_is_a_poll_until_it_brings_a_task_or_returns_or_is_dropped() -> None:
    slots = TaskSlots()
    permits = [await slots.reserve_slot(STICKY) for _ in range(3)]
    others = [await slots.reserve_slot(NEW), slots.try_reserve_slot(STICKY)]  # of the queue itself; not by a poll
    assert (slots.sticky_polls, len(others)) == (3, 2)
    run_task(slots, permits.pop())
    slots.release_slot(SimpleNamespace(permit=permits.pop(), slot_info=None))  # type: ignore[arg-type]
    assert slots.sticky_polls == 1
    permits.clear()
    assert slots.sticky_polls == 0


async def test_who_waits_gets_the_slot_that_is_given_back_unless_the_worker_stops() -> None:
    slots = TaskSlots()
    first = await slots.reserve_slot(NEW)
    second = asyncio.create_task(slots.reserve_slot(NEW))
    await asyncio.sleep(0)
    assert not second.done()
    await asyncio.to_thread(run_task, slots, first)
    permit = await asyncio.wait_for(second, 180)
    assert isinstance(permit, Permit)
    slots.close()
    run_task(slots, permit)
    assert slots.try_reserve_slot(NEW) is None


def free_up(slots: ActivitySlots, permit: Any) -> None:
    slots.mark_slot_used(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]
    slots.release_slot(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]


async def test_a_run_with_few_calls_has_a_kept_slot_where_many_alike_have_all_others() -> None:
    slots = ActivitySlots(20)
    assert slots.allows_eager_start(has_few=False), "an idle worker starts whatever comes"
    polled = [await slots.reserve_slot(NEW) for _ in range(18)]
    waiting = asyncio.create_task(slots.reserve_slot(NEW))
    await asyncio.sleep(0)
    assert (waiting.done(), slots.try_reserve_slot(NEW)) == (False, None)
    assert not slots.allows_eager_start(has_few=False)
    assert all(slots.allows_eager_start(has_few=True) for _ in range(5))
    kept = [slots.try_reserve_slot(NEW) for _ in range(3)]
    assert [permit is not None for permit in kept] == [True, True, False]
    free_up(slots, polled.pop())
    await asyncio.sleep(0)
    assert not waiting.done(), "a kept slot is given back first"
    for permit in (kept[0], kept[1], polled.pop()):
        free_up(slots, permit)
    await asyncio.wait_for(waiting, 180)


class Bench:
    """Turns that end when the test says so, and a server that takes answers when it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tasks = 0
        self.running: list[Turn] = []
        self.turns = Turns(self.running.append, lambda: self.tasks, lambda: self.now)

    def add(self, *trees: str, **options: bool) -> None:
        for tree in trees:
            self.tasks += options.get("is_counted", True)
            self.turns.add(Turn(tree, lambda: None, **options))

    def compute(self, computed: float = 0.003) -> str:
        """End the turn that has run longest, and leave its answer on the way; its tree."""
        turn = self.running.pop(0)
        self.now += computed
        self.turns.end(turn, computed)
        return str(turn.tree)

    def answer(self) -> None:
        self.tasks -= 1
        self.turns.release()

    def end(self, computed: float = 0.003) -> str:
        """End the turn that has run longest, and take its answer; its tree."""
        tree = self.compute(computed)
        self.answer()
        return tree

    @property
    def trees(self) -> list[str]:
        return [str(turn.tree) for turn in self.running]


def test_one_task_computes_at_a_time_and_a_small_tree_waits_for_that_one_alone() -> None:
    bench = Bench()
    bench.add(*["batch"] * 100)
    assert bench.trees == ["batch"]
    for _ in range(10):
        bench.end()
        bench.add("small")
        assert bench.trees == ["batch"]
        bench.end()
        assert bench.trees == ["small"]
        bench.end()


def test_two_large_trees_share_alike_by_what_their_tasks_compute() -> None:
    bench = Bench()
    bench.add(*["cheap"] * 400, *["dear"] * 400)
    seconds = {"cheap": 0.0, "dear": 0.0}
    for _ in range(200):
        cost = 0.003 if bench.running[0].tree == "cheap" else 0.03
        seconds[bench.end(cost)] += cost
    assert seconds["cheap"] == pytest.approx(seconds["dear"], rel=0.2)


def test_a_task_that_computes_for_long_does_not_hold_up_the_others() -> None:
    bench = Bench()
    bench.add("replay", "small")
    assert bench.trees == ["replay"]
    bench.now += 2 * LONG_SECONDS
    bench.turns.advance()
    assert bench.trees == ["replay", "small"]


def test_while_a_quiet_tree_is_at_work_a_busy_one_has_one_answer_on_its_way() -> None:
    bench = Bench()
    bench.add("batch")
    bench.end(4 * BUSY_SECONDS)
    bench.add("small", "batch", "batch", "batch")
    assert bench.compute() == "small"
    assert bench.trees == [], "its answer is on the way"
    bench.answer()
    assert bench.compute() == "batch"
    assert bench.trees == []
    bench.add("batch", may_wait=False)
    bench.add("batch", may_wait=False, is_counted=False)
    assert [bench.compute(), bench.compute()] == ["batch", "batch"], "first tasks, replays and evictions do not wait"
    assert bench.trees == []
    bench.now += AT_WORK_SECONDS + 0.01
    bench.tasks -= 2
    bench.turns.advance()
    assert bench.compute() == "batch", "alone, it may have some answers on their way"


def test_a_task_waits_for_answers_for_a_second_at_most() -> None:
    bench = Bench()
    bench.add("batch")
    bench.end(1.0)
    bench.add("small", "batch")
    bench.compute()
    while bench.now < 2 * MAX_HOLD_SECONDS and not bench.trees:
        bench.add("small")
        bench.compute()
        bench.now += AT_WORK_SECONDS / 2
        bench.turns.advance()
    assert bench.trees == ["batch"]


def activation(events: int, start: int, *, is_replaying: bool = False, query: str = "") -> WorkflowActivation:
    """One of a task that started at ``start``, with so many events in the history."""
    act = WorkflowActivation(history_length=events, is_replaying=is_replaying)
    act.timestamp.seconds = start
    job: Any = act.jobs.add()
    if query:
        job.query_workflow.query_id = query
    else:
        job.signal_workflow.signal_name = "approve"
    return act


REPLAYED = activation(3, 10, is_replaying=True)
TASK = activation(8, 20)
EARLY = activation(6, 10)
QUERY = activation(8, 20, query=QUERY_ID)
OF_A_TASK = activation(8, 20, query="of a task")


@pytest.mark.parametrize("has_uncached", [False, True])
@pytest.mark.parametrize(
    ("activations", "query", "is_early"),
    [
        ([REPLAYED, TASK], QUERY, "with the history"),
        ([REPLAYED, TASK], OF_A_TASK, ""),
        ([REPLAYED], QUERY, ""),
        ([REPLAYED, TASK, activation(9, 30)], QUERY, ""),
        ([REPLAYED, EARLY], QUERY, "always"),
        ([REPLAYED, EARLY, TASK], QUERY, "always"),
        ([REPLAYED, activation(8, 10, is_replaying=True)], QUERY, ""),
    ],
)
def test_a_run_that_is_ahead_of_its_task_is_evicted_after_a_query(
    activations: list[WorkflowActivation], query: WorkflowActivation, is_early: str, *, has_uncached: bool
) -> None:
    evicted: list[str] = []
    singly: list[bool] = []
    memory = MemoryWatch()
    memory.evict = evicted.append
    completion: Any = SimpleNamespace(successful=SimpleNamespace(commands=()))
    runner: Any = SimpleNamespace(
        memory=memory, has_storage=True,
        slots=SimpleNamespace(has_uncached=has_uncached, take_others_singly=lambda: singly.append(True)),
        watch=SimpleNamespace(activate=lambda *_: completion),
    )  # fmt: skip
    instance = WatchedInstance(runner, SimpleNamespace())  # type: ignore[arg-type]
    for act in activations:
        instance.activate(act)
    assert evicted == []
    instance.activate(query)
    must_evict = is_early == "always" or (is_early == "with the history" and has_uncached)
    assert (bool(evicted), bool(singly)) == (must_evict, must_evict)
