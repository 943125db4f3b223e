"""Tools: read from a schema in every form, or refused with a reason, and never with a crash."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import Problem
from acts.language.tools import META, Tool, read_tool
from acts.plan.validate import validate, validate_request

REGISTERED = {"charge": {"properties": {"_activity": {"const": "billing.charge"}}}}


def tools_of(*definitions: Any, served: Any = ()) -> dict[str, Tool]:
    context = [{"type": "tool", "tool": d} for d in definitions]
    return dict(validate_request({"context": [*context, {"type": "plan", "plan": []}]}, REGISTERED, served).tools)


def problems_of(*definitions: Any, plan: Any = (), served: Any = ()) -> list[Problem]:
    context = [{"type": "tool", "tool": d} for d in definitions]
    return [
        p
        for p in validate({"context": [*context, {"type": "plan", "plan": list(plan)}]}, REGISTERED, served)
        if p.fatal
    ]


NAMED: list[Any] = [
    {"properties": {"_tool": {"const": "a"}}},
    {"properties": {"_tool": {"enum": ["a"]}}},
    {"_tool": "a"},
    {"_tool": {"const": "a"}, "type": "object"},
    {"a": {"type": "object"}},
    {"a": {}},
    {"a": {"properties": {"_tool": {"const": "a"}}}},
]


@pytest.mark.parametrize("definition", NAMED, ids=str)
def test_a_tool_has_a_name_in_each_form(definition: Any) -> None:
    assert list(tools_of(definition)) == ["a"]


# definition, what its problem says
BAD: list[tuple[Any, str]] = [
    ("refund", 'no tool "refund" is registered with the worker; registered: charge'),
    ({"type": "object", "properties": {"x": {}}}, "no name"),
    ({"a": 5}, "a schema is an object, not number"),
    ({"a": True}, "not an object"),
    ({"a": {"type": "strin"}}, "strin"),
    ({"a": {"properties": []}}, "properties"),
    ({"a": {"properties": {"x": {"type": 5}}}}, "/properties/x/type"),
    ({"a": {"properties": {"_tool": {"const": "b"}}}}, 'the map calls it "a", its _tool says "b"'),
    ({"a": {"properties": {"_activity": {"const": 5}}}}, "_activity"),
    ({"a": {"properties": {"_outputMethod": {"const": "append"}}}}, "set, merge, assign, push, concat"),
    ({"a": {"properties": {"_outputPath": {"const": "state.x"}}}}, "column 1"),
    ({"a": {"properties": {"_outputPath": {"const": 5}}}}, "must be a string"),
    ({"a": {"properties": {"_errorPath": {"const": "†state."}}}}, "column 8"),
    ({"a": {"properties": {"_scopes": {"const": "state"}}}}, "must be a list"),
    ({"a": {"properties": {"_approval": {"const": "yes"}}}}, "must be true or false"),
    ({"a": {"properties": {"_options": {"const": {"timeOut": 5}}}}}, "did you mean"),
    ({"a": {"properties": {"_options": {"const": {"timeout": "soon"}}}}}, "duration"),
    ({"a": {"properties": {"_output": {"type": "strin"}}}}, "strin"),
    ({"a\nb": {}}, "printable"),
    ({"a" * 201: {}}, "1 to 200"),
    ({"a": {"properties": {"_activity": {"const": "x\x00"}}}}, "printable"),
    ({"a": {"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}}, "leads out of the schema"),
    ({"a": {"properties": {"_output": {"$ref": "https://example.invalid/x"}}}}, "leads out of the schema"),
]


@pytest.mark.parametrize(("definition", "says"), BAD, ids=lambda x: str(x)[:60])
def test_a_bad_definition_is_refused_with_the_reason(definition: Any, says: str) -> None:
    problems = problems_of(definition)
    assert problems
    assert any(says in p.text() for p in problems), [p.text() for p in problems]
    assert all(p.pointer.startswith("/context/0/tool") for p in problems)


HOSTILE_META: list[Any] = [
    *(None, True, False, 0, 5, "", "text", [], ["state"], {}, {"type": "strin"}, {"const": None}, {"const": {}}),
    *({"const": []}, {"enum": []}, {"enum": [5]}, {"enum": "x"}, {"$ref": "#/$defs/s"}, {"$ref": "#/nowhere"}),
    *({"pattern": "("}, {"type": "array", "items": 5}, {"minLength": -1}),
]


@pytest.mark.parametrize("value", HOSTILE_META, ids=repr)
@pytest.mark.parametrize("top", [True, False], ids=["top level", "in properties"])
def test_no_meta_property_of_a_tool_breaks_the_validator(value: Any, top: bool) -> None:  # noqa: FBT001
    """Whatever the value, there are problems, or the Calls of the Tool can be read."""
    crashed = []
    for key in META:
        definition: dict[str, Any] = {"type": "object", "properties": {"p": {}}, "$defs": {"s": {"type": "array"}}}
        (definition if top else definition["properties"])[key] = value
        for in_call in ("†state.a", ["state"], None):
            call = {"_tool": "a", "p": 1, **({} if key == "_tool" else {key: in_call})}
            context = [{"type": "tool", "tool": {"a": definition}}, {"type": "plan", "plan": [call]}]
            try:
                validate({"context": context})
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not come
                crashed.append((key, in_call, repr(error)[:100]))
    assert crashed == []


# definition of the tool, served by our worker, how it runs, the activity
RUNS: list[tuple[dict[str, Any], bool, str, str | None]] = [
    ({}, False, "latent", None),
    ({}, True, "activity", "a"),
    ({"properties": {"_activity": {"const": "x"}}}, False, "activity", "x"),
    ({"properties": {"_activity": {"const": "x"}}}, True, "activity", "x"),
    ({"properties": {"_activity": {"enum": ["x"]}}}, False, "activity", "x"),
    ({"properties": {"_activity": {"const": ""}}}, True, "latent", None),
    ({"_activity": "x"}, False, "activity", "x"),
    # an Activity that is left open is not for the LLM to choose
    ({"properties": {"_activity": {"type": "string"}}}, False, "latent", None),
    ({"properties": {"_activity": {"type": "string"}}}, True, "activity", "a"),
    ({"properties": {"_delegate": {"const": "d"}, "_activity": {"const": "x"}}}, True, "delegate", "x"),
    ({"properties": {"_delegate": {"enum": ["d"]}}}, True, "delegate", "a"),
    ({"_delegate": "d"}, False, "delegate", None),
]


@pytest.mark.parametrize(("definition", "served", "how", "activity"), RUNS)
def test_what_a_tool_runs(definition: dict[str, Any], served: bool, how: str, activity: str | None) -> None:  # noqa: FBT001
    request = {
        "config": {"model": "scripted:x"},
        "context": [{"type": "tool", "tool": {"a": definition}}, {"type": "plan", "plan": [{"_tool": "a"}]}],
    }
    (node,) = validate_request(request, None, ["a"] if served else []).nodes
    assert node.kind == how
    assert node.tool.activity == activity


def test_constants_are_read_in_both_places() -> None:
    tools = tools_of(
        {
            "a": {
                "_outputPath": "†state.a",
                "_approval": True,
                "properties": {"_outputMethod": {"const": "push"}, "_scopes": {"const": ["state"]}, "_errorPath": {}},
            }
        }
    )
    consts = {"_outputPath": "†state.a", "_approval": True, "_outputMethod": "push", "_scopes": ["state"]}
    assert tools["a"].consts == consts
    assert tools["a"].approval


@pytest.mark.parametrize(
    "part", [{}, {"type": "boolean"}, {"enum": [True]}, {"default": True}, {"const": "yes"}, 1, "true"]
)
def test_an_approval_that_would_silently_never_ask_is_an_error(part: Any) -> None:
    hidden = {"allOf": [{"properties": {"_approval": {"const": True}}}], "properties": {}}
    for schema in ({"properties": {"_approval": part}}, hidden):
        _, problems = read_tool("pay", schema)
        assert [(p.code, p.fatal) for p in problems] == [("invalidTool", True)]


@pytest.mark.parametrize(
    "options",
    [{"const": {"timeout": "90s", "taskQueue": "q"}}, {"timeout": "90s", "taskQueue": "q"}],
    ids=["const", "the settings themselves"],
)
def test_options_are_read_with_their_defaults(options: Any) -> None:
    options_ = tools_of({"a": {"properties": {"_options": options}}})["a"].options
    assert (options_.timeout, options_.taskQueue, options_.heartbeat, options_.local) == (90, "q", None, False)
    assert (options_.retry.maxAttempts, options_.retry.initialInterval, options_.retry.backoff) == (3, 1, 2)


@pytest.mark.parametrize("key", ["_output", "_scopes", "_outputPath"])
def test_a_meta_property_may_refer_to_the_definitions_of_its_tool(key: str) -> None:
    """One schema, one set of definitions: what is valid JSON Schema is a valid Tool."""
    right, wrong = {"_scopes": (["state"], 5), "_outputPath": ("†state.a", 5)}.get(key, (None, None))
    definition = {
        "properties": {"_activity": {"const": "x"}, key: {"$ref": "#/$defs/it"}},
        "$defs": {"it": {"type": "array" if key == "_scopes" else "string"}},
    }
    assert problems_of({"a": definition}) == []
    if right is not None:
        assert problems_of({"a": definition}, plan=[{"_tool": "a", key: right}]) == []
        assert problems_of({"a": definition}, plan=[{"_tool": "a", key: wrong}]) != []
