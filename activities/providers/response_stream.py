"""What all adapters do alike: read a streamed answer, make JSON of it, say what it cost.

* What is asked for in words where a provider cannot be held to a schema stands here.
* Prices come from the list that ships with ``genai-prices``; nothing is fetched.
* Clients are built once for each event loop and set of credentials: a connection pool
  must not outlive its loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from activities.providers.interface import ModelError, ModelRequest, ModelResponse, Progress, Usage
from activities.providers.provider_errors import failure
from activities.providers.provider_keywords import Provider, compact
from activities.providers.schema_bridge import Wire, to_wire
from activities.providers.streamed_calls import StreamedCalls
from acts.language.values import Json

_T = TypeVar("_T")

# Enough for some hundred Calls; a model that thinks first spends from it too
DEFAULT_MAX_TOKENS: Final = 32_000
# Between two pieces of an answer, in seconds. A model may think for minutes without a word;
# what bounds the request as a whole is the activity's own timeout.
READ_TIMEOUT: Final = 300.0
CONNECT_TIMEOUT: Final = 10.0

ONLY_JSON: Final = "Answer with one JSON value and nothing else. It must fit this JSON Schema:\n"


@dataclass
class ResponseStream:
    """One answer, as it arrives. ``finish`` is the provider's word for why it ended, None: it broke off.

    ``begun``: the provider has taken the request, so that what fails now breaks off an answer.
    """

    provider: str
    question: ModelRequest
    wire: Wire
    progress: Progress
    strict: bool
    parts: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    requestId: str | None = None
    finish: str | None = None
    refusal: str | None = None
    begun: bool = False

    def __post_init__(self) -> None:
        self._partial = StreamedCalls(self._call)

    def add(self, text: str) -> None:
        """Take a piece of the answer."""
        self.parts.append(text)
        self._partial.feed(text)

    def _call(self, index: int, call: Json) -> None:
        undone = self.wire.undo({"calls": [call]})
        calls = undone.get("calls") if isinstance(undone, dict) else None
        self.progress(index, calls[0] if isinstance(calls, list) and calls else call)

    @property
    def text(self) -> str:
        """What has arrived."""
        return "".join(self.parts)

    def spent(self) -> dict[str, Any]:
        """What an error says of the answer: usage, cost and text."""
        known = self.usage != Usage()
        return {"usage": self.usage if known else None, "cost": self.cost() if known else None, "text": self.text}

    def cost(self) -> float | None:
        """US dollars, or None where the price is not known."""
        found = cost(self.provider, self.model or self.question.model, self.usage)
        return cost(self.provider, self.question.model, self.usage) if found is None else found

    def failed(self, code: str, message: str) -> ModelError:
        """The error of an answer that ended badly."""
        details = {"requestId": self.requestId} if self.requestId else None
        return failure(code, self.provider, self.question.model, message, details=details, **self.spent())

    def answer(self) -> ModelResponse:
        """The answer; raises ModelError where it is none."""
        if self.refusal is not None:
            raise self.failed("modelRefused", self.refusal or "it refused")
        if self.finish is None:
            raise self.failed("modelCut", "the stream ended before the answer did")
        try:
            value = parsed(self.text)
        except ValueError as error:
            raise self.failed("modelNotJson", f"its answer cannot be read: {error}") from None
        return ModelResponse(
            text=self.text,
            value=self.wire.undo(value),
            usage=self.usage,
            cost=self.cost(),
            requestId=self.requestId,
            model=self.model,
            strict=self.strict,
        )


def begin(provider: Provider, question: ModelRequest, progress: Progress, *, strict: bool) -> ResponseStream:
    """A Reading whose schema is bridged for the provider, or only shown where it is not strict."""
    return ResponseStream(
        provider, question, to_wire(question.schema, provider if strict else "plain"), progress, strict
    )


def shown(schema: Json) -> str:
    """A schema in words, for models that nobody holds to it."""
    return ONLY_JSON + compact(schema)


# -- JSON ------------------------------------------------------------------------


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


_FENCE: Final = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def parsed(text: str) -> Json:
    """The JSON of an answer, be it in a fence or between sentences; ValueError says why there is none."""
    try:
        return _decoded(text)
    except ValueError as error:
        why = error
    fence = _FENCE.search(text)
    for candidate in (fence.group(1) if fence else "", _after_thinking(text)):
        begin_at = candidate.find("{")
        if begin_at >= 0:
            try:
                return _decoded(candidate[begin_at:], whole=False)
            except ValueError:
                continue
    if not text.strip():
        raise ValueError("it is empty")
    raise ValueError(str(why))


def _decoded(text: str, *, whole: bool = True) -> Json:
    try:
        return _DECODER.decode(text) if whole else _DECODER.raw_decode(text)[0]
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _after_thinking(text: str) -> str:
    """Open models may write what they think before the answer."""
    return text.rpartition("</think>")[2]


# -- money -----------------------------------------------------------------------


def cost(provider: str, model: str, usage: Usage) -> float | None:
    """What the tokens cost in US dollars, or None where no price list knows the model."""
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    tokens = Tokens(
        input_tokens=usage.inputTokens,
        output_tokens=usage.outputTokens,
        cache_read_tokens=usage.cachedTokens,
        cache_write_tokens=usage.cacheWriteTokens,
    )
    try:
        return float(calc_price(tokens, model_ref=model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None  # ValueError: counts that contradict each other, as some servers send


# -- clients ---------------------------------------------------------------------

_CLIENTS: Final[weakref.WeakKeyDictionary[Any, dict[Any, Any]]] = weakref.WeakKeyDictionary()


def client_of(key: tuple[Any, ...], build: Callable[[], _T]) -> _T:
    """The client of this event loop for these settings, built when it is first needed."""
    mine = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if key not in mine:
        mine[key] = build()
    return mine[key]  # type: ignore[no-any-return]


async def close_clients() -> None:
    """Close the connections of this event loop; the next request builds its client anew."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


def count(value: Any) -> int:
    """A number of tokens, as far as a server says it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
