"""Which failures say that a worker does not have an Activity, and what a failure says of a Tool that has changed."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from acts.language.config import Options
from acts.language.wire import LOCAL_DEFERRED, NOT_SERVED
from acts.payloads.codec import UnknownKey
from acts.worker.interceptors import ResultRooms
from acts.workflows.in_flight import MAX_SLICE_BYTES, Miss, miss_of
from acts.workflows.payloads import EXPECTED_BYTES, MARKER_BYTES, MAX_LOCAL_BYTES, MAX_TASK_BYTES

OPTIONS = Options.model_validate({"retry": {"maxAttempts": 4}})
DETAIL = {"miss": {"attempt": 2}}


def activity_error(cause: BaseException | None) -> ActivityError:
    error = ActivityError(
        "Activity task failed", scheduled_event_id=1, started_event_id=2, identity="", activity_type="x",
        activity_id="1:x", retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )  # fmt: skip
    error.__cause__ = cause
    return error


def unregistered(text: str) -> BaseException:
    return activity_error(ApplicationError(text, type="NotFoundError"))


def undecryptable() -> BaseException:
    """What the SDK makes of arguments that the codec cannot decrypt."""
    failed = ApplicationError("Failed decoding arguments")
    failed.__cause__ = ApplicationError("encrypted with the key 'k2'", type=UnknownKey.__name__)
    return activity_error(failed)


FAILURES: list[tuple[BaseException, Miss | None]] = [
    (activity_error(ApplicationError("no", DETAIL, type=NOT_SERVED)), Miss("no", 2)),
    (unregistered("Activity function x for workflow y is not registered on this worker, available"), Miss("", 4)),
    (unregistered("unable to find activityType=x. Supported types: [y]"), Miss("", 4)),
    (unregistered('Activity Type "x" is not registered with a worker. Known types are: y'), Miss("", 4)),
    (activity_error(ApplicationError("a tool's own error", type=NOT_SERVED)), None),
    (activity_error(ApplicationError("the card is not registered", type="declined")), None),
    (activity_error(None), None),
    (ApplicationError("no", DETAIL, type=NOT_SERVED), Miss("no", 2)),  # of a local activity
    (undecryptable(), Miss("", 4)),
    (ValueError("x is not registered on this worker"), None),
]


@pytest.mark.parametrize(("error", "miss"), FAILURES)
def test_a_miss_is_told_from_a_failure_of_the_tool(error: BaseException, miss: Miss | None) -> None:
    found = miss_of(error, OPTIONS)
    if miss is None or found is None:
        assert found is miss
        return
    assert found.attempt == miss.attempt
    assert found.reason


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
    kept = [rooms.outcomes.take("run", id_) for id_ in ("1:a", "2:a")]
    assert [None if k is None else (k.outcome, k.size) for k in kept] == [None, (outcome, half)]
