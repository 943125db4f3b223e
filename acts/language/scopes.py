"""What of the context a Call may see: an allow-list, built here and nowhere else.

A scope is a data-like kind or a path. What is in scope becomes one merged Message per
kind, in wrapped form, without provenance and without ``_instance``. A path gives that
part and nothing beside it; a scope that finds nothing yields nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.messages import DATA_TYPES
from acts.language.values import ABSENT, Json, Names, deep_merge, list_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acts.language.references import Path


def scoped_context(
    scopes: Iterable[Path], read: Callable[[Path], Json], is_list: Callable[[Path], bool] | None = None
) -> list[dict[str, Any]]:
    """The Messages that a Call with these scopes gets: ``[]`` without scopes.

    ``is_list`` tells what stands on the way to a scope, for a reader that must not read
    it: a Call does not depend on what else is written there.
    """
    on_the_way = is_list or (lambda path: isinstance(read(path), list))
    found: dict[str, Json] = {}
    for path in scopes:
        value = read(path)
        if value is ABSENT:
            continue
        part = _frame(path, (), path.names, on_the_way, value)
        found[path.kind] = _join(found[path.kind], part) if path.kind in found else part
    return [wrap_message(kind, payload) for kind, payload in found.items()]


def wrap_message(kind: str, payload: Json) -> dict[str, Any]:
    """The wrapped Message of a kind: a kind of one's own is ``data`` with ``kind``."""
    if kind in DATA_TYPES:
        return {"type": kind, kind: payload}
    return {"type": "data", "kind": kind, "data": payload}


def _frame(path: Path, done: Names, rest: Names, is_list: Callable[[Path], bool], value: Json) -> Json:
    """``value`` in its place; a list on the way keeps its length, the rest of it null."""
    if not rest:
        return value
    inner = _frame(path, (*done, rest[0]), rest[1:], is_list, value)
    index = list_index(rest[0])
    if index is not None and is_list(type(path)(path.kind, done)):
        return [None] * index + [inner]
    return {rest[0]: inner}


def _join(old: Json, new: Json) -> Json:
    """Two parts of one kind, lists joined place by place."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: _join(old[k], v) if k in old else v for k, v in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        longer = [*old, *[None] * (len(new) - len(old))]
        return [_join(longer[i], new[i]) if i < len(new) else longer[i] for i in range(len(longer))]
    return new if old is None else old if new is None else deep_merge(old, new)
