"""What a Call may say with templates, ``_when`` and ``_each``, what it then reads, and each mistake with its place."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import Problem
from acts.plan.calls import MAX_ELEMENTS, PlannedCall
from acts.plan.graph import paths_read
from acts.plan.validate import validate, validate_request

TEXT = {"type": "string"}
META = {"_outputPath": TEXT, "_errorPath": TEXT, "_scopes": {"type": "array"}}
TOOL = {"properties": {"_activity": {"const": "x"}, **META}}
STATE = {"type": "state", "state": {"v": 1, "list": [1, 2], "user": {"name": "Ada"}}}


def request(call: Any, tool: Any = TOOL, others: Any = ()) -> dict[str, Any]:
    plan = [{"_tool": "a", **call}, *others]
    return {"context": [{"type": "tool", "tool": {"a": tool}}, STATE, {"type": "plan", "plan": plan}]}


def node_of(call: dict[str, Any], tool: Any = TOOL) -> PlannedCall:
    return validate_request(request(call, tool)).nodes[0]


def problems_of(call: dict[str, Any], tool: Any = TOOL, others: Any = ()) -> list[Problem]:
    return validate(request(call, tool, others))


# a Call, the paths that it reads
READS: list[tuple[dict[str, Any], list[str]]] = [
    ({"x": "Dear †{state.user.name} †{state.v || state.list}"}, ["†state.user.name", "†state.v", "†state.list"]),
    ({"x": "††{state.v} and 5†"}, []),
    ({"_when": "†state.v >= 1 && !†state.list"}, ["†state.v", "†state.list"]),
    ({"_when": "true"}, []),
    ({"_when": False}, []),
    ({"_each": "†state.list", "x": "†item.a", "y": "†{index}: †{item.b || state.v}"}, ["†state.v", "†state.list"]),
    ({"_each": ["†state.v", {"n": "†{state.user.name}"}, "††x", 3], "x": "†item"}, ["†state.v", "†state.user.name"]),
    ({"_each": "(†state.list || †state.v)", "x": "†item"}, ["†state.list", "†state.v"]),
]


@pytest.mark.parametrize(("call", "reads"), READS, ids=str)
def test_what_a_call_reads(call: dict[str, Any], reads: list[str]) -> None:
    assert [str(path) for path in paths_read(node_of(call))] == reads


# a Call, code, pointer below the Call, words of the message, words of the hint
REFUSED: list[tuple[dict[str, Any], str, str, str, str]] = [
    ({"x": "Dear †{state.user.name"}, "invalidExpression", "/x", "not closed (column 6)", "††{"),
    ({"x": ["†{state.}"]}, "invalidExpression", "/x/0", "column 9", "††{"),
    ({"x": "†{}"}, "invalidExpression", "/x", "column 3", ""),
    ({"x": "†state.user.name is here"}, "invalidExpression", "/x", "unexpected 'i'", 'write "†{state.name}'),
    ({"x": "†{state.nobody}"}, "unknownReference", "/x", "provides †state.nobody", "†state has"),
    ({"x": "†{state.a} †{state.b || state.c}"}, "unknownReference", "/x", "†state.a, nor †state.b or †state.c", ""),
    ({"_when": 5}, "invalidExpression", "/_when", "an expression is a string, not number", ""),
    ({"_when": None}, "invalidExpression", "/_when", "not null", ""),
    ({"_when": ""}, "invalidExpression", "/_when", "column 1", ""),
    ({"_when": "†state.v = 1"}, "invalidExpression", "/_when", "equality is == (column 10)", ""),
    ({"_when": " && ".join(["(†a || †b)"] * 40)}, "invalidExpression", "/_when", "more than 64", ""),
    ({"_each": 5}, "invalidExpression", "/_each", "not number", ""),
    ({"_each": None}, "invalidExpression", "/_each", "not null", ""),
    ({"_each": {"a": 1}}, "invalidExpression", "/_each", "groups of up to", ""),
    ({"_each": "state.list"}, "invalidExpression", "/_each", "column 1", ""),
    ({"_each": "†{state.list}"}, "invalidExpression", "/_each", "yields a string", "without braces"),
    ({"_each": "†state.nobody"}, "unknownReference", "/_each", "†state.nobody", ""),
    ({"_each": ["†state.nobody"]}, "unknownReference", "/_each/0", "†state.nobody", ""),
    ({"_each": "†item.list"}, "invalidExpression", "/_each", "†item is an element of _each", ""),
    ({"_each": ["†{item}"]}, "invalidExpression", "/_each/0", "†item is an element of _each", ""),
    ({"_each": "†state.list", "_scopes": ["†item.ok"]}, "invalidExpression", "/_scopes/0", "read once, for all", ""),
    ({"_each": "†state.list", "_scopes": ["†item"], "x": "†item"}, "invalidExpression", "/_scopes/0", "read once", ""),
    ({"_each": "†state.list", "_scopes": ["index"]}, "invalidExpression", "/_scopes/0", "read once, for all", ""),
    ({"_each": [0] * (MAX_ELEMENTS + 1)}, "limitExceeded", "/_each", "at most 10,000", ""),
    ({"x": "†item"}, "unknownReference", "/x", "†item", "in the parameters of a call with _each"),
    ({"x": "Row †{index}"}, "unknownReference", "/x", "†index", "in the parameters of a call with _each"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code", "at", "words", "hint"), REFUSED, ids=lambda x: str(x)[:50])
def test_a_mistake_is_reported_with_its_place(call: dict[str, Any], code: str, at: str, words: str, hint: str) -> None:
    (problem,) = problems_of(call)
    assert (problem.code, problem.pointer, problem.fatal) == (code, f"/context/2/plan/0{at}", True)
    assert words in problem.message
    assert hint in (problem.hint or "")


EMBEDDED: list[tuple[dict[str, Any], str, str]] = [
    ({"x": "Dear †state.user.name!"}, "/x", '"Dear †{state.user.name}!"'),
    ({"x": ["see †state."]}, "/x/0", '"see †{state}."'),
    ({"x": "††state.v †state.v"}, "/x", "†{state.v}"),
    ({"x": "†{state.v} of †state.list."}, "/x", '"†{state.v} of †{state.list}."'),
    ({"x": "to †log.x", "_outputPath": "†log.y"}, "/x", '"to †{log.x}"'),
    ({"_each": "†state.list", "x": "Dear †item.name"}, "/x", '"Dear †{item.name}"'),
    ({"_each": "†state.list", "x": "no †index of †item"}, "/x", '"no †{index} of †item"'),
    ({"_each": ["to †state.v"], "x": 1}, "/_each/0", '"to †{state.v}"'),
]


@pytest.mark.parametrize(("call", "at", "hint"), EMBEDDED, ids=lambda x: str(x)[:50])
def test_a_reference_inside_a_text_is_a_mistake_and_the_hint_writes_the_template(
    call: dict[str, Any], at: str, hint: str
) -> None:
    (problem,) = problems_of(call)
    assert (problem.code, problem.pointer, problem.fatal) == ("embeddedReference", f"/context/2/plan/0{at}", True)
    assert hint in str(problem.hint)


@pytest.mark.parametrize(
    "text",
    [
        "††state.v",
        "5† of †{state.v}",
        "the sign †",
        "a †nobody.v",
        "a †state",
        "a ††{state.v}",
        "a †item.x",
        "a ††state.v",
    ],
)
def test_a_text_that_means_no_reference_is_left_alone(text: str) -> None:
    assert problems_of({"x": text}) == []


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({"type": "string"}, True),
        ({"type": ["number", "string"]}, True),
        ({}, True),
        ({"type": "string", "pattern": "^x", "minLength": 90}, True),
        ({"enum": ["a", 1]}, True),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, True),
        ({"oneOf": [{"type": "number"}, {"type": "string", "format": "date"}]}, True),
        ({"type": "number"}, False),
        ({"type": ["object", "null"]}, False),
        ({"enum": [1, 2]}, False),
        ({"const": True}, False),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/n"}, False),
    ],
)
def test_a_template_stands_only_where_a_string_may(schema: dict[str, Any], allowed: bool) -> None:  # noqa: FBT001
    tool = {"properties": {**TOOL["properties"], "x": schema}, "$defs": {"n": {"type": "integer"}}}
    found = problems_of({"x": "†{state.v}"}, tool)
    assert [p.code for p in found] == ([] if allowed else ["schemaMismatch"])
    assert problems_of({"x": "†state.v"}, tool) == []  # of a reference nothing is known


def test_an_error_about_a_list_says_where_a_reference_or_a_template_stands_in_it() -> None:
    (problem,) = problems_of(
        {"x": ["†state.v", "to †{state.v}", 1]}, {"properties": {**TOOL["properties"], "x": {"type": "string"}}}
    )
    assert "[a reference, a template, 1] is not of type 'string'" in problem.message


def with_meta(**meta: Any) -> dict[str, Any]:
    return {"properties": {**TOOL["properties"], **meta}}


@pytest.mark.parametrize("key", ["_when", "_each"])
def test_both_are_allowed_unless_the_tool_says_false(key: str) -> None:
    value = {"_when": "†state.v", "_each": "†state.list"}[key]
    assert problems_of({key: value}) == []
    assert problems_of({key: value}, with_meta(**{key: True})) == []
    (problem,) = problems_of({key: value}, with_meta(**{key: False}))
    assert (problem.code, problem.pointer) == ("forbiddenMeta", f"/context/2/plan/0/{key}")
    assert f'tool "a" does not allow {key}' in problem.message
    assert [p.code for p in problems_of({key: value}, with_meta(**{key: {"enum": ["†x"]}}))] == ["forbiddenMeta"]


def test_a_path_of_a_condition_that_nobody_writes_is_a_warning() -> None:
    (problem,) = problems_of({"_when": "†state.v && !†state.nobody"})
    assert (problem.code, problem.fatal) == ("unknownReference", False)
    assert "†state.nobody" in problem.message
    assert "†state.v" not in problem.message
    assert problems_of({"_when": "†state.v || †state.nobody"}) == []
