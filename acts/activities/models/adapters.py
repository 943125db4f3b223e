"""What the adapters of the providers share: clients, failures in our terms, and a streamed answer with its end.

* The SDKs bring the clients, also for Bedrock, Vertex and Azure. Their own retries are off: the activity retries. A
  client belongs to one event loop, which its pool of connections must not outlive, and is built anew when its key
  changes. No SDK is imported here: an adapter hands over its own, and both have the same errors.
* A failure has a code of ours, of one table. ``retryable`` says whether the same request may succeed later; a
  provider's own word (``x-should-retry``) overrides ours, except where money is missing. A message says what to do, and
  never contains a key. What a server rejects is not learned: it is declared as a quirk of its endpoint.
* The adapters feed the text of an answer piece by piece. Each Call of ``calls`` in the root object is reported as soon
  as its closing brace arrives: a hint, which ends with the first text that is not JSON. The answer itself is read as a
  whole when it is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2
import ijson

from acts.activities.models.endpoints import HOMES, Endpoint, adapt_settings, cost_of
from acts.activities.models.interface import (
    CallReceiver,
    ModelError,
    ModelRequest,
    ModelResponse,
    PromptBlock,
    TokenCounts,
)
from acts.activities.models.schema import SentSchema, choose_form, drop_nulls
from acts.activities.models.words import tell
from acts.language.errors import truncate
from acts.language.strict_json import UNIQUE_KEYS, NestingError, read_json
from acts.language.values import MAX_DEPTH, Json
from acts.language.wire import MAX_PAYLOAD_BYTES, RESULT_TOO_LARGE
from acts.planner.notation import File
from acts.planner.request_estimate import bytes_per_token

# The SDKs want a key; a server of one's own needs none
NO_KEY: Final = "none"
# Kinds of errors of the clouds' packages that another attempt may not have
_PASSING: Final = re.compile(r"transport|timeout|connect", re.IGNORECASE)
# Seconds between two pieces of an answer. A model may think for minutes without sending any; the timeout of the
# activity bounds the request as a whole
CLIENT_OPTIONS: Final[dict[str, Any]] = {"max_retries": 0, "timeout": httpx2.Timeout(300.0, connect=10.0)}
_CLIENTS: Final[weakref.WeakKeyDictionary[Any, dict[Any, Any]]] = weakref.WeakKeyDictionary()


def get_client(endpoint: Endpoint, model: str, build: Callable[..., Any], build_cloud: Callable[..., Any]) -> Any:
    """The client of an endpoint in the running event loop; it is made anew when its key changes. Raises ModelError:
    there is no key, or what a cloud needs is not installed.
    """
    try:
        base, *credentials = endpoint.read_access()
        clients, name = _CLIENTS.setdefault(asyncio.get_running_loop(), {}), (endpoint, base, *credentials)
        if name not in clients and endpoint.cloud is not None:
            clients[name] = build_cloud(endpoint, *credentials)
        elif name not in clients:
            clients[name] = build(base or HOMES[endpoint.provider], *credentials)
    except Exception as error:  # a setting or a package is missing: the SDKs say which
        raise build_error("modelNoKey", endpoint.name, model, str(error)) from error
    return clients[name]


async def close_clients() -> None:
    """Close the connections of the running event loop; the next request builds its client again."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


# -- failures ----------------------------------------------------------------------

# code: (retryable, what to do)
CODES: Final[dict[str, tuple[bool, str]]] = {
    "modelNoKey": (False, "set the environment variable it names"),
    "modelUnauthorized": (False, "check the key"),
    "modelForbidden": (False, "the key may not use this model: check its rights"),
    "modelOutOfMoney": (False, "add credit or raise the spending limit at the provider"),
    "modelUnknown": (False, "set config.model to a model that the provider has"),
    "modelBadRequest": (False, "what a server does not take is declared for its endpoint: quirks, in ACTS_MODELS"),
    "modelContextFull": (False, "the context is too long: scope it, or use a model with a larger window"),
    "modelRefused": (False, "the model refused to answer: change the task or the model"),
    "modelTruncated": (False, "raise config.maxOutputTokens, or let the model answer less at once"),
    "modelNotJson": (False, "the answer is not JSON: ask again, or use a model that follows schemas"),
    "modelRequestTooLarge": (False, "the request alone exceeds a rate limit: scope it, or lower maxOutputTokens"),
    "modelRateLimit": (True, "too many requests: a later attempt may succeed"),
    "modelOverloaded": (True, "the provider is overloaded: a later attempt may succeed"),
    "modelUnavailable": (True, "the provider failed or is unreachable: a later attempt may succeed"),
    "modelTimeout": (True, "nothing arrived in time: a later attempt may succeed"),
    "modelCut": (True, "the answer broke off: a later attempt may succeed"),
    "modelCancelled": (False, "somebody cancelled the batch at the provider"),
}
# The providers' words for a cause (error type, code, or reason), and the HTTP statuses, which say less
_WORDS: Final = {
    "modelUnauthorized": "authentication_error invalid_api_key API_KEY_INVALID 401",
    "modelOutOfMoney": "billing_error insufficient_quota enforced_spend_limit_reached billing_hard_limit_reached 402",
    "modelForbidden": "permission_error accessDeniedException 403",
    "modelUnknown": "not_found_error model_not_found invalid_model 404 410",
    "modelContextFull": "context_length_exceeded request_too_large exceed_context_size_error 413",
    "modelRateLimit": "rate_limit_error rate_limit_exceeded token_limit_exceeded throttlingException 429",
    "modelTimeout": "batch_expired",
    "modelCancelled": "batch_cancelled",
    "modelOverloaded": "overloaded_error serviceUnavailableException modelNotReadyException 503 529",
    "modelUnavailable": "408 409",
    "modelRefused": "invalid_prompt content_filter content_policy_violation bio_policy cyber_policy",
    "modelBadRequest": "invalid_request_error validationException",
}
_CODE_OF_WORD: Final = {word: code for code, words in _WORDS.items() for word in words.split()}
_CLIENT_ERRORS: Final = range(400, 500)
# What a message says, where the status leaves it open; the first that matches counts
_WORDINGS: Final = {
    "modelOutOfMoney": r"credit balance is too low|exceeded your current quota|spend(ing)? limit",
    "modelRequestTooLarge": r"request too large|tokens must be reduced|required for long context requests",
    "modelContextFull": r"prompt is too long|(maximum|exceeds? the( available)?) context|input token count",
    "modelUnknown": r"not a valid model id|invalid model: |model .{1,100} does not exist",
}
_OPEN_STATUSES: Final = (None, 200, 400, 413, 422, 429)
# Levels of errors within errors, and defects of a list that are read
_MAX_LEVELS: Final = 10
_MAX_DEFECTS: Final = 10
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s")
# Providers quote whole requests, and a history keeps every message as long as the run is kept
_MAX_MESSAGE: Final = 600


def find_code(message: str, status: int | None, words: Sequence[str], retry_after: float | None) -> str:
    """Our code for an error as a provider stated it; the most specific of the words is the first."""
    codes = [_CODE_OF_WORD[word] for word in words if word in _CODE_OF_WORD]
    if "modelOutOfMoney" in codes:
        return "modelOutOfMoney"
    worded = next((code for code, text in _WORDINGS.items() if re.search(text, message, re.IGNORECASE)), None)
    # Gemini calls a limit per minute an exceeded quota, and says when to retry
    is_rate = worded == "modelOutOfMoney" and status == 429 and retry_after is not None  # noqa: PLR2004
    if worded and status in _OPEN_STATUSES and not is_rate:
        return worded
    specific = next((code for code in codes if code != "modelBadRequest"), _CODE_OF_WORD.get(str(status)))
    is_rejected = codes if status is None else status in _CLIENT_ERRORS
    return specific or ("modelBadRequest" if is_rejected else "modelUnavailable")


def build_error(code: str, site: str, model: str, message: str, **more: Any) -> ModelError:
    """The ModelError of a request to a provider or an endpoint (``site``)."""
    retryable, advice = CODES[code]
    text = f"{site} ({model}): {truncate(message, _MAX_MESSAGE)}; {advice}"
    return ModelError(code, text, retryable=retryable, **more)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that the headers ask for, in milliseconds or in seconds."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def read_failure(stream: ResponseStream, error: Any) -> ModelError:
    """The ModelError of an error of an SDK: one with a status, or an ``{"error": …}`` in mid-stream without one."""
    facts = list(_read_body(error.body, _MAX_LEVELS))
    messages, words, pauses = ([text for k, text in facts if k == kind] for kind in ("message", "word", "pause"))
    # What OpenRouter says when its provider has said something better
    messages = [text for text in messages if text != "Provider returned error"] or messages
    response, status = getattr(error, "response", None), getattr(error, "status_code", None)
    headers = dict(response.headers) if response is not None else {}
    if pauses:
        headers = {"retry-after": pauses[0], **headers}
    code = getattr(error, "code", None)
    if status is None and isinstance(code, str) and code.isdigit():
        status = int(code)  # llama.cpp and others put it there
    message, retry_after = "; ".join(filter(None, messages)) or error.message, parse_retry_after(headers)
    failure = stream.error(find_code(message, status, words, retry_after), message)
    should_retry = headers.get("x-should-retry")
    if should_retry in ("true", "false") and failure.code not in ("modelOutOfMoney", "modelRequestTooLarge"):
        failure.retryable = should_retry == "true"
    failure.retryAfter = retry_after if failure.retryable else None
    request_id = getattr(error, "request_id", None) or stream.requestId
    details = {"status": status, "type": words[0] if words else None, "requestId": request_id}
    failure.details = {k: v for k, v in details.items() if v is not None}
    return failure


_NESTED: Final = ("error", "detail", "details", "message", "msg", "metadata", "raw")
_WORD_KEYS: Final = ("error_code", "reason", "code", "type", "status")


def _read_body(body: Any, levels: int) -> Iterator[tuple[str, str]]:
    """The facts of a body, as (kind, text), whatever its shape; those of servers that imitate OpenAI are many:

    {"error": {"message", "type", "code", "param"}}                      OpenAI, vLLM, Ollama, llama.cpp
    [{"error": {"code", "message", "status", "details": [{…}]}}]         Gemini: a list, the pause in details
    {"error": {"message", "code", "metadata": {"raw", …}}}               OpenRouter: the words of another provider
    {"detail": [{"type", "loc", "msg"}]}, {"detail": "…"}                FastAPI: Mistral, and many more
    {"message": {"detail": […]}, "type", …}, {"message": "{…}"}          Mistral, as an object and as JSON text
    {"error": "…"}, "…"                                                  LM Studio, Ollama, proxies
    """
    if levels == 0:
        return
    if isinstance(body, str):
        inner = None
        with contextlib.suppress(ValueError, RecursionError):
            inner = json.loads(body) if body.lstrip()[:1] in ("{", "[") else None
        yield from [("message", body)] if inner is None else _read_body(inner, levels - 1)
    elif isinstance(body, list):
        for item in body[:_MAX_DEFECTS]:
            yield from _read_body(item, levels - 1)
    elif isinstance(body, dict):
        for key, value in body.items():
            if key in _NESTED:
                yield from _read_body(value, levels - 1)
            elif key == "loc" and isinstance(value, list):  # the place of a defect
                yield "message", ".".join(map(str, value))
            elif key == "retryDelay" and (match := _SECONDS.fullmatch(str(value))):
                yield "pause", match[1]
            elif key in _WORD_KEYS and isinstance(value, str) and not value.isdigit():
                yield "word", value


# Two megabytes can be recorded; the rest is room for spaces and escapes. A longer answer is not read to its end
MAX_ANSWER_CHARACTERS: Final = 4 * MAX_PAYLOAD_BYTES
# Characters of it that an error has
_SHOWN: Final = 10_000
# The providers' words for answers that ended badly: (code, what happened)
_BAD_ENDINGS: Final = {
    **dict.fromkeys(
        ("max_tokens", "length", "max_output_tokens"), ("modelTruncated", "the answer needs more tokens than allowed")
    ),
    "model_context_window_exceeded": ("modelContextFull", "the window was full before the answer was complete"),
    "content_filter": ("modelRefused", "the provider's content filter stopped the answer"),
}
_TOOL_CALLS: Final = ("tool_use", "tool_calls", "function_call")
_FENCE: Final = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


class CallReader:
    """Reports each Call of an answer to ``schema`` while it arrives; exceptions of ``on_call`` are passed on.

    What the parser does not take (a number of more than 63 bits) ends the reports, too.
    """

    def __init__(self, on_call: CallReceiver, schema: Json) -> None:
        self._on_call, self._schema = on_call, schema
        self._calls: Any = ijson.sendable_list()
        self._parser: Any = ijson.items_coro(self._calls, "calls.item", use_float=True)
        self._count = 0
        self._levels = 0
        self._has_begun = False

    def feed(self, text: str) -> None:
        """Read the next piece of the text."""
        if self._parser is None:
            return
        if not self._has_begun:
            # A model that no schema holds may begin with a fence or a sentence
            _, brace, rest = text.partition("{")
            self._has_begun = bool(brace)
            text = brace + rest
        # The parser takes time by the levels, so it is not fed beyond them; brackets in strings count, too
        self._levels += text.count("{") + text.count("[") - text.count("}") - text.count("]")
        try:
            if self._levels > 2 * MAX_DEPTH:
                raise NestingError
            self._parser.send(text.encode())
        except (ijson.JSONError, ValueError, RecursionError, ArithmeticError, StopIteration):
            self._parser = None  # the Calls before the garbage are still reported
        calls = list(self._calls)
        del self._calls[:]
        for call in calls:
            self._count += 1
            self._on_call(self._count - 1, drop_nulls({"calls": [call], "output": None}, self._schema)["calls"][0])


def find_json(text: str) -> Json:
    """The JSON of a text: all of it, or that in a fence, between sentences, or after thoughts. Raises ValueError: no
    JSON is in it; the message says why the whole text is no JSON.
    """
    try:
        return read_json(text, unique_keys=True)
    except ValueError as error:
        reason = str(error) if text.strip() else "it is empty"
    fence = _FENCE.search(text)
    candidate = fence.group(1) if fence else text.rpartition("</think>")[2]
    values: list[Json] = []
    end = 0
    while len(values) < 2 and (start := candidate.find("{", end)) >= 0:  # noqa: PLR2004 - a second one is one too many
        try:
            value, end = UNIQUE_KEYS.raw_decode(candidate, start)
        except (ValueError, RecursionError):
            break
        values.append(value)
    if values and values[0] == values[-1]:
        return values[0]
    raise ValueError("it has two JSON objects, and only one is an answer" if values else reason)


def build_messages(
    request: ModelRequest, mark: dict[str, Any], most: int, write_file: Callable[[File], Any], kind: str = "text"
) -> list[dict[str, Any]]:
    """The conversation as messages with the mark at the last ``most`` cached blocks.

    A turn without files is plain text where no block is marked, and where it is one that ends no cached prefix.
    """
    turns = request.text_turns
    cached = [id(block) for turn in turns for block in turn.blocks if block.is_cached]
    marked = set(cached[-most:] if most else ())

    def content_of(blocks: tuple[PromptBlock, ...]) -> Any:
        is_plain = not any(block.file for block in blocks)
        if is_plain and (not marked or (len(blocks) == 1 and not blocks[0].is_cached)):
            return "\n\n".join(block.text for block in blocks)
        parts = []
        for block in blocks:
            parts.append({"type": kind, "text": block.text, **(mark if id(block) in marked else {})})
            parts += [] if block.file is None else [write_file(block.file)]
        return parts

    return [{"role": turn.role, "content": content_of(turn.blocks)} for turn in turns]


# -- answers ---------------------------------------------------------------------------


def dig(value: Any, *names: str) -> Any:
    """An attribute of an attribute; None where one is missing: the SDKs do not check what a server sends."""
    for name in names:
        value = getattr(value, name, None)
    return value


def count_tokens(value: Any) -> int:
    """A number of tokens, as far as a server states it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@dataclass
class ResponseStream:
    """One answer. ``finish_reason`` is the provider's word; None: the stream has not ended, or broke off.

    ``is_accepted``: the provider has taken the request, so a failure from now on breaks off an answer. ``notes`` say
    what of the request differs from the settings. ``price`` is the part of the list price that it costs.
    """

    endpoint: Endpoint
    request: ModelRequest
    on_call: CallReceiver | None
    sent: SentSchema
    notes: tuple[str, ...] = ()
    tokens: TokenCounts = field(default_factory=TokenCounts)
    model: str | None = None
    requestId: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    is_accepted: bool = False
    price: float = 1.0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Drop the text, which turns out to be none of the answer."""
        self._pieces: list[str] = []
        self._size = 0
        self._calls = CallReader(self.on_call, self.request.schema) if self.on_call else None

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add_text(self, text: str) -> None:
        """Add a piece of the answer. Raises ModelError: it has become too long to be of any use."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size > MAX_ANSWER_CHARACTERS:
            message = f"{self.endpoint.name} ({self.request.model}): the answer has more than {MAX_ANSWER_CHARACTERS:,}"
            usage = self.usage() | {"text": self.text[:_SHOWN]}
            raise ModelError(RESULT_TOO_LARGE, f"{message} characters", retryable=False, **usage)
        if text:
            tell(text)
        if self._calls is not None:
            self._calls.feed(text)

    def add_refusal(self, text: str) -> None:
        self.refusal = (self.refusal or "") + text

    # -- usage -------------------------------------------------------------------

    @property
    def cost(self) -> float | None:
        """US dollars, or None where the price is unknown. A server may answer with another name for the model."""
        lists, model = self.endpoint.price_lists, self.request.model
        actual = cost_of(lists, self.model or model, self.tokens)
        cost = cost_of(lists, model, self.tokens) if actual is None else actual
        return None if cost is None else self.price * cost

    def usage(self) -> dict[str, Any]:
        """The fields of a ModelError about the answer: tokens, cost and text."""
        self._estimate_tokens()
        is_known = self.tokens != TokenCounts()
        return {"tokens": self.tokens if is_known else None, "cost": self.cost if is_known else None, "text": self.text}

    def _estimate_tokens(self) -> None:
        """Estimate by the texts what the provider did not state, or not before the answer broke off."""
        if not self.text or (self.finish_reason is not None and self.tokens != TokenCounts()):
            return
        per_token = bytes_per_token(f"{self.endpoint.provider}:")
        written = max(1, round(len(self.text.encode(errors="replace")) / per_token))
        if self.tokens == TokenCounts():
            blocks = [*self.request.system, *(b for turn in self.request.turns for b in turn.blocks)]
            texts = sum(len(b.text.encode(errors="replace")) for b in blocks)
            read = max(1, round((texts + sum(file.text_bytes for file in self.request.files)) / per_token))
            self.tokens = TokenCounts(inputTokens=read, outputTokens=written)
            note = f"{self.request.model} stated no usage: it is estimated by the length of the texts"
            self.notes = (*self.notes, note)
        else:  # what a provider states at the beginning
            self.tokens = replace(self.tokens, outputTokens=max(written, self.tokens.outputTokens))

    def error(self, code: str, message: str) -> ModelError:
        """The error of an answer that ended badly."""
        more: dict[str, Any] = {"details": {"requestId": self.requestId} if self.requestId else {}, **self.usage()}
        if code == "modelTruncated":
            more["cap"] = self.request.maxOutputTokens
        if code == "modelBadRequest" and (media := {file.media for file in self.request.files}):
            message = f"the request has files ({', '.join(sorted(media))}), which not every model takes: {message}"
        return build_error(
            code, self.endpoint.name, self.request.model, message, finishReason=self.finish_reason, **more
        )

    def response(self) -> ModelResponse:
        """The complete answer. Raises ModelError: it is cut, a refusal, broke off, or has no JSON."""
        end = self.finish_reason
        if end in _BAD_ENDINGS:
            raise self.error(*_BAD_ENDINGS[end])
        if self.refusal is not None:
            raise self.error("modelRefused", self.refusal or "it refused")
        if end is None:
            raise self.error("modelCut", "the stream ended before the answer did")
        try:
            value = drop_nulls(find_json(self.text), self.request.schema)
        except ValueError as error:
            reason = "it called a tool of the provider" if end in _TOOL_CALLS else error
            raise self.error("modelNotJson", f"its answer cannot be read: {reason}") from None
        self._estimate_tokens()
        return ModelResponse(
            self.text, value, self.tokens, self.cost, self.requestId, self.model, self.sent.form, self.notes, end
        )


async def begin_stream(
    endpoint: Endpoint, request: ModelRequest, on_call: CallReceiver | None, default_cap: int | None
) -> ResponseStream:
    """The stream of a request that has the settings and the schema as its model takes them."""
    adapted, notes = adapt_settings(request, default_cap)
    # In a thread: a hundred Tools take half a second; the words are kept with it
    sent = await asyncio.to_thread(choose_form, request.schema, endpoint.provider, endpoint.quirks.first_form)
    await asyncio.to_thread(getattr, sent, "in_words")
    return ResponseStream(endpoint, adapted, on_call, sent, notes)


async def receive(
    stream: ResponseStream, sdk: Any, answer: Awaitable[Any], handle: Callable[[ResponseStream, Any], None]
) -> ModelResponse:
    """The answer to a request, of which ``handle`` reads each event. Raises ModelError, also where the SDK raises."""
    with reading_failures(stream, sdk):
        async with await answer as events:
            headers = events.response.headers
            stream.is_accepted, stream.requestId = True, headers.get("request-id") or headers.get("x-request-id")
            async for event in events:
                handle(stream, event)
        return stream.response()


@contextlib.contextmanager
def reading_failures(stream: ResponseStream, sdk: Any) -> Iterator[None]:
    """A block that raises ModelError where the SDK raises an error of its own."""
    try:
        yield
    except ModelError:
        raise
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise stream.error("modelTimeout", str(error)) from error
    except (sdk.APIConnectionError, httpx2.HTTPError, ValueError) as error:
        # ValueError: an event that is not JSON, as when a proxy breaks off in the middle of one
        code = "modelCut" if stream.is_accepted else "modelUnavailable"
        raise stream.error(code, str(error.__cause__ or error) or type(error).__name__) from error
    except sdk.APIError as error:
        raise read_failure(stream, error) from error
    except Exception as error:
        cloud = stream.endpoint.cloud
        if cloud is None or stream.is_accepted:
            raise
        # A cloud's credentials are looked up at the first request
        kind = type(error).__name__
        code = "modelUnavailable" if _PASSING.search(kind) else "modelNoKey"
        raise stream.error(code, f"no credentials of {cloud}: {kind}: {error}") from error
