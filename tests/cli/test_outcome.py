"""What a failed workflow means to a person: a status, a result, problems, an exit code."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio import exceptions
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, TimeoutType

from cli.outcome import Outcome, of_failure

RESULT = {"status": "failed", "state": {"a": 1}, "calls": [], "errors": [{"call": "1:x", "code": "c", "message": "m"}]}
PROBLEM = {"code": "unknownTool", "message": "unknown tool", "pointer": "/context/0", "call": "1:x", "hint": "h"}

CASES: list[tuple[BaseException, str, int, Any]] = [
    (ApplicationError("1 of 1 calls failed", RESULT, type="PlanFailed"), "failed", 1, RESULT),
    (
        ApplicationError("1 of 1 calls failed", type="PlanFailed"),
        "failed",
        1,
        {"type": "PlanFailed", "message": "1 of 1 calls failed"},
    ),
    (
        ApplicationError("rejected", {**RESULT, "status": "rejected"}, type="PlanRejected"),
        "rejected",
        1,
        {**RESULT, "status": "rejected"},
    ),
    (
        ApplicationError("too many ticks", type="MaxTicks"),
        "failed",
        1,
        {"type": "MaxTicks", "message": "too many ticks"},
    ),
    (
        ApplicationError("bad", [PROBLEM], type="InvalidRequest"),
        "failed",
        2,
        {"type": "InvalidRequest", "message": "bad", "problems": [PROBLEM]},
    ),
    (
        ApplicationError("bad", type="InvalidRequest"),
        "failed",
        2,
        {"type": "InvalidRequest", "message": "bad", "problems": []},
    ),
    (CancelledError("Workflow cancelled"), "cancelled", 1, {"type": "Cancelled", "message": "Workflow cancelled"}),
    (
        CancelledError("Workflow cancelled", {**RESULT, "status": "cancelled"}),
        "cancelled",
        1,
        {**RESULT, "status": "cancelled"},
    ),
    (TerminatedError("by hand"), "terminated", 1, {"type": "Terminated", "message": "by hand"}),
    (
        exceptions.TimeoutError("late", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=[]),
        "timedOut",
        1,
        {"type": "Timeout", "message": "late"},
    ),
    (ValueError("odd"), "failed", 1, {"type": "ValueError", "message": "odd"}),
]


def as_json(outcome: Outcome) -> Any:
    found = outcome.to_json()
    return found["error"] if isinstance(found, dict) and set(found) == {"status", "error"} else found


@pytest.mark.parametrize(("cause", "status", "code", "shown"), CASES, ids=lambda c: type(c).__name__)
def test_a_failure_is_told(cause: BaseException, status: str, code: int, shown: Any) -> None:
    outcome = of_failure(cause)
    assert (outcome.status, outcome.code, as_json(outcome)) == (status, code, shown)


@pytest.mark.parametrize(
    ("status", "code"), [("completed", 0), ("partial", 1), ("failed", 1), ("rejected", 1), ("cancelled", 1)]
)
def test_only_a_completed_run_exits_with_0(status: str, code: int) -> None:
    assert Outcome(status, {"status": status}).code == code


def test_problems_come_back_as_they_were() -> None:
    (found,) = of_failure(ApplicationError("bad", [PROBLEM], type="InvalidRequest")).problems
    assert found.to_json() == PROBLEM
