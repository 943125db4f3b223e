"""Sample values made from JSON Schemas, for people who look at a plan before it runs.

A sample is as full as its schema allows. Patterns, formats and bounds are not followed, so a sample may not validate.
Where a schema says nothing, the sample is UNKNOWN.
"""

from __future__ import annotations

from typing import Any, Final

from acts.language.schemas import follow
from acts.language.values import UNKNOWN, Json

# Recursive schemas have no end, and a person reads no more than this
MAX_SAMPLE_PARTS: Final = 1_000
MAX_SAMPLE_DEPTH: Final = 12
_SCALARS: Final = {"string": "sample", "integer": 0, "number": 0, "boolean": True, "null": None}


def sample(schema: Json) -> Json:
    """A sample value of a schema, of at most MAX_SAMPLE_PARTS parts."""
    return _Sampler(schema).sample(schema, 0)


class _Sampler:
    """Samples the parts of one schema, and counts them."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._remaining_parts = MAX_SAMPLE_PARTS

    def sample(self, schema: Json, depth: int) -> Json:
        """A sample of a part."""
        self._remaining_parts -= 1
        if not isinstance(schema, dict) or depth > MAX_SAMPLE_DEPTH or self._remaining_parts < 0:
            return UNKNOWN
        for key in ("const", "default", "enum", "examples"):
            if key in schema:
                return schema[key] if key in ("const", "default") else schema[key][0]
        if isinstance(schema.get("$ref"), str):
            return self.sample(follow(self._root, schema["$ref"]), depth + 1)
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
        if kind == "object" and ("properties" in schema or schema.get("additionalProperties") is False):
            return {k: self.sample(v, depth + 1) for k, v in schema.get("properties", {}).items()}
        if kind == "array":
            return [self.sample(part, depth + 1) for part in schema.get("prefixItems") or [schema.get("items", True)]]
        return _SCALARS.get(str(kind), UNKNOWN)
