"""The part of the context that a Call may see: an allow-list, built here and nowhere else.

A scope is a data-like kind or a path. A Call gets one merged Message per kind in scope, in wrapped
form, without provenance and without ``_instance``. A path gives the part there and nothing beside
it. A scope at which the context holds nothing gives nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.messages import DATA_TYPES
from acts.language.references import Path
from acts.language.values import ABSENT, Json, list_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def scoped_context(
    scopes: Iterable[Path], read: Callable[[Path], Json], is_list: Callable[[Path], bool] | None = None
) -> list[dict[str, Any]]:
    """The Messages that a Call with these scopes gets; ``[]`` without scopes.

    ``is_list`` tells whether a value on the way to a scope is a list, where ``read`` must not be
    asked for it: a Call does not depend on what else is written there.
    """
    is_list = is_list or (lambda path: isinstance(read(path), list))
    values = {path: value for path in scopes if (value := read(path)) is not ABSENT}
    payloads: dict[str, Json] = dict.fromkeys((path.kind for path in values), ABSENT)
    for path, value in values.items():
        if not any(Path(path.kind, path.names[:depth]) in values for depth in range(len(path.names))):
            payloads[path.kind] = _place(payloads[path.kind], path, 0, value, is_list)
    return [wrap_message(kind, payload) for kind, payload in payloads.items()]


def wrap_message(kind: str, payload: Json) -> dict[str, Any]:
    """The Message of a kind in wrapped form; any other than the data-like types is ``data`` with ``kind``."""
    if kind in DATA_TYPES:
        return {"type": kind, kind: payload}
    return {"type": "data", "kind": kind, "data": payload}


def _place(payload: Json, path: Path, depth: int, value: Json, is_list: Callable[[Path], bool]) -> Json:
    """``payload`` with ``value`` at the names of a path from ``depth`` on; a list has null before its index.

    No scope is below another one, so every container on the way was made here, and is changed in place.
    """
    if depth == len(path.names):
        return value
    name = path.names[depth]
    index = list_index(name)
    if index is None or not is_list(Path(path.kind, path.names[:depth])):
        part = payload if isinstance(payload, dict) else {}
        part[name] = _place(part.get(name, ABSENT), path, depth + 1, value, is_list)
        return part
    items = payload if isinstance(payload, list) else []
    items.extend([None] * (index + 1 - len(items)))
    items[index] = _place(items[index], path, depth + 1, value, is_list)
    return items
