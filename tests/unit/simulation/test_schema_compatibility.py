"""Schema against schema: a certain incompatibility is a proof, the rest a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.schemas import with_null
from acts.simulation.type_flow import Alternatives, alternatives_at, find_incompatibility, type_alternatives

STRING, NUMBER, OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}


def person(*required: str, closed: bool = False, **properties: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    return {**out, "additionalProperties": False} if closed else out


def ways(schema: Any) -> Alternatives:
    schema = with_null(schema)
    return type_alternatives(schema, schema)


# produced, accepted, certain (None: compatible), and the types in the message
CASES: list[tuple[Any, Any, bool | None, str, str]] = [
    (STRING, STRING, None, "", ""),
    (STRING, NUMBER, True, "string", "number"),
    (NUMBER, {"type": "integer"}, None, "", ""),
    (True, STRING, None, "", ""),
    (STRING, {}, None, "", ""),
    (NUMBER, {"enum": ["a", "b"]}, True, "number", '"a" or "b"'),
    ({"enum": ["a", "d"]}, {"enum": ["a", "b"]}, False, '"d"', '"a" or "b"'),
    ({"const": 1}, {"const": True}, True, "1", "true"),
    ({"type": ["string", "null"]}, STRING, False, "null", "string"),
    ({"type": ["string", "null"]}, NUMBER, True, "string or null", "number"),
    ({"anyOf": [STRING, NUMBER]}, {"oneOf": [OBJECT, {"type": "array"}]}, True, "string or number", "object or list"),
    ({"anyOf": [STRING, {}]}, NUMBER, False, "string", "number"),
    ({"$ref": "#/$defs/x", "$defs": {"x": STRING}}, NUMBER, True, "string", "number"),
    ({"$ref": "#"}, NUMBER, None, "", ""),
    # what is inside is not compared
    (person("a", a=STRING), person("a", a=NUMBER), None, "", ""),
]


@pytest.mark.parametrize(("produced", "accepted", "certain", "produced_types", "accepted_types"), CASES)
def test_what_keeps_one_schema_from_the_other(
    produced: Any, accepted: Any, certain: Any, produced_types: str, accepted_types: str
) -> None:
    result = find_incompatibility(ways(produced), ways(accepted))
    if certain is None:
        assert result is None
    else:
        assert result is not None
        assert (result.certain, result.produced, result.accepted) == (certain, produced_types, accepted_types)


@pytest.mark.parametrize(
    ("schema", "names", "types"),
    [
        (person(a=person(b=STRING)), "a.b", ["string"]),
        (person(a=STRING), "b", ["undeclared"]),
        (person(a=STRING, closed=True), "b", ["nothing"]),
        ({**person(a=STRING), "additionalProperties": NUMBER}, "b", ["number"]),
        ({"type": "array", "items": person(a=STRING)}, "3.a", ["string"]),
        ({"type": "array", "items": STRING}, "first", ["nothing"]),
        ({"anyOf": [person(a=STRING), {"type": "null"}]}, "a", ["string", "nothing"]),
        (True, "a.b.c", ["any"]),
        ({"type": "object", "properties": {"next": {"$ref": "#"}, "v": STRING}}, "next.next.next.v", ["string"]),
    ],
)
def test_what_lies_inside_a_schema(schema: Any, names: str, types: list[str]) -> None:
    assert [k.name for k in alternatives_at(ways(schema), tuple(names.split(".")))] == types


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
    misfit = find_incompatibility(ways(one), ways(other))
    if misfit is not None and misfit.certain:
        of_one, of_other = _accepts(one), _accepts(other)
        assert [v for v in _VALUES if of_one(v) and of_other(v)] == []
