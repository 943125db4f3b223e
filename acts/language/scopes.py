"""The part of the context that a Call may see: an allow-list, built here and nowhere else.

A scope is a data-like kind or a path. A Call gets one merged Message per kind in scope, in wrapped
form, without provenance and without ``_instance``. A path gives the part there and nothing beside
it. A scope at which the context holds nothing gives nothing.
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
    """The Messages that a Call with these scopes gets; ``[]`` without scopes.

    ``is_list`` tells whether a value on the way to a scope is a list, where ``read`` must not be
    asked for it: a Call does not depend on what else is written there.
    """
    is_list = is_list or (lambda path: isinstance(read(path), list))
    payloads: dict[str, Json] = {}
    for path in scopes:
        value = read(path)
        if value is ABSENT:
            continue
        part = _nest(path, (), path.names, is_list, value)
        payloads[path.kind] = _join(payloads[path.kind], part) if path.kind in payloads else part
    return [wrap_message(kind, payload) for kind, payload in payloads.items()]


def wrap_message(kind: str, payload: Json) -> dict[str, Any]:
    """The Message of a kind in wrapped form; any other than the data-like types is ``data`` with ``kind``."""
    if kind in DATA_TYPES:
        return {"type": kind, kind: payload}
    return {"type": "data", "kind": kind, "data": payload}


def _nest(path: Path, above: Names, rest: Names, is_list: Callable[[Path], bool], value: Json) -> Json:
    """``value`` nested under ``rest``; in a list it keeps its index, with null before it."""
    if not rest:
        return value
    inner = _nest(path, (*above, rest[0]), rest[1:], is_list, value)
    index = list_index(rest[0])
    if index is not None and is_list(type(path)(path.kind, above)):
        return [None] * index + [inner]
    return {rest[0]: inner}


def _join(old: Json, new: Json) -> Json:
    """Two parts of one kind as one; lists are joined index by index."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: _join(old[k], v) if k in old else v for k, v in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        longer = [*old, *[None] * (len(new) - len(old))]
        return [_join(longer[i], new[i]) if i < len(new) else longer[i] for i in range(len(longer))]
    return new if old is None else old if new is None else deep_merge(old, new)
