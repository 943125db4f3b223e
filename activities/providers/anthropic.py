"""The adapter of Anthropic's Messages API, over its own SDK, read event by event.

* A strict schema goes into ``output_config.format``, never into a forced tool, which the newest models reject. No
  temperature is sent: the API has none any more.
* A turn is one message of one block: a cache entry is found only within 20 blocks before a mark. Marks are at the end
  of the system text and of the last two turns of the user: the later one is written, the earlier one was.
* A stream that ends without a ``stop_reason`` broke off; the SDK raises nothing. An error in mid-stream arrives with
  status 200, and its type says what happened.
* The SDK's own retries are off: the retry policy of the activity decides, and its timeout bounds the request (pings
  keep a read timeout from ever firing).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import anthropic as sdk
import httpx2

from activities.providers.http_clients import CONNECT_TIMEOUT, NO_KEY, READ_TIMEOUT, get_client
from activities.providers.interface import (
    CallReceiver,
    ModelRequest,
    ModelResponse,
    ModelTurn,
    PromptBlock,
    TokenCounts,
)
from activities.providers.provider_errors import ProviderFault, build_error
from activities.providers.provider_keywords import compact_json
from activities.providers.response_stream import ResponseStream, token_count
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

_PROVIDER: Final = "anthropic"
_HOME: Final = "https://api.anthropic.com"
# The API takes four marks: one at the end of the system text, and these
_MARKED_TURNS: Final = 2


class Anthropic:
    """Adapter of ``anthropic:…``. It remembers which schemas a model rejects."""

    def __init__(self) -> None:
        self._rejected: set[tuple[str, str, int]] = set()

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """One request; a second one, with the schema in words, where the provider rejects it as a strict one."""
        client = _client(request.model)
        key = (str(client.base_url), request.model, hash(compact_json(request.schema)))
        if key not in self._rejected:
            try:
                return await _send(client, ResponseStream(_PROVIDER, request, on_call, strict=True))
            except _SchemaRejectedError:
                self._rejected.add(key)
        return await _send(client, ResponseStream(_PROVIDER, request, on_call, strict=False))


class _SchemaRejectedError(Exception):
    """The provider does not accept the schema as a strict one."""


def _client(model: str) -> sdk.AsyncAnthropic:
    key, token = os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN")
    base = os.environ.get("ANTHROPIC_BASE_URL") or _HOME
    if not key and not token:
        if base == _HOME:
            raise build_error("modelNoKey", _PROVIDER, model, "no key: ANTHROPIC_API_KEY is not set")
        key = NO_KEY
    # The SDK sends the key as a bearer token; servers that imitate the API look for the older header
    headers = {"x-api-key": key} if key and base != _HOME else {}

    def build() -> sdk.AsyncAnthropic:
        return sdk.AsyncAnthropic(
            **({"api_key": key} if key else {"auth_token": token}),
            base_url=base,
            default_headers=headers,
            max_retries=0,
            timeout=httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
        )

    return get_client((_PROVIDER, base, key, token), build)


async def _send(client: sdk.AsyncAnthropic, stream: ResponseStream) -> ModelResponse:
    try:
        async with await client.messages.create(**_build_body(stream), stream=True) as events:
            stream.is_accepted, stream.requestId = True, events.response.headers.get("request-id")
            async for event in events:
                _handle_event(stream, event)
    except sdk.APIStatusError as error:
        fault = _read_fault(error, stream.request.model)
        if stream.strict and fault.is_schema_rejection:
            raise _SchemaRejectedError from None
        raise fault.to_error(**stream.usage()) from error
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise stream.error("modelTimeout", str(error)) from error
    except (sdk.APIError, httpx2.HTTPError, ValueError) as error:
        # ValueError: an event that is not JSON, as when a proxy breaks off in the middle of one
        code = "modelCut" if stream.is_accepted else "modelUnavailable"
        raise stream.error(code, str(error.__cause__ or error) or type(error).__name__) from error
    if stream.finish_reason == "max_tokens":
        limit = stream.request.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS
        raise stream.error("modelTruncated", f"the answer needs more than {limit:,} tokens")
    if stream.finish_reason == "model_context_window_exceeded":
        raise stream.error("modelContextFull", "the context window was full before the answer was complete")
    return stream.response()


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
        "max_tokens": request.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS,
        "messages": messages,
    }
    if blocks := _text_blocks(system, breakpoints):
        body["system"] = blocks
    if stream.strict:
        body["output_config"] = {"format": {"type": "json_schema", "schema": stream.wire.schema}}
    return body


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


def _read_fault(error: sdk.APIStatusError, model: str) -> ProviderFault:
    return ProviderFault(
        provider=_PROVIDER,
        model=model,
        message=error.api_message if isinstance(error.api_message, str) else error.message,
        status=error.status_code,
        words=tuple(w for w in (error.error_code, error.type) if isinstance(w, str)),
        headers=error.response.headers,
        requestId=error.request_id,
    )
