"""What an Activity's failure holds at most: it reaches the server, can be read again, and says what it was about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.common import RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.testing import ActivityEnvironment

from acts.language.config import Options
from telemetry.bounded_failures import MAX_LEVELS, MAX_MESSAGE, RETRIED_BYTES, levels_of, text_of, without_details
from workflows.runtime.activity_calls import call_error
from workflows.runtime.failure_converter import LenientFailureConverter


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


def chain(length: int) -> Exception:
    error: Exception = OSError("the origin")
    for number in range(length):
        outer = RuntimeError(f"level {number}")
        outer.__cause__ = error
        error = outer
    return error


def circle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def encode(error: BaseException) -> Failure:
    failure = Failure()
    LenientFailureConverter().to_failure(error, PayloadConverter.default, failure)
    return failure


@pytest.mark.parametrize("length", [MAX_LEVELS, 93, 5_000])
def test_of_a_long_chain_the_beginning_and_the_origin_are_left(length: int) -> None:
    levels = levels_of(encode(chain(length)))
    assert len(levels) == MAX_LEVELS
    assert levels[0].message == f"level {length - 1}"
    assert levels[-1].message == "the origin"
    assert f"... {length + 1 - MAX_LEVELS} causes in between" in levels[-1].stack_trace


def test_a_short_chain_is_whole_and_a_circle_ends() -> None:
    assert [level.message for level in levels_of(encode(chain(2)))] == ["level 1", "level 0", "the origin"]
    assert [level.message for level in levels_of(encode(circle()))] == ["one", "other"]


@pytest.mark.parametrize(
    ("error", "message", "type_"),
    [
        (Speechless(), "its text cannot be read: __str__ raises ValueError", "Speechless"),
        (ValueError("a\ud800b"), "a\\ud800b", "ValueError"),
        (ApplicationError("x", type="\ud800"), "x", "\\ud800"),
        (ApplicationError("no", object(), type="declined"), "no; its details cannot be sent: ", "declined"),
        (ApplicationError("no", "x" * 2_000_000, type="declined"), "no; its details of 2,000,", "declined"),
        (ExceptionGroup("both", [KeyError("k"), ExceptionGroup("", [OSError()])]), "KeyError: 'k'; OSError: OSE", "Ex"),
        (AssertionError(), "AssertionError", "AssertionError"),
        (ValueError("m" * 5_000_000), "m" * (MAX_MESSAGE - 1) + "…", "ValueError"),
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_a_failure_that_could_not_be_sent_still_says_what_it_was(error: Exception, message: str, type_: str) -> None:
    found = encode(error)
    assert message in found.message
    assert type_ in found.application_failure_info.type


def test_an_error_keeps_what_its_class_says() -> None:
    stated = ApplicationError("later", 1, type="t", non_retryable=True, next_retry_delay=timedelta(seconds=3))
    info = encode(stated).application_failure_info
    assert (info.type, info.non_retryable, info.next_retry_delay.seconds, len(info.details.payloads)) == (
        "t",
        True,
        3,
        1,
    )
    assert encode(CancelledError("by hand")).HasField("canceled_failure_info")


def in_attempt(attempt: int, error: Exception) -> Failure:
    policy = RetryPolicy(maximum_attempts=2, non_retryable_error_types=["final"])
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt, retry_policy=policy)
    work: Callable[..., Any] = encode
    found: Failure = environment.run(work, error)
    return found


LARGE = ApplicationError("ü" * 3_000, "x" * 6_000, type="large")


def test_a_failure_that_is_tried_again_has_what_the_server_keeps() -> None:
    found = in_attempt(1, LARGE)
    assert found.ByteSize() <= RETRIED_BYTES
    assert found.application_failure_info.type == "large"
    assert found.message.startswith("ü" * 300)


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (2, LARGE),
        (1, ApplicationError("ü" * 3_000, "x" * 6_000, type="final")),
        (1, ApplicationError("ü" * 3_000, "x" * 6_000, non_retryable=True)),
    ],
)
def test_a_final_failure_keeps_its_details(attempt: int, error: Exception) -> None:
    found = in_attempt(attempt, error)
    assert len(found.message) == 3_000
    assert found.application_failure_info.details.ByteSize() > 6_000


def test_texts_can_be_read_where_details_cannot() -> None:
    failure = encode(ApplicationError("no", {"k": "\ud800"}, type="declined"))
    bare = without_details(failure)
    assert (bare.message, bare.application_failure_info.type) == ("no", "declined")
    assert not bare.application_failure_info.details.payloads
    assert failure.application_failure_info.details.payloads


def test_a_group_of_many_names_the_first() -> None:
    text = text_of(ExceptionGroup("many", [ValueError(str(n)) for n in range(5)]))
    assert text == "many (5 sub-exceptions): ValueError: 0; ValueError: 1; ValueError: 2; …"


def test_a_run_below_that_was_terminated_says_how_to_run_it_again() -> None:
    error = call_error(TerminatedError("Terminated"), Options(), "queue")
    assert error.code == "TerminatedError"
    assert "acts retry" in error.message
