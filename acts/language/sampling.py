"""Sample values made from JSON Schemas, for people who look at a plan before it runs.

A sample is as full as its schema allows. Patterns and formats are not followed, so a sample may
not validate. Where a schema says nothing, the sample is UNKNOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.schemas import follow
from acts.language.values import UNKNOWN, Json

if TYPE_CHECKING:
    from collections.abc import Mapping

# Recursive schemas have no end, and a person reads no more than this
MAX_SAMPLE_PARTS: Final = 1_000
MAX_SAMPLE_DEPTH: Final = 12
MAX_SAMPLE_ITEMS: Final = 8


def sample(schema: Json) -> Json:
    """A sample value of a schema, of at most MAX_SAMPLE_PARTS parts."""
    return _Sampler(schema).sample(schema, 0)


class _Sampler:
    """Samples the parts of one schema, and counts them."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.remaining_parts = MAX_SAMPLE_PARTS

    def sample(self, schema: Json, depth: int) -> Json:  # noqa: C901 - one case per keyword
        self.remaining_parts -= 1
        if not isinstance(schema, dict) or depth > MAX_SAMPLE_DEPTH or self.remaining_parts < 0:
            return UNKNOWN
        if "const" in schema:
            return schema["const"]
        if "default" in schema:
            return schema["default"]
        for key in ("enum", "examples"):
            if schema.get(key):
                return schema[key][0]
        target = schema.get("$ref")
        if isinstance(target, str):
            return self.sample(follow(self.root, target), depth + 1)
        if "type" not in schema and "properties" not in schema:
            for key in ("oneOf", "anyOf"):
                if schema.get(key):
                    return self.sample(schema[key][0], depth + 1)
        value = self._sample_of_type(schema, depth)
        for part in schema.get("allOf") or ():
            more = self.sample(part, depth + 1)
            if value is UNKNOWN:
                value = more
            elif isinstance(value, dict) and isinstance(more, dict):
                value = {**value, **more}
        return value

    def _sample_of_type(self, schema: dict[str, Any], depth: int) -> Json:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind == "object":
            if "properties" not in schema and schema.get("additionalProperties") is not False:
                return UNKNOWN
            return {k: self.sample(v, depth + 1) for k, v in schema.get("properties", {}).items()}
        if kind == "array":
            prefix = schema.get("prefixItems") or []
            parts = [*prefix, *[schema.get("items", True)] * MAX_SAMPLE_ITEMS]
            limit = min(MAX_SAMPLE_ITEMS, int(schema.get("maxItems", MAX_SAMPLE_ITEMS)))
            count = min(limit, max(1, len(prefix), int(schema.get("minItems", 1))))
            return [self.sample(part, depth + 1) for part in parts[:count]]
        if kind == "string":
            word = "sample"
            length = max(int(schema.get("minLength", 0)), min(len(word), int(schema.get("maxLength", len(word)))))
            return (word * 10)[:length]
        if kind in ("integer", "number"):
            return _sample_number(schema)
        return {"boolean": True, "null": None}.get(str(kind), UNKNOWN)


def _sample_number(schema: Mapping[str, Any]) -> float:
    """0, or the number nearest to 0 within the bounds, in steps of one."""
    value: float = min(0, schema.get("maximum", 0), schema.get("exclusiveMaximum", 1) - 1)
    if "minimum" in schema:
        value = max(value, schema["minimum"])
    if "exclusiveMinimum" in schema:
        value = max(value, schema["exclusiveMinimum"] + 1)
    return value
