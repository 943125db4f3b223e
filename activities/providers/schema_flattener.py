"""A JSON Schema without ``allOf`` and without siblings of a ``$ref``: their keywords merge into one object.

It knows definitions, nothing of dialects and nodes. What does not merge, refers to itself or takes too many steps is
None: the caller sends it as JSON text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from activities.providers.provider_keywords import ANNOTATIONS, merge_schemas
from activities.providers.ref_normalizer import DEFS, without_keyword
from acts.language.errors import TooComplex
from acts.language.work_meter import WorkMeter
from acts.planner.answer_schema import properties_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.values import Json

# Steps to flatten all parts of one schema: 20,000 subschemas, each looked at a few times
MAX_FLATTEN_STEPS: Final = 100_000


class SchemaFlattener:
    """The parts of one schema. ``recursive`` are the names of the definitions that reach themselves."""

    def __init__(self, definitions: Mapping[str, Json], recursive: frozenset[str]) -> None:
        self._definitions, self._recursive = definitions, recursive
        self._meter = WorkMeter("translating the schema", MAX_FLATTEN_STEPS)

    def flatten(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """The schema without ``allOf`` and without siblings of a ``$ref``. A ``$ref`` alone stays one."""
        try:
            return self._flatten(schema)
        except TooComplex:
            return None

    def inline(self, schema: Json) -> dict[str, Any] | None:
        """The same, with its references replaced by their targets."""
        try:
            return self._inline(schema)
        except TooComplex:
            return None

    def _flatten(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        self._meter.spend(1 + len(schema) + len(properties_of(schema)) // 10)
        base = {k: v for k, v in schema.items() if k not in ("allOf", "$ref")}
        branches = schema.get("allOf", [])
        others: list[Json] = [*branches] if isinstance(branches, list) else [True]
        if "$ref" in schema:
            if not others and set(base) <= ANNOTATIONS:
                return schema
            others.insert(0, {"$ref": schema["$ref"]})
        out: dict[str, Any] | None = base
        for other in others:
            branch = self._inline(other)
            out = merge_schemas(out, branch) if branch is not None and out is not None else None
        return out

    def _inline(self, schema: Json) -> dict[str, Any] | None:
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            return None
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(DEFS)
            target = self._definitions.get(name)
            if name in self._recursive or not isinstance(target, dict):
                return None
            branches = [*target.get("allOf", []), without_keyword(schema, "$ref")]
            flat = self._flatten({**target, "allOf": branches})
            return self._inline(flat) if flat is not None and "$ref" in flat else flat
        return self._flatten(schema)
