"""Unusable answers in a row, and recorded answers of the planning suite."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import CallError
from acts.machines.commands import AskSolution
from acts.machines.events import CallEnded, ChildEnded, Event, ModelEnded
from acts.machines.run_machine import ModelWaits
from acts.tree.signal_records import ModelWait
from benchmarks.planning.__main__ import ANSWERS, all_tasks, score_recorded
from tests.agent_driver import Agent

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


@pytest.mark.parametrize("event", [ModelEnded({}), ModelEnded(error=FAILURE), CallEnded("1:a", 1, 0, {"requests": 1})])
def test_it_ends_with_the_request(event: Event) -> None:
    kept = waits("root", "root/plan-1")
    kept.record_end(event, "root")
    assert [note.partition(":")[0] for note in kept.notes("root")] == ["plan-1"]


def test_one_below_ends_with_its_word_or_with_its_run() -> None:
    kept = waits("root/plan-1", "root/plan-2")
    kept.record(wait("root/plan-1", 0))
    kept.record_end(ChildEnded("plan-2", None), "root")
    kept.record_end(CallEnded("1:a", 1, 0, None), "root")
    assert kept.notes("root") == []


def unusable(**more: Any) -> dict[str, Any]:
    return {"code": "modelNotJson", "message": "no JSON", **more}


def test_a_usable_answer_begins_a_new_row_and_keeps_the_cap() -> None:
    agent = Agent({"config": {"model": "scripted:x"}, "context": []})
    agent.next_tick()
    asked = agent.answered_badly("modelNotJson", "no JSON", cap=4_000)
    assert isinstance(asked, AskSolution)
    assert (asked.answers_left, asked.least_cap) == (2, 4_000)
    asked = agent.answered({"output": None})
    assert isinstance(asked, AskSolution)
    assert (asked.answers_left, asked.least_cap) == (3, 4_000)


# -- recorded answers of the planning suite stay valid and right: a change of the language must not take them back ---


FOLDERS = sorted(folder.name for folder in ANSWERS.iterdir() if folder.is_dir())


@pytest.mark.parametrize("name", FOLDERS)
def test_recorded_answers_are_still_right(name: str) -> None:
    scores = score_recorded(ANSWERS / name)
    wrong = {s.task.id: (*s.first.problems, *s.first.wrong) for s in scores if not s.first.is_right}
    assert wrong == {}
    assert len(scores) == len([*all_tasks()])
