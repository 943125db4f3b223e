"""Which failures say that a worker does not have an Activity, and what a failure says of a Tool that has changed."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from acts.language.config import Options
from acts.language.wire import NOT_SERVED
from acts.payloads.codec import UnknownKey
from acts.workflows.in_flight import Miss, miss_of

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
