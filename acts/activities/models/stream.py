"""A streamed answer of any provider: its text, its Calls while they arrive, its tokens and cost, and how it ended.

The adapters feed the text piece by piece. Each Call of ``calls`` in the root object is reported as soon as its closing
brace arrives: a hint, which ends with the first text that is not JSON. The answer itself is read as a whole when it is
complete. What both adapters share of their requests is here, too. Nothing here knows a provider's SDK:
``translate_failures`` gets it as an argument, because both have the same errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2
import ijson

from acts.activities.models.clients import credentials_error
from acts.activities.models.endpoints import Endpoint
from acts.activities.models.interface import (
    CallReceiver,
    ModelError,
    ModelRequest,
    ModelResponse,
    PromptBlock,
    TokenCounts,
)
from acts.activities.models.model_facts import adapt_settings, cost_of, max_output_tokens
from acts.activities.models.provider_errors import build_error, read_fault
from acts.activities.models.schema import Dialect, SentSchema, choose_form, drop_nulls
from acts.language.strict_json import UNIQUE_KEYS, NestingError, read_json
from acts.language.values import MAX_DEPTH, Json
from acts.language.wire import MAX_PAYLOAD_BYTES, RESULT_TOO_LARGE
from acts.planner.request_estimate import bytes_per_token

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


# -- JSON ------------------------------------------------------------------------------


class CallReader:
    """Reports each Call of an answer while it arrives; exceptions of ``on_call`` are passed on.

    What the parser does not take (a number beyond 64 bits) ends the reports, too.
    """

    def __init__(self, on_call: CallReceiver) -> None:
        self._on_call = on_call
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
            self._on_call(self._count - 1, call)


def find_json(text: str) -> Json:
    """The JSON of a text: all of it, or that in a fence, between sentences, or after thoughts.

    Raises:
        ValueError: no JSON is in it; the message says why the whole text is no JSON.
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


# -- requests --------------------------------------------------------------------------


def build_block(block: PromptBlock, kind: str, mark: dict[str, Any]) -> dict[str, Any]:
    """A block as all three APIs have it; ``mark`` ends a cached prefix."""
    return {"type": kind, "text": block.text, **mark}


def build_messages(
    request: ModelRequest, mark: dict[str, Any], most: int, kind: str = "text", *, prefers_text: bool = False
) -> list[dict[str, Any]]:
    """The conversation as messages with the mark at the last ``most`` cached blocks.

    A turn is plain text where it is one block that ends no cached prefix, and with ``prefers_text`` wherever it has no
    mark.
    """
    turns = request.text_turns
    cached = [id(block) for turn in turns for block in turn.blocks if block.is_cached]
    marked = set(cached[-most:] if most else ())

    def content_of(blocks: tuple[PromptBlock, ...]) -> Any:
        is_marked = any(id(block) in marked for block in blocks)
        if not is_marked and (prefers_text or (len(blocks) == 1 and not blocks[0].is_cached)):
            return "\n\n".join(block.text for block in blocks)
        return [build_block(block, kind, mark if id(block) in marked else {}) for block in blocks]

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
    what of the request differs from the settings.
    """

    provider: str
    request: ModelRequest
    on_call: CallReceiver | None
    sent: SentSchema
    notes: tuple[str, ...] = ()
    endpoint: Endpoint | None = None
    tokens: TokenCounts = field(default_factory=TokenCounts)
    model: str | None = None
    requestId: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    is_accepted: bool = False

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Drop the text, which turns out to be none of the answer."""
        self._pieces: list[str] = []
        self._size = 0
        self._calls = CallReader(self._receive_call) if self.on_call else None

    @property
    def site(self) -> str:
        """The provider or the endpoint, as errors name it."""
        return self.provider if self.endpoint is None else self.endpoint.name

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self._pieces)

    def add_text(self, text: str) -> None:
        """Add a piece of the answer.

        Raises:
            ModelError: it has become too long to be of any use.
        """
        self._pieces.append(text)
        self._size += len(text)
        if self._size > MAX_ANSWER_CHARACTERS:
            message = f"{self.site} ({self.request.model}): the answer has more than {MAX_ANSWER_CHARACTERS:,}"
            usage = self.usage() | {"text": self.text[:_SHOWN]}
            raise ModelError(RESULT_TOO_LARGE, f"{message} characters", retryable=False, **usage)
        if self._calls is not None:
            self._calls.feed(text)

    def add_refusal(self, text: str) -> None:
        """Add a piece of a refusal."""
        self.refusal = (self.refusal or "") + text

    def _receive_call(self, index: int, call: Json) -> None:
        (own,) = drop_nulls({"calls": [call], "output": None}, self.request.schema)["calls"]
        if self.on_call is not None:
            self.on_call(index, own)

    # -- usage -------------------------------------------------------------------

    @property
    def cost(self) -> float | None:
        """US dollars, or None where the price is unknown. A server may answer with another name for the model."""
        lists = (self.provider,) if self.endpoint is None else self.endpoint.price_lists
        actual = cost_of(lists, self.model or self.request.model, self.tokens)
        return cost_of(lists, self.request.model, self.tokens) if actual is None else actual

    def usage(self) -> dict[str, Any]:
        """The fields of a ModelError about the answer: tokens, cost and text."""
        self._estimate_tokens()
        is_known = self.tokens != TokenCounts()
        return {"tokens": self.tokens if is_known else None, "cost": self.cost if is_known else None, "text": self.text}

    def _estimate_tokens(self) -> None:
        """Estimate by the texts what the provider did not state, or not before the answer broke off."""
        if not self.text or (self.finish_reason is not None and self.tokens != TokenCounts()):
            return
        per_token = bytes_per_token(f"{self.provider}:")
        written = max(1, round(len(self.text.encode(errors="replace")) / per_token))
        if self.tokens == TokenCounts():
            blocks = [*self.request.system, *(b for turn in self.request.turns for b in turn.blocks)]
            read = max(1, round(sum(len(b.text.encode(errors="replace")) for b in blocks) / per_token))
            self.tokens = TokenCounts(inputTokens=read, outputTokens=written)
            note = f"{self.request.model} stated no usage: it is estimated by the length of the texts"
            self.notes = (*self.notes, note)
        else:  # what a provider states at the beginning
            self.tokens = replace(self.tokens, outputTokens=max(written, self.tokens.outputTokens))

    # -- the end -----------------------------------------------------------------

    def error(self, code: str, message: str) -> ModelError:
        """The error of an answer that ended badly."""
        details = {"requestId": self.requestId} if self.requestId else {}
        error = build_error(code, self.site, self.request.model, message, details=details, **self.usage())
        error.finishReason = self.finish_reason
        if code == "modelTruncated":
            error.cap, error.longest = self.request.maxOutputTokens, max_output_tokens(self.request.model)
        return error

    def response(self) -> ModelResponse:
        """The complete answer.

        Raises:
            ModelError: it is cut, a refusal, broke off, or has no JSON.
        """
        if self.finish_reason in _BAD_ENDINGS:
            raise self.error(*_BAD_ENDINGS[self.finish_reason])
        if self.refusal is not None:
            raise self.error("modelRefused", self.refusal or "it refused")
        if self.finish_reason is None:
            raise self.error("modelCut", "the stream ended before the answer did")
        try:
            value = drop_nulls(find_json(self.text), self.request.schema)
        except ValueError as error:
            reason = "it called a tool of the provider" if self.finish_reason in _TOOL_CALLS else error
            raise self.error("modelNotJson", f"its answer cannot be read: {reason}") from None
        self._estimate_tokens()
        return ModelResponse(
            text=self.text,
            value=value,
            tokens=self.tokens,
            cost=self.cost,
            requestId=self.requestId,
            model=self.model,
            form=self.sent.form,
            notes=self.notes,
            finishReason=self.finish_reason,
        )


async def begin_stream(
    provider: Dialect,
    request: ModelRequest,
    on_call: CallReceiver | None,
    endpoint: Endpoint | None,
    default_cap: int | None,
) -> ResponseStream:
    """The stream of a request that has the settings and the schema as its model takes them."""
    adapted, notes = adapt_settings(request, default_cap)
    first = endpoint.quirks.first_form if endpoint else "strict"
    # In a thread: a hundred Tools take half a second
    sent = await asyncio.to_thread(choose_form, request.schema, provider, first)
    return ResponseStream(provider, adapted, on_call, sent, notes, endpoint)


@contextlib.contextmanager
def translate_failures(stream: ResponseStream, sdk: Any) -> Iterator[None]:
    """Turn what a provider's SDK raises into a ModelError."""
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
        raise read_fault(error).to_error(stream.site, stream.request.model, **stream.usage()) from error
    except Exception as error:
        failure = None if stream.is_accepted else credentials_error(stream.endpoint, stream.request.model, error)
        if failure is None:
            raise
        raise failure from error
