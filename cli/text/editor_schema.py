"""The JSON Schema (2020-12) of a Request file, for editors.

Laws of this file:
- settings come from the models that read them, so the two cannot drift apart; messages
  and Calls are written by hand, as ``acts.language.messages`` reads them by hand;
- it accepts every form that the engine accepts. What only the whole Request can tell
  (names, references, cycles) is for ``acts validate``.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acts.language.config import Config, Options, parse_seconds
from acts.language.messages import DATA_TYPES, METHODS, PROVENANCE
from acts.language.tools import META

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFS: Final = "#/$defs/"

_SETTINGS: Final = {
    "Config": "How the run behaves. Every key is optional.",
    "model": "Who plans and answers latent calls: anthropic:…, openai:…, scripted:…. Calls of Activities need none.",
    "temperature": "Of the model's requests.",
    "maxOutputTokens": "The longest answer of one model request.",
    "maxTicks": "An agent stops after this many rounds (default 50).",
    "step": '"plan" (default) runs all calls of a Solution, "call" only the first ready one.',
    "approve": "What a human confirms before it happens.",
    "budget": "Limits of the whole run; reaching one ends it.",
    "maxParallel": "How many calls run at once (default 100, at most 2000).",
    "instancesPerChild": "How many instances one child workflow carries (default 1).",
    "missing": '"fail" (default), or "wait" for a message that is provided from outside.',
    "resolve": 'When delegates are loaded: "runtime" (default) or "upfront".',
    "plan": "Confirm the plan; the default for lazy plans.",
    "calls": "Confirm each call (true), or those of the tools named.",
    "scopes": "Confirm the calls whose scopes the model chose.",
    "timeout": "How long to wait: seconds, or like 30s, 5m, 24h.",
    "onTimeout": "What silence means (default reject).",
    "requests": "Model requests.", "tokens": "Tokens in and out.", "cost": "US dollars.", "depth": "Nested delegates.",
    "taskQueue": "The queue whose worker runs the Activity (default: ours).",
    "retry": "How often a failing Activity is tried again.",
    "heartbeat": "The longest silence of a running attempt.",
    "local": "Run in the worker that walks the plan; for short work only.",
    "maxAttempts": "Attempts in all (default 3).",
    "initialInterval": "The wait before the second attempt (default 1s).",
    "backoff": "Each wait is this much longer than the one before (default 2).",
    "nonRetryable": "Types of errors that are not tried again.",
}  # fmt: skip

_META: Final = {
    "_tool": "The tool to call.",
    "_output": "In a tool: the schema of its result. In a call of a latent tool: the result itself.",
    "_activity": "The Temporal activity behind the tool; an empty string makes it latent. Decided by the tool alone.",
    "_delegate": "The saved request that answers instead: a name, a path, a URL, or anonymous.",
    "_scopes": 'What of the context the call may see: kinds ("state") or paths ("†state.user").',
    "_outputPath": "Where the result goes: †state.x; a && b writes both, a || b leaves open which.",
    "_outputMethod": "How it is written: set (default), merge, assign, push, concat.",
    "_errorPath": "Where a failure goes, as {code, message}.",
    "_instance": "The instance that the call runs in.",
    "_reasoningForCall": "Why the call is made; for people.",
    "_approval": "true: a human confirms each call.",
    "_options": "Where and how patiently the Activity runs. Decided by the tool alone.",
}


_DURATION: Final = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"},
    ],
    "description": "Seconds, or like 250ms, 30s, 5m, 24h, 7d.",
}


class _Settings(GenerateJsonSchema):
    """Pydantic's schemas, with durations as people write them and a description for each key."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        function: Any = schema["function"]
        if function["function"] is parse_seconds:
            return dict(_DURATION)
        return super().function_before_schema(schema)


def request_schema() -> dict[str, Any]:
    """The schema of a Request file."""
    defs = {**_settings(), **_messages(), **_calls()}
    return {
        "$schema": DIALECT,
        "title": "Request",
        "description": "A plan of tool calls, or a task for an agent: what to run, with what, within which limits.",
        "type": "object",
        "properties": {
            "config": {"anyOf": [_ref("Config"), {"type": "null"}]},
            "context": {"type": "array", "items": _ref("Message"), "description": "Messages, oldest first."},
            "schema": {**_ref("Schema"), "description": "The schema of an agent's output; none means any JSON."},
        },
        "additionalProperties": False,
        "$defs": defs,
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"{_DEFS}{name}"}


def _settings() -> dict[str, Any]:
    """Config and Options with their parts."""
    out: dict[str, Any] = {}
    for model in (Config, Options):
        found = model.model_json_schema(ref_template=f"{_DEFS}{{model}}", schema_generator=_Settings)
        out.update(found.pop("$defs", {}))
        out[model.__name__] = found
    for name, schema in out.items():
        schema["description"] = _SETTINGS.get(name) or _first(schema)
        for key, part in schema.get("properties", {}).items():
            part.pop("title", None)
            if key in _SETTINGS:
                part["description"] = _SETTINGS[key]
    return out


def _messages() -> dict[str, Any]:
    forms = {
        "SystemMessage": _text("system", "message", "text"),
        "TextMessage": _text("text", "text", "message"),
        "ChatMessage": {
            "type": "object",
            "description": "An instruction as chat models have it.",
            "properties": {"role": {"type": "string"}, "content": {"type": "string"}, "type": {"type": "null"}},
            "required": ["role", "content"],
        },
        **{f"{t.title()}Message": _data(t) for t in DATA_TYPES},
        "ToolMessage": _tool_message(),
        "PlanMessage": _plan_message(),
        "ErrorMessage": {
            "type": "object",
            "description": "What went wrong in an earlier tick.",
            "properties": {"type": {"const": "error"}, "data": {}},
            "required": ["type"],
        },
    }
    return {"Message": {"anyOf": [_ref(n) for n in forms]}, **forms}


def _text(type_: str, first: str, second: str) -> dict[str, Any]:
    """An instruction: the text stands under ``first``, or else under ``second``."""
    return {
        "type": "object",
        "description": "An instruction for the planner; it is never filtered away.",
        "properties": {"type": {"const": type_}, first: {"type": "string"}},
        "required": ["type"],
        "if": {"not": {"required": [first]}},
        "then": {"properties": {second: {"type": "string"}}, "required": [second]},
    }


def _data(type_: str) -> dict[str, Any]:
    """A data-like message, wrapped or inline: any other key is part of its payload."""
    return {
        "type": "object",
        "description": f"Data: the payload under “{type_}”, or as keys of the message itself.",
        "properties": {
            "type": {"const": type_},
            "kind": {
                "type": "string",
                "pattern": r"^[\w-]+$",
                "description": f"Read as †kind.…; the default is {type_}.",
            },
            type_: {"description": "The payload."},
            "schema": {**_ref("Schema"), "description": "What the payload must fit."},
            "description": {"description": "What this is; for the planner."},
            "_instance": {
                "type": ["string", "null"],
                "minLength": 1,
                "description": "The one instance that this belongs to.",
            },
            "_outputMethod": {"enum": list(METHODS)},
            "_outputPath": {"type": ["string", "null"]},
            **{key: {} for key in PROVENANCE if key not in ("_outputMethod", "_outputPath")},
        },
        "required": ["type"],
    }


def _tool_message() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Tools that calls may name.",
        "properties": {
            "type": {"const": "tool"},
            "tool": {
                "anyOf": [
                    {"type": "string", "minLength": 1, "description": "A tool that is registered with the worker."},
                    _ref("Tool"),
                    {
                        "type": "object",
                        "description": "Tools by name.",
                        "not": {"required": ["properties"]},
                        "minProperties": 1,
                        "additionalProperties": _ref("Tool"),
                    },
                    {"type": "object", "minProperties": 1, "required": ["properties"]},
                ]
            },
        },
        "required": ["type", "tool"],
    }


def _plan_message() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "The calls to run. Of several plan messages the latest counts.",
        "properties": {
            "type": {"const": "plan"},
            "plan": {"type": "array", "items": _ref("Call")},
            "mode": {"enum": ["eager", "lazy"], "description": "lazy: only plan; the engine walks it later."},
            "run": {"description": "true, in a delegate: walk this plan as it stands."},
        },
        "required": ["type"],
    }


def _calls() -> dict[str, Any]:
    """What stands in a tool and in a call; a tool's meta-properties are schemas or plain values."""
    of_tool: dict[str, Any] = {key: {"description": text} for key, text in _META.items()}
    return {
        "Schema": {"type": ["object", "boolean", "null"], "description": "A JSON Schema (2020-12)."},
        "Tool": {
            "type": "object",
            "description": "A JSON Schema: names without _ are parameters, names with _ say how a call runs.",
            "minProperties": 1,
            "properties": {
                **of_tool,
                "properties": {"type": "object", "properties": {**of_tool, "_options": _options()}},
                "required": {"type": "array", "items": {"type": "string"}},
            },
        },
        "Call": {
            "type": "object",
            "description": "A tool with values. A string that begins with † refers to something: †state.user.name.",
            "properties": {
                **of_tool,
                "_tool": {"type": "string", "description": _META["_tool"]},
                "_outputPath": {"type": "string", "description": _META["_outputPath"]},
                "_errorPath": {"type": "string", "description": _META["_errorPath"]},
                "_outputMethod": {"enum": list(METHODS), "description": _META["_outputMethod"]},
                "_scopes": {"type": "array", "items": {"type": "string"}, "description": _META["_scopes"]},
                "_instance": {"type": ["string", "null"], "description": _META["_instance"]},
            },
            "propertyNames": {"anyOf": [{"pattern": "^(?!_)"}, {"enum": list(META)}]},
            "required": ["_tool"],
        },
    }


def _options() -> dict[str, Any]:
    """``_options`` as a value, or as the schema ``{const: value}``."""
    return {
        "description": _META["_options"],
        "anyOf": [
            _ref("Options"),
            {"type": "object", "properties": {"const": _ref("Options")}, "required": ["const"]},
            {
                "type": "object",
                "properties": {"const": False},
                "not": {"anyOf": [{"required": [k]} for k in Options.model_fields]},
            },
        ],
    }


def _first(schema: dict[str, Any]) -> str:
    """The first paragraph of a model's docstring, without its markup."""
    return " ".join(str(schema.get("description", "")).split("\n\n")[0].replace("``", "").split())
