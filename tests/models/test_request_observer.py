"""The span and the metrics of a request to a model: by the GenAI conventions, and without a word of content.

The metrics are those that the SDK's runtime buffers, instead of serving them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment

from activities.providers.interface import (
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelTurn,
    PromptBlock,
    TokenCounts,
)
from activities.providers.request_observer import observe, provider_name
from activities.rate_limiter import RateLimiter
from activities.wait_reports import report_wait
from telemetry import metrics, tracing

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
    tracing.use(tracing.create_tracing("acts-test", SimpleSpanProcessor(exporter)))
    yield exporter
    tracing.use(None)


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


async def test_without_traces_and_metrics_the_answer_passes_by() -> None:
    assert await observe("anthropic:opus", "anthropic", REQUEST, answers(RESPONSE)) is RESPONSE


@pytest.mark.parametrize(
    ("provider", "cloud", "name"),
    [
        ("anthropic", None, "anthropic"), ("openai", None, "openai"), ("openai", "azure", "azure.ai.openai"),
        ("anthropic", "azure", "azure.ai.inference"), ("anthropic", "bedrock", "aws.bedrock"),
        ("openai", "vertex", "gcp.vertex_ai"),
    ],
)  # fmt: skip
def test_a_cloud_is_the_provider(provider: str, cloud: str | None, name: str) -> None:
    assert provider_name(provider, cloud) == name


Counts = dict[tuple[str, ...], float]


@pytest.fixture
def counts() -> Iterator[Callable[[], Counts]]:
    """What was recorded since, by name and labels: the sum, of a gauge the last value."""
    buffer = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    metrics.start(runtime.metric_meter, ["refund"])
    buffer.retrieve_updates()

    def read() -> Counts:
        out: Counts = {}
        for update in buffer.retrieve_updates():
            name = update.metric.name
            labels = metrics.METRICS[name].labels
            key = (name, *(str(update.attributes[label]) for label in labels))
            is_gauge = metrics.METRICS[name].kind == "gauge"
            out[key] = update.value + (0 if is_gauge else out.get(key, 0))
        return out

    yield read
    metrics.start(None)


async def test_requests_tokens_and_cost_are_counted_by_model(counts: Callable[[], Counts]) -> None:
    model = "anthropic:opus"
    await observe(model, "anthropic", REQUEST, answers(RESPONSE))
    with contextlib.suppress(ModelError):
        cut = ModelError("modelTruncated", WORDS, retryable=False, tokens=TOKENS, cost=0.1)
        await observe(model, "anthropic", REQUEST, answers(cut))
    seconds = ("acts_model_request_seconds", model)
    assert counts() | {seconds: 0} == {
        ("acts_model_requests_total", model, "ok"): 1, ("acts_model_requests_total", model, "modelTruncated"): 1,
        ("acts_model_tokens_total", model, "input"): 200, ("acts_model_tokens_total", model, "output"): 40,
        ("acts_model_tokens_total", model, "cached"): 120, ("acts_model_tokens_total", model, "reasoning"): 16,
        ("acts_model_cost_microdollars_total", model): 350_000, seconds: 0,
    }  # fmt: skip


async def test_a_refusal_shows_as_a_lower_limit(counts: Callable[[], Counts]) -> None:
    limiter = RateLimiter(model="anthropic:opus")
    began = [await limiter.acquire() for _ in range(4)]
    assert counts()["acts_model_requests_in_flight", "anthropic:opus"] == 4
    limiter.release(began[0], ModelError("modelRateLimit", "no", retryable=True))
    after = counts()
    assert after["acts_model_request_limit", "anthropic:opus"] == 2
    assert after["acts_model_requests_in_flight", "anthropic:opus"] == 3


async def test_a_pause_is_counted_with_its_reason(counts: Callable[[], Counts]) -> None:
    await ActivityEnvironment().run(report_wait, {}, "anthropic:opus", "overloaded", 2.0)
    assert counts() == {
        ("acts_model_waits_total", "anthropic:opus", "overloaded"): 1,
        ("acts_model_wait_seconds", "anthropic:opus"): 2.0,
    }  # fmt: skip
