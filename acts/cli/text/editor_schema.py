"""The JSON Schema (2020-12) of a Request file: ``request_schema.yaml``, and the models of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acts.language.config import Config, Options, parse_seconds
from acts.language.messages import DATA_TYPES, METHODS, METHODS_TEXT, PROVENANCE
from acts.language.tools import META

Schema = dict[str, Any]

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
        return super().function_before_schema(schema)


def request_schema() -> Schema:
    text = Path(__file__).with_name("request_schema.yaml").read_text("utf-8")
    text = text.replace("enum: METHODS", f"enum: {json.dumps(list(METHODS))}").replace("METHODS", METHODS_TEXT)
    content = yaml.safe_load(text.replace("enum: META", f"enum: {json.dumps(list(META))}"))
    defs = {**_settings(content["settings"]), **content["$defs"]}
    for type_ in DATA_TYPES:
        name = f"{type_.title()}Message"
        defs[name] = json.loads(json.dumps(defs[name]).replace("TYPE", type_))
        defs[name]["properties"] = {key: {} for key in PROVENANCE} | defs[name]["properties"]
    for part in (defs["Tool"], defs["Tool"]["properties"]["properties"], defs["Call"]):
        own = part["properties"]
        meta = {key: {**own.get(key, {}), "description": text} for key, text in content["calls"].items()}
        part["properties"] = meta | {key: value for key, value in own.items() if key not in meta}
    return {**content["schema"], "$defs": defs}


def _settings(texts: dict[str, str]) -> Schema:
    schemas: Schema = {}
    for model in (Config, Options):
        schema = model.model_json_schema(ref_template="#/$defs/{model}", schema_generator=_SettingsGenerator)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for name, schema in schemas.items():
        first_paragraph = str(schema.get("description", "")).split("\n\n")[0]
        schema["description"] = texts.get(name) or " ".join(first_paragraph.replace("``", "").split())
        for key, part in schema.get("properties", {}).items():
            part.pop("title", None)
            if text := texts.get(f"{name}.{key}") or texts.get(key):
                part["description"] = text
    return schemas
