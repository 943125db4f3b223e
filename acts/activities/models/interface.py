"""The types between the engine and its model providers: one request, one response, one error.

A ModelRequest is one request: no hidden retries, no state between requests. An adapter, one file per provider with an
``ask(request, on_call, endpoint)``, turns it into its provider's request, reads the answer as a stream, and raises
ModelError where there is no usable one; cancelling closes the connection. ``on_call`` is for the schema of a Solution.
``select.py`` picks the adapter by the name of the model, ``provider:name``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

from acts.language.values import Json
from acts.planner.notation import File


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A piece of the prompt. ``is_cached``: later requests begin with the same bytes up to the end of this block.

    ``is_rules``: the engine's own words, the same in every run. ``file`` follows after the text.
    """

    text: str
    is_cached: bool = False
    is_rules: bool = False
    file: File | None = None


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One turn of the conversation: ``role`` is ``user`` or ``assistant``."""

    role: str
    blocks: tuple[PromptBlock, ...]


# What stands for a turn without text: providers refuse an empty one
_NOTHING: Final = {"user": "Answer.", "assistant": "(nothing)"}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. ``model`` is the name without its provider. ``turns`` alternate, the user's first and last.

    ``schema`` is the JSON Schema (2020-12) of the answer: an adapter sends it in the form that its provider takes.
    ``label`` names the schema (letters). ``cache_key`` is the same for all requests of a run, for providers that route
    by such a key. ``topic`` is the subject: ``tick 3``, or the name of a latent Call's Tool. ``maxOutputTokens`` counts
    thinking too. ``effort`` is one of ``endpoints.EFFORTS``.
    """

    model: str
    system: tuple[PromptBlock, ...]
    turns: tuple[ModelTurn, ...]
    schema: Json
    label: str = "solution"
    temperature: float | None = None
    maxOutputTokens: int | None = None
    effort: str | None = None
    cache_key: str = ""
    topic: str = ""

    @property
    def files(self) -> list[File]:
        return [block.file for turn in self.turns for block in turn.blocks if block.file is not None]

    @property
    def text_turns(self) -> tuple[ModelTurn, ...]:
        """The turns without the blocks that have no text."""
        turns = ((turn.role, tuple(b for b in turn.blocks if b.text.strip())) for turn in self.turns)
        return tuple(ModelTurn(role, blocks or (PromptBlock(_NOTHING[role]),)) for role, blocks in turns)

    def with_repair(self, answer: str, reply: str) -> ModelRequest:
        """The request after an answer that could not be used, with our reply to it."""
        turns = ("assistant", answer.rstrip()), ("user", reply)
        return replace(self, turns=(*self.turns, *(ModelTurn(role, (PromptBlock(text),)) for role, text in turns)))


@dataclass(frozen=True, slots=True)
class BatchItem:
    """Where a request waits: ``item`` is its name in the ``batch``, submitted ``since`` (Unix time)."""

    model: str
    batch: str
    item: str
    since: float


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
    ``form`` is that in which the schema was sent (``schema.py``). ``notes`` say what differs from the settings.
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


@dataclass(eq=False)
class ModelError(Exception):
    """A request without a usable answer.

    ``code`` is one word for programs; the message says what to do. ``retryAfter`` is in seconds. ``tokens`` and
    ``cost`` are what the request used all the same (None: unknown), ``text`` is what had arrived of the answer.
    ``cap`` is the cap that cut a truncated answer, in tokens, if known.
    """

    code: str
    message: str
    _: KW_ONLY
    retryable: bool
    retryAfter: float | None = None
    tokens: TokenCounts | None = None
    cost: float | None = None
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    cap: int | None = None
    finishReason: str | None = None

    def __str__(self) -> str:
        return self.message


CallReceiver = Callable[[int, Json], None]
"""Receives each Call of a Solution when its last byte arrives: its index from 0, and its JSON in our form."""
