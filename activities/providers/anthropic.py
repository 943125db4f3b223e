"""Anthropic's Messages API, by its own SDK, read event by event.

* A strict schema goes into ``output_config.format``; never a forced tool, which the newest
  models refuse. Nor is there a temperature: the API does not take one any more.
* A stream that ends without a ``stop_reason`` was cut: the SDK does not say so. An error
  in mid-stream comes with status 200; its type says what it is.
* The SDK's own retries are off: whoever asks decides about them, and about the time a
  request may take in all (pings keep a read timeout from ever firing).
"""

from __future__ import annotations

import os
from typing import Any, Final

import anthropic as sdk
import httpx2

from activities.providers.interface import ModelError, ModelRequest, ModelResponse, Progress, PromptBlock, Usage
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

_PROVIDER: Final = "anthropic"
_HOME: Final = "https://api.anthropic.com"
# The API takes no more cache breakpoints in one request
_MAX_BREAKPOINTS: Final = 4
_KEYLESS: Final = "none"  # for servers of one's own, which need no key but a header


class Anthropic:
    """Adapter of ``anthropic:…``."""

    def __init__(self) -> None:
        self._refused: set[tuple[str, str, int]] = set()

    async def ask(self, question: ModelRequest, progress: Progress) -> ModelResponse:
        """One request; a second one, without strict schema, where the provider does not take it."""
        client = client_of(*_client(question.model))
        key = (str(client.base_url), question.model, hash(compact(question.schema)))
        if key not in self._refused:
            try:
                return await self._once(client, question, progress, strict=True)
            except _SchemaRefusedError:
                self._refused.add(key)
        return await self._once(client, question, progress, strict=False)

    def price(self, model: str) -> bool:
        """True when a price list knows the model."""
        return cost(_PROVIDER, model, Usage(inputTokens=1, outputTokens=1)) is not None

    async def _once(
        self, client: sdk.AsyncAnthropic, question: ModelRequest, progress: Progress, *, strict: bool
    ) -> ModelResponse:
        reading = begin(_PROVIDER, question, progress, strict=strict)
        try:
            async with await client.messages.create(**_body(question, reading), stream=True) as stream:
                reading.begun, reading.requestId = True, stream.response.headers.get("request-id")
                async for event in stream:
                    _take(reading, event)
        except sdk.APIStatusError as error:
            cause = _cause(error, question.model)
            if strict and cause.schema_refused:
                raise _SchemaRefusedError from None
            raise cause.error(**reading.spent()) from error
        except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
            raise reading.failed("modelTimeout", str(error)) from error
        except (sdk.APIError, httpx2.HTTPError, ValueError) as error:
            # ValueError: an event that is no JSON, as when a proxy breaks off in the middle of one
            code = "modelCut" if reading.begun else "modelUnavailable"
            raise reading.failed(code, str(error.__cause__ or error) or type(error).__name__) from error
        return _ended(reading)


class _SchemaRefusedError(Exception):
    """The provider does not take the schema as a strict one."""


def _client(model: str) -> tuple[tuple[Any, ...], Any]:
    """What makes a client this one, and how it is built."""
    key, token = os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN")
    base = os.environ.get("ANTHROPIC_BASE_URL") or _HOME
    if not key and not token:
        if base == _HOME:
            raise failure("modelNoKey", _PROVIDER, model, "no key: ANTHROPIC_API_KEY is not set")
        key = _KEYLESS
    # The SDK sends the key as a bearer token; servers that only imitate the API look for the older header
    headers = {"x-api-key": key} if key and base != _HOME else {}

    def build() -> sdk.AsyncAnthropic:
        return sdk.AsyncAnthropic(
            **({"api_key": key} if key else {"auth_token": token}),
            base_url=base,
            default_headers=headers,
            max_retries=0,
            timeout=httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
        )

    return (_PROVIDER, base, key or "", token or ""), build


# -- the request -----------------------------------------------------------------


def _body(question: ModelRequest, reading: ResponseStream) -> dict[str, Any]:
    marks = [b for b in (*question.system, *question.user) if b.cache and b.text.strip()]
    kept = {id(b) for b in marks[-_MAX_BREAKPOINTS:]}
    system = _blocks(question.system, kept)
    if not reading.strict:
        system.append({"type": "text", "text": shown(reading.wire.schema)})
    messages: list[dict[str, Any]] = [{"role": "user", "content": _blocks(question.user, kept) or "Answer."}]
    for turn in question.turns:
        messages.append({"role": "assistant", "content": turn.answer.rstrip() or "(nothing)"})
        messages.append({"role": "user", "content": turn.reply})
    body: dict[str, Any] = {
        "model": question.model,
        "max_tokens": question.maxOutputTokens or DEFAULT_MAX_TOKENS,
        "messages": messages,
    }
    if system:
        body["system"] = system
    if reading.strict:
        body["output_config"] = {"format": {"type": "json_schema", "schema": reading.wire.schema}}
    return body


def _blocks(blocks: tuple[PromptBlock, ...], kept: set[int]) -> list[dict[str, Any]]:
    """Blocks of text; the API takes none that is empty."""
    return [
        {"type": "text", "text": b.text, **({"cache_control": {"type": "ephemeral"}} if id(b) in kept else {})}
        for b in blocks
        if b.text.strip()
    ]


# -- the answer ------------------------------------------------------------------


def _take(reading: ResponseStream, event: Any) -> None:
    """One event of the stream. Fields may be missing: the SDK does not check what a server sends."""
    kind = getattr(event, "type", None)
    if kind == "message_start":
        message = getattr(event, "message", None)
        reading.model = getattr(message, "model", None)
        _count(reading, getattr(message, "usage", None))
    elif kind == "content_block_delta" and getattr(getattr(event, "delta", None), "type", None) == "text_delta":
        reading.add(event.delta.text or "")
    elif kind == "message_delta":
        delta = getattr(event, "delta", None)
        reading.finish = getattr(delta, "stop_reason", None) or reading.finish
        if reading.finish == "refusal":
            details = getattr(delta, "stop_details", None)
            reading.refusal = getattr(details, "explanation", None) or getattr(details, "category", None) or ""
        _count(reading, getattr(event, "usage", None))


def _count(reading: ResponseStream, usage: Any) -> None:
    """Counts are cumulative; a later event only has those that it changes. The input excludes what is cached."""
    old = reading.usage

    def latest(name: str, before: int) -> int:
        value = getattr(usage, name, None)
        return before if value is None else count(value)

    cached = latest("cache_read_input_tokens", old.cachedTokens)
    written = latest("cache_creation_input_tokens", old.cacheWriteTokens)
    fresh = latest("input_tokens", old.inputTokens - old.cachedTokens - old.cacheWriteTokens)
    details = getattr(usage, "output_tokens_details", None)
    thinking = getattr(details, "thinking_tokens", None)
    reading.usage = Usage(
        inputTokens=fresh + cached + written,
        outputTokens=latest("output_tokens", old.outputTokens),
        cachedTokens=cached,
        cacheWriteTokens=written,
        reasoningTokens=old.reasoningTokens if thinking is None else count(thinking),
    )


def _ended(reading: ResponseStream) -> ModelResponse:
    if reading.finish == "max_tokens":
        limit = reading.question.maxOutputTokens or DEFAULT_MAX_TOKENS
        raise reading.failed("modelTruncated", f"the answer needs more than {limit:,} tokens")
    if reading.finish == "model_context_window_exceeded":
        raise reading.failed("modelContextFull", "the context window was full before the answer was complete")
    return reading.answer()


def _cause(error: sdk.APIStatusError, model: str) -> Cause:
    words = tuple(w for w in (error.error_code, error.type) if isinstance(w, str))
    return Cause(
        provider=_PROVIDER,
        model=model,
        message=error.api_message if isinstance(error.api_message, str) else error.message,
        status=error.status_code,
        words=words,
        headers=error.response.headers,
        requestId=error.request_id,
    )


__all__ = ["Anthropic", "ModelError"]
