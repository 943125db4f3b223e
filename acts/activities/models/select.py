"""The choice of a model's adapter by its name, and what is measured of each request.

A name is ``provider:name``, or ``endpoint/name`` of ``ACTS_MODELS``: of ``:`` and ``/`` the first decides. An adapter
and its SDK are imported when the first of its models is asked, because the SDKs take a second to import.

Spans and metrics have names, numbers and codes only. Prompts, answers, schemas and the texts of errors are in neither.
The names are those of the semantic-conventions-genai repository, status Development.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from acts.activities.models.endpoints import Endpoint, find_model
from acts.activities.models.interface import CallReceiver, ModelError, ModelRequest, ModelResponse, TokenCounts
from acts.telemetry import metrics
from acts.telemetry.tracing import Tracing

# gen_ai.provider.name, where it is not the name of the API
_CLOUDS: Final = {"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}
_in_flight: Final[Counter[str]] = Counter()
# Fractions of a US dollar that are counted: the SDK's counters take integers
MICRO: Final = 1_000_000


async def ask(model: str, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
    """One request to a model; its name at the provider replaces ``request.model``. Raises ModelError."""
    adapter, endpoint, name = await find_adapter(model)
    own = replace(request, model=name)
    provider = _CLOUDS[endpoint.cloud] if endpoint.cloud else endpoint.provider
    return await observe(model, provider, own, adapter.ask(own, on_call, endpoint))


async def find_adapter(model: str) -> tuple[Any, Endpoint, str]:
    """The adapter of a model, its endpoint, and its name there. Raises ModelError: ``modelUnknown``."""
    endpoint, name = find_model(model)
    module = f"acts.activities.models.{endpoint.provider}"
    return await asyncio.to_thread(importlib.import_module, module), endpoint, name


async def observe(model: str, provider: str, request: ModelRequest, answer: Awaitable[ModelResponse]) -> ModelResponse:
    """The answer to a request, observed; ``model`` is its full name, ``provider`` that of the conventions."""
    current, began = Tracing.current, time.monotonic()
    values = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": request.model,
        "gen_ai.output.type": "json", "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": request.maxOutputTokens, "gen_ai.request.temperature": request.temperature,
        "gen_ai.conversation.id": request.cache_key or None,
    }  # fmt: skip
    attributes = {name: value for name, value in values.items() if value is not None}
    scope = current.span(f"chat {request.model}", kind="CLIENT", attributes=attributes) if current else nullcontext()
    result: ModelResponse | ModelError | None = None
    _count_in_flight(model, 1)
    try:
        with scope as span:
            try:
                result = await answer
            except ModelError as error:
                result = error
                raise
            finally:
                if span is not None and result is not None:
                    span.set_attributes(_result_attributes(result))
            return result
    finally:
        _count_in_flight(model, -1)
        outcome = result.code if isinstance(result, ModelError) else "cancelled" if result is None else "ok"
        metrics.record(metrics.MODEL_REQUESTS, model=model, outcome=outcome)
        metrics.record(metrics.MODEL_SECONDS, time.monotonic() - began, model=model)
        tokens = (result and result.tokens) or TokenCounts()
        for kind in ("input", "output", "cached", "reasoning"):
            if count := getattr(tokens, f"{kind}Tokens"):
                metrics.record(metrics.MODEL_TOKENS, count, model=model, kind=kind)
        if result is not None and result.cost:
            metrics.record(metrics.MODEL_COST, round(result.cost * MICRO), model=model)


def _count_in_flight(model: str, change: int) -> None:
    _in_flight[model] += change
    metrics.record(metrics.MODEL_IN_FLIGHT, _in_flight[model], model=model)


def _result_attributes(result: ModelResponse | ModelError) -> dict[str, Any]:
    """What a span says of an answer, or of a failure; what is unknown, and zeros, are left out."""
    tokens, reason = result.tokens or TokenCounts(), result.finishReason
    values = {
        "gen_ai.response.id": getattr(result, "requestId", None),
        "gen_ai.response.model": getattr(result, "model", None),
        "gen_ai.response.finish_reasons": (reason,) if reason else None,
        "gen_ai.usage.input_tokens": tokens.inputTokens,
        "gen_ai.usage.output_tokens": tokens.outputTokens,
        "gen_ai.usage.cache_read.input_tokens": tokens.cachedTokens,
        "gen_ai.usage.cache_creation.input_tokens": tokens.cacheWriteTokens,
        "gen_ai.usage.reasoning.output_tokens": tokens.reasoningTokens,
        "acts.cost.dollars": result.cost,
    }
    return {name: value for name, value in values.items() if value}
