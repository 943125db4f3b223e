"""The Loop as a state machine: Solutions and results go in, what to do next comes out. No server, no model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.language.expression_parser import parse
from acts.language.request_reader import parse_message, read_request
from acts.language.usage import Usage
from acts.machines.agent_context import MAX_ERRORS_SHOWN
from acts.machines.loop import Loop
from acts.machines.loop_steps import AskModel, AwaitApproval, Finished, StartPlan, Step
from acts.plan.validate import validate_request
from acts.views.results import build_agent_result, build_result
from tests.property.drive import Drive

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


def loop_of(*context: Json, schema: Json = None, most_calls: int = 20_000, **config: Json) -> Loop:
    """A loop whose budget refuses more than ``most_calls`` Calls at once."""

    def refusal(count: int) -> str | None:
        return f"the budget of {most_calls} calls is spent" if count > most_calls else None

    request: dict[str, Json] = {"config": {"model": "scripted:x", **config}, "context": [ACT, THINK, *context]}
    return Loop(read_request(request if schema is None else {**request, "schema": schema}), {}, [], refusal)


def walk(request: dict[str, Json], results: Results) -> dict[str, Json]:
    """The result of a ``Plan`` that is started with the Request of an agent."""
    drive = Drive(validate_request(json.loads(json.dumps(request))), results)
    drive.finish_all()
    return json.loads(json.dumps(build_result(drive.walk, Usage())))


def play(loop: Loop, *ticks: Json, carry: Callable[[Loop], Loop] = lambda loop: loop) -> Step:
    """Each tick is a Solution, or a Solution and the results of its Calls. The last thing that came of them."""
    step: Step = loop.next_tick()
    for tick in ticks:
        assert isinstance(step, AskModel), step
        solution, results = tick if isinstance(tick, tuple) else (tick, {})
        loop.usage.add({"requests": 1, "inputTokens": 10, "outputTokens": 5})
        step = loop.answered(json.loads(json.dumps(solution)))
        if isinstance(step, StartPlan):
            step = loop.plan_ended(walk(step.request, results))
        if isinstance(step, AskModel):
            loop.undo_tick()
            loop = carry(loop)
            step = loop.next_tick()
    return step


def last_error(loop: Loop) -> dict[str, Json]:
    raw = loop.request.context[-1].raw
    assert raw["type"] == "error"
    error = raw["data"]["error"]
    assert isinstance(error, dict)
    return error


# -- outputs ---------------------------------------------------------------------


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
    loop = loop_of(STATE)
    step = play(loop, {"calls": [], "output": answer})
    assert step == Finished("completed")
    assert build_agent_result(loop, "completed")["output"] == output
    assert type(loop.output) is type(output)


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
        ({"calls": [call("act", "†")]}, "invalidExpression", "/calls/0/_outputPath"),
        ({"calls": [call("act", "†plan.x")]}, "forbiddenWrite", "/calls/0/_outputPath"),
        ({"calls": [call("act", x="†state.nothing")]}, "unknownReference", "/calls/0/x"),
        ({"calls": [call("act", _instance="A")]}, "unknownInstance", "/calls/0/_instance"),
        ({"calls": [call("act", _delegate="x")]}, "forbiddenMeta", "/calls/0/_delegate"),
        ({"calls": [call("act", _made="up")]}, "forbiddenMeta", "/calls/0/_made"),
        ({"calls": [call("think", "†state.x || †state.y", _output=1)]}, "forbiddenMeta", "/calls/0/_output"),
        ({"calls": [call("act", "†state.x", x="†state.y"), call("act", "†state.y", x="†state.x")]}, "cycle",
         "/calls/0"),
    ],
)  # fmt: skip
def test_a_solution_that_does_not_stand_goes_back_as_an_error_and_counts_as_a_tick(
    solution: Json, code: str, pointer: str | None
) -> None:
    loop = loop_of(STATE)
    step = play(loop, solution)
    assert step == AskModel(2, len(loop.request.context))
    error = last_error(loop)
    assert (error["code"], error.get("pointer")) == (code, pointer)
    assert [e["code"] for e in loop.results.errors] == [code]
    assert loop.results.calls == []
    assert not any(m.type == "plan" for m in loop.request.context)
    assert play_on(loop, {"output": "at last"}) == Finished("completed")


def play_on(loop: Loop, solution: Json) -> Step:
    return loop.answered(solution)


def test_an_error_names_the_call_that_it_is_about() -> None:
    loop = loop_of()
    bad = call("nope", "†state.x")
    play(loop, {"calls": [call("act", "†state.y"), bad]})
    assert loop.request.context[-1].raw["data"]["call"] == bad


def test_problems_of_calls_and_of_the_output_are_told_together() -> None:
    loop = loop_of()
    play(loop, {"calls": [call("nope"), call("nope")], "output": "†"})
    assert [e["code"] for e in loop.results.errors] == ["invalidExpression", "unknownTool", "unknownTool"]


def test_of_very_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    loop = loop_of()
    play(loop, {"calls": [call("nope") for _ in range(200)]})
    shown = [m.raw["data"]["error"] for m in loop.request.context if m.type == "error"]
    assert len(shown) == MAX_ERRORS_SHOWN + 1
    assert shown[-1] == {"code": "moreProblems", "message": f"… and {200 - MAX_ERRORS_SHOWN} more problems"}


def test_the_output_is_checked_when_its_references_are_resolved() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    loop = loop_of(STATE, schema=schema)
    play(loop, {"output": {"n": "†state.s"}})
    assert (last_error(loop)["code"], last_error(loop)["pointer"]) == ("SchemaMismatch", "/output/n")
    assert play_on(loop, {"output": {"n": "†state.a"}}) == Finished("completed")


def test_the_long_form_of_a_schema_means_the_schema_of_its_output() -> None:
    long = {"type": "object", "properties": {"calls": {"type": "array"}, "output": {"type": "integer"}}}
    loop = loop_of(STATE, schema=long)
    play(loop, {"output": "text"})
    assert last_error(loop)["code"] == "SchemaMismatch"
    assert play_on(loop, {"output": "†state.a"}) == Finished("completed")


def test_references_of_an_output_are_resolved_after_the_calls_of_its_tick() -> None:
    loop = loop_of(STATE)
    step = play(loop, ({"calls": [call("act", "†state.a")], "output": {"new": "†state.a"}}, {"1:act": "new"}))
    assert (step, loop.output) == (Finished("completed"), {"new": "new"})


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
    loop = loop_of(STATE)
    step = play(loop, ({"calls": calls, "output": "well"}, results))
    assert (step == Finished("completed")) is stands
    assert bool(loop.results.errors) is not stands
    assert any(m.type == "error" for m in loop.request.context) is not stands


def test_an_output_that_needs_what_was_not_written_is_withheld() -> None:
    loop = loop_of()
    calls = [call("act", "†state.x || †state.error")]
    step = play(loop, ({"calls": calls, "output": "†state.x"}, {"1:act": fails("Boom")}))
    assert isinstance(step, AskModel)
    assert last_error(loop)["code"] == "UnresolvedReference"
    assert "†state.x" in last_error(loop)["message"]


# -- what a tick leaves ----------------------------------------------------------


def test_a_tick_leaves_its_plan_its_results_and_its_errors_in_the_context() -> None:
    loop = loop_of(STATE)
    calls = [call("act", "†state.x"), call("act", "†state.y"), call("act", "†state.z", x="†state.y")]
    play(loop, ({"calls": calls}, {"1:act": "x", "2:act": fails("Boom")}))
    plan, state, error = loop.context.appended()
    assert plan == {"type": "plan", "plan": calls, "mode": "eager"}
    assert (state["state"], state["_outputPath"], state["_call"]) == ({"x": "x"}, "†state.x", calls[0])
    assert error["data"] == {"call": calls[1], "error": {"code": "Boom", "message": "it was Boom"}}
    assert [(c["id"], c["state"], c["tick"]) for c in loop.results.calls] == [
        ("1:act", "completed", 1), ("2:act", "failed", 1), ("3:act", "skipped", 1),
    ]  # fmt: skip


def test_the_next_tick_reads_what_the_one_before_wrote() -> None:
    loop = loop_of()
    step = play(
        loop,
        ({"calls": [call("act", "†state.n", _outputMethod="push")]}, {"1:act": 1}),
        ({"calls": [call("act", "†state.n", x="†state.n", _outputMethod="push")], "output": "†state.n"}, {"1:act": 2}),
    )
    assert (step, loop.output) == (Finished("completed"), [1, 2])


def test_a_plan_of_the_request_is_shown_and_not_run_and_its_mode_stays() -> None:
    planned = [call("act", "†state.x"), call("nobody knows")]
    loop = loop_of({"type": "plan", "plan": planned, "mode": "lazy"}, approve={"plan": False})
    play(loop, ({"calls": [call("act", "†state.y")]}, {"1:act": 1}), {"calls": [call("nope")]})
    assert [c["tool"] for c in loop.results.calls] == ["act"]
    assert loop.context.appended()[0]["mode"] == "lazy"


def test_a_lazy_plan_drops_what_was_answered_too_early() -> None:
    loop = loop_of({"type": "plan", "plan": [], "mode": "lazy"}, approve={"plan": False})
    play(loop, ({"calls": [call("think", "†state.x", _output="guess")]}, {"1:think": "asked"}))
    assert build_agent_result(loop, "x")["state"] == {"x": "asked"}


def test_a_message_from_outside_is_in_the_next_prompt_and_plan() -> None:
    loop = loop_of()
    step = loop.next_tick()
    message = parse_message({"type": "input", "input": {"n": 5}})
    loop.provide(message)  # type: ignore[arg-type]
    step = loop.answered({"calls": [call("act", "†state.x", x="†input.n")], "output": "†input.n"})
    assert isinstance(step, StartPlan)
    assert loop.plan_ended(walk(step.request, {})) == Finished("completed")
    assert loop.output == 5


# -- what people say, and what they change -------------------------------------------


OWN = [{"type": "state", "state": {"n": n}, "_instance": id_} for n, id_ in enumerate("ab")]
APPROVED = {"what": "call", "call": "1:act", "decision": "approve", "version": 1, "date": "…"}


def decisions_of(loop: Loop, instance: str | None) -> Json:
    return loop.context.value(parse("†decision"), instance)


def test_a_decision_about_an_instance_is_its_own_and_any_other_is_everybodys() -> None:
    loop = loop_of(*OWN)
    loop.context.append_decision({"what": "plan", "decision": "approve", "reason": "go"})
    loop.context.append_decision({**APPROVED, "instance": "a", "reason": "the debts of a"})
    assert [decisions_of(loop, i).get("reason") for i in (None, "a", "b")] == ["go", "the debts of a", "go"]
    loop.context.append_decision({**APPROVED, "instance": "one of a delegate"})
    assert loop.request.instances() == ("a", "b")


def test_a_decision_replaces_the_one_before() -> None:
    loop = loop_of()
    loop.context.append_decision({**APPROVED, "by": "Ada", "reason": "the first"})
    loop.context.append_decision({**APPROVED, "call": "2:act"})
    assert decisions_of(loop, None) == {"what": "call", "call": "2:act", "decision": "approve"}


def test_a_template_is_counted_once_for_each_instance() -> None:
    loop = loop_of(*OWN)
    loop.next_tick()
    step = loop.answered({"calls": [call("act", "†state.x"), call("act", "†state.y")]})
    assert isinstance(step, StartPlan)
    assert step.calls == 4


def test_the_call_that_was_edited_stands_beside_its_error() -> None:
    loop = loop_of()
    loop.next_tick()
    step = loop.answered({"calls": [call("act", "†state.x", n=1)]})
    assert isinstance(step, StartPlan)
    result = walk(step.request, {"1:act": fails("declined")})
    changed = call("act", "†state.y", n=2)
    result["calls"][0]["call"] = changed
    loop.plan_ended(result)
    assert [m["data"]["call"] for m in loop.context.appended() if m["type"] == "error"] == [changed]


# -- step: call --------------------------------------------------------------------


def test_of_a_solution_only_the_first_call_in_plan_order_is_run() -> None:
    loop = loop_of(STATE, step="call")
    calls = [call("act", "†state.last", x="†state.first"), call("act", "†state.first")]
    assert isinstance(loop.next_tick(), AskModel)
    step = loop.answered({"calls": calls, "output": "early"})
    assert isinstance(step, StartPlan)
    assert step.ids == ("2:act",)
    assert [c["_outputPath"] for c in step.request["context"][-1]["plan"]] == ["†state.first"]
    assert isinstance(loop.plan_ended(walk(step.request, {"1:act": 1})), AskModel)
    assert [(c["id"], c["state"]) for c in loop.results.calls] == [("2:act", "completed")]
    plan = loop.request.plan
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
    loop = loop_of(step="call")
    step = play(loop, ({"calls": calls, "output": "done"}, {}))
    assert [c["id"] for c in loop.results.calls] == [run]
    assert (step == Finished("completed")) is over


# -- limits ------------------------------------------------------------------------

AGAIN = ({"calls": [call("act", "†state.x")]}, {"1:act": 1})


@pytest.mark.parametrize(
    ("config", "ticks", "words"),
    [
        ({"maxTicks": 1}, 1, "maxTicks 1"),
        ({"maxTicks": 3}, 3, "maxTicks 3"),
        ({"most_calls": 0}, 1, "0 calls"),
    ],
)
def test_a_limit_ends_the_loop_says_which_and_keeps_the_state(config: Json, ticks: int, words: str) -> None:
    loop = loop_of(**config)
    step = play(loop, *[AGAIN] * ticks)
    assert isinstance(step, Finished)
    assert (step.status, step.code) == ("failed", "LimitExceeded")
    assert words in step.message
    assert loop.tick == ticks
    assert build_agent_result(loop, "failed")["state"] == ({} if "most_calls" in config else {"x": 1})


def test_ticks_that_were_refused_count_like_any_other() -> None:
    step = play(loop_of(maxTicks=2), {"calls": 5}, {})
    assert isinstance(step, Finished)
    assert "maxTicks 2" in step.message


def test_an_output_of_the_last_tick_still_stands() -> None:
    assert play(loop_of(maxTicks=2), AGAIN, {"output": 1}) == Finished("completed")


def test_the_budget_refuses_all_calls_of_a_solution_or_none() -> None:
    loop = loop_of(*OWN, most_calls=3)
    loop.next_tick()
    two = {"calls": [call("act", "†state.x"), call("act", "†state.y")]}  # once for each of the two instances
    assert loop.answered(two) == Finished("failed", "the budget of 3 calls is spent", "LimitExceeded")
    assert loop.results.calls == []


def test_with_steps_of_one_call_only_what_is_run_counts_as_a_call() -> None:
    loop = loop_of(step="call")
    loop.next_tick()
    step = loop.answered({"calls": [call("act", "†state.x"), call("act", "†state.y")]})
    assert isinstance(step, StartPlan)
    assert step.calls == 1


def test_the_plan_of_a_tick_has_the_settings_of_the_agent_without_those_of_its_loop() -> None:
    loop = loop_of(budget={"requests": 5, "tokens": 100, "cost": 1, "calls": 9}, maxTicks=7, step="call", temperature=0)
    loop.next_tick()
    step = loop.answered({"calls": [call("act")]})
    assert isinstance(step, StartPlan)
    assert step.request["config"] == {"model": "scripted:x", "temperature": 0, "approve": {"plan": False}}


def test_an_answer_that_is_no_solution_counts_as_a_tick() -> None:
    loop = loop_of(maxTicks=2)
    loop.next_tick()
    assert loop.answer_unusable("modelNotJson", "it said Sure!") == AskModel(2, len(loop.request.context))
    assert last_error(loop) == {"code": "modelNotJson", "message": "it said Sure!"}
    assert isinstance(loop.answer_unusable("modelNotJson", "it said Sure!"), Finished)


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
        Loop(read_request(request_), {}, [])
    assert code in [p.code for p in refused.value.problems if p.fatal]


# -- carrying over -------------------------------------------------------------------

STORY: tuple[Json, ...] = (
    ({"calls": [call("act", "†state.n", _outputMethod="push"), call("act", "†user.name")]}, {"1:act": 1, "2:act": "A"}),
    {"calls": [call("nope")]},
    ({"calls": [call("act", "†state.n", _outputMethod="push"), call("act", "†state.m", x="†user.name")],
      "output": "†state.n"}, {"1:act": 2, "2:act": fails("Boom")}),
    {"output": "†state.missing"},
    ({"calls": [call("think", "†state.t", _output={"a": [1]})], "output": {"n": "†state.n", "t": "†state.t.a[0]"}}, {}),
)  # fmt: skip


@pytest.mark.parametrize("step", ["plan", "call"])
def test_a_loop_that_is_carried_over_after_each_tick_comes_to_the_same(step: str) -> None:
    def carried(loop: Loop) -> Loop:
        snapshot = json.loads(json.dumps(loop.snapshot()))
        again = loop_of(STATE, step=step)
        again.restore(snapshot)
        loops.append(again)
        assert again.snapshot() == loop.snapshot()
        return again

    loops = [loop_of(STATE, step=step)]
    straight = loop_of(STATE, step=step)
    assert play(straight, *STORY) == play(loops[0], *STORY, carry=carried)
    assert build_agent_result(loops[-1], "x") == build_agent_result(straight, "x")
    assert len(loops) >= len(STORY)


# -- size ----------------------------------------------------------------------------


def carried(loop: Loop) -> Loop:
    """The same loop in the next run."""
    again = loop_of(*loop.request.raw["context"][2:], **(loop.request.raw["config"] or {}))
    again.restore(json.loads(json.dumps(loop.snapshot())))
    return again


def test_a_plan_that_waits_for_a_person_is_carried_over_as_it_was_edited() -> None:
    loop = loop_of({"type": "plan", "plan": [], "mode": "lazy"}, budget={"calls": 2})
    loop.next_tick()
    assert loop.answered({"calls": [call("act", "†state.a")], "output": "†state"}) == AwaitApproval(1)
    loop.edited(loop.check_edit(None, None, (call("act", "†state.b"), call("act", "†state.c"))))
    again = carried(loop)
    assert (again.begin(), again.tick, again.proposed_calls) == (AwaitApproval(1), 1, loop.proposed_calls)
    step = again.approved()
    assert isinstance(step, StartPlan)
    assert again.plan_ended(walk(step.request, {"1:act": 1, "2:act": 2})) == Finished("completed")
    assert again.output == {"b": 1, "c": 2}


def test_what_of_a_proposal_would_be_walked_is_what_is_walked_when_it_is_approved() -> None:
    for config, count in (({}, 2), ({"step": "call"}, 1), ({"approve": {"plan": True, "calls": True}}, 2)):
        loop = loop_of(STATE, **{"approve": {"plan": True}, "budget": {"calls": 9}, **config})
        loop.next_tick()
        loop.answered({"calls": [call("act", "†state.x", value="†state.a"), call("act", "†state.y")]})
        part, request = loop.pending_plan_request()
        step = loop.approved()
        assert isinstance(step, StartPlan)
        assert (len(part.nodes), request) == (count, step.request)


def test_ten_thousand_calls_are_planned_and_walked() -> None:
    loop = loop_of()
    calls = [call("think", f"†state.n{i}", _output=i) for i in range(10_000)]
    loop.next_tick()
    step = loop.answered({"calls": calls, "output": "†state.n9999"})
    assert isinstance(step, StartPlan)
    assert len(step.ids) == 10_000
    assert loop.plan_ended(walk(step.request, {})) == Finished("completed")
    assert loop.output == 9_999


def nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("depth", [50, 90, 150, 2_000])
def test_a_deeply_nested_output_stands_or_is_refused_and_never_breaks_the_loop(depth: int) -> None:
    loop = loop_of()
    loop.next_tick()
    step = loop.answered({"output": nested(depth)})
    assert step == Finished("completed") if depth < 99 else last_error(loop)["code"] == "invalidSolution"


@pytest.mark.parametrize("depth", [50, 91, 94, 96, 97, 98, 2_000])
def test_a_call_is_refused_as_too_deep_before_a_plan_is_made_of_it(depth: int) -> None:
    loop = loop_of()
    loop.next_tick()
    step = loop.answered({"calls": [call("act", "†state.x", x=nested(depth))]})
    if isinstance(step, StartPlan):
        validate_request(step.request)
    else:
        assert last_error(loop)["code"] == "invalidSolution"


def test_a_message_too_deep_for_a_plan_is_refused() -> None:
    loop = loop_of()
    loop.next_tick()
    try:
        loop.provide(parse_message({"type": "input", "input": {"deep": nested(97)}}))  # type: ignore[arg-type]
    except InvalidRequest:
        return
    step = loop.answered({"calls": [call("act", "†state.x", x="†input.deep")]})
    assert isinstance(step, StartPlan)
    validate_request(step.request)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "state", "state": {"x": 1}, "_instance": "nobody"},
        {"type": "state", "state": {"s": 1}, "_outputPath": "†state.s", "_outputMethod": "push"},
    ],
)
def test_a_message_that_cannot_be_folded_into_the_context_is_refused(message: Json) -> None:
    loop = loop_of(STATE)
    with pytest.raises(InvalidRequest):
        loop.provide(parse_message(message))  # type: ignore[arg-type]


ODD_NAMES = ("type", "tool", "_tool", "items", "$ref", "a b", "†x", "a/b~c", "ключ", "properties", "$schema")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_tool_of_any_name_can_be_handed_over(name: str) -> None:
    schema = {"properties": tool(name)["tool"]["properties"]}
    loop = loop_of({"type": "tool", "tool": schema})
    loop.next_tick()
    step = loop.answered({"calls": [call(name, "†state.x")]})
    assert isinstance(step, StartPlan)
    assert validate_request(step.request).nodes[0].tool.name == name
