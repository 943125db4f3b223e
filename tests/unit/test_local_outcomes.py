"""Local activities: how many run at once, how much of what they return fits a task, and where the rest waits."""

from __future__ import annotations

import pytest

from workflows.runtime import local_outcomes
from workflows.runtime.local_outcomes import (
    EXPECTED_BYTES,
    MARKER_BYTES,
    MAX_LOCAL_BYTES,
    KeptOutcome,
    LocalLane,
    LocalOutcomes,
)
from workflows.runtime.payloads import MAX_TASK_BYTES
from workflows.runtime.start_queue import MAX_SLICE_BYTES

GRPC_BYTES = 4 * 1024 * 1024


def test_no_message_of_a_task_can_outgrow_what_the_server_takes() -> None:
    deferred = MAX_LOCAL_BYTES // EXPECTED_BYTES * MARKER_BYTES
    assert 2 * MAX_LOCAL_BYTES + deferred + MAX_SLICE_BYTES < GRPC_BYTES
    assert MAX_LOCAL_BYTES + deferred + MAX_TASK_BYTES < GRPC_BYTES


def test_a_lane_is_full_with_what_runs_and_what_was_recorded_until_a_task_begins() -> None:
    lane = LocalLane()
    count = 0
    while lane.has_room():
        lane.start()
        count += 1
    assert count == MAX_LOCAL_BYTES // EXPECTED_BYTES
    for _ in range(count):
        lane.end(EXPECTED_BYTES)
    assert not lane.has_room()
    lane.begin_task()
    assert lane.bytes == 0
    assert lane.has_room()


def test_a_task_takes_so_many_bytes_and_the_next_one_as_many_again() -> None:
    outcomes = LocalOutcomes()
    outcomes.begin_task("run", 3)
    half = MAX_LOCAL_BYTES // 2 - MARKER_BYTES
    assert [outcomes.admit("run", half) for _ in range(3)] == [True, True, False]
    assert outcomes.admit("other run", half)
    outcomes.begin_task("run", 3)  # another start in the same task
    assert not outcomes.admit("run", half)
    outcomes.begin_task("run", 9)
    assert outcomes.admit("run", half)


def test_what_is_larger_than_a_task_never_fits() -> None:
    assert not LocalOutcomes().admit("run", MAX_LOCAL_BYTES)


def test_a_kept_outcome_is_taken_once_and_by_its_own_activity() -> None:
    outcomes = LocalOutcomes()
    kept = KeptOutcome("x", None, 1)
    outcomes.keep("run", "1:a", kept)
    assert outcomes.take("run", "2:a") is None
    assert outcomes.take("other run", "1:a") is None
    assert outcomes.take("run", "1:a") is kept
    assert outcomes.take("run", "1:a") is None


def test_the_oldest_outcome_goes_when_memory_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_outcomes, "MAX_KEPT_BYTES", 10)
    outcomes = LocalOutcomes()
    for number in range(3):
        outcomes.keep("run", f"{number}:a", KeptOutcome(number, None, 4))
    values = [outcomes.take("run", f"{number}:a") for number in range(3)]
    assert [kept and kept.value for kept in values] == [None, 1, 2]


def test_only_the_latest_runs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_outcomes, "MAX_RUNS", 2)
    outcomes = LocalOutcomes()
    for run in ("a", "b", "c"):
        outcomes.begin_task(run, 1)
        outcomes.admit(run, MAX_LOCAL_BYTES // 2)
    assert outcomes.admit("a", MAX_LOCAL_BYTES // 2)  # forgotten
    assert not outcomes.admit("c", MAX_LOCAL_BYTES // 2)
