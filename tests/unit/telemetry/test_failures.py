"""What of an exception travels: its words, where a fault was raised, and no more than reaches the server."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.common import RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.testing import ActivityEnvironment

import acts
from acts.language.config import Options
from acts.language.errors import InvalidRequest, Problem
from acts.telemetry.failures import MAX_LEVELS, MAX_MESSAGE, EngineFailureConverter, find_place, format_error, levels_of
from acts.telemetry.logs import _is_retried
from acts.workflows.in_flight import call_error


def refuse() -> None:
    raise InvalidRequest([Problem("noPlan", "there is no plan")])


def fail(kind: str) -> None:
    """Raise an error of this type because of another, as a workflow does it."""
    try:
        refuse()
    except InvalidRequest as error:
        raise ApplicationError(str(error), error.to_json(), type=kind, non_retryable=True) from error


def failure_of(kind: str) -> Failure:
    found = Failure()
    with pytest.raises(ApplicationError) as raised:
        fail(kind)
    EngineFailureConverter().to_failure(raised.value, PayloadConverter.default, found)
    return found


@pytest.fixture
def _in_a_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "in_workflow", lambda: True)


@pytest.mark.usefixtures("_in_a_workflow")
@pytest.mark.parametrize("kind", ["DecisionRefused", "InvalidRequest", "PlanFailed", "budgetSpent"])
def test_what_a_workflow_states_is_its_words_and_details_alone(kind: str) -> None:
    found = failure_of(kind)
    assert (found.stack_trace, found.HasField("cause")) == ("", False)
    assert "there is no plan" in found.message
    info = found.application_failure_info
    assert (info.type, info.non_retryable, len(info.details.payloads)) == (kind, True, 1)


@pytest.mark.usefixtures("_in_a_workflow")
def test_a_fault_of_the_engine_says_where_it_was_raised_and_why() -> None:
    found = failure_of("EngineError")
    assert "in fail" in found.stack_trace
    assert "in refuse" in found.cause.stack_trace


def test_what_an_activity_raises_keeps_its_stack_trace_whatever_its_type() -> None:
    assert "in fail" in failure_of("InvalidRequest").stack_trace


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    raise ApplicationError("too deep", type="deep")


@pytest.mark.parametrize(
    ("depth", "frames", "more"), [(1, 3, ""), (3, 5, ""), (5, 6, "... 1 more"), (50, 6, "... 46 more")]
)
def test_the_middle_of_a_long_stack_trace_is_left_out(depth: int, frames: int, more: str) -> None:
    """The test's own frame is the first."""
    found = Failure()
    with pytest.raises(ApplicationError) as raised:
        recurse(depth)
    EngineFailureConverter().to_failure(raised.value, PayloadConverter.default, found)
    trace = found.stack_trace
    assert trace.count("  File ") == frames
    assert more in trace
    assert ("..." in trace) == bool(more)
    assert "in test_the_middle" in trace.splitlines()[0]
    assert trace.rstrip().endswith('raise ApplicationError("too deep", type="deep")')


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


def encode(error: BaseException) -> Failure:
    failure = Failure()
    EngineFailureConverter().to_failure(error, PayloadConverter.default, failure)
    return failure


@pytest.mark.parametrize("length", [MAX_LEVELS, 93, 5_000])
def test_of_a_long_chain_the_beginning_and_the_origin_are_left(length: int) -> None:
    levels = levels_of(encode(chain(length)))
    assert len(levels) == MAX_LEVELS
    assert levels[0].message == f"level {length - 1}"
    assert levels[-1].message == "the origin"
    assert f"... {length + 1 - MAX_LEVELS} causes in between" in levels[-1].stack_trace


@pytest.mark.parametrize(
    ("error", "message", "type_"),
    [
        (Speechless(), "its text cannot be read: __str__ raises ValueError", "Speechless"),
        (ValueError("a\ud800b"), "a\\ud800b", "ValueError"),
        (ApplicationError("x", type="\ud800"), "x", "\\ud800"),
        (ApplicationError("no", object(), type="declined"), "no; its details cannot be sent: ", "declined"),
        (ApplicationError("no", "x" * 2_000_000, type="declined"), "no; its details of 2,000,", "declined"),
        (ExceptionGroup("both", [KeyError("k"), OSError()]), "KeyError: 'k'; OSError: OSE", "Ex"),
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


def test_a_run_below_that_was_terminated_says_how_to_run_it_again() -> None:
    error = call_error(TerminatedError("Terminated"), Options())
    assert error.code == "TerminatedError"
    assert "acts retry" in error.message


FRAMES = """  File "/home/ada/shop/order_tools.py", line 41, in charge
    answer = client.post(url)

  ... 12 more

  File "{library}httpx/_client.py", line 7, in post
    raise ConnectError(text)
"""


@pytest.mark.parametrize(
    ("trace", "place"),
    [
        (FRAMES.format(library="/x/.venv/lib/python3.11/site-packages/"), "/home/ada/shop/order_tools.py:41"),
        (FRAMES.format(library="/usr/lib/python3.12/"), "/home/ada/shop/order_tools.py:41"),
        (FRAMES.format(library="/home/ada/shop/"), "/home/ada/shop/httpx/_client.py:7"),
        ("    at charge (/home/ada/shop/tools.ts:41:7)", None),
        ("", None),
    ],
)
def test_the_place_of_a_failure_is_the_last_line_that_is_of_no_library(trace: str, place: str | None) -> None:
    assert find_place(trace) == place


def test_a_traceback_in_the_log_begins_at_the_tool() -> None:
    @acts.tool
    def charge(amount: int) -> None:
        try:
            {}[amount]
        except KeyError as error:
            raise ValueError("no such customer") from error

    with pytest.raises(ValueError, match="no such customer") as failed:
        charge.__acts_tool__.activity({"amount": 3}, {}, [])  # type: ignore[attr-defined]
    lines = format_error(failed.value).splitlines()
    assert [line for line in lines if line.startswith("  File")] == [line for line in lines if __file__ in line]
    assert sum(", in charge" in line for line in lines) == 2


def test_a_brief_traceback_leaves_out_the_frames_of_libraries_and_an_attempt_before_the_last_has_none() -> None:
    with pytest.raises(ValueError, match="Expecting value") as failed:
        json.loads("")
    lines = format_error(failed.value, is_brief=True).splitlines()
    assert [__file__ in line for line in lines if line.startswith("  File")] == [True]
    environment = ActivityEnvironment()
    for attempt, is_retried in ((1, True), (2, False)):
        policy = RetryPolicy(maximum_attempts=2)
        environment.info = replace(environment.info, attempt=attempt, retry_policy=policy)
        assert environment.run(_is_retried, failed.value) is is_retried
