"""Local activities: how many run at once, how much of what they return fits a task, and what does not."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from acts.language.wire import LOCAL_DEFERRED
from acts.worker.interceptors import ResultRooms
from acts.workflows.in_flight import MAX_SLICE_BYTES
from acts.workflows.payloads import EXPECTED_BYTES, MARKER_BYTES, MAX_LOCAL_BYTES, MAX_TASK_BYTES

GRPC_BYTES = 4 * 1024 * 1024


def test_no_message_of_a_task_can_outgrow_what_the_server_takes() -> None:
    deferred = MAX_LOCAL_BYTES // EXPECTED_BYTES * MARKER_BYTES
    assert 2 * MAX_LOCAL_BYTES + deferred + MAX_SLICE_BYTES < GRPC_BYTES
    assert MAX_LOCAL_BYTES + deferred + MAX_TASK_BYTES < GRPC_BYTES


def test_a_task_takes_so_many_bytes_and_the_next_one_as_many_again() -> None:
    rooms = ResultRooms()
    rooms.begin_task("run", 3)
    half = MAX_LOCAL_BYTES // 2 - MARKER_BYTES
    outcome = ValueError("of so many bytes")
    for run in ("run", "run", "other run"):
        rooms.require(run, "1:a", outcome, half)
    rooms.begin_task("run", 3)  # another start in the same task
    with pytest.raises(ApplicationError, match="an ordinary activity returns it") as refusal:
        rooms.require("run", "2:a", outcome, half)
    assert refusal.value.type == LOCAL_DEFERRED
    rooms.begin_task("run", 9)
    rooms.require("run", "3:a", outcome, half)
    assert [rooms.take("run", id_) for id_ in ("1:a", "2:a", "2:a")] == [None, (outcome, half), None]
