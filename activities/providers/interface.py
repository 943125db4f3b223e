"""What a model is asked and what it answers, whoever provides it.

One Question is one request: no hidden retries, no state between requests. An adapter
(one file per provider) turns a Question into its provider's request, reads the answer
as a stream, and says what went wrong in our words. Which provider answers is decided
by the name of the model (``provider:name``) in ``client.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from acts.language.values import Json


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A piece of the prompt. ``cache``: what stands up to here comes again, byte for byte."""

    text: str
    cache: bool = False


@dataclass(frozen=True, slots=True)
class RepairTurn:
    """An answer that could not be used, and what was said about it."""

    answer: str
    reply: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. ``model`` is the name without its provider.

    ``schema`` is the JSON Schema (2020-12) of the answer, as our protocol has it: an
    adapter bridges it to what its provider takes and undoes that in the answer.
    ``name`` labels it (letters, digits, ``_``, ``-``). ``key`` is the same for all
    requests of one run, for providers that route by such a key. ``topic`` is what is
    asked about: ``tick 3``, or the name of a latent Call's Tool.
    """

    model: str
    system: tuple[PromptBlock, ...]
    user: tuple[PromptBlock, ...]
    schema: Json
    name: str = "solution"
    turns: tuple[RepairTurn, ...] = ()
    temperature: float | None = None
    maxOutputTokens: int | None = None
    key: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. ``inputTokens`` includes the cached ones, ``outputTokens`` the reasoning."""

    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    cacheWriteTokens: int = 0
    reasoningTokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """``value`` is the answer's JSON, in the form of the Question's schema; not yet checked against it.

    ``text`` is what the model wrote. ``cost`` is in US dollars, None where no price list
    knows the model. ``strict`` says that the provider was made to follow the schema.
    """

    text: str
    value: Json
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    requestId: str | None = None
    model: str | None = None
    strict: bool = True


class ModelError(Exception):
    """A request that brought no usable answer.

    ``code`` is one word for programs, the message says what to do. ``retryAfter`` is in
    seconds. ``usage`` is what was spent all the same, ``text`` what had arrived.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool,
        retryAfter: float | None = None,  # noqa: N803 - named like the field
        usage: Usage | None = None,
        cost: float | None = None,
        text: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retryAfter = retryAfter
        self.usage = usage
        self.cost = cost
        self.text = text
        self.details = details or {}


Progress = Callable[[int, Json], None]
"""Told of each Call of a Solution as soon as it is complete: its index from 0, and its JSON (bridged back)."""


class Adapter(Protocol):
    """A provider. Raises ModelError, and ``asyncio.CancelledError`` after closing its connection."""

    async def ask(self, question: ModelRequest, progress: Progress) -> ModelResponse:
        """One request, read as a stream."""
        ...

    def price(self, model: str) -> bool:
        """True when a price list knows the model."""
        ...
