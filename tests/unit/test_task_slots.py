"""Slots for workflow tasks: one at a time where a task may need a long replay, more where they are quick."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from worker_runtime import task_slots
from worker_runtime.task_slots import (
    LATE_SECONDS,
    MAX_OTHERS,
    MAX_STICKY,
    MIN_STICKY,
    SLOW_SECONDS,
    Permit,
    TaskSlots,
)

NEW: Any = SimpleNamespace(is_sticky=False)
STICKY: Any = SimpleNamespace(is_sticky=True)


def run_task(slots: TaskSlots, permit: Any, seconds: float = 0.0) -> None:
    """A task that took so long uses the slot, and gives it back."""
    slots.mark_slot_used(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]
    permit.start = time.monotonic() - seconds
    slots.release_slot(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]


def take_all(slots: TaskSlots, context: Any) -> list[Any]:
    permits: list[Any] = []
    while (permit := slots.try_reserve_slot(context)) is not None:
        permits.append(permit)
    return permits


def test_at_first_one_task_outside_the_cache_is_accepted() -> None:
    slots = TaskSlots()
    assert len(take_all(slots, NEW)) == 1
    assert len(take_all(slots, STICKY)) == MIN_STICKY


@pytest.mark.parametrize(
    ("seconds", "accepted"),
    [([], 1), ([0.01], 2), ([0.01] * 3, 4), ([0.01] * 99, MAX_OTHERS), ([0.01] * 99 + [2 * SLOW_SECONDS], 1)],
)
def test_each_quick_task_lets_in_one_more_and_a_slow_one_only_one(seconds: list[float], accepted: int) -> None:
    slots = TaskSlots()
    for taken in seconds:
        run_task(slots, slots.try_reserve_slot(NEW), taken)
    assert len(take_all(slots, NEW)) == accepted


@pytest.mark.parametrize(
    ("seconds", "accepted"),
    [([0.01], MIN_STICKY + 1), ([0.01] * 999, MAX_STICKY), ([0.01] * 999 + [2 * LATE_SECONDS], MIN_STICKY)],
)
def test_many_tasks_of_cached_runs_are_accepted_while_each_is_done_soon(seconds: list[float], accepted: int) -> None:
    slots = TaskSlots()
    for waited in seconds:
        run_task(slots, slots.try_reserve_slot(STICKY), 100 * LATE_SECONDS)  # the SDK may keep the slot for several
        slots.adjust_sticky(waited)
    assert len(take_all(slots, STICKY)) == accepted


def test_a_poll_without_a_task_says_nothing_about_tasks() -> None:
    slots = TaskSlots()
    slots.release_slot(SimpleNamespace(permit=slots.try_reserve_slot(NEW), slot_info=None))  # type: ignore[arg-type]
    assert len(take_all(slots, NEW)) == 1


def test_tasks_that_wait_for_local_activities_are_not_counted() -> None:
    assert len(take_all(TaskSlots(lambda: 3), NEW)) == 4


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


async def test_a_worker_that_stops_begins_no_more_polls() -> None:
    slots = TaskSlots()
    first = await slots.reserve_slot(STICKY)
    slots.close()
    assert slots.try_reserve_slot(STICKY) is None
    waiting = asyncio.create_task(slots.reserve_slot(STICKY))
    run_task(slots, first)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_who_waits_gets_the_slot_that_is_given_back() -> None:
    slots = TaskSlots()
    first = await slots.reserve_slot(NEW)
    second = asyncio.create_task(slots.reserve_slot(NEW))
    await asyncio.sleep(0)
    assert not second.done()
    await asyncio.to_thread(run_task, slots, first)
    assert isinstance(await asyncio.wait_for(second, 60), Permit)


async def test_who_gives_up_waiting_takes_no_slot_along() -> None:
    slots = TaskSlots()
    first = await slots.reserve_slot(NEW)
    waiting = [asyncio.create_task(slots.reserve_slot(NEW)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    run_task(slots, first)
    assert isinstance(await asyncio.wait_for(waiting[1], 60), Permit)


def begin_task(slots: TaskSlots, context: Any) -> Any:
    """A task comes, and is not over."""
    permit: Any = slots.try_reserve_slot(context)
    slots.mark_slot_used(SimpleNamespace(permit=permit, slot_info=None))  # type: ignore[arg-type]
    return permit


@pytest.mark.parametrize("context", [NEW, STICKY])
def test_what_has_the_only_slot_has_it_since_it_began(context: Any) -> None:
    slots = TaskSlots()
    before = time.monotonic() - 1
    permit = begin_task(slots, context)
    assert not slots.has_task_since(before, is_new=True)
    assert slots.has_task_since(time.monotonic(), is_new=False)
    run_task(slots, permit)
    assert not slots.has_task_since(time.monotonic(), is_new=True)


def test_once_a_slot_has_come_into_use_since_only_what_is_new_may_have_an_older_one() -> None:
    slots = TaskSlots()
    other = begin_task(slots, NEW)
    other.start -= 1
    middle = time.monotonic() - 0.5
    begin_task(slots, STICKY)
    assert slots.has_task_since(middle, is_new=True)
    assert not slots.has_task_since(middle, is_new=False)
    run_task(slots, other)
    assert not slots.has_task_since(middle, is_new=True)


def test_tasks_that_wait_for_local_activities_have_no_query() -> None:
    waiting = [0]
    slots = TaskSlots(lambda: waiting[0])
    begin_task(slots, NEW)
    assert slots.has_task_since(time.monotonic(), is_new=True)
    waiting[0] = 1
    assert not slots.has_task_since(time.monotonic(), is_new=True)


def test_for_a_while_others_are_taken_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = TaskSlots()
    for _ in range(3):
        run_task(slots, slots.try_reserve_slot(NEW))
    slots.take_others_singly()
    run_task(slots, slots.try_reserve_slot(NEW))
    (permit,) = take_all(slots, NEW)
    monkeypatch.setattr(task_slots, "SINGLY_SECONDS", 0.0)
    slots.take_others_singly()
    run_task(slots, permit)
    assert len(take_all(slots, NEW)) == 2
