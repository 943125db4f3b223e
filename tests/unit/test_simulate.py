"""The simulation: what a plan would do, reported before it does anything."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import CallError, InvalidRequest
from acts.language.scopes import wrap_message
from acts.language.values import UNKNOWN, nest
from acts.machines.commands import StartCall
from acts.machines.walk import Walk
from acts.plan.validate import ValidatedPlan, validate_request
from acts.simulation import outcome_exploration
from acts.simulation.simulate import simulate, simulate_prepared

ROOT = Path(__file__).parents[2]
META: dict[str, Any] = {
    "_outputPath": {"type": "string"}, "_errorPath": {"type": "string"}, "_outputMethod": {"type": "string"},
    "_scopes": {"type": "array"}, "_output": True,
}  # fmt: skip
STRING, NUMBER = {"type": "string"}, {"type": "number"}


def tool(activity: str = "run", **properties: Any) -> dict[str, Any]:
    """A Tool with an Activity; ``activity=""`` makes it latent."""
    return {"type": "object", "properties": {**META, "_activity": {"const": activity}, **properties}}


TOOLS: dict[str, Any] = {
    "do": tool(x={}),
    "think": tool("", x={}),
    "ask": {"type": "object", "properties": {**META, "_delegate": {"const": "helper"}, "x": {}}},
    "number": tool(x=NUMBER),
    "text": tool(x=STRING),
    "getText": tool(_output=STRING),
    "getMaybe": tool(_output={"type": ["string", "null"]}),
    "getPerson": tool(
        _output={"type": "object", "properties": {"name": STRING}, "required": ["name"], "additionalProperties": False}
    ),
    "getOpen": tool(_output={"type": "object", "properties": {"name": STRING}}),
    "getList": tool(_output={"type": "array", "items": STRING}),
    "getNull": tool(_output={"type": "null"}),
}


def call(tool_: str, x: Any = None, to: str | None = None, **more: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"_tool": tool_, **more}
    if x is not None:
        out["x"] = x
    return out if to is None else {**out, "_outputPath": to}


def request(plan: list[dict[str, Any]], *context: Any, mode: str = "eager", **config: Any) -> dict[str, Any]:
    tools = {"type": "tool", "tool": TOOLS}
    return {"config": config, "context": [tools, *context, {"type": "plan", "plan": plan, "mode": mode}]}


def combinations(result: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = result["outcomes"]["combinations"]
    return items


def problems(result: dict[str, Any], *codes: str) -> list[dict[str, Any]]:
    return [p for p in result["problems"] if p["code"] in codes]


WEATHER = [
    call("think", "Paris", "†state.sunny || †state.rainy"),
    call("do", "†state.sunny", "†state.beach"),
    call("do", "†state.rainy", "†state.museum"),
    call("do", "†state.beach || †state.museum", "†state.day"),
]
PAYMENT = [
    call("do", 50, "†state.receipt || †state.error"),
    call("do", "†state.receipt", "†state.order"),
    call("do", "†state.error", "†state.report"),
]


# -- waves and the critical path -----------------------------------------------


@pytest.mark.parametrize(
    ("plan", "waves", "path"),
    [
        ([], [], []),
        ([call("do", 1, "†state.a")], [["1:do"]], ["1:do"]),
        (
            [call("do", 1, "†state.a"), call("do", 1, "†state.b"), call("do", ["†state.a", "†state.b"], "†state.c")],
            [["1:do", "2:do"], ["3:do"]],
            ["1:do", "3:do"],
        ),
        (  # a reader of the whole state waits for all its writers; a later writer for nobody
            [call("do", 1, "†state.a"), call("do", "†state", "†data.x"), call("do", 1, "†state.b")],
            [["1:do", "3:do"], ["2:do"]],
            ["1:do", "2:do"],
        ),
        (  # listed backwards: the forward rule
            [call("do", "†state.b", "†state.c"), call("do", "†state.a", "†state.b"), call("do", 1, "†state.a")],
            [["3:do"], ["2:do"], ["1:do"]],
            ["3:do", "2:do", "1:do"],
        ),
        (
            [call("do", "†state.n", "†state.n") for _ in range(3)],
            [["1:do"], ["2:do"], ["3:do"]],
            ["1:do", "2:do", "3:do"],
        ),
        (
            [
                *[call("do", 1, "†state.list", _outputMethod="push") for _ in range(3)],
                call("do", "†state.list", "†state.n"),
            ],
            [["1:do", "2:do", "3:do"], ["4:do"]],
            ["1:do", "4:do"],
        ),
        (WEATHER, [["1:think"], ["2:do", "3:do"], ["4:do"]], ["1:think", "2:do", "4:do"]),
    ],
)
def test_calls_run_in_waves_and_the_longest_chain_is_named(plan: Any, waves: Any, path: Any) -> None:
    result = simulate(request(plan, {"type": "state", "n": 0}, model="scripted:x"))
    assert (result["waves"], result["criticalPath"]) == (waves, path)


def test_a_wave_lies_right_behind_the_deepest_call_that_it_waits_for() -> None:
    plan = [call("do", [f"†state.s{j}" for j in range(max(0, i - 3), i, 2)] or 1, f"†state.s{i}") for i in range(40)]
    prepared = validate_request(request(plan))
    result = simulate_prepared(prepared)
    level = {id_: n for n, wave in enumerate(result["waves"]) for id_ in wave}
    for rank, node in enumerate(prepared.nodes):
        before = [level[prepared.nodes[d].id] for d in prepared.graph.dependencies(rank)]
        assert level[node.id] == max(before, default=-1) + 1
    assert len(result["criticalPath"]) == len(result["waves"])


# -- what each call is ---------------------------------------------------------


def test_each_call_says_how_it_runs_what_it_reads_and_where_it_writes() -> None:
    raw = request(
        [
            call("do", {"deep": ["†state.a && †state.b"]}, "†state.c && †state.d", _scopes=["state", "†data.x"]),
            call("think", "†state.c", "†state.e", _errorPath="†state.f"),
            call("ask", 1, "†state.g", _instance="one"),
            call("do", 1),
            call("think", 1, "†state.h", _output=5),
        ],
        {"type": "state", "a": 1, "b": 2},
        {"type": "data", "data": {"x": 1}},
        {"type": "state", "_instance": "one", "q": 1},
        model="scripted:x",
        approve={"calls": ["ask"], "scopes": True},
    )  # fmt: skip
    raw["context"].insert(1, {"type": "tool", "tool": {"do": {**TOOLS["do"], "_options": {"taskQueue": "gpu"}}}})
    common = {"scopes": [], "approval": False, "background": False}
    activity = {"tool": "do", "how": "activity", "activity": "run", "taskQueue": "gpu"}
    assert simulate(raw)["calls"] == [
        {**common, **activity, "id": "1:do", "reads": ["†state.a", "†state.b"], "writes": ["†state.c", "†state.d"],
         "scopes": ["†state", "†data.x"], "approval": True},
        {**common, "id": "2:think", "tool": "think", "how": "latent", "reads": ["†state.c"],
         "writes": ["†state.e", "†state.f"]},
        {**common, "id": "3:ask", "tool": "ask", "how": "delegate", "delegate": "helper", "reads": [],
         "writes": ["†state.g"], "instance": "one", "approval": True},
        {**common, **activity, "id": "4:do", "reads": [], "writes": [], "background": True},
        {**common, "id": "5:think", "tool": "think", "how": "latent", "given": True, "reads": [],
         "writes": ["†state.h"]},
    ]  # fmt: skip


# -- combinations of outcomes --------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            WEATHER,
            [
                ({"1:think": "†state.sunny"}, ["1:think", "2:do", "4:do"], ["3:do"]),
                ({"1:think": "†state.rainy"}, ["1:think", "3:do", "4:do"], ["2:do"]),
            ],
        ),
        (
            PAYMENT,
            [
                ({"1:do": "†state.receipt"}, ["1:do", "2:do"], ["3:do"]),
                ({"1:do": "†state.error"}, ["1:do", "3:do"], ["2:do"]),
            ],
        ),
        (  # an error path of its own
            [call("do", 1, "†state.a", _errorPath="†state.oops"), call("do", "†state.oops.code", "†state.b")],
            [
                ({"1:do": "†state.a"}, ["1:do"], ["2:do"]),
                ({"1:do": "†state.oops"}, ["1:do", "2:do"], []),
            ],
        ),
        (  # of branches in a row only those that ran tell combinations apart
            [
                call("do", 1, "†state.a || †state.b"),
                call("do", "†state.a", "†state.c || †state.d"),
                call("do", "†state.d"),
            ],
            [
                ({"1:do": "†state.a", "2:do": "†state.c"}, ["1:do", "2:do"], ["3:do"]),
                ({"1:do": "†state.b"}, ["1:do"], ["2:do", "3:do"]),
                ({"1:do": "†state.a", "2:do": "†state.d"}, ["1:do", "2:do", "3:do"], []),
            ],
        ),
        (  # a conjunction is one outcome; what is common to two is written either way
            [
                call("do", 1, "†state.all && (†state.a || †state.b)"),
                call("do", "†state.all", "†state.x"),
                call("do", "†state.b"),
            ],
            [
                ({"1:do": "†state.all && †state.a"}, ["1:do", "2:do"], ["3:do"]),
                ({"1:do": "†state.all && †state.b"}, ["1:do", "2:do", "3:do"], []),
            ],
        ),
        (  # kinds of one's own
            [call("do", 1, "†weather.sunny || †rain"), call("do", "†rain.amount", "†state.x")],
            [
                ({"1:do": "†weather.sunny"}, ["1:do"], ["2:do"]),
                ({"1:do": "†rain"}, ["1:do", "2:do"], []),
            ],
        ),
        ([call("think", 1, "†state.a", _output=1), call("think", 1)], [({}, ["1:think"], ["2:think"])]),
        ([call("do", 1), call("do", "†state.a"), call("do", 1, "†state.a")], [({}, ["3:do", "1:do", "2:do"], [])]),
        ([], [({}, [], [])]),
    ],
)
def test_each_combination_of_outcomes_tells_what_runs_and_what_is_skipped(plan: Any, expected: Any) -> None:
    result = simulate(request(plan, model="scripted:x"))
    items = [(c["choices"], sorted(c["run"]), c["skipped"]) for c in combinations(result)]
    assert items == [(choices, sorted(run), skipped) for choices, run, skipped in expected]
    assert result["outcomes"]["truncated"] is False


def test_a_plan_without_branches_has_one_combination() -> None:
    result = simulate(request([call("do", i, f"†state.s{i}") for i in range(50)]))
    assert [len(c["run"]) for c in combinations(result)] == [50]


def test_combinations_beyond_the_limit_are_left_out_and_the_forecast_still_holds_for_them() -> None:
    branches = 7  # 128 combinations
    plan = [call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(branches)]
    plan += [call("think", f"†state.b{i}", f"†state.c{i}") for i in range(branches)] + [call("think", 1, "†state.z")]
    result = simulate(request(plan, model="scripted:x"))
    assert result["outcomes"]["truncated"] is True
    items = combinations(result)
    assert len(items) == outcome_exploration.MAX_COMBINATIONS
    assert len({json.dumps(c["choices"]) for c in items}) == len(items)
    assert result["requests"] == {"min": 1, "max": 1 + branches}
    # the first outcomes come first, then one difference after the other
    differing = [sum(path.startswith("†state.b") for path in c["choices"].values()) for c in items]
    assert differing == sorted(differing)


def test_exactly_64_combinations_are_all_shown() -> None:
    result = simulate(request([call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(6)]))
    assert (len(combinations(result)), result["outcomes"]["truncated"]) == (64, False)


def test_the_work_is_bounded_for_long_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_exploration, "MAX_STEPS", 600)  # a run of 30 calls takes 180
    plan = [call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(30)]
    result = simulate(request(plan))
    assert (len(combinations(result)), result["outcomes"]["truncated"]) == (3, True)
    assert (
        simulate(request(plan[:1] + [call("do", 1, f"†state.c{i}") for i in range(200)]))["outcomes"]["truncated"]
        is True
    )


def test_an_outcome_that_no_result_can_choose_is_reported_and_not_walked() -> None:
    result = simulate(request([call("do", 1, "†state.a || †state.a.b"), call("do", "†state.a", "†state.c")]))
    assert [c["run"] for c in combinations(result)] == [["1:do", "2:do"]]
    (problem,) = problems(result, "unreachableOutcome")
    assert problem["call"] == "1:do"
    assert "†state.a.b" in problem["message"]


def test_what_only_provide_can_bring_is_waited_for() -> None:
    result = simulate(
        request([call("do", "†data.later", "†state.a"), call("do", "†state.a", "†state.b")], missing="wait")
    )
    assert combinations(result) == [{"choices": {}, "run": [], "skipped": [], "waiting": ["1:do", "2:do"]}]


# -- the same, enumerated by brute force ---------------------------------------


def _everything(prepared: ValidatedPlan) -> list[dict[str, Any]]:
    """All combinations: a walk for every assignment of outcomes to branching calls."""
    branching = [r for r, n in enumerate(prepared.nodes) if len(n.outcomes) > 1]
    items: dict[str, dict[str, Any]] = {}
    for picks in itertools.product(*(range(len(prepared.nodes[r].outcomes)) for r in branching)):
        chosen = dict(zip(branching, picks, strict=True))
        walk, choices = Walk(prepared, lambda n: n.id, lambda _: True), {}
        commands = deque(walk.begin("now"))
        while commands:
            command = commands.pop()
            if not isinstance(command, StartCall):
                continue
            node, pick = command.node, chosen.get(command.rank, 0)
            if command.rank in chosen:
                choices[command.rank] = str(node.outcomes[pick][0])
            if not node.outcomes:
                commands.extend(walk.detached(command.rank, "now"))
            elif pick == node.error:
                commands.extend(walk.failed(command.rank, CallError("oops", "no"), "now"))
            elif node.kind == "latent":
                commands.extend(walk.completed(command.rank, UNKNOWN, "now", pick))
            else:
                path = node.outcomes[pick][0]
                commands.extend(walk.completed(command.rank, wrap_message(path.kind, nest(path.names, UNKNOWN)), "now"))
        states = [(n.id, r.state) for n, r in zip(prepared.nodes, walk.calls, strict=True)]
        item: dict[str, Any] = {
            "choices": {prepared.nodes[r].id: path for r, path in sorted(choices.items())},
            "run": [i for i, s in states if s in ("completed", "detached")],
            "skipped": [i for i, s in states if s == "skipped"],
        }
        failed = [i for i, s in states if s == "failed"]
        item = {**item, "failed": failed} if failed else item
        items[json.dumps(item["choices"])] = item
    return sorted(items.values(), key=json.dumps)


@st.composite
def _plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    plan: list[dict[str, Any]] = []
    written: list[str] = []
    for i in range(draw(st.integers(1, 4))):
        reads = draw(st.lists(st.sampled_from(written), max_size=2)) if written else []
        x = draw(st.sampled_from([" || ", " && "])).join(reads) if reads else i
        paths = [f"†state.p{i}{c}" for c in "ab"[: draw(st.integers(1, 2))]]
        error = draw(st.sampled_from([None, f"†state.e{i}"]))
        more = {"_errorPath": error} if error else {}
        plan.append(call(draw(st.sampled_from(["do", "think"])), x, " || ".join(paths), **more))
        written += [*paths, error] if error else paths
    return plan


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_plans())
def test_no_combination_is_missed_and_none_is_invented(plan: list[dict[str, Any]]) -> None:
    prepared = validate_request(request(plan, model="scripted:x"))
    every = _everything(prepared)
    result = simulate_prepared(prepared, lambda _: 1.0)
    items = sorted(combinations(result), key=json.dumps)
    if not result["outcomes"]["truncated"]:
        assert items == every
    for item in every:
        requests = sum(id_.endswith(":think") for id_ in item["run"])
        assert result["requests"]["min"] <= requests <= result["requests"]["max"]
        assert result["cost"]["min"] <= requests <= result["cost"]["max"]
        # the run's start, one of each call, and the question for search attributes
        actions = 1 + len(item["run"]) + len(item.get("failed", ())) + 1
        assert result["actions"]["min"] <= actions <= result["actions"]["max"]


# -- producers and consumers ---------------------------------------------------


A, B = "†state.a", "†state.b"


@pytest.mark.parametrize(
    ("plan", "producer", "produced", "expected"),
    [
        ([call("getText", to=A), call("number", A)], "1:getText", "string", "number"),
        ([call("getPerson", to=A), call("text", A)], "1:getPerson", "object", "string"),
        ([call("getPerson", to=A), call("text", f"{A}.mail")], "1:getPerson", "nothing", "string"),
        ([call("getText", to=A), call("text", f"{A}.length")], "1:getText", "nothing", "string"),
        ([call("getNull", to=A), call("text", A)], "1:getNull", "null", "string"),
        ([call("getMaybe", to=A), call("number", A)], "1:getMaybe", "string or null", "number"),
        ([call("getText", to=A, _outputMethod="push"), call("text", A)], "1:getText", "list", "string"),
        ([call("getText", to=f"{A}.deep"), call("text", A)], "1:getText", "object", "string"),
        ([call("do", 1, A, _errorPath=B), call("text", B)], "1:do", "object", "string"),
        ([call("getText", to=f"{A} || {B}"), call("number", B)], "1:getText", "string", "number"),
        ([call("getText", to=A), call("number", f"{A} || †input.flag")], "1:getText", "string", "number"),
        ([call("think", to=A, _output="x"), call("number", A)], "1:think", '"x"', "number"),
        ([call("number", "†input.flag")], "the context", "true", "number"),
        # a parameter without a type takes every value, but not none
        ([call("getText", to=A), call("do", f"{A}.length")], "1:getText", "nothing", "a value"),
        ([call("getList", to=A), call("do", f"{A}.first")], "1:getList", "nothing", "a value"),
        ([call("getPerson", to=A), call("do", f"{A}.mail")], "1:getPerson", "nothing", "a value"),
        ([call("getText", to=A), call("do", f"{A}.x || {A}.y")], "1:getText", "nothing", "a value"),
    ],
)
def test_a_producer_that_cannot_fit_is_reported_and_its_consumer_does_not_run(
    plan: Any, producer: str, produced: str, expected: str
) -> None:
    result = simulate(request(plan, {"type": "input", "flag": True}))
    (problem,) = problems(result, "cannotFit")
    consumer = f"{len(plan)}:{plan[-1]['_tool']}"
    assert problem["pointer"].endswith(f"/plan/{len(plan) - 1}/x")
    assert "severity" not in problem  # an error
    assert (problem["call"], problem["producer"]) == (consumer, producer)
    assert (problem["found"], problem["expected"]) == (produced, expected)
    for word in (producer, produced, expected):
        assert word in problem["message"]
    assert all(consumer not in c["run"] for c in combinations(result))


@pytest.mark.parametrize(
    ("plan", "produced"),
    [
        ([call("getMaybe", to=A), call("text", A)], "null"),
        ([call("getOpen", to=A), call("text", f"{A}.mail")], "undeclared"),
        ([call("getText", to=A), call("do", A, A), call("number", A)], "string"),
        ([call("getText", to=A), call("do", A), call("getOpen", to=A, _outputMethod="push")], "string"),
        ([call("getText", to="†state.held"), call("number", "†state.held")], "string"),
    ],
)
def test_a_producer_that_may_not_fit_is_a_warning_and_everything_runs(plan: Any, produced: str) -> None:
    result = simulate(request(plan, {"type": "state", "held": 1}))
    assert [(p["found"], p["severity"]) for p in result["problems"]] == [(produced, "warning")]
    assert [len(c["run"]) for c in combinations(result)] == [len(plan)]


@pytest.mark.parametrize(
    "plan",
    [
        [call("do", 1, A), call("number", A)],  # no _output: anything
        [call("getText", to=A), call("text", A)],
        [call("getMaybe", to=A), call("text", f"{A} || †input.word")],  # null falls through
        [call("getPerson", to=A), call("getText", to=f"{A}.mail"), call("text", f"{A}.mail")],
        [call("getText", to=A, _outputMethod="push"), call("text", f"{A}.0")],
        [call("do", 1, A, _errorPath=B), call("text", f"{B}.code")],
        [call("getText", to=A), call("do", A, B), call("do", [A, {"b": B}])],
        [call("getList", to=A), call("do", f"{A}.0")],
        [call("getOpen", to=A), call("do", f"{A}.mail")],  # an open object may hold it
        [call("getText", to=A), call("do", f"{A}.length || †input.word")],
    ],
)
def test_what_fits_is_not_complained_of(plan: Any) -> None:
    result = simulate(request(plan, {"type": "input", "word": "w"}))
    assert result["problems"] == []


@pytest.mark.parametrize("consumer", ["do", "text"])
def test_a_value_that_no_call_can_write_may_still_be_provided(consumer: str) -> None:
    plan = [call("getText", to=A), call(consumer, f"{A}.length", B)]
    result = simulate(request(plan, missing="wait"))
    assert [(p["code"], p["producer"]) for p in result["problems"]] == [("mayNotFit", "1:getText")]
    assert [len(c["run"]) for c in combinations(result)] == [2]


def test_a_value_that_breaks_a_constraint_fails_the_call_in_the_dry_walk() -> None:
    TOOLS_WITH_PATTERN = {"type": "tool", "tool": {"strict": tool(x={"type": "string", "pattern": "^a"})}}  # noqa: N806
    plan = [call("strict", "†input.word", "†state.a"), call("do", "†state.a", "†state.b")]
    result = simulate(request(plan, TOOLS_WITH_PATTERN, {"type": "input", "word": "b"}))
    assert combinations(result) == [{"choices": {}, "run": [], "skipped": ["2:do"], "failed": ["1:strict"]}]
    (problem,) = problems(result, "willFail")
    assert "severity" not in problem
    assert "'b' does not match '^a'" in problem["message"]
    free = simulate(
        request([call("getText", to="†state.w"), call("strict", "†state.w", "†state.a")], TOOLS_WITH_PATTERN)
    )
    assert free["problems"] == []  # a free string may well match


def test_a_call_that_cannot_run_takes_its_error_path() -> None:
    plan = [
        call("getText", to="†state.a"),
        call("number", "†state.a", "†state.b", _errorPath="†state.oops"),
        call("do", "†state.oops", "†state.c"),
        call("do", "†state.b", "†state.d"),
    ]
    result = simulate(request(plan))
    assert combinations(result) == [
        {"choices": {"2:number": "†state.oops"}, "run": ["1:getText", "2:number", "3:do"], "skipped": ["4:do"]}
    ]
    assert [p["call"] for p in problems(result, "unreachable")] == ["4:do"]


def test_a_call_that_needs_two_outcomes_at_once_is_never_run() -> None:
    plan = [call("do", 1, "†state.a || †state.b"), call("do", ["†state.a", "†state.b"], "†state.c")]
    result = simulate(request(plan))
    assert [c["run"] for c in combinations(result)] == [["1:do"], ["1:do"]]
    assert [p["call"] for p in problems(result, "unreachable")] == ["2:do"]  # once, though two look for it


# -- the forecast --------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "requests", "delegates"),
    [
        ([call("do", 1, "†state.a")], (0, 0), (0, 0)),
        ([call("think", 1, "†state.a"), call("ask", 1, "†state.b")], (1, 1), (1, 1)),
        ([call("think", 1, "†state.a", _output=1), call("think", 1)], (0, 0), (0, 0)),
        (WEATHER, (1, 1), (0, 0)),
        ([call("do", 1, "†state.a || †state.b"), call("think", "†state.b", "†state.c")], (0, 1), (0, 0)),
    ],
)
def test_requests_and_their_cost_are_counted(plan: Any, requests: Any, delegates: Any) -> None:
    result = simulate(request(plan, model="scripted:x"), price={"scripted:x": 0.25}.get)
    assert (result["requests"]["min"], result["requests"]["max"]) == requests
    assert (result["delegates"]["min"], result["delegates"]["max"]) == delegates
    assert result["cost"] == {"min": requests[0] * 0.25, "max": requests[1] * 0.25}


def test_the_cost_is_unknown_where_the_price_is() -> None:
    raw = request([call("think", 1, "†state.a")], model="scripted:x")
    assert simulate(raw)["cost"] is None
    assert simulate(raw, price=lambda _: None)["cost"] is None
    assert simulate(request([call("do", 1, "†state.a")]))["cost"] == {"min": 0, "max": 0}


def test_a_template_is_walked_for_one_instance_and_paid_for_all() -> None:
    people = [{"type": "state", "_instance": f"person {i}", "state": {"name": "x"}} for i in range(3)]
    result = simulate(
        request([call("think", "†state.name", "†state.a")], *people, model="scripted:x"), price=lambda _: 0.5
    )
    assert result["instances"] == 3
    assert result["requests"] == {"min": 3, "max": 3}
    assert result["cost"] == {"min": 1.5, "max": 1.5}
    assert [c["run"] for c in combinations(result)] == [["1:think"]]
    assert "instance" not in result["calls"][0]
    named = simulate(request([call("think", 1, "†state.a", _instance="person 1")], *people, model="scripted:x"))
    assert "instances" not in named


# -- the whole -----------------------------------------------------------------


def test_a_cycle_is_refused_as_everything_that_does_not_validate() -> None:
    with pytest.raises(InvalidRequest, match="wait for each other"):
        simulate(request([call("do", "†state.b", "†state.a"), call("do", "†state.a", "†state.b")]))
    with pytest.raises(InvalidRequest, match="unknown tool"):
        simulate(request([{"_tool": "nobody"}]))
    with pytest.raises(InvalidRequest):
        simulate("no request at all")


def test_registered_tools_and_served_activities_count() -> None:
    raw = {
        "context": [{"type": "tool", "tool": "Tool.greet"}, {"type": "plan", "plan": [call("greet", to="†state.a")]}]
    }
    registry = {"greet": {"type": "object", "properties": {"_outputPath": STRING}}}
    (item,) = simulate(raw, registry, ["greet"])["calls"]
    assert (item["how"], item["activity"]) == ("activity", "greet")


def test_sample_outputs_are_shown_per_tool() -> None:
    result = simulate(request([call("getPerson", to="†state.a"), call("do", 1, "†state.b")]))
    assert result["samples"] == {"getPerson": {"name": "sample"}}


def test_problems_are_capped_and_errors_come_first() -> None:
    plan = [call("getMaybe", to="†state.a"), *[call("text", "†state.a", f"†state.s{i}") for i in range(150)]]
    plan += [call("number", "†state.a", "†state.z")]
    listed = simulate(request(plan))["problems"]
    assert listed[0]["code"] == "cannotFit"
    assert [p["code"] for p in listed[1:]] == ["mayNotFit"] * 99 + ["moreProblems"]
    assert "51" in listed[-1]["message"]


_PROGRAM = """
import json, sys
from acts.simulation.simulate import simulate
print(json.dumps(simulate(json.load(sys.stdin)), sort_keys=False))
"""


def test_the_same_request_gives_the_same_report_under_every_hash_seed() -> None:
    plan = [
        *WEATHER,
        *[call("getMaybe", to=f"†state.m{i} || †state.n{i}") for i in range(4)],
        call("number", "†state.n1"),
    ]
    raw = json.dumps(request(plan, model="scripted:x"))
    seen = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], input=raw, capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        seen.add(done.stdout)
    assert len(seen) == 1
    assert json.loads(seen.pop())["waves"]
