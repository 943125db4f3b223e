"""The adapter of Anthropic's Messages API, over its own SDK, read event by event.

* A strict schema goes into ``output_config.format``, never into a forced tool, which the newest models reject. No
  temperature is sent: the API has none any more. The effort goes into ``output_config.effort``.
* A turn is one message of one block: a cache entry is found only within 20 blocks before a mark. Marks are at the end
  of the system text and of the last two turns of the user: the later one is written, the earlier one was.
* A stream that ends without a ``stop_reason`` broke off; the SDK raises nothing. An error in mid-stream arrives with
  status 200, and its type says what happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

import anthropic as sdk
import httpx2

from acts.activities.models import adapters
from acts.activities.models.adapters import ResponseStream, count_tokens, dig
from acts.activities.models.endpoints import HOMES, Endpoint, is_home
from acts.activities.models.interface import CallReceiver, ModelRequest, ModelResponse, PromptBlock, TokenCounts
from acts.planner.notation import File
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

# The API takes four marks: one at the end of the system text, and these
_MARKED_TURNS: Final = 2
_MARK: Final = {"cache_control": {"type": "ephemeral"}}


async def ask(request: ModelRequest, on_call: CallReceiver | None, endpoint: Endpoint) -> ModelResponse:
    """One request to an endpoint that speaks Anthropic's API."""
    stream, body = await prepare(request, on_call, endpoint)
    answer = get_client(endpoint, request.model).messages.create(**body, stream=True)
    return await adapters.receive(stream, sdk, answer, _handle_event)


def get_client(endpoint: Endpoint, model: str) -> Any:
    return adapters.get_client(endpoint, model, _build_client, _build_cloud_client)


async def prepare(
    request: ModelRequest, on_call: CallReceiver | None, endpoint: Endpoint
) -> tuple[ResponseStream, dict[str, Any]]:
    """The stream that the answer goes to, and the body of the request."""
    stream = await adapters.begin_stream(endpoint, request, on_call, DEFAULT_MAX_OUTPUT_TOKENS)
    if request.temperature is not None:
        left_out = f"temperature {request.temperature:g} was left out: Anthropic's API has none"
        stream.notes = (*stream.notes, left_out)
    return stream, _build_body(stream)


def _build_client(base: str, key: str | None, token: str | None = None) -> Any:
    key = key or (None if token else adapters.NO_KEY)
    # The SDK sends the key as a bearer token; servers that imitate the API look for the older header
    headers = {"x-api-key": key} if key and not is_home("anthropic", base) else {}
    credentials: dict[str, Any] = {"api_key": key} if key else {"auth_token": token}
    return sdk.AsyncAnthropic(**credentials, base_url=base, default_headers=headers, **adapters.CLIENT_OPTIONS)


def _build_cloud_client(endpoint: Endpoint, key: str | None) -> Any:
    options: dict[str, Any] = {"base_url": endpoint.url, **adapters.CLIENT_OPTIONS}
    if endpoint.cloud == "bedrock":
        return sdk.AsyncAnthropicBedrock(aws_region=endpoint.region, api_key=key, **options)
    if endpoint.cloud == "azure":
        return sdk.AsyncAnthropicFoundry(api_key=key, **{**options, "base_url": endpoint.url or ""})
    place: dict[str, Any] = {"region": endpoint.region, "project_id": endpoint.project}
    return sdk.AsyncAnthropicVertex(**place, access_token=key, **options)


def _build_body(stream: ResponseStream) -> dict[str, Any]:
    request, sent = stream.request, stream.sent
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.maxOutputTokens,
        "messages": adapters.build_messages(request, _MARK, _MARKED_TURNS, _write_file),
    }
    words = (PromptBlock(sent.in_words),) if sent.form == "words" else ()
    system: list[dict[str, Any]]
    if system := [{"type": "text", "text": b.text} for b in (*request.system, *words) if b.text.strip()]:
        if any(block.is_cached for block in request.system):
            system[-1] |= _MARK
        body["system"] = system
    output: dict[str, Any] = {} if request.effort is None else {"effort": request.effort}
    if sent.form == "strict":
        output["format"] = {"type": "json_schema", "schema": sent.schema}
    return {**body, "output_config": output} if output else body


def _write_file(file: File) -> dict[str, Any]:
    source = {"type": "base64", "media_type": file.media, "data": file.source}
    kind = "image" if file.is_image else "document"
    return {"type": kind, "source": {"type": "url", "url": file.source} if file.is_url else source}


def _handle_event(stream: ResponseStream, event: Any) -> None:
    kind = dig(event, "type")
    if kind == "message_start":
        stream.model = dig(event, "message", "model")
        _update_tokens(stream, dig(event, "message", "usage"))
    elif kind == "content_block_delta" and dig(event, "delta", "type") == "text_delta":
        stream.add_text(event.delta.text or "")
    elif kind == "message_delta":
        stream.finish_reason = dig(event, "delta", "stop_reason") or stream.finish_reason
        if stream.finish_reason == "refusal":
            details = dig(event, "delta", "stop_details")
            stream.refusal = dig(details, "explanation") or dig(details, "category") or ""
        _update_tokens(stream, dig(event, "usage"))


def _update_tokens(stream: ResponseStream, usage: Any) -> None:
    """Counts are cumulative; a later event has only those that changed. The API's input excludes cached tokens."""
    old = stream.tokens

    def latest(before: int, *names: str) -> int:
        value = dig(usage, *names)
        return before if value is None else count_tokens(value)

    reads = latest(old.cachedTokens, "cache_read_input_tokens")
    writes = latest(old.cacheWriteTokens, "cache_creation_input_tokens")
    fresh = latest(old.inputTokens - old.cachedTokens - old.cacheWriteTokens, "input_tokens")
    output = latest(old.outputTokens, "output_tokens")
    reasoning = latest(old.reasoningTokens, "output_tokens_details", "thinking_tokens")
    stream.tokens = TokenCounts(fresh + reads + writes, output, reads, writes, reasoning)


# -- batches -----------------------------------------------------------------------


async def create_batch(client: Any, bodies: Mapping[str, Any]) -> str:
    """Submit these requests, by name; returns the batch's id."""
    batch = await client.messages.batches.create(requests=[{"custom_id": k, "params": b} for k, b in bodies.items()])
    return str(batch.id)


async def read_batch(client: Any, batch_id: str) -> tuple[dict[str, Any], Any] | None:
    """The outcomes of a batch by name, and that of the others (None: there is none); None: it has not ended."""
    if (await client.messages.batches.retrieve(batch_id)).processing_status != "ended":
        return None
    return {line.custom_id: line.result async for line in await client.messages.batches.results(batch_id)}, None


def read_outcome(stream: ResponseStream, outcome: Any) -> None:
    """Read an outcome as if it had been streamed. Raises an error of the SDK, or ModelError."""
    kind, message = dig(outcome, "type"), dig(outcome, "message")
    if kind == "errored":
        request = httpx2.Request("POST", HOMES["anthropic"])
        raise sdk.APIError("the request failed", request, body=outcome.error.to_dict())
    if kind != "succeeded":
        raise stream.error("modelTimeout" if kind == "expired" else "modelCancelled", f"in its batch it is {kind}")
    _handle_event(stream, SimpleNamespace(type="message_start", message=message))
    for block in message.content:
        stream.add_text(block.text if block.type == "text" else "")
    _handle_event(stream, SimpleNamespace(type="message_delta", delta=message, usage=None))
