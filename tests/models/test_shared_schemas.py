"""Repeated parts of a schema become definitions: what is sent is shorter and means the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from activities.providers.provider_keywords import Dialect
from activities.providers.schema_bridge import to_wire
from activities.providers.shared_schemas import share_repeated
from acts.language.tools import Tool, read_tool
from acts.planner.answer_schema import MAX_INSTANCE_CHOICES, compose_solution_schema
from acts.planner.prompt import PlannerView, render_planner_prompt

Json = Any
TEXT = {"type": "string"}
# Bytes per token of the models' estimates, the one that makes more tokens
BYTES_PER_TOKEN = 2.7


def tools(count: int) -> dict[str, Tool]:
    """Tools as people write them: described parameters, and every meta-property that a planner may set."""
    out = {}
    for name in (f"book_{i}" for i in range(count)):
        schema = {
            "type": "object", "description": "Books a room of a hotel for a guest.",
            "properties": {
                "_tool": {"const": name}, "_activity": {"const": "book"}, "_outputPath": TEXT, "_errorPath": TEXT,
                "_outputMethod": {"enum": ["set", "merge", "assign", "push", "concat"]}, "_reasoningForCall": TEXT,
                "_scopes": {"type": "array", "items": TEXT},
                "_output": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
                "guest": {"type": "string", "description": "the id of the guest"}, "breakfast": {"type": "boolean"},
                "nights": {"type": "integer", "minimum": 1}, "class": {"enum": ["single", "double"]},
            },
            "required": ["guest", "nights"], "additionalProperties": False,
        }  # fmt: skip
        tool, problems = read_tool(name, schema)
        assert tool is not None
        assert problems == []
        out[name] = tool
    return out


def request_bytes(count: int, dialect: Dialect) -> int:
    """The bytes by which the Tools of a request count: of the prompt and of the schema."""
    own = tools(count)
    schema = json.dumps(to_wire(compose_solution_schema(own, None), dialect).schema, separators=(",", ":"))
    return len(schema.encode()) + len(render_planner_prompt([], (), PlannerView(own)).system[1].text.encode())


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_a_further_tool_costs_at_most_305_tokens(dialect: Dialect) -> None:
    assert (
        request_bytes(9, dialect) - request_bytes(5, dialect)
    ) / 4 / BYTES_PER_TOKEN <= 305  # `_when` and `_each` take 17 of them


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_a_shared_schema_accepts_what_the_whole_one_does(dialect: Dialect) -> None:
    schema = to_wire(compose_solution_schema(tools(4), None), dialect).schema
    assert any(name.startswith("shared_") for name in schema["$defs"])
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    optional = dict.fromkeys(schema["$defs"]["tool_book_0"]["required"]) if dialect == "openai" else {}
    good = {**optional, "_tool": "book_3", "guest": "g", "nights": "†state.nights"}
    assert check.is_valid({"calls": [good], "output": None})
    assert not check.is_valid({"calls": [{**good, "nights": "three"}], "output": None})


def test_what_occurs_seldom_or_is_short_stays_where_it_is() -> None:
    long = {"type": "string", "enum": ["one long choice", "another long choice"]}
    definitions = {"a": {"properties": {"x": long, "y": TEXT}}, "b": {"properties": {"x": long, "y": TEXT}}}
    assert share_repeated({"$defs": definitions}) == {"$defs": definitions}
    more = {"$defs": {**definitions, "c": {"properties": {"x": long, "y": TEXT}}, "shared_1": {}}}
    shared = share_repeated(more)["$defs"]
    assert shared["c"] == {"properties": {"x": {"$ref": "#/$defs/shared_1_"}, "y": TEXT}}
    assert shared["shared_1_"] == long


def test_very_many_instances_are_no_choices_of_a_schema() -> None:
    def instance(count: int) -> Json:
        names = [f"o{i}" for i in range(count)]
        return compose_solution_schema(tools(1), None, instances=names)["$defs"]["instance"]

    assert len(instance(MAX_INSTANCE_CHOICES)["enum"]) == MAX_INSTANCE_CHOICES
    assert instance(1_200) == {"type": "string", "description": "the id of one of the 1,200 instances"}
