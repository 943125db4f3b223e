"""How a run ended, from what the server says of it.

Laws of this file:
- a failure of type PlanFailed carries the whole result, one of type InvalidRequest the
  problems: both are taken out here, so that nothing completed is lost to a person;
- anything else a run may end with has a status and a message of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import Problem
from acts.language.wire import INVALID_REQUEST, PLAN_FAILED
from cli.command_errors import DONE, WRONG_INPUT
from cli.command_errors import PLAN_FAILED as EXIT_FAILED
from cli.text.problems import from_json

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle


@dataclass(frozen=True)
class Outcome:
    """``status`` as in a result, or terminated, timedOut. ``result`` is None where there is none."""

    status: str
    result: Any = None
    error: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code of a command that waited for this."""
        if self.status == "completed":
            return DONE
        return WRONG_INPUT if self.problems else EXIT_FAILED

    def to_json(self) -> Any:
        """The result; without one, the status and the error in the same shape."""
        if self.result is not None or self.error is None:
            return self.result
        return {"status": self.status, "error": self.error}


async def wait(handle: WorkflowHandle[Any, Any], *, follow: bool = True) -> Outcome:
    """The outcome of a run, once it has one. Continue-as-new is followed, unless one run is meant."""
    from temporalio.client import WorkflowContinuedAsNewError, WorkflowFailureError

    try:
        found = await handle.result(follow_runs=follow)
    except WorkflowContinuedAsNewError as error:
        return Outcome(
            "continued", error={"type": "ContinuedAsNew", "message": f"went on as run {error.new_execution_run_id}"}
        )
    except WorkflowFailureError as error:
        return of_failure(error.cause)
    status = found.get("status") if isinstance(found, dict) else None
    return Outcome(status if isinstance(status, str) else "completed", found)


def of_failure(cause: BaseException | None) -> Outcome:
    """The outcome that a failed, cancelled, terminated or timed-out run stands for."""
    from temporalio import exceptions

    message = getattr(cause, "message", None) or str(cause)
    if isinstance(cause, exceptions.ApplicationError):
        kind = cause.type or "ApplicationError"
        detail = cause.details[0] if cause.details else None
        if kind == PLAN_FAILED and isinstance(detail, dict):
            return Outcome(str(detail.get("status", "failed")), detail)
        if kind == INVALID_REQUEST:
            found = detail if isinstance(detail, list) else []
            error = {"type": kind, "message": message, "problems": found}
            return Outcome("failed", None, error, from_json(found) or [Problem(kind, message)])
        return _status_result("failed", kind, message, detail)
    if isinstance(cause, exceptions.CancelledError):
        detail = cause.details[0] if cause.details else None
        return _status_result("cancelled", "Cancelled", message, detail)
    if isinstance(cause, exceptions.TerminatedError):
        return Outcome("terminated", error={"type": "Terminated", "message": message})
    if isinstance(cause, exceptions.TimeoutError):
        return Outcome("timedOut", error={"type": "Timeout", "message": message})
    if isinstance(cause, (exceptions.ActivityError, exceptions.ChildWorkflowError)):
        return Outcome("failed", error=_beneath(cause))
    return Outcome("failed", error={"type": type(cause).__name__, "message": message})


def _beneath(error: BaseException) -> dict[str, Any]:
    """Why what a run was there for failed: ``Activity task failed`` is no reason, what it is about may be one."""
    from temporalio import exceptions

    cause: BaseException = error
    while isinstance(cause, (exceptions.ActivityError, exceptions.ChildWorkflowError)) and cause.__cause__ is not None:
        cause = cause.__cause__
    told = of_failure(cause).error if cause is not error else None
    kind = getattr(cause, "type", None) or type(cause).__name__
    return {"type": kind, "message": str(getattr(cause, "message", cause)), **(told or {})}


def _status_result(status: str, kind: str, message: str, detail: Any) -> Outcome:
    """A failure whose first detail may be a whole result."""
    if isinstance(detail, dict) and isinstance(detail.get("status"), str):
        return Outcome(detail["status"], detail, {"type": kind, "message": message})
    return Outcome(status, error={"type": kind, "message": message})
