"""The adapter of OpenAI's API and of servers that imitate it, over OpenAI's own SDK, read event by event.

* The Responses API at api.openai.com, Chat Completions anywhere else (Ollama, vLLM, llama.cpp …), unless
  ``ACTS_OPENAI_API`` (``responses`` or ``chat``) says otherwise.
* ``error``, ``response.failed`` and ``response.incomplete`` are events; the SDK raises nothing for them. A stream
  without an end broke off.
* Text beside the answer (``phase: commentary``, reasoning) is not part of it.
* A parameter or schema that a model rejects is left out from then on: models and servers differ, and none of them says
  so in advance.
* The SDK's own retries are off: the retry policy of the activity decides.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, Final

import httpx2
import openai as sdk

from activities.providers.http_clients import CONNECT_TIMEOUT, NO_KEY, READ_TIMEOUT, get_client
from activities.providers.interface import CallReceiver, ModelRequest, ModelResponse, TokenCounts
from activities.providers.openai_turns import (
    chat_turns,
    has_breakpoints,
    is_openai_model,
    remove_breakpoints,
    responses_turns,
    system_text,
)
from activities.providers.provider_errors import ProviderFault, build_error
from activities.providers.provider_keywords import compact_json
from activities.providers.response_stream import ResponseStream, token_count
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

_PROVIDER: Final = "openai"
_HOME: Final = "https://api.openai.com/v1"
# Characters; both are the API's limits
_MAX_NAME: Final = 64
_MAX_CACHE_KEY: Final = 64
_CACHE_OPTIONS: Final = "prompt_cache_options"
# Parameters that a model may reject. Each attempt leaves out one more, so there are no more attempts than these
_OPTIONAL: Final = (
    "temperature", "prompt_cache_key", "stream_options", "store", "max_completion_tokens", "max_tokens",
    "response_format", "text", _CACHE_OPTIONS,
)  # fmt: skip
_ALTERNATIVES: Final = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_SCHEMA: Final = "schema"
_UNKNOWN_PARAMETER: Final = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|not (supported|permitted|allowed)|extra (inputs|fields)"
    r"|does not (support|accept)",
    re.IGNORECASE,
)


class OpenAI:
    """Adapter of ``openai:…``. It remembers which schemas and parameters a model rejects."""

    def __init__(self) -> None:
        self._rejected_schemas: set[tuple[str, str, int]] = set()
        self._rejected_parameters: dict[tuple[str, str], set[str]] = {}

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """One request; further ones with less in it, where the provider rejects the schema or a parameter."""
        client = _client(request.model)
        base = str(client.base_url)
        api = _choose_api(base, request.model)
        key = (base, request.model, hash(compact_json(request.schema)))
        rejections = self._rejected_parameters.setdefault((base, request.model), set())
        while True:
            stream = ResponseStream(_PROVIDER, request, on_call, strict=key not in self._rejected_schemas)
            body = {k: v for k, v in _BODIES[api](stream, is_home=_is_home(base)).items() if k not in rejections}
            if _CACHE_OPTIONS in rejections:
                remove_breakpoints(body)
            for name, other in _ALTERNATIVES.items():
                if name in rejections and other not in rejections and request.maxOutputTokens and api == "chat":
                    body[other] = request.maxOutputTokens
            try:
                return await _send(client, api, body, stream)
            except _RejectedError as error:
                if error.name == _SCHEMA:
                    self._rejected_schemas.add(key)
                else:
                    rejections.add(error.name)


class _RejectedError(Exception):
    """The provider rejects the schema as a strict one, or a parameter."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _rejected_part(fault: ProviderFault, body: dict[str, Any], parameter: str | None, *, strict: bool) -> str | None:
    """The part of the request that the provider rejects; None: the error is about something else."""
    if strict and fault.is_schema_rejection:
        return _SCHEMA
    if fault.status not in (400, 422) or fault.code != "modelBadRequest":
        return None
    if not _UNKNOWN_PARAMETER.search(fault.message):
        return None
    if _CACHE_OPTIONS in body and "prompt_cache_breakpoint" in f"{fault.message} {parameter}":
        return _CACHE_OPTIONS
    sent = (name for name in _OPTIONAL if name in body)
    return next(
        (n for n in sent if n == parameter or re.search(rf"['\"`]{n}['\"`.]|\b{n}:", fault.message)),
        None,
    )


def _client(model: str) -> sdk.AsyncOpenAI:
    base = os.environ.get("OPENAI_BASE_URL") or _HOME
    key = os.environ.get("OPENAI_API_KEY")
    if not key:
        if _is_home(base):
            raise build_error("modelNoKey", _PROVIDER, model, "no key: OPENAI_API_KEY is not set")
        key = NO_KEY
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

    return get_client((_PROVIDER, base, key, organization, project), build)


def _is_home(base: str) -> bool:
    """True for OpenAI itself, in any region."""
    host = httpx2.URL(base).host
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _choose_api(base: str, model: str) -> str:
    api = os.environ.get("ACTS_OPENAI_API") or ("responses" if _is_home(base) else "chat")
    if api not in _BODIES:
        text = f"ACTS_OPENAI_API is {api!r}; allowed: chat, responses"
        raise build_error("modelBadRequest", _PROVIDER, model, text)
    return api


# -- requests --------------------------------------------------------------------


def _common_body(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"model": request.model, "stream": True}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.cache_key:
        is_long = len(request.cache_key) > _MAX_CACHE_KEY
        digest = hashlib.sha256(request.cache_key.encode()).hexdigest()
        body["prompt_cache_key"] = digest if is_long else request.cache_key
    if has_breakpoints(request.model):
        body[_CACHE_OPTIONS] = {"mode": "explicit"}
    return body


def _strict_format(stream: ResponseStream) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", stream.request.label)[:_MAX_NAME] or "solution"
    return {"name": name, "strict": True, "schema": stream.wire.schema}


def _responses_body(stream: ResponseStream, *, is_home: bool) -> dict[str, Any]:  # noqa: ARG001 - as _chat_body
    request, system = stream.request, system_text(stream)
    format_ = {"type": "json_schema", **_strict_format(stream)} if stream.strict else {"type": "json_object"}
    return {
        **_common_body(request),
        **({"instructions": system} if system else {}),
        "input": responses_turns(request),
        "text": {"format": format_},
        "max_output_tokens": request.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS,
        "store": False,
    }


def _chat_body(stream: ResponseStream, *, is_home: bool) -> dict[str, Any]:
    """Contents are plain text where no breakpoint is in them: not every server accepts a list of parts."""
    request = stream.request
    system = system_text(stream, is_schema_shown=is_home or is_openai_model(request.model))
    first: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    body = {
        **_common_body(request),
        "messages": [*first, *chat_turns(request)],
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_object"},
    }
    if stream.strict:
        body["response_format"] = {"type": "json_schema", "json_schema": _strict_format(stream)}
    if is_home:
        body["max_completion_tokens"] = request.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS
    elif request.maxOutputTokens:
        # A default of ours could exceed the window of a small model, which is an error there
        body["max_tokens"] = request.maxOutputTokens
    return body


_BODIES: Final[dict[str, Callable[..., dict[str, Any]]]] = {"responses": _responses_body, "chat": _chat_body}


# -- answers ---------------------------------------------------------------------


async def _send(client: sdk.AsyncOpenAI, api: str, body: dict[str, Any], stream: ResponseStream) -> ModelResponse:
    model = stream.request.model
    handle = _ResponsesReader(stream).handle if api == "responses" else _ChatReader(stream).handle
    create: Any = client.responses.create if api == "responses" else client.chat.completions.create
    try:
        async with await create(**body) as events:
            stream.is_accepted, stream.requestId = True, events.response.headers.get("x-request-id")
            async for event in events:
                if handle(event):
                    break
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise stream.error("modelTimeout", str(error)) from error
    except (sdk.APIConnectionError, httpx2.HTTPError, ValueError) as error:
        # ValueError: an event that is not JSON, as when a proxy breaks off in the middle of one
        code = "modelCut" if stream.is_accepted else "modelUnavailable"
        raise stream.error(code, str(error.__cause__ or error) or type(error).__name__) from error
    except sdk.APIError as error:
        fault = _read_fault(error, model)
        name = _rejected_part(fault, body, error.param, strict=stream.strict)
        if name is not None:
            raise _RejectedError(name) from None
        raise fault.to_error(**stream.usage()) from error
    if stream.finish_reason in ("length", "max_output_tokens"):
        limit = stream.request.maxOutputTokens
        raise stream.error("modelTruncated", f"the answer needs more than {limit or 'the allowed'} tokens")
    if stream.finish_reason == "content_filter":
        raise stream.error("modelRefused", "the provider's content filter stopped the answer")
    return stream.response()


class _ChatReader:
    """Chunks of Chat Completions."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    def handle(self, chunk: Any) -> bool:
        """One chunk; the last one has the usage and no choice. False: more may follow."""
        stream = self._stream
        stream.model = getattr(chunk, "model", None) or stream.model
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            stream.tokens = _token_counts(usage, "prompt_tokens", "completion_tokens")
        for choice in (getattr(chunk, "choices", None) or [])[:1]:
            delta = getattr(choice, "delta", None)
            refusal, text = getattr(delta, "refusal", None), getattr(delta, "content", None)
            if refusal:
                stream.add_refusal(refusal)
            if isinstance(text, str):
                stream.add_text(text)
            stream.finish_reason = getattr(choice, "finish_reason", None) or stream.finish_reason
        return False


class _ResponsesReader:
    """Events of the Responses API. Of several messages, the last that is no commentary is the answer."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._texts: dict[int, list[str]] = {}
        self._commentary: set[int] = set()

    def handle(self, event: Any) -> bool:
        """One event; True when no more will follow."""
        kind = getattr(event, "type", "")
        index = getattr(event, "output_index", 0)
        if kind in ("response.output_item.added", "response.output_item.done"):
            if getattr(getattr(event, "item", None), "phase", None) == "commentary":
                self._commentary.add(index)
        elif kind == "response.output_text.delta":
            self._add_text(index, event.delta or "")
        elif kind == "response.refusal.delta":
            self._stream.add_refusal(event.delta or "")
        elif kind == "response.refusal.done":
            self._stream.refusal = self._stream.refusal or event.refusal or ""
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            return self._finish(kind, getattr(event, "response", None))
        elif kind == "error":
            raise self._failure(event)
        return False

    def _add_text(self, index: int, text: str) -> None:
        self._texts.setdefault(index, []).append(text)
        if index not in self._commentary:
            self._stream.add_text(text)

    def _finish(self, kind: str, response: Any) -> bool:
        stream = self._stream
        stream.model = getattr(response, "model", None)
        usage = getattr(response, "usage", None)
        if usage is not None:
            stream.tokens = _token_counts(usage, "input_tokens", "output_tokens")
        if kind == "response.failed":
            raise self._failure(getattr(response, "error", None))
        answers = [i for i in self._texts if i not in self._commentary]
        stream.replace_text("".join(self._texts[max(answers)]) if answers else "")
        is_incomplete = "incomplete" in (kind.removeprefix("response."), getattr(response, "status", None))
        details = getattr(response, "incomplete_details", None)
        # The likely reason, where the server states none
        reason = getattr(details, "reason", None) or "max_output_tokens"
        stream.finish_reason = reason if is_incomplete else "completed"
        return is_incomplete

    def _failure(self, error: Any) -> Exception:
        stream, code, message = self._stream, getattr(error, "code", None), getattr(error, "message", None)
        return ProviderFault(
            provider=_PROVIDER,
            model=stream.request.model,
            message=message if isinstance(message, str) and message else "the response failed",
            words=(code,) if isinstance(code, str) else (),
            requestId=stream.requestId,
        ).to_error(**stream.usage())


def _token_counts(usage: Any, input_name: str, output_name: str) -> TokenCounts:
    """Usage of either API; many servers send no details."""
    inputs, outputs = getattr(usage, f"{input_name}_details", None), getattr(usage, f"{output_name}_details", None)
    return TokenCounts(
        inputTokens=token_count(getattr(usage, input_name, 0)),
        outputTokens=token_count(getattr(usage, output_name, 0)),
        cachedTokens=token_count(getattr(inputs, "cached_tokens", 0)),
        cacheWriteTokens=token_count(getattr(inputs, "cache_write_tokens", 0)),
        reasoningTokens=token_count(getattr(outputs, "reasoning_tokens", 0)),
    )


def _read_fault(error: sdk.APIError, model: str) -> ProviderFault:
    """An exception of the SDK: with a status, or without one for an ``{"error": …}`` in mid-stream."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    status, headers, request_id = None, {}, None
    if isinstance(error, sdk.APIStatusError):
        status, headers, request_id = error.status_code, dict(error.response.headers), error.request_id
    elif error.code and error.code.isdigit():
        status = int(error.code)  # llama.cpp and others put it there
    return ProviderFault(
        provider=_PROVIDER,
        model=model,
        message=message if isinstance(message, str) and message else error.message,
        status=status,
        words=tuple(w for w in (error.code, error.type) if isinstance(w, str)),
        headers=headers,
        requestId=request_id,
    )
