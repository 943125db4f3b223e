"""Schemas as providers are sent them: within their subset, as strict as possible, and no narrower than the original."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acts.activities.models.schema import Dialect, NotStrict, choose_form, drop_nulls, lower_schema
from acts.language.schemas import subschemas
from acts.planner.answer_schema import compose_solution_schema
from benchmarks.live_smoke import build_tools
from tests.models.support import PLAN, REFERENCE, SCHEMA, WIRE, solution, tool

DIALECTS: list[Dialect] = ["anthropic", "openai"]
Pair = tuple[dict[str, Any], st.SearchStrategy[Any]]
"""A schema, and the values that fit it."""

TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["v"],
    "additionalProperties": False,
}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


names = st.sampled_from(["a", "b", "c", "ä", "with space"])
LEAVES: list[Pair] = [
    ({"type": "string"}, st.text(max_size=8)),
    ({"type": "string", "minLength": 1, "default": "x", "$comment": "x"}, st.text(min_size=1, max_size=8)),
    ({"enum": ["Low", "High", None]}, st.sampled_from(["Low", "High", None])),
    ({"enum": [1, 2.5, True]}, st.sampled_from([1, 2.5, True])),
    ({"const": 3}, st.just(3)),
    ({"type": "number", "exclusiveMinimum": -5}, st.integers(0, 99) | st.just(0.5)),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["string", "null"]}, st.text(max_size=5) | st.none()),
    ({"type": ["number", "boolean", "null"]}, st.integers() | st.booleans() | st.none()),
    ({"$ref": "#/$defs/word", "description": "a word"}, st.sampled_from(["x", "y"])),
    ({"allOf": [{"$ref": "#/$defs/word"}]}, st.sampled_from(["x", "y"])),
]


def lists(pair: Pair) -> Pair:
    return {"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=3)


def with_reference(pair: Pair) -> Pair:
    """As acts/planner/answer_schema.py allows a reference in place of a value."""
    return {"anyOf": [pair[0], {"$ref": "#/$defs/reference"}]}, pair[1] | st.just("†state.x")


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    chosen = draw(st.dictionaries(names, inner, min_size=1, max_size=4))
    required = [name for name in chosen if draw(st.booleans())]
    values = {name: pair[1] for name, pair in chosen.items()}
    optional = {name: values[name] for name in values if name not in required}
    strategy = st.fixed_dictionaries({name: values[name] for name in required}, optional=optional)
    return obj(required, **{name: pair[0] for name, pair in chosen.items()}), strategy


schemas = st.recursive(
    st.sampled_from(LEAVES), lambda inner: inner.map(lists) | inner.map(with_reference) | objects(inner), max_leaves=8
)


def whole(pair: Pair) -> dict[str, Any]:
    definitions = {"reference": REFERENCE, "word": {"enum": ["x", "y"]}, "unused": {"type": "string"}}
    return {**obj(["value"], value=pair[0]), "$defs": definitions}


def add_nulls(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """The value as a model writes it that must name every property of a strict schema of OpenAI."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        options = (add_nulls(value, option, root) for option in schema["anyOf"])
        checks = [Draft202012Validator({**option, "$defs": root["$defs"]}) for option in schema["anyOf"]]
        return next((o for o, check in zip(options, checks, strict=True) if check.is_valid(o)), value)
    if isinstance(value, list) and schema["type"] == "array":
        return [add_nulls(item, schema["items"], root) for item in value]
    if isinstance(value, dict) and schema["type"] == "object":
        named = {k: add_nulls(v, schema["properties"][k], root) for k, v in value.items()}
        return {**dict.fromkeys(schema["required"]), **named}
    return value


def without_nulls(value: Any) -> Any:
    """An absent property may come back as null where null is a value."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_value_of_a_schema_can_be_written_in_its_strict_form(dialect: Dialect, data: st.DataObject) -> None:
    pair = data.draw(schemas)
    schema, value = whole(pair), {"value": data.draw(pair[1])}
    before = copy.deepcopy(schema)
    try:
        strict = lower_schema(schema, dialect)
    except NotStrict:
        assert dialect == "openai"  # alternatives that begin alike
        return
    assert schema == before
    check_subset(strict, dialect)
    written = add_nulls(value, strict, {"$defs": {}, **strict}) if dialect == "openai" else value
    assert Draft202012Validator(strict).is_valid(written)
    answer = drop_nulls(written, schema)
    assert Draft202012Validator(schema).is_valid(answer)
    assert without_nulls(answer) == without_nulls(value)


def check_subset(strict: dict[str, Any], dialect: Dialect) -> None:
    """What both providers document; keywords that only readers see are in descriptions."""
    Draft202012Validator.check_schema(strict)
    assert "unused" not in strict.get("$defs", {})
    for part in subschemas(strict):
        assert not {"oneOf", "allOf", "default", "prefixItems", "minProperties", "$comment"} & set(part)
        assert "$ref" not in part or set(part) == {"$ref"}
        assert {"type", "anyOf", "$ref"} & set(part)
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert dialect == "anthropic" or part["required"] == list(part["properties"])


def test_a_null_that_stands_for_an_absent_property_is_dropped_and_one_that_is_a_value_stays() -> None:
    assert drop_nulls(WIRE, SCHEMA) == PLAN
    schema = obj(["b"], a={"type": "string"}, b={"type": "string"}, c={"type": ["string", "null"]}, d={})
    assert drop_nulls({"a": None, "b": None, "c": None, "d": None}, schema) == {"b": None, "c": None, "d": None}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, "any value"),
        ({"type": "object"}, "any properties"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "any properties"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, "any properties"),
        ({"type": "array", "prefixItems": [{"type": "number"}]}, "prefixItems"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "allOf"),
        ({"$ref": "#/$defs/gone"}, "definition"),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_no_strict_schema_says_is_sent_as_it_is_or_in_words(
    part: dict[str, Any], reason: str, dialect: Dialect
) -> None:
    schema = obj(["a"], a=part, b={"type": "string"})
    sent = choose_form(schema, dialect)
    assert (sent.form, sent.schema) == ("unenforced" if dialect == "openai" else "words", schema)
    with pytest.raises(NotStrict, match=reason):
        lower_schema(schema, dialect)


def test_a_recursive_schema_is_strict_for_openai_and_words_for_anthropic() -> None:
    schema = {**obj(["tree"], tree={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}}
    sent = choose_form(schema, "openai")
    assert sent.form == "strict"
    assert sent.schema["$defs"]["tree"]["required"] == ["v", "kids"]
    assert choose_form(schema, "anthropic").form == "words"


def test_unsupported_limits_become_part_of_the_description() -> None:
    schema = obj(
        ["a"],
        a={"type": "string", "minLength": 2, "pattern": "^(?=x)", "description": "a name"},
        b={"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 3},
    )
    strict = lower_schema(schema, "anthropic")["properties"]
    assert strict["a"] == {"type": "string", "description": 'a name (minLength: 2; pattern: "^(?=x)")'}
    assert strict["b"]["description"] == "uniqueItems: true; maxItems: 3"
    assert lower_schema(schema, "openai")["properties"]["a"]["minLength"] == 2


@pytest.mark.parametrize(
    ("pattern", "sent"),
    {"^†": "^†.*$", "x": "^.*x.*$", "^a|b$": None, "^[a-z]+$": "^[a-z]+$", r"\bx": None, "^a$": "^a$"}.items(),
)
def test_a_pattern_means_the_same_to_engines_that_match_the_whole_text(pattern: str, sent: str | None) -> None:
    strict = lower_schema(obj(["a"], a={"type": "string", "pattern": pattern}), "openai")
    assert strict["properties"]["a"].get("pattern") == sent


WORD_OR_NULL = {"type": ["string", "null"]}


def many_tools(count: int) -> dict[str, Any]:
    return solution(**{f"tool_{i}": tool(f"tool_{i}", amount={"type": "number"}) for i in range(count)})


def properties(count: int, part: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    parts = {f"p{i}": part for i in range(count)}
    return obj([*parts] if required else [], **parts)


def choices(count: int) -> dict[str, Any]:
    return obj(["a"], a={"enum": [f"v{i}" for i in range(count)]})


@pytest.mark.parametrize(
    ("dialect", "within", "above"),
    [
        ("anthropic", many_tools(20), many_tools(100)),
        ("anthropic", properties(24, {"type": "string"}), properties(25, {"type": "string"})),
        ("anthropic", properties(16, WORD_OR_NULL, required=True), properties(17, WORD_OR_NULL, required=True)),
        ("openai", many_tools(1_600), many_tools(1_700)),
        ("openai", choices(1_000), choices(1_001)),
    ],
)
def test_a_schema_above_a_limit_is_not_strict(dialect: Dialect, within: dict[str, Any], above: dict[str, Any]) -> None:
    assert choose_form(within, dialect).form == "strict"
    assert choose_form(above, dialect).form != "strict"


@pytest.mark.parametrize("count", [1, 5, 100])
def test_composed_solutions_are_strict_for_openai_where_the_output_has_a_schema(count: int) -> None:
    tools = {
        name: t
        for name, t in build_tools(count).items()
        if all(p.get("type") != "object" for p in t.schema["properties"].values())
    }
    schema = compose_solution_schema(tools, obj(["text"], text={"type": "string"}))
    assert choose_form(schema, "openai").form == "strict"
    assert choose_form(schema, "openai", "words").form == "words"
    assert choose_form(compose_solution_schema(tools, None), "openai").form == "unenforced"
