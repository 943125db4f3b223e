"""What writes do to JSON values: a write as single effects, and a value with an effect applied.

When an effect applies, and to what, is for the context log to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.language.output_methods import GROWING_METHODS
from acts.language.values import ABSENT, UNKNOWN, Json, Names

if TYPE_CHECKING:
    from collections.abc import Iterator


def split_write(names: Names, method: str, value: Json) -> Iterator[tuple[Names, str, Json]]:
    """A write as single effects: ``set``, ``ensure`` (make it an object), ``push``, ``concat``."""
    if method in ("merge", "root", "assign") and isinstance(value, dict):
        if not value or method == "root":
            yield names, "ensure", None
        for key, part in value.items():
            yield from split_write((*names, key), "set" if method == "assign" else "root", part)
        return
    yield names, method if method in GROWING_METHODS else "set", value


def apply_effect(root: Json, names: Names, operation: str, value: Json, owned: dict[int, Json]) -> Json:
    """``root`` with one effect applied. The containers in ``owned``, by id, may be changed in place."""
    if not names:
        return _combine(root, operation, value, owned)
    root = node = _own_object(root, owned)
    if node is UNKNOWN:
        return UNKNOWN
    for name in names[:-1]:
        child = _own_object(node.get(name, ABSENT), owned)
        node[name] = child
        if child is UNKNOWN:
            return root
        node = child
    node[names[-1]] = _combine(node.get(names[-1], ABSENT), operation, value, owned)
    return root


def _own_object(value: Json, owned: dict[int, Json]) -> Json:
    """A copy of an object that may be changed in place; empty for anything but an object."""
    if value is UNKNOWN or (isinstance(value, dict) and id(value) in owned):
        return value
    copy = dict(value) if isinstance(value, dict) else {}
    owned[id(copy)] = copy
    return copy


def _combine(old: Json, operation: str, value: Json, owned: dict[int, Json]) -> Json:
    if operation == "set":
        return value
    if old is UNKNOWN:
        return UNKNOWN
    if operation == "ensure":
        return old if isinstance(old, dict) else {}
    if operation == "push":
        if isinstance(old, list) and id(old) in owned:
            old.append(value)
            return old
        extended = [*old, value] if isinstance(old, list) else [value]
        owned[id(extended)] = extended
        return extended
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(old, list) and isinstance(value, list):
        if id(old) not in owned:
            old = old.copy()
            owned[id(old)] = old
        old.extend(value)
        return old
    same_type = isinstance(old, str) and isinstance(value, str)
    return old + value if same_type else value
