"""Around each request to a model: its span by the GenAI semantic conventions, and what is counted of it.

Laws of this file: names, numbers and codes only. Prompts, answers, schemas and the texts of errors are in no span and
no metric (``ACTS_KEEP_PROMPTS`` keeps prompts for those who want them). The conventions are those of the
semantic-conventions-genai repository, status Development.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from activities.providers.interface import ModelError, ModelRequest, ModelResponse, TokenCounts
from telemetry import metrics, tracing

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from opentelemetry.trace import Span

# gen_ai.provider.name, where it is not the name of the API
_CLOUDS: Final = {"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}
OPERATION: Final = "chat"
# Fractions of a US dollar that are counted: the SDK's counters take integers
MICRO: Final = 1_000_000


def provider_name(provider: str, cloud: str | None) -> str:
    """The provider as the conventions name it."""
    if cloud == "azure" and provider != "openai":
        return "azure.ai.inference"
    return provider if cloud is None else _CLOUDS[cloud]


async def observe(model: str, provider: str, request: ModelRequest, answer: Awaitable[ModelResponse]) -> ModelResponse:
    """The answer to a request, observed; ``model`` is its full name, ``provider`` that of the conventions."""
    meters, current = metrics.meters(), tracing.tracing()
    if meters is None and current is None:
        return await answer
    scope: AbstractContextManager[Span | None] = nullcontext()
    if current is not None:
        attributes = request_attributes(provider, request)
        scope = current.span(f"{OPERATION} {request.model}", kind="CLIENT", attributes=attributes)
    began, outcome, tokens, cost = time.monotonic(), "cancelled", TokenCounts(), None
    try:
        with scope as span:
            try:
                response = await answer
            except ModelError as error:
                outcome, tokens, cost = error.code, error.tokens or tokens, error.cost
                if span is not None:
                    span.set_attributes(usage_attributes(tokens) | _finish(error.finishReason))
                raise
            outcome, tokens, cost = "ok", response.tokens, response.cost
            if span is not None:
                span.set_attributes(response_attributes(response))
            return response
    finally:
        if meters is not None:
            _count(meters, model, outcome, time.monotonic() - began, tokens, cost)


def request_attributes(provider: str, request: ModelRequest) -> dict[str, Any]:
    """What a span says of a request."""
    values = {
        "gen_ai.operation.name": OPERATION, "gen_ai.provider.name": provider, "gen_ai.request.model": request.model,
        "gen_ai.output.type": "json", "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": request.maxOutputTokens, "gen_ai.request.temperature": request.temperature,
        "gen_ai.conversation.id": request.cache_key or None,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def response_attributes(response: ModelResponse) -> dict[str, Any]:
    """What a span says of an answer."""
    values = {"gen_ai.response.id": response.requestId, "gen_ai.response.model": response.model}
    known = {name: value for name, value in values.items() if value is not None}
    cost = {} if response.cost is None else {"acts.cost.dollars": response.cost}
    return known | usage_attributes(response.tokens) | _finish(response.finishReason) | cost


def usage_attributes(tokens: TokenCounts) -> dict[str, int]:
    """The tokens of a request; zeros of the parts are left out."""
    if tokens == TokenCounts():
        return {}
    parts = {
        "gen_ai.usage.cache_read.input_tokens": tokens.cachedTokens,
        "gen_ai.usage.cache_creation.input_tokens": tokens.cacheWriteTokens,
        "gen_ai.usage.reasoning.output_tokens": tokens.reasoningTokens,
    }  # fmt: skip
    own = {"gen_ai.usage.input_tokens": tokens.inputTokens, "gen_ai.usage.output_tokens": tokens.outputTokens}
    return own | {name: count for name, count in parts.items() if count}


def _finish(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"gen_ai.response.finish_reasons": (reason,)}


def _count(
    meters: metrics.Meters, model: str, outcome: str, seconds: float, tokens: TokenCounts, cost: float | None
) -> None:
    meters.add(metrics.MODEL_REQUESTS, model=model, outcome=outcome)
    meters.record(metrics.MODEL_SECONDS, seconds, model=model)
    kinds = {
        "input": tokens.inputTokens, "output": tokens.outputTokens, "cached": tokens.cachedTokens,
        "reasoning": tokens.reasoningTokens,
    }  # fmt: skip
    for kind, count in kinds.items():
        if count:
            meters.add(metrics.MODEL_TOKENS, count, model=model, kind=kind)
    if cost:
        meters.add(metrics.MODEL_COST, round(cost * MICRO), model=model)
