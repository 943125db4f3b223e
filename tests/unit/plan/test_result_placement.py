"""Where a result goes: the outcome it takes, what is written there, and the message that is appended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.errors import CallError
from acts.language.messages import Data, parse_message
from acts.language.references import Path
from acts.plan.calls import PlannedCall
from acts.plan.context_log import appended_message, is_message, place_result
from acts.plan.validate import validate_request
from tests.cases import call, own, row


def node_of(path: str | None, **more: Any) -> PlannedCall:
    case = row("", [call("t", path, **more)], context=[own("A", id=1)])
    (node,) = validate_request(case["request"]).nodes
    return node


# _outputPath, result, the outcome, what is written
PLACED: list[tuple[str, Any, int, dict[str, Any]]] = [
    ("†state.a", 5, 0, {"†state.a": 5}),
    ("†state.a", None, 0, {"†state.a": None}),
    ("†state.a && †log.b", [1], 0, {"†state.a": [1], "†log.b": [1]}),
    ("†state.a || †state.b", {"b": 1}, 0, {"†state.a": {"b": 1}}),
    ("†state.a || †state.b", {"type": "state", "state": {"b": 1}}, 1, {"†state.b": 1}),
    ("†state.a || †state.b", {"type": "data", "kind": "state", "data": {"b": 1}}, 1, {"†state.b": 1}),
    ("†state.a || †log.b", {"type": "data", "kind": "log", "data": {"b": 1}}, 1, {"†log.b": 1}),
    ("†state.a || †state.b", {"type": "state", "state": {"b": None}}, 1, {"†state.b": None}),
    (
        "†state.a || †state.b",
        {"type": "state", "state": {"b": {}}, "schema": {}, "description": "d"},
        1,
        {"†state.b": {}},
    ),
    ("†state.a.x || †state.b.x", {"type": "state", "state": {"b": {"x": {"y": 1}}}}, 1, {"†state.b.x": {"y": 1}}),
    ("†state", {"type": "state", "state": {"a": 1, "b": 2}}, 0, {"†state": {"a": 1, "b": 2}}),
    ("†state.a && †log.b", {"type": "state", "state": {"a": 1}}, 0, {"†state.a": 1, "†log.b": 1}),
    ("†state.a && †state.b", {"type": "state", "state": {"a": 1, "b": 2}}, 0, {"†state.a": 1, "†state.b": 2}),
    (
        "†state.a && †state.b && †log.c",
        {"type": "state", "state": {"b": 2}},
        0,
        {"†state.a": 2, "†state.b": 2, "†log.c": 2},
    ),
    (
        "(†state.a || †state.b) && †state.c",
        {"type": "state", "state": {"b": 1, "c": 2}},
        1,
        {"†state.b": 1, "†state.c": 2},
    ),
    # alternatives that are subsets of each other
    ("†state.a || †state.b || †state.a && †state.b", {"type": "state", "state": {"a": 1}}, 0, {"†state.a": 1}),
    (
        "†state.a || †state.b || †state.a && †state.b",
        {"type": "state", "state": {"a": 1, "b": 2}},
        2,
        {"†state.a": 1, "†state.b": 2},
    ),
    ("†state.a && †state.b || †state.a", {"type": "state", "state": {"a": 1}}, 1, {"†state.a": 1}),
    (
        "†state.a && †state.b || †state.a && †state.c",
        {"type": "state", "state": {"a": 1, "c": 2}},
        1,
        {"†state.a": 1, "†state.c": 2},
    ),
    ("†state.a.x || †state.a", {"type": "state", "state": {"a": {"x": 1, "y": 2}}}, 1, {"†state.a": {"x": 1, "y": 2}}),
    # inline, or with anything beside it: a value
    ("†state.a || †state.b", {"type": "state", "b": 1}, 0, {"†state.a": {"type": "state", "b": 1}}),
    (
        "†state.a",
        {"type": "state", "state": {"a": 1}, "x": 1},
        0,
        {"†state.a": {"type": "state", "state": {"a": 1}, "x": 1}},
    ),
    ("†state.a", {"type": "tool", "tool": "x"}, 0, {"†state.a": {"type": "tool", "tool": "x"}}),
    ("†state.a", {"type": "state", "data": {"a": 1}}, 0, {"†state.a": {"type": "state", "data": {"a": 1}}}),
    (
        "†state.a",
        {"type": "state", "state": {"a": 1}, "_instance": "A"},
        0,
        {"†state.a": {"type": "state", "state": {"a": 1}, "_instance": "A"}},
    ),
]


@pytest.mark.parametrize(("path", "result", "outcome", "written"), PLACED, ids=lambda x: str(x)[:60])
def test_a_result_takes_an_outcome(path: str, result: Any, outcome: int, written: dict[str, Any]) -> None:
    index, writes = place_result(node_of(path), result)
    assert index == outcome
    assert {str(p): v for p, v in writes} == written


OUTSIDE: list[tuple[str, Any]] = [
    ("†state.a && †state.b || †state.a && †state.c", {"type": "state", "state": {"a": 1}}),
    ("†state.a || †state.a && †state.b", {"type": "state", "state": {"a": 1, "c": 1}}),
    ("†state.a || †state.b && †state.c", {"type": "state", "state": {"a": 1, "b": 1}}),
    ("†state.a.x || †state.a", {"type": "state", "state": {"a": {"x": 1}}}),
    ("†state.a || †state.b", {"type": "state", "state": {"a": 1, "b": 1}}),
    ("†state.a || †state.b", {"type": "state", "state": {"c": 1}}),
    ("†state.a || †state.b", {"type": "state", "state": 5}),
    ("†state.a || †state.b", {"type": "data", "data": {"a": 1}}),
    ("†state.a || †state.b", {"type": "data", "kind": 5, "data": {"a": 1}}),
    ("†state.a", {"type": "state", "state": {"a": 1, "c": 1}}),
    ("†state.a.x", {"type": "state", "state": {"a": {"x": 1, "y": 2}}}),
    ("†state.a.0", {"type": "state", "state": {"a": [1]}}),
    ("†state.a && †log.b", {"type": "data", "kind": "log", "data": {"c": 1}}),
]


@pytest.mark.parametrize(("path", "result"), OUTSIDE, ids=lambda x: str(x)[:60])
def test_a_message_that_fits_no_one_outcome_fails_the_call(path: str, result: Any) -> None:
    with pytest.raises(CallError) as caught:
        place_result(node_of(path), result)
    assert caught.value.code == "OutsideOutputPath"
    assert "†state." in caught.value.message


def test_only_an_activity_chooses_by_a_message() -> None:
    """What a delegate gives is the value of its Call, whatever it looks like."""
    case = row("", [call("t", "†state.a || †state.b", _delegate="d")])
    case["request"]["context"][0]["tool"]["t"]["properties"]["_delegate"] = {"type": "string"}
    (node,) = validate_request(case["request"]).nodes
    value = {"type": "state", "state": {"b": 1}}
    outcome, writes = place_result(node, value)
    assert (outcome, writes) == (0, ((Path("state", ("a",)), value),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "state", "state": {}}, True),
        ({"type": "data", "data": None, "kind": "x", "schema": {}, "description": ""}, True),
        ({"type": "input", "input": 1}, True),
        ({"type": "state"}, False),
        ({"type": "state", "schema": {}}, False),
        ({"type": "state", "state": {}, "_call": {}}, False),
        ([{"type": "state", "state": {}}], False),
    ],
    ids=str,
)
def test_a_message_is_recognised_by_its_wrapped_form_only(value: Any, message: bool) -> None:  # noqa: FBT001
    assert is_message(value) is message


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("†state.a.b", 1, {"type": "state", "kind": "state", "state": {"a": {"b": 1}}}),
        ("†state", {"x": 1}, {"type": "state", "kind": "state", "state": {"x": 1}}),
        ("†data.a", 1, {"type": "data", "kind": "data", "data": {"a": 1}}),
        ("†user.a", {"data": 1}, {"type": "data", "kind": "user", "data": {"a": {"data": 1}}}),
        ("†input.a", 1, {"type": "data", "kind": "input", "data": {"a": 1}}),
    ],
)
def test_a_write_appends_a_message_that_says_where_it_came_from(
    path: str, value: Any, expected: dict[str, Any]
) -> None:
    node = node_of(path, _outputMethod="push", x=["††y"], _instance="A")
    where = node.outcomes[0][0]
    message = appended_message(node, where, value, "2026-01-01T00:00:00Z")
    assert message == {
        **expected,
        "_call": node.planned,
        "_date": "2026-01-01T00:00:00Z",
        "_outputPath": path,
        "_outputMethod": "push",
        "_instance": "A",
    }
    assert node.planned == {"_tool": "t", "_outputPath": path, "_outputMethod": "push", "x": ["††y"], "_instance": "A"}
    again = parse_message(json.loads(json.dumps(message)))
    assert isinstance(again, Data)
    assert (again.path, again.method, again.instance) == (where, "push", "A")


def test_a_result_that_is_no_json_is_refused_with_the_place_of_the_defect() -> None:
    with pytest.raises(CallError, match=r"stored: [^:]+ at /n$"):
        place_result(node_of("†state.a"), {"n": float("nan")})
    with pytest.raises(CallError, match=r"stored: [^/]+(?<! at )$"):
        place_result(node_of("†state.a"), float("nan"))
