"""Validation: every problem at once, each with its place; and whatever comes in, problems come out, never a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.config import MAX_PARALLEL
from acts.language.errors import MAX_PROBLEMS_REPORTED, InvalidRequest
from acts.plan.validate import validate, validate_request
from tests.cases import call, own, state, tool
from tests.property.drive import NOW, identify
from tests.strategies import Case, cases, collisions
from tests.unit.plan.plan_requests import fatal, request


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
        )
    }


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
        walk.completed(walk.nodes[0].key, value, NOW)
        assert walk.calls[0].state == state_, value


def test_a_bad_schema_anywhere_is_reported() -> None:
    raw = request(call("t", "†data.x"), context=[{"type": "state", "schema": {"type": "strin"}, "state": {}}])
    raw["schema"] = {"$ref": "http://127.0.0.1:9/x"}
    assert [(p.code, p.pointer) for p in fatal(raw)] == [
        ("invalidSchema", "/schema"),
        ("invalidSchema", "/context/1/schema"),
    ]


@pytest.mark.parametrize(
    ("between", "is_lost"),
    [([], True), ([call("t", "†state.c", x="†state.a")], False), ([call("t", "†state.c")], True)],
)
def test_a_write_that_nothing_reads_before_the_next_is_a_warning(between: list[Any], is_lost: bool) -> None:  # noqa: FBT001
    problems = validate(request(call("t", "†state.a"), *between, call("t", "†state.a"), context=[]))
    assert [(p.code, p.call) for p in problems] == ([("lostWrite", "1:t")] if is_lost else [])


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


@pytest.mark.parametrize("method", ["set", "push", "merge"])
@pytest.mark.parametrize(
    ("last", "more", "is_warned"),
    [
        ({}, {}, True), ({"_when": "†state.a"}, {}, False), ({"x": "†state.b || 1"}, {}, False),
        ({}, {"x-hints": {"readOnly": True}}, False), ({}, {"x-hints": {"readOnly": False}}, True),
    ],
)  # fmt: skip
def test_an_effect_that_rests_on_what_is_there_when_one_of_several_writers_fails_is_a_warning(
    method: str,
    last: Any,
    more: Any,
    is_warned: bool,  # noqa: FBT001
) -> None:
    writers = [call("t", "†state.a.x" if method == "set" else "†state.a", _outputMethod=method) for _ in "12"]
    reader = {"_tool": "pay", "_outputPath": "†state.paid", "x": "†state.a", **last}
    for guarded in (0, 1, 2):
        guards = [{**w, "_errorPath": "†state.e"} if i < guarded else w for i, w in enumerate(writers)]
        problems = validate(request(*guards, {**reader}, pay={**tool("pay"), **more}))
        found = [p.call for p in problems if p.code == "partialRead"]
        assert found == (["3:pay"] if is_warned and not guarded else []), problems


@pytest.mark.parametrize(
    ("failures", "when", "hint"),
    [
        ({"declined": ""}, "†state.e.code == 'declined'", None),
        ({"declined": ""}, "†state.e.code == 'timeout'", None),
        (None, "†state.e.code == 'declind'", None),
        ({"declined": ""}, "!(†state.x && 'declind' != †state.e.code)", 'did you mean "declined"?'),
        ({"declined": ""}, "†state.e.code == 'late'", "declare it in the failures of the tool"),
    ],
)
def test_a_condition_on_a_failure_that_no_tool_declares_is_a_warning(
    failures: Any, when: str, hint: str | None
) -> None:
    pay = tool("pay") if failures is None else {**tool("pay"), "x-failures": failures}
    calls = call("pay", "†state.x", _errorPath="†state.e"), call("t", "†state.b", _when=when.replace("'", '"'))
    problems = [p for p in validate(request(*calls, pay=pay)) if p.code == "unknownFailure"]
    assert [p.hint for p in problems] == ([hint] if hint else [])


def test_a_plan_that_names_an_instance_is_no_template() -> None:
    raw = request(
        call("one", "†state.r", x="†state.v", _instance="A"),
        call("two", "†state.g"),
        context=[own("A", v=1), own("B", z=2)],
    )
    assert fatal(raw) == []
    assert [n.instance for n in validate_request(raw).nodes] == ["A", None]


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


weird = st.sampled_from(
    [None, True, -1, 1e308, "", "†", "††", "†state.a || ", "(", "\x00", [], {}, [[]], {"_tool": "act"}]
)  # fmt: skip
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
