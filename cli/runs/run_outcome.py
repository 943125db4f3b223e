"""How a run ended: its status, result and error, from what the server returns.

Laws of this file:
- a failure of type PlanFailed carries the whole result, one of type InvalidRequest the problems: both are unpacked
  here, so that completed work is never lost;
- every other end has a status and a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import Problem
from acts.language.wire import INVALID_REQUEST, PLAN_FAILED
from cli.command_errors import EXIT_DONE, EXIT_FAILED, EXIT_WRONG_INPUT
from cli.text.problems import problems_from_json

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle


@dataclass(frozen=True)
class Outcome:
    """``status`` is that of the result, or terminated, timedOut, continued. Without a result, ``result`` is None."""

    status: str
    result: Any = None
    error: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code of a command that waited for this run."""
        if self.status == "completed":
            return EXIT_DONE
        return EXIT_WRONG_INPUT if self.problems else EXIT_FAILED

    def to_json(self) -> Any:
        """The result; without one, ``{status, error}``."""
        if self.result is not None or self.error is None:
            return self.result
        return {"status": self.status, "error": self.error}


async def wait_for_outcome(handle: WorkflowHandle[Any, Any], *, follow_runs: bool = True) -> Outcome:
    """The outcome of a run once it ends. ``follow_runs`` waits across continue-as-new."""
    from temporalio.client import WorkflowContinuedAsNewError, WorkflowFailureError

    try:
        result = await handle.result(follow_runs=follow_runs)
    except WorkflowContinuedAsNewError as error:
        text = f"continued as the run {error.new_execution_run_id}"
        return Outcome("continued", error={"type": "ContinuedAsNew", "message": text})
    except WorkflowFailureError as error:
        return outcome_of_failure(error.cause)
    status = result.get("status") if isinstance(result, dict) else None
    return Outcome(status if isinstance(status, str) else "completed", result)


def outcome_of_failure(cause: BaseException | None) -> Outcome:
    """The outcome of a run that failed, timed out, or was cancelled or terminated."""
    from temporalio import exceptions

    text = getattr(cause, "message", None) or str(cause)
    details = getattr(cause, "details", None)
    detail = details[0] if details else None
    match cause:
        case exceptions.ApplicationError():
            return _application_outcome(cause.type or "ApplicationError", text, detail)
        case exceptions.CancelledError():
            return _outcome_with_detail("cancelled", "Cancelled", text, detail)
        case exceptions.TerminatedError():
            return Outcome("terminated", error={"type": "Terminated", "message": text})
        case exceptions.TimeoutError():
            return Outcome("timedOut", error={"type": "Timeout", "message": text})
        case exceptions.ActivityError() | exceptions.ChildWorkflowError():
            return Outcome("failed", error=_root_error(cause))
    return Outcome("failed", error={"type": type(cause).__name__, "message": text})


def _application_outcome(type_: str, text: str, detail: Any) -> Outcome:
    if type_ == PLAN_FAILED and isinstance(detail, dict):
        return Outcome(str(detail.get("status", "failed")), detail)
    if type_ == INVALID_REQUEST:
        items = detail if isinstance(detail, list) else []
        error = {"type": type_, "message": text, "problems": items}
        return Outcome("failed", None, error, problems_from_json(items) or [Problem(type_, text)])
    return _outcome_with_detail("failed", type_, text, detail)


def _outcome_with_detail(status: str, type_: str, text: str, detail: Any) -> Outcome:
    """The outcome of a failure whose first detail may be a whole result."""
    error = {"type": type_, "message": text}
    if isinstance(detail, dict) and isinstance(detail.get("status"), str):
        return Outcome(detail["status"], detail, error)
    return Outcome(status, error=error)


def _root_error(error: BaseException) -> dict[str, Any]:
    """The error of the activity or child that failed the run: ``Activity task failed`` names no reason."""
    from temporalio import exceptions

    cause: BaseException = error
    while isinstance(cause, (exceptions.ActivityError, exceptions.ChildWorkflowError)) and cause.__cause__ is not None:
        cause = cause.__cause__
    error_of_cause = outcome_of_failure(cause).error if cause is not error else None
    type_ = getattr(cause, "type", None) or type(cause).__name__
    return {"type": type_, "message": str(getattr(cause, "message", cause)), **(error_of_cause or {})}
