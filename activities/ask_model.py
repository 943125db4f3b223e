"""The one activity that asks a model: for a Solution, or for the result of a latent Call.

Its request names the run that has the context. The activity reads the context from there, renders the prompt, composes
the schema, asks, checks the answer, and gives the model one repair turn when the answer cannot be used. Prompts never
reach a history; only this small result does.

    {"ask": "solution" | "output", "model", "temperature"?, "maxOutputTokens"?, "priced": bool, "mayRepair": bool,
     "reserved"?: {"tokens"?, "cost"?}, "source": {"workflowId", "runId", "upto"},
     "tick" | "tool", "call", "paths", "scoped"}
    → {"solution" | "output", "path"?, "unusable"?: {code, message, text?}, "usage": {…}, "requests": [{requestId, …}]}

``priced``: the budget limits the cost, so a model without a price is refused. ``mayRepair``: a second request may be
made, within what is ``reserved`` (tokens, US dollars) for both. ``usage`` sums all requests that were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.call_stream import CallStream
from activities.context_reader import UNAVAILABLE, ContextPart, ContextReader, PromptContext
from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from activities.planner_request import build_planner_request, room_of
from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, ModelTurn, PromptBlock, RepairTurn
from activities.providers.prices import price_per_token
from acts.language.errors import TooComplex, truncate
from acts.language.schemas import checker
from acts.language.usage import Usage
from acts.language.values import Json, pointer
from acts.language.wire import (
    INTERRUPTED,
    INVALID_ANSWER,
    MAX_PAYLOAD_BYTES,
    MODEL,
    RESULT_TOO_LARGE,
    STREAMED_CALLS,
    TOO_COMPLEX,
)
from acts.planner.answer_schema import compose_latent_schema
from acts.planner.conversation import PromptTurn
from acts.planner.prompt import (
    Prompt,
    render_latent_prompt,
    render_repair_turn,
)
from acts.planner.turns import MAX_TEXT

# A provider may ask for hours; a person should see sooner that nothing moves
MAX_RETRY_AFTER_SECONDS: Final = 300.0
# The model itself may correct an answer with one of these faults
_REPAIRABLE: Final = ("modelNotJson", "modelTruncated", INVALID_ANSWER)
# An agent continues with the next tick, which shows the planner the fault
_REPORTED_TO_PLANNER: Final = ("modelNotJson", "modelTruncated", RESULT_TOO_LARGE)
_INTERRUPTED_TEXT: Final = "the answer broke off while calls of it had started: the worker that read it has stopped"
# Defects of an answer that an error lists
_MAX_DEFECTS: Final = 5

_contexts: Final = ContextReader()


@dataclass(frozen=True)
class _Task:
    """What is asked: the request, the defects of an answer to it, and the answer's part of the activity's result."""

    request: ModelRequest
    find_defects: Callable[[Json], list[str]]
    read_answer: Callable[[Json], dict[str, Any]]
    is_planning: bool


@dataclass
class RequestLog:
    """The requests that were made, their usage, and the number of Calls that the present answer has so far."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    calls: int = 0

    def count_call(self, index: int, _: Json) -> None:
        """Note a Call that has arrived."""
        self.calls = index + 1

    def add(self, response: ModelResponse) -> None:
        """Record a request that was answered."""
        tokens = response.tokens
        usage = {
            "inputTokens": tokens.inputTokens, "outputTokens": tokens.outputTokens,
            "cachedTokens": tokens.cachedTokens, "reasoningTokens": tokens.reasoningTokens, "cost": response.cost,
        }  # fmt: skip
        self.usage.add({"requests": 1, **usage})
        self.requests.append(
            {"requestId": response.requestId, "model": response.model, "strict": response.strict, "usage": usage}
        )

    def add_failed(self, error: ModelError) -> None:
        """Record a request without a usable answer, where its usage is known: it costs all the same."""
        if error.tokens is not None:
            self.add(ModelResponse(error.text, None, error.tokens, error.cost, error.details.get("requestId")))


@activity.defn(name=MODEL)
async def ask_model(request: dict[str, Any]) -> RawValue:
    """One question to a model; see the top of the file."""
    source = request["source"]
    stream: CallStream | None = None
    if request.get("streams"):
        agent = activity.client().get_workflow_handle(source["workflowId"], run_id=source["runId"])
        attempt = activity.info().attempt
        if attempt > 1 and await _count_streamed_calls(agent):
            # Its Calls have started: another answer would be about what they do
            return _encode({"unusable": {"code": INTERRUPTED, "message": _INTERRUPTED_TEXT}}, RequestLog())
        stream = CallStream(agent, request["tick"], attempt, request["token"])
    part = ContextPart(source["workflowId"], source["runId"], source["upto"], request.get("tick", 1) - 1)
    context = await _contexts.read(activity.client(), part)
    build_task = _solution_task if request["ask"] == "solution" else _latent_task
    task = build_task(request, context, await asyncio.to_thread(room_of, request["model"]))
    log = RequestLog()
    # Providers may think for minutes before the first word
    async with heartbeat(lambda: {"calls": log.calls}):
        try:
            await _require_price(request)
            async with stream or contextlib.nullcontext():
                response = await _ask_with_repair(request, task, log, stream)
            return _encode(task.read_answer(response.value), log)
        except ModelError as error:
            has_started = stream is not None and stream.has_reported
            if not task.is_planning or not (has_started or error.code in _REPORTED_TO_PLANNER):
                raise _application_error(error, log.usage) from error
            # The planner is shown the beginning of what it wrote
            text = {"text": error.text[:MAX_TEXT]} if error.text else {}
            return _encode({"unusable": {"code": error.code, "message": error.message, **text}}, log)


async def _count_streamed_calls(agent: WorkflowHandle[Any, Any]) -> int:
    """How many Calls of this answer an earlier attempt has reported.

    Raises:
        ApplicationError: ``ContextUnavailable``, the agent does not answer; retryable.
    """
    try:
        return int(await agent.query(STREAMED_CALLS))
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
        raise ApplicationError(f"the agent does not answer now: {error}", type=UNAVAILABLE) from error


async def _ask_with_repair(
    request: dict[str, Any], task: _Task, log: RequestLog, stream: CallStream | None
) -> ModelResponse:
    """The answer, after one repair turn if the first cannot be used and nothing of it has started.

    Raises:
        ModelError: there is none.
    """
    model_request = task.request

    def receive_call(index: int, call: Json) -> None:
        log.count_call(index, call)
        if stream is not None:
            stream.add(index, call)

    while True:
        log.calls = 0
        try:
            response = await select.ask(request["model"], model_request, receive_call if task.is_planning else None)
            log.add(response)
            _require_fit(response, task)
        except ModelError as error:
            log.add_failed(error)
            is_last = bool(model_request.repairs) or not _may_repair(request, log.usage)
            is_last = is_last or (stream is not None and stream.has_reported)
            if is_last or error.code not in _REPAIRABLE:
                raise
            repair = RepairTurn(error.text, render_repair_turn([error.message]))
            model_request = replace(model_request, repairs=(repair,))
        else:
            return response


def _may_repair(request: dict[str, Any], usage: Usage) -> bool:
    """True while a second request, about as large as the first, stays within what is reserved."""
    reserved = request.get("reserved") or {}
    tokens, cost = usage.inputTokens + usage.outputTokens, usage.cost or 0.0
    fits_tokens = 2 * tokens <= _limit(reserved, "tokens")
    return bool(request["mayRepair"] and fits_tokens and 2 * cost <= _limit(reserved, "cost"))


def _limit(reserved: dict[str, Any], name: str) -> float:
    value = reserved.get(name)
    return math.inf if value is None else float(value)


def _require_fit(response: ModelResponse, task: _Task) -> None:
    try:
        defects = task.find_defects(response.value)
    except TooComplex as error:
        raise ModelError(TOO_COMPLEX, f"the answer: {error}", retryable=False, text=response.text) from error
    if defects:
        text = f"the answer does not fit what was asked for: {'; '.join(defects[:_MAX_DEFECTS])}"
        raise ModelError(INVALID_ANSWER, text, retryable=False, text=response.text)


async def _require_price(request: dict[str, Any]) -> None:
    if request.get("priced") and await asyncio.to_thread(price_per_token, request["model"]) is None:
        text = f"no price list knows the model {request['model']}, so budget.cost cannot be kept: remove it"
        raise ModelError("noPrice", text, retryable=False)


# -- tasks ---------------------------------------------------------------------


def _solution_task(request: dict[str, Any], context: PromptContext, room: float) -> _Task:
    prompt, schema = build_planner_request(context, request["tick"], room)
    model_request = build_model_request(request, prompt, schema, "solution", f"tick {request['tick']}")
    # The agent validates the Calls as a plan; their problems go back to the planner in the next tick
    return _Task(model_request, lambda _: [], lambda value: {"solution": value}, is_planning=True)


def _latent_task(request: dict[str, Any], context: PromptContext, room: float) -> _Task:
    tool, paths = context.tools[request["tool"]], request["paths"]
    schema, has_path = compose_latent_schema(tool, paths)
    prompt = render_latent_prompt(context.messages, tool, request["call"], paths, request["scoped"], room=room)

    def find_defects(value: Json) -> list[str]:
        return [f"{pointer(*at) or 'it'}: {why}" for at, why in checker(schema).defects(value)]

    def read_answer(value: Json) -> dict[str, Any]:
        if has_path:
            return {"output": value["output"], "path": paths.index(value["path"])}
        return {"output": value, "path": 0}

    model_request = build_model_request(request, prompt, schema, "output", tool.name)
    return _Task(model_request, find_defects, read_answer, is_planning=False)


def build_model_request(request: dict[str, Any], prompt: Prompt, schema: Json, label: str, topic: str) -> ModelRequest:
    """The request to a model; ``request`` has the settings of the activity's: model, source, temperature, cap."""
    last_system = len(prompt.system) - 1
    return ModelRequest(
        model=request["model"],
        system=tuple(
            PromptBlock(part.text, is_cached=i == last_system, is_rules=part.kind == "rules")
            for i, part in enumerate(prompt.system)
        ),
        turns=tuple(ModelTurn(turn.role, _blocks(turn, prompt.stable_parts)) for turn in prompt.turns),
        schema=schema,
        label=label,
        temperature=request.get("temperature"),
        maxOutputTokens=request.get("maxOutputTokens"),
        cache_key=request["source"]["workflowId"],
        topic=topic,
    )


def _blocks(turn: PromptTurn, stable_parts: int | None) -> tuple[PromptBlock, ...]:
    """A turn as one block; that of a latent Call as two: what other Calls have too, and its own."""
    if stable_parts is None:
        return (PromptBlock(turn.text, is_cached=turn.role == "user"),)
    texts = [part.text for part in turn.parts]
    return (
        PromptBlock("\n".join(texts[:stable_parts]), is_cached=True), PromptBlock("\n".join(texts[stable_parts:]))
    )  # fmt: skip


# -- results -------------------------------------------------------------------


def _encode(result: dict[str, Any], log: RequestLog) -> RawValue:
    """The activity's result.

    Raises:
        ModelError: the answer cannot be recorded.
    """
    try:
        return encode_result({**result, "usage": log.usage.to_json(), "requests": log.requests})
    except ResultTooLarge as error:
        text = f"the answer has {error.size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded"
        raise ModelError(RESULT_TOO_LARGE, f"{text}: ask for less at a time", retryable=False) from error
    except ValueError as error:
        raise ModelError("modelNotJson", f"the answer cannot be recorded: {error}", retryable=False) from error


def _application_error(error: ModelError, usage: Usage) -> ApplicationError:
    delay = None if error.retryAfter is None else min(error.retryAfter, MAX_RETRY_AFTER_SECONDS)
    return ApplicationError(
        truncate(error.message, 2000),
        {"usage": usage.to_json(), **error.details},
        type=error.code,
        non_retryable=not error.retryable,
        next_retry_delay=None if delay is None else timedelta(seconds=delay),
    )
