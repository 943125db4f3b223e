"""How long a model is waited for, and what an attempt hands on to the next."""

from __future__ import annotations

import pytest

from acts.activities.models.endpoints import adapt_settings
from acts.activities.models.interface import ModelError, ModelResponse, TokenCounts
from acts.activities.patience import LONGEST_SECONDS, RequestLog, next_pause
from acts.planner.request_estimate import higher_cap
from tests.models.support import model_request

HOUR = 3_600.0


def pause(elapsed: float, retry_after: float | None = None, *, random: float = 0.0) -> float | None:
    return next_pause(elapsed, retry_after, HOUR, random)


@pytest.mark.parametrize(
    ("elapsed", "retry_after", "seconds"),
    [
        (0, None, 2.0),
        (80, None, 10.0),
        (2_000, None, LONGEST_SECONDS),
        (0, 40.0, 40.0),
        (0, 0.0, 0.0),
        (80, 0.0, 10.0),
        (HOUR - 1, None, 1.0),
        (HOUR, None, None),
        (0, HOUR + 1, None),
        (HOUR - 10, 11.0, None),
    ],
)
def test_a_pause_follows_the_outage_and_the_provider_s_word(
    elapsed: float, retry_after: float | None, seconds: float | None
) -> None:
    assert pause(elapsed, retry_after) == seconds


@pytest.mark.parametrize(("outage", "at_most"), [(10.0, 13.0), (120.0, 160.0), (1_800.0, 1_890.0)])
def test_an_outage_costs_little_more_than_its_time(outage: float, at_most: float) -> None:
    now, tries = 0.0, 0
    while now < outage:
        tries += 1
        now += pause(now, random=1.0) or 0.0
    assert now <= at_most
    assert tries < 60


def test_the_next_attempt_continues_the_log() -> None:
    log = RequestLog(outage_since=12.0, planned=3, answers=2, cap=4_000, failures=["a: gone"])
    log.add(ModelResponse("t", 1, TokenCounts(100, 20), 0.5, "r1", form="words", notes=("odd",)))
    log.add(ModelError("modelCut", "cut", retryable=True, tokens=TokenCounts(10, 2), cost=0.1))
    log.add(ModelError("modelOverloaded", "busy", retryable=True))
    again = RequestLog.resume([log.to_details()])
    assert again == log
    usage = again.usage.to_json()
    assert (usage["requests"], usage["inputTokens"], usage["outputTokens"], usage["cost"]) == (2, 110, 22, 0.6)
    assert usage["schemaForms"] == {"words": 1}


@pytest.mark.parametrize(
    ("cap", "longest", "higher"),
    [
        (1_000, 128_000, 4_000),
        (32_000, 64_000, 64_000),
        (None, None, 32_000),
        (100_000, None, 128_000),
        (200_000, None, None),
    ],
)
def test_a_cut_answer_gets_a_higher_cap_up_to_the_model_s_own(
    cap: int | None, longest: int | None, higher: int | None
) -> None:
    assert higher_cap(cap, longest) == higher


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("claude-opus-5-5", "none", "low"),
        ("claude-opus-4-5", "max", "high"),
        ("claude-haiku-4-5", "low", None),
        ("gpt-4o", "low", None),
        ("o3", "minimal", "low"),
        ("qwen3", "max", "max"),
    ],
)
def test_an_effort_is_mapped_to_what_the_model_takes_with_a_note(model: str, effort: str, sent: str | None) -> None:
    adapted, notes = adapt_settings(model_request(model=model, effort=effort), None)
    assert adapted.effort == sent
    assert bool(notes) == (sent != effort)
