"""JSON values: what is absent, how paths lead into them, how they merge.

Values are never changed in place. ``UNKNOWN`` stands for a value that a dry run
cannot know: whatever is read below it is unknown too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = Any
Names = tuple[str, ...]
Place = tuple[str | int, ...]
"""Where a part is inside a JSON value: keys and indexes, outermost first."""

# Deeper JSON than this is refused: recursive checks (JSON Schema included) spend
# several Python frames per level, and the interpreter stops at 1,000.
MAX_DEPTH: Final = 100


class _Marker:
    """A value that is not JSON; compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __copy__(self) -> _Marker:
        return self

    def __deepcopy__(self, _: object) -> _Marker:
        return self


ABSENT: Final = _Marker("ABSENT")
UNKNOWN: Final = _Marker("UNKNOWN")


# An index of more digits is in no list that fits into memory
MAX_INDEX_DIGITS: Final = 9


def list_index(name: str) -> int | None:
    """The index a name stands for in a list, or None. Only canonical digits count."""
    if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) <= MAX_INDEX_DIGITS:
        return int(name)
    return None


def get(value: Json, names: Names) -> Json:
    """What ``names`` lead to inside ``value``, or ABSENT. Unknown stays unknown."""
    for name in names:
        if isinstance(value, dict):
            if name not in value:
                return ABSENT
            value = value[name]
        elif isinstance(value, list):
            index = list_index(name)
            if index is None or index >= len(value):
                return ABSENT
            value = value[index]
        elif value is UNKNOWN:
            return UNKNOWN
        else:
            return ABSENT
    return value


def nest(names: Names, value: Json) -> Json:
    """``nest(("a", "b"), 1)`` is ``{"a": {"b": 1}}``."""
    for name in reversed(names):
        value = {name: value}
    return value


def deep_merge(old: Json, new: Json) -> Json:
    """Objects merge key by key; anything else, lists included, is replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for key, value in new.items():
            merged[key] = deep_merge(merged[key], value) if key in merged else value
        return merged
    return new


def replace_parts(value: Json, replacements: Iterable[tuple[Place, Json]]) -> Json:
    """``value`` with the parts at these places replaced, none of which lies inside another.

    Containers on the way to a place are copied, once each; everything else is shared.
    """
    holder: list[Json] = [value]
    owned = {id(holder)}
    for place, part in replacements:
        container: Any = holder
        key: str | int = 0
        for token in place:
            child = container[key]
            if id(child) not in owned:
                child = container[key] = child.copy()
                owned.add(id(child))
            container, key = child, token
        container[key] = part
    return holder[0]


def type_name(value: Json) -> str:
    """JSON's own word for the type of a value, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    for kind, name in ((str, "string"), (list, "list"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "nothing" if value is ABSENT else "unknown"


def pointer(*tokens: str | int) -> str:
    """A JSON pointer (RFC 6901) of these tokens."""
    return "".join("/" + str(t).replace("~", "~0").replace("/", "~1") for t in tokens)


def defect(value: Json, depth_limit: int = MAX_DEPTH) -> tuple[str, str] | None:
    """The first thing that makes ``value`` unfit to be kept, as (pointer, reason).

    Refused: nesting beyond ``depth_limit``, numbers that are not finite, strings or keys
    that are not valid Unicode (a lone surrogate), keys and values that are not JSON.
    Iterative, so that no input can exhaust the stack.
    """
    stack: list[tuple[Json, int, tuple[str | int, ...]]] = [(value, 0, ())]
    while stack:
        item, depth, path = stack.pop()
        if isinstance(item, (dict, list)):
            if depth >= depth_limit:
                return pointer(*path[:8]) + "/…", f"nested deeper than {depth_limit} levels"
            for key, child in item.items() if isinstance(item, dict) else enumerate(item):
                why = _key_defect(key)
                if why:
                    return pointer(*path), why
                if child is not None and type(child) is not int:
                    stack.append((child, depth + 1, (*path, key)))
        else:
            why = _scalar_defect(item)
            if why:
                return pointer(*path), why
    return None


def _key_defect(key: str | int) -> str | None:
    if isinstance(key, int):
        return None  # an index, or a key that only Python could make: json turns it into a string
    return (
        None if key.isascii() or not _lone_surrogate(key) else "a key is not valid Unicode: it holds a lone surrogate"
    )


def _scalar_defect(item: Json) -> str | None:
    if isinstance(item, str):
        if item.isascii() or not _lone_surrogate(item):
            return None
        return "the string is not valid Unicode: it holds a lone surrogate"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{item} is not a JSON number"
    if item is None or isinstance(item, (bool, int)) or item is UNKNOWN:
        return None
    return f"{type(item).__name__} is not a JSON value"


def _lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
