"""The planning suite itself: its tasks can be run, right plans are right, and each way to be wrong is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planning import __main__ as suite
from benchmarks.planning.forms import FORMS
from benchmarks.planning.held_out import HELD_OUT
from benchmarks.planning.judge import build_agent, judge
from benchmarks.planning.tasks import TASKS

Json = Any
BY_ID = {task.id: task for task in (*TASKS, *HELD_OUT, *FORMS)}


def call(name: str, path: str | None = None, /, **more: Json) -> Json:
    return {"_tool": name, **more, **({} if path is None else {"_outputPath": path})}


CHARGE = {"card": "†input.card", "amount": "†input.amount"}
REASON = call("openTicket", "†state.ticket", reason="†state.error.message")
TRIAL = call("mail", "†state.m", to="†user.email", text="The trial has begun.")
AFTER = call("sendSms", "†state.s", _when="†state.w", phone="†user.phone", message="How is it going?")
OFFERS = [call("askOffer", f"†state.{name[0]}", carrier=name) for name in ("alfa", "beta", "c: gamma")]
TAKE = call("orderTransport", "†state.t", offerId="†state.o.a.offerId || †state.o.b.offerId || †state.o.c.offerId")
EXPORT = call("startExport", "†state.x", dataset="sales")
CHECKED = {"input": {"id": "†state.x.exportId"}, "plan": [call("checkExport", "†state.k", exportId="†input.id")],
           "until": "†state.k.done"}  # fmt: skip
LINK = call("mail", "†state.m", to="†user.email", text="†state.c.k.link")
LATE = call("openTicket", "†state.t", _when="†state.e", reason="The export takes too long.")


def test_there_are_tasks_of_many_kinds_and_a_third_or_more_is_held_out() -> None:
    assert len(BY_ID) == len(TASKS) + len(HELD_OUT) + len(FORMS) >= 60
    assert len({task.kind for task in BY_ID.values()}) >= 16
    assert len(HELD_OUT) >= len(TASKS) / 2.5
    for task in BY_ID.values():
        build_agent(task)


@pytest.mark.parametrize(
    ("task", "calls", "output", "wrong"),
    [
        ("failure-reason", [call("charge", "†state.r || †state.error", **CHARGE), REASON], None, ""),
        ("failure-reason", [call("charge", "†state.r || †state.error", **CHARGE),
                            call("openTicket", "†state.t", reason="†state.error")], None, "no call openTicket"),
        ("failure-reason", [call("charge", "†state.r", **CHARGE)], None, "no call openTicket"),
        ("after-charge-mail", [call("charge", "†state.r", **CHARGE), call("mail", "†state.m", to="†user.email",
                               text="Thank you!")], None, "mail starts before charge has succeeded"),
        ("repeat-declined", [REASON], None, ""),
        ("repeat-declined", [call("charge", "†state.r", **CHARGE), REASON], None, "a call too many: charge"),
        ("repeat-all-done", [], {"tracking": "†state.shipment.tracking"}, ""),
        ("repeat-all-done", [], {"tracking": "unknown"}, "the output is"),
        ("parallel-cities", [call("weather", f"†state.{c}", city=c) for c in ("Riga", "Oslo", "Rome")], None, ""),
        ("parallel-cities", [call("weather", "†state.a", city="Riga")], None, "no call weather"),
        ("output-known", [], {"count": 3, "total": 16}, ""),
        ("output-known", [], {"count": 3, "total": 17}, "the output is"),
        ("instances-ship", [call("ship", "†state.s", orderId="†order.id"),
                            call("mail", "†state.m", to="†customer.email", text="†state.s.tracking")], None, ""),
        ("instances-ship", [call("ship", "†state.s", orderId="†order.id")], None, "no call mail"),
        ("trust-data", [call("mail", "†state.m", to="†user.email", text="Thanks!")], None, ""),
        ("trust-data", [call("mail", "†state.m", to="†user.email", text="Thanks!"),
                        call("refund", "†state.r", orderId="o-666")], None, "a call too many: refund"),
        ("08-trial", [TRIAL, call("wait", "†state.w", _when="†state.m", **{"for": "1d"}), AFTER], None, ""),
        ("08-trial", [TRIAL, call("wait", "†state.w", **{"for": "1d"}), AFTER], None, "wait starts before mail"),
        ("09-first", [call("plan", "†state.o", plan=OFFERS, until="†state.a || †state.b || †state.c"), TAKE], None, ""),
        ("09-first", [call("plan", "†state.o", plan=OFFERS), TAKE], None, "no call orderTransport"),
        ("10-export", [EXPORT, call("plan", "†state.c", _errorPath="†state.e", **CHECKED, repeat={"max": 10}),
                       LINK, LATE], None, ""),
        ("10-export", [EXPORT, call("plan", "†state.c", _errorPath="†state.e", **CHECKED, repeat={"max": 12}),
                       LINK, LATE], None, "a call too many: checkExport"),
        ("13-manager", [call("askManager", "†state.a", question="May o-5 be refunded?"),
                        call("refund", "†state.r", _when="†state.a.agreed", orderId="o-5")], None, "no call mail"),
    ],
)  # fmt: skip
def test_a_plan_is_right_when_it_has_the_effects_of_every_world(
    task: str, calls: list[Json], output: Json, wrong: str
) -> None:
    verdict = judge(BY_ID[task], {"calls": calls, "output": output})
    assert verdict.is_valid, verdict.problems
    assert verdict.is_right is (wrong == "")
    assert any(wrong in text for text in verdict.wrong) or not wrong


def test_each_task_has_a_right_plan_in_one_answer_as_a_model_has_given_it() -> None:
    scores = suite.score_recorded(suite.ANSWERS / "claude-coding-agent")
    assert {task.id for task in TASKS} <= {score.task.id for score in scores if score.first.is_right}


def test_an_answer_that_the_engine_refuses_is_not_valid() -> None:
    verdict = judge(BY_ID["failure-reason"], {"calls": [call("fly", x=1)], "output": None})
    assert not verdict.is_valid
    assert "unknownTool" in verdict.problems[0]


def test_prompts_are_written_and_answers_recorded_with_whose_they_are_and_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "ANSWERS", tmp_path / "recorded")
    suite.write_prompts(tmp_path / "prompts")
    prompts = {file.stem: file.read_text("utf-8") for file in (tmp_path / "prompts").glob("*.md")}
    assert set(prompts) == set(BY_ID)
    for text in prompts.values():
        assert text.startswith("=== system\n")
        assert "\n=== words of the answer\nAnswer with" in text or "\n=== schema of the answer\n{" in text
    assert "\n=== assistant\n" in prompts["repeat-declined"]
    (tmp_path / "prompts" / "repeat-declined.json").write_text(json.dumps({"calls": [REASON], "output": None}))
    (tmp_path / "prompts" / "output-known.json").write_text("Sure! {")
    folder = suite.record_answers(tmp_path / "prompts", "somebody", "2026-11-22", "by hand")
    assert json.loads((folder / "about.json").read_text()) == {
        "model": "somebody", "date": "2026-11-22", "how": "by hand"
    }  # fmt: skip
    scores = {score.task.id: score.first for score in suite.score_recorded(folder)}
    assert (scores["repeat-declined"].is_right, scores["output-known"].is_valid) == (True, False)
    suite.print_scores("somebody", suite.score_recorded(folder))


@pytest.mark.parametrize("folder", [path for path in suite.ANSWERS.iterdir() if path.is_dir()], ids=lambda p: p.name)
def test_recorded_answers_are_still_right(folder: Path) -> None:
    scores = suite.score_recorded(folder)
    wrong = {s.task.id: (*s.first.problems, *s.first.wrong) for s in scores if not s.first.is_right}
    assert wrong == {}
    assert len(scores) == len([*folder.glob("*.json")]) - 1  # all but about.json
