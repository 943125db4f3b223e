"""Validation: every problem at once, each with its place; and whatever comes in, problems come out, never a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.config import MAX_PARALLEL
from acts.language.errors import MAX_PROBLEMS_REPORTED, InvalidRequest, Problem, summary
from acts.plan.call_expressions import MAX_MALFORMED
from acts.plan.validate import MAX_CALLS, validate, validate_request
from tests.cases import ROWS, Row, call, own, state, thought, tool
from tests.property.drive import NOW, identify
from tests.strategies import Case, cases, collisions
from tests.unit.plan_requests import fatal, request


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r["name"])
def test_every_row_is_valid(case: Row) -> None:
    assert fatal(case["request"]) == []


def test_all_problems_are_reported_at_once() -> None:
    raw = request(
        call("a", "†state.a", x="†state.nothing"),
        {"_tool": "unknown"},
        call("b", "state.b", _foo=1),
        call("c", "†plan.x", y="†"),
        call("d", "†state.d", _instance="Z"),
        context=[{"type": "state", "schema": {"type": "strin"}}],
        config={"budget": {"calls": 3}},
    )
    del raw["context"][0]["tool"]["unknown"]
    assert {p.code for p in fatal(raw)} >= {
        *(
            "unknownTool",
            "invalidExpression",
            "forbiddenMeta",
            "forbiddenWrite",
            "unknownInstance",
            "invalidSchema",
            "limitExceeded",
        ),
    }


def test_a_request_that_does_not_validate_carries_each_problem_in_its_message_and_as_data() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request(request(call("a", "†state.a", x="†state.b"), {"_tool": 5}, context=[state(c=1)]))
    error = caught.value
    details = error.to_json()
    assert json.loads(json.dumps(details)) == details
    for problem in details:
        assert set(problem) >= {"code", "message", "pointer"}
        assert problem["message"] in str(error)


# -- schemas -------------------------------------------------------------------------------

PARAMETERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"n": 1}, []),
    ({"n": "†state.a"}, []),
    ({"n": "one"}, ["/n"]),
    ({"n": "††one"}, ["/n"]),
    ({}, [""]),
    ({"n": 1, "l": [{"k": 1}, {"k": "x"}, {"k": "†state.a"}]}, ["/l/1/k"]),
    ({"n": None}, []),
    ({"n": 1, "extra": "†state.a"}, [""]),
]


def test_an_unknown_parameter_is_reported_with_the_allowed_ones() -> None:
    schema = tool("t", city={"type": "string"}, days={"type": "integer"}) | {"additionalProperties": False}
    (problem,) = fatal(request(call("t", "†state.x", ctiy="Rome", days="†state.a"), context=[state(a=1)], t=schema))
    assert problem.message == 'tool "t": "ctiy" is not allowed; allowed: city, days; did you mean "city"?'


@pytest.mark.parametrize(("parameters", "pointers"), PARAMETERS, ids=str)
def test_parameters_are_checked_with_references_in_place(parameters: dict[str, Any], pointers: list[str]) -> None:
    schema = tool(
        "t",
        n={"type": "integer", "nullable": True},
        l={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
    )
    schema |= {"required": ["_outputPath", "n"], "additionalProperties": False}
    problems = fatal(request(call("t", "†state.x", **parameters), context=[state(a=1)], t=schema))
    assert [(p.code, p.pointer) for p in problems] == [("schemaMismatch", f"/context/2/plan/0{at}") for at in pointers]


STATE_SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "closed": {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
        "open": {"type": "object"},
        "ref": {"$ref": "#/$defs/item"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "never": False,
        "any": True,
    },
    "additionalProperties": False,
    "$defs": {"item": {"type": "integer"}},
}

# path, may it be written, a value that fits there, one that does not (None: any fits)
STATE_WRITES: list[tuple[str, bool, Any, Any]] = [
    ("†state.n", True, 1, "x"),
    ("†state.n.x", False, None, None),
    ("†state.z", False, None, None),
    ("†state.closed.x", True, "any", None),
    ("†state.closed.y", False, None, None),
    ("†state.closed", True, {"x": 1}, {"y": 1}),
    ("†state.open.what.ever", True, 1, None),
    ("†state.never", False, None, None),
    ("†state.any.thing", True, 1, None),
    ("†state", True, {"n": 1}, {"z": 1}),
    ("†state.ref", True, 1, "x"),
    ("†state.items", True, [1], ["x"]),
    ("†data.z", True, 1, None),
]


@pytest.mark.parametrize(("path", "allowed", "good", "bad"), STATE_WRITES)
def test_a_write_that_the_schema_of_a_kind_forbids(path: str, allowed: bool, good: Any, bad: Any) -> None:  # noqa: FBT001
    raw = request(call("t", path), context=[{"type": "state", "schema": STATE_SCHEMA}])
    problems = fatal(raw)
    if not allowed:
        assert [(p.code, p.pointer) for p in problems] == [("forbiddenWrite", "/context/2/plan/0/_outputPath")]
        return
    assert problems == []
    for value, state_ in ((good, "completed"), (bad, "failed")):
        if value is None:
            continue
        from acts.machines.walk import Walk

        walk = Walk(validate_request(raw), identify)
        walk.begin(NOW)
        walk.completed(0, value, NOW)
        assert walk.calls[0].state == state_, value


def test_a_bad_schema_anywhere_is_reported() -> None:
    raw = request(call("t", "†data.x"), context=[{"type": "state", "schema": {"type": "strin"}, "state": {}}])
    raw["schema"] = {"$ref": "http://127.0.0.1:9/x"}
    assert [(p.code, p.pointer) for p in fatal(raw)] == [
        ("invalidSchema", "/schema"),
        ("invalidSchema", "/context/1/schema"),
    ]


# -- plans -----------------------------------------------------------------------------------


def test_a_request_without_a_plan() -> None:
    assert [p.code for p in fatal({"context": []})] == ["noPlan"]


def test_the_latest_plan_is_the_one_that_is_checked() -> None:
    raw = request(call("t", "†state.x"))
    raw["context"].insert(1, {"type": "plan", "plan": [{"_tool": "unknown"}, 5]})
    assert fatal(raw) == []


def test_thoughts_and_models() -> None:
    latent = {"think": thought("think")}
    assert [p.code for p in fatal(request({"_tool": "think", "_outputPath": "†state.a"}, **latent))] == ["noModel"]
    raw = request({"_tool": "think", "_outputPath": "†state.a"}, config={"model": "scripted:x"}, **latent)
    assert fatal(raw) == []
    assert [(p.code, p.fatal) for p in validate(request({"_tool": "think"}, **latent))] == [("thought", False)]
    guess = request(
        call("a", "†state.a"), {"_tool": "think", "_outputPath": "†state.b", "_output": 1, "x": "†state.a"}, **latent
    )
    guess["config"] = {"model": "scripted:x"}
    assert [(p.code, p.call, p.fatal) for p in validate(guess)] == [("droppedOutput", "2:think", False)]


# -- templates and instances --------------------------------------------------------------------


def test_a_result_that_goes_nowhere_is_a_warning() -> None:
    meta = {"_activity": {"const": "ask"}, "_outputPath": {"type": "string"}}
    answers = {"properties": {**meta, "_output": {"type": "string"}}}
    silent = {"properties": meta}
    calls = [{"_tool": "answers"}, {"_tool": "silent"}]
    problems = validate(request(*calls, answers=answers, silent=silent))
    assert [(p.code, p.call, p.fatal) for p in problems] == [("droppedResult", "1:answers", False)]
    assert (
        validate(request(*calls, {"_tool": "answers", "_outputPath": "†state.x"}, answers=answers, silent=silent)) == []
    )


def test_a_plan_that_names_an_instance_is_no_template() -> None:
    raw = request(
        call("one", "†state.r", x="†state.v", _instance="A"),
        call("two", "†state.g"),
        context=[own("A", v=1), own("B", z=2)],
    )
    assert fatal(raw) == []
    assert [n.instance for n in validate_request(raw).nodes] == ["A", None]


@pytest.mark.parametrize("instance", ["Z", "a", "", 5, ["A"], {}])
def test_an_unknown_instance_is_reported_with_the_defined_ones(instance: Any) -> None:
    (problem,) = fatal(request(call("t", "†state.a", _instance=instance), context=[own("A", v=1), own("B", v=1)]))
    assert (problem.code, problem.pointer) == ("unknownInstance", "/context/3/plan/0/_instance")
    assert "known: A, B" in problem.message


# -- limits ------------------------------------------------------------------------------------


def test_ten_thousand_calls_validate() -> None:
    plan = [call("t", f"†state.k{i}", x=f"†state.k{i - 1} || †state.start", y={"deep": [i]}) for i in range(10_000)]
    assert fatal(request(*plan, context=[state(start=0)])) == []


def test_more_calls_than_allowed_are_one_problem() -> None:
    problems = fatal(request(*([call("t", "†state.a")] * (MAX_CALLS + 1))))
    assert [p.code for p in problems] == ["limitExceeded"]
    assert str(MAX_CALLS) in problems[0].message
    assert [p.code for p in fatal(request(*([call("t")] * 3), config={"budget": {"calls": 2}}))] == ["limitExceeded"]


def test_too_much_at_once_is_lowered_with_a_warning() -> None:
    raw = request(call("t", "†state.a"), config={"maxParallel": MAX_PARALLEL + 1})
    assert [(p.code, p.fatal) for p in validate(raw)] == [("limitLowered", False)]
    assert validate_request(raw).max_parallel == MAX_PARALLEL


def test_ten_thousand_problems_make_a_message_that_can_be_sent() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request(request(*(call("t", "†state..x" + "y" * 2000, **{"_z" * 500: 1}) for _ in range(5_000))))
    assert len(str(caught.value)) < 100_000
    assert len(caught.value.to_json()) == MAX_PROBLEMS_REPORTED
    assert len(json.dumps(caught.value.to_json())) < 400_000
    assert "more" in str(caught.value)


def test_of_a_call_with_thousands_of_malformed_expressions_some_are_reported() -> None:
    plan = [call("echo", value=[f"†state.a ||| {n}" for n in range(5_000)]), call("echo", value="†state.b |||")]
    problems = fatal(request(*plan))
    assert [p.call for p in problems] == ["1:echo"] * (MAX_MALFORMED + 1) + ["2:echo"]
    assert "more than 100 expressions of this call" in problems[MAX_MALFORMED].message


def test_errors_come_before_warnings_in_a_summary() -> None:
    problems = [Problem("w", "a warning", severity="warning"), Problem("e", "an error")]
    assert summary(problems).splitlines() == ["the request has 2 problems:", "- [e] an error", "- [w] a warning"]


@pytest.mark.parametrize(
    "call_",
    [
        call("t", "†state.a", x="(" * 10_000 + "†a" + ")" * 10_000),
        call("t", "†state.a", x="†" + "(" * 10_000),
        call("t", "†state.a", x="†state[" + "9" * 10_000 + "]"),
        call("t", "(" * 10_000 + "†state.a" + ")" * 10_000),
        call("t", "†state" + ".a" * 3_000),
        call("t", " && ".join("(†state.a || †state.b)" for _ in range(30))),
        call("t", "†state.a", **{"x" * 100_000: "†state.\u202e"}),
        call("t", "†state.\x00", _scopes=["†\x00"]),
        call("t", "†state.a", x="†state.a\x00"),
        call("t", '†state["\\ud800"]'),
        call("t", "†state.a", x='†state["\\ud800"] || †state["\\udc00"]'),
    ],
    ids=lambda c: str(c)[:60],
)
def test_a_hostile_call_ends_in_problems_that_can_be_sent_or_in_a_walk_whose_result_can(call_: dict[str, Any]) -> None:
    from acts.machines.walk import Walk

    raw = request(call_, context=[state(v=1)])
    problems = validate(raw)
    json.dumps([p.to_json() for p in problems], ensure_ascii=False).encode()
    if not any(p.fatal for p in problems):
        walk = Walk(validate_request(raw), identify)
        walk.begin(NOW)
        walk.completed(0, {"v": 1}, NOW)
        json.dumps(walk.appended(), ensure_ascii=False).encode()


# -- anything at all ----------------------------------------------------------------------------

weird = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e308,
        "",
        "†",
        "††",
        "†state",
        "†state.a || ",
        "(",
        "\x00",
        [],
        {},
        [[]],
        {"": ""},
        {"_tool": "act"},
    ]
)
anything = st.recursive(
    weird,
    lambda v: (
        st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["type", "tool", "plan", "context", "a", "_tool"]), v)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(anything)
def test_anything_is_answered_with_problems(raw: Any) -> None:
    for value in (raw, {"context": raw}, {"context": [raw]}, {"config": raw, "context": []}):
        assert fatal(value)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(p for key, child in inner for p in places(child, (*at, key)))]


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    if isinstance(value, dict):
        return {k: replaced(v, at[1:], new) if k == at[0] else v for k, v in value.items()}
    return [replaced(v, at[1:], new) if i == at[0] else v for i, v in enumerate(value)]


@settings(max_examples=100, deadline=None)
@given(st.one_of(cases(most_calls=3), collisions(most_calls=3)), st.data())
def test_a_request_with_one_part_replaced_is_answered_with_problems_or_walks(case: Case, data: st.DataObject) -> None:
    from acts.machines.walk import Walk

    at = data.draw(st.sampled_from(places(case.request)))
    raw = replaced(case.request, at, data.draw(weird))
    try:
        prepared = validate_request(raw)
    except InvalidRequest:
        return
    Walk(prepared, identify).begin(NOW)
