"""The schema of an answer in the form in which a provider is sent it. Pure; nothing here knows a request.

Theory of operation. A schema is lowered one way, to what a provider enforces (``strict``): objects are closed, types
are spelled out, ``oneOf`` becomes ``anyOf``, and limits that the provider lacks become part of the description. OpenAI
wants every property to be required, so there null stands for an absent one (``drop_nulls``). What no strict schema can
say (any value, an open map, recursion at Anthropic) and what exceeds the provider's limits makes the whole schema

* ``unenforced``, at OpenAI's APIs: it is sent as it is, and not strict; or
* ``words``: it is types in the prompt (``planner/notation.py``), and the provider is only asked for JSON.

The caller checks every answer against the original schema, whatever its form. The same schema gives the same bytes,
which providers cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

from acts.language.errors import truncate
from acts.language.schemas import subschemas
from acts.language.values import Json
from acts.planner.notation import write_types

Dialect = Literal["anthropic", "openai"]
Form = Literal["strict", "unenforced", "words"]

DEFS: Final = "#/$defs/"
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
# The limits that are sent for each type
_LIMITS: Final[dict[Dialect, dict[str, tuple[str, ...]]]] = {
    "anthropic": {"string": ("pattern", "format"), "array": ("minItems",)},
    "openai": {
        "string": ("pattern", "format", "minLength", "maxLength"),
        "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        "array": ("minItems", "maxItems"),
    },
}
# Never sent as they are, and of no use in a description
_ANNOTATIONS: Final = frozenset({
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary", "$defs", "definitions", "examples",
    "readOnly", "writeOnly", "deprecated", "unevaluatedProperties", "unevaluatedItems", "discriminator",
    "title", "description", "default",
})  # fmt: skip
# Keywords that a strict schema has in one form or another; all others become part of the description
_STRUCTURE: Final = frozenset({"type", "enum", "const", "properties", "required", "additionalProperties", "items"})
_COMBINED: Final = ("$ref", "anyOf", "oneOf", "allOf")
_INEXPRESSIBLE: Final = ("prefixItems", "patternProperties", "$dynamicRef")
# Characters of the limits in a description: more cost more in each request than they help
_MAX_NOTES: Final = 1_500
# Patterns that every engine reads alike: without alternatives, groups and classes of its own
_PLAIN_PATTERN: Final = re.compile(r"\^?(?:[^\\|^$()]|\\[dws.†])*\$?")
_NULL: Final[dict[str, Any]] = {"type": "null"}
# Schemas of runs in flight: each is used by request after request
_CACHED_SCHEMAS: Final = 128
ONLY_JSON: Final = "Answer with one JSON value of the type Answer and nothing else (in parentheses: what else holds):\n"


@dataclass(frozen=True)
class SentSchema:
    """A schema in one form: ``schema`` is what is sent or shown."""

    form: Form
    schema: Any

    @cached_property
    def in_words(self) -> str:
        """The schema as an instruction, for a model that does not see it otherwise."""
        return ONLY_JSON + write_types(self.schema)


class NotStrict(Exception):
    """No strict schema can say a part of the schema; the message names it."""


def compact_json(value: Json) -> str:
    """JSON without spaces; equal values in equal key order give equal text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def choose_form(schema: Json, dialect: Dialect, first: Form = "strict") -> SentSchema:
    """The strictest form that the provider takes, no stricter than ``first``."""
    return _choose_form(compact_json(schema), dialect, first)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _choose_form(text: str, dialect: Dialect, first: Form) -> SentSchema:
    schema = json.loads(text)
    with suppress(NotStrict, RecursionError):
        if first == "strict" and _fits(strict := lower_schema(schema, dialect), dialect):
            return SentSchema("strict", strict)
    return SentSchema("unenforced" if dialect == "openai" and first != "words" else "words", schema)


def lower_schema(schema: Json, dialect: Dialect) -> dict[str, Any]:
    """The strict schema. Raises NotStrict: it has no strict form; the message names the part."""
    lowering = _Lowering(schema, dialect)
    root = lowering.lower(schema)
    if root.get("type") != "object":
        raise NotStrict("an answer that is no object")
    return {**root, "$defs": lowering.used} if lowering.used else root


class _Lowering:
    """One schema on its way. ``used`` are the lowered definitions that something refers to."""

    def __init__(self, root: Json, dialect: Dialect) -> None:
        self.definitions: dict[str, Json] = root.get("$defs", {}) if isinstance(root, dict) else {}
        self.used: dict[str, dict[str, Any]] = {}
        self._dialect = dialect
        self._pending: set[str] = set()

    def lower(self, schema: Json) -> dict[str, Any]:
        """The strict form of a part."""
        if not isinstance(schema, dict):
            raise NotStrict("a place for any value")
        if inexpressible := next((key for key in _INEXPRESSIBLE if key in schema), None):
            raise NotStrict(f'"{inexpressible}"')
        combined = next((key for key in _COMBINED if key in schema), None)
        if combined and not set(schema) - _ANNOTATIONS - {combined}:
            return self._lower_combined(schema, combined)
        types = _types_of(schema)
        if not types:
            raise NotStrict("a place for any value")
        if len(types) == 1:
            return self._lower_type(schema, types[0])
        bare = {k: v for k, v in schema.items() if k not in _ANNOTATIONS}
        return {**_describe(schema, schema), "anyOf": [self._lower_type(bare, name) for name in types]}

    def _lower_combined(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        notes, options = _describe(schema, schema), schema[key]
        if key == "$ref":
            reference = self._lower_reference(options)
            return {**notes, "anyOf": [reference]} if notes else reference
        if not options or (key == "allOf" and len(options) > 1):
            raise NotStrict(f'"{key}"')
        if key == "allOf":
            return {**self.lower(options[0]), **notes}
        parts: dict[str, dict[str, Any]] = {}  # by their text: thousands of alternatives are not compared pairwise
        for option in options:
            lowered = {"anyOf": []} if option is False else self.lower(option)
            for part in lowered["anyOf"] if set(lowered) == {"anyOf"} else [lowered]:
                parts.setdefault(compact_json(part), part)
        if self._dialect == "openai" and self._share_first_property(parts.values()):
            raise NotStrict("alternatives that begin with the same property")
        return {**notes, "anyOf": [*parts.values()]}

    def _share_first_property(self, parts: Iterable[dict[str, Any]]) -> bool:
        """True when two objects begin with the same property, and no constant there tells them apart."""
        constants: dict[str, list[Json]] = {}
        for part in parts:
            target = self.used.get(part["$ref"].removeprefix(DEFS), {}) if "$ref" in part else part
            for name, first in list(target.get("properties", {}).items())[:1]:
                choices = first.get("enum", [first.get("const")])
                constants.setdefault(name, []).append(str(choices[0]) if len(choices) == 1 else "None")
        shared = (texts for texts in constants.values() if len(texts) > 1)
        return any("None" in texts or len(set(texts)) < len(texts) for texts in shared)

    def _lower_reference(self, pointer: Json) -> dict[str, Any]:
        name = str(pointer).removeprefix(DEFS)
        if pointer != DEFS + name or name not in self.definitions:
            raise NotStrict('a "$ref" to anything but a definition')
        if name in self._pending:
            if self._dialect == "anthropic":
                raise NotStrict("a schema that refers to itself")
        elif name not in self.used:
            self._pending.add(name)
            self.used[name] = self.lower(self.definitions[name])
            self._pending.discard(name)
        return {"$ref": DEFS + name}

    # -- one type ----------------------------------------------------------------

    def _lower_type(self, schema: dict[str, Any], name: str) -> dict[str, Any]:
        if name in ("object", "array") and {"enum", "const"} & set(schema):
            raise NotStrict(f"an {name} that is one of a few")
        if name == "object":
            return self._lower_object(schema)
        limits = self._supported_limits(schema, "number" if name == "integer" else name)
        if name == "array":
            items = self.lower(schema.get("items", True))
            return {"type": name, **_describe(schema, limits), "items": items, **limits}
        lowered: dict[str, Any] = {"type": name}
        if "const" in schema:
            lowered["const"] = schema["const"]
        elif "enum" in schema:
            kinds = (name, "integer") if name == "number" else (name,)
            lowered["enum"] = [value for value in schema["enum"] if _type_of(value) in kinds]
        lowered |= limits
        return {**lowered, **_describe(schema, lowered)}

    def _lower_object(self, schema: dict[str, Any]) -> dict[str, Any]:
        """An object of named properties, closed where the schema does not say that it is open."""
        properties = {k: v for k, v in schema.get("properties", {}).items() if v is not False}
        required = schema.get("required", [])
        if schema.get("additionalProperties", not properties) is not False:
            raise NotStrict("an object of any properties")
        lowered = {k: self.lower(v) for k, v in properties.items()}
        if not lowered.keys() >= set(required):
            raise NotStrict("a required property without a schema")
        if self._dialect == "openai":
            for name, part in lowered.items():
                options = part.get("anyOf", [part])
                if name not in required and _NULL not in options:
                    lowered[name] = {**(part if "anyOf" in part else {}), "anyOf": [*options, _NULL]}
        names = [k for k in lowered if self._dialect == "openai" or k in required]
        rest = {"properties": lowered, "required": names, "additionalProperties": False}
        return {"type": "object", **_describe(schema, ()), **rest}

    def _supported_limits(self, schema: dict[str, Any], name: str) -> dict[str, Any]:
        keywords = _LIMITS[self._dialect].get(name, ())
        limits = {k: v for k, v in schema.items() if k in keywords}
        if _PLAIN_PATTERN.fullmatch(limits.get("pattern", "")) is None:
            del limits["pattern"]
        if limits.get("format") not in (*_FORMATS, *(("uri",) if self._dialect == "anthropic" else ())):
            limits.pop("format", None)
        if self._dialect == "anthropic" and limits.get("minItems", 0) > 1:
            del limits["minItems"]
        if pattern := limits.get("pattern"):  # some engines search with it, some match all of the text
            start, end = "" if pattern.startswith("^") else "^.*", "" if pattern.endswith("$") else ".*$"
            limits["pattern"] = f"{start}{pattern}{end}"
        return limits


def _describe(schema: dict[str, Any], sent: Iterable[str]) -> dict[str, str]:
    """Title and description, extended by the limits of the schema that are not among those ``sent``."""
    expressed = _STRUCTURE.union(sent, _ANNOTATIONS)
    notes = [f"{k}: {compact_json(v)}" for k, v in schema.items() if k not in expressed]
    text, limits = schema.get("description", ""), truncate("; ".join(notes), _MAX_NOTES)
    text = f"{text} ({limits})" if text and limits else text or limits
    title = {"title": schema["title"]} if "title" in schema else {}
    return {**title, "description": text} if text else title


def _types_of(schema: dict[str, Any]) -> list[str]:
    """The types that a schema allows, by ``type`` or as its other keywords imply; none: any."""
    if "type" in schema:
        return schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "const" in schema or schema.get("enum"):
        kinds = set(map(_type_of, [schema["const"]] if "const" in schema else schema["enum"]))
        return [name for name in (*_TYPES[:3], *_TYPES[4:], "number") if name in kinds]
    return ["object"] if "properties" in schema else ["array"] if "items" in schema else []


def _type_of(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        return "integer" if float(value).is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _fits(schema: dict[str, Any], dialect: Dialect) -> bool:
    """True for a strict schema within the limits of the provider."""
    parts = list(subschemas(schema))
    if dialect == "anthropic":
        # 24 and 16 are documented, and count what is reached without a $ref. Users report a grammar of 7,354 bytes,
        # without texts for the reader, that was refused
        inline = list(subschemas({k: v for k, v in schema.items() if k != "$defs"}))
        optional = sum(len(part["properties"]) - len(part["required"]) for part in inline if "properties" in part)
        texts = ({k: part[k]} for part in parts for k in ("title", "description") if k in part)
        grammar = len(compact_json(schema).encode()) - sum(len(compact_json(text).encode()) - 1 for text in texts)
        return optional <= 24 and sum("anyOf" in part for part in inline) <= 16 and grammar <= 7_000  # noqa: PLR2004
    definitions: dict[str, Any] = schema.get("$defs", {})
    names = [name for part in parts for name in part.get("properties", ())]
    choices = [str(value) for part in parts for value in part.get("enum", ())]
    texts_sent = (*definitions, *names, *choices, *(str(part["const"]) for part in parts if "const" in part))
    depth, size = max(map(_depth, (schema, *definitions.values()))), sum(map(len, texts_sent))
    return len(names) <= 5_000 and depth <= 10 and len(choices) <= 1_000 and size <= 120_000  # noqa: PLR2004


def _depth(schema: dict[str, Any]) -> int:
    """Nested objects and lists; a reference ends the way."""
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in schema else []
    return (schema.get("type") in ("object", "array")) + max(map(_depth, inner), default=0)


# -- answers -----------------------------------------------------------------------


def drop_nulls(value: Json, schema: Json, definitions: dict[str, Json] | None = None) -> Json:
    """The answer without the nulls that stand for absent properties: optional ones that do not take null."""
    if definitions is None:
        definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    if isinstance(value, list):
        items = next((p["items"] for p in _alternatives(schema, definitions) if "items" in p), True)
        return value if items is True else [drop_nulls(item, items, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    part = next((p for p in _alternatives(schema, definitions) if _may_fit(p, value)), {})
    properties, required = part.get("properties", {}), part.get("required", [])
    return {
        key: drop_nulls(item, properties.get(key, True), definitions)
        for key, item in value.items()
        if item is not None or key in required or _takes_null(properties.get(key, True), definitions)
    }


def _alternatives(schema: Json, definitions: dict[str, Json]) -> Iterator[dict[str, Any]]:
    """The schemas that a value may fit, past references and unions."""
    pending, visited = [schema], set[str]()
    while pending:
        part = pending.pop()
        if not isinstance(part, dict):
            continue
        name = str(part.get("$ref", "")).removeprefix(DEFS)
        if name in definitions and name not in visited:
            visited.add(name)
            pending.append(definitions[name])
        options = [option for key in _COMBINED[1:] for option in part.get(key, ())]
        pending += reversed(options)
        if not options and "$ref" not in part:
            yield part


def _may_fit(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    """True for an object with the constants of the value: this tells the Calls of different Tools apart."""
    properties = schema.get("properties", {})
    if not properties or not all(name in value for name in schema.get("required", ())):
        return False
    constants = ((k, part["const"]) for k, part in properties.items() if isinstance(part, dict) and "const" in part)
    return all(k not in value or value[k] in (constant, None) for k, constant in constants)


def _takes_null(schema: Json, definitions: dict[str, Json]) -> bool:
    if not isinstance(schema, dict) or not set(schema) - _ANNOTATIONS:
        return True
    return any(
        None in part["enum"] if "enum" in part else "null" in (_types_of(part) or "null")
        for part in _alternatives(schema, definitions)
    )
