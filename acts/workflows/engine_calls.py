"""The engine's own Activities: one table of how each is called, and the requests to models.

What an Activity finds out stands in history, so that every replay decides alike. What they do is not known here.

The model Activity gets no prompt. It is told which run has the context and how many of its messages count, and reads
them by the query ``promptContext``, so that no history holds a prompt. What the query answers never changes for the
same count: messages are only appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language import wire
from acts.language.config import Options
from acts.machines.budget import output_cap
from acts.planner.request_estimate import LONGEST_ANSWER_TOKENS, answer_seconds
from acts.tree.identity import short_id
from acts.tree.records import ContextRef
from acts.workflows.payloads import decode, encode

if TYPE_CHECKING:
    from acts.machines.commands import AskOutput, AskSolution
    from acts.machines.run_machine import RunMachine
    from acts.tree.records import GrantedRequest

    Handle = workflow.ActivityHandle[Any]

# Five times the rhythm of the Activities that beat; a worker that died is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# One attempt: as many of the longest answers as it may ask for, and twice the time that one waits for its turn. The
# Activity bounds each request by its own cap
REQUEST_SECONDS: Final = wire.MAX_UNUSABLE_ANSWERS * answer_seconds(LONGEST_ANSWER_TOKENS) + 600.0


def _patient(first: float, longest: float) -> RetryPolicy:
    """Attempts without a limit: the Activity says which failures are final."""
    return RetryPolicy(
        initial_interval=timedelta(seconds=first), maximum_interval=timedelta(seconds=longest), maximum_attempts=0,
        non_retryable_error_types=list(wire.NON_RETRYABLE_TYPES),
    )  # fmt: skip


def _attempts(count: int) -> RetryPolicy:
    return RetryPolicy(maximum_attempts=count, non_retryable_error_types=list(wire.NON_RETRYABLE_TYPES))


@dataclass(frozen=True, slots=True)
class EngineActivity:
    """How an Activity is called: ``seconds`` for one attempt; ``beats`` says whether it sends heartbeats.

    The result is ``result_type``; a ``RawValue`` is JSON that is read here.
    """

    seconds: float
    retry: RetryPolicy | None = None
    is_local: bool = False
    beats: bool = False
    result_type: type = dict


# A model without capacity is waited for as long as ``patience`` allows: the Activity decides how often it is attempted
_MODEL_RETRY: Final = _patient(2, 60)
# A full disk is looked at again after 1, 2, 4 … 30 s, for as long as it takes
_FILE_RETRY: Final = _patient(1, 30)
ENGINE_ACTIVITIES: Final[dict[str, EngineActivity]] = {
    wire.MODEL: EngineActivity(REQUEST_SECONDS, _MODEL_RETRY, beats=True, result_type=RawValue),
    # A survey reads about 50,000 rows a second, a page may have to be fetched together with the whole file, and an
    # append waits for a lock of 20 s and for a disk
    wire.SURVEY_SET: EngineActivity(3600, _FILE_RETRY, beats=True, result_type=RawValue),
    wire.READ_PAGE: EngineActivity(1800, _FILE_RETRY, beats=True, result_type=RawValue),
    wire.CREATE_RESULTS: EngineActivity(60, _FILE_RETRY, beats=True, result_type=RawValue),
    wire.APPEND_RESULTS: EngineActivity(60, _FILE_RETRY, beats=True, result_type=RawValue),
    wire.CLOSE_PAGE: EngineActivity(1800, _FILE_RETRY, beats=True, result_type=RawValue),
    # A definition of 1 MiB over a slow line
    wire.LOAD_DELEGATE: EngineActivity(60, _attempts(5), beats=True),
    # A worker replays the earlier run: 50,000 events, the most that a run may have, take about a minute
    wire.PAST_RUN: EngineActivity(300, _attempts(5), beats=True, result_type=bytes),
    wire.REGISTRY: EngineActivity(10, is_local=True),
    # A small local file
    wire.APPROVERS: EngineActivity(10, is_local=True, result_type=list),
    # One read of a history's first event for each attempt before this one
    wire.FIRST_ATTEMPT: EngineActivity(30, is_local=True, result_type=str),
    # Above the Activities' own limits, of 2 s for each queue, all of which are asked at once
    wire.QUEUES: EngineActivity(10, _attempts(1), is_local=True),
    wire.SEARCH_ATTRIBUTES: EngineActivity(5, _attempts(1), is_local=True, result_type=bool),
}
QUEUES_LABEL: Final = "which task queues have workers"
# The model Activity, and those of a set, in the words of a Tool's options: for the text of a failure
OPTIONS: Final = Options(timeout=REQUEST_SECONDS, heartbeat=HEARTBEAT_SECONDS)


def start_engine_activity(name: str, request: Any, label: str, id_: str | None = None) -> Handle:
    """Schedule one of the engine's Activities; ``request`` is its JSON, None for one that takes nothing.

    Raises:
        CallError: the request is too large to be recorded.
    """
    how = ENGINE_ACTIVITIES[name]
    is_encoded = isinstance(request, RawValue) or how.result_type is not RawValue
    args = [] if request is None else [request if is_encoded else encode(request)]
    options: dict[str, Any] = {
        "args": args, "result_type": how.result_type, "summary": label,
        "start_to_close_timeout": timedelta(seconds=how.seconds), "retry_policy": how.retry,
    }  # fmt: skip
    if id_ is not None:
        options["activity_id"] = short_id(id_)
    if how.is_local:
        return workflow.start_local_activity(name, **options)
    if how.beats:
        options["heartbeat_timeout"] = timedelta(seconds=HEARTBEAT_SECONDS)
    return workflow.start_activity(name, **options)


async def ask(name: str, request: Any, label: str) -> Any:
    """What one of the engine's Activities returns, outside of a machine. Raises ActivityError."""
    answer = await start_engine_activity(name, request, label)
    return decode(answer) if isinstance(answer, RawValue) else answer


async def ask_or_fail(name: str, request: Any, label: str) -> Any:
    """What an Activity returns that a run cannot do without: its failure is that of the run."""
    try:
        return await ask(name, request, label)
    except ActivityError as error:
        cause = error.__cause__
        if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
            raise
        raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None


async def ask_or_none(name: str, request: Any, label: str) -> Any:
    """What an Activity returns that a run can do without; None where it fails."""
    try:
        return await ask(name, request, label)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return None


# -- models ------------------------------------------------------------------------------------


def own_context(message_count: int) -> ContextRef:
    """The context of this run."""
    info = workflow.info()
    return ContextRef(workflowId=info.workflow_id, runId=info.run_id, messageCount=message_count)


def solution_request(run: RunMachine, command: AskSolution) -> RawValue:
    """What the model Activity is asked for a tick."""
    return encode({
        "ask": "solution", **_settings(run, run.config.model, command.grant, command.least_cap),
        "tick": command.tick, "streams": command.streams, "answersLeft": command.answers_left,
        "source": _source(own_context(command.message_count)),
    })  # fmt: skip


def output_request(run: RunMachine, command: AskOutput) -> RawValue:
    """What the model Activity is asked for a latent Call.

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


def usage_of(error: BaseException) -> dict[str, Any] | None:
    """What a failed request cost, where its failure says so."""
    cause: BaseException | None = error
    while isinstance(cause, ActivityError):
        cause = cause.__cause__
    if isinstance(cause, ApplicationError) and cause.details and isinstance(cause.details[0], dict):
        usage = cause.details[0].get("usage")
        return usage if isinstance(usage, dict) else None
    return None
