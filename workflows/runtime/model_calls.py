"""Requests to the model: the activity, what it may spend, and what its answer means.

The activity gets no prompt. It is told which run has the context and how many of its messages count, and
reads them by the query ``promptContext``, so that no history holds a prompt. What the query answers never
changes for the same count: messages are only appended.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from acts.language.config import Options
from acts.language.wire import MODEL, NON_RETRYABLE_TYPES
from acts.machines.request_size import output_cap
from acts.tree.child_ids import short_id
from acts.tree.records import ContextRef
from workflows.runtime.payloads import encode

if TYPE_CHECKING:
    from acts.machines.run_commands import AskOutput, AskSolution
    from acts.machines.run_machine import RunMachine
    from acts.tree.records import GrantedRequest

# One request, thinking included. Providers' own limits are at ten minutes and more.
REQUEST_SECONDS: Final = 900.0
# Five times the activity's own rhythm; a dead worker is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# … in the words of a Tool's options, for the text of a failure
OPTIONS: Final = Options(timeout=REQUEST_SECONDS, heartbeat=HEARTBEAT_SECONDS)
# Overloads last minutes: 2, 4, 8, 16, 32 s and what the provider asks for
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=60),
    maximum_attempts=6, non_retryable_error_types=list(NON_RETRYABLE_TYPES),
)  # fmt: skip


def own_context(message_count: int) -> ContextRef:
    """The context of this run."""
    info = workflow.info()
    return ContextRef(workflowId=info.workflow_id, runId=info.run_id, messageCount=message_count)


def solution_request(run: RunMachine, command: AskSolution) -> RawValue:
    """What the model activity is asked for a tick."""
    return encode({
        "ask": "solution", **_settings(run, command.grant), "tick": command.tick, "streams": command.streams,
        "token": run.position.token,
        "source": _source(own_context(command.message_count)),
    })  # fmt: skip


def output_request(run: RunMachine, command: AskOutput) -> RawValue:
    """What the model activity is asked for a latent Call.

    Raises:
        CallError: the Call's parameters are too large to be recorded.
    """
    node = command.node
    # A template's Call does not name its instance, and must be shown no other's data
    call = command.call if node.instance is None else {**command.call, "_instance": node.instance}
    return encode({
        "ask": "output", **_settings(run, command.grant), "source": _source(command.source),
        "tool": node.tool.name, "call": call, "paths": node.outcome_texts,
        "scoped": command.context if "_scopes" in node.call else None,
    })  # fmt: skip


def _source(ref: ContextRef) -> dict[str, Any]:
    return {"workflowId": ref.workflowId, "runId": ref.runId, "upto": ref.messageCount}


def _settings(run: RunMachine, grant: GrantedRequest | None) -> dict[str, Any]:
    """The model's settings, and what the request may spend."""
    config, cap = run.config, run.config.maxOutputTokens
    out: dict[str, Any] = {"model": config.model, "priced": run.budget.limits_cost, "mayRepair": True}
    if grant is not None:
        cap = output_cap(config, run.price, grant)
        out["mayRepair"] = grant.mayRepair
        turns = 2 if grant.mayRepair else 1
        reserved = {k: turns * v for k, v in (("tokens", grant.tokens), ("cost", grant.cost)) if v}
        if reserved:
            out["reserved"] = reserved
    settings = {"temperature": config.temperature, "maxOutputTokens": cap}
    return out | {k: v for k, v in settings.items() if v is not None}


def start_request(request: RawValue, id_: str, label: str) -> workflow.ActivityHandle[Any]:
    """The model activity, scheduled."""
    return workflow.start_activity(
        MODEL, request, result_type=RawValue, activity_id=short_id(id_), summary=label,
        start_to_close_timeout=timedelta(seconds=REQUEST_SECONDS),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS), retry_policy=_RETRY,
    )  # fmt: skip


def usage_of(error: BaseException) -> dict[str, Any] | None:
    """What a failed request cost, where its failure says so."""
    cause: BaseException | None = error
    while isinstance(cause, ActivityError):
        cause = cause.__cause__
    if isinstance(cause, ApplicationError) and cause.details and isinstance(cause.details[0], dict):
        usage = cause.details[0].get("usage")
        return usage if isinstance(usage, dict) else None
    return None
