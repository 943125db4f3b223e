"""OpenAI's API, and whatever imitates it, by OpenAI's own SDK, read event by event.

* The Responses API at api.openai.com, Chat Completions anywhere else (Ollama, vLLM,
  llama.cpp …); ``ACTS_OPENAI_API`` (``responses`` or ``chat``) decides otherwise.
* ``error``, ``response.failed`` and ``response.incomplete`` are events and raise nothing in
  the SDK: they are read here. A stream without an end was cut.
* What a model says beside its answer (``phase: commentary``, reasoning) is not its answer.
* A parameter or schema that a model does not take is left out, and that is remembered: models
  differ, servers differ more, and none of them tells beforehand.
* The SDK's own retries are off: whoever asks decides about them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, Final

import httpx2
import openai as sdk

from activities.providers.interface import ModelRequest, ModelResponse, Progress, Usage
from activities.providers.provider_errors import Cause, failure
from activities.providers.provider_keywords import compact
from activities.providers.response_stream import (
    CONNECT_TIMEOUT,
    DEFAULT_MAX_TOKENS,
    READ_TIMEOUT,
    ResponseStream,
    begin,
    client_of,
    cost,
    count,
    shown,
)

_PROVIDER: Final = "openai"
_HOME: Final = "https://api.openai.com/v1"
_KEYLESS: Final = "none"  # for servers of one's own, which need no key but a header
# Both are the API's limits
_MAX_NAME: Final = 64
_MAX_CACHE_KEY: Final = 64
# Each further try leaves out one thing more; there are no more of them than these
_DROPPABLE: Final = (
    "temperature", "prompt_cache_key", "stream_options", "store", "max_completion_tokens", "max_tokens",
    "response_format", "text",
)  # fmt: skip
_SWAPPED: Final = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_UNKNOWN_PARAMETER: Final = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|not (supported|permitted|allowed)|extra (inputs|fields)"
    r"|does not (support|accept)",
    re.IGNORECASE,
)


class OpenAI:
    """Adapter of ``openai:…``."""

    def __init__(self) -> None:
        self._refused: set[tuple[str, str, int]] = set()
        self._dropped: dict[tuple[str, str], set[str]] = {}

    async def ask(self, question: ModelRequest, progress: Progress) -> ModelResponse:
        """One request; again with less in it, where the provider does not take something."""
        client = client_of(*_client(question.model))
        base = str(client.base_url)
        api = _api(base, question.model)
        key = (base, question.model, hash(compact(question.schema)))
        dropped = self._dropped.setdefault((base, question.model), set())
        while True:
            strict = key not in self._refused
            reading = begin(_PROVIDER, question, progress, strict=strict)
            body = _BODIES[api](question, reading, home=_at_home(base))
            body = {k: v for k, v in body.items() if k not in dropped}
            for name, other in _SWAPPED.items():
                if name in dropped and other not in dropped and question.maxOutputTokens and api == "chat":
                    body[other] = question.maxOutputTokens
            try:
                return await _once(client, api, body, reading)
            except _NotTakenError as error:
                if error.name == _SCHEMA:
                    self._refused.add(key)
                else:
                    dropped.add(error.name)

    def price(self, model: str) -> bool:
        """True when a price list knows the model."""
        return cost(_PROVIDER, model, Usage(inputTokens=1, outputTokens=1)) is not None


_SCHEMA: Final = "schema"


class _NotTakenError(Exception):
    """The provider does not take the schema as a strict one, or a parameter."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _not_taken(cause: Cause, body: dict[str, Any], param: str | None, *, strict: bool) -> str | None:
    """What to leave out after a 400, or None when that is not the trouble."""
    if strict and cause.schema_refused:
        return _SCHEMA
    if cause.status not in (400, 422) or cause.code != "modelBadRequest":
        return None
    if not _UNKNOWN_PARAMETER.search(cause.message):
        return None
    sent = [name for name in _DROPPABLE if name in body]
    named = [n for n in sent if n == param or re.search(rf"['\"`]{n}['\"`.]|\b{n}:", cause.message)]
    return named[0] if named else None


def _client(model: str) -> tuple[tuple[Any, ...], Callable[[], sdk.AsyncOpenAI]]:
    """What makes a client this one, and how it is built."""
    base = os.environ.get("OPENAI_BASE_URL") or _HOME
    key = os.environ.get("OPENAI_API_KEY")
    if not key:
        if _at_home(base):
            raise failure("modelNoKey", _PROVIDER, model, "no key: OPENAI_API_KEY is not set")
        key = _KEYLESS
    organization, project = os.environ.get("OPENAI_ORG_ID") or None, os.environ.get("OPENAI_PROJECT_ID") or None

    def build() -> sdk.AsyncOpenAI:
        return sdk.AsyncOpenAI(
            api_key=key,
            base_url=base,
            organization=organization,
            project=project,
            max_retries=0,
            timeout=httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
        )

    return (_PROVIDER, base, key, organization, project), build


def _at_home(base: str) -> bool:
    """True for OpenAI itself, whatever the region."""
    host = httpx2.URL(base).host
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _api(base: str, model: str) -> str:
    said = os.environ.get("ACTS_OPENAI_API") or ("responses" if _at_home(base) else "chat")
    if said not in _BODIES:
        raise failure("modelBadRequest", _PROVIDER, model, f"ACTS_OPENAI_API is {said!r}; allowed: chat, responses")
    return said


# -- requests --------------------------------------------------------------------


def _texts(question: ModelRequest, reading: ResponseStream) -> tuple[str, list[str]]:
    """The system text, and the texts of the first user message."""
    system = [b.text for b in question.system if b.text.strip()]
    if not reading.strict:
        system.append(shown(reading.wire.schema))
    return "\n\n".join(system), [b.text for b in question.user if b.text.strip()] or ["Answer."]


def _common(question: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"model": question.model, "stream": True}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if question.key:
        long = len(question.key) > _MAX_CACHE_KEY
        body["prompt_cache_key"] = hashlib.sha256(question.key.encode()).hexdigest() if long else question.key
    return body


def _format(question: ModelRequest, reading: ResponseStream) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", question.name)[:_MAX_NAME] or "solution"
    return {"name": name, "strict": True, "schema": reading.wire.schema}


def _responses_body(question: ModelRequest, reading: ResponseStream, *, home: bool) -> dict[str, Any]:  # noqa: ARG001 - as the other
    system, user = _texts(question, reading)
    told: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": t} for t in user]}]
    for turn in question.turns:
        told.append({"role": "assistant", "content": turn.answer})
        told.append({"role": "user", "content": turn.reply})
    kind = {"type": "json_schema", **_format(question, reading)} if reading.strict else {"type": "json_object"}
    return {
        **_common(question),
        **({"instructions": system} if system else {}),
        "input": told,
        "text": {"format": kind},
        "max_output_tokens": question.maxOutputTokens or DEFAULT_MAX_TOKENS,
        "store": False,
    }


def _chat_body(question: ModelRequest, reading: ResponseStream, *, home: bool) -> dict[str, Any]:
    """Contents are plain text: not every server takes a list of parts."""
    system, user = _texts(question, reading)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": "\n\n".join(user)})
    for turn in question.turns:
        messages.append({"role": "assistant", "content": turn.answer})
        messages.append({"role": "user", "content": turn.reply})
    body = {**_common(question), "messages": messages, "stream_options": {"include_usage": True}}
    body["response_format"] = {"type": "json_object"}
    if reading.strict:
        body["response_format"] = {"type": "json_schema", "json_schema": _format(question, reading)}
    if home:
        body["max_completion_tokens"] = question.maxOutputTokens or DEFAULT_MAX_TOKENS
    elif question.maxOutputTokens:
        # A limit of ours could be more than the window of a small model, which is an error there
        body["max_tokens"] = question.maxOutputTokens
    return body


_BODIES: Final[dict[str, Callable[..., dict[str, Any]]]] = {"responses": _responses_body, "chat": _chat_body}


# -- answers ---------------------------------------------------------------------


async def _once(client: sdk.AsyncOpenAI, api: str, body: dict[str, Any], reading: ResponseStream) -> ModelResponse:
    model = reading.question.model
    take = _Responses(reading).take if api == "responses" else _Chat(reading).take
    create: Any = client.responses.create if api == "responses" else client.chat.completions.create
    try:
        async with await create(**body) as stream:
            reading.begun, reading.requestId = True, stream.response.headers.get("x-request-id")
            async for event in stream:
                if take(event):
                    break
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise reading.failed("modelTimeout", str(error)) from error
    except (sdk.APIConnectionError, httpx2.HTTPError, ValueError) as error:
        # ValueError: an event that is no JSON, as when a proxy breaks off in the middle of one
        code = "modelCut" if reading.begun else "modelUnavailable"
        raise reading.failed(code, str(error.__cause__ or error) or type(error).__name__) from error
    except sdk.APIError as error:
        cause = _cause(error, model)
        name = _not_taken(cause, body, error.param, strict=reading.strict)
        if name is not None:
            raise _NotTakenError(name) from None
        raise cause.error(**reading.spent()) from error
    return _ended(reading)


def _ended(reading: ResponseStream) -> ModelResponse:
    if reading.finish in ("length", "max_output_tokens"):
        limit = reading.question.maxOutputTokens
        raise reading.failed("modelTruncated", f"the answer needs more than {limit or 'the allowed'} tokens")
    if reading.finish == "content_filter":
        raise reading.failed("modelRefused", "the provider's content filter stopped the answer")
    return reading.answer()


class _Chat:
    """Chunks of Chat Completions."""

    def __init__(self, reading: ResponseStream) -> None:
        self._reading = reading

    def take(self, chunk: Any) -> bool:
        """One chunk; the last one has the usage and no choice."""
        reading = self._reading
        reading.model = getattr(chunk, "model", None) or reading.model
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            reading.usage = _usage(usage, "prompt_tokens", "completion_tokens")
        for choice in (getattr(chunk, "choices", None) or [])[:1]:
            delta = getattr(choice, "delta", None)
            refusal = getattr(delta, "refusal", None)
            if refusal:
                reading.refusal = (reading.refusal or "") + refusal
            text = getattr(delta, "content", None)
            if isinstance(text, str):
                reading.add(text)
            reading.finish = getattr(choice, "finish_reason", None) or reading.finish
        return False


class _Responses:
    """Events of the Responses API. Of several messages, the last that is no commentary is the answer."""

    def __init__(self, reading: ResponseStream) -> None:
        self._reading = reading
        self._texts: dict[int, list[str]] = {}
        self._aside: set[int] = set()

    def take(self, event: Any) -> bool:
        """One event; True when nothing more will come."""
        kind = getattr(event, "type", "")
        index = getattr(event, "output_index", 0)
        if kind in ("response.output_item.added", "response.output_item.done"):
            if getattr(getattr(event, "item", None), "phase", None) == "commentary":
                self._aside.add(index)
        elif kind == "response.output_text.delta":
            self._text(index, event.delta or "")
        elif kind == "response.refusal.delta":
            self._reading.refusal = (self._reading.refusal or "") + (event.delta or "")
        elif kind == "response.refusal.done":
            self._reading.refusal = self._reading.refusal or event.refusal or ""
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            return self._end(kind, getattr(event, "response", None))
        elif kind == "error":
            raise self._failed(getattr(event, "code", None), getattr(event, "message", None))
        return False

    def _text(self, index: int, text: str) -> None:
        self._texts.setdefault(index, []).append(text)
        if index not in self._aside:
            self._reading.add(text)

    def _end(self, kind: str, response: Any) -> bool:
        reading = self._reading
        reading.model = getattr(response, "model", None)
        usage = getattr(response, "usage", None)
        if usage is not None:
            reading.usage = _usage(usage, "input_tokens", "output_tokens")
        if kind == "response.failed":
            error = getattr(response, "error", None)
            raise self._failed(getattr(error, "code", None), getattr(error, "message", None))
        answers = [i for i in self._texts if i not in self._aside]
        reading.parts = list(self._texts[max(answers)]) if answers else []
        incomplete = "incomplete" in (kind.removeprefix("response."), getattr(response, "status", None))
        reason = getattr(getattr(response, "incomplete_details", None), "reason", None) if incomplete else "completed"
        reading.finish = reason or "max_output_tokens"  # the likely one, where it is not said
        return incomplete

    def _failed(self, code: Any, message: Any) -> Exception:
        reading = self._reading
        words = (code,) if isinstance(code, str) else ()
        text = message if isinstance(message, str) and message else "the response failed"
        return Cause(
            provider=_PROVIDER, model=reading.question.model, message=text, words=words, requestId=reading.requestId
        ).error(**reading.spent())


def _usage(usage: Any, given: str, made: str) -> Usage:
    """Usage of either API; details are missing from many servers."""
    inputs, outputs = getattr(usage, f"{given}_details", None), getattr(usage, f"{made}_details", None)
    return Usage(
        inputTokens=count(getattr(usage, given, 0)),
        outputTokens=count(getattr(usage, made, 0)),
        cachedTokens=count(getattr(inputs, "cached_tokens", 0)),
        cacheWriteTokens=count(getattr(inputs, "cache_write_tokens", 0)),
        reasoningTokens=count(getattr(outputs, "reasoning_tokens", 0)),
    )


def _cause(error: sdk.APIError, model: str) -> Cause:
    """What the SDK raised: with a status, or without one for an ``{"error": …}`` in mid-stream."""
    body = error.body
    said = body.get("message") if isinstance(body, dict) else body
    status, headers, request = None, {}, None
    if isinstance(error, sdk.APIStatusError):
        status, headers, request = error.status_code, dict(error.response.headers), error.request_id
    elif error.code and error.code.isdigit():
        status = int(error.code)  # llama.cpp and others put it there
    return Cause(
        provider=_PROVIDER,
        model=model,
        message=said if isinstance(said, str) and said else error.message,
        status=status,
        words=tuple(w for w in (error.code, error.type) if isinstance(w, str)),
        headers=headers,
        requestId=request,
    )
