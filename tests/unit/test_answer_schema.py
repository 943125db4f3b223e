"""The schemas of what a model may answer: of a Solution, and of a latent Call's answer."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from acts.language.messages import output_schema
from acts.language.reference_uses import resolve
from acts.language.request_reader import read_request
from acts.language.sampling import sample
from acts.language.schemas import subschemas
from acts.language.tools import META, Tool, read_tool
from acts.language.values import UNKNOWN
from acts.machines.loop import Loop
from acts.machines.loop_steps import StartPlan
from acts.plan.planned_call import PlannedCall
from acts.plan.validate import validate_request
from acts.planner.answer_schema import compose_latent_schema, compose_solution_schema

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


# -- Calls ---------------------------------------------------------

T = {"_tool": "t"}


@pytest.mark.parametrize(
    ("tool", "mode", "call", "accepted"),
    [
        (latent(), "eager", T, True),
        (latent(), "eager", {**T, "_output": "x"}, True),
        (latent(), "eager", {**T, "_output": 5}, False),
        (latent(), "lazy", {**T, "_output": "x"}, False),
        (explicit(_output=TEXT), "eager", {**T, "_output": "x"}, False),
        (tool_of({"properties": {"_output": TEXT}}, served=True), "eager", {**T, "_output": "x"}, False),
        (tool_of({"properties": {"_output": TEXT, "_activity": {"const": ""}}}, served=True), "eager",
         {**T, "_output": "x"}, True),
        (latent(_delegate={"const": "d"}), "eager", {**T, "_output": "x"}, False),
        (latent(_delegate=TEXT), "eager", {**T, "_output": "x"}, False),
        (latent(_delegate=TEXT), "eager", {**T, "_delegate": "d"}, True),
        (latent(_delegate={"const": "d"}), "eager", {**T, "_delegate": "d"}, False),
        (explicit(), "eager", {**T, "_activity": "y"}, False),
        (explicit(_options={"const": {"timeout": 1}}), "eager", {**T, "_options": {"timeout": 2}}, False),
        (explicit(_activity=TEXT), "eager", {**T, "_activity": "y"}, False),
        (explicit(), "eager", {**T, "_outputPath": "†state.a"}, True),
        (explicit(_outputPath={"const": "†state.a"}), "eager", {**T, "_outputPath": "†state.b"}, False),
        (explicit(_outputPath={"const": "†state.a"}), "eager", T, True),
        (explicit(_outputPath={"enum": ["†state.a", "†state.b"]}), "eager", {**T, "_outputPath": "†state.b"}, True),
        (explicit(_outputPath={"enum": ["†state.a", "†state.b"]}), "eager", {**T, "_outputPath": "†state.c"}, False),
        (explicit(), "eager", {**T, "_errorPath": "†state.a"}, False),
        (explicit(_scopes={"const": ["state"]}), "eager", {**T, "_scopes": ["user"]}, False),
        (explicit(_scopes={"type": "array"}), "eager", {**T, "_scopes": ["user"]}, True),
        (explicit(), "eager", {**T, "_scopes": ["user"]}, False),
        (explicit(_reasoningForCall=TEXT), "eager", {**T, "_reasoningForCall": "so"}, True),
        (explicit(), "eager", {**T, "_made": "up"}, False),
        (explicit(), "eager", {**T, "_instance": "A"}, False),
        (explicit(), "eager", {**T, "more": 1}, False),
        (explicit(), "eager", {"_tool": "other"}, False),
        (explicit(), "eager", {}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": 1}, True),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "one"}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "†state.n || †data.n"}, True),
        (explicit(n={"enum": ["a", "b"]}), "eager", {**T, "n": "c"}, False),
        (explicit(n={"enum": ["a", "b"]}), "eager", {**T, "n": "†state.n"}, True),
        (explicit(n={"const": 5}), "eager", {**T, "n": "†state.n"}, True),
        (explicit(n={"type": "integer", "nullable": True}), "eager", {**T, "n": None}, True),
        (explicit(n={"enum": ["a"], "nullable": True}), "eager", {**T, "n": None}, True),
        (explicit(n={"type": "string", "maxLength": 2}), "eager", {**T, "n": "†state.long"}, True),
        (explicit(n={"type": ["integer", "null"]}), "eager", {**T, "n": "†state.n"}, True),
        (explicit(n={"type": "string", "format": "uri"}), "eager", {**T, "n": "mailto:†{state.n}"}, True),
        (explicit(n={"type": ["string", "null"], "maxLength": 9}), "eager", {**T, "n": "mailto:†{state.n}"}, True),
        (explicit(n={"type": "string", "maxLength": 9}), "eager", {**T, "n": "mailto:somebody"}, False),
        (explicit(n={"enum": ["a", "b"]}), "eager", {**T, "n": "a †{state.n}"}, False),
        (explicit(n={"type": "integer"}), "eager", {**T, "n": "a †{state.n}"}, False),
        (explicit(), "eager", {**T, "_when": "†state.a >= 5 && !†state.b", "_each": "†state.list"}, True),
        (explicit(), "eager", {**T, "_when": "always"}, False),
        (explicit(), "eager", {**T, "_each": "state.list"}, False),
        (explicit(), "eager", {**T, "_each": 3}, False),
        (explicit(_when=False), "eager", {**T, "_when": "†state.a"}, False),
        (explicit(_each=False), "eager", {**T, "_each": "†state.a"}, False),
        (explicit(_each=False), "eager", {**T, "_when": "†state.a"}, True),
        (explicit(_when={"const": "†state.a"}), "eager", {**T, "_when": "†state.b"}, False),
        (explicit(_each="†state.list"), "eager", {**T, "_each": "†state.other"}, False),
        (explicit(_each={"enum": ["†state.a"]}), "eager", {**T, "_each": "†state.a"}, True),
        (explicit(_each={"enum": ["†state.a"]}), "eager", {**T, "_each": "†state.b"}, False),
        (explicit(n={"type": "array", "items": {"type": "integer"}}), "eager", {**T, "n": [1, "†state.n"]}, True),
        (explicit(n={"type": "array", "items": {"type": "integer"}}), "eager", {**T, "n": [1, "n"]}, False),
        (explicit(n={"prefixItems": [{"type": "integer"}], "items": False}), "eager", {**T, "n": ["†state.n"]}, True),
        (explicit(n={"type": "object", "additionalProperties": {"type": "integer"}}), "eager",
         {**T, "n": {"any": "†state.n"}}, True),
        (explicit(n={"anyOf": [{"type": "object", "properties": {"d": {"type": "integer"}}}, {"type": "null"}]}),
         "eager", {**T, "n": {"d": "†state.n"}}, True),
        (explicit(n=True), "eager", {**T, "n": {"any": ["†thing"]}}, True),
        (explicit(n={}), "eager", {**T, "n": 5}, True),
        (tool_of({"properties": {**WRITES, "n": TEXT}, "required": ["n"]}, served=True), "eager", T, False),
        (tool_of({"properties": {**WRITES, "n": TEXT}, "required": ["_outputPath"]}, served=True), "eager", T, False),
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
    assert list(schema["$defs"]) == ["tool_t0", "condition", "tool_t1", "tool_t2", "reference"]
    for i in range(3):
        properties = schema["$defs"][f"tool_t{i}"]["properties"]
        assert properties["_when"] == {"$ref": "#/$defs/condition"}
        assert properties["_each"] == {"$ref": "#/$defs/reference"}
    none = compose(explicit(_when=False, _each=False))
    assert set(none["$defs"]) == {"tool_t", "reference"}


def test_a_tool_may_have_the_name_of_a_definition() -> None:
    tool = tool_of({"properties": {**WRITES, "n": {"$ref": "#/$defs/condition"}}, "$defs": {"condition": TEXT}})
    schema = compose(tool)
    assert accepts(schema, {**T, "n": "x", "_when": "†state.a"})


@pytest.mark.parametrize(
    ("schema", "call"),
    [
        pytest.param({"properties": {"_output": TEXT, "_activity": {"const": ""}}, "required": ["_output"]}, T,
                     id="required _output"),
        pytest.param({"properties": {"_delegate": TEXT, "_activity": {"const": "x"}}, "required": ["_delegate"]},
                     {**T, "_delegate": "d"}, id="required _delegate"),
        pytest.param({"allOf": [{"properties": {"n": TEXT}, "required": ["n"]}]}, {**T, "n": "x"}, id="allOf"),
        pytest.param({"$ref": "#/$defs/P", "$defs": {"P": {"properties": {"n": TEXT}}}}, {**T, "n": "x"}, id="$ref"),
        pytest.param({"patternProperties": {"^n": TEXT}}, {**T, "n": "x"}, id="patternProperties"),
        pytest.param({"required": ["n"]}, {**T, "n": "x"}, id="required alone"),
        pytest.param({"additionalProperties": {"type": "integer"}}, {**T, "n": "†state.n"}, id="additional"),
        pytest.param({"properties": {"n": {"allOf": [{"properties": {"d": {"type": "integer"}}}]}}},
                     {**T, "n": {"d": "†state.n"}}, id="allOf inside"),
        pytest.param({"properties": {"n": {"patternProperties": {"": {"type": "integer"}}}}},
                     {**T, "n": {"d": "†state.n"}}, id="patternProperties inside"),
        pytest.param({"properties": {"n": {"contains": {"type": "integer"}}}}, {**T, "n": ["†state.n"]}, id="contains"),
        pytest.param({"properties": {"n": {"uniqueItems": True}}}, {**T, "n": ["†state.n", "†state.n"]}, id="unique"),
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


def test_definitions_of_a_tool_with_a_long_name_stay_distinct() -> None:
    name = "t" * 60
    tool = tool_of({
        "$defs": {"A": {"type": "integer"}, "B": {"type": "null"}},
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
    }, name, served=True)  # fmt: skip
    assert accepts(compose(tool), {"_tool": name, "a": 1, "b": None})


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


def test_definitions_of_tools_and_output_stay_distinct() -> None:
    one = tool_of({"$defs": {"N": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/N"}}}, "one", served=True)
    two = tool_of({"$defs": {"N": {"type": "null"}}, "properties": {"n": {"$ref": "#/$defs/N"}}}, "two", served=True)
    schema = compose(one, two, output={"$defs": {"N": {"type": "array"}}, "$ref": "#/$defs/N"})
    assert accepts(schema, {"_tool": "one", "n": 1}, [])
    assert accepts(schema, {"_tool": "two", "n": None}, "†state.list")
    assert not accepts(schema, {"_tool": "one", "n": None})
    assert not accepts(schema, {"_tool": "two", "n": 1})
    assert not accepts(schema, {"_tool": "one"}, 5)


@pytest.mark.parametrize("names", [
    ("a b", "a.b", "a_b"), ("†x",), ("reference",), ("x" * 200, "x" * 199), ("ключ", "слов"), ("a/b~c%20",),
    ("tool_a", "a"), ("$ref",), ("properties", "$defs"),
])  # fmt: skip
def test_tools_of_any_name_can_be_called(names: tuple[str, ...]) -> None:
    parameter = {n: {"type": "array", "maxItems": i} for i, n in enumerate(names)}
    tools = [tool_of({"properties": {"p": parameter[n]}}, n, served=True) for n in names]
    schema = compose(*tools)
    for i, name in enumerate(names):
        assert accepts(schema, {"_tool": name, "p": [0] * i})
        assert not accepts(schema, {"_tool": name, "p": [0] * (i + 1)})
        assert not accepts(schema, {"_tool": name + "?"})


def test_without_tools_no_call_is_accepted() -> None:
    schema = compose()
    assert defect_of(schema, {"calls": [], "output": 1}) is None
    assert defect_of(schema, {"calls": [{}], "output": 1}) is not None
    assert defect_of(schema, {"calls": [T], "output": 1}) is not None


def test_both_keys_are_required_and_no_other_is_allowed() -> None:
    schema = compose(explicit())
    assert defect_of(schema, {"calls": [T]}) is not None
    assert defect_of(schema, {"output": 1}) is not None
    assert defect_of(schema, {"calls": [], "output": 1, "note": ""}) is not None
    assert defect_of(schema, {"calls": None, "output": 1}) is not None


def test_a_call_may_name_an_existing_instance() -> None:
    schema = compose(explicit(), instances=("B", "A"))
    assert accepts(schema, {**T, "_instance": "A"})
    assert accepts(schema, T)
    assert not accepts(schema, {**T, "_instance": "C"})


# -- output ------------------------------------------------------------------------

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


def test_an_output_schema_may_have_an_id() -> None:
    schema = compose(output={**FORM, "$id": "https://example.org/form"})
    assert defect_of(schema, {"calls": [], "output": {"n": "†state.n"}}) is None


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, None), (FORM, FORM), (True, True), ({}, {}),
        ({"properties": {"calls": {}, "output": FORM}}, FORM),
        ({"type": "object", "properties": {"output": FORM}}, {"type": "object", "properties": {"output": FORM}}),
        ({"properties": {"calls": {}, "output": {"$ref": "#/$defs/F"}}, "$defs": {"F": FORM}},
         {"$ref": "#/$defs/F", "$defs": {"F": FORM}}),
        ({"properties": {"calls": {}, "output": True}, "$defs": {}}, True),
        ({"properties": []}, {"properties": []}),
    ],
)  # fmt: skip
def test_the_long_form_of_a_schema_stands_for_its_output(schema: Json, expected: Json) -> None:
    assert output_schema(schema) == expected


# -- answers of latent Calls ---------------------------------------------------------


def node_of(path: str, error: str | None = None) -> Any:
    call = {"_tool": "t", "_outputPath": path, **({} if error is None else {"_errorPath": error})}
    tool = {"properties": {"_activity": "", "_outputPath": TEXT, "_errorPath": TEXT}}
    context = [{"type": "tool", "tool": {"t": tool}}, {"type": "plan", "plan": [call]}]
    return validate_request({"config": {"model": "scripted:x"}, "context": context}).nodes[0]


@pytest.mark.parametrize(
    ("path", "error", "paths"),
    [
        ("†state.a", None, ["†state.a"]),
        ("†state.a || †state.b", None, ["†state.a", "†state.b"]),
        ("(†state.a || †state.b) && †data.c", None, ["†state.a && †data.c", "†state.b && †data.c"]),
        ("†state.a", "†state.e", ["†state.a"]),
        ("†state.a || †state.error", None, ["†state.a", "†state.error"]),
        ("†state.a || †state.b", "†state.b", ["†state.a", "†state.b"]),
    ],
)
def test_the_outcomes_are_those_of_the_output_path_and_not_the_error_path(
    path: str, error: str | None, paths: list[str]
) -> None:
    assert node_of(path, error).outcome_texts == paths


@pytest.mark.parametrize(
    ("output", "paths", "answer", "accepted"),
    [
        (FORM, ["†a"], {"n": 1}, True), (FORM, ["†a"], {"output": {"n": 1}, "path": "†a"}, False),
        (FORM, ["†a", "†b"], {"output": {"n": 1}, "path": "†b"}, True), (FORM, ["†a", "†b"], {"n": 1}, False),
        (FORM, ["†a", "†b"], {"output": {"n": 1}, "path": "†c"}, False),
        (FORM, ["†a", "†b"], {"output": {"n": 1}}, False),
        (FORM, ["†a", "†b"], {"output": {"n": "†state.n"}, "path": "†a"}, False),  # literal
        (TEXT, ["†a"], {"output": "x", "path": "†a"}, True), (TEXT, ["†a"], "x", False),
        (True, ["†a"], {"output": None, "path": "†a"}, True),
        (None, ["†a"], {"output": [1], "path": "†a"}, True),
        ({"type": "object", "nullable": True}, ["†a"], {"output": None, "path": "†a"}, True),
    ],
)  # fmt: skip
def test_an_answer_is_the_output_or_the_output_and_its_path(
    output: Json, paths: list[str], answer: Json, accepted: bool  # noqa: FBT001 - a case
) -> None:  # fmt: skip
    properties = {"_activity": {"const": ""}} if output is None else {"_activity": {"const": ""}, "_output": output}
    schema, has_path = compose_latent_schema(tool_of({"properties": properties}), paths)
    Draft202012Validator.check_schema(schema)
    assert has_path is not (output == FORM and len(paths) == 1)
    assert (defect_of(schema, answer) is None) is accepted


NUMBER = {"N": {"type": "integer"}}
OBJECT = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}
LIST = {"type": "array", "items": {"$ref": "#/$defs/N"}}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [(OBJECT, {"n": 1}, {"n": "1"}), (LIST, {"output": [1], "path": "†a"}, {"output": ["1"], "path": "†a"})],
)
def test_definitions_of_an_output_may_be_in_it_or_in_its_tool(
    *, inside: bool, output: Json, good: Json, bad: Json
) -> None:
    output = {**output, "$defs": NUMBER} if inside else output
    tool = tool_of({"properties": {"_output": output}, **({} if inside else {"$defs": NUMBER})})
    schema, _ = compose_latent_schema(tool, ["†a"])
    assert defect_of(schema, good) is None
    assert defect_of(schema, bad) is not None


def test_nullable_is_replaced_in_definitions_too() -> None:
    tool = tool_of({"properties": {"_output": OBJECT}, "$defs": {"N": {"type": "integer", "nullable": True}}})
    schema, _ = compose_latent_schema(tool, ["†a"])
    assert not any("nullable" in part for part in subschemas(schema))


def test_an_output_with_an_id_keeps_its_definitions() -> None:
    schema, _ = compose_latent_schema(tool_of({"properties": {"_output": {**LIST, "$defs": NUMBER, "$id": "https://x.org/l"}}}),
                              ["†a"])  # fmt: skip
    assert defect_of(schema, {"output": [1], "path": "†a"}) is None


EXAMPLES = int(os.environ.get("ACTS_EXAMPLES", "100"))  # more, to hunt

# -- any Solution ---------------------------------------------------------------------

HELD = {"a": 1, "b": "a", "c": {"a": {}, "b": 2}, "d": True, "e": [1], "f": None}
references = st.sampled_from([f"†state.{name}" for name in HELD])
scalars = st.sampled_from([None, 0, 1, "a", "b", "long text", "††x", True]) | references
values = st.recursive(
    scalars,
    lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), v, max_size=2),
    max_leaves=4,
)
leaves = st.sampled_from([
    {"type": "integer"}, {"type": "string"}, {"type": "string", "maxLength": 1}, {"enum": ["a", 1]}, {"const": "a"},
    {"type": "boolean", "nullable": True}, {"type": ["string", "null"]}, {}, True, {"$ref": "#/$defs/R"},
    {"type": "number", "minimum": 1}, {"type": "string", "pattern": "^a"}, {"type": "null"},
])  # fmt: skip
# oneOf and the like are in the rows above: the schema refuses some of their values wrongly
schemas = st.recursive(
    leaves,
    lambda s: (
        st.fixed_dictionaries({"type": st.just("array"), "items": s})
        | st.fixed_dictionaries({"anyOf": st.lists(s, min_size=1, max_size=2)})
        | st.fixed_dictionaries({
            "type": st.just("object"),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), s, max_size=2),
            "additionalProperties": st.booleans() | s,
            "required": st.sampled_from([[], ["a"]]),
        })
    ),
    max_leaves=5,
)  # fmt: skip
RECURSIVE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/R"}, "b": {"type": "integer"}}}
PARAMETERS = ("p", "q")
META_OF_CALL = {
    "_outputPath": st.sampled_from(["†state.x", "†state.x || †state.error", "†state.y"]),
    "_outputMethod": st.sampled_from(["set", "push"]),
    "_scopes": st.sampled_from([[], ["state"]]),
    "_output": values,
}


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Json]:
    meta = {key: True for key in META_OF_CALL if draw(st.integers(0, 3))}
    if draw(st.booleans()):
        meta["_activity"] = {"const": draw(st.sampled_from(["", "x"]))}
    if draw(st.integers(0, 4)) == 0:
        meta["_outputPath"] = {"const": "†state.fixed"}
    properties = {name: draw(schemas) for name in PARAMETERS if draw(st.integers(0, 4))}
    listed = [k for k in (*properties, "_outputPath") if draw(st.integers(0, 3)) == 0]
    required = [k for k in listed if k in properties or k in meta]
    return {"type": "object", "properties": {**meta, **properties}, "required": required, "$defs": {"R": RECURSIVE}}


def fill_unknown(value: Json) -> Json:
    """A sample, with a reference for each value that its schema leaves open."""
    if isinstance(value, dict):
        return {k: fill_unknown(v) for k, v in value.items()}
    if isinstance(value, list):
        return [fill_unknown(v) for v in value]
    return "†state.a" if value is UNKNOWN else value


def likely_value(schema: Json) -> st.SearchStrategy[Json]:
    """A value that often fits."""
    whole = {**schema, "$defs": {"R": RECURSIVE}} if isinstance(schema, dict) else schema
    return st.one_of(values, references, st.just(fill_unknown(sample(whole))))


@st.composite
def solutions(draw: st.DrawFn) -> tuple[dict[str, Json], dict[str, Json], str, Json]:
    tools_ = {name: draw(tools()) for name in ("one", "two")}
    mode = draw(st.sampled_from(["eager", "eager", "lazy"]))
    calls = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        name = draw(st.sampled_from(["one", "two"]))
        call: dict[str, Json] = {"_tool": name}
        for key, schema in tools_[name]["properties"].items():
            is_fixed = isinstance(schema, dict) and "const" in schema and key in META
            is_refused = key == "_output" and (
                mode == "lazy" or tools_[name]["properties"].get("_activity") == {"const": "x"}
            )
            if key == "_activity" or is_fixed or is_refused or draw(st.integers(0, 4)) == 0:
                continue
            call[key] = draw(META_OF_CALL[key] if key in META else likely_value(schema))
        calls.append(call)
    schema = draw(st.none() | schemas)
    output = {**schema, "$defs": {"R": RECURSIVE}} if isinstance(schema, dict) else schema
    return tools_, {"calls": calls, "output": None if calls else draw(likely_value(output))}, mode, output


def fits_when_resolved(loop: Loop, node: PlannedCall) -> bool:
    """The engine accepts a reference whose value is unknown, even where no value would fit."""
    resolved = resolve(node.parameters, lambda path: loop.context.log.read(path, 0), [])
    return not node.tool.parameters.defects(resolved)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(solutions())
def test_every_solution_that_the_agent_accepts_fits_the_schema(drawn: tuple[Json, Json, str, Json]) -> None:
    tools_, solution, mode, output = drawn
    context = [
        {"type": "tool", "tool": tools_}, {"type": "state", "state": HELD}, {"type": "plan", "plan": [], "mode": mode},
    ]  # fmt: skip
    loop = Loop(read_request({
        "config": {"model": "scripted:x", "approve": {"plan": False}}, "context": context, "schema": output,
    }), {}, [])  # fmt: skip
    loop.next_tick()
    step = loop.answered(json.loads(json.dumps(solution)))
    assume(isinstance(step, StartPlan) or loop.output is not None)
    assume(not isinstance(step, StartPlan) or all(fits_when_resolved(loop, node) for node in loop.prepared.nodes))
    event("calls" if isinstance(step, StartPlan) else "an output")
    # The output of a plan that has not run may still break its schema: only the Calls are checked then
    checked = {**solution, "output": None} if isinstance(step, StartPlan) else solution
    schema = compose_solution_schema(loop.tools, loop.output_schema, mode=mode)
    Draft202012Validator.check_schema(schema)
    assert defect_of(schema, checked) is None
    reordered = dict(reversed(loop.tools.items()))
    assert json.dumps(compose_solution_schema(reordered, loop.output_schema, mode=mode)) == json.dumps(schema)
