"""The outcome of a failed workflow: a status, a result, problems, an exit code."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio import exceptions
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, TimeoutType

from acts.cli.commands.start import exit_code
from acts.client.run_reader import RunResult, outcome_of_failure
from acts.views.text import usage_text

RESULT = {"status": "failed", "state": {"a": 1}, "calls": [], "errors": [{"call": "1:x", "code": "c", "message": "m"}]}
PROBLEM = {"code": "unknownTool", "message": "unknown tool", "pointer": "/context/0", "call": "1:x", "hint": "h"}

REJECTED, CANCELLED = {**RESULT, "status": "rejected"}, {**RESULT, "status": "cancelled"}
LATE = exceptions.TimeoutError("late", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=[])
INVALID = {"type": "InvalidRequest", "message": "bad", "problems": [PROBLEM]}
CASES: list[tuple[BaseException, str, int, Any]] = [
    (ApplicationError("1 of 1 calls failed", RESULT, type="PlanFailed"), "failed", 1, RESULT),
    (ApplicationError("gone", type="PlanFailed"), "failed", 1, {"type": "PlanFailed", "message": "gone"}),
    (ApplicationError("rejected", REJECTED, type="PlanRejected"), "rejected", 1, REJECTED),
    (ApplicationError("bad", [PROBLEM], type="InvalidRequest"), "failed", 2, INVALID),
    (ApplicationError("bad", type="InvalidRequest"), "failed", 2, {**INVALID, "problems": []}),
    (CancelledError("by hand"), "cancelled", 1, {"type": "Cancelled", "message": "by hand"}),
    (CancelledError("by hand", CANCELLED), "cancelled", 1, CANCELLED),
    (TerminatedError("by hand"), "terminated", 1, {"type": "Terminated", "message": "by hand"}),
    (LATE, "timedOut", 1, {"type": "Timeout", "message": "late"}),
    (ValueError("odd"), "failed", 1, {"type": "ValueError", "message": "odd"}),
]


def chain(error: exceptions.FailureError, cause: BaseException) -> BaseException:
    """A failure of a child or activity as the server reports it: the reason is its cause."""
    error.__cause__ = cause
    return error


def child() -> exceptions.FailureError:
    return exceptions.ChildWorkflowError(
        "Child Workflow execution failed", namespace="n", workflow_id="w", run_id="r", workflow_type="t",
        initiated_event_id=1, started_event_id=2, retry_state=None,
    )  # fmt: skip


def activity() -> exceptions.FailureError:
    return exceptions.ActivityError(
        "Activity task failed", scheduled_event_id=1, started_event_id=2, identity="i", activity_type="a",
        activity_id="1", retry_state=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (chain(child(), ApplicationError("gone", type="ModelError")), {"type": "ModelError", "message": "gone"}),
        (chain(child(), chain(activity(), ApplicationError("bad", type="E"))), {"type": "E", "message": "bad"}),
        (chain(child(), ApplicationError("1 failed", RESULT, type="PlanFailed")),
         {"type": "PlanFailed", "message": "1 failed"}),
        (chain(activity(), LATE), {"type": "Timeout", "message": "late"}),
        (chain(child(), ApplicationError("bad", [PROBLEM], type="InvalidRequest")), INVALID),
        (child(), {"type": "ChildWorkflowError", "message": "Child Workflow execution failed"}),
    ],
)  # fmt: skip
def test_the_error_of_a_failed_child_is_its_root_cause_and_its_result_is_not_the_runs(
    cause: BaseException, error: Any
) -> None:
    outcome = outcome_of_failure(cause)
    assert (outcome.status, exit_code(outcome), outcome.raw, outcome.error) == ("failed", 1, None, error)


def as_json(outcome: RunResult) -> Any:
    problem = outcome.to_json()
    return problem["error"] if isinstance(problem, dict) and set(problem) == {"status", "error"} else problem


@pytest.mark.parametrize(("cause", "status", "code", "shown"), CASES, ids=lambda c: type(c).__name__)
def test_each_failure_has_a_status_a_code_and_an_error(
    cause: BaseException, status: str, code: int, shown: Any
) -> None:
    outcome = outcome_of_failure(cause)
    assert (outcome.status, exit_code(outcome), as_json(outcome)) == (status, code, shown)


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        ({"requests": 1, "inputTokens": 1200, "outputTokens": 5, "cost": 0}, "1 request, 1,200 tokens in, 5 out"),
        ({"requests": 2, "inputTokens": 9, "outputTokens": 5, "cachedTokens": 4, "cost": 0.01},
         "2 requests, 9 tokens in (4 cached), 5 out, 0.0100 USD"),
        ({"requests": 2, "inputTokens": 9, "outputTokens": 5, "cost": None},
         "2 requests, 9 tokens in, 5 out, price unknown"),
    ],
)  # fmt: skip
def test_the_usage_has_requests_tokens_and_the_price_if_known(usage: dict[str, Any], text: str) -> None:
    assert usage_text(usage) == text
