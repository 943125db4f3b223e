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
from acts.language.wire import MAX_UNUSABLE_ANSWERS, MODEL, NON_RETRYABLE_TYPES
from acts.machines.request_size import output_cap
from acts.planner.request_estimate import LONGEST_ANSWER_TOKENS, answer_seconds
from acts.tree.child_ids import short_id
from acts.tree.records import ContextRef
from workflows.runtime.payloads import encode

if TYPE_CHECKING:
    from acts.machines.run_commands import AskOutput, AskSolution
    from acts.machines.run_machine import RunMachine
    from acts.tree.records import GrantedRequest

# One attempt: as many of the longest answers as it may ask for, and twice the time that one waits for its turn. The
# activity bounds each request by its own cap; a worker that dies is missed by its heartbeat
REQUEST_SECONDS: Final = MAX_UNUSABLE_ANSWERS * answer_seconds(LONGEST_ANSWER_TOKENS) + 600.0
# Five times the activity's own rhythm; a dead worker is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# … in the words of a Tool's options, for the text of a failure
OPTIONS: Final = Options(timeout=REQUEST_SECONDS, heartbeat=HEARTBEAT_SECONDS)
# The activity decides how often it is attempted: a model without capacity is waited for as long as ``patience`` allows
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=60),
    maximum_attempts=0, non_retryable_error_types=list(NON_RETRYABLE_TYPES),
)  # fmt: skip


def own_context(message_count: int) -> ContextRef:
    """The context of this run."""
    info = workflow.info()
    return ContextRef(workflowId=info.workflow_id, runId=info.run_id, messageCount=message_count)


def solution_request(run: RunMachine, command: AskSolution) -> RawValue:
    """What the model activity is asked for a tick."""
    return encode({
        "ask": "solution", **_settings(run, run.config.model, command.grant, command.least_cap),
        "tick": command.tick, "streams": command.streams, "answersLeft": command.answers_left,
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
        "ask": "output", **_settings(run, run.config.latent_model, command.grant), "source": _source(command.source),
        "tool": node.tool.name, "call": call, "paths": node.outcome_texts,
        "scoped": command.context if "_scopes" in node.call else None,
    })  # fmt: skip


def _source(ref: ContextRef) -> dict[str, Any]:
    return {"workflowId": ref.workflowId, "runId": ref.runId, "upto": ref.messageCount}


def _settings(
    run: RunMachine, model: str | None, grant: GrantedRequest | None, least_cap: int | None = None
) -> dict[str, Any]:
    """The settings of a request to a model, what it may spend, and whom to tell that it waits."""
    config, position = run.config, run.position
    cap = config.maxOutputTokens if least_cap is None else max(config.maxOutputTokens or 0, least_cap)
    out: dict[str, Any] = {
        "model": model, "priced": run.budget.limits_cost, "mayRepair": True, "token": position.token,
        "patience": config.patience,
    }  # fmt: skip
    if grant is not None:
        cap = output_cap(config, run.price, grant, least_cap)
        out["mayRepair"] = grant.mayRepair
        turns = 2 if grant.mayRepair else 1
        reserved = {k: turns * v for k, v in (("tokens", grant.tokens), ("cost", grant.cost)) if v}
        if reserved:
            out["reserved"] = reserved
    settings = {
        "temperature": config.temperature, "maxOutputTokens": cap, "effort": config.effort,
        "fallbackModels": list(config.fallbackModels) or None,
        "root": position.ancestors[0] if position.ancestors else None,
    }  # fmt: skip
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
