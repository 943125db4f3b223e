"""The JSON Schema keywords that each provider supports, as tables, and the rewriting of one schema at a time.

A keyword that a provider does not support moves into the description: the model may follow it, and the check of the
answer against the original schema decides. Pure; ``schema_bridge.py`` applies it to whole schemas.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

from acts.language.errors import truncate
from acts.language.values import Json

Dialect = Literal["anthropic", "openai", "unenforced"]
"""What a schema is written for. ``unenforced``: it is only shown to the model, and no provider checks it."""

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

# Keywords that are sent for each type, beside type, enum, const, title and description
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_SUPPORTED: Final[dict[str, dict[str, frozenset[str]]]] = {
    "anthropic": {"string": frozenset({"pattern", "format"}), "number": frozenset(), "array": frozenset({"minItems"})},
    "openai": {
        "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
        "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
        "array": frozenset({"minItems", "maxItems"}),
    },
}
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset(
        {
            "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
            "maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
        }
    ),
    "array": frozenset(
        {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains",
         "unevaluatedItems"}
    ),
    "string": frozenset({"pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}  # fmt: skip
# Never sent, and of no use in a description; ``$defs`` has its place at the root
IGNORED: Final = frozenset(
    {
        "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$defs", "definitions", "examples",
        "readOnly", "writeOnly", "deprecated", "unevaluatedProperties", "unevaluatedItems",
    }
)  # fmt: skip
# Annotations for readers: a ``$ref`` beside them is still a plain reference
ANNOTATIONS: Final = IGNORED | {"title", "description", "default"}
_STRUCTURE: Final = frozenset(
    {
        "type", "enum", "const", "title", "description", "properties", "required", "additionalProperties", "items",
        "anyOf", "oneOf", "allOf", "$ref", "patternProperties", "prefixItems",
    }
)  # fmt: skip
# Characters of one limit in a description: a longer one costs more in each request than it helps
_MAX_NOTE: Final = 1_500
_LAZY_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_UNSUPPORTED_PATTERN: Final = re.compile(r"\(\?(?!:)|\\[bBAZGKpP1-9k]")

# Patterns that match a whole text, and patterns whose beginning or end cannot be extended: an alternative, or an anchor
# in the middle
_ANCHORED: Final = re.compile(r"\^\([^()]*\)\$$|\^[^|^$]*[^|^$\\]\$$")
_INEXTENSIBLE: Final = re.compile(r"\||.\^|\$.|\\\$$")


def type_of(value: Json) -> str:
    """The JSON Schema type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    for python, name in ((float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, python):
            return name
    return "object"


def types_of(schema: dict[str, Any]) -> list[str] | None:
    """The types a schema allows, by ``type`` or as its other keywords imply; None: any, or not one that is implied."""
    type_ = schema.get("type")
    if type_ is not None:
        types = type_ if isinstance(type_, list) else [type_]
        return list(dict.fromkeys(types)) if types and all(t in TYPES for t in types) else None
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return list(dict.fromkeys(map(type_of, values))) or None
    candidates = [name for name, keywords in _OF_TYPE.items() if keywords & set(schema)]
    return candidates if len(candidates) == 1 else None


def restrict_to_type(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The part of a schema that is about values of one type."""
    own = _OF_TYPE.get("number" if name == "integer" else name, frozenset())
    others = frozenset().union(*_OF_TYPE.values()) - own
    out = {k: v for k, v in schema.items() if k not in others}
    out["type"] = name
    if isinstance(out.get("enum"), list):
        out["enum"] = [v for v in out["enum"] if _is_of_type(v, name)]
    return out


def _is_of_type(value: Json, name: str) -> bool:
    actual = type_of(value)
    is_whole = isinstance(value, float) and value.is_integer()
    return actual == name or (actual == "integer" and name == "number") or (name == "integer" and is_whole)


def supported_limits(schema: dict[str, Any], name: str, dialect: Dialect) -> dict[str, Any]:
    """The keywords of a value or list of type ``name`` that the provider supports."""
    keywords = _SUPPORTED.get(dialect, {}).get("number" if name == "integer" else name, frozenset())
    limits = {k: v for k, v in schema.items() if k in keywords and _is_supported(k, v, dialect)}
    return {**limits, "pattern": anchor_pattern(limits["pattern"])} if "pattern" in limits else limits


def anchor_pattern(pattern: str) -> str:
    """An equivalent pattern that matches the whole text: some engines search with it, some match all of the text."""
    start = "" if pattern.startswith("^") else "^.*"
    return start + pattern + ("" if pattern.endswith("$") else ".*$")


def _is_supported(keyword: str, value: Json, dialect: Dialect) -> bool:
    if keyword == "pattern":
        is_simple = isinstance(value, str) and not _UNSUPPORTED_PATTERN.search(value)
        return is_simple and (bool(_ANCHORED.match(value)) or not _INEXTENSIBLE.search(value))
    if keyword == "format":
        return value in _FORMATS or (value == "uri" and dialect == "anthropic")
    return keyword != "minItems" or dialect != "anthropic" or value in (0, 1)


def description_with_limits(schema: dict[str, Any], sent: dict[str, Any]) -> dict[str, str]:
    """Title and description, extended by the limits of ``schema`` that are not among those ``sent``."""
    out: dict[str, str] = {}
    if isinstance(schema.get("title"), str):
        out["title"] = schema["title"]
    limits = {k: v for k, v in schema.items() if k not in sent and k not in _STRUCTURE and k not in IGNORED}
    notes = "; ".join(truncate(f"{k}: {compact_start(v, _MAX_NOTE)}", _MAX_NOTE) for k, v in limits.items())
    description = schema.get("description")
    text = description if isinstance(description, str) else ""
    text = f"{text} ({notes})" if text and notes else text or notes
    if text:
        out["description"] = text
    return out


def compact_json(value: Json) -> str:
    """JSON without spaces; equal values in equal key order give equal text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def describe_schema(schema: Json) -> str:
    """A schema as text for a description."""
    return truncate(f"JSON text of a value that fits this JSON Schema: {compact_start(schema, _MAX_NOTE)}", _MAX_NOTE)


def compact_start(value: Json, limit: int) -> str:
    """The beginning of ``compact_json``, of ``limit`` characters or more; no more of the value is looked at."""
    parts: list[str] = []
    size = 0
    for part in _LAZY_ENCODER.iterencode(value):
        parts.append(part)
        size += len(part)
        if size > limit:
            break
    return "".join(parts)


# -- allOf -----------------------------------------------------------------------

_LARGER_IS_STRICTER: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_SMALLER_IS_STRICTER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def merge_schemas(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any] | None:
    """One schema equivalent to both, or None where no simple one is."""
    if _closes(first, second) or _closes(second, first):
        return None
    out = dict(first)
    for key, value in second.items():
        if key not in out or out[key] == value:
            out[key] = value
            continue
        try:
            both = _merge_keyword(key, out[key], value)
        except (TypeError, AttributeError):
            return None  # a malformed keyword
        if both is None:
            return None
        out[key] = both
    return out


def _closes(closed: dict[str, Any], other: dict[str, Any]) -> bool:
    """True when one of them restricts properties that only the other one names."""
    rest = closed.get("additionalProperties", True)
    names = other.get("properties")
    return rest not in (True, {}) and isinstance(names, dict) and not set(names) <= set(closed.get("properties") or ())


def _merge_keyword(key: str, first: Json, second: Json) -> Json | None:
    if key in ANNOTATIONS:
        return f"{first} {second}" if key == "description" else first
    if key == "properties":
        both = {k: {"allOf": [first[k], v]} if k in first and first[k] != v else v for k, v in second.items()}
        return {**first, **both}
    if key == "required":
        return [*first, *(k for k in second if k not in first)]
    if key == "enum":
        return [v for v in first if v in second] or None
    if key == "type":
        ours, theirs = (v if isinstance(v, list) else [v] for v in (first, second))
        common = [t for t in ours if t in theirs or (t == "integer" and "number" in theirs)]
        common += [t for t in theirs if t == "integer" and "number" in ours and t not in common]
        return common or None
    if key in _LARGER_IS_STRICTER:
        return max(first, second)
    return min(first, second) if key in _SMALLER_IS_STRICTER else None
