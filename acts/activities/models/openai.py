"""The adapter of OpenAI's API and of servers that imitate it, over OpenAI's own SDK, read event by event.

* The Responses API at api.openai.com, Chat Completions anywhere else (Ollama, vLLM, llama.cpp …), unless
  ``ACTS_OPENAI_API`` (``responses`` or ``chat``) or the settings of the endpoint say otherwise.
* ``error``, ``response.failed`` and ``response.incomplete`` are events; the SDK raises nothing for them. A stream
  without an end broke off. Text beside the answer (``phase: commentary``, reasoning) is not part of it.
* What a server does not take is declared (``quirks``), not learned.
* Models since GPT-5.6 read their prompt cache only at the breakpoints of a request, and charge for writing more than
  for reading anew. So each turn of the user ends with a breakpoint, as it did in the request before, and the one that
  the API would put at the very end is off (``prompt_cache_options``).
* A server other than OpenAI may constrain an answer by a schema that its model never sees; there the system text has
  the schema too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import openai as sdk

from acts.activities.models import adapters
from acts.activities.models.adapters import ResponseStream, count_tokens, dig
from acts.activities.models.endpoints import HOMES, Endpoint, has_breakpoints, is_home, is_of_openai
from acts.activities.models.interface import CallReceiver, ModelRequest, ModelResponse, TokenCounts
from acts.planner.notation import MEDIA, File
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS

# Characters: the API's limit
_MAX_CACHE_KEY: Final = 64
# For a match the API considers the latest 80
_MAX_BREAKPOINTS: Final = 80
_MARK: Final = {"prompt_cache_breakpoint": {"mode": "explicit"}}


async def ask(request: ModelRequest, on_call: CallReceiver | None, endpoint: Endpoint) -> ModelResponse:
    """One request to an endpoint that speaks OpenAI's APIs."""
    stream, body = await prepare(request, on_call, endpoint)
    client = get_client(endpoint, request.model)
    if _is_chat(body):
        return await adapters.receive(stream, sdk, client.chat.completions.create(**body), _read_chunk)
    return await adapters.receive(stream, sdk, client.responses.create(**body), _ResponsesReader().read)


def get_client(endpoint: Endpoint, model: str) -> Any:
    return adapters.get_client(endpoint, model, _build_client, _build_cloud_client)


def _is_chat(body: Mapping[str, Any]) -> bool:
    return "messages" in body


async def prepare(
    request: ModelRequest, on_call: CallReceiver | None, endpoint: Endpoint
) -> tuple[ResponseStream, dict[str, Any]]:
    """The stream that the answer goes to, and the body of the request."""
    is_at_home = is_home("openai", str(get_client(endpoint, request.model).base_url))
    is_chat = (endpoint.api or ("responses" if is_at_home else "chat")) == "chat"
    # Azure, Bedrock and Vertex have OpenAI's own models
    is_own = is_at_home or endpoint.cloud is not None
    # A default of ours could exceed the window of a small model, which is an error there
    default_cap = DEFAULT_MAX_OUTPUT_TOKENS if is_own or not is_chat else None
    stream = await adapters.begin_stream(endpoint, request, on_call, default_cap)
    return stream, _build_body(stream, is_chat=is_chat, is_own=is_own)


def _build_client(base: str, key: str | None, organization: str | None = None, project: str | None = None) -> Any:
    place: dict[str, Any] = {"organization": organization, "project": project, "base_url": base}
    return sdk.AsyncOpenAI(api_key=key or adapters.NO_KEY, **place, **adapters.CLIENT_OPTIONS)


def _build_cloud_client(endpoint: Endpoint, key: str | None) -> Any:
    from openai.providers import bedrock, vertex

    url, region = endpoint.url, endpoint.region
    if endpoint.cloud == "azure":
        place: dict[str, Any] = {"azure_endpoint": url or "", "api_version": endpoint.apiVersion}
        return sdk.AsyncAzureOpenAI(api_key=key, **place, **adapters.CLIENT_OPTIONS)
    if endpoint.cloud == "bedrock":
        return sdk.AsyncOpenAI(provider=bedrock(region=region, base_url=url, api_key=key), **adapters.CLIENT_OPTIONS)
    token = None if key is None else lambda: key
    provider = vertex(project=endpoint.project, location=region, base_url=url, token_provider=token)
    return sdk.AsyncOpenAI(provider=provider, **adapters.CLIENT_OPTIONS)


def _build_body(stream: ResponseStream, *, is_chat: bool, is_own: bool) -> dict[str, Any]:
    """The request of either API, without the fields that the endpoint does not take."""
    omissions = stream.endpoint.quirks.omit
    request, sent, cap, key = stream.request, stream.sent, stream.request.maxOutputTokens, stream.request.cache_key
    is_plain, takes_marks = sent.form == "words", has_breakpoints(request.model)
    is_schema_seen = not is_chat or is_own or is_of_openai(request.model)
    marks = _MAX_BREAKPOINTS if takes_marks and "prompt_cache_options" not in omissions else 0
    texts = [block.text for block in request.system if block.text.strip()]
    schema = {"name": request.label, "strict": sent.form == "strict", "schema": sent.schema}
    body: dict[str, Any] = {"model": request.model, "stream": True, "temperature": request.temperature}
    if is_schema_seen:
        body["prompt_cache_options"] = {"mode": "explicit"} if marks else None
        key = hashlib.sha256(key.encode()).hexdigest() if len(key) > _MAX_CACHE_KEY else key
        body["prompt_cache_key"] = key or None
    write_file = partial(_write_file, is_chat=is_chat)
    if is_chat:
        texts += [sent.in_words] if is_plain or not is_schema_seen else []
        first = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
        # Contents are plain text where no breakpoint is in them: not every server accepts a list of parts
        body["messages"] = [*first, *adapters.build_messages(request, _MARK, marks, write_file)]
        body["stream_options"] = {"include_usage": True}
        body["response_format"] = (
            {"type": "json_object"} if is_plain else {"type": "json_schema", "json_schema": schema}
        )
        body["reasoning_effort"] = request.effort
        # Two names for one limit: where a server does not take one, the other is sent
        one, other = ("max_completion_tokens", "max_tokens") if is_own else ("max_tokens", "max_completion_tokens")
        body[other if one in omissions else one] = cap
    else:
        # Plain JSON is refused unless the input itself contains the word; the instructions do not count
        first = [{"role": "developer", "content": sent.in_words}] if is_plain else []
        # Models with breakpoints also expect the phase of their earlier messages
        phase = {"phase": "final_answer"} if takes_marks else {}
        turns = adapters.build_messages(request, _MARK, marks, write_file, "input_text")
        body["input"] = [*first, *(turn | (phase if turn["role"] == "assistant" else {}) for turn in turns)]
        body["text"] = {"format": {"type": "json_object"} if is_plain else {"type": "json_schema", **schema}}
        body["instructions"] = "\n\n".join(texts) or None
        body["reasoning"] = {"effort": request.effort} if request.effort is not None else None
        body |= {"max_output_tokens": cap, "store": False}
    return {k: v for k, v in body.items() if v is not None and k not in omissions}


def _write_file(file: File, *, is_chat: bool) -> dict[str, Any]:
    url = file.source if file.is_url else f"data:{file.media};base64,{file.source}"
    if file.is_image and is_chat:
        return {"type": "image_url", "image_url": {"url": url}}
    if file.is_image:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if file.is_url and not is_chat:
        return {"type": "input_file", "file_url": url}
    # OpenAI's own Chat Completions take no URL of a PDF; some servers that imitate them do
    named = {"filename": file.get("name") or f"{file.id}.{MEDIA[file.media]}", "file_data": url}
    return {"type": "file", "file": named} if is_chat else {"type": "input_file", **named}


# -- answers ---------------------------------------------------------------------


def _read_chunk(stream: ResponseStream, chunk: Any) -> None:
    """A chunk of Chat Completions, the last of which has the usage and no choice; or a whole one."""
    stream.model = dig(chunk, "model") or stream.model
    if (usage := dig(chunk, "usage")) is not None:
        stream.tokens = _count_tokens(usage, "prompt_tokens", "completion_tokens")
    for choice in (dig(chunk, "choices") or [])[:1]:
        message = dig(choice, "delta") or dig(choice, "message")
        refusal, text = dig(message, "refusal"), dig(message, "content")
        if refusal:
            stream.add_refusal(refusal)
        if isinstance(text, str):
            stream.add_text(text)
        stream.finish_reason = dig(choice, "finish_reason") or stream.finish_reason


class _ResponsesReader:
    """Reads events of the Responses API. Of several messages, the last that is no commentary is the answer."""

    def __init__(self) -> None:
        self._commentary: set[int] = set()
        self._index: int | None = None

    def read(self, stream: ResponseStream, event: Any) -> None:
        kind, index = dig(event, "type") or "", dig(event, "output_index") or 0
        if dig(event, "item", "phase") == "commentary":
            self._commentary.add(index)
        elif kind == "response.output_text.delta" and index not in self._commentary:
            if index != self._index and self._index is not None:
                stream.restart()
            self._index = index
            stream.add_text(event.delta or "")
        elif kind == "response.refusal.delta":
            stream.add_refusal(event.delta or "")
        elif kind == "error":
            raise _failure(event)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = dig(event, "response")
            stream.model = dig(response, "model")
            if (usage := dig(response, "usage")) is not None:
                stream.tokens = _count_tokens(usage, "input_tokens", "output_tokens")
            if kind == "response.failed":
                raise _failure(dig(response, "error"))
            is_incomplete = "incomplete" in (kind.removeprefix("response."), dig(response, "status"))
            # The likely reason, where the server states none
            reason = dig(response, "incomplete_details", "reason") or "max_output_tokens"
            stream.finish_reason = reason if is_incomplete else "completed"


def _failure(error: Any) -> sdk.APIError:
    """The error that an event states."""
    return _api_error({"code": dig(error, "code"), "message": dig(error, "message")})


def _api_error(body: Any, status: int | None = None) -> sdk.APIError:
    """An error as the SDK would raise it."""
    error: Any = sdk.APIError("the response failed", httpx2.Request("POST", HOMES["openai"]), body=body)
    error.status_code = status
    return error  # type: ignore[no-any-return]


def _count_tokens(usage: Any, input_name: str, output_name: str) -> TokenCounts:
    """Usage of either API; many servers send no details."""
    details = f"{input_name}_details"
    paths = (input_name,), (output_name,), (details, "cached_tokens"), (details, "cache_write_tokens")
    counts = [count_tokens(dig(usage, *path)) for path in (*paths, (f"{output_name}_details", "reasoning_tokens"))]
    return TokenCounts(*counts)


# -- batches -----------------------------------------------------------------------

_RUNNING: Final = ("validating", "in_progress", "finalizing", "cancelling")


async def create_batch(client: Any, bodies: Mapping[str, Any]) -> str:
    """Submit these requests, by name; returns the batch's id."""
    path = "/v1/chat/completions" if _is_chat(next(iter(bodies.values()))) else "/v1/responses"
    lines = []
    for name, body in bodies.items():
        own = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        lines.append(json.dumps({"custom_id": name, "method": "POST", "url": path, "body": own}))
    file = await client.files.create(file=("requests.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint=path, completion_window="24h")
    return str(batch.id)


async def read_batch(client: Any, batch_id: str) -> tuple[dict[str, Any], Any] | None:
    """The outcomes of a batch by name, and that of the others (None: there is none); None: it has not ended."""
    batch = await client.batches.retrieve(batch_id)
    if batch.status in _RUNNING:
        return None
    outcomes: dict[str, Any] = {}
    for file in filter(None, (batch.output_file_id, batch.error_file_id)):
        lines = (await client.files.content(file)).content.splitlines()
        outcomes |= {line["custom_id"]: line for line in map(json.loads, lines)}
    if batch.status == "completed":
        return outcomes, None
    errors = [error.to_dict() for error in dig(batch, "errors", "data") or ()]
    wrong = errors or {"code": f"batch_{batch.status}", "message": f"the batch is {batch.status}"}
    return outcomes, {"response": {"status_code": 400}, "error": wrong}


def read_outcome(stream: ResponseStream, outcome: Any) -> None:
    """Read an outcome as if it had been streamed. Raises an error of the SDK, or ModelError."""
    response = outcome.get("response") or {}
    status, body, stream.requestId = response.get("status_code"), response.get("body"), response.get("request_id")
    if outcome.get("error") or status != 200 or not isinstance(body, dict):  # noqa: PLR2004 - of HTTP
        raise _api_error(outcome.get("error") or body, status)
    if "choices" in body:
        _read_chunk(stream, sdk.types.chat.ChatCompletion.construct(**body))
        return
    answer: Any = sdk.types.responses.Response.construct(**body)
    messages = [item for item in answer.output if item.type == "message" and dig(item, "phase") != "commentary"]
    for part in messages[-1].content if messages else ():
        if part.type == "refusal":
            stream.add_refusal(part.refusal)
        else:
            stream.add_text(part.text)
    _ResponsesReader().read(stream, SimpleNamespace(type=f"response.{answer.status}", response=answer))
