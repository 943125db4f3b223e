"""The JSON Schema for editors accepts what the engine accepts, and refuses invalid shapes."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest

from acts.language.config import Config, Options
from acts.language.request_reader import parse_request
from acts.language.tools import META
from acts.plan.validate import validate
from cli.text.editor_schema import request_schema
from cli.text.preflight import EXAMPLES
from cli.text.source_text import read_source

SCHEMA = request_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SCHEMA_OF_TOOL: dict[str, Any] = {"type": "object", "properties": {"_tool": {"const": "t"}, "n": {"type": "number"}}}

ANY_CALL: dict[str, Any] = {
    "properties": {**{key: {} for key in META}, "_tool": {"const": "t"}, "_activity": {"const": "t"}}
}


def context(*messages: Any) -> dict[str, Any]:
    return {"context": list(messages)}


GOOD: list[Any] = [
    {},
    context(),
    {"config": {}, "context": [], "schema": {}},
    {"config": None, "schema": None},
    {"schema": True},
    {"schema": {"type": "object", "properties": {"calls": {}, "output": {"type": "string"}}}},
    # every form of a message
    context({"type": "system", "message": "s"}),
    context({"type": "system", "text": "s"}),
    context({"type": "text", "text": "s"}),
    context({"type": "text", "message": "s"}),
    context({"role": "user", "content": "s"}),
    context({"role": "system", "content": "s", "name": "x"}),
    context({"type": "state", "state": {"a": 1}}),
    context({"type": "state", "a": 1, "b": [1, None]}),
    context({"type": "state", "schema": {"type": "object"}}),
    context({"type": "state"}),
    context({"type": "input", "input": {"a": 1}, "schema": {"nullable": True}, "description": "d"}),
    context({"type": "input", "input": None}),
    context({"type": "data", "data": [1, 2]}),
    context({"type": "data", "kind": "user", "data": {"name": "x"}}),
    context({"type": "data", "kind": "äöü-1_", "data": 1}),
    context({"type": "data", "data": 1, "_instance": "a"}, {"type": "data", "data": 1, "_instance": None}),
    context(
        {
            "type": "state",
            "state": 1,
            "_call": {"_tool": "x"},
            "_date": "2024",
            "_outputPath": "†state.x",
            "_outputMethod": "push",
        }
    ),
    context({"type": "tool", "tool": "registered"}),
    context({"type": "tool", "tool": "Tool.registered"}),
    context({"type": "tool", "tool": SCHEMA_OF_TOOL}),
    context({"type": "tool", "tool": {"t": SCHEMA_OF_TOOL, "u": {"type": "object"}}}),
    context({"type": "tool", "tool": {"properties": SCHEMA_OF_TOOL}}),
    context(
        {"type": "tool", "tool": {**SCHEMA_OF_TOOL, "_activity": "a", "_options": {"timeout": "5m", "local": True}}}
    ),
    context(
        {
            "type": "tool",
            "tool": {
                "properties": {
                    "_tool": {"enum": ["t"]},
                    "_options": {"const": {"timeout": 3, "retry": {"maxAttempts": 1}}},
                }
            },
        }
    ),
    context({"type": "plan", "plan": []}),
    context({"type": "plan"}),
    context({"type": "plan", "plan": [{"_tool": "t", "n": "†state.x", "": 1}], "mode": "lazy", "run": True}),
    context(
        {
            "type": "plan",
            "plan": [
                {
                    "_tool": "t",
                    **{k: "†state.x" for k in META if k.endswith("Path")},
                    "_scopes": ["state"],
                    "_instance": "a",
                    "_outputMethod": "concat",
                    "_reasoningForCall": "r",
                    "_approval": True,
                    "_output": None,
                }
            ],
        }
    ),
    context(
        {
            "type": "plan",
            "plan": [
                {
                    "_tool": "t",
                    "_when": "†state.n >= 3",
                    "_each": "†state.list",
                    "n": "†item.n",
                    "text": "Dear †{item}",
                },
                {"_tool": "t", "_when": False, "_each": ["a", {"b": "†state.c"}]},
            ],
        }
    ),
    context({"type": "error", "data": {"call": {}, "error": "e"}}),
    context({"type": "error"}),
    # every setting
    {
        "config": {
            "model": "anthropic:x",
            "temperature": 0.5,
            "maxOutputTokens": 1,
            "maxTicks": 1,
            "step": "call",
            "maxParallel": 1,
            "instancesPerChild": 1,
            "missing": "wait",
            "resolve": "upfront",
        }
    },
    {"config": {"approve": {"plan": True, "calls": ["t"], "scopes": True, "timeout": "24h", "onTimeout": "fail"}}},
    {
        "config": {
            "approve": {"plan": None, "calls": True, "timeout": 0.5},
            "budget": {"requests": 0, "tokens": 1, "cost": 0.5, "calls": 1, "depth": 1},
        }
    },
]

BAD: list[Any] = [
    [],
    "x",
    {"contxt": []},
    {"context": {}},
    {"schema": 1},
    {"config": {"maxTick": 1}},
    {"config": {"maxTicks": 0}},
    {"config": {"maxTicks": 1.5}},
    {"config": {"step": "tick"}},
    {"config": {"approve": {"timeout": "soon"}}},
    {"config": {"approve": {"timeout": 0}}},
    {"config": {"approve": {"plans": True}}},
    {"config": {"budget": {"cost": -1}}},
    context("x"),
    context({}),
    context({"type": "stat"}),
    context({"type": "system"}),
    context({"type": "text", "text": 1}),
    context({"role": "user"}),
    context({"role": "user", "content": ["x"]}),
    context({"type": "data", "kind": "a b", "data": 1}),
    context({"type": "data", "data": 1, "_instance": ""}),
    context({"type": "data", "data": 1, "_instance": 1}),
    context({"type": "state", "schema": "x"}),
    context({"type": "state", "state": 1, "_outputMethod": "append"}),
    context({"type": "tool"}),
    context({"type": "tool", "tool": ""}),
    context({"type": "tool", "tool": []}),
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
    {"_tool": "t", "_when": None},
    {"_tool": "t", "_each": 3},
    {"_tool": "t", "_each": {"a": 1}},
    {"_tool": "t", "_each": None},
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


def test_a_new_setting_without_a_description_would_be_noticed() -> None:
    changed = copy.deepcopy(SCHEMA["$defs"]["Config"])
    changed["properties"]["fresh"] = {"type": "string"}
    assert described(changed) == ["fresh"]
