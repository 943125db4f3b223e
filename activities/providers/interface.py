"""The types between the engine and its model providers: one request, one response, one error.

A ModelRequest is one request: no hidden retries, no state between requests. An adapter (one file per provider) turns it
into its provider's request, reads the answer as a stream, and reports failures with our codes. ``select.py`` picks the
adapter by the name of the model, ``provider:name``. Nothing here knows a provider, Temporal, or what a Call is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from acts.language.values import Json


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A piece of the prompt. ``is_cached``: later requests begin with the same bytes up to the end of this block.

    ``is_rules``: the engine's own words, the same in every run.
    """

    text: str
    is_cached: bool = False
    is_rules: bool = False


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One turn of the conversation: ``role`` is ``user`` or ``assistant``."""

    role: str
    blocks: tuple[PromptBlock, ...]

    @property
    def plain_text(self) -> str | None:
        """The text of a turn that is one block and ends no cached prefix."""
        is_plain = len(self.blocks) == 1 and not self.blocks[0].is_cached
        return self.blocks[0].text if is_plain else None


@dataclass(frozen=True, slots=True)
class RepairTurn:
    """An answer that could not be used, and our reply to it."""

    answer: str
    reply: str

    @property
    def turns(self) -> tuple[ModelTurn, ModelTurn]:
        """The two as turns."""
        answer = ModelTurn("assistant", (PromptBlock(self.answer.rstrip()),))
        return answer, ModelTurn("user", (PromptBlock(self.reply),))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. ``model`` is the name without its provider. ``turns`` alternate, the user's first and last.

    ``schema`` is the JSON Schema (2020-12) of the answer in our protocol's form: an adapter translates it for its
    provider, and the answer back. ``label`` names the schema (letters, digits, ``_``, ``-``). ``cache_key`` is the same
    for all requests of a run, for providers that route by such a key. ``topic`` is the subject: ``tick 3``, or the name
    of a latent Call's Tool. ``maxOutputTokens`` counts thinking too. ``effort`` is one of ``model_table.EFFORTS``.
    ``on_begin`` is called when the answer begins, so the provider has read the input; perhaps more than once.
    """

    model: str
    system: tuple[PromptBlock, ...]
    turns: tuple[ModelTurn, ...]
    schema: Json
    label: str = "solution"
    repairs: tuple[RepairTurn, ...] = ()
    temperature: float | None = None
    maxOutputTokens: int | None = None
    effort: str | None = None
    cache_key: str = ""
    topic: str = ""
    on_begin: Callable[[], None] | None = None

    @property
    def all_turns(self) -> tuple[ModelTurn, ...]:
        """The turns, those of the repairs at their end; blocks without text are left out."""
        repairs = (turn for repair in self.repairs for turn in repair.turns)
        shown = ((t.role, tuple(b for b in t.blocks if b.text.strip())) for t in (*self.turns, *repairs))
        return tuple(ModelTurn(role, blocks or (PromptBlock(_NOTHING[role]),)) for role, blocks in shown)


# What stands for a turn without text: providers refuse an empty one
_NOTHING: Final = {"user": "Answer.", "assistant": "(nothing)"}


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of one request. ``inputTokens`` includes the cached ones, ``outputTokens`` the reasoning."""

    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    cacheWriteTokens: int = 0
    reasoningTokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """``value`` is the answer as JSON in the form of the request's schema, not checked against it.

    ``text`` is the answer as the model wrote it. ``cost`` is in US dollars, None where no price list has the model.
    ``form`` is that in which the schema was sent (``schema_ladder.py``). ``notes`` say what differs from the settings.
    ``finishReason`` is the provider's word for why the answer ended.
    """

    text: str
    value: Json
    tokens: TokenCounts = field(default_factory=TokenCounts)
    cost: float | None = None
    requestId: str | None = None
    model: str | None = None
    form: str = "strict"
    notes: tuple[str, ...] = ()
    finishReason: str | None = None

    @property
    def strict(self) -> bool:
        """True when the provider enforced the whole schema."""
        return self.form == "strict"


class ModelError(Exception):
    """A request without a usable answer.

    ``code`` is one word for programs; the message says what to do. ``retryAfter`` is in seconds. ``tokens`` and
    ``cost`` are what the request used all the same (None: unknown), ``text`` is what had arrived of the answer.
    ``cap`` is that of a truncated answer, ``longest`` the longest answer of its model, in tokens, as far as known.
    """

    cap: int | None = None
    longest: int | None = None
    finishReason: str | None = None

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool,
        retryAfter: float | None = None,  # noqa: N803 - named like the field
        tokens: TokenCounts | None = None,
        cost: float | None = None,
        text: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retryAfter = retryAfter
        self.tokens = tokens
        self.cost = cost
        self.text = text
        self.details = details or {}


CallReceiver = Callable[[int, Json], None]
"""Receives each Call of a Solution when its last byte arrives: its index from 0, and its JSON in our form."""


class Adapter(Protocol):
    """A provider."""

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """Make one request and read the answer as a stream. Cancelling closes the connection.

        Pass ``on_call`` only where the schema is that of a Solution.

        Raises:
            ModelError: there is no usable answer.
        """
        ...
