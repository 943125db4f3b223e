"""What a run keeps of its model: waits that people see, and unusable answers in a row."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.config import Config
from acts.language.errors import CallError
from acts.machines.events import CallCompleted, ChildEnded, Event, ModelAnswered, ModelFailed
from acts.machines.model_waits import ModelWaits
from acts.machines.unusable_answers import UnusableAnswers
from acts.tree.signal_records import ModelWait

FAILURE = CallError("modelOverloaded", "busy")


def wait(run: str = "root", seconds: float = 40.0) -> ModelWait:
    more = {"model": "openai:m", "reason": "overloaded", "nextTry": "2026-01-01T12:40:07+00:00"}
    return ModelWait(workflowId=run, seconds=seconds, **more)


def waits(*runs: str) -> ModelWaits:
    out = ModelWaits()
    for run in runs:
        out.record(wait(run))
    return out


def test_a_wait_is_a_note() -> None:
    assert waits("root").notes("root") == [
        "waiting for the model: overloaded, next try in 40 s (12:40:07 UTC), openai:m"
    ]  # fmt: skip
    assert waits("root/plan-3").notes("root")[0].startswith("plan-3: waiting for the model")
    assert waits(*(f"root/{i}" for i in range(200))).notes("root")[-1] == "97 more runs wait for the model"


@pytest.mark.parametrize(
    "event",
    [
        ModelAnswered({}),
        ModelFailed(FAILURE, None),
        CallCompleted("1:a", 1, 0, {"requests": 1}),
    ],
)
def test_it_ends_with_the_request(event: Event) -> None:
    kept = waits("root", "root/plan-1")
    kept.record_end(event, "root")
    assert [note.partition(":")[0] for note in kept.notes("root")] == ["plan-1"]


def test_one_below_ends_with_its_word_or_with_its_run() -> None:
    kept = waits("root/plan-1", "root/plan-2")
    kept.record(wait("root/plan-1", 0))
    kept.record_end(ChildEnded("plan-2", None), "root")
    kept.record_end(CallCompleted("1:a", 1, 0, None), "root")
    assert kept.notes("root") == []


def unusable(**more: Any) -> dict[str, Any]:
    return {"code": "modelNotJson", "message": "no JSON", **more}


def test_three_unusable_answers_in_a_row_are_the_end() -> None:
    answers = UnusableAnswers()
    answers.record(unusable(answers=2), {"requests": 2, "inputTokens": 30, "outputTokens": 4, "cost": 0.25})
    assert (answers.left, answers.end_text("no JSON")) == (1, None)
    again = UnusableAnswers()
    again.restore(answers.snapshot())
    again.record(unusable(cap=4_000), {"requests": 1, "inputTokens": 20, "outputTokens": 2, "cost": 0.25})
    text = "3 answers of the model in a row could not be used; they cost 56 tokens and 0.5000 US dollars. The last: bad"
    assert again.end_text("bad") == text
    assert again.cap == 4_000


def test_a_usable_answer_begins_a_new_row_and_keeps_the_cap() -> None:
    answers = UnusableAnswers()
    assert answers.snapshot() == {}
    answers.record(unusable(cap=4_000), {})
    answers.reset()
    assert (answers.left, answers.cap) == (3, 4_000)


def test_the_settings_name_every_model_once() -> None:
    config = Config.model_validate({"model": "a:1", "latentModel": "a:2", "fallbackModels": ["a:1", "b:1"]})
    assert config.models == ("a:1", "a:2", "b:1")
    assert config.latent_model == "a:2"
    assert Config.model_validate({"model": "a:1", "patience": "2m"}).patience == 120
    assert Config(model="a:1").latent_model == "a:1"
