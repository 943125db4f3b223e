"""The schemas of what a model may answer: of a Solution, and of a latent Call's answer."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from acts.language.tools import Tool, read_tool
from acts.plan.validate import validate_request
from acts.planner.answer_schema import compose_solution_schema

Json = Any
TEXT = {"type": "string"}
WRITES = {"_outputPath": TEXT}


def tool_of(schema: Json, name: str = "t", *, served: bool = False) -> Tool:
    tool, problems = read_tool(name, schema, served=served)
    assert problems == []
    assert tool is not None
    return tool


def compose(*tools: Tool, output: Json = None, mode: str = "eager", instances: tuple[str, ...] = ()) -> dict[str, Json]:
    schema = compose_solution_schema({t.name: t for t in tools}, output, mode=mode, instances=instances)
    Draft202012Validator.check_schema(schema)
    assert list(schema["$defs"])[-1] == "reference"
    return schema


def defect_of(schema: Json, value: Json) -> str | None:
    error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    return None if error is None else error.message


def accepts(schema: Json, call: Json, output: Json = None) -> bool:
    return defect_of(schema, {"calls": [call], "output": output}) is None


def latent(**properties: Json) -> Tool:
    return tool_of({"type": "object", "properties": {**WRITES, "_output": TEXT, **properties}})


def explicit(**properties: Json) -> Tool:
    return tool_of({"type": "object", "properties": {**WRITES, "_activity": {"const": "x"}, **properties}})


T = {"_tool": "t"}


@pytest.mark.parametrize(
    ("tool", "mode", "call", "accepted"),
    [
        (latent(), "eager", T, True),
        (latent(), "eager", {**T, "_output": "x"}, True),
        (latent(), "eager", {**T, "_output": 5}, False),
        (latent(), "lazy", {**T, "_output": "x"}, False),
        (tool_of({"properties": {"_output": TEXT}}, served=True), "eager", {**T, "_output": "x"}, False),
        (tool_of({"properties": {"_output": TEXT, "_activity": {"const": ""}}}, served=True), "eager",
         {**T, "_output": "x"}, True),
        (latent(_delegate={"const": "d"}), "eager", {**T, "_output": "x"}, False),
        (latent(_delegate=TEXT), "eager", {**T, "_delegate": "d"}, True),
        (latent(_delegate={"const": "d"}), "eager", {**T, "_delegate": "d"}, False),
        (explicit(), "eager", {**T, "_activity": "y"}, False),
        (explicit(_options={"const": {"timeout": 1}}), "eager", {**T, "_options": {"timeout": 2}}, False),
        (explicit(), "eager", {**T, "_outputPath": "†state.a"}, True),
        (explicit(_outputPath={"const": "†state.a"}), "eager", {**T, "_outputPath": "†state.b"}, False),
        (explicit(_outputPath={"enum": ["†state.a", "†state.b"]}), "eager", {**T, "_outputPath": "†state.b"}, True),
        (explicit(_outputPath={"enum": ["†state.a", "†state.b"]}), "eager", {**T, "_outputPath": "†state.c"}, False),
        (explicit(_scopes={"const": ["state"]}), "eager", {**T, "_scopes": ["user"]}, False),
        (explicit(_scopes={"type": "array"}), "eager", {**T, "_scopes": ["user"]}, True),
        (explicit(_reasoningForCall=TEXT), "eager", {**T, "_reasoningForCall": "so"}, True),
        (explicit(), "eager", {**T, "more": 1}, False),
        (explicit(), "eager", {"_tool": "other"}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": 1}, True),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "one"}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "†state.n || †data.n"}, True),
        (explicit(n={"enum": ["a", "b"]}), "eager", {**T, "n": "†state.n"}, True),
        (explicit(n={"type": "integer", "nullable": True}), "eager", {**T, "n": None}, True),
        (explicit(n={"type": "string", "maxLength": 2}), "eager", {**T, "n": "†state.long"}, True),
        (explicit(n={"type": "string", "format": "uri"}), "eager", {**T, "n": "mailto:†{state.n}"}, True),
        (explicit(n={"type": "string", "maxLength": 9}), "eager", {**T, "n": "mailto:somebody"}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "a †{state.n}"}, False),
        (explicit(), "eager", {**T, "_when": "†state.a >= 5 && !†state.b", "_each": "†state.list"}, True),
        (explicit(), "eager", {**T, "_when": "always"}, False),
        (explicit(), "eager", {**T, "_each": "state.list"}, False),
        (explicit(_when=False), "eager", {**T, "_when": "†state.a"}, False),
        (explicit(_each=False), "eager", {**T, "_each": "†state.a"}, False),
        (explicit(_when={"const": "†state.a"}), "eager", {**T, "_when": "†state.b"}, False),
        (explicit(_each="†state.list"), "eager", {**T, "_each": "†state.other"}, False),
        (explicit(_each={"enum": ["†state.a"]}), "eager", {**T, "_each": "†state.b"}, False),
        (explicit(n={"type": "array", "items": {"type": "integer"}}), "eager", {**T, "n": [1, "†state.n"]}, True),
        (explicit(n={"prefixItems": [{"type": "integer"}], "items": False}), "eager", {**T, "n": ["†state.n"]}, True),
        (explicit(n={"type": "object", "additionalProperties": {"type": "integer"}}), "eager",
         {**T, "n": {"any": "†state.n"}}, True),
        (explicit(n={"anyOf": [{"type": "object", "properties": {"d": {"type": "integer"}}}, {"type": "null"}]}),
         "eager", {**T, "n": {"d": "†state.n"}}, True),
        (tool_of({"properties": {**WRITES, "n": TEXT}, "required": ["n"]}, served=True), "eager", T, False),
        (tool_of({"properties": {"_outputPath": {"const": "†state.a"}}, "required": ["_outputPath", "_tool"]},
                 served=True), "eager", T, True),
        (tool_of({"properties": {}, "additionalProperties": True}, served=True), "eager", {**T, "more": 1}, True),
    ],
)  # fmt: skip
def test_a_call_has_what_its_tool_leaves_to_the_author_and_nothing_else(
    tool: Tool,
    mode: str,
    call: Json,
    accepted: bool,  # noqa: FBT001 - a case
) -> None:
    assert accepts(compose(tool, mode=mode), call) is accepted


def test_lists_and_conditions_cost_each_tool_two_references_to_shared_definitions() -> None:
    schema = compose(*(tool_of({"properties": WRITES}, f"t{i}", served=True) for i in range(3)))
    assert list(schema["$defs"]) == ["t0", "t1", "t2", "condition", "list", "reference"]
    for i in range(3):
        properties = schema["$defs"][f"t{i}"]["properties"]
        assert properties["_when"] == {"$ref": "#/$defs/condition"}
        assert properties["_each"] == {"$ref": "#/$defs/list"}
    none = compose(explicit(_when=False, _each=False))
    assert set(none["$defs"]) == {"t", "reference"}


@pytest.mark.parametrize(
    ("schema", "call"),
    [
        pytest.param({"properties": {"_output": TEXT, "_activity": {"const": ""}}, "required": ["_output"]}, T,
                     id="required _output"),
        pytest.param({"properties": {"_delegate": TEXT, "_activity": {"const": "x"}}, "required": ["_delegate"]},
                     {**T, "_delegate": "d"}, id="required _delegate"),
        pytest.param({"allOf": [{"properties": {"n": TEXT}, "required": ["n"]}]}, {**T, "n": "x"}, id="allOf"),
        pytest.param({"patternProperties": {"^n": TEXT}}, {**T, "n": "x"}, id="patternProperties"),
        pytest.param({"additionalProperties": {"type": "integer"}}, {**T, "n": "†state.n"}, id="additional"),
        pytest.param({"properties": {"n": {"allOf": [{"properties": {"d": {"type": "integer"}}}]}}},
                     {**T, "n": {"d": "†state.n"}}, id="allOf inside"),
        pytest.param({"properties": {"n": {"patternProperties": {"": {"type": "integer"}}}}},
                     {**T, "n": {"d": "†state.n"}}, id="patternProperties inside"),
        pytest.param({"properties": {"n": {"type": "string", "allOf": [{"pattern": "^a"}]}}}, {**T, "n": "†state.n"},
                     id="narrowed string"),
        pytest.param({"properties": {"n": {"oneOf": [
            {"type": "object", "properties": {"d": {"type": kind}}, "required": ["d"]} for kind in ("integer", "null")
        ]}}}, {**T, "n": {"d": "†state.n"}}, id="oneOf"),
        pytest.param({"_output": {"$ref": "#/$defs/N"}, "$defs": {"N": TEXT}}, {**T, "_output": "x"},
                     id="_output on top"),
        pytest.param({"$defs": {"A.x": {"type": "integer"}, "A:x": {"type": "null"}},
                      "properties": {"n": {"$ref": "#/$defs/A.x"}, "m": {"$ref": "#/$defs/A:x"}}},
                     {**T, "n": 1, "m": None}, id="definitions with alike names"),
    ],
)  # fmt: skip
def test_the_schema_accepts_every_call_that_the_engine_accepts(schema: Json, call: Json) -> None:
    schema = {"type": "object", **schema}
    context = [{"type": "tool", "tool": {"t": schema}}, {"type": "state", "n": 1}, {"type": "plan", "plan": [call]}]
    prepared = validate_request(
        {"config": {"model": "scripted:x"}, "context": context}, {}, [] if "_output" in call else ["t"]
    )
    assert accepts(compose(prepared.tools["t"]), call)


def test_a_recursive_schema_stays_recursive_and_accepts_references_at_every_depth() -> None:
    node = {
        "type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["v"], "additionalProperties": False,
    }  # fmt: skip
    tool = tool_of({"$defs": {"node": node}, "properties": {"n": {"$ref": "#/$defs/node"}}}, served=True)
    schema = compose(tool)
    assert accepts(schema, {**T, "n": {"v": 1, "next": {"v": "†state.v", "next": "†state.next"}}})
    assert accepts(schema, {**T, "n": "†state.n"})
    assert not accepts(schema, {**T, "n": {"v": 1, "next": {"v": "two"}}})
    assert not accepts(schema, {**T, "n": {"v": 1, "next": {}}})


FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("output", "value", "accepted"),
    [
        (FORM, {"n": 1}, True), (FORM, {"n": "†state.n"}, True), (FORM, "†state", True), (FORM, None, True),
        (FORM, {"n": "one"}, False), (FORM, {}, False), (FORM, "text", False), (FORM, {"n": 1, "m": 1}, False),
        (None, {"any": ["thing"]}, True), (True, 5, True), ({}, 5, True),
        ({"type": "string"}, "†state.n", True), ({"enum": ["a"]}, "†state.n", True), ({"enum": ["a"]}, "b", False),
        ({"type": "array", "items": FORM}, [{"n": "†state.n"}, "†state.m"], True),
        ({"type": "integer", "nullable": True}, None, True),
    ],
)  # fmt: skip
def test_an_output_fits_its_schema_or_is_a_reference_or_null(
    output: Json,
    value: Json,
    accepted: bool,  # noqa: FBT001 - a case
) -> None:
    assert (defect_of(compose(output=output), {"calls": [], "output": value}) is None) is accepted
