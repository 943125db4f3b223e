"""JSON Schema before and after references resolve: what is unknown satisfies any type, what is known must fit."""

from __future__ import annotations

import copy
import socket
import urllib.request
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acts.language.schemas import Checker, judge_schema, with_null


def fits(schema: Any, value: Any) -> bool:
    return Checker(schema).defects(value) == []


def may_fit(schema: Any, value: Any) -> bool:
    return Checker(schema).open_defects(value) == []


R = "†state.x"
FLAT = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}
CLOSED = {**FLAT, "additionalProperties": False}
BRANCHES = {
    "oneOf": [
        {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
        {"properties": {"kind": {"const": "b"}, "s": {"type": "string"}}, "required": ["kind", "s"]},
    ]
}

# schema, value with references in place, may it fit
RELAXED: list[tuple[Any, Any, bool]] = [
    (FLAT, {"n": R}, True),
    (FLAT, {"n": R, "s": R}, True),
    (FLAT, {"n": R, "s": 5}, False),
    (FLAT, {"s": R}, False),
    (FLAT, {"n": 1, "more": R}, True),
    (CLOSED, {"n": 1, "more": R}, False),
    (FLAT, R, True),
    (FLAT, [R], False),
    ({"type": "integer"}, R, True),
    ({"type": "string", "maxLength": 2}, R, True),
    ({"type": "string", "pattern": "^x"}, R, True),
    ({"enum": [1, 2]}, R, True),
    ({"const": 1}, R, True),
    ({"const": {"a": 1}}, {"a": R}, True),
    ({"enum": [{"a": 1}]}, {"a": R}, True),
    ({"type": "array", "items": {"type": "integer"}}, [1, R], True),
    ({"type": "array", "items": {"type": "integer"}}, ["x", R], False),
    ({"type": "array", "minItems": 3}, [R, R], False),
    ({"type": "array", "uniqueItems": True}, [R, R], True),
    ({"type": "array", "contains": {"const": 7}}, [R], True),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [R, 5], False),
    ({"not": {"type": "string"}}, R, True),
    ({"not": {"required": ["a"]}}, {"a": R}, True),
    (BRANCHES, {"kind": R, "n": 1}, True),
    (BRANCHES, {"kind": "a", "n": R}, True),
    (BRANCHES, {"kind": "a", "s": R}, False),
    (BRANCHES, {"kind": "c", "n": R}, False),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, R, True),
    ({"oneOf": [{"type": "object"}, {"required": ["a"]}]}, {"a": R}, True),
    ({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]}, {"a": R}, True),
    ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": R}, False),
    ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, {"a": R}, True),
    ({"dependentRequired": {"a": ["b"]}}, {"a": R}, False),
    ({"propertyNames": {"pattern": "^x"}}, {"a": R}, False),
    ({"minProperties": 2}, {"a": R}, False),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": R, "b": "x"}, False),
    ({"type": "object", "patternProperties": {"^n": {"type": "integer"}}}, {"n1": R, "n2": "x"}, False),
    (True, {"a": R}, True),
    (False, {"a": 1}, False),
    # a literal that begins with the mark is what it will be: shorter by one
    ({"properties": {"a": {"const": "†y"}}}, {"a": "††y"}, True),
    ({"properties": {"a": {"const": "††y"}}}, {"a": "††y"}, False),
    ({"properties": {"a": {"const": "†y"}}, "type": "object"}, {"a": "††y", "b": R}, True),
    ({"properties": {"a": {"const": "†y"}}, "minProperties": 1}, {"a": "††y", "b": R}, True),
    ({"properties": {"a": {"type": "array", "items": {"maxLength": 2}}}}, {"a": ["††y", R]}, True),
]


@pytest.mark.parametrize(("schema", "value", "fitting"), RELAXED, ids=lambda x: str(x)[:70])
def test_a_reference_satisfies_any_type_and_nothing_else_does(schema: Any, value: Any, fitting: bool) -> None:  # noqa: FBT001
    assert may_fit(schema, value) is fitting


ITEM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": False}


@pytest.mark.parametrize("reference", [0, R])
def test_defects_come_in_the_order_of_the_value_a_whole_before_its_parts(reference: Any) -> None:
    schema = {"type": "array", "items": ITEM, "maxItems": 2}
    value = [{"a": "x"}, {"b": reference, "c": 1, "a": "y"}, {"a": 1}, *({"a": "z"} for _ in range(9))]
    places = [at for at, _ in Checker(schema).open_defects(value)]
    assert places == [(), (0, "a"), (1,), (1, "a"), *((i, "a") for i in range(3, 12))]


# a closed object, what is wrong with it


# schema, values that fit, values that do not
STRICT: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "string", "nullable": True}, ["x", None], [5]),
    ({"type": "string", "nullable": False}, ["x"], [None, 5]),
    ({"enum": ["a"], "nullable": True}, ["a", None], ["b"]),
    (
        {"properties": {"a": {"type": "object", "nullable": True, "required": ["b"]}}},
        [{"a": None}, {"a": {"b": 1}}],
        [{"a": {}}],
    ),
    ({"items": {"type": "integer", "nullable": True}}, [[1, None]], [["x"]]),
    ({"anyOf": [{"type": "integer", "nullable": True}]}, [1, None], ["x"]),
    ({"additionalProperties": {"type": "integer", "nullable": True}}, [{"z": None}], [{"z": "x"}]),
    ({"properties": {"nullable": {"type": "boolean"}}}, [{"nullable": True}], [{"nullable": None}]),
    ({"const": {"nullable": True}}, [{"nullable": True}], [None, {}]),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "nullable": True}}}, ["x", None], [5]),
    # nullable must not move what a $ref points at
    (
        {
            "type": "object",
            "nullable": True,
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"type": "string"}},
        },
        [None, {"a": "x"}],
        [{"a": 5}, 5],
    ),
    (
        {
            "properties": {
                "a": {"type": "object", "nullable": True, "properties": {"x": {"type": "string"}}},
                "b": {"$ref": "#/properties/a/properties/x"},
            }
        },
        [{"b": "x"}],
        [{"b": 5}],
    ),
    (
        {"type": "object", "properties": {"child": {"$ref": "#"}, "v": {"type": "integer"}}},
        [{"v": 1, "child": {"v": 2, "child": {}}}],
        [{"child": {"child": {"v": "x"}}}],
    ),
    (True, [None, 1, {}], []),
    (False, [], [None, 1]),
    ({}, [None, "x"], []),
    ({"type": ["integer", "null"]}, [1, None, 1.0], ["1", 1.5, True]),
    ({"multipleOf": 0.01}, [0.1, 4.02], [0.001]),
    ({"type": "integer"}, [10**400, -(10**30)], ["x"]),
    ({"maximum": 5}, [5], [10**400]),
    ({"type": "string", "format": "date"}, ["2026-01-01", "no date"], []),
]


@pytest.mark.parametrize(("schema", "good", "bad"), STRICT, ids=lambda x: str(x)[:70])
def test_strict_checks(schema: Any, good: list[Any], bad: list[Any]) -> None:
    before = copy.deepcopy(schema)
    assert judge_schema(schema).reason is None
    for value in good:
        assert fits(schema, value), value
        assert may_fit(schema, value), value
    for value in bad:
        assert not fits(schema, value), value
        assert not may_fit(schema, value), value
    assert schema == before


def test_defects_say_where_and_what() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}, "b": {"enum": [1, 2]}}}
    defects = dict(Checker(schema).defects({"a": [1, "x", 2], "b": 3}))
    assert set(defects) == {("a", 1), ("b",)}
    assert "'x' is not of type 'integer'" in defects[("a", 1)]
    assert "3 is not one of [1, 2]" in defects[("b",)]


REMOTE: list[Any] = [
    {"$ref": "https://example.invalid/schema.json#/a"},
    {"$ref": "file:///etc/passwd"},
    {"$dynamicRef": "http://127.0.0.1:9/x"},
    {"$defs": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
    {"dependentSchemas": {"a": {"$ref": "//127.0.0.1:9/x"}}},
    {"$id": "http://127.0.0.1:9/base/", "$ref": "x.json"},
    {"$schema": "http://127.0.0.1:9/meta"},
    {"$ref": "#/hidden", "hidden": {"$ref": "http://127.0.0.1:9/x"}},
    {"contentSchema": {"$ref": "http://127.0.0.1:9/x"}, "contentMediaType": "application/json"},
]


@pytest.mark.parametrize("schema", REMOTE, ids=str)
def test_nothing_is_ever_fetched(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []

    def no(*arguments: Any, **_: Any) -> Any:
        touched.append(str(arguments))
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "create_connection", no)
    monkeypatch.setattr(socket.socket, "connect", no)
    monkeypatch.setattr(urllib.request, "urlopen", no)
    if judge_schema(schema).reason is None:
        for value in ({"a": [1, R]}, {"a": "x"}, "x", R):
            Checker(schema).defects(value)
            Checker(schema).open_defects(value)
    assert touched == []


scalars = st.sampled_from([None, True, 0, 1, 1.5, "", "x", "long text"])
plain = st.recursive(
    scalars, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from("ab"), v, max_size=2), max_leaves=4
)
simple = st.sampled_from(
    [
        True,
        {"type": "integer"},
        {"type": "string", "nullable": True},
        {"minimum": 1},
        {"maxLength": 1},
        {"enum": [1, "x", None]},
    ]
)
schemas = st.recursive(
    simple,
    lambda s: st.one_of(
        st.builds(lambda a, b: {"type": "object", "properties": {"a": a, "b": b}}, s, s),
        st.builds(lambda a: {"properties": {"a": a}, "required": ["a"], "additionalProperties": False}, s),
        st.builds(lambda a: {"type": "array", "items": a}, s),
        st.builds(lambda a, b: {"anyOf": [a, b]}, s, s),
        st.builds(lambda a, b: {"oneOf": [a, b]}, s, s),
        st.builds(lambda a: {"not": a}, s),
        st.builds(lambda a, b: {"if": a, "then": b}, s, s),
    ),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None)
@given(schemas, plain)
def test_accepting_and_explaining_agree(schema: Any, value: Any) -> None:
    accepted = Draft202012Validator(with_null(schema)).is_valid(value)
    assert fits(schema, value) is accepted
    assert may_fit(schema, value) is accepted


@st.composite
def half_known(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """A schema, a value, and the same value with some parts put off by references."""
    schema, value = draw(schemas), draw(plain)

    def put_off(part: Any) -> Any:
        if draw(st.integers(0, 3)) == 0:
            return R
        if isinstance(part, dict):
            return {k: put_off(v) for k, v in part.items()}
        return [put_off(v) for v in part] if isinstance(part, list) else part

    return schema, value, put_off(value)


@settings(max_examples=100, deadline=None)
@given(half_known())
def test_what_fits_in_the_end_is_never_refused_before(case: tuple[Any, Any, Any]) -> None:
    schema, value, before = case
    if fits(schema, value):
        assert may_fit(schema, before)
