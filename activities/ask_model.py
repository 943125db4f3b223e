"""The one activity that asks a model: for a Solution, or for the result of a latent Call.

Its request names the run that has the context. The activity reads the context from there, renders the prompt, composes
the schema, asks, checks the answer, and asks again when it cannot be used: with a higher cap, or with the fault.
Prompts never reach a history; only this small result does.

    {"ask": "solution" | "output", "model", "fallbackModels"?: […], "patience"?: seconds, "effort"?, "temperature"?,
     "maxOutputTokens"?, "priced": bool, "mayRepair": bool, "answersLeft"?, "reserved"?: {"tokens"?, "cost"?},
     "source": {"workflowId", "runId", "upto"}, "token", "root"?, "tick" | "tool", "call", "paths", "scoped"}
    → {"solution" | "output", "path"?, "unusable"?: {code, message, text?, answers, cap?}, "usage": {…},
       "notes"?: […], "requests": [{requestId, …}]}

``priced``: the budget limits the cost, so a model without a price is refused. ``mayRepair``: further requests may be
made, within what is ``reserved`` (tokens, US dollars) for all. ``answersLeft``: so many unusable answers end the run.
``usage`` sums all requests of all attempts. Temporal retries the activity as often as this file asks for: a model
without capacity is waited for between two attempts (``patience.py``), and what is known travels in the heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities import patience
from activities.cache_warming import send_warm
from activities.call_stream import CallStream
from activities.context_reader import UNAVAILABLE, ContextPart, ContextReader, PromptContext
from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from activities.kept_prompts import PromptPlace, keep
from activities.model_tasks import ModelTask, build_task
from activities.planner_request import room_of
from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, RepairTurn
from activities.providers.prices import price_per_token
from activities.rate_limiter import NoTurn, limiter_of
from activities.request_log import RequestLog
from activities.wait_reports import report_end, report_wait
from acts.language.config import DEFAULT_PATIENCE_SECONDS
from acts.language.errors import TooComplex, truncate
from acts.language.usage import Usage
from acts.language.wire import (
    INTERRUPTED,
    INVALID_ANSWER,
    MAX_PAYLOAD_BYTES,
    MAX_UNUSABLE_ANSWERS,
    MODEL,
    RESULT_TOO_LARGE,
    STREAMED_CALLS,
    TOO_COMPLEX,
)
from acts.planner.prompt import render_repair_turn
from acts.planner.request_estimate import answer_seconds, higher_cap
from acts.planner.turns import MAX_TEXT

_TRUNCATED: Final = "modelTruncated"
# The model itself may correct an answer with one of these faults
_REPAIRABLE: Final = ("modelNotJson", INVALID_ANSWER)
_UNUSABLE: Final = (*_REPAIRABLE, _TRUNCATED, TOO_COMPLEX)
# An agent continues with the next tick, which shows the planner the fault
_REPORTED_TO_PLANNER: Final = ("modelNotJson", _TRUNCATED, RESULT_TOO_LARGE)
_INTERRUPTED_TEXT: Final = "the answer broke off while calls of it had started: the worker that read it has stopped"
# Attempts that ended without a word: the worker died, or the run did not answer. More would fail, too
_MAX_LOST_ATTEMPTS: Final = 6
# Defects of an answer that an error lists
_MAX_DEFECTS: Final = 5

_contexts: Final = ContextReader()


@activity.defn(name=MODEL)
async def ask_model(request: dict[str, Any]) -> RawValue:
    """One question to a model; see the top of the file."""
    info = activity.info()
    log = RequestLog.resume(info.heartbeat_details)
    lost = info.attempt - 1 - log.planned
    if lost >= _MAX_LOST_ATTEMPTS:
        text = f"the request was interrupted {lost} times: its workers stopped, or its run did not answer"
        raise ApplicationError(text, {"usage": log.usage.to_json()}, type=INTERRUPTED, non_retryable=True)
    stream = await _open_stream(request, info.attempt)
    if stream is None and request.get("streams"):
        # Its Calls have started: another answer would be about what they do
        return _encode({"unusable": {"code": INTERRUPTED, "message": _INTERRUPTED_TEXT, "answers": 0}}, log)
    source = request["source"]
    part = ContextPart(source["workflowId"], source["runId"], source["upto"], request.get("tick", 1) - 1)
    context = await _contexts.read(activity.client(), part)
    # Providers may think for minutes before the first word
    async with heartbeat(log.to_details):
        try:
            async with stream or contextlib.nullcontext():
                task, response = await _ask_models(request, context, log, stream)
            result = _encode(task.read_answer(response.value), log)
        except ModelError as error:
            result = await _report_failure(request, error, log, stream)
        if log.is_reported:
            await report_end(request)
        return result


async def _open_stream(request: dict[str, Any], attempt: int) -> CallStream | None:
    """The reports of Calls of this attempt; None where there are none, or an earlier attempt has reported some."""
    if not request.get("streams"):
        return None
    source = request["source"]
    agent = activity.client().get_workflow_handle(source["workflowId"], run_id=source["runId"])
    if attempt > 1 and await _count_streamed_calls(agent):
        return None
    return CallStream(agent, request["tick"], attempt, request["token"])


async def _count_streamed_calls(agent: WorkflowHandle[Any, Any]) -> int:
    """How many Calls of this answer an earlier attempt has reported.

    Raises:
        ApplicationError: ``ContextUnavailable``, the agent does not answer; retryable.
    """
    try:
        return int(await agent.query(STREAMED_CALLS))
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
        raise ApplicationError(f"the agent does not answer now: {error}", type=UNAVAILABLE) from error


# -- models ----------------------------------------------------------------------


async def _ask_models(
    request: dict[str, Any], context: PromptContext, log: RequestLog, stream: CallStream | None
) -> tuple[ModelTask, ModelResponse]:
    """The answer of the first model that gives one, and what it answers.

    Raises:
        ModelError: there is none now. ``retryAfter`` is the pause before the next attempt, where there is one.
    """
    models = list(dict.fromkeys((request["model"], *request.get("fallbackModels", ()))))
    while True:
        model = models[min(log.place, len(models) - 1)]
        own = {**request, "model": model}
        task = build_task(own, context, await asyncio.to_thread(room_of, model))
        try:
            await _require_price(own)
            response = await _ask_until_usable(own, task, log, stream)
        except ModelError as error:
            if stream is not None and stream.has_reported:
                raise
            is_last = log.place + 1 >= len(models)
            reason = _plan_retry(request, model, error, log, is_last=is_last)
            if reason is None:
                await _announce_wait(request, model, error, log)
                raise
            if is_last or error.code not in patience.FAIL_OVER:
                raise _final_error(error, reason, log) from error
            log.fail_over(model, reason)
        else:
            log.end_outage()
            return task, response


def _plan_retry(
    request: dict[str, Any], model: str, error: ModelError, log: RequestLog, *, is_last: bool
) -> str | None:
    """Set the pause before the next attempt; where there is none, return why."""
    if not error.retryable:
        return error.message
    if error.details.get("queued"):
        return None
    if error.code not in patience.OUTAGES:
        log.broken += 1
        if log.broken >= patience.MAX_BREAKS:
            return f"{error.message} ({log.broken} times in a row)"
        error.retryAfter = patience.break_pause(log.broken)
        return None
    now, allowed = time.time(), request.get("patience", DEFAULT_PATIENCE_SECONDS)
    log.tries += 1
    if log.outage_since is None:
        # What other requests of this worker have learned counts, where there is another model to ask
        log.outage_since = now - (0.0 if is_last else limiter_of(model).seconds_down)
    elapsed = now - log.outage_since
    pause = patience.next_pause(elapsed, log.tries, error.retryAfter, allowed, random.random())  # noqa: S311 - jitter
    if pause is None and error.retryAfter is not None and error.retryAfter > allowed - elapsed > 0:
        wish, limit = patience.format_seconds(error.retryAfter), patience.format_seconds(allowed)
        return f"{error.message} (it asks for a pause of {wish}, and patience is {limit})"
    if pause is None:
        return f"{error.message} (for {patience.format_seconds(elapsed)}, which is longer than patience)"
    error.retryAfter = pause
    return None


async def _announce_wait(request: dict[str, Any], model: str, error: ModelError, log: RequestLog) -> None:
    """Tell people about the wait: the heartbeat's details, and the run."""
    seconds, reason = error.retryAfter or 0.0, patience.reason_of(error)
    log.planned += 1
    log.waiting = f"for {model}: {reason}, next try in {patience.format_seconds(seconds)}"
    log.is_reported |= await report_wait(request, model, reason, seconds)


def _final_error(error: ModelError, reason: str, log: RequestLog) -> ModelError:
    """The error after which nothing is tried any more, with the failures of the models before."""
    text = reason if not log.failures else f"{reason}; before it {'; '.join(log.failures)}"
    final = ModelError(
        error.code, text, retryable=False, tokens=error.tokens, cost=error.cost, text=error.text, details=error.details
    )
    final.cap, final.longest = error.cap, error.longest
    return final


# -- one model ---------------------------------------------------------------------


async def _ask_until_usable(
    request: dict[str, Any], task: ModelTask, log: RequestLog, stream: CallStream | None
) -> ModelResponse:
    """The answer: after further requests if one cannot be used and nothing of it has started.

    Raises:
        ModelError: there is none.
    """
    model_request = task.request
    if log.cap is not None:
        model_request = replace(model_request, maxOutputTokens=log.cap)

    def receive_call(index: int, call: Any) -> None:
        log.count_call(index, call)
        if stream is not None:
            stream.add(index, call)

    async def send(sent: ModelRequest) -> ModelResponse:
        if task.is_planning:
            return await _send(request["model"], sent, receive_call)
        return await send_warm(request["model"], sent, lambda warm: _send(request["model"], warm, None))

    info = activity.info()
    place = PromptPlace.of(request, info.activity_id, info.attempt)
    while True:
        log.calls = 0
        response: ModelResponse | None = None
        try:
            response = await keep(place, model_request, request["model"], send(model_request))
            _require_fit(response, task)
        except ModelError as error:
            if response is None:
                log.add_failed(error)
            else:
                log.add(response, error.code)
            log.answers += error.code in _UNUSABLE
            may_ask = _may_ask_again(request, log.usage) and log.answers < request.get(
                "answersLeft", MAX_UNUSABLE_ANSWERS
            )
            has_started = stream is not None and stream.has_reported
            further = _next_request(model_request, error, request, log) if may_ask and not has_started else None
            if error.code == _TRUNCATED:
                next_cap = higher_cap(error.cap, error.longest) or error.cap
                log.cap = next_cap if further is None else further.maxOutputTokens
            if further is None:
                raise
            activity.heartbeat(log.to_details())
            model_request = further
        else:
            log.add(response)
            return response


async def _send(model: str, request: ModelRequest, on_call: Callable[[int, Any], None] | None) -> ModelResponse:
    """One request in its turn, within the time that its cap allows."""
    limiter = limiter_of(model)
    try:
        began = await limiter.acquire()
    except NoTurn:
        text = f"{model}: other requests of this worker are in flight, as many as the provider takes"
        raise ModelError("modelRateLimit", text, retryable=True, retryAfter=1.0, details={"queued": True}) from None
    failure: ModelError | None = None
    is_answered, seconds = False, answer_seconds(request.maxOutputTokens)
    try:
        async with asyncio.timeout(seconds):
            response = await select.ask(model, request, on_call)
    except TimeoutError:
        text = f"{model}: the answer was not complete after {patience.format_seconds(seconds)}"
        failure = ModelError("modelTimeout", text, retryable=True)
        raise failure from None
    except ModelError as error:
        failure = error
        raise
    else:
        is_answered = True
        return response
    finally:
        limiter.release(began, failure, is_answered=is_answered)


def _next_request(
    request: ModelRequest, error: ModelError, settings: dict[str, Any], log: RequestLog
) -> ModelRequest | None:
    """The request that follows an unusable answer: with a higher cap, or with the fault. None: there is none."""
    if error.code == _TRUNCATED:
        cap = higher_cap(error.cap, error.longest)
        reserved = (settings.get("reserved") or {}).get("tokens")
        if cap is not None and reserved is not None:
            # The input of the last request is a good estimate of that of the next
            used = log.usage.inputTokens + log.usage.outputTokens
            last_input = error.tokens.inputTokens if error.tokens is not None else 0
            cap = min(cap, int(reserved) - used - last_input)
        return None if cap is None or cap <= (error.cap or 0) else replace(request, maxOutputTokens=cap)
    if error.code not in _REPAIRABLE or request.repairs:
        return None
    return replace(request, repairs=(RepairTurn(error.text, render_repair_turn([error.message])),))


def _may_ask_again(request: dict[str, Any], usage: Usage) -> bool:
    """True while another request, about as large as those before, stays within what is reserved."""
    reserved = request.get("reserved") or {}
    tokens, cost = usage.inputTokens + usage.outputTokens, usage.cost or 0.0
    fits_tokens = 2 * tokens <= _limit(reserved, "tokens")
    return bool(request["mayRepair"] and fits_tokens and 2 * cost <= _limit(reserved, "cost"))


def _limit(reserved: dict[str, Any], name: str) -> float:
    value = reserved.get(name)
    return math.inf if value is None else float(value)


def _require_fit(response: ModelResponse, task: ModelTask) -> None:
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


# -- results -------------------------------------------------------------------


async def _report_failure(
    request: dict[str, Any], error: ModelError, log: RequestLog, stream: CallStream | None
) -> RawValue:
    """The result of a question without an answer, for the planner.

    Raises:
        ApplicationError: the question has failed, or is asked again in the next attempt.
    """
    has_started = stream is not None and stream.has_reported
    is_planning = request["ask"] == "solution"
    if is_planning and (has_started or error.code in _REPORTED_TO_PLANNER):
        # The planner is shown the beginning of what it wrote
        text = {"text": error.text[:MAX_TEXT]} if error.text else {}
        cap = {"cap": log.cap} if log.cap is not None else {}
        unusable = {"code": error.code, "message": error.message, **text, "answers": max(1, log.answers), **cap}
        return _encode({"unusable": unusable}, log)
    if not error.retryable and log.is_reported:
        await report_end(request)
    # The next attempt reads it
    activity.heartbeat(log.to_details())
    # Without its causes: the Web UI shows the failure of an attempt only while it has less than some 4 kB
    raise _application_error(error, log.usage) from None


def _encode(result: dict[str, Any], log: RequestLog) -> RawValue:
    """The activity's result.

    Raises:
        ModelError: the answer cannot be recorded.
    """
    notes = {"notes": log.notes} if log.notes else {}
    try:
        return encode_result({**result, "usage": log.usage.to_json(), **notes, "requests": log.requests})
    except ResultTooLarge as error:
        text = f"the answer has {error.size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded"
        raise ModelError(RESULT_TOO_LARGE, f"{text}: ask for less at a time", retryable=False) from error
    except ValueError as error:
        raise ModelError("modelNotJson", f"the answer cannot be recorded: {error}", retryable=False) from error


def _application_error(error: ModelError, usage: Usage) -> ApplicationError:
    return ApplicationError(
        truncate(error.message, 2000),
        {"usage": usage.to_json(), **error.details},
        type=error.code,
        non_retryable=not error.retryable,
        next_retry_delay=None if error.retryAfter is None else timedelta(seconds=error.retryAfter),
    )
