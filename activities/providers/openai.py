"""The adapter of OpenAI's API and of servers that imitate it, over OpenAI's own SDK, read event by event.

* The Responses API at api.openai.com, Chat Completions anywhere else (Ollama, vLLM, llama.cpp …), unless
  ``ACTS_OPENAI_API`` (``responses`` or ``chat``) or the settings of the endpoint say otherwise.
* ``error``, ``response.failed`` and ``response.incomplete`` are events; the SDK raises nothing for them. A stream
  without an end broke off.
* Text beside the answer (``phase: commentary``, reasoning) is not part of it.
* A parameter or schema that a model rejects is left out from then on: models and servers differ, and none of them says
  so in advance.
* The SDK's own retries are off: the retry policy of the activity decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, Final

import httpx2
import openai as sdk

from activities.providers.endpoint_clients import credentials_error, is_openai_home, openai_client
from activities.providers.endpoint_memory import SCHEMA, Memories, RejectedError
from activities.providers.endpoints import Endpoint
from activities.providers.error_bodies import read_error_body
from activities.providers.interface import CallReceiver, ModelRequest, ModelResponse, TokenCounts
from activities.providers.openai_rejections import CACHE_OPTIONS, leave_out, rejected_part, rejection_notes
from activities.providers.openai_turns import (
    chat_turns,
    has_breakpoints,
    is_openai_model,
    responses_turns,
    system_text,
)
from activities.providers.provider_errors import ProviderFault, build_error
from activities.providers.response_stream import ResponseStream, token_count
from activities.providers.schema_ladder import SchemaLadder
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

_PROVIDER: Final = "openai"
# Characters; both are the API's limits
_MAX_NAME: Final = 64
_MAX_CACHE_KEY: Final = 64


class OpenAI:
    """Adapter of ``openai:…``, or of an endpoint that speaks its APIs. It remembers what a model rejects."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._endpoint = endpoint
        self._omissions = set(endpoint.quirks.omit) if endpoint else set[str]()
        first = endpoint.quirks.first_form if endpoint else "strict"
        self._ladder = SchemaLadder("openai", has_unenforced=True, first=first)
        self._memories = Memories()

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """One request; further ones with an easier schema or less in it, where the provider rejects a part."""
        client = openai_client(self._endpoint, request.model)
        base = str(client.base_url)
        # Azure, Bedrock and Vertex have OpenAI's own models
        is_home = is_openai_home(base) or (self._endpoint is not None and self._endpoint.cloud is not None)
        api = _choose_api(self._endpoint, base, request.model)
        endpoint, memory = (base, request.model), self._memories.of(base, request.model)
        # A default of ours could exceed the window of a small model, which is an error there
        default_cap = DEFAULT_MAX_OUTPUT_TOKENS if api == "responses" or is_home else None
        while True:
            adapted, notes = memory.adapt(request, default_cap)
            sent = await asyncio.to_thread(self._ladder.choose, endpoint, request.schema)  # half a second for 100 Tools
            stream = ResponseStream(
                _PROVIDER, adapted, on_call, sent, notes, memory.longest_answer, self._endpoint
            )  # fmt: skip
            whole = _BODIES[api](stream, is_home=is_home)
            body = leave_out(whole, memory.parameters | self._omissions, stream)
            stream.notes = (*notes, *rejection_notes(whole, memory.parameters, self._omissions, stream.site))
            try:
                return await _send(client, api, body, stream)
            except RejectedError as error:
                if error.name == SCHEMA:
                    self._ladder.reject(endpoint, request.schema, sent, error.reason)
                else:
                    memory.note_rejection(error.name, error.reason, adapted)


def _choose_api(endpoint: Endpoint | None, base: str, model: str) -> str:
    default = "responses" if is_openai_home(base) else "chat"
    if endpoint is not None:
        return endpoint.api or default
    api = os.environ.get("ACTS_OPENAI_API") or default
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
        body[CACHE_OPTIONS] = {"mode": "explicit"}
    return body


def _format(stream: ResponseStream) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", stream.request.label)[:_MAX_NAME] or "solution"
    return {"name": name, "strict": stream.sent.is_enforced, "schema": stream.wire.schema}


def _responses_body(stream: ResponseStream, *, is_home: bool) -> dict[str, Any]:  # noqa: ARG001 - as _chat_body
    request, is_in_words = stream.request, stream.sent.form == "words"
    # Plain JSON is refused unless the input itself contains the word; the instructions do not count
    system, first = system_text(stream, has_words=not is_in_words), stream.instructions if is_in_words else None
    return {
        **_common_body(request),
        **({"instructions": system} if system else {}),
        "input": responses_turns(request, first or ""),
        "text": {"format": {"type": "json_object"} if is_in_words else {"type": "json_schema", **_format(stream)}},
        "max_output_tokens": request.maxOutputTokens,
        **({"reasoning": {"effort": request.effort}} if request.effort is not None else {}),
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
    if stream.sent.form != "words":
        body["response_format"] = {"type": "json_schema", "json_schema": _format(stream)}
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.maxOutputTokens:
        body["max_completion_tokens" if is_home else "max_tokens"] = request.maxOutputTokens
    return body


_BODIES: Final[dict[str, Callable[..., dict[str, Any]]]] = {"responses": _responses_body, "chat": _chat_body}


# -- answers ---------------------------------------------------------------------


async def _send(client: sdk.AsyncOpenAI, api: str, body: dict[str, Any], stream: ResponseStream) -> ModelResponse:
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
        fault = _read_fault(error, stream)
        name = rejected_part(fault, body, stream)
        if name is not None:
            raise RejectedError(name, fault.message) from None
        raise fault.to_error(**stream.usage()) from error
    except Exception as error:
        failure = None if stream.is_accepted else credentials_error(stream.endpoint, stream.request.model, error)
        if failure is None:
            raise
        raise failure from error
    if stream.finish_reason in ("length", "max_output_tokens"):
        cap = stream.request.maxOutputTokens
        raise stream.truncated(f"the answer needs more than {'the allowed' if cap is None else f'{cap:,}'} tokens")
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
            provider=stream.site,
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


def _read_fault(error: sdk.APIError, stream: ResponseStream) -> ProviderFault:
    """An exception of the SDK: with a status, or without one for an ``{"error": …}`` in mid-stream."""
    said = read_error_body(error.body)
    status, headers, request_id = None, {}, None
    if isinstance(error, sdk.APIStatusError):
        status, headers, request_id = error.status_code, dict(error.response.headers), error.request_id
    elif error.code and error.code.isdigit():
        status = int(error.code)  # llama.cpp and others put it there
    if said.retryAfter is not None:
        headers = {"retry-after": str(said.retryAfter), **headers}
    return ProviderFault(
        provider=stream.site,
        model=stream.request.model,
        message=said.message or error.message,
        status=status,
        words=said.words,
        headers=headers,
        requestId=request_id,
        fields=said.fields,
    )
