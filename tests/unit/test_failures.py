"""What of an exception travels: what a workflow states as its words alone, a fault with where it was raised."""

from __future__ import annotations

import pytest
from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError

from acts.language.errors import InvalidRequest, Problem
from acts.telemetry.failures import EngineFailureConverter


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
