"""Which provider answers: decided by the name of the model, ``provider:name``, and nothing else.

An adapter and its SDK are imported when a model of theirs is first asked, because the
SDKs are slow to import; then it is kept for as long as the process lives, with its
connections and with what it has learned about its models.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from typing import Final

from activities.providers.interface import Adapter, ModelError, ModelRequest, ModelResponse, Progress
from acts.language.values import Json

PROVIDERS: Final[dict[str, tuple[str, str]]] = {
    "anthropic": ("activities.providers.anthropic", "Anthropic"),
    "openai": ("activities.providers.openai", "OpenAI"),
    "scripted": ("activities.providers.scripted", "Scripted"),
}
"""provider: (module, class of its adapter)."""


def split(model: str) -> tuple[str, str]:
    """The provider and the name of a model; raises ModelError ``modelUnknown``."""
    provider, colon, name = model.partition(":")
    if not colon or not name or provider not in PROVIDERS:
        allowed = ", ".join(f"{p}:…" for p in PROVIDERS)
        raise ModelError("modelUnknown", f"unknown model {model!r}; allowed: {allowed}", retryable=False)
    return provider, name


async def ask(model: str, question: ModelRequest, progress: Progress | None = None) -> ModelResponse:
    """One request to ``provider:name``; the name replaces ``question.model``. Raises ModelError."""
    provider, name = split(model)
    if provider not in _ADAPTERS:
        await asyncio.to_thread(_loaded, provider)  # importing an SDK takes a second
    if question.model != name:
        question = replace(question, model=name)
    return await _loaded(provider).ask(question, progress or _silent)


def priced(model: str) -> bool:
    """True when a price list knows the model. Loads the provider's SDK."""
    try:
        provider, name = split(model)
    except ModelError:
        return False
    return _loaded(provider).price(name)


_ADAPTERS: Final[dict[str, Adapter]] = {}


def _loaded(provider: str) -> Adapter:
    if provider not in _ADAPTERS:
        module, name = PROVIDERS[provider]
        try:
            build = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ModelError("modelUnknown", f"{provider}: cannot be loaded: {error}", retryable=False) from error
        _ADAPTERS.setdefault(provider, build())  # two threads may come here at once: one adapter is kept
    return _ADAPTERS[provider]


def _silent(index: int, call: Json) -> None:
    """Nobody wants to know."""
