"""The JSON Schema (2020-12) of a Request file, for editors.

Laws of this file:
- the schemas of settings come from the models that read them; messages and Calls are written by hand, as
  ``acts.language.messages`` reads them by hand;
- it accepts every form that the engine accepts. What depends on the whole Request (names, references, cycles) is
  left to ``acts validate``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acts.language.config import Config, Options, as_expected, parse_seconds
from acts.language.messages import DATA_TYPES, METHODS, METHODS_TEXT, PROVENANCE
from acts.language.tools import META

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFS: Final = "#/$defs/"

# By key; a setting by model and key where two models mean different things
_TEXTS: Final = yaml.safe_load(Path(__file__).with_name("descriptions.yaml").read_text("utf-8"))
_SETTINGS: Final[dict[str, str]] = _TEXTS["settings"]
_META: Final[dict[str, str]] = {k: v.replace("METHODS", METHODS_TEXT) for k, v in _TEXTS["calls"].items()}

_STRING: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
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
    properties = {
        "config": {"anyOf": [_ref("Config"), {"type": "null"}]},
        "context": {"type": "array", "items": _ref("Message"), "description": "Messages, oldest first."},
        "schema": {**_ref("Schema"), "description": "The schema of an agent's output; none means any JSON."},
    }
    text = "A plan of tool calls, or a task for an agent: what to run, with what, within which limits."
    request = _object(text, properties, required=[], additionalProperties=False)
    schema = {"type": ["object", "boolean", "null"], "description": "A JSON Schema (2020-12)."}
    defs = {**_settings(), **_messages(), "Schema": schema, "Tool": _tool(), "Call": _call()}
    return {"$schema": DIALECT, "title": "Request", **request, "$defs": defs}


def _ref(name: str) -> Schema:
    return {"$ref": f"{_DEFS}{name}"}


def _object(description: str, properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "description": description, "properties": properties, "required": ["type"], **more}


def _settings() -> Schema:
    """Config and Options with their parts."""
    schemas: Schema = {}
    for model in (Config, Options):
        schema = model.model_json_schema(ref_template=f"{_DEFS}{{model}}", schema_generator=_SettingsGenerator)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for name, schema in schemas.items():
        first_paragraph = str(schema.get("description", "")).split("\n\n")[0]
        schema["description"] = _SETTINGS.get(name) or " ".join(first_paragraph.replace("``", "").split())
        for key, part in schema.get("properties", {}).items():
            part.pop("title", None)
            if text := _SETTINGS.get(f"{name}.{key}") or _SETTINGS.get(key):
                part["description"] = text
    return schemas


def _messages() -> Schema:
    text = "An instruction for the planner; it is never filtered out."
    words: Schema = {"text": _STRING, "message": _STRING}
    either: Schema = {"anyOf": [{"required": [key]} for key in words]}
    mode = {"enum": ["eager", "lazy"], "description": "lazy: only plan; the engine runs it later."}
    run = {"description": "true, in a delegate: run this plan unchanged."}
    plan = {"type": {"const": "plan"}, "plan": {"type": "array", "items": _ref("Call")}, "mode": mode, "run": run}
    chat = {"role": _STRING, "content": _STRING, "type": {"type": "null"}}
    by_name = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object"}}
    tool = {"type": {"const": "tool"}, "tool": {"anyOf": [_NAME, _ref("Tool"), by_name]}}
    forms = {
        **{f"{t.title()}Message": _object(text, {"type": {"const": t}, **words}, **either) for t in ("system", "text")},
        "ChatMessage": _object("An instruction in the form of chat models.", chat, required=["role", "content"]),
        **{f"{t.title()}Message": _data(t) for t in DATA_TYPES},
        "ToolMessage": _object("Tools that calls may name.", tool, required=["type", "tool"]),
        "PlanMessage": _object("The calls to run. Of several plan messages the latest counts.", plan),
        "ErrorMessage": _object("An error of an earlier tick.", {"type": {"const": "error"}, "data": {}}),
    }
    return {"Message": {"anyOf": [_ref(n) for n in forms]}, **forms}


def _data(type_: str) -> Schema:
    """A data-like message, wrapped or inline: any other key is part of its payload."""
    source = "A JSON Lines or CSV file (also .gz) in a folder of ACTS_DATA, or a URL of an allowed host."
    id_ = "The field of a row that is the id of its instance; without it, the number of the row."
    rows = {"source": {**_NAME, "description": source}, "id": {**_NAME, "description": id_}}
    set_ = _object("Each row of a file is the data of one instance.", rows, required=["source"])
    kind = {"type": "string", "pattern": r"^[\w-]+$", "description": f"Read as †kind.…; the default is {type_}."}
    instance = {"type": ["string", "null"], "minLength": 1, "description": "The one instance that this belongs to."}
    properties = {
        **{key: {} for key in PROVENANCE},
        "type": {"const": type_},
        "kind": kind,
        type_: {"description": "The payload."},
        "schema": {**_ref("Schema"), "description": "The schema of the payload."},
        "description": {"description": "What this is; for the planner."},
        "_instance": instance,
        "_instances": {**set_, "additionalProperties": False},
        "_outputMethod": {"enum": list(METHODS)},
        "_outputPath": {"type": ["string", "null"]},
    }
    return _object(f"Data: the payload under “{type_}”, or as keys of the message itself.", properties)


def _meta(**schemas: Schema) -> Schema:
    return {key: {**schemas.get(key, {}), "description": text} for key, text in _META.items()}


def _tool() -> Schema:
    """A Tool; a meta-property is a schema or a plain value, and so is ``_options``."""
    constant = {"type": "object", "properties": {"const": _ref("Options")}, "required": ["const"]}
    options = {**_meta()["_options"], "anyOf": [_ref("Options"), constant]}
    parameters = {"type": "object", "properties": {**_meta(), "_options": options}}
    properties = {**_meta(), "properties": parameters, "required": {"type": "array", "items": _STRING}}
    text = "A JSON Schema: names without _ are parameters, names with _ say how a call runs."
    return _object(text, properties, required=[], minProperties=1)


def _call() -> Schema:
    text = (
        "A tool with values. A string that begins with † refers to something: †state.user.name. "
        "Inside a longer text: Dear †{state.user.name}."
    )
    properties = _meta(
        _tool=_STRING,
        _outputPath=_STRING,
        _errorPath=_STRING,
        _outputMethod={"enum": list(METHODS)},
        _scopes={"type": "array", "items": _STRING},
        _instance={"type": ["string", "null"]},
        _when={"type": ["string", "boolean"]},
        _each={"type": ["string", "array"]},
    )
    names = {"anyOf": [{"pattern": "^(?!_)"}, {"enum": list(META)}]}
    return _object(text, properties, required=["_tool"], propertyNames=names)
