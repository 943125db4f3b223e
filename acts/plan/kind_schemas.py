"""What the schemas of a context say of the paths that Calls write: nothing, that nothing is allowed, or a schema.

The latest schema of a kind counts. Only plain ``properties`` are followed. Each path is looked up once: a plan of
20,000 Calls may write to as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.language.schema_forms import is_self_contained, part_of
from acts.language.schemas import Checker, checker, schema_defect
from acts.language.values import ABSENT, Json, Names, get

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.language.messages import Data
    from acts.language.references import Path

# Keywords that say more of a property than ``properties`` does
_UNFOLLOWED: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties", "nullable"})


class KindSchemas:
    """The schemas of a context by kind; those that are no valid schemas are left out."""

    def __init__(self, data: Iterable[Data]) -> None:
        schemas = {message.kind: message.schema for message in data if message.schema is not None}
        self._by_kind = {kind: schema for kind, schema in schemas.items() if schema_defect(schema) is None}
        self._checks: dict[Path, Checker | bool] = {}

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def forbids(self, path: Path) -> bool:
        """True when the kind's schema allows nothing at the path."""
        return self._check(path) is False

    def check_at(self, path: Path) -> Checker | None:
        """The check of the values at a path; None where no schema says anything."""
        check = self._check(path)
        return check if isinstance(check, Checker) else None

    def _check(self, path: Path) -> Checker | bool:
        """The check of a path; True where everything, False where nothing is allowed."""
        if path not in self._checks:
            self._checks[path] = self._find_check(path)
        return self._checks[path]

    def _find_check(self, path: Path) -> Checker | bool:
        schema = self._by_kind.get(path.kind)
        part = _schema_at(schema, path.names)
        if not isinstance(part, dict) or not isinstance(schema, dict):
            return part is not False
        if is_self_contained(part) and part_of(part, schema) is part:  # it refers to nothing outside of it
            return checker(part)
        return checker(schema).at(path.names) if is_self_contained(part) else True


def _schema_at(schema: Json, names: Names) -> Json:
    """The part of a schema for a path: False where it allows nothing, None where it says nothing."""
    for name in names:
        if not isinstance(schema, dict):
            return schema if schema is False else None
        if not _UNFOLLOWED.isdisjoint(schema):
            return None
        kind = schema.get("type", "object")
        if kind not in ("object", ["object"]) and "object" not in kind:
            return False
        inner = get(schema, ("properties", name))
        schema = schema.get("additionalProperties", None) if inner is ABSENT else inner
        if schema is True:
            return None
    return schema
