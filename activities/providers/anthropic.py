"""The adapter of Anthropic's Messages API, over its own SDK, read event by event.

* A strict schema goes into ``output_config.format``, never into a forced tool, which the newest models reject. No
  temperature is sent: the API has none any more. The effort goes into ``output_config.effort``.
* A schema that takes too long to compile is answered with a 500 after three minutes: that is a rejection, too.
* A turn is one message of one block: a cache entry is found only within 20 blocks before a mark. Marks are at the end
  of the system text and of the last two turns of the user: the later one is written, the earlier one was.
* A stream that ends without a ``stop_reason`` broke off; the SDK raises nothing. An error in mid-stream arrives with
  status 200, and its type says what happened.
* The SDK's own retries are off: the retry policy of the activity decides, and its timeout bounds the request (pings
  keep a read timeout from ever firing).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import anthropic as sdk
import httpx2

from activities.providers.endpoint_clients import anthropic_client, credentials_error
from activities.providers.endpoint_memory import SCHEMA, Memories, RejectedError, rejected_setting
from activities.providers.endpoints import Endpoint
from activities.providers.error_bodies import read_error_body
from activities.providers.interface import (
    CallReceiver,
    ModelRequest,
    ModelResponse,
    ModelTurn,
    PromptBlock,
    TokenCounts,
)
from activities.providers.provider_errors import ProviderFault
from activities.providers.response_stream import ResponseStream, token_count
from activities.providers.schema_ladder import SchemaLadder
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

_PROVIDER: Final = "anthropic"
# The API takes four marks: one at the end of the system text, and these
_MARKED_TURNS: Final = 2
# A compiler that gives up does so after 180 seconds; other failures come at once
COMPILE_SECONDS: Final = 100.0
_SERVER_ERRORS: Final = (500, 502, 504)


class Anthropic:
    """Adapter of ``anthropic:…``, or of an endpoint that speaks its API. It remembers what a model rejects."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._endpoint = endpoint
        first = endpoint.quirks.first_form if endpoint else "strict"
        self._ladder = SchemaLadder("anthropic", has_unenforced=False, first=first)
        self._memories = Memories()

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """One request; further ones with an easier schema or without a setting, where the provider rejects one."""
        client = anthropic_client(self._endpoint, request.model)
        base = str(client.base_url)
        endpoint, memory = (base, request.model), self._memories.of(base, request.model)
        while True:
            adapted, notes = memory.adapt(request, DEFAULT_MAX_OUTPUT_TOKENS)
            if request.temperature is not None:
                notes = (*notes, f"temperature {request.temperature:g} was left out: Anthropic's API has none")
            sent = await asyncio.to_thread(self._ladder.choose, endpoint, request.schema)  # half a second for 100 Tools
            stream = ResponseStream(_PROVIDER, adapted, on_call, sent, notes, memory.longest_answer, self._endpoint)
            try:
                return await _send(client, stream)
            except RejectedError as error:
                if error.name == SCHEMA:
                    self._ladder.reject(endpoint, request.schema, sent, error.reason)
                else:
                    memory.note_rejection(error.name, error.reason, adapted)


async def _send(client: sdk.AsyncAnthropic, stream: ResponseStream) -> ModelResponse:
    start = time.monotonic()
    try:
        async with await client.messages.create(**_build_body(stream), stream=True) as events:
            stream.is_accepted, stream.requestId = True, events.response.headers.get("request-id")
            async for event in events:
                _handle_event(stream, event)
    except sdk.APIStatusError as error:
        fault = _read_fault(error, stream)
        if (name := _rejected_part(stream, fault, time.monotonic() - start)) is not None:
            raise RejectedError(name, fault.message) from None
        raise fault.to_error(**stream.usage()) from error
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise stream.error("modelTimeout", str(error)) from error
    except (sdk.APIError, httpx2.HTTPError, ValueError) as error:
        # ValueError: an event that is not JSON, as when a proxy breaks off in the middle of one
        code = "modelCut" if stream.is_accepted else "modelUnavailable"
        raise stream.error(code, str(error.__cause__ or error) or type(error).__name__) from error
    except Exception as error:
        failure = None if stream.is_accepted else credentials_error(stream.endpoint, stream.request.model, error)
        if failure is None:
            raise
        raise failure from error
    if stream.finish_reason == "max_tokens":
        raise stream.truncated(f"the answer needs more than {stream.request.maxOutputTokens:,} tokens")
    if stream.finish_reason == "model_context_window_exceeded":
        raise stream.error("modelContextFull", "the context window was full before the answer was complete")
    return stream.response()


def _rejected_part(stream: ResponseStream, fault: ProviderFault, seconds: float) -> str | None:
    """The part of the request that the provider rejected after so many seconds; None: the error is no rejection."""
    name = rejected_setting(fault, stream.request, stream.request.maxOutputTokens)
    if name is not None or not stream.sent.is_enforced:
        return name
    is_compiling = not stream.is_accepted and (fault.status or 0) in _SERVER_ERRORS and seconds >= COMPILE_SECONDS
    return SCHEMA if fault.is_schema_rejection or is_compiling else None


# -- the request -----------------------------------------------------------------


def _build_body(stream: ResponseStream) -> dict[str, Any]:
    request = stream.request
    words = [PromptBlock(stream.instructions)] if stream.instructions else []
    system = [block for block in (*request.system, *words) if block.text.strip()]
    marked = [block for turn in request.turns for block in turn.blocks if block.is_cached][-_MARKED_TURNS:]
    breakpoints = {id(block) for block in marked}
    if any(block.is_cached for block in request.system):
        breakpoints.add(id(system[-1]))
    messages = [{"role": turn.role, "content": _content(turn, breakpoints)} for turn in request.all_turns]
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.maxOutputTokens,
        "messages": messages,
    }
    if blocks := _text_blocks(system, breakpoints):
        body["system"] = blocks
    output: dict[str, Any] = {}
    if request.effort is not None:
        output["effort"] = request.effort
    if stream.sent.is_enforced:
        output["format"] = {"type": "json_schema", "schema": stream.wire.schema}
    return {**body, "output_config": output} if output else body


def _content(turn: ModelTurn, breakpoints: set[int]) -> Any:
    return _text_blocks(turn.blocks, breakpoints) if turn.plain_text is None else turn.plain_text


def _text_blocks(blocks: Sequence[PromptBlock], breakpoints: set[int]) -> list[dict[str, Any]]:
    """Text blocks; ``breakpoints`` are the ids of those that end a cached prefix. The API rejects empty blocks."""
    return [
        {"type": "text", "text": b.text, **({"cache_control": {"type": "ephemeral"}} if id(b) in breakpoints else {})}
        for b in blocks
        if b.text.strip()
    ]


# -- the answer ------------------------------------------------------------------


def _handle_event(stream: ResponseStream, event: Any) -> None:
    """One event of the stream. Fields may be missing: the SDK does not check what a server sends."""
    kind = getattr(event, "type", None)
    delta = getattr(event, "delta", None)
    if kind == "message_start":
        stream.begin()
        message = getattr(event, "message", None)
        stream.model = getattr(message, "model", None)
        _update_tokens(stream, getattr(message, "usage", None))
    elif kind == "content_block_delta" and getattr(delta, "type", None) == "text_delta":
        stream.add_text(event.delta.text or "")
    elif kind == "message_delta":
        stream.finish_reason = getattr(delta, "stop_reason", None) or stream.finish_reason
        if stream.finish_reason == "refusal":
            details = getattr(delta, "stop_details", None)
            stream.refusal = getattr(details, "explanation", None) or getattr(details, "category", None) or ""
        _update_tokens(stream, getattr(event, "usage", None))


def _update_tokens(stream: ResponseStream, usage: Any) -> None:
    """Counts are cumulative; a later event has only those that changed. The API's input excludes cached tokens."""
    old = stream.tokens

    def latest(name: str, before: int) -> int:
        value = getattr(usage, name, None)
        return before if value is None else token_count(value)

    cache_reads = latest("cache_read_input_tokens", old.cachedTokens)
    cache_writes = latest("cache_creation_input_tokens", old.cacheWriteTokens)
    fresh = latest("input_tokens", old.inputTokens - old.cachedTokens - old.cacheWriteTokens)
    thinking = getattr(getattr(usage, "output_tokens_details", None), "thinking_tokens", None)
    stream.tokens = TokenCounts(
        inputTokens=fresh + cache_reads + cache_writes,
        outputTokens=latest("output_tokens", old.outputTokens),
        cachedTokens=cache_reads,
        cacheWriteTokens=cache_writes,
        reasoningTokens=old.reasoningTokens if thinking is None else token_count(thinking),
    )


def _read_fault(error: sdk.APIStatusError, stream: ResponseStream) -> ProviderFault:
    return ProviderFault(
        provider=stream.site,
        model=stream.request.model,
        message=read_error_body(error.body).message or error.message,
        status=error.status_code,
        words=tuple(w for w in (error.error_code, error.type) if isinstance(w, str)),
        headers=error.response.headers,
        requestId=error.request_id,
    )
