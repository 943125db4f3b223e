"""Schema against schema: a certain clash is a proof, and a table says what is told of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.sampling import sample
from acts.language.schemas import with_null
from acts.language.values import ABSENT, get
from acts.simulation.schema_compatibility import ANY, Kinds, exact, find_incompatibility, inside, kinds

STRING, NUMBER, OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}


def person(*required: str, closed: bool = False, **properties: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    return {**out, "additionalProperties": False} if closed else out


def ways(schema: Any) -> Kinds:
    schema = with_null(schema)
    return kinds(schema, schema)


# given, wanted, certain (None: no clash), where, found, expected
CASES: list[tuple[Any, Any, bool | None, str, str, str]] = [
    (STRING, STRING, None, "", "", ""),
    (STRING, NUMBER, True, "", "string", "number"),
    ({"type": "integer"}, NUMBER, None, "", "", ""),
    (NUMBER, {"type": "integer"}, None, "", "", ""),
    (True, STRING, None, "", "", ""),
    (STRING, {}, None, "", "", ""),
    (STRING, {"type": "string", "pattern": "^[0-9]+$"}, None, "", "", ""),
    (STRING, {"enum": ["a", "b"]}, None, "", "", ""),
    (NUMBER, {"enum": ["a", "b"]}, True, "", "number", '"a" or "b"'),
    ({"enum": ["c", "d"]}, {"enum": ["a", "b"]}, True, "", '"c" or "d"', '"a" or "b"'),
    ({"enum": ["a", "d"]}, {"enum": ["a", "b"]}, False, "", '"d"', '"a" or "b"'),
    ({"const": 1}, {"const": True}, True, "", "1", "true"),
    ({"type": ["string", "null"]}, STRING, False, "", "null", "string"),
    ({"type": "string", "nullable": True}, STRING, False, "", "null", "string"),
    ({"type": ["string", "null"]}, {"type": ["null", "boolean"]}, False, "", "string", "null or boolean"),
    ({"type": ["string", "null"]}, NUMBER, True, "", "string or null", "number"),
    (
        {"anyOf": [STRING, NUMBER]},
        {"oneOf": [OBJECT, {"type": "array"}]},
        True,
        "",
        "string or number",
        "object or list",
    ),
    ({"anyOf": [STRING, {}]}, NUMBER, False, "", "string", "number"),
    ({"$ref": "#/$defs/x", "$defs": {"x": STRING}}, NUMBER, True, "", "string", "number"),
    ({"$ref": "#"}, NUMBER, None, "", "", ""),
    ({"allOf": [{"minLength": 3}, STRING]}, NUMBER, True, "", "string", "number"),
    (person("a", a=STRING), person("a", a=NUMBER), True, "a", "string", "number"),
    (person(a=STRING), person(a=NUMBER), False, "a", "string", "number"),
    (person(a=STRING), person("a", a=NUMBER), True, "a", "string", "number"),
    (person(a=STRING), person("b", b=NUMBER), False, "b", "undeclared", "number"),
    (person(a=STRING), person(b=NUMBER), None, "", "", ""),
    (person(a=STRING, closed=True), person("b", b=NUMBER), True, "b", "nothing", "number"),
    (person(a=STRING, closed=True), person("b"), True, "b", "nothing", "any"),
    (OBJECT, person("b", b=NUMBER), None, "", "", ""),
    ({**person(a=STRING), "anyOf": [OBJECT]}, person("b", b=NUMBER), None, "", "", ""),
    (person("a", "b", a=STRING, b=STRING), person(a=STRING, closed=True), True, "b", "string", "no such property"),
    (person(a=STRING, b=STRING), person(a=STRING, closed=True), False, "b", "string", "no such property"),
    (person("a", a=person("b", b=STRING)), person(a=person(b=NUMBER)), True, "a.b", "string", "number"),
    ({"type": "array", "items": STRING}, {"type": "array", "items": NUMBER}, False, "0", "string", "number"),
    (
        {"type": "array", "items": STRING, "minItems": 1},
        {"type": "array", "items": NUMBER},
        True,
        "0",
        "string",
        "number",
    ),
    ({"type": "array", "items": STRING}, STRING, True, "", "list", "string"),
    ({"type": "array", "prefixItems": [STRING]}, {"type": "array", "items": NUMBER}, None, "", "", ""),
]


@pytest.mark.parametrize(("produced", "wanted", "certain", "at", "found", "expected"), CASES)
def test_what_keeps_one_schema_from_the_other(
    produced: Any, wanted: Any, certain: Any, at: str, found: str, expected: str
) -> None:
    result = find_incompatibility(ways(produced), ways(wanted))
    if certain is None:
        assert result is None
    else:
        assert result is not None
        assert (result.certain, ".".join(result.at), result.found, result.expected) == (certain, at, found, expected)


@pytest.mark.parametrize(
    ("schema", "names", "found"),
    [
        (person(a=person(b=STRING)), "a.b", ["string"]),
        (person(a=STRING), "b", ["undeclared"]),
        (person(a=STRING, closed=True), "b", ["nothing"]),
        (person(a=STRING), "a.length", ["nothing"]),
        ({**person(a=STRING), "additionalProperties": NUMBER}, "b", ["number"]),
        ({**person(a=STRING, closed=True), "patternProperties": {"^b": NUMBER}}, "b", ["any"]),
        (OBJECT, "b", ["any"]),
        ({"type": "array", "items": person(a=STRING)}, "3.a", ["string"]),
        ({"type": "array", "items": STRING}, "first", ["nothing"]),
        ({"anyOf": [person(a=STRING), {"type": "null"}]}, "a", ["string", "nothing"]),
        ({"const": {"a": [1]}}, "a.0", ["number"]),
        ({"const": {"a": [1]}}, "a.1", ["nothing"]),
        (True, "a.b.c", ["any"]),
        ({"type": "object", "properties": {"next": {"$ref": "#"}, "v": STRING}}, "next.next.next.v", ["string"]),
    ],
)
def test_what_lies_inside_a_schema(schema: Any, names: str, found: list[str]) -> None:
    assert [k.name for k in inside(ways(schema), tuple(names.split(".")))] == found


def test_schemas_that_hold_themselves_are_compared_once() -> None:
    names = [f"p{i}" for i in range(40)]
    one = {"type": "object", "properties": {n: {"$ref": "#"} for n in names}, "required": names}
    other = {"type": "object", "properties": {n: {"$ref": "#"} for n in names}}
    assert find_incompatibility(ways(one), ways(other)) is None
    assert isinstance(sample(one), dict)  # bounded as well


def test_too_many_alternatives_count_as_anything() -> None:
    many = {"anyOf": [{"const": i} for i in range(100)]}
    assert ways(many) == (ANY,)
    assert find_incompatibility(ways(many), ways(STRING)) is None


# -- a certain clash is a proof ------------------------------------------------

_NAMES = st.sampled_from(["a", "b"])
_SIMPLE: list[Any] = [None, True, 0, 1.5, "", "x", [], ["x"], [None], [0, "x"], {}, {"a": "x"}]
_VALUES: list[Any] = [
    *_SIMPLE,
    *[[v] for v in _SIMPLE],
    *[{name: v} for v in _SIMPLE for name in ("a", "b")],
    *[{"a": v, "b": w} for v in _SIMPLE for w in _SIMPLE],
    *[{"a": {"a": v}, "b": [w]} for v in _SIMPLE for w in _SIMPLE],
]
_LEAVES = st.sampled_from(
    [
        True, {}, STRING, NUMBER, {"type": "integer"}, {"type": "null"}, {"type": ["string", "null"]}, {"const": 1.5},
        {"enum": ["x", 0]}, {"const": {"a": "x"}}, {"type": "string", "minLength": 1},
        {"type": "boolean", "nullable": True},
    ]
)  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required, extra: {
            "type": "object", "properties": properties, "required": required, "additionalProperties": extra,
        },
        st.dictionaries(_NAMES, inner, max_size=2),
        st.lists(_NAMES, unique=True, max_size=2),
        st.sampled_from([True, False]) | inner,
    )  # fmt: skip


_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: (
        _objects(inner)
        | st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 1))
        | st.builds(
            lambda parts, key: {key: parts},
            st.lists(inner, min_size=1, max_size=3),
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
        )
    ),
    max_leaves=4,
)


def _accepts(schema: Any) -> Callable[[Any], bool]:
    return jsonschema_rs.validator_for(with_null(schema)).is_valid


@settings(max_examples=500, deadline=None, derandomize=True)
@given(_SCHEMAS, _SCHEMAS)
def test_no_value_of_the_one_is_one_of_the_other_where_the_clash_is_certain(one: Any, other: Any) -> None:
    found = find_incompatibility(ways(one), ways(other))
    if found is not None and found.certain:
        of_one, of_other = _accepts(one), _accepts(other)
        assert [v for v in _VALUES if of_one(v) and of_other(v)] == []


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_SCHEMAS, st.lists(_NAMES, max_size=3))
def test_each_value_is_of_one_of_the_kinds_that_its_schema_tells(schema: Any, names: list[str]) -> None:
    told = {k.name for k in inside(ways(schema), tuple(names))}
    accepts = _accepts(schema)
    for value in _VALUES:
        part = get(value, tuple(names))
        if part is not ABSENT and not told & {"any", "undeclared", exact(part).name}:
            assert not accepts(value), (value, told)
