"""The agent as a state machine: Solutions and results go in, what to do next comes out. No server, no model."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.language.references import parse
from acts.machines.commands import AskSolution, Finish, StartChild
from acts.views.results import build_agent_result
from tests.agent_driver import Agent, Command

Json = Any
Results = dict[str, Json]
TEXT = {"type": "string"}


def tool(name: str, *, activity: str = "x", **properties: Json) -> dict[str, Json]:
    meta = {
        "_tool": {"const": name}, "_activity": {"const": activity}, "_outputPath": TEXT, "_errorPath": TEXT,
        "_outputMethod": TEXT, "_output": True, "_scopes": {"type": "array"},
    }  # fmt: skip
    return {"type": "tool", "tool": {"type": "object", "properties": {**meta, **properties}}}


ACT, THINK = tool("act"), tool("think", activity="")
STATE = {"type": "state", "state": {"a": 1, "b": None, "list": [1, {"c": 2}], "s": "text", "†odd": 9}}
ODD = '†state["†odd"]'


def call(name: str, path: str | None = None, /, **more: Json) -> dict[str, Json]:
    return {"_tool": name, **({} if path is None else {"_outputPath": path}), **more}


def fails(code: str) -> Json:
    return {"$fail": {"type": code, "message": f"it was {code}"}}


def agent_of(*context: Json, schema: Json = None, **config: Json) -> Agent:
    request: dict[str, Json] = {"config": {"model": "scripted:x", **config}, "context": [ACT, THINK, *context]}
    return Agent(request if schema is None else {**request, "schema": schema})


def play(agent: Agent, *ticks: Json) -> Command:
    """Each tick is a Solution, or a Solution and the results of its Calls. The last thing that came of them."""
    step = agent.next_tick()
    for tick in ticks:
        assert isinstance(step, AskSolution), step
        step = play_tick(agent, tick)
    return step


def play_tick(agent: Agent, tick: Json) -> Command:
    solution, results = tick if isinstance(tick, tuple) else (tick, {})
    step = agent.answered(solution)
    return agent.walk(step, results) if isinstance(step, StartChild) else step


def last_error(agent: Agent) -> dict[str, Json]:
    raw = agent.request.context[-1].raw
    assert raw["type"] == "error"
    error = raw["data"]["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        *((v, v) for v in (0, False, "", [], {}, "text", 1.5, {"a": None}, [None])),
        ("†state.a", 1), ("†state.list[1].c", 2), ("†state.list.0", 1), ("††state.a", "†state.a"), ("†††x", "††x"),
        ("†state.nothing || †state.a", 1), ("†state.a && †state.s", "text"), (ODD, 9),
        ({"deep": [{"er": ["†state.a", "††x"]}]}, {"deep": [{"er": [1, "†x"]}]}),
        ({"†state.a": "†state.a"}, {"†state.a": 1}),  # keys are keys
        ("a ††state.a", "a †state.a"), (" †nobody.a", " †nobody.a"),
        ({"b": "†state.b"}, {"b": None}),
        ({"_tool": "act", "x": "†state.a", "y": "††z"}, {"_tool": "act", "x": "†state.a", "y": "††z"}),
        ([{"plan": [{"_tool": 5, "x": "†["}]}, "†state.a"], [{"plan": [{"_tool": 5, "x": "†["}]}, 1]),
        ({"_tools": "†state.a", "_output": "†state.a"}, {"_tools": 1, "_output": 1}),
    ],
)  # fmt: skip
def test_an_output_ends_the_loop_with_its_references_resolved(answer: Json, output: Json) -> None:
    agent = agent_of(STATE)
    step = play(agent, {"calls": [], "output": answer})
    assert step == Finish("completed")
    assert build_agent_result(agent.run, "completed")["output"] == output
    assert type(agent.output) is type(output)


@pytest.mark.parametrize(
    ("solution", "code", "pointer"),
    [
        ({}, "emptySolution", None), ({"calls": []}, "emptySolution", None), ({"output": None}, "emptySolution", None),
        ({"calls": None, "output": None}, "emptySolution", None), ([], "invalidSolution", None),
        (None, "invalidSolution", None), ("text", "invalidSolution", None), (7, "invalidSolution", None),
        ({"calls": {}}, "invalidSolution", "/calls"), ({"calls": "act"}, "invalidSolution", "/calls"),
        ({"calls": 0}, "invalidSolution", "/calls"), ({"output": 1, "a/b": 1}, "invalidSolution", "/a~1b"),
        ({"output": "†"}, "invalidExpression", "/output"), ({"output": "†state."}, "invalidExpression", "/output"),
        ({"output": {"a~/": ["†state.a ||"]}}, "invalidExpression", "/output/a~0~1/0"),
        ({"output": {"a": [" †state.a"]}}, "embeddedReference", "/output/a/0"),
        ({"output": "†state.nothing"}, "UnresolvedReference", "/output"),
        ({"output": ["†state.a && †state.nothing"]}, "UnresolvedReference", "/output"),
        ({"calls": [5]}, "invalidCall", "/calls/0"), ({"calls": [{}]}, "invalidCall", "/calls/0/_tool"),
        ({"calls": [call("nope")]}, "unknownTool", "/calls/0/_tool"),
        ({"calls": [call("act", "†state.x", x="†state.y"), call("act", "†state.y", x="†state.x")]}, "cycle",
         "/calls/0"),
    ],
)  # fmt: skip
def test_a_solution_that_does_not_stand_goes_back_as_an_error_and_counts_as_a_tick(
    solution: Json, code: str, pointer: str | None
) -> None:
    agent = agent_of(STATE)
    step = play(agent, solution)
    assert isinstance(step, AskSolution)
    assert (step.tick, step.message_count) == (2, len(agent.request.context))
    error = last_error(agent)
    assert (error["code"], error.get("pointer")) == (code, pointer)
    assert [e["code"] for e in agent.results.errors] == [code]
    assert agent.results.calls == []
    assert not any(m.type == "plan" for m in agent.request.context)
    assert agent.answered({"output": "at last"}) == Finish("completed")


@pytest.mark.parametrize(
    ("calls", "results", "stands"),
    [
        ([call("act", "†state.x")], {"1:act": 1}, True),
        ([call("act", "†state.x")], {"1:act": fails("Boom")}, False),
        ([call("act", "†state.x || †state.error")], {"1:act": fails("Boom")}, True),  # it had somewhere to go
        ([call("act", "†state.x", _errorPath="†state.e")], {"1:act": fails("Boom")}, True),
        ([call("act", "†state.x || †state.error"), call("act", "†state.z", x="†state.x")], {"1:act": fails("B")}, True),
        ([call("act")], {}, True),  # fire-and-forget
        ([call("think")], {}, True),  # a thought that is skipped
        ([call("think", "†state.x", _output=1)], {}, True),
        ([call("act", "†state.s", _outputMethod="push")], {"1:act": 1}, False),
    ],
)
def test_a_failed_call_withholds_the_output(calls: list[Json], results: Results, stands: bool) -> None:  # noqa: FBT001 - a case
    agent = agent_of(STATE)
    step = play(agent, ({"calls": calls, "output": "well"}, results))
    assert (step == Finish("completed")) is stands
    assert bool(agent.results.errors) is not stands
    assert any(m.type == "error" for m in agent.request.context) is not stands


def test_a_tick_leaves_its_plan_its_results_and_its_errors_in_the_context() -> None:
    agent = agent_of(STATE)
    calls = [call("act", "†state.x"), call("act", "†state.y"), call("act", "†state.z", x="†state.y")]
    play(agent, ({"calls": calls}, {"1:act": "x", "2:act": fails("Boom")}))
    plan, state, error = agent.context.appended()
    assert plan == {"type": "plan", "plan": calls, "mode": "eager"}
    assert (state["state"], state["_outputPath"], state["_call"]) == ({"x": "x"}, "†state.x", calls[0])
    assert error["data"] == {"call": calls[1], "error": {"code": "Boom", "message": "it was Boom"}}
    assert [(c["id"], c["state"], c["tick"]) for c in agent.results.calls] == [
        ("1:act", "completed", 1), ("2:act", "failed", 1), ("3:act", "skipped", 1),
    ]  # fmt: skip


OWN = [{"type": "state", "state": {"n": n}, "_instance": id_} for n, id_ in enumerate("ab")]
APPROVED = {"what": "call", "call": "1:act", "decision": "approve", "version": 1, "date": "…"}


def decisions_of(agent: Agent, instance: str | None) -> Json:
    return agent.context.log.value(parse("†decision"), instance)


def test_a_decision_about_an_instance_is_its_own_and_any_other_is_everybodys() -> None:
    agent = agent_of(*OWN)
    agent.context.append_decision({"what": "plan", "decision": "approve", "reason": "go"})
    agent.context.append_decision({**APPROVED, "instance": "a", "reason": "the debts of a"})
    assert [decisions_of(agent, i).get("reason") for i in (None, "a", "b")] == ["go", "the debts of a", "go"]
    agent.context.append_decision({**APPROVED, "instance": "one of a delegate"})
    assert agent.request.instances() == ("a", "b")


def test_of_a_solution_only_the_first_call_in_plan_order_is_run() -> None:
    agent = agent_of(STATE, step="call")
    calls = [call("act", "†state.last", x="†state.first"), call("act", "†state.first")]
    assert isinstance(agent.next_tick(), AskSolution)
    step = agent.answered({"calls": calls, "output": "early"})
    assert isinstance(step, StartChild)
    assert step.label == "tick 1: 2:act"
    assert [c["_outputPath"] for c in step.input.request["context"][-1]["plan"]] == ["†state.first"]
    assert isinstance(agent.walk(step, {"1:act": 1}), AskSolution)
    assert [(c["id"], c["state"]) for c in agent.results.calls] == [("2:act", "completed")]
    plan = agent.request.plan
    assert plan is not None
    assert list(plan.calls) == calls


@pytest.mark.parametrize(
    ("calls", "run", "over"),
    [
        ([call("act", "†state.x")], "1:act", True),
        ([call("act", "†state.x"), call("act", "†state.y")], "1:act", False),
        ([call("think"), call("act", "†state.x")], "2:act", False),
        ([call("think")], "1:think", True),
        ([call("act")], "1:act", True),
        ([call("think", "†state.x", _output=1), call("act", "†state.y")], "1:think", False),
    ],
)
def test_an_output_is_withheld_while_calls_of_its_solution_were_not_run(
    calls: list[Json],
    run: str,
    over: bool,  # noqa: FBT001 - a case
) -> None:
    agent = agent_of(step="call")
    step = play(agent, ({"calls": calls, "output": "done"}, {}))
    assert [c["id"] for c in agent.results.calls] == [run]
    assert (step == Finish("completed")) is over


def test_the_budget_refuses_all_calls_of_a_solution_or_none() -> None:
    agent = agent_of(*OWN, budget={"calls": 3})
    agent.next_tick()
    two = {"calls": [call("act", "†state.x"), call("act", "†state.y")]}  # once for each of the two instances
    assert agent.answered(two) == Finish("failed")
    assert "3 calls" in agent.failure.message
    assert agent.results.calls == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"config": {}}, "noModel"),
        ({"config": {"model": "scripted:x"}, "schema": {"type": "nothing"}}, "invalidSchema"),
        ({"config": {"model": "scripted:x"}, "schema": 5}, "invalidSchema"),
        ({"config": {"model": "scripted:x", "maxTick": 1}}, "invalidSetting"),
        ({"config": {"model": "scripted:x"}, "context": [{"type": "tol"}]}, "unknownMessageType"),
        ({"config": {"model": "scripted:x"}, "context": [{"type": "tool", "tool": "nope"}]}, "unknownTool"),
        ({"config": {"model": "scripted:x"}, "context": [{"type": "tool", "tool": {"a": {"type": 5}}}]}, "invalidTool"),
    ],
)
def test_a_request_that_cannot_be_run_is_refused_before_anything_is_asked(request_: Json, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Agent(request_)
    assert code in [p.code for p in refused.value.problems if p.fatal]


def test_a_usable_answer_begins_a_new_row_and_keeps_the_cap() -> None:
    agent = agent_of()
    agent.next_tick()
    asked = agent.answered_badly("modelNotJson", "no JSON", cap=4_000)
    assert isinstance(asked, AskSolution)
    assert (asked.answers_left, asked.least_cap) == (2, 4_000)
    asked = agent.answered({"output": None})
    assert isinstance(asked, AskSolution)
    assert (asked.answers_left, asked.least_cap) == (3, 4_000)


STORY: tuple[Json, ...] = (
    ({"calls": [call("act", "†state.n", _outputMethod="push"), call("act", "†user.name")]}, {"1:act": 1, "2:act": "A"}),
    {"calls": [call("nope")]},
    ({"calls": [call("act", "†state.n", _outputMethod="push"), call("act", "†state.m", x="†user.name")],
      "output": "†state.n"}, {"1:act": 2, "2:act": fails("Boom")}),
    {"output": "†state.missing"},
    ({"calls": [call("think", "†state.t", _output={"a": [1]})], "output": {"n": "†state.n", "t": "†state.t.a[0]"}}, {}),
)  # fmt: skip


@pytest.mark.parametrize("step", ["plan", "call"])
def test_an_agent_that_continues_as_new_after_each_tick_comes_to_the_same(step: str) -> None:
    straight, agent = agent_of(STATE, step=step), agent_of(STATE, step=step)
    end = play(straight, *STORY)
    for tick in STORY:
        command = agent.next_tick()
        agent.hold()
        command = play_tick(agent, tick)
        if command is None:
            assert agent.can_continue_as_new
            agent = agent.renewed()
    command = command or agent.next_tick()
    assert type(command) is type(end)
    assert build_agent_result(agent.run, "x") == build_agent_result(straight.run, "x")


def test_a_plan_that_waits_for_a_person_is_carried_over_as_it_was_edited() -> None:
    agent = agent_of({"type": "plan", "plan": [], "mode": "lazy"}, budget={"calls": 2})
    agent.next_tick()
    assert agent.answered({"calls": [call("act", "†state.a")], "output": "†state"}) is None
    agent.decide("edit", plan=[call("act", "†state.b"), call("act", "†state.c")])
    again = agent.renewed()
    assert (again.next_tick(), again.tick, again.proposed_calls) == (None, 1, agent.proposed_calls)
    assert again.walk(again.decide("approve"), {"1:act": 1, "2:act": 2}) == Finish("completed")
    assert {key: again.output[key] for key in "bc"} == {"b": 1, "c": 2}
