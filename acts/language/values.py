"""JSON values: access by path, merging, and what makes a value unfit to be stored.

Values are never changed in place. ``ABSENT`` is the value of a key that does not exist. ``UNKNOWN`` is a value that a
dry run cannot know; everything below it is UNKNOWN too. ``UNKNOWN_TEXT`` is a string that it cannot know.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

Json = Any
Names = tuple[str, ...]
Place = tuple[str | int, ...]
"""Where a part is inside a JSON value: keys and indexes, outermost first."""

# Deeper JSON is refused: recursive checks spend several Python frames per level, and the interpreter stops at 1,000
MAX_DEPTH: Final = 100
# What a double can hold, as for numbers with a fraction: another reader of the JSON would find infinity
MAX_NUMBER: Final = 2**1024


class _Marker(Enum):
    """A value that is not JSON; compared by identity, copies included."""

    ABSENT = 1
    UNKNOWN = 2
    UNKNOWN_TEXT = 3

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Marker.ABSENT
UNKNOWN: Final = _Marker.UNKNOWN
UNKNOWN_TEXT: Final = _Marker.UNKNOWN_TEXT

# The name at which a list has the number of its elements
LENGTH: Final = "length"
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")  # no list with an index of more digits fits into memory


def list_index(name: str) -> int | None:
    """The list index that a name means, or None. Only canonical digits do: ``0``, ``12``, not ``01``."""
    return int(name) if _INDEX.fullmatch(name) else None


def get(value: Json, names: Names) -> Json:
    """The part of ``value`` at ``names``: ABSENT if there is none, UNKNOWN below UNKNOWN."""
    for name in names:
        if isinstance(value, dict):
            if name not in value:
                return ABSENT
            value = value[name]
        elif isinstance(value, list) and (index := list_index(name)) is not None and index < len(value):
            value = value[index]
        elif isinstance(value, list) and name == LENGTH:
            value = len(value)
        else:
            return UNKNOWN if value is UNKNOWN else ABSENT
    return value


def nest(names: Names, value: Json) -> Json:
    """``nest(("a", "b"), 1)`` is ``{"a": {"b": 1}}``."""
    for name in reversed(names):
        value = {name: value}
    return value


def deep_merge(old: Json, new: Json) -> Json:
    """``old`` with ``new`` merged into it: objects key by key, anything else (lists too) is replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for key, value in new.items():
            merged[key] = deep_merge(merged[key], value) if key in merged else value
        return merged
    return new


def replace_parts(value: Json, replacements: Iterable[tuple[Place, Json]]) -> Json:
    """``value`` with the parts at these places replaced, none inside another; what lies beside them is shared."""
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


def is_equal(one: Json, other: Json) -> bool:
    """True for equal JSON values. Numbers are equal by value, and true is no number."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


_TYPE_NAMES: Final = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object",
}  # fmt: skip


def type_name(value: Json) -> str:
    """Return the JSON type of a value, for messages; "nothing" for ABSENT, "unknown" for UNKNOWN."""
    name = _TYPE_NAMES.get(type(value))
    return name or ("string" if value is UNKNOWN_TEXT else "nothing" if value is ABSENT else "unknown")


def shape(value: Json) -> Hashable:
    """What remains of a value without the content of its scalars: its keys, lengths, types and markers."""
    if isinstance(value, dict):
        return tuple([(key, shape(part)) for key, part in value.items()])
    if isinstance(value, list):
        return ("", *[shape(part) for part in value])
    return value if isinstance(value, _Marker) else type(value).__name__


def with_article(type_: str) -> str:
    return type_ if type_ in ("null", "nothing") else f"an {type_}" if type_[0] in "aeiou" else f"a {type_}"


def pointer(*tokens: str | int) -> str:
    return "".join(["/" + str(t).replace("~", "~0").replace("/", "~1") for t in tokens])


def defect(value: Json, depth_limit: int = MAX_DEPTH) -> tuple[str, str] | None:
    """What makes ``value`` unfit to be stored, as (pointer, reason), or None.

    Refused are nesting beyond ``depth_limit``, numbers beyond a double or not finite, strings and keys that are not
    valid Unicode (lone surrogates), and values that are not JSON. It is iterative: no input exhausts the stack.
    """
    stack: list[tuple[Json, Place]] = [([value], ())]
    while stack:
        item, place = stack.pop()
        if len(place) > depth_limit:
            return pointer(*place[1:9]) + "/…", f"nested deeper than {depth_limit} levels"
        try:
            if isinstance(item, dict) and not is_unicode("".join(item)):
                return pointer(*place[1:]), "a key is not valid Unicode: it holds a lone surrogate"
        except TypeError:
            return pointer(*place[1:]), "a key is not a string"
        for key, child in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(child, (dict, list)):
                stack.append((child, (*place, key)))
            elif not (isinstance(child, str) and child.isascii()) and (reason := _scalar_defect(child)):
                return pointer(*place[1:], *([key] if place else [])), reason
    return None


def _scalar_defect(item: Json) -> str | None:
    if isinstance(item, str):
        return None if is_unicode(item) else "the string is not valid Unicode: it holds a lone surrogate"
    if item is None or isinstance(item, bool) or item is UNKNOWN or item is UNKNOWN_TEXT:
        return None
    if isinstance(item, int):
        return None if -MAX_NUMBER < item < MAX_NUMBER else "a number is beyond what a double can hold (1.8e308)"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{item} is not a JSON number"
    return f"{type(item).__name__} is not a JSON value"


def is_unicode(text: str) -> bool:
    """False for a string with a lone surrogate: it cannot be encoded."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
