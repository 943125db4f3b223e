"""The span of a request to a model: by the GenAI conventions, and without a word of content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from acts.activities.models.interface import (
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelTurn,
    PromptBlock,
    TokenCounts,
)
from acts.activities.models.select import observe
from acts.telemetry import tracing

WORDS = "zebra-4711"
TOKENS = TokenCounts(inputTokens=100, outputTokens=20, cachedTokens=60, cacheWriteTokens=5, reasoningTokens=8)
REQUEST = ModelRequest(
    "opus", (PromptBlock(WORDS),), (ModelTurn("user", (PromptBlock(WORDS),)),), {"title": WORDS}, temperature=0.5,
    maxOutputTokens=900, cache_key="order-1",
)  # fmt: skip
RESPONSE = ModelResponse(
    WORDS, {"n": WORDS}, TOKENS, 0.25, requestId="msg_1", model="opus-5-1", finishReason="end_turn"
)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.Tracing.current = tracing.create_tracing("acts-test", SimpleSpanProcessor(exporter))
    yield exporter
    tracing.Tracing.current = None


async def answers(value: ModelResponse | ModelError) -> ModelResponse:
    if isinstance(value, ModelError):
        raise value
    return value


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


async def test_an_answer_has_the_attributes_of_the_conventions(spans: InMemorySpanExporter) -> None:
    assert await observe("anthropic:opus", "anthropic", REQUEST, answers(RESPONSE)) is RESPONSE
    span = only(spans)
    assert (span.name, span.kind.name) == ("chat opus", "CLIENT")
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "opus",
        "gen_ai.output.type": "json", "gen_ai.request.stream": True, "gen_ai.request.max_tokens": 900,
        "gen_ai.request.temperature": 0.5, "gen_ai.conversation.id": "order-1", "gen_ai.response.id": "msg_1",
        "gen_ai.response.model": "opus-5-1", "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 8, "acts.cost.dollars": 0.25,
    }  # fmt: skip
    assert WORDS not in span.to_json()


async def test_a_failure_has_its_code_and_what_it_cost_but_not_its_text(spans: InMemorySpanExporter) -> None:
    error = ModelError("modelTruncated", WORDS, retryable=False, tokens=TOKENS, cost=0.1, text=WORDS)
    error.finishReason = "max_tokens"
    with pytest.raises(ModelError):
        await observe("anthropic:opus", "anthropic", REQUEST, answers(error))
    span = only(spans)
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == "modelTruncated"
    assert attributes["gen_ai.response.finish_reasons"] == ("max_tokens",)
    assert attributes["gen_ai.usage.output_tokens"] == 20
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "modelTruncated")
    assert WORDS not in span.to_json()
    assert not span.events
