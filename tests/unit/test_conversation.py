"""The conversation with a planner: outcomes of every kind, a prefix that never changes, and what is left out."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import Problem
from acts.language.messages import Message
from acts.language.references import Path
from acts.language.request_reader import parse_message
from acts.language.strict_json import json_size
from acts.machines.loop import Loop
from acts.machines.loop_steps import DropRest, StartPlan
from acts.planner.compaction import KEPT_TURNS, build_conversation
from acts.planner.conversation import MAX_INSTANCE_DATA_BYTES, PromptTurn
from acts.planner.shown_values import IN_PART, LARGE_VALUE_BYTES, in_part
from acts.planner.turns import MAX_INSTANCE_OUTCOMES, MAX_PROBLEMS_SHOWN, Turn, problem_items
from tests.unit.test_prompt import LAZY, finish_plan, loop_of, planner, run_tick, walk_template

Json = Any
TEXT = {"type": "string"}


def tool(name: str) -> dict[str, Json]:
    meta = {
        "_tool": {"const": name}, "_activity": {"const": "x"}, "_outputPath": TEXT, "_errorPath": TEXT,
        "_outputMethod": TEXT,
    }  # fmt: skip
    return {"type": "tool", "tool": {"type": "object", "properties": {**meta, "x": {}}}}


TOOLS = [tool(name) for name in ("charge", "mail", "order")]
USER = {"role": "user", "content": "Charge, then mail."}


def call(name: str, path: str | None = None, **more: Json) -> dict[str, Json]:
    return {"_tool": name, **({} if path is None else {"_outputPath": path}), **more}


def fails(code: str = "declined") -> Json:
    return {"$fail": {"type": code, "message": f"it was {code}"}}


def outcomes(loop: Loop) -> list[Json]:
    """The outcomes that the last turn of the user shows."""
    text = planner(loop).turns[-1].text
    inside = text.partition("<outcomes>\n")[2].partition("\n</outcomes>")[0]
    return [json.loads(line) for line in inside.splitlines() if line.startswith("{")]


def agent(*context: Json, **config: Json) -> Loop:
    return loop_of([*TOOLS, USER, *context], **config)


# -- outcomes ----------------------------------------------------------------------

A = {"call": "1:charge", "outcome": "completed", "wrote": {"†state.a": 1}}


@pytest.mark.parametrize(
    ("calls", "results", "expected"),
    [
        ([call("charge", "†state.a")], {"1:charge": 1}, [A]),
        ([call("charge", "†state.a && †state.b")], {"1:charge": 1},
         [{**A, "wrote": {"†state.a": 1, "†state.b": 1}}]),
        ([call("charge", "†state.l", _outputMethod="push")], {"1:charge": 1},
         [{"call": "1:charge", "outcome": "completed", "pushed": {"†state.l": 1}}]),
        ([call("charge", "†state.a")], {"1:charge": fails()},
         [{"call": "1:charge", "outcome": "failed", "error": {"code": "declined", "message": "it was declined"}}]),
        ([call("charge", "†state.a || †state.error"), call("mail", "†state.m", x="†state.error.message")],
         {"1:charge": fails(), "2:mail": 7},
         [{"call": "1:charge", "outcome": "failed", "error": {"code": "declined", "message": "it was declined"},
           "errorPath": "†state.error"},
          {"call": "2:mail", "outcome": "completed", "wrote": {"†state.m": 7}}]),
        ([call("charge", "†state.a || †state.error"), call("order", "†state.o", x="†state.a")], {"1:charge": fails()},
         [{"call": "1:charge", "outcome": "failed", "error": {"code": "declined", "message": "it was declined"},
           "errorPath": "†state.error"},
          {"call": "2:order", "outcome": "skipped", "reason": "there is no value at †state.a"}]),
        ([call("mail"), call("charge", "†state.a"), call("mail", x="†state.a")], {"2:charge": 1},
         [{"call": "1:mail", "outcome": "started"}, {**A, "call": "2:charge"},
          {"call": "3:mail", "outcome": "started"}]),
        ([call("mail"), call("mail"), call("mail")], {},
         [{"calls": ["1:mail", "2:mail", "3:mail"], "outcome": "started"}]),
        ([call("charge", "†state.l", _outputMethod="push", x=i % 2) for i in range(4)],
         {f"{i + 1}:charge": i for i in range(4)},
         [{"call": f"{i + 1}:charge", "outcome": "completed", "pushed": {"†state.l": i}} for i in range(4)]),
    ],
)  # fmt: skip
def test_every_call_of_an_answer_has_an_outcome(calls: list[Json], results: dict[str, Json], expected: Json) -> None:
    loop = run_tick(agent(), {"calls": calls, "output": None}, results)
    assert outcomes(loop) == expected
    assert "\n<data" not in planner(loop).turns[-1].text  # what was written stands with its call, and only there


def test_a_planner_can_tell_what_must_not_be_repeated() -> None:
    """A mail that is on its way, a declined charge, and an order that will not run by itself."""
    calls = [
        call("mail"),
        call("charge", "†state.receipt || †state.error"),
        call("order", "†state.o", x="†state.receipt"),
    ]
    loop = run_tick(agent(), {"calls": calls, "output": None}, {"2:charge": fails()})
    assert [(o["call"], o["outcome"]) for o in outcomes(loop)] == [
        ("1:mail", "started"), ("2:charge", "failed"), ("3:order", "skipped"),
    ]  # fmt: skip
    rules = planner(loop).system[0].text
    for word in ("started", "failed", "skipped", "completed", "rejected", "not run"):
        assert f"\n- {word}: " in rules


def test_a_refused_answer_is_shown_whole_and_none_of_it_was_run() -> None:
    answer = {"calls": [call("charge", "†state.a"), {"_tool": "nope", "x": [1]}], "output": None}
    loop = run_tick(agent(), answer)
    *_, assistant, user = planner(loop).turns
    assert json.loads(assistant.text) == answer
    assert outcomes(loop) == [{"calls": ["1:charge", "2:nope"], "outcome": "not run"}]
    assert '"code":"unknownTool"' in user.text.partition("<problems>")[2]


@pytest.mark.parametrize("more", [{}, {"note": "a key that no answer has"}])
def test_every_call_of_an_answer_that_was_refused_after_calls_had_started_has_an_outcome(more: Json) -> None:
    first, *rest = [call("charge", "†state.a"), {"_tool": "nope"}, call("mail"), 5]
    loop = agent()
    loop.next_tick()
    request = loop.streamed_request(loop.plans.validate_unread([first]))
    assert isinstance(loop.answered({"calls": [first, *rest], "output": None, **more}, [first]), DropRest)
    finish_plan(loop, StartPlan(loop.tick, request, ("1:charge",), 1), {"1:charge": 1})
    done, left = outcomes(loop)
    assert done == A
    assert (left["calls"], left["outcome"]) == (["2:nope", "3:mail", "4:?"], "not run")


@pytest.mark.parametrize("answer", [5, "text", [], {"calls": 5}, {"calls": [5], "output": None}, {"x": 1}])
def test_an_answer_that_is_no_solution_is_shown_as_it_was(answer: Json) -> None:
    *_, assistant, user = planner(run_tick(agent(), answer)).turns
    assert json.loads(assistant.text) == answer
    assert "<problems>" in user.text


def test_an_answer_that_is_no_json_is_shown_as_text() -> None:
    loop = agent()
    loop.next_tick()
    loop.answer_unusable("modelNotJson", "its answer cannot be read", "Sure! Here is <plan>")
    *_, assistant, user = planner(loop).turns
    assert assistant.text == "Sure! Here is <plan>"
    assert "modelNotJson" in user.text


def test_the_problems_of_an_output_follow_the_outcomes_of_its_calls() -> None:
    answer = {"calls": [call("charge", "†state.a")], "output": {"done": "†state.none"}}
    loop = run_tick(agent(), answer, {"1:charge": 1})
    assert outcomes(loop) == [A]
    assert "†state.none" in planner(loop).turns[-1].text.partition("<problems>")[2]


def test_with_step_call_the_calls_that_were_left_out_are_not_run() -> None:
    answer = {"calls": [call("charge", "†state.a"), call("mail"), call("order", "†state.o")], "output": {"done": True}}
    shown = outcomes(run_tick(agent(step="call"), answer, {"1:charge": 1}))
    assert shown[0] == A
    assert (shown[1]["calls"], shown[1]["outcome"]) == (["2:mail", "3:order"], "not run")
    assert shown[2] == {"output": "not taken, because a call failed or was not run"}


def test_a_rejection_has_the_reason_of_the_person() -> None:
    loop = loop_of([*TOOLS, LAZY[-1]])
    loop.next_tick()
    loop.answered({"calls": [call("charge", "†state.a"), call("mail")], "output": None})
    loop.rejected("too dear")
    assert outcomes(loop) == [{"calls": ["1:charge", "2:mail"], "outcome": "rejected", "reason": "too dear"}]


def test_a_changed_plan_is_shown_beside_the_answer_that_it_replaced() -> None:
    loop = loop_of([*TOOLS, LAZY[-1]])
    loop.next_tick()
    answer = {"calls": [call("charge", "†state.a", x=9)], "output": None}
    loop.answered(answer)
    changed = call("charge", "†state.a", x=5)
    loop.edited(loop.check_edit(None, None, (changed,)))
    step = loop.approved()
    assert isinstance(step, StartPlan)
    finish_plan(loop, step, {"1:charge": 1})
    *_, assistant, user = planner(loop).turns
    assert json.loads(assistant.text) == answer
    assert json.dumps([changed], ensure_ascii=False, separators=(",", ":")) in user.text
    assert outcomes(loop) == [A]


def test_data_that_came_meanwhile_stands_beside_the_outcomes() -> None:
    loop = agent()
    loop.next_tick()
    step = loop.answered({"calls": [call("charge", "†state.a")], "output": None})
    assert isinstance(step, StartPlan)
    message = parse_message({"type": "input", "input": {"word": "late"}})
    loop.provide(message)  # type: ignore[arg-type]
    finish_plan(loop, step, {"1:charge": 1})
    assert outcomes(loop) == [A]
    assert '<data path="†input">\n{"word":"late"}\n</data>' in planner(loop).turns[-1].text


def test_few_problems_are_listed_and_the_rest_is_counted() -> None:
    items = problem_items([Problem("x", str(i)) for i in range(MAX_PROBLEMS_SHOWN + 5)])
    assert len(items) == MAX_PROBLEMS_SHOWN + 1
    assert "5 more" in items[-1]["message"]


# -- instances ----------------------------------------------------------------------


def instances(count: int, size: int = 10) -> list[Json]:
    return [{"type": "data", "kind": "order", "data": {"text": "x" * size}, "_instance": f"o{i}"} for i in range(count)]


def test_the_outcomes_of_many_instances_are_counted() -> None:
    ids = [f"o{i}" for i in range(1_200)]
    loop = walk_template(loop_of([*TOOLS, *instances(1_200)]), ids)
    done, failed = outcomes(loop)
    assert (done["outcome"], done["instances"], list(done["examples"])) == ("completed", 1_199, ids[:3])
    assert done["examples"]["o0"] == {"wrote": {"†state.receipt": {"id": "o0"}}}
    assert (failed["outcome"], failed["instances"]) == ("failed", 1)
    assert failed["of"] == [{"_instance": "o1199", "error": {"code": "declined", "message": "no"}}]
    assert len(planner(loop).turns[-1].text) < 1_000


def test_the_outcomes_of_few_instances_are_listed() -> None:
    ids = [f"o{i}" for i in range(MAX_INSTANCE_OUTCOMES)]
    shown = outcomes(walk_template(loop_of([*TOOLS, *instances(len(ids))]), ids))
    assert [o["_instance"] for o in shown] == ids


def test_the_data_of_instances_is_shown_as_far_as_it_has_room_and_the_rest_is_counted() -> None:
    count = MAX_INSTANCE_DATA_BYTES // 1_000
    text = planner(loop_of([*TOOLS, *instances(2 * count, 1_000)])).turns[0].text
    shown = text.count("<data")
    assert count - 2 <= shown <= count
    assert f"(data of {2 * count - shown} more instances is not shown: o{shown}" in text


# -- a prefix that never changes ------------------------------------------------------

MORE: list[tuple[Json, dict[str, Json]]] = [
    ({"calls": [call("charge", "†state.a || †state.error"), call("mail")], "output": None}, {"1:charge": fails()}),
    ({"calls": [call("nope")], "output": None}, {}),
    ({"calls": [call("charge", "†state.big")], "output": None}, {"1:charge": "x" * 300_000}),
    ({"calls": [], "output": {"done": "†state.none"}}, {}),
    (5, {}),
    ({"calls": [call("order", "†state.l", _outputMethod="push", x=1)], "output": {"done": "yes"}}, {"1:order": 1}),
]


def text_of(turns: tuple[PromptTurn, ...]) -> str:
    return "\n".join(f"=== {turn.role}\n{turn.text}" for turn in turns)


@pytest.mark.parametrize("step", ["plan", "call"])
@pytest.mark.parametrize("carry", [False, True])
def test_each_conversation_begins_with_all_of_the_one_before(step: str, *, carry: bool) -> None:
    """Also across continue-as-new, where a loop is built anew of its Request and what the run before carried."""
    loop = agent(step=step)
    before = text_of(planner(loop).turns)
    for solution, results in MORE:
        run_tick(loop, solution, results)
        if carry:
            loop.undo_tick()
            again = agent(step=step)
            again.restore(json.loads(json.dumps(loop.snapshot())))
            again.next_tick()
            loop = again
        after = text_of(planner(loop).turns)
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after


def test_a_proposal_is_carried_with_the_answer_that_a_person_changed() -> None:
    def propose() -> Loop:
        return loop_of([*TOOLS, LAZY[-1]])

    loop = propose()
    loop.next_tick()
    loop.answered({"calls": [call("charge", "†state.a", x=9)], "output": None})
    loop.edited(loop.check_edit(None, None, (call("charge", "†state.a", x=5),)))
    again = propose()
    again.restore(json.loads(json.dumps(loop.snapshot())))
    for one in (loop, again):
        step = one.approved()
        assert isinstance(step, StartPlan)
        finish_plan(one, step, {"1:charge": 1})
    assert planner(again) == planner(loop)


def test_what_a_run_carries_grows_with_the_work_and_not_with_its_square() -> None:
    loop, sizes = agent(), []
    for index in range(40):
        run_tick(loop, {"calls": [call("charge", "†state.a", x=index)], "output": None}, {"1:charge": "x" * 100})
        sizes.append(json_size(loop.turn_log.snapshot()))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps[-10:]) <= min(steps[:10]) + 10
    assert max(steps) < 150  # the calls are those of the plan message, the values those of the context


# -- large values ------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=200), inner, max_size=20),
    max_leaves=60,
)


@settings(max_examples=200, deadline=None)
@given(values, st.sampled_from([64, 256, 1_024]))
def test_a_value_is_shown_whole_or_in_little_room(value: Json, limit: int) -> None:
    shown = in_part(value, Path("state", ("v",)), limit)
    assert shown == value if json_size(value) <= limit else json_size(shown) <= limit + 2_000


def test_a_large_value_shows_its_shape_its_beginning_its_size_and_its_reference() -> None:
    orders = [{"id": i, "total": 1.5 if i % 2 else None, "lines": ["x" * 50]} for i in range(5_000)]
    text = planner(agent({"type": "state", "state": {"orders": orders, "name": "Ada"}})).turns[0].text
    shown = json.loads(text.partition('<data path="†state">\n')[2].partition("\n</data>")[0])
    assert shown["name"] == "Ada"
    assert shown["orders"][IN_PART] == f"a list of 5,000 items, {json_size(orders):,} bytes"
    assert shown["orders"]["whole"] == "†state.orders"
    assert shown["orders"]["begins"][0] == orders[0]
    assert shown["orders"]["keys"] == {"id": "number", "total": "null or number", "lines": "list"}
    assert len(text) < 4_000


def test_a_large_result_is_shown_in_part_and_a_pushed_one_has_no_reference_of_its_own() -> None:
    big = "x" * (LARGE_VALUE_BYTES + 1)
    calls = [call("charge", "†state.a"), call("charge", "†state.l", _outputMethod="push")]
    first, second = outcomes(run_tick(agent(), {"calls": calls, "output": None}, {"1:charge": big, "2:charge": big}))
    assert first["wrote"]["†state.a"]["whole"] == "†state.a"
    assert "whole" not in second["pushed"]["†state.l"]


# -- what outgrows its room ----------------------------------------------------------------

ROOM = 20_000


def long_agent(ticks: int) -> Loop:
    loop = agent({"type": "state", "state": {"count": 0}}, maxTicks=100)
    for index in range(ticks):
        solution = {"calls": [call("charge", "†state.a", x=f"order-{index}"), call("mail")], "output": None}
        run_tick(loop, solution, {"1:charge": f"{index} " + "x" * 900})
    return loop


def conversation(loop: Loop, ticks: int, room: float | None = ROOM) -> tuple[PromptTurn, ...]:
    turns: list[Turn] = loop.turn_log.turns[:ticks]
    end = loop.turn_log.turns[ticks].at if ticks < len(loop.turn_log.turns) else len(loop.request.context)
    messages: list[Message] = list(loop.request.context[:end])
    return build_conversation(messages, turns, room)


def test_a_conversation_is_cut_seldom_and_grows_byte_by_byte_in_between() -> None:
    loop = long_agent(60)
    cuts, before = 0, ""
    for ticks in range(61):
        shown = conversation(loop, ticks)
        text = text_of(shown)
        assert len(text.encode()) <= ROOM * 1.2
        assert [turn.role for turn in shown] == ["user", *["assistant", "user"] * (len(shown) // 2)]
        cuts += not text.startswith(before)
        before = text
    assert 2 <= cuts <= 8


def test_a_cut_keeps_every_word_the_last_ticks_the_values_and_the_effects() -> None:
    loop = long_agent(60)
    shown, whole = conversation(loop, 60), conversation(loop, 60, None)
    assert len(shown) < len(whole)
    assert shown[-2 * KEPT_TURNS :] == whole[-2 * KEPT_TURNS :]
    first = shown[0].text
    assert USER["content"] in first
    assert '"count":0' in first
    left_out = (len(whole) - len(shown)) // 2
    assert f"Your answers 1 to {left_out} are left out here" in first
    effects = first.partition("<earlier>")[2]
    assert f"order-{left_out - 1}" in effects
    assert '"outcome":"started"' in effects
    assert re.search(r"the first \d+ of them in short: charge completed \d+ times, mail started \d+ times", effects)
    assert f'"a":"{left_out - 1} xxx' in first  # the value as of then; what it replaced is gone
    assert '"a":"0 xxx' not in text_of(shown)


def test_data_that_alone_outgrows_the_room_is_shown_in_part_and_words_never_are() -> None:
    words = {"role": "user", "content": "word " * 10_000}
    documents = [{"type": "data", "kind": "doc", "data": {f"d{i}": "x" * 2_000}} for i in range(100)]
    text = text_of(conversation(loop_of([*TOOLS, words, *documents]), 0))
    assert words["content"] in text
    assert IN_PART in text
    assert len(text) < len(words["content"]) + ROOM


def test_with_a_small_window_smaller_values_are_large() -> None:
    loop = agent({"type": "state", "state": {"text": "x" * (ROOM // 4)}})
    assert IN_PART in text_of(conversation(loop, 0))
    assert IN_PART not in text_of(conversation(loop, 0, None))
