"""The JSON Schema (2020-12) of a Request file, for editors.

Laws of this file:
- the schemas of settings come from the models that read them; messages and Calls are written by hand, as
  ``acts.language.messages`` reads them by hand;
- it accepts every form that the engine accepts. What depends on the whole Request (names, references, cycles) is
  left to ``acts validate``.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acts.language.config import Config, Options, as_expected, parse_seconds
from acts.language.messages import DATA_TYPES, PROVENANCE
from acts.language.output_methods import METHODS, METHODS_TEXT
from acts.language.tools import META

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFS: Final = "#/$defs/"

# By key, or by model and key where two models mean different things
_SETTINGS: Final = {
    "Config": "How the run behaves. Every key is optional.",
    "model": "Plans and answers latent calls: anthropic:…, openai:…, scripted:…. Calls of Activities need none.",
    "latentModel": "Answers latent calls (default: model).",
    "fallbackModels": "Tried in order when a model refuses, is gone, or is overloaded for longer than patience.",
    "patience": "How long an overloaded model is waited for (default 1h).",
    "effort": "How much the model thinks: none, minimal, low, medium, high, xhigh or max.",
    "temperature": "Of the model's requests.",
    "maxOutputTokens": "The longest answer of one model request.",
    "maxTicks": "An agent stops after this many rounds (default 50).",
    "step": '"plan" (default) runs all calls of a Solution, "call" only the first ready one.',
    "approve": "What a human confirms before it happens.",
    "budget": "Limits of the whole run; reaching one ends it.",
    "maxParallel": "How many calls run at once (default 100, at most 2000).",
    "instancesPerChild": "How many instances one child workflow executes (default 1; of a set 25).",
    "results": "The file that takes a line for each row of a set, in a folder of ACTS_RESULTS.",
    "missing": '"fail" (default), or "wait" for a message that is provided from outside.',
    "stream": "Whether an agent's calls start while the planner still writes. Default: true.",
    "resolve": 'When delegates are loaded: "runtime" (default) or "upfront".',
    "Approve": "What a human confirms.",
    "resume": "The earlier run to continue from: its completed calls are taken over.",
    "workflowId": "The id of that run.",
    "runId": "One run of that id (default: the latest).",
    "keep": '"completed" (default): every unchanged call that had completed; {"before": "3:charge"}: those before it.',
    "before": "The id of a call; plan order counts.",
    "ids": 'Whether a call that had failed gets the _id that it had ("same") or a new one ("new").',
    "only": '"failed": of a batch, run the instances that failed and no others.',
    "plan": "Confirm the plan; the default for lazy plans.",
    "Approve.calls": "Confirm each call (true), or those of the tools named.",
    "Budget.calls": "Calls that are run.",
    "scopes": "Confirm the calls whose scopes the model chose.",
    "Approve.timeout": "How long to wait for a decision: seconds, or like 30s, 5m, 24h (default: for ever).",
    "Options.timeout": "How long one attempt may take: seconds, or like 30s, 5m, 24h (default 5m).",
    "onTimeout": "What happens without a decision in time (default reject).",
    "requests": "Model requests.", "tokens": "Tokens in and out.", "cost": "US dollars.", "depth": "Nested delegates.",
    "expected": "How long a call is expected to take, for forecasts: a duration, or {min, max}.",
    "queueTimeout": "How long a call may wait for a worker (default: for ever; a backlog is no failure).",
    "taskQueue": "The queue of the worker that runs the Activity (default: that of the plan).",
    "retry": "How often a failing Activity is tried again.",
    "heartbeat": "The longest silence of a running attempt.",
    "local": "Run in the worker that executes the plan; for short work only.",
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
    "_outputMethod": f"How it is written: {METHODS_TEXT}.",
    "_errorPath": "Where a failure goes, as {code, message}.",
    "_when": "The call is skipped unless this holds: †state.x, !†state.x, †state.n >= 3, †a && (†b || †c).",
    "_each": "The call runs once for each element of this list: †item is the element, †index its position.",
    "_instance": "The instance that the call runs in.",
    "_reasoningForCall": "Why the call is made; for people.",
    "_approval": "true: a human confirms each call.",
    "_options": "The task queue, timeouts and retries of the Activity. Decided by the tool alone.",
}

_DURATION: Final = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"},
    ],
    "description": "Seconds, or like 250ms, 30s, 5m, 24h, 7d.",
}


class _SettingsGenerator(GenerateJsonSchema):
    """Pydantic's schemas, with durations as people write them."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        function: Any = schema["function"]
        if function["function"] is parse_seconds:
            return dict(_DURATION)
        if function["function"] is as_expected:
            return {"anyOf": [dict(_DURATION), super().function_before_schema(schema)]}
        return super().function_before_schema(schema)


def request_schema() -> Schema:
    """The schema of a Request file."""
    description = "A plan of tool calls, or a task for an agent: what to run, with what, within which limits."
    properties = {
        "config": {"anyOf": [_ref("Config"), {"type": "null"}]},
        "context": {"type": "array", "items": _ref("Message"), "description": "Messages, oldest first."},
        "schema": {**_ref("Schema"), "description": "The schema of an agent's output; none means any JSON."},
    }
    defs = {**_settings(), **_messages(), **_calls()}
    head = {"$schema": DIALECT, "title": "Request"}
    return {**head, **_object(description, properties, (), additionalProperties=False), "$defs": defs}


def _ref(name: str) -> Schema:
    return {"$ref": f"{_DEFS}{name}"}


def _object(description: str, properties: Schema, required: tuple[str, ...] = ("type",), **more: Any) -> Schema:
    needs = {"required": list(required)} if required else {}
    return {"type": "object", "description": description, "properties": properties, **needs, **more}


def _settings() -> Schema:
    """Config and Options with their parts."""
    schemas: Schema = {}
    for model in (Config, Options):
        schema = model.model_json_schema(ref_template=f"{_DEFS}{{model}}", schema_generator=_SettingsGenerator)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for name, schema in schemas.items():
        schema["description"] = _SETTINGS.get(name) or _first_paragraph(schema)
        for key, part in schema.get("properties", {}).items():
            part.pop("title", None)
            if text := _SETTINGS.get(f"{name}.{key}") or _SETTINGS.get(key):
                part["description"] = text
    return schemas


def _first_paragraph(schema: Schema) -> str:
    """The first paragraph of a model's docstring, without its markup."""
    return " ".join(str(schema.get("description", "")).split("\n\n")[0].replace("``", "").split())


def _messages() -> Schema:
    chat = {"role": {"type": "string"}, "content": {"type": "string"}, "type": {"type": "null"}}
    forms = {
        "SystemMessage": _instruction("system", "message", "text"),
        "TextMessage": _instruction("text", "text", "message"),
        "ChatMessage": _object("An instruction in the form of chat models.", chat, ("role", "content")),
        **{f"{t.title()}Message": _data(t) for t in DATA_TYPES},
        "ToolMessage": _tool_message(),
        "PlanMessage": _plan_message(),
        "ErrorMessage": _object("An error of an earlier tick.", {"type": {"const": "error"}, "data": {}}),
    }
    return {"Message": {"anyOf": [_ref(n) for n in forms]}, **forms}


def _instruction(type_: str, first: str, second: str) -> Schema:
    """An instruction: the text is under ``first``, or else under ``second``."""
    properties = {"type": {"const": type_}, first: {"type": "string"}}
    otherwise = {"properties": {second: {"type": "string"}}, "required": [second]}
    condition: Schema = {"if": {"not": {"required": [first]}}, "then": otherwise}
    return _object("An instruction for the planner; it is never filtered out.", properties, **condition)


def _set() -> Schema:
    source = "A JSON Lines or CSV file (also .gz) in a folder of ACTS_DATA, or a URL of an allowed host."
    id_ = "The field of a row that is the id of its instance; without it, the number of the row."
    return {
        "type": "object",
        "description": "Each row of a file is the data of one instance.",
        "properties": {
            "source": {"type": "string", "minLength": 1, "description": source},
            "id": {"type": "string", "minLength": 1, "description": id_},
        },
        "required": ["source"],
        "additionalProperties": False,
    }


def _data(type_: str) -> Schema:
    """A data-like message, wrapped or inline: any other key is part of its payload."""
    kind = f"Read as †kind.…; the default is {type_}."
    instance = "The one instance that this belongs to."
    properties = {
        **{key: {} for key in PROVENANCE},
        "type": {"const": type_},
        "kind": {"type": "string", "pattern": r"^[\w-]+$", "description": kind},
        type_: {"description": "The payload."},
        "schema": {**_ref("Schema"), "description": "The schema of the payload."},
        "description": {"description": "What this is; for the planner."},
        "_instance": {"type": ["string", "null"], "minLength": 1, "description": instance},
        "_instances": _set(),
        "_outputMethod": {"enum": list(METHODS)},
        "_outputPath": {"type": ["string", "null"]},
    }
    return _object(f"Data: the payload under “{type_}”, or as keys of the message itself.", properties)


def _tool_message() -> Schema:
    name: Schema = {"type": "string", "minLength": 1, "description": "A tool that is registered with the worker."}
    by_name: Schema = {"not": {"required": ["properties"]}, "minProperties": 1, "additionalProperties": _ref("Tool")}
    forms: list[Schema] = [
        name,
        _ref("Tool"),
        {"type": "object", "description": "Tools by name.", **by_name},
        {"type": "object", "minProperties": 1, "required": ["properties"]},
    ]
    return _object(
        "Tools that calls may name.", {"type": {"const": "tool"}, "tool": {"anyOf": forms}}, ("type", "tool")
    )


def _plan_message() -> Schema:
    mode = {"enum": ["eager", "lazy"], "description": "lazy: only plan; the engine runs it later."}
    properties = {
        "type": {"const": "plan"},
        "plan": {"type": "array", "items": _ref("Call")},
        "mode": mode,
        "run": {"description": "true, in a delegate: run this plan unchanged."},
    }
    return _object("The calls to run. Of several plan messages the latest counts.", properties)


def _calls() -> Schema:
    """Tools and calls; in a tool, a meta-property is a schema or a plain value."""
    meta: Schema = {key: {"description": text} for key, text in _META.items()}
    types: Schema = {
        "_tool": "string",
        "_outputPath": "string",
        "_errorPath": "string",
        "_instance": ["string", "null"],
        "_when": ["string", "boolean"],
        "_each": ["string", "array"],
    }
    in_call: Schema = {key: {"type": type_, "description": _META[key]} for key, type_ in types.items()}
    in_call["_outputMethod"] = {"enum": list(METHODS), "description": _META["_outputMethod"]}
    in_call["_scopes"] = {"type": "array", "items": {"type": "string"}, "description": _META["_scopes"]}
    parameters = {"type": "object", "properties": {**meta, "_options": _options()}}
    required = {"type": "array", "items": {"type": "string"}}
    text = (
        "A tool with values. A string that begins with † refers to something: †state.user.name. "
        "Inside a longer text: Dear †{state.user.name}."
    )
    names = {"anyOf": [{"pattern": "^(?!_)"}, {"enum": list(META)}]}
    return {
        "Schema": {"type": ["object", "boolean", "null"], "description": "A JSON Schema (2020-12)."},
        "Tool": _object(
            "A JSON Schema: names without _ are parameters, names with _ say how a call runs.",
            {**meta, "properties": parameters, "required": required},
            (),
            minProperties=1,
        ),
        "Call": _object(text, {**meta, **in_call}, ("_tool",), propertyNames=names),
    }


def _options() -> Schema:
    """``_options`` as a value, or as the schema ``{const: value}``."""
    constant = {"type": "object", "properties": {"const": _ref("Options")}, "required": ["const"]}
    no_option = {"anyOf": [{"required": [k]} for k in Options.model_fields]}
    schema = {"type": "object", "properties": {"const": False}, "not": no_option}
    return {"description": _META["_options"], "anyOf": [_ref("Options"), constant, schema]}
