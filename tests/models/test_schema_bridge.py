"""Bridged schemas: they stay within the provider's subset, and every value survives the way there and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from activities.providers.provider_keywords import Dialect
from activities.providers.schema_bridge import to_wire
from activities.providers.schema_nodes import OMITTED
from acts.language.schemas import subschemas
from tests.models.support import REFERENCE, SCHEMA, solution, tool

STRICT: list[Dialect] = ["anthropic", "openai"]
Pair = tuple[dict[str, Any], st.SearchStrategy[Any]]
"""A schema, and the values that fit it."""

TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["v"],
}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


# -- encoding: our form to what a model writes, by the documented rules and not by the code ---------------


def is_text(wire: dict[str, Any]) -> bool:
    return wire.get("type") == "string" and "JSON text of" in wire.get("description", "")


class Encoder:
    def __init__(self, schema: dict[str, Any], wire: dict[str, Any]) -> None:
        self.schema, self.wire = schema, wire

    def fits(self, value: Any, part: Any, root: dict[str, Any]) -> bool:
        whole = {**part, "$defs": root.get("$defs", {})} if isinstance(part, dict) else part
        return Draft202012Validator(whole).is_valid(value)

    def encode(self, ours: Any, wire: dict[str, Any], value: Any) -> Any:
        ours, wire = follow_refs(ours, self.schema), follow_refs(wire, self.wire)
        if is_text(wire):
            return json.dumps(value)
        if "anyOf" in wire:
            return self.option(ours, wire, value)
        if isinstance(value, dict) and wire["type"] == "object":
            return self.object(ours, wire, value)
        if isinstance(value, list):
            return [self.encode(ours["items"], wire["items"], v) for v in value]
        return value

    def option(self, ours: Any, wire: dict[str, Any], value: Any) -> Any:
        chosen = next(b for b in branches(ours) if self.fits(value, b, self.schema))
        if follow_refs(chosen, self.schema) is not ours:
            ours = chosen
        for part in wire["anyOf"]:
            if value is None and part.get("type") != "null" and not is_text(part):
                continue
            try:
                encoded = self.encode(ours, part, value)
            except (KeyError, StopIteration, TypeError):
                continue
            if self.fits(encoded, part, self.wire):
                return encoded
        raise StopIteration

    def object(self, ours: dict[str, Any], wire: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        named = dict(ours.get("properties", {}))
        for part in ours.get("allOf", []):
            named.update(part.get("properties", {}))
        out = {}
        for key, part in wire["properties"].items():
            if key in value:
                out[key] = self.encode_property(
                    named[key], part, value[key], optional=key not in ours.get("required", [])
                )
            elif key in wire["required"]:
                out[key] = OMITTED if any(o.get("const") == OMITTED for o in part["anyOf"]) else None
        rest = {k: v for k, v in value.items() if k not in named}
        return {**out, next(k for k in wire["properties"] if k not in named): json.dumps(rest)} if rest else out

    def encode_property(self, ours: Any, part: dict[str, Any], value: Any, *, optional: bool) -> Any:
        """A property that is present; where null means absent, its null is JSON text."""
        texts = [o for o in part.get("anyOf", []) if is_text(o)]
        if optional and texts and len(part["anyOf"]) == 2 and {"type": "null"} in part["anyOf"]:
            return json.dumps(value)
        return self.encode(ours, part, value)


def follow_refs(schema: Any, root: dict[str, Any]) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return schema


def branches(schema: Any) -> list[Any]:
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [b for branch in schema[key] for b in branches(branch)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": t} for t in schema["type"]]
    return [schema]


# -- random schemas with random values ----------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "_more", "ä", "with space"])
texts = st.text(max_size=8) | st.sampled_from(["†state.x", "{}", "null", "5", '"x"', "true"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
LEAVES: list[Pair] = [
    ({"type": "string"}, texts),
    ({"type": "string", "minLength": 1, "default": "x", "$comment": "x"}, texts.filter(bool)),
    ({"enum": ["Low", "High", None]}, st.sampled_from(["Low", "High", None])),
    ({"const": 3}, st.just(3)),
    ({"type": "number", "exclusiveMinimum": -5}, st.integers(0, 99) | st.just(0.5)),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["string", "null"]}, texts | st.none()),
    ({"type": ["number", "boolean", "null"]}, st.integers() | st.booleans() | st.none()),
    ({"type": ["object", "string"]}, st.dictionaries(names, st.integers(), max_size=2) | texts),
    ({}, anything),
    ({"description": "whatever"}, anything),
    ({"type": "object"}, st.dictionaries(names, anything, max_size=2)),
    ({"type": "object", "additionalProperties": {"type": "number"}}, st.dictionaries(names, st.integers(), max_size=2)),
    ({"type": "array"}, st.lists(anything, max_size=2)),
    ({"type": "array", "prefixItems": [{"type": "number"}]}, st.lists(st.integers(), max_size=2)),
    ({"$ref": "#/$defs/tree"}, st.fixed_dictionaries({"v": st.integers()}, optional={"kids": st.just([{"v": 1}])})),
]


def lists(pair: Pair) -> Pair:
    return {"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=3)


def with_reference(pair: Pair) -> Pair:
    """As acts/planner/answer_schema.py allows a reference in place of a value."""
    if pair[0].get("type") == "string" or not set(pair[0]) - {"description"}:
        return pair
    return {"anyOf": [pair[0], {"$ref": "#/$defs/reference"}]}, pair[1] | st.just("†state.y || †state.z")


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair], tag: str | None = None) -> Pair:
    parts = draw(st.dictionaries(names, inner, max_size=4))
    required = draw(st.sets(st.sampled_from(sorted(parts)))) if parts else set()
    schema: dict[str, Any] = obj(sorted(required), **{k: p[0] for k, p in parts.items()})
    values = {k: p[1] for k, p in parts.items()}
    if tag is not None:
        schema["properties"] = {"_tool": {"const": tag}, **schema["properties"]}
        schema["required"] = ["_tool", *schema["required"]]
        values["_tool"] = st.just(tag)
        required = {*required, "_tool"}
    extra: st.SearchStrategy[dict[str, Any]] = st.just({})
    if parts and draw(st.booleans()):
        schema["additionalProperties"] = {"type": "integer"}
        extra = st.dictionaries(st.sampled_from(["x", "y"]), st.integers(), max_size=2)
    elif parts:
        schema.pop("additionalProperties", None)  # open by default, and closed on the wire
    fixed = st.fixed_dictionaries(
        {k: v for k, v in values.items() if k in required},
        optional={k: v for k, v in values.items() if k not in required},
    )
    return schema, st.builds(lambda one, more: {**one, **more}, fixed, extra)


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    """Calls of several tools, which differ in their constant."""
    pairs = [draw(objects(inner, tag)) for tag in ("one", "two", "Three")]
    key = draw(st.sampled_from(["anyOf", "oneOf"]))
    return {key: [p[0] for p in pairs], "description": "a call"}, st.one_of(*(p[1] for p in pairs))


pairs = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: inner.map(lists) | inner.map(with_reference) | objects(inner) | unions(inner),
    max_leaves=12,
)


@pytest.mark.parametrize("dialect", STRICT)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_answer_comes_back_exactly(dialect: Dialect, data: st.DataObject) -> None:
    schema, values = data.draw(objects(pairs))
    schema = {**schema, "$defs": {"tree": TREE, "reference": REFERENCE, "unused": {"type": "string"}}}
    wire = to_wire(schema, dialect)
    check_subset(wire.schema, dialect)
    value = data.draw(values)
    answer = Encoder(schema, wire.schema).encode(schema, wire.schema, value)
    assert Draft202012Validator(wire.schema).is_valid(answer)
    assert is_same(wire.from_wire(answer), value)


@pytest.mark.parametrize("dialect", [*STRICT, "unenforced"])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_answer_raises(dialect: Dialect, data: st.DataObject) -> None:
    schema, _ = data.draw(pairs)
    wire = to_wire({**schema, "$defs": {"tree": TREE, "reference": REFERENCE}}, dialect)
    wire.from_wire(data.draw(anything))


def is_same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def check_subset(wire: dict[str, Any], dialect: Dialect) -> None:
    """Asserts what no strict schema may contain, and what each must."""
    used = set()
    for part in subschemas(wire):
        assert not set(part) & {"oneOf", "allOf", "default", "$comment", "$id", "prefixItems", "not", "if"}
        assert not isinstance(part.get("type"), list)
        assert set(part) & {"type", "anyOf", "$ref"}
        assert "$ref" not in part or set(part) == {"$ref"}
        used.add(str(part.get("$ref", "")).removeprefix("#/$defs/"))
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert dialect != "openai" or part["required"] == list(part["properties"])
        if dialect == "anthropic":
            assert not set(part) & {"minimum", "exclusiveMinimum", "minLength", "maxLength"}
    assert used - {""} == set(wire.get("$defs", {}))
    if dialect == "anthropic":
        for name in wire.get("$defs", {}):
            assert name not in reachable(wire, name)


def reachable(wire: dict[str, Any], name: str) -> set[str]:
    visited: set[str] = set()
    pending = [name]
    while pending:
        for target in targets(wire["$defs"][pending.pop()]):
            if target not in visited:
                visited.add(target)
                pending.append(target)
    return visited


def targets(schema: Any) -> Iterator[str]:
    return (p["$ref"].removeprefix("#/$defs/") for p in subschemas(schema) if "$ref" in p)


# -- examples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", STRICT)
def test_the_same_schema_gives_the_same_bytes_with_the_tool_first(dialect: Dialect) -> None:
    one = json.dumps(to_wire(SCHEMA, dialect).schema)
    to_wire.__globals__["_wires"].clear()
    assert json.dumps(to_wire(json.loads(json.dumps(SCHEMA)), dialect).schema) == one
    late = solution(x={**tool("x"), "properties": {"b": {"type": "string"}, "_tool": {"const": "x"}}})
    assert next(iter(to_wire(late, dialect).schema["$defs"]["tool_x"]["properties"])) == "_tool"


def test_an_absent_property_and_a_null_one_stay_distinct() -> None:
    schema = obj(a={"type": ["string", "null"]}, b={"type": "string"}, c={})
    from_wire = to_wire(schema, "openai").from_wire
    assert from_wire({"a": None, "b": None, "c": None}) == {"a": None}
    assert from_wire({"a": OMITTED, "b": None, "c": "null"}) == {"c": None}
    # the one ambiguity: this very text, where null is allowed and the property is optional
    assert from_wire({"a": OMITTED, "b": OMITTED}) == {"b": OMITTED}


def test_unions_and_optional_properties_are_moved_behind_references_for_anthropic() -> None:
    """Its limits, 24 optional properties and 16 unions, count what is reached without following a reference."""
    many = {f"p{i}": {"type": ["string", "null"]} for i in range(40)}
    wire = to_wire(solution(obj(**many), one=tool("one", **many), two=tool("two", **many)), "anthropic").schema
    inline = [p for p in subschemas({k: v for k, v in wire.items() if k != "$defs"}) if p is not wire]
    assert sum("anyOf" in p for p in inline) == 2
    assert all(len(p["required"]) == len(p["properties"]) for p in inline if p.get("type") == "object")


MERGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"allOf": [obj(["a"], a={"type": "string"}), {"required": ["a"]}], "description": "d"},
        {"type": "object", "description": "d", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    ),
    (
        {"allOf": [{"$ref": "#/$defs/n"}], "maximum": 9},
        {"type": "number", "minimum": 1, "maximum": 9},
    ),
    ({"$ref": "#/$defs/n", "minimum": 4}, {"type": "number", "minimum": 4}),
    ({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, {"type": "string", "enum": ["b"]}),
    ({"anyOf": [{"minimum": 3}, {"maximum": 1}], "type": "number"}, {"anyOf": [{"type": "number", "minimum": 3}]}),
]


@pytest.mark.parametrize(("schema", "expected"), MERGES)
def test_a_simple_all_of_is_merged(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    whole = {**obj(["x"], x=schema), "$defs": {"n": {"type": "number", "minimum": 1}}}
    sent = to_wire(whole, "openai").schema["properties"]["x"]
    if "anyOf" in expected:
        sent = {"anyOf": sent["anyOf"][:1]}
    assert {k: v for k, v in sent.items() if k != "additionalProperties"} == expected


TEXTS: list[dict[str, Any]] = [
    {"allOf": [{"pattern": "a"}, {"pattern": "b"}]},
    {"allOf": [obj(a={"type": "string"}), obj(b={"type": "string"})]},
    {"anyOf": [{"type": "string"}, {}]},
    {"anyOf": [{"type": "string"}, {"type": "object"}]},
    {"enum": [{"a": 1}, [2]]},
    {"type": "array", "items": True},
    {"$ref": "https://example.com/schema"},
    {"$ref": "#/$defs/loop"},
    {"$dynamicRef": "#x"},
    {"patternProperties": {"^a": {"type": "string"}}},
    {"type": "colour"},
    {"minLength": 1, "minimum": 2},
]


@pytest.mark.parametrize("dialect", STRICT)
@pytest.mark.parametrize("schema", TEXTS)
def test_a_schema_that_cannot_be_strict_becomes_json_text(schema: dict[str, Any], dialect: Dialect) -> None:
    whole = {**obj(["x"], x=schema), "$defs": {"loop": {"$ref": "#/$defs/pool"}, "pool": {"$ref": "#/$defs/loop"}}}
    wire = to_wire(whole, dialect)
    sent = wire.schema["properties"]["x"]
    assert is_text(sent.get("anyOf", [sent])[0])
    assert wire.from_wire({"x": '{"a": [1]}'}) == {"x": {"a": [1]}}


def test_null_is_allowed_where_it_cannot_mean_absent() -> None:
    wire = to_wire(obj(["x"], x={}, y={}), "openai")
    assert {"type": "null"} in wire.schema["properties"]["x"]["anyOf"]
    assert wire.from_wire({"x": None, "y": None}) == {"x": None}
    assert wire.from_wire({"x": "null", "y": "null"}) == {"x": None, "y": None}


PATTERNS = {
    "^†": "^†.*$",
    "b": "^.*b.*$",
    "b$": "^.*b$",
    "^(a|b)$": "^(a|b)$",
    "a|b": None,
    r"^b\$": None,
    r"\bb": None,
    "(?!a)b": None,
}


@pytest.mark.parametrize(("pattern", "sent"), PATTERNS.items())
def test_a_pattern_means_the_same_to_engines_that_match_the_whole_text(pattern: str, sent: str | None) -> None:
    wire = to_wire(obj(["x"], x={"type": "string", "pattern": pattern}), "anthropic").schema["properties"]["x"]
    assert wire.get("pattern") == sent
    assert sent is not None or "pattern" in wire["description"]


def test_unsupported_limits_move_into_the_description() -> None:
    schema = {
        "type": "string",
        "description": "Who",
        "minLength": 2,
        "pattern": "(?=x)y",
        "format": "iban",
        "default": "z",
    }
    anthropic = to_wire(obj(["x"], x=schema), "anthropic").schema["properties"]["x"]
    assert anthropic == {
        "type": "string",
        "description": 'Who (minLength: 2; pattern: "(?=x)y"; format: "iban"; default: "z")',
    }
    openai = to_wire(obj(["x"], x=schema), "openai").schema["properties"]["x"]
    assert openai["minLength"] == 2
    assert "pattern" not in openai


def test_a_recursive_schema_stays_recursive_for_openai_and_is_text_for_anthropic() -> None:
    schema = {**obj(["t"], t={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}}
    value = {"t": {"v": 1, "kids": [{"v": 2}]}}
    openai, anthropic = to_wire(schema, "openai"), to_wire(schema, "anthropic")
    assert openai.schema["properties"]["t"] == {"$ref": "#/$defs/tree"}
    assert openai.from_wire({"t": {"v": 1, "kids": [{"v": 2, "kids": None}]}}) == value
    assert is_text(anthropic.schema["properties"]["t"])
    assert anthropic.from_wire({"t": json.dumps(value["t"])}) == value
    whole = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert to_wire(whole, "openai").from_wire({"next": {"next": {"next": None}}}) == {"next": {"next": {}}}


def test_a_hoisted_object_takes_no_name_of_a_definition() -> None:
    names = {f"object_{i}": {"type": "string"} for i in range(1, 4)}
    inline = {"type": "object", "properties": {"a": {"type": "string"}}}
    whole = {**obj(["x", "y"], x=inline, y={"$ref": "#/$defs/object_1"}), "$defs": names}
    wire = to_wire(whole, "anthropic").schema
    assert wire["properties"]["x"] == {"$ref": "#/$defs/object_4"}
    assert wire["properties"]["y"] == {"$ref": "#/$defs/object_1"}


def test_a_root_that_is_no_object_is_wrapped() -> None:
    wire = to_wire({"type": "array", "items": {"type": "number"}}, "openai")
    assert wire.schema["required"] == ["value"]
    assert wire.from_wire({"value": [1]}) == [1]
    assert wire.from_wire([1]) == [1]


@pytest.mark.parametrize("schema", [True, False, {}, None, [], {"$ref": 7}, {"anyOf": []}])
@pytest.mark.parametrize("dialect", [*STRICT, "unenforced"])
def test_an_unusual_schema_is_bridged_too(schema: Any, dialect: Dialect) -> None:
    assert isinstance(to_wire(schema, dialect).schema, dict)


def test_a_hostile_answer_stops_at_the_step_limit() -> None:
    """Two similar alternatives, 60 levels deep, would take 2^60 steps."""
    node = {"anyOf": [obj(["n"], n={"$ref": "#/$defs/node"}, m={"const": 1}), obj(["n"], n={"$ref": "#/$defs/node"})]}
    wire = to_wire({**obj(["n"], n={"$ref": "#/$defs/node"}), "$defs": {"node": node}}, "openai")
    value: Any = "odd"
    for _ in range(60):
        value = {"n": value}
    assert wire.from_wire(value) == value


def test_deep_json_text_is_returned_unchanged() -> None:
    from_wire = to_wire(obj(["x"], x={}), "openai").from_wire
    assert from_wire({"x": "[" * 100_000}) == {"x": "[" * 100_000}
