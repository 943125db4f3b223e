"""Which JSON Schema a provider takes, as tables; pure rewriting of one schema at a time.

What a provider does not take is told in the description instead: the model may follow
it, and the check of the answer against the original schema decides.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

from acts.language.values import Json

Provider = Literal["anthropic", "openai", "plain"]
"""``plain``: nothing is enforced, the schema is only shown to the model."""

KINDS: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

# Keywords of each type of value beyond type, enum, const, title and description
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_TAKEN: Final[dict[str, dict[str, frozenset[str]]]] = {
    "anthropic": {"string": frozenset({"pattern", "format"}), "number": frozenset(), "array": frozenset({"minItems"})},
    "openai": {
        "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
        "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
        "array": frozenset({"minItems", "maxItems"}),
    },
}
_OF_KIND: Final[dict[str, frozenset[str]]] = {
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
# Never sent, and not worth telling; ``$defs`` has its place at the root
SILENT: Final = frozenset(
    {
        "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$defs", "definitions", "examples",
        "readOnly", "writeOnly", "deprecated", "unevaluatedProperties", "unevaluatedItems",
    }
)  # fmt: skip
# Only say something to readers: a ``$ref`` beside them is still that and nothing more
NOTES: Final = SILENT | {"title", "description", "default"}
_STRUCTURE: Final = frozenset(
    {
        "type", "enum", "const", "title", "description", "properties", "required", "additionalProperties", "items",
        "anyOf", "oneOf", "allOf", "$ref", "patternProperties", "prefixItems",
    }
)  # fmt: skip
# A description that is longer costs more in each request than it helps
_MAX_TOLD: Final = 1_500
_HARD_PATTERN: Final = re.compile(r"\(\?(?!:)|\\[bBAZGKpP1-9k]")

# Where a pattern does not simply begin and end: an alternative, or an anchor that may stand inside it
_WHOLE: Final = re.compile(r"\^\([^()]*\)\$$|\^[^|^$]*[^|^$\\]\$$")
_ENDS: Final = re.compile(r"\||.\^|\$.|\\\$$")


def kind_of(value: Json) -> str:
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


def kinds_of(schema: dict[str, Any]) -> list[str] | None:
    """The types a schema allows, as it says or as its other keywords imply; None: any, or beyond telling."""
    said = schema.get("type")
    if said is not None:
        kinds = said if isinstance(said, list) else [said]
        return list(dict.fromkeys(kinds)) if kinds and all(k in KINDS for k in kinds) else None
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return list(dict.fromkeys(map(kind_of, values))) or None
    implied = [kind for kind, words in _OF_KIND.items() if words & set(schema)]
    return implied if len(implied) == 1 else None


def of_kind(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """What a schema says about values of one type."""
    own = _OF_KIND.get("number" if kind == "integer" else kind, frozenset())
    others = frozenset().union(*_OF_KIND.values()) - own
    out = {k: v for k, v in schema.items() if k not in others}
    out["type"] = kind
    if isinstance(out.get("enum"), list):
        out["enum"] = [v for v in out["enum"] if _is(v, kind)]
    return out


def _is(value: Json, kind: str) -> bool:
    found = kind_of(value)
    return found == kind or (found == "integer" and kind == "number") or (kind == "integer" and _whole(value))


def _whole(value: Json) -> bool:
    return isinstance(value, float) and value.is_integer()


def limits(schema: dict[str, Any], kind: str, provider: Provider) -> dict[str, Any]:
    """The keywords of a leaf or list that the provider takes as they are."""
    words = _TAKEN.get(provider, {}).get("number" if kind == "integer" else kind, frozenset())
    kept = {k: v for k, v in schema.items() if k in words and _takes(k, v, provider)}
    return {**kept, "pattern": whole_pattern(kept["pattern"])} if "pattern" in kept else kept


def whole_pattern(pattern: str) -> str:
    """A pattern that says the same when it must match the whole text, as some engines read it, and all others too."""
    begin = "" if pattern.startswith("^") else "^.*"
    return begin + pattern + ("" if pattern.endswith("$") else ".*$")


def _takes(word: str, value: Json, provider: Provider) -> bool:
    if word == "pattern":
        simple = isinstance(value, str) and not _HARD_PATTERN.search(value)
        return simple and (bool(_WHOLE.match(value)) or not _ENDS.search(value))
    if word == "format":
        return value in _FORMATS or (value == "uri" and provider == "anthropic")
    return word != "minItems" or provider != "anthropic" or value in (0, 1)


def told(schema: dict[str, Any], kept: dict[str, Any], extra: str = "") -> dict[str, str]:
    """Title and description, with what ``schema`` asks for beyond what is ``kept``."""
    out: dict[str, str] = {}
    if isinstance(schema.get("title"), str):
        out["title"] = schema["title"]
    asked = {k: v for k, v in schema.items() if k not in kept and k not in _STRUCTURE and k not in SILENT}
    notes = [extra] if extra else []
    notes += [shortened(f"{k}: {compact(v)}") for k, v in asked.items()]
    own = schema.get("description")
    text = own if isinstance(own, str) else ""
    if notes:
        text = f"{text} ({'; '.join(notes)})" if text else "; ".join(notes)
    if text:
        out["description"] = text
    return out


def compact(value: Json) -> str:
    """JSON without spaces, the same bytes for the same value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shortened(text: str) -> str:
    """Text of at most about ``_MAX_TOLD`` characters."""
    return text if len(text) <= _MAX_TOLD else text[:_MAX_TOLD] + "…"


# -- allOf -----------------------------------------------------------------------

_LARGER: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_SMALLER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any] | None:
    """One schema that asks for what both ask for, or None where that cannot be said simply."""
    if _closes(first, second) or _closes(second, first):
        return None
    out = dict(first)
    for key, value in second.items():
        if key not in out or out[key] == value:
            out[key] = value
            continue
        both = _both(key, out[key], value)
        if both is None:
            return None
        out[key] = both
    return out


def _closes(closed: dict[str, Any], other: dict[str, Any]) -> bool:
    """True when one of them restricts properties that only the other one names."""
    rest = closed.get("additionalProperties", True)
    named = other.get("properties")
    return rest not in (True, {}) and isinstance(named, dict) and not set(named) <= set(closed.get("properties") or ())


def _both(key: str, one: Json, other: Json) -> Json | None:
    try:
        return _combined(key, one, other)
    except (TypeError, AttributeError):
        return None  # not a schema as it should be: not simple


def _combined(key: str, one: Json, other: Json) -> Json | None:
    if key in NOTES:
        return f"{one} {other}" if key == "description" else one
    if key == "properties":
        return {**one, **{k: {"allOf": [one[k], v]} if k in one and one[k] != v else v for k, v in other.items()}}
    if key == "required":
        return [*one, *(k for k in other if k not in one)]
    if key == "enum":
        return [v for v in one if v in other] or None
    if key == "type":
        mine, theirs = (v if isinstance(v, list) else [v] for v in (one, other))
        common = [k for k in mine if k in theirs or (k == "integer" and "number" in theirs)]
        common += [k for k in theirs if k == "integer" and "number" in mine and k not in common]
        return common or None
    if key in _LARGER:
        return max(one, other)
    return min(one, other) if key in _SMALLER else None
