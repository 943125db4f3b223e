"""The simulation: what a plan would do, element by element, and what it would cost, before it does anything."""

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

from acts.language.errors import CallError
from acts.language.messages import wrap_message
from acts.language.values import UNKNOWN, nest
from acts.machines.commands import StartCall
from acts.machines.walk import Walk
from acts.plan.validate import ValidatedPlan, validate_request
from acts.simulation import simulate as outcomes
from acts.simulation.simulate import simulate, simulate_prepared

ROOT = Path(__file__).parents[3]
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
        (WEATHER, [["1:think"], ["2:do", "3:do"], ["4:do"]], ["1:think", "2:do", "4:do"]),
    ],
)
def test_calls_run_in_waves_and_the_longest_chain_is_named(plan: Any, waves: Any, path: Any) -> None:
    result = simulate(request(plan, {"type": "state", "n": 0}, model="scripted:x"))
    assert (result["waves"], result["criticalPath"]) == (waves, path)


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


def test_the_work_is_bounded_for_long_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MAX_STEPS", 1600)  # a run of 30 calls takes 450, one of 201 calls 2,200
    plan = [call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(30)]
    result = simulate(request(plan))
    assert (len(combinations(result)), result["outcomes"]["truncated"]) == (3, True)
    assert (
        simulate(request(plan[:1] + [call("do", 1, f"†state.c{i}") for i in range(200)]))["outcomes"]["truncated"]
        is True
    )


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
            node = command.node
            rank = walk.by_key[node.key].rank
            pick = chosen.get(rank, 0)
            if rank in chosen:
                choices[rank] = str(node.outcomes[pick][0])
            if not node.outcomes:
                commands.extend(walk.completed(command.node.key, None, "now"))
            elif pick == node.error:
                commands.extend(walk.failed(command.node.key, CallError("oops", "no"), "now"))
            elif node.kind == "latent":
                commands.extend(walk.completed(command.node.key, UNKNOWN, "now", pick))
            else:
                path = node.outcomes[pick][0]
                commands.extend(
                    walk.completed(command.node.key, wrap_message(path.kind, nest(path.names, UNKNOWN)), "now")
                )
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


A, B = "†state.a", "†state.b"


@pytest.mark.parametrize(
    ("plan", "producer", "produced", "expected"),
    [
        ([call("getText", to=A), call("number", A)], "1:getText", "string", "number"),
        ([call("getPerson", to=A), call("text", A)], "1:getPerson", "object", "string"),
        ([call("getText", to=A), call("text", f"{A}.length")], "1:getText", "nothing", "string"),
        ([call("getNull", to=A), call("text", A)], "1:getNull", "null", "string"),
        ([call("getMaybe", to=A), call("number", A)], "1:getMaybe", "string or null", "number"),
        ([call("do", 1, A, _errorPath=B), call("text", B)], "1:do", "object", "string"),
        ([call("getText", to=A), call("number", f"{A} || †input.flag")], "1:getText", "string", "number"),
        ([call("think", to=A, _output="x"), call("number", A)], "1:think", '"x"', "number"),
        ([call("number", "†input.flag")], "the context", "true", "number"),
        # a parameter without a type takes every value, but not none
        ([call("getText", to=A), call("do", f"{A}.length")], "1:getText", "nothing", "a value"),
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


def test_a_template_is_walked_for_one_instance_and_paid_for_all() -> None:
    people = [{"type": "state", "_instance": f"person {i}", "state": {"name": "x"}} for i in range(3)]
    result = simulate(
        request([call("think", "†state.name", "†state.a")], *people, model="scripted:x"), price=lambda _: 0.5
    )
    assert result["instances"] == 3
    assert result["requests"] == {"min": 3, "max": 3}
    assert result["cost"] == {"min": 1.5, "max": 1.5}
    assert [c["run"] for c in combinations(result)] == [["1:think"]]
    batch = {"model": "scripted:x", "models": {"batch": True}}
    result = simulate(request([call("think", "†state.name", "†state.a")], *people, **batch), price=lambda _: 0.5)
    assert result["cost"] == {"min": 0.75, "max": 0.75}
    assert "instance" not in result["calls"][0]
    named = simulate(request([call("think", 1, "†state.a", _instance="person 1")], *people, model="scripted:x"))
    assert "instances" not in named


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


STATE = {"type": "state", "state": {"list": [{"id": "a", "n": 1}, {"id": "b", "n": 2}], "score": 3, "empty": []}}
MODEL = {"model": "scripted:x"}


def run(*plan: dict[str, Any], **config: Any) -> dict[str, Any]:
    return simulate(request(list(plan), STATE, **{**MODEL, **config}))


def test_a_condition_that_cannot_be_known_is_explored_both_ways() -> None:
    result = run(
        call("do", 1, "†state.ok"),
        call("do", 1, "†state.a", _when="†state.ok == 5"),
        call("do", "†state.a", "†state.b"),
    )
    assert [(c["conditions"], c["run"], c["skipped"]) for c in combinations(result)] == [
        ({"2:do": True}, ["1:do", "2:do", "3:do"], []),
        ({"2:do": False}, ["1:do"], ["2:do", "3:do"]),
    ]
    assert result["calls"][1]["when"] == "†state.ok == 5"


def test_a_condition_that_is_never_true_is_a_warning() -> None:
    result = run(call("do", 1, "†state.a", _when="†state.score > 5"))
    assert [p["code"] for p in result["problems"]] == ["unreachable"]
    needs_both = [call("think", 1, "†state.a || †state.b"), call("do", "†state.a", "†state.c", _when="†state.b")]
    assert [p["message"] for p in problems(run(*needs_both), "unreachable")] == [
        "this call is skipped whatever the outcomes are"
    ]


SHORT = {"type": "array", "items": STRING, "minItems": 2, "maxItems": 7}
ORDER = {"type": "object", "properties": {"id": STRING}, "required": ["id"], "additionalProperties": False}
TOOLS_WITH_LISTS = {
    **TOOLS,
    "getShort": tool(_output=SHORT),
    "getOrders": tool(_output={"type": "array", "items": ORDER}),
}


def with_lists(*plan: dict[str, Any]) -> dict[str, Any]:
    raw = request(list(plan), STATE, **MODEL)
    raw["context"][0]["tool"] = TOOLS_WITH_LISTS
    return raw


@pytest.mark.parametrize(
    ("writers", "each", "low", "high"),
    [
        ([], "†state.list", 2, 2),
        ([], [1, 2, 3], 3, 3),
        ([], ["†state.score", 1], 2, 2),
        ([call("getShort", to="†state.short")], "†state.short", 0, 10_000),
        ([call("getOrders", to="†state.orders")], "†state.orders", 0, 10_000),
        ([call("getShort", to="†state.list", _outputMethod="concat")], "†state.list", 0, 10_000),
    ],
    ids=str,
)
def test_requests_are_counted_per_element(writers: list[dict[str, Any]], each: Any, low: int, high: int) -> None:
    result = simulate(with_lists(*writers, call("think", "†item", "†state.out", _each=each)))
    assert result["requests"] == {"min": low, "max": high}
    assert result["calls"][-1]["elements"] == {"min": low, "max": high}


TEXT, ORDERS, PERSON = (
    call("getText", to="†state.s"),
    call("getOrders", to="†state.o"),
    call("getPerson", to="†state.p"),
)
TYPED: list[tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = [
    ([TEXT, call("do", 1, "†state.a", _each="†state.s")], [("cannotFit", "list", "string")]),
    ([ORDERS, call("text", "†item.id", "†state.a", _each="†state.o")], []),
    ([call("text", "†{index}: †{item.id}", "†state.a", _each="†state.list")], []),
    ([PERSON, call("text", "Dear †{state.p.nope}", "†state.a")], [("cannotFit", "a value", "nothing")]),
    ([TEXT, call("do", 1, "†state.a", _when="†state.s > 5")], []),
]


@pytest.mark.parametrize(("plan", "found"), TYPED, ids=str)
def test_types_of_lists_and_texts_are_followed(plan: list[dict[str, Any]], found: list[tuple[str, str, str]]) -> None:
    result = simulate(with_lists(*plan))
    listed = problems(result, "cannotFit", "mayNotFit")
    assert [(p["code"], p["expected"]) for p in listed] == [(code, expected) for code, expected, _ in found]
    assert all(what in p["found"] for p, (_, _, what) in zip(listed, found, strict=True))


def test_an_outcome_that_is_a_subset_of_another_can_be_chosen_and_so_can_the_whole() -> None:
    plan = [
        call("do", 1, "†state.a || †state.b || †state.a && †state.b"),
        call("do", "†state.a && †state.b", "†state.c"),
    ]
    result = run(*plan)
    assert [c["choices"]["1:do"] for c in combinations(result)] == ["†state.a", "†state.b", "†state.a && †state.b"]
    assert [c["run"] for c in combinations(result)][-1] == ["1:do", "2:do"]
    assert problems(result, "unreachableOutcome") == []
