"""The choice of the adapter by the name of a model: ``provider:name``, or ``endpoint/name`` of ``ACTS_MODELS``.

Of ``:`` and ``/`` the first in the name decides. An adapter and its SDK are imported when the first of its models is
asked, because the SDKs take a second to import. The adapter is then kept as long as the process lives: it holds which
schemas and parameters its models reject. Each endpoint has an adapter of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from dataclasses import dataclass, replace
from typing import Final

from activities.providers.endpoints import VARIABLE, Endpoint, EndpointsError, from_environment
from activities.providers.interface import Adapter, CallReceiver, ModelError, ModelRequest, ModelResponse
from activities.providers.request_observer import observe, provider_name
from acts.language.errors import format_choices, truncate

PROVIDERS: Final[dict[str, tuple[str, str]]] = {
    "anthropic": ("activities.providers.anthropic", "Anthropic"),
    "openai": ("activities.providers.openai", "OpenAI"),
    "scripted": ("activities.providers.scripted", "Scripted"),
}
"""provider: (module, class of its adapter)."""

_ADAPTERS: Final[dict[str, Adapter]] = {}
"""By provider, or by endpoint and "/"."""
_NAME: Final = re.compile(r"([^:/]*)([:/])(.+)", re.DOTALL)


@dataclass(frozen=True)
class ModelAddress:
    """A model: the provider whose API it has, its name there, and the endpoint (None: the provider's own settings)."""

    provider: str
    name: str
    endpoint: Endpoint | None = None

    @property
    def adapter(self) -> str:
        """The key of its adapter."""
        return self.provider if self.endpoint is None else f"{self.endpoint.name}/"

    @property
    def price_lists(self) -> tuple[str, ...]:
        """The price lists that may have it, the best first."""
        return (self.provider,) if self.endpoint is None else self.endpoint.price_lists


def find_model(model: str) -> ModelAddress:
    """The address of ``provider:name`` or ``endpoint/name``.

    Raises:
        ModelError: ``modelUnknown``.
    """
    match = _NAME.fullmatch(model)
    first, mark, name = match.groups() if match else ("", "", "")
    if mark == ":" and first in PROVIDERS:
        return ModelAddress(first, name)
    try:
        endpoints = from_environment()
    except EndpointsError as error:
        raise ModelError("modelUnknown", str(error), retryable=False) from None
    if mark == "/" and first in endpoints:
        return ModelAddress(endpoints[first].provider, name, endpoints[first])
    choices = ", ".join([*(f"{p}:…" for p in PROVIDERS), *(f"{name}/…" for name in endpoints)])
    text = f"unknown model {truncate(model, 200)!r}; allowed: {choices}"
    if mark == "/":
        text += f". {VARIABLE} of the worker names the endpoints: {format_choices(endpoints)}"
    raise ModelError("modelUnknown", text, retryable=False)


async def ask(model: str, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
    """One request to a model; its name at the provider replaces ``request.model``. Raises ModelError."""
    address = find_model(model)
    if address.adapter not in _ADAPTERS:
        await asyncio.to_thread(_load_adapter, address)
    own = replace(request, model=address.name)
    cloud = None if address.endpoint is None else address.endpoint.cloud
    answer = _ADAPTERS[address.adapter].ask(own, on_call)
    return await observe(model, provider_name(address.provider, cloud), own, answer)


def _load_adapter(address: ModelAddress) -> None:
    module, name = PROVIDERS[address.provider]
    try:
        build = getattr(importlib.import_module(module), name)
    except ImportError as error:
        text = f"{address.provider}: cannot be loaded: {error}"
        raise ModelError("modelUnknown", text, retryable=False) from error
    adapter = build() if address.endpoint is None else build(address.endpoint)
    _ADAPTERS.setdefault(address.adapter, adapter)  # two threads may load it at once: one adapter is kept
