"""A JSON Schema in few words, for the result of a Tool: ``{id: string, lines?: {sku: string, price: number}[]}``.

Only for reading: nothing is checked by it. A schema that says too much for one line loses its deepest levels.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters of one schema: some 150 tokens. What a result holds is described, not specified: its Tool checks it
MAX_NOTATION: Final = 600
_DEEPEST: Final = 6
# Characters of the description of one property, and of one constant
_MAX_NOTE: Final = 80
_MAX_CONSTANT: Final = 60
_MAX_CHOICES: Final = 12


def describe_type(schema: Json, definitions: Mapping[str, Json] | None = None) -> str:
    """The notation of a schema; ``definitions`` are those that its ``#/$defs/…`` references name."""
    for depth in range(_DEEPEST, 0, -1):
        text = _Notation(definitions or {}).of(schema, depth)
        if len(text) <= MAX_NOTATION:
            return text
    return truncate(_Notation(definitions or {}).of(schema, 0), MAX_NOTATION)


class _Notation:
    """One schema in translation."""

    def __init__(self, definitions: Mapping[str, Json]) -> None:
        self._definitions = definitions

    def of(self, schema: Json, depth: int) -> str:
        """The notation of a schema, ``depth`` levels of objects deep."""
        if not isinstance(schema, dict):
            return "any" if schema is not False else "nothing"
        schema = self._resolve(schema)
        if "const" in schema:
            return _constant(schema["const"])
        if isinstance(schema.get("enum"), list):
            texts = [_constant(v) for v in schema["enum"][:_MAX_CHOICES]]
            return " | ".join([*texts, *(["…"] if len(schema["enum"]) > _MAX_CHOICES else [])])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return " | ".join(dict.fromkeys(self.of(s, depth) for s in schema[key]))
        types = schema.get("type")
        names = types if isinstance(types, list) else [types]
        text = " | ".join(dict.fromkeys(self._of_type(schema, name, depth) for name in names))
        return f"{text} | null" if schema.get("nullable") is True and "null" not in names else text

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema that a reference names; a circle of references ends as any value."""
        for _ in range(_DEEPEST):
            name = schema.get("$ref")
            if not isinstance(name, str):
                return schema
            target = self._definitions.get(name.removeprefix("#/$defs/"))
            schema = target if isinstance(target, dict) else {}
        return {}

    def _of_type(self, schema: dict[str, Any], name: Json, depth: int) -> str:
        if name == "array" or (name is None and "items" in schema):
            item = self.of(schema.get("items", True), depth)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if name == "object" or (name is None and "properties" in schema):
            return self._of_object(schema, depth)
        if isinstance(schema.get("format"), str) and name == "string":
            return f"string ({truncate(schema['format'], _MAX_NOTE)})"
        return name if isinstance(name, str) else "any"

    def _of_object(self, schema: dict[str, Any], depth: int) -> str:
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict) or not properties:
            rest = schema.get("additionalProperties")
            return f"{{[name]: {self.of(rest, depth - 1)}}}" if isinstance(rest, dict) and depth > 0 else "object"
        if depth <= 0:
            return "{…}"
        needed = required if isinstance(required, list) else []
        parts = [f"{k}{'' if k in needed else '?'}: {self._noted(v, depth - 1)}" for k, v in properties.items()]
        return f"{{{', '.join(parts)}}}"

    def _noted(self, schema: Json, depth: int) -> str:
        """A property: its type, and what it means."""
        note = schema.get("description") if isinstance(schema, dict) else None
        text = self.of(schema, depth)
        return f"{text} ({truncate(note, _MAX_NOTE)})" if isinstance(note, str) and note and depth > 0 else text


def _constant(value: Json) -> str:
    return truncate(json.dumps(value, ensure_ascii=False), _MAX_CONSTANT)
