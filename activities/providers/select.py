"""The choice of the provider: the name of a model is ``provider:name``, and nothing else decides.

An adapter and its SDK are imported when the first of its models is asked, because the SDKs take a second to import. The
adapter is then kept as long as the process lives: it holds which schemas and parameters its models reject.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from typing import Final

from activities.providers.interface import Adapter, CallReceiver, ModelError, ModelRequest, ModelResponse

PROVIDERS: Final[dict[str, tuple[str, str]]] = {
    "anthropic": ("activities.providers.anthropic", "Anthropic"),
    "openai": ("activities.providers.openai", "OpenAI"),
    "scripted": ("activities.providers.scripted", "Scripted"),
}
"""provider: (module, class of its adapter)."""

_ADAPTERS: Final[dict[str, Adapter]] = {}


def split_model(model: str) -> tuple[str, str]:
    """The provider and the name of a model.

    Raises:
        ModelError: ``modelUnknown``.
    """
    provider, _, name = model.partition(":")
    if not name or provider not in PROVIDERS:
        choices = ", ".join(f"{p}:…" for p in PROVIDERS)
        raise ModelError("modelUnknown", f"unknown model {model!r}; allowed: {choices}", retryable=False)
    return provider, name


async def ask(model: str, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
    """One request to ``provider:name``; the name replaces ``request.model``. Raises ModelError."""
    provider, name = split_model(model)
    if provider not in _ADAPTERS:
        await asyncio.to_thread(_load_adapter, provider)
    return await _ADAPTERS[provider].ask(replace(request, model=name), on_call)


def _load_adapter(provider: str) -> None:
    module, name = PROVIDERS[provider]
    try:
        build = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ModelError("modelUnknown", f"{provider}: cannot be loaded: {error}", retryable=False) from error
    _ADAPTERS.setdefault(provider, build())  # two threads may load it at once: one adapter is kept
