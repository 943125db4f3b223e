"""How long a model is waited for, how many requests it gets at once, and what an attempt hands on to the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from activities import rate_limiter
from activities.patience import LONGEST_SECONDS, TRUSTED_TRIES, next_pause
from activities.providers.endpoint_memory import EndpointMemory, stated_ceiling
from activities.providers.interface import ModelError, ModelResponse, TokenCounts
from activities.providers.model_table import EFFORTS, known_efforts, max_output_tokens, nearest_effort
from activities.rate_limiter import NoTurn, RateLimiter
from activities.request_log import RequestLog
from acts.planner.request_estimate import answer_seconds, higher_cap
from tests.models.support import model_request

HOUR = 3_600.0


def pause(elapsed: float, tries: int = 1, retry_after: float | None = None, *, random: float = 0.0) -> float | None:
    return next_pause(elapsed, tries, retry_after, HOUR, random)


# -- pauses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "tries", "retry_after", "seconds"),
    [
        (0, 1, None, 2.0),
        (16, 5, None, 2.0),
        (80, 9, None, 10.0),
        (2_000, 90, None, LONGEST_SECONDS),
        (0, 1, 40.0, 40.0),
        (0, 1, 0.0, 0.0),
        (80, TRUSTED_TRIES + 1, 0.0, 10.0),
        (80, TRUSTED_TRIES + 1, 30.0, 30.0),
        (HOUR - 1, 90, None, 1.0),
        (HOUR, 91, None, None),
        (0, 1, HOUR + 1, None),
        (HOUR - 10, 90, 11.0, None),
    ],
)
def test_a_pause_follows_the_outage_and_the_provider_s_word(
    elapsed: float, tries: int, retry_after: float | None, seconds: float | None
) -> None:
    assert pause(elapsed, tries, retry_after) == seconds


def test_those_who_wait_do_not_come_back_at_once() -> None:
    assert pause(0, 1, 40.0, random=1.0) == 50.0
    assert 0 < (pause(0, 1, 0.0, random=1.0) or 0) < 0.1


@pytest.mark.parametrize(("outage", "at_most"), [(10.0, 13.0), (120.0, 160.0), (1_800.0, 1_890.0)])
def test_an_outage_costs_little_more_than_its_time(outage: float, at_most: float) -> None:
    now, tries = 0.0, 0
    while now < outage:
        tries += 1
        now += pause(now, tries, random=1.0) or 0.0
    assert now <= at_most
    assert tries < 60


def test_patience_is_spent_once() -> None:
    now, tries = 0.0, 0
    while (seconds := pause(now, tries)) is not None:
        now, tries = now + seconds, tries + 1
    assert now == pytest.approx(HOUR)


# -- requests in flight -------------------------------------------------------------------


def refused(seconds: float | None = None, code: str = "modelRateLimit") -> ModelError:
    return ModelError(code, "no", retryable=True, retryAfter=seconds)


async def acquired(limiter: RateLimiter, count: int) -> list[float]:
    return [await limiter.acquire() for _ in range(count)]


async def test_a_rate_limit_halves_the_requests_in_flight_once_for_all_of_a_round() -> None:
    limiter = RateLimiter()
    for began in await acquired(limiter, 40):
        limiter.release(began, refused())
    assert limiter.limit == 20
    assert limiter.in_flight == 0


async def test_each_round_of_answers_adds_one() -> None:
    limiter = RateLimiter(limit=4.0)
    for _ in range(4):
        limiter.release(await limiter.acquire(), None)
    assert 4.8 < limiter.limit < 5.1


async def test_a_cancelled_request_says_nothing_about_the_model() -> None:
    limiter = RateLimiter(limit=4.0)
    limiter.release(await limiter.acquire(), refused(code="modelUnavailable"))
    limiter.release(await limiter.acquire(), None, is_answered=False)
    assert limiter.limit == 4
    assert limiter._down_since is not None


async def test_an_overload_does_not_lower_the_limit() -> None:
    limiter = RateLimiter(limit=9.0)
    limiter.release(await limiter.acquire(), refused(code="modelOverloaded"))
    assert limiter.limit == 9


async def test_a_request_waits_for_its_turn_in_order() -> None:
    limiter, order = RateLimiter(limit=1.0), list[int]()

    async def ask(number: int) -> None:
        began = await limiter.acquire()
        order.append(number)
        limiter.release(began, None)

    began = await limiter.acquire()
    tasks = [asyncio.create_task(ask(i)) for i in range(5)]
    await asyncio.sleep(0)
    assert order == []
    limiter.release(began, None)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]
    assert limiter.in_flight == 0


async def test_a_cancelled_request_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = RateLimiter(limit=1.0)
    began = await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    monkeypatch.setattr(rate_limiter, "MAX_QUEUE_SECONDS", 0.0)
    with pytest.raises(NoTurn):
        await limiter.acquire()
    limiter.release(began, None)
    await limiter.acquire()
    assert limiter.in_flight == 1


async def test_nothing_is_sent_before_the_provider_wants_it() -> None:
    limiter = RateLimiter()
    limiter.release(await limiter.acquire(), refused(30.0))
    with pytest.raises(ModelError) as caught:
        await limiter.acquire()
    assert 29 < (caught.value.retryAfter or 0) <= 30
    assert caught.value.retryable
    assert limiter.in_flight == 0


async def test_what_failed_before_counts_until_an_answer_comes() -> None:
    limiter = RateLimiter()
    limiter.release(await limiter.acquire(), refused(code="modelUnavailable"))
    assert limiter.seconds_down >= 0
    assert limiter._down_since is not None
    limiter.release(await limiter.acquire(), None)
    assert limiter.seconds_down == 0


# -- the log --------------------------------------------------------------------------------


def test_the_next_attempt_continues_the_log() -> None:
    log = RequestLog(outage_since=12.0, tries=3, planned=3, place=1, answers=2, cap=4_000, failures=["a: gone"])
    log.add(ModelResponse("t", 1, TokenCounts(100, 20), 0.5, "r1", form="words", notes=("odd",)))
    log.add_failed(ModelError("modelCut", "cut", retryable=True, tokens=TokenCounts(10, 2), cost=0.1))
    log.add_failed(ModelError("modelOverloaded", "busy", retryable=True))
    again = RequestLog.resume([log.to_details()])
    assert again == log
    usage = again.usage.to_json()
    assert (usage["requests"], usage["inputTokens"], usage["outputTokens"], usage["cost"]) == (2, 110, 22, 0.6)
    assert usage["schemaForms"] == {"words": 1}
    assert [item.get("code") for item in again.requests] == [None, "modelCut"]


@pytest.mark.parametrize("details", [[], [None], ["text"], [{"calls": 3}], [{"usage": 1}]])
def test_a_heartbeat_of_another_version_is_an_empty_log(details: list[Any]) -> None:
    assert RequestLog.resume(details).usage.requests == 0


# -- caps and efforts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "longest", "higher"),
    [
        (1_000, 128_000, 4_000),
        (32_000, 128_000, 128_000),
        (32_000, 64_000, 64_000),
        (64_000, 64_000, None),
        (None, None, 32_000),
        (100_000, None, 128_000),
        (200_000, None, None),
    ],
)
def test_a_cut_answer_gets_a_higher_cap_up_to_the_model_s_own(
    cap: int | None, longest: int | None, higher: int | None
) -> None:
    assert higher_cap(cap, longest) == higher


def test_the_time_of_a_request_grows_with_its_cap() -> None:
    assert answer_seconds(None) == answer_seconds(32_000)
    assert answer_seconds(1_000) < answer_seconds(64_000) < answer_seconds(128_000)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("anthropic:claude-opus-5-5", 128_000),
        ("claude-sonnet-4-5-20250929", 64_000),
        ("claude-opus-4-1-20250805", 32_000),
        ("openai:gpt-6-sol", 128_000),
        ("gpt-4.1-mini", 32_768),
        ("openrouter/openai/gpt-4o", 16_384),
        ("eu.anthropic.claude-opus-4-5-20251101-v1:0", 64_000),
        ("claude-opus-4-5@20251101", 64_000),
        ("openai.gpt-6-sol", 128_000),
        ("qwen3:8b", None),
        ("qwen3", None),
    ],
)
def test_the_table_has_the_longest_answers(model: str, tokens: int | None) -> None:
    assert max_output_tokens(model) == tokens


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("claude-opus-5-5", "max", "max"),
        ("claude-opus-5-5", "none", "low"),
        ("claude-opus-4-5", "max", "high"),
        ("claude-haiku-4-5", "low", None),
        ("gpt-6-sol", "xhigh", "xhigh"),
        ("gpt-4o", "low", None),
        ("o3", "minimal", "low"),
        ("qwen3", "max", "max"),
    ],
)
def test_an_effort_is_mapped_to_what_the_model_takes_with_a_note(model: str, effort: str, sent: str | None) -> None:
    adapted, notes = EndpointMemory(model).adapt(model_request(model=model, effort=effort), None)
    assert adapted.effort == sent
    assert bool(notes) == (sent != effort)


def test_the_nearest_effort_is_the_lower_of_two() -> None:
    assert nearest_effort("medium", ("low", "high")) == "low"
    assert all(known_efforts("claude-opus-5-5") for _ in EFFORTS)


@pytest.mark.parametrize(
    ("message", "ceiling"),
    [
        ("max_tokens: 1000000 > 64000, which is the maximum allowed number of output tokens for claude-x", 64_000),
        ("max_tokens is too large: 99999. This model supports at most 16384 completion tokens", 16_384),
        ("Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 128000", 128_000),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
        ("This model's maximum context length is 8192 tokens", None),
    ],
)
def test_a_provider_s_own_ceiling_is_read(message: str, ceiling: int | None) -> None:
    assert stated_ceiling(message) == ceiling
