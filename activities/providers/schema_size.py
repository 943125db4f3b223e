"""The size of a schema as it is sent, and the sizes that the providers take.

Pure arithmetic on wire schemas. The limits are what the providers document, and for the size of Anthropic's compiled
grammar, which has no documented limit, what users report. A schema above one of them is rejected with a 400, or with a
500 after three minutes of compiling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from activities.providers.provider_keywords import Dialect, compact_json
from acts.language.schema_forms import subschemas

# OpenAI counts the characters of an enum only where it has more values than this
_LONG_ENUM: Final = 250
_TEXTS: Final = ("description", "title")


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """The measures of a schema, or their limits. 0 in a limit: there is none.

    ``optional`` and ``unions`` count what is reached from the root without following a ``$ref``: this is how Anthropic
    is reported to count. ``depth`` is that of the deepest definition, in nested objects and lists. ``grammar`` is the
    size in bytes without texts for the reader, each definition counted once. ``characters`` are those of names, enums
    and constants; ``longEnum`` those of the largest enum of more than 250 values.
    """

    optional: int = 0
    unions: int = 0
    grammar: int = 0
    properties: int = 0
    depth: int = 0
    enumValues: int = 0
    longEnum: int = 0
    characters: int = 0


LIMITS: Final[dict[Dialect, SchemaSize]] = {
    # 24 and 16 are documented. A grammar of 7,354 bytes was refused live by several models (reported by users)
    "anthropic": SchemaSize(optional=24, unions=16, grammar=7_000),
    # All documented. Depth: ten levels in each definition
    "openai": SchemaSize(properties=5_000, depth=10, enumValues=1_000, longEnum=15_000, characters=120_000),
    "unenforced": SchemaSize(),
}
"""The largest sizes that the providers take."""

_WORDS: Final = {
    "optional": "optional properties", "unions": "unions", "grammar": "bytes of grammar", "properties": "properties",
    "depth": "levels", "enumValues": "values of enums", "longEnum": "characters of one enum",
    "characters": "characters of names and choices",
}  # fmt: skip


def find_excess(size: SchemaSize, limits: SchemaSize) -> str | None:
    """The first measure above its limit, like ``9,120 bytes of grammar, and at most 7,000 are taken``."""
    for field in fields(SchemaSize):
        value, limit = getattr(size, field.name), getattr(limits, field.name)
        if limit and value > limit:
            return f"{value:,} {_WORDS[field.name]}, and at most {limit:,} are taken"
    return None


def measure_schema(schema: dict[str, Any]) -> SchemaSize:
    """The size of a wire schema. Linear in its text."""
    root = {k: v for k, v in schema.items() if k != "$defs"}
    definitions = schema.get("$defs") or {}
    inline = list(subschemas(root))
    parts = [*inline, *(part for d in definitions.values() for part in subschemas(d))]
    names = [name for part in parts for name in _properties(part)]
    enums = [part["enum"] for part in parts if isinstance(part.get("enum"), list)]
    constants = [part["const"] for part in parts if isinstance(part.get("const"), str)]
    lengths = [sum(len(str(value)) for value in enum) for enum in enums]
    return SchemaSize(
        optional=sum(len(_properties(part)) - len(part.get("required") or ()) for part in inline if _properties(part)),
        unions=sum("anyOf" in part or isinstance(part.get("type"), list) for part in inline),
        grammar=len(compact_json(_without_texts(schema)).encode()),
        properties=len(names),
        depth=max(_depth(part) for part in (root, *definitions.values())),
        enumValues=sum(map(len, enums)),
        longEnum=max((n for n, enum in zip(lengths, enums, strict=True) if len(enum) > _LONG_ENUM), default=0),
        characters=sum(map(len, (*names, *definitions, *constants))) + sum(lengths),
    )


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _without_texts(schema: Any) -> Any:
    """The schema without texts for readers. A property of such a name is a schema, and stays."""
    if isinstance(schema, list):
        return [_without_texts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: _without_texts(v) for k, v in schema.items() if k not in _TEXTS or not isinstance(v, str)}


def _depth(schema: dict[str, Any]) -> int:
    """Nested objects and lists, the outermost included; a reference ends the way."""
    deepest = 0
    pending: list[tuple[Any, int]] = [(schema, 0)]
    while pending:
        part, depth = pending.pop()
        if not isinstance(part, dict):
            continue
        depth += part.get("type") in ("object", "array")
        deepest = max(deepest, depth)
        pending += ((child, depth) for child in _children(part))
    return deepest


def _children(schema: dict[str, Any]) -> Iterator[Any]:
    yield from _properties(schema).values()
    yield from (schema[key] for key in ("items", "additionalProperties") if key in schema)
    yield from schema.get("anyOf") or ()
