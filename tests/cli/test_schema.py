"""The JSON Schema for editors accepts what the engine accepts, and refuses invalid shapes."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from acts.cli.text.editor_schema import request_schema
from acts.cli.text.preflight import EXAMPLES
from acts.cli.text.source import read_source
from acts.language.config import Config, Options
from acts.language.messages import parse_request
from acts.language.tools import META
from acts.plan.validate import validate

SCHEMA = request_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SCHEMA_OF_TOOL: dict[str, Any] = {"type": "object", "properties": {"_tool": {"const": "t"}, "n": {"type": "number"}}}

ANY_CALL: dict[str, Any] = {
    "properties": {**{key: {} for key in META}, "_tool": {"const": "t"}, "_activity": {"const": "t"}}
}


def context(*messages: Any) -> dict[str, Any]:
    return {"context": list(messages)}


PATHS = {k: "†state.x" for k in META if k.endswith("Path")}
CALL = {"_tool": "t", **PATHS, "_scopes": ["state"], "_instance": "a", "_outputMethod": "concat", "_approval": True}
EACH = {"_tool": "t", "_when": "†state.n >= 3", "_each": "†state.list", "n": "†item.n", "text": "Dear †{item}"}
OPTIONS = {"_activity": "a", "_options": {"timeout": "5m", "local": True}}
CONSTANT = {"_tool": {"enum": ["t"]}, "_options": {"const": {"timeout": 3, "retry": {"maxAttempts": 1}}}}
APPROVE = {"plan": None, "calls": ["t"], "scopes": True, "timeout": 0.5, "onTimeout": "fail"}
BUDGET = {"requests": 0, "tokens": 1, "cost": 0.5, "calls": 1, "depth": 1}
GOOD: list[Any] = [
    {},
    {"config": None, "context": [], "schema": None},
    {"schema": {"type": "object", "properties": {"calls": {}, "output": {"type": "string"}}}},
    # every form of a message
    context({"type": "system", "message": "s"}, {"type": "system", "text": "s"}),
    context({"type": "text", "text": "s"}, {"type": "text", "message": "s"}),
    context({"role": "user", "content": "s"}, {"role": "system", "content": "s", "name": "x"}),
    context({"type": "state", "state": {"a": 1}}, {"type": "state", "a": 1, "b": [1, None]}, {"type": "state"}),
    context({"type": "input", "input": {"a": 1}, "schema": {"nullable": True}, "description": "d"}),
    context({"type": "data", "kind": "äöü-1_", "data": [1, 2], "_instance": None}),
    context({"type": "state", "state": 1, "_date": "2024", "_outputPath": "†state.x", "_outputMethod": "push"}),
    context({"type": "tool", "tool": "Tool.registered"}),
    context({"type": "tool", "tool": {**SCHEMA_OF_TOOL, **OPTIONS}}),
    context({"type": "tool", "tool": {"t": SCHEMA_OF_TOOL, "u": {"type": "object"}}}),
    context({"type": "tool", "tool": {"properties": SCHEMA_OF_TOOL}}),
    context({"type": "tool", "tool": {"properties": CONSTANT}}),
    context({"type": "plan"}),
    context({"type": "plan", "plan": [{"_tool": "t", "n": "†state.x", "": 1}], "mode": "lazy", "run": True}),
    context({"type": "plan", "plan": [CALL, EACH, {"_tool": "t", "_when": False, "_each": ["a", {"b": "†state.c"}]}]}),
    context({"type": "error", "data": {"call": {}, "error": "e"}}),
    {"config": {"model": "anthropic:x", "maxTicks": 1, "step": "call", "missing": "wait", "resolve": "upfront"}},
    {"config": {"approve": APPROVE, "budget": BUDGET}},
]

BAD: list[Any] = [
    [],
    {"contxt": []},
    {"context": {}},
    {"schema": 1},
    {"config": {"maxTick": 1}},
    {"config": {"maxTicks": 0}},
    {"config": {"approve": {"timeout": "soon"}}},
    {"config": {"budget": {"cost": -1}}},
    context("x"),
    context({}),
    context({"type": "stat"}),
    context({"type": "text", "text": 1}),
    context({"role": "user", "content": ["x"]}),
    context({"type": "data", "kind": "a b", "data": 1}),
    context({"type": "data", "data": 1, "_instance": ""}),
    context({"type": "state", "state": 1, "_outputMethod": "append"}),
    context({"type": "tool"}),
    context({"type": "tool", "tool": {}}),
    context({"type": "plan", "plan": {}}),
    context({"type": "plan", "plan": [], "mode": "fast"}),
]

# Calls that the validator of plans refuses, and the schema too
BAD_CALLS: list[Any] = [
    "t",
    {},
    {"_tool": 1},
    {"_tool": "t", "_outputpath": "†state.x"},
    {"_tool": "t", "_outputPath": 1},
    {"_tool": "t", "_outputMethod": "append"},
    {"_tool": "t", "_scopes": "state"},
    {"_tool": "t", "_instance": 1},
    {"_tool": "t", "_when": 1},
    {"_tool": "t", "_each": 3},
]


def test_the_schema_is_valid_in_its_dialect() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("request_", GOOD, ids=str)
def test_the_schema_accepts_what_the_engine_accepts(request_: Any) -> None:
    parse_request(request_)
    assert [e.message for e in VALIDATOR.iter_errors(request_)] == []


@pytest.mark.parametrize("request_", BAD, ids=str)
def test_the_schema_refuses_what_the_engine_refuses_by_shape(request_: Any) -> None:
    assert [p for p in validate(request_) if p.fatal and p.code != "noPlan"]
    assert not VALIDATOR.is_valid(request_)


@pytest.mark.parametrize("call", BAD_CALLS, ids=str)
def test_an_invalid_call_is_refused(call: Any) -> None:
    request = context({"type": "tool", "tool": {"t": ANY_CALL}}, {"type": "plan", "plan": [call]})
    assert [p for p in validate(request) if p.fatal]
    assert not VALIDATOR.is_valid(request)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda f: f"{f.parent.name}/{f.name}")
def test_the_examples_are_valid(file: Any) -> None:
    assert [e.message for e in VALIDATOR.iter_errors(read_source(str(file)).value)] == []


def described(schema: dict[str, Any]) -> list[str]:
    return [name for name, part in schema["properties"].items() if not part.get("description")]


def test_every_setting_and_meta_property_is_described() -> None:
    for name in ("Config", "Approve", "Budget", "Options", "Retry", "Call"):
        assert described(SCHEMA["$defs"][name]) == [], name
    assert set(META) <= set(SCHEMA["$defs"]["Call"]["properties"])
    assert list(SCHEMA["$defs"]["Config"]["properties"]) == list(Config.model_fields)
    assert list(SCHEMA["$defs"]["Options"]["properties"]) == list(Options.model_fields)
