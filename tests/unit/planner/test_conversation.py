"""The conversation with a planner: outcomes of every kind, a prefix that never changes, and what is left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from acts.language.messages import Message
from acts.language.strict_json import json_size
from acts.machines.commands import AskSolution
from acts.machines.events import ChildStarted, RecordReceived
from acts.planner.notation import IN_PART
from acts.planner.prompt import KEPT_TURNS, PromptTurn, build_conversation
from acts.tree.records import Turn
from acts.tree.signal_records import StreamedCalls
from tests.agent_driver import Agent
from tests.unit.planner.test_prompt import agent_of, planner, run_tick, walk_template

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


def outcomes(subject: Agent) -> list[Json]:
    """The outcomes that the last turn of the user shows."""
    text = planner(subject).turns[-1].text
    inside = text.partition("<outcomes>\n")[2].partition("\n</outcomes>")[0]
    return [json.loads(line) for line in inside.splitlines() if line.startswith("{")]


def agent(*context: Json, **config: Json) -> Agent:
    return agent_of([*TOOLS, USER, *context], **config)


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
    subject = run_tick(agent(), {"calls": calls, "output": None}, results)
    assert outcomes(subject) == expected
    assert "\n<data" not in planner(subject).turns[-1].text  # what was written stands with its call, and only there


@pytest.mark.parametrize("more", [{}, {"note": "a key that no answer has"}])
def test_every_call_of_an_answer_that_was_refused_after_calls_had_started_has_an_outcome(more: Json) -> None:
    first, *rest = [call("charge", "†state.a"), {"_tool": "nope"}, call("mail"), 5]
    subject = agent(stream=True)
    subject.next_tick()
    begun = subject.handle(RecordReceived(StreamedCalls(tick=1, attempt=1, first=0, calls=(first,))))
    subject.handle(ChildStarted("plan-1", "a/plan-1"))
    assert subject.answered({"calls": [first, *rest], "output": None, **more}) is None
    subject.walk(begun, {"1:charge": 1})
    done, left = outcomes(subject)
    assert done == A
    assert (left["calls"], left["outcome"]) == (["2:nope", "3:mail", "4:?"], "not run")


@pytest.mark.parametrize("streamed", [False, True])
def test_words_that_come_now_while_the_model_answers_keep_the_rest_of_the_answer_from_running(
    *, streamed: bool
) -> None:
    words = {"type": "text", "text": "Stop after the first."}
    first, second = call("charge", "†state.a"), call("mail", "†state.b")
    subject = agent(stream=True)
    subject.next_tick()
    begun = None
    if streamed:
        begun = subject.handle(RecordReceived(StreamedCalls(tick=1, attempt=1, first=0, calls=(first,))))
        subject.handle(ChildStarted("plan-1", "a/plan-1"))
    subject.provide(words, is_urgent=True)
    assert (
        subject.handle(RecordReceived(StreamedCalls(tick=1, attempt=1, first=int(streamed), calls=(second,)))) is None
    )
    asked = subject.answered({"calls": [first, second], "output": {"done": True}})
    if streamed:
        asked = subject.walk(begun, {"1:charge": 1})
    assert isinstance(asked, AskSolution)
    left = {"outcome": "not run"} | ({"call": "2:mail"} if streamed else {"calls": ["1:charge", "2:mail"]})
    assert [{k: o[k] for k in o if k != "reason"} for o in outcomes(subject)] == [*([A] if streamed else []), left]
    assert "<text>\nStop after the first." in planner(subject).turns[-1].text


def instances(count: int, size: int = 10) -> list[Json]:
    return [{"type": "data", "kind": "order", "data": {"text": "x" * size}, "_instance": f"o{i}"} for i in range(count)]


def test_the_outcomes_of_many_instances_are_counted() -> None:
    ids = [f"o{i}" for i in range(1_200)]
    subject = walk_template(agent_of([*TOOLS, *instances(1_200)]), ids)
    done, failed = outcomes(subject)
    assert (done["outcome"], done["instances"], list(done["examples"])) == ("completed", 1_199, ids[:3])
    assert done["examples"]["o0"] == {"wrote": {"†state.receipt": {"id": "o0"}}}
    assert (failed["outcome"], failed["instances"]) == ("failed", 1)
    assert failed["of"] == [{"_instance": "o1199", "error": {"code": "declined", "message": "no"}}]
    assert len(planner(subject).turns[-1].text) < 1_000


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
    """Also across continue-as-new, where a subject is built anew of its Request and what the run before carried."""
    subject = agent(step=step)
    before = text_of(planner(subject).turns)
    for solution, results in MORE:
        if subject.tick == len(subject.turns):
            subject.next_tick()
        if carry:
            subject.hold()
        run_tick(subject, solution, results)
        if carry:
            subject = subject.renewed()
        after = text_of(planner(subject).turns)
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after


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


ROOM = 20_000


def long_agent(ticks: int) -> Agent:
    subject = agent({"type": "state", "state": {"count": 0}}, maxTicks=100)
    for index in range(ticks):
        solution = {"calls": [call("charge", "†state.a", x=f"order-{index}"), call("mail")], "output": None}
        run_tick(subject, solution, {"1:charge": f"{index} " + "x" * 900})
    return subject


def conversation(subject: Agent, ticks: int, room: float | None = ROOM) -> tuple[PromptTurn, ...]:
    turns: list[Turn] = subject.turns[:ticks]
    end = subject.turns[ticks].at if ticks < len(subject.turns) else len(subject.request.context)
    messages: list[Message] = list(subject.request.context[:end])
    return build_conversation(messages, turns, room)


def test_a_conversation_is_cut_seldom_and_grows_byte_by_byte_in_between() -> None:
    subject = long_agent(60)
    cuts, before = 0, ""
    for ticks in range(61):
        shown = conversation(subject, ticks)
        text = text_of(shown)
        assert len(text.encode()) <= ROOM * 1.2
        assert [turn.role for turn in shown] == ["user", *["assistant", "user"] * (len(shown) // 2)]
        cuts += not text.startswith(before)
        before = text
    assert 2 <= cuts <= 8


def test_a_cut_keeps_every_word_the_last_ticks_the_values_and_the_effects() -> None:
    subject = long_agent(60)
    shown, whole = conversation(subject, 60), conversation(subject, 60, None)
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
