"""Schemas as JSON: their parts, ``nullable`` written out, and where a ``$ref`` leads. Nothing is checked here.

Schemas come from outside: every function takes any JSON for one and none recurses deeper than JSON nests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

# Keywords whose argument is a schema, a list of schemas, or a map of names to schemas
NESTED: Final = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPPED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED_SET: Final = frozenset(NESTED)
_LISTED_SET: Final = frozenset(LISTED)
_MAPPED_SET: Final = frozenset(MAPPED)


def direct_parts(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Each schema directly inside a schema, with its place, such as ``("allOf", 0)`` or ``("properties", "a")``."""
    for key, argument in schema.items():
        if key in _NESTED_SET:
            yield (key,), argument
        elif key in _LISTED_SET and isinstance(argument, list):
            yield from (((key, i), part) for i, part in enumerate(argument))
        elif key in _MAPPED_SET and isinstance(argument, dict):
            yield from (((key, name), part) for name, part in argument.items())


def subschemas(schema: Json) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it that is an object, each before its parts."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend([inner for _, inner in direct_parts(part)][::-1])


def with_null(schema: Json) -> Json:
    """The schema with ``nullable: true`` written as JSON Schema. Values (``const``, ``enum`` …) stay."""
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key, argument in schema.items():
        if key in _NESTED_SET:
            out[key] = with_null(argument)
        elif key in _LISTED_SET and isinstance(argument, list):
            out[key] = [with_null(s) for s in argument]
        elif key in _MAPPED_SET and isinstance(argument, dict):
            out[key] = {k: with_null(v) for k, v in argument.items()}
    return _nullable(out) if out.pop("nullable", None) is True else out


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with null allowed. Every part keeps its place, which a ``$ref`` may lead to."""
    out = dict(schema)
    if "type" in out:
        kinds = out["type"] if isinstance(out["type"], list) else [out["type"]]
        out["type"] = [*kinds, "null"] if "null" not in kinds else kinds
    if isinstance(out.get("enum"), list):
        out["enum"] = [*out["enum"], None]
    if "const" in out:
        out["enum"] = [out.pop("const"), None]
    for key in ("anyOf", "oneOf"):
        if isinstance(out.get(key), list):
            out[key] = [*out[key], {"type": "null"}]
    if "$ref" in out or "allOf" in out:
        moved = {k: out.pop(k) for k in ("$ref", "allOf") if k in out}
        rest = out.pop("anyOf", None)
        out["anyOf"] = [moved if rest is None else {**moved, "anyOf": rest}, {"type": "null"}]
    return out


def follow(root: Json, ref: str) -> Json:
    """The part of a schema that a ``$ref`` of ``#/…`` leads to; True (anything) where it leads nowhere."""
    value = root
    for token in ref.removeprefix("#").strip("/").split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if key:
            value = value.get(key, True) if isinstance(value, dict) else True
    return value


def with_defs(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema, with the ``$defs`` of the whole where it refers to any."""
    if "$defs" not in schema or not isinstance(part, dict) or not any("$ref" in inner for inner in subschemas(part)):
        return part
    return {**part, "$defs": schema["$defs"]}


def part_of(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema with all that it refers to, or None when that is more than ``$defs``."""
    if not isinstance(part, dict):
        return part
    complete = with_defs(part, schema)
    return complete if is_self_contained(complete) else None


def is_self_contained(schema: Json) -> bool:
    """True when every ``$ref`` leads into ``$defs``: a part can be checked with these alone."""
    return all(str(part.get("$ref", "#/$defs/")).startswith("#/$defs/") for part in subschemas(schema))
