"""The one activity that asks a model: for a Solution, or for the result of a latent Call.

Its request names the run that has the context. The activity reads the context from there, renders the prompt, composes
the schema, asks, checks the answer, and asks again when it cannot be used: with a higher cap, or with the fault.
Prompts never reach a history; only this small result does.

    ModelQuestion → {"solution" | "output", "path"?, "unusable"?: {code, message, text?, answers, cap?},
                     "usage": {…}, "notes"?: […]}

``usage`` sums all requests of all attempts. Temporal retries the activity as often as this file asks for: a model
without capacity is waited for between two attempts (``patience.py``), and what is known travels in the heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from acts.activities.engine_activities import encode_result, heartbeat, send_record
from acts.activities.model_context import ContextReader, PromptContext, build_planner_request, query_run, room_of
from acts.activities.models import request_batches, select, words
from acts.activities.models.endpoints import lacks_batches, max_output_tokens, price_per_token
from acts.activities.models.interface import BatchItem, ModelError, ModelRequest, ModelResponse, ModelTurn, PromptBlock
from acts.activities.patience import BREAKS, FAIL_OVER, OUTAGES, RequestLog, format_seconds
from acts.language import wire
from acts.language.config import BATCH_PRICE
from acts.language.errors import TooComplex, truncate
from acts.language.schemas import Checker
from acts.language.strict_json import json_size
from acts.language.values import Json, pointer
from acts.planner.answer_schema import compose_latent_schema
from acts.planner.notation import File
from acts.planner.prompt import Prompt, PromptPart, PromptTurn, render_latent_prompt, render_repair_turn
from acts.planner.request_estimate import answer_seconds, higher_cap
from acts.planner.turns import MAX_TEXT
from acts.telemetry import metrics
from acts.tree.records import ModelQuestion
from acts.tree.signal_records import ModelWait, StreamedCalls

_TRUNCATED: Final = "modelTruncated"
# The model itself may correct an answer with one of these faults
_REPAIRABLE: Final = ("modelNotJson", wire.INVALID_ANSWER)
_UNUSABLE: Final = (*_REPAIRABLE, _TRUNCATED, wire.TOO_COMPLEX)
# An agent continues with the next tick, which shows the planner the fault
_REPORTED_TO_PLANNER: Final = ("modelNotJson", _TRUNCATED, wire.RESULT_TOO_LARGE)
# Attempts that ended without a word: the worker died, or the run did not answer. More would fail, too
_MAX_LOST_ATTEMPTS: Final = 6
MAX_FILES: Final = 20
MAX_FILES_BYTES: Final = 30 * 1024 * 1024
# Defects of an answer that an error lists
_MAX_DEFECTS: Final = 5

# Reads what an answer says, as the activity's result has it. Raises ModelError: it does not fit
ReadAnswer = Callable[[ModelResponse], dict[str, Any]]
_contexts: Final = ContextReader()
# An answer that ends within this time starts its Calls with it: no report is needed
PATIENCE_SECONDS: Final = 0.2
# A part has at least one Call for so many that were reported before
_CALLS_PER_REPORTED: Final = 16
# Seconds of a wait that somebody who looks would wonder about
LEAST_SECONDS: Final = 5.0
# Runs whose last report is remembered
_MAX_RUNS: Final = 1_000
# Until when the wait of a run for a model has been reported
_reported_until: Final[dict[tuple[str, str], float]] = {}
# By model: the end of the pause that its provider asked for, and the error that said so
_pauses: Final[dict[str, tuple[float, ModelError]]] = {}


@activity.defn(name=wire.MODEL)
async def ask_model(request: dict[str, Any]) -> RawValue:
    """One question to a model; see the top of the file."""
    question = ModelQuestion.model_validate(request)
    info, source = activity.info(), question.source
    log = RequestLog.resume(info.heartbeat_details)
    lost = info.attempt - 1 - log.planned
    if lost >= _MAX_LOST_ATTEMPTS:
        text = f"the request was interrupted {lost} times: its workers stopped, or its run did not answer"
        raise ApplicationError(text, {"usage": log.usage.to_json()}, type=wire.INTERRUPTED, non_retryable=True)
    stream = None
    if question.streams:
        key = source.workflowId, source.runId
        if info.attempt > 1 and await query_run(activity.client(), *key, wire.STREAMED_CALLS):
            # Its Calls have started: another answer would be about what they do
            text = "the answer broke off while calls of it had started: the worker that read it has stopped"
            return _encode({"unusable": {"code": wire.INTERRUPTED, "message": text, "answers": 0}}, log)
        stream = CallStream(*key, question.tick, info.attempt, question.token)
    # A run may take long to be replayed, and providers think for minutes before the first word
    async with heartbeat(log.to_details):
        asker = _Asker(question, log, stream)
        try:
            async with stream.reporting() if stream else contextlib.nullcontext():
                result = _encode(await asker.ask_models(), log)
        except ModelError as error:
            result = await asker.report_failure(error)
        if log.is_reported:
            await send_wait(question)
        return result


def build_task(question: ModelQuestion, context: PromptContext, room: float) -> tuple[ModelRequest, ReadAnswer]:
    """The request of a question, and what reads its answer; ``room`` are the bytes that the conversation may take."""
    if question.is_planning:
        prompt, schema = build_planner_request(context, question.tick, room)
        request = build_model_request(question, prompt, schema, "solution", f"tick {question.tick}")
        # The agent validates the Calls as a plan; their problems go back to the planner in the next tick
        return request, lambda response: {"solution": response.value}
    tool, paths = context.tools[question.tool], question.paths
    schema, has_path = compose_latent_schema(tool, paths)
    prompt = render_latent_prompt(context.messages, tool, question.call, paths, question.scoped, room=room)

    def read_answer(response: ModelResponse) -> dict[str, Any]:
        value = response.value
        try:
            defects = [f"{pointer(*at) or 'it'}: {why}" for at, why in Checker(schema).defects(value)]
        except TooComplex as error:
            raise ModelError(wire.TOO_COMPLEX, f"the answer: {error}", retryable=False, text=response.text) from error
        if defects:
            text = f"the answer does not fit what was asked for: {'; '.join(defects[:_MAX_DEFECTS])}"
            raise ModelError(wire.INVALID_ANSWER, text, retryable=False, text=response.text)
        output, path = (value["output"], paths.index(value["path"])) if has_path else (value, 0)
        return {"output": output, "path": path}

    return build_model_request(question, prompt, schema, "output", tool.name), read_answer


def build_model_request(question: ModelQuestion, prompt: Prompt, schema: Json, label: str, topic: str) -> ModelRequest:
    """The request to a model; ``question`` has the settings: model, source, temperature, cap, effort."""
    last_system, stable = len(prompt.system) - 1, prompt.stable_parts
    attachments = _Attachments(() if stable is None else prompt.turns[0].parts[stable:])

    def blocks_of(turn: PromptTurn) -> Iterator[PromptBlock]:
        # A latent Call's turn is in two: the part that other Calls share, and its own
        groups = [turn.parts] if stable is None else [turn.parts[:stable], turn.parts[stable:]]
        for index, parts in enumerate(groups):
            yield from attachments.place(parts)
            yield PromptBlock("\n".join(p.text for p in parts), is_cached=turn.role == "user" and index == 0)

    return ModelRequest(
        model=question.model,
        system=tuple(
            PromptBlock(part.text, is_cached=i == last_system, is_rules=part.kind == "rules")
            for i, part in enumerate(prompt.system)
        ),
        turns=tuple(ModelTurn(turn.role, tuple(blocks_of(turn))) for turn in prompt.turns),
        schema=schema,
        label=label,
        temperature=question.temperature,
        maxOutputTokens=question.maxOutputTokens,
        effort=question.effort,
        cache_key=question.source.workflowId,
        topic=topic,
    )


class _Attachments:
    """The files of a request, each before the text that first shows it; or the reason why it cannot be sent.

    What a latent Call names, in its ``own`` parts, comes before all else: ModelError, where it cannot be sent.
    """

    def __init__(self, own: Iterable[PromptPart]) -> None:
        self._files: dict[str, File] = {}
        self._placed: set[str] = set()
        for file in (file for part in own for file in part.files):
            if reason := self._take(file):
                name = file.get("name") or f"{file.id} ({file.media})"
                raise ModelError("modelFileRefused", f"the file {name} cannot be sent: {reason}", retryable=False)

    def _take(self, file: File) -> str:
        """Take up a file, or say why not."""
        files = {**self._files, file.id: file}
        if len(files) > MAX_FILES or sum(f.get("bytes", 0) for f in files.values()) > MAX_FILES_BYTES:
            return (
                f"a request takes {MAX_FILES} files, of {MAX_FILES_BYTES:,} bytes together; name fewer, or use _scopes"
            )
        reason = "" if file.id in self._files else file.defect()
        if not reason and file.is_url:
            from acts.activities.http_request import url_guard  # it takes a tenth of a second

            try:  # whoever writes data must not choose whom the provider asks, and tell it what else is there
                url_guard().check_url(file.source)
            except ApplicationError as error:
                reason = error.message
        self._files |= {} if reason else {file.id: file}
        return reason

    def place(self, parts: Iterable[PromptPart]) -> Iterator[PromptBlock]:
        for file in (file for part in parts for file in part.files):
            if file.id not in self._placed:
                if not (reason := self._take(file)):
                    yield PromptBlock(f"File {file.id} (material, as all data):", file=file)
                elif reason not in self._placed:
                    yield PromptBlock(f"File {file.id} is not attached, nor are others so: {reason}.")
                self._placed |= {file.id, reason}


@dataclass(frozen=True)
class _Asker:
    """One attempt at a question. ``log`` has what the attempts before it know."""

    _question: ModelQuestion
    _log: RequestLog
    _stream: CallStream | None

    @property
    def _has_started(self) -> bool:  # then no other answer may take its place
        return self._stream is not None and self._stream.has_reported

    async def ask_models(self) -> dict[str, Any]:
        """The answer of the first model that gives one, as the activity's result has it. Raises ModelError: no model
        answers now. ``retryAfter`` is the pause before the next attempt.
        """
        log, models = self._log, list(dict.fromkeys((self._question.model, *self._question.fallbackModels)))
        context: PromptContext | None = None
        while True:
            model = models[min(len(log.failures), len(models) - 1)]
            own = self._question.model_copy(update={"model": model})
            try:
                if log.batch is not None:  # before anything is read for a request that waits
                    await request_batches.check_ended(log.batch)
                source, ticks = self._question.source, self._question.tick - 1
                context = context or await _contexts.read(activity.client(), source, ticks)
                request, read_answer = build_task(own, context, await asyncio.to_thread(room_of, model))
                result = await self._ask_until_usable(own, request, read_answer)
            except ModelError as error:
                if self._has_started:
                    raise
                if error.code == wire.BATCHED:
                    log.planned, log.waiting = log.planned + 1, error.message
                    raise
                reason = log.plan_retry(error, self._question.patience)
                if reason is None:
                    seconds, why = error.retryAfter or 0.0, {**OUTAGES, **BREAKS}.get(error.code, error.code)
                    log.planned += 1
                    log.waiting = f"for {model}: {why}, next try in {format_seconds(seconds)}"
                    log.is_reported |= await report_wait(self._question, model, why, seconds)
                    raise
                if len(log.failures) + 1 >= len(models) or error.code not in FAIL_OVER:
                    message = "; before it ".join([reason, *log.failures])
                    raise replace(error, message=message, retryable=False, retryAfter=None) from error
                log.fail_over(model, reason)
            else:
                log.end_outage()
                return result

    async def _ask_until_usable(
        self, question: ModelQuestion, first: ModelRequest, read_answer: ReadAnswer
    ) -> dict[str, Any]:
        """The answer of one model: after further requests if one cannot be used and nothing of it has started. Raises
        ModelError: no answer can be used.
        """
        log, request = self._log, first
        if question.priced and await asyncio.to_thread(price_per_token, question.model) is None:
            text = f"no price list knows the model {question.model}, so budget.cost cannot be kept: remove it"
            raise ModelError("noPrice", text, retryable=False)
        if log.cap is not None:
            request = replace(request, maxOutputTokens=log.cap)
        on_call = self._stream.add if self._stream is not None else None
        while True:
            response: ModelResponse | None = None
            try:
                response = await self._answer(question, request, on_call)
                result = read_answer(response)
            except ModelError as error:
                log.add(response or error)
                log.answers += error.code in _UNUSABLE
                further = self._next_request(request, error, is_first=len(request.turns) == len(first.turns))
                if error.code == _TRUNCATED:
                    longest = max_output_tokens(question.model)
                    log.cap = further.maxOutputTokens if further else higher_cap(error.cap, longest) or error.cap
                if further is None:
                    raise
                activity.heartbeat(log.to_details())
                request = further
            else:
                log.add(response)
                return result

    async def _answer(
        self, question: ModelQuestion, request: ModelRequest, on_call: Callable[[int, Any], None] | None
    ) -> ModelResponse:
        """One answer, which may wait in a batch; after an unusable one nobody waits for another batch."""
        log, info, model = self._log, activity.info(), question.model
        if not question.batch or log.answers or lacks_batches(model):
            return await _send(model, request, on_call)
        if log.batch is None:
            name = f"{info.workflow_run_id}/{info.activity_id}#{info.attempt}"
            log.batch = await request_batches.submit(model, request, name)
            log.is_reported |= await report_batch(question, log.batch)
            raise request_batches.waiting(log.batch)
        outcome, item, log.batch = await request_batches.take_outcome(log.batch), log.batch, None
        return await request_batches.read_answer(item, request, outcome)

    def _next_request(self, request: ModelRequest, error: ModelError, *, is_first: bool) -> ModelRequest | None:
        """The request after an unusable answer: with a higher cap, or (once) with the fault. None: no further request.

        Another request, about as large as those before, has to stay within what is reserved.
        """
        question, log = self._question, self._log
        reserved, used = question.reserved, log.usage.inputTokens + log.usage.outputTokens
        times = 1 + (1 / BATCH_PRICE if question.batch else 1)  # what one more comes to: it is asked directly
        fits = (reserved.tokens is None or 2 * used <= reserved.tokens) and (
            reserved.cost is None or times * (log.usage.cost or 0.0) <= reserved.cost
        )
        answers_left = wire.MAX_UNUSABLE_ANSWERS if question.answersLeft is None else question.answersLeft
        if not (fits and question.mayRepair and log.answers < answers_left) or self._has_started:
            return None
        if error.code == _TRUNCATED:
            cap = higher_cap(error.cap, max_output_tokens(request.model))
            if cap is not None and reserved.tokens is not None:
                # The input of the last request is a good estimate for the next
                cap = min(cap, int(reserved.tokens) - used - (error.tokens.inputTokens if error.tokens else 0))
            return None if cap is None or cap <= (error.cap or 0) else replace(request, maxOutputTokens=cap)
        if error.code not in _REPAIRABLE or not is_first:
            return None
        return request.with_repair(error.text, render_repair_turn([error.message]))

    async def report_failure(self, error: ModelError) -> RawValue:
        """The result of a question without an answer, for the planner. Raises ApplicationError: the question has
        failed, or is asked again in the next attempt.
        """
        question, log = self._question, self._log
        if question.is_planning and (self._has_started or error.code in _REPORTED_TO_PLANNER):
            # The planner is shown the beginning of what it wrote
            text = {"text": error.text[:MAX_TEXT]} if error.text else {}
            cap = {"cap": log.cap} if log.cap is not None else {}
            unusable = {"code": error.code, "message": error.message, **text, "answers": max(1, log.answers), **cap}
            return _encode({"unusable": unusable}, log)
        if not error.retryable and log.is_reported:
            await send_wait(question)
        # The next attempt reads it
        activity.heartbeat(log.to_details())
        # Without its causes: the Web UI shows the failure of an attempt only while it has less than some 4 kB
        raise ApplicationError(
            truncate(error.message, 2000),
            {"usage": log.usage.to_json(), **error.details},
            type=error.code,
            non_retryable=not error.retryable,
            # A wait is neither logged nor counted as a failure
            category=ApplicationErrorCategory["BENIGN" if error.code == wire.BATCHED else "UNSPECIFIED"],
            next_retry_delay=None if error.retryAfter is None else timedelta(seconds=error.retryAfter),
        ) from None


async def _send(model: str, request: ModelRequest, on_call: Callable[[int, Any], None] | None) -> ModelResponse:
    """One request, within the time that its cap allows, and not before the provider wants it."""
    until, pause = _pauses.get(model, (0.0, None))
    if pause is not None and (left := until - time.monotonic()) > 0:
        raise replace(pause, retryAfter=left, tokens=None, cost=None, text="", details={})
    seconds, info = answer_seconds(request.maxOutputTokens), activity.info()
    try:
        with words.reading_answer(info.workflow_id or "", info.activity_id, info.attempt):
            async with asyncio.timeout(seconds):
                return await select.ask(model, request, on_call)
    except TimeoutError:
        text = f"{model}: the answer was not complete after {format_seconds(seconds)}"
        raise ModelError("modelTimeout", text, retryable=True) from None
    except ModelError as error:
        if error.code in OUTAGES and error.retryable and error.retryAfter:
            _pauses[model] = time.monotonic() + error.retryAfter, error
        raise


def _encode(result: dict[str, Any], log: RequestLog) -> RawValue:
    """The activity's result. Raises ModelError: the answer cannot be recorded."""
    value = {**result, "usage": log.usage.to_json(), **({"notes": log.notes} if log.notes else {})}
    refuse = partial(ModelError, wire.RESULT_TOO_LARGE, retryable=False)
    try:
        return encode_result(value, lambda size: refuse(f"the answer has {size}: ask for less at a time"))
    except ValueError as error:
        raise ModelError("modelNotJson", f"the answer cannot be recorded: {error}", retryable=False) from error


# A report is a hint. The activity's result holds the whole answer, and is what counts; a report that is late or lost
# costs time and nothing else. Calls are reported to their agent while the model still writes, so that they can start. A
# report is a signal, which costs a few events: so the first one waits a moment for the rest of a short answer, the next
# ones while one is on its way, and a long answer is reported in parts that grow with it. A wait is reported to the run
# and to the root of its tree: people see it in ``status`` and in the Web UI. Short waits are not reported, and of the
# requests of a run that wait at the same time one worker reports one.


class CallStream:
    """The reports of one attempt at an answer. ``token`` is the token of the agent's tree."""

    def __init__(self, agent_id: str, run_id: str, tick: int, attempt: int, token: str) -> None:
        self._agent = agent_id, run_id
        self._source: dict[str, Any] = {"tick": tick, "attempt": attempt, "token": token}
        self._calls: list[Any] = []
        self._reported = 0
        self._over, self._changed = asyncio.Event(), asyncio.Event()

    @property
    def has_reported(self) -> bool:
        """True when Calls may have started: the answer cannot be given up for another one."""
        return self._reported > 0

    def add(self, index: int, call: Any) -> None:
        """A Call is complete. One that begins anew (a second request in one attempt) replaces what is unreported."""
        if index == 0 and not self.has_reported:
            self._calls.clear()
        if index != len(self._calls):
            self._over.set()  # another answer than the one that was reported
        self._calls.append(call)
        self._changed.set()

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report until the block ends, and wait for the report that is on its way: none may come after the answer."""
        task = asyncio.create_task(self._report_all())
        try:
            yield
        finally:
            self._over.set()
            self._changed.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _report_all(self) -> None:
        while not self._over.is_set():
            await self._changed.wait()
            self._changed.clear()
            if not self.has_reported:  # a short answer may end within this time
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), PATIENCE_SECONDS)
            unreported = len(self._calls) - self._reported
            if unreported > self._reported // _CALLS_PER_REPORTED and not self._over.is_set():
                calls = tuple(self._calls[self._reported :])
                record = StreamedCalls(**self._source, first=self._reported, calls=calls)
                is_sent = json_size(record.to_json()) <= wire.MAX_PAYLOAD_BYTES
                if is_sent:
                    self._reported += len(calls)  # also if the signal fails: it may have arrived
                    is_sent = await send_record(record, *self._agent)
                if not is_sent:
                    self._over.set()


async def report_wait(question: ModelQuestion, model: str, reason: str, seconds: float) -> bool:
    """Report that the next attempt is in so many seconds; True where a report was made for it."""
    now, key = time.time(), (activity.info().workflow_run_id or "", model)
    metrics.record(metrics.MODEL_WAITS, model=model, reason=reason)
    metrics.record(metrics.MODEL_WAIT_SECONDS, seconds, model=model)
    if seconds < LEAST_SECONDS:
        return False
    if _reported_until.get(key, 0.0) < now + seconds / 2:
        _remember(key, now + seconds)
        until = datetime.fromtimestamp(now + seconds, UTC).isoformat(timespec="seconds")
        await send_wait(question, round(seconds, 1), model=model, reason=reason, nextTry=until)
    return True


async def report_batch(question: ModelQuestion, item: BatchItem) -> bool:
    """Report that requests of a tree of runs wait in a batch, once for each; True where this one did it."""
    key = question.root or activity.info().workflow_id or "", item.batch
    if key in _reported_until or request_batches.MAX_AGE_SECONDS < LEAST_SECONDS:
        return False
    _remember(key, item.since + request_batches.MAX_AGE_SECONDS)
    reason = f"a batch, which takes up to a day ({item.batch})"
    await send_wait(question, request_batches.MAX_AGE_SECONDS, model=item.model, reason=reason)
    return True


def _remember(key: tuple[str, str], until: float) -> None:
    _reported_until[key] = until
    if len(_reported_until) > _MAX_RUNS:
        del _reported_until[next(iter(_reported_until))]


async def send_wait(question: ModelQuestion, seconds: float = 0, **fields: Any) -> None:
    """Tell the run and the root of its tree of a wait, or (no seconds) the root that it is over."""
    info = activity.info()
    record = ModelWait(workflowId=info.workflow_id or "", token=question.token, seconds=seconds, **fields)
    if record.seconds:
        await send_record(record, record.workflowId, info.workflow_run_id)
    if question.root:
        await send_record(record, question.root)
