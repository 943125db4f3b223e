"""What a value is made of: which Messages wrote which part of it, as of any place in the log.

The fold of ``context`` once more, with the writer kept beside each part and nothing thrown
away: a place keeps all that ever stood there, with the point from which it did. So a value
can be taken apart as of any Message, and that costs what the value has of parts, however
long the log is. What a later write replaced has no part in a value; nor has a Message that
only made the object or list in which others wrote.

A *point* is the index of a Message. As of ``n`` means: of the Messages before that point.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from acts.language.values import ABSENT, Json, Names, get, list_index

if TYPE_CHECKING:
    from acts.language.messages import Data
    from acts.language.references import Path

_FIRST: Final = -2  # before every Message
_SHARED: Final = -1  # of global Messages in the view of an instance: they stand below its own
# Places of one Message in one value that are kept: more of them are not read
MAX_PLACES: Final = 4
_point = itemgetter(0)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


@dataclass(slots=True)
class WrittenValue:
    """What one Message put at a place (``by``), and what later ones wrote into it.

    ``over`` are the names of an object that were written later, ``added`` what was appended
    to a list or string: point, Message, what.
    """

    value: Json
    by: int
    over: dict[str, _Place] = field(default_factory=dict)
    added: list[tuple[int, int, Json]] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    """All that ever stood at one place, oldest first, each with its point."""

    history: list[tuple[int, WrittenValue]] = field(default_factory=list)

    def put(self, point: int, written: WrittenValue) -> WrittenValue:
        self.history.append((point, written))
        return written

    @property
    def last(self) -> WrittenValue | None:
        return self.history[-1][1] if self.history else None

    def as_of(self, point: int) -> WrittenValue | None:
        at = bisect_left(self.history, point, key=_point)
        return self.history[at - 1][1] if at else None


class ValueWriters:
    """The view of the global Messages, or with ``own`` that of an instance."""

    def __init__(self, shared: Iterable[Data], own: Iterable[Data] | None = None) -> None:
        self._kinds: dict[str, _Place] = {}
        for message in shared:
            self._take(message, message.index if own is None else _SHARED)
        for message in own or ():
            self._take(message, message.index)

    # -- writing ---------------------------------------------------------------

    def _take(self, message: Data, point: int) -> None:
        names: Names = ()
        method, value = "merge", message.payload
        if message.path is not None and value is not ABSENT:
            names, method, value = message.path.names, message.method, get(message.payload, message.path.names)
        if value is ABSENT:
            return
        place = self._kinds.setdefault(message.kind, _Place())
        for name in names:
            node = place.last
            if node is None or not isinstance(node.value, dict):
                node = place.put(point, WrittenValue({}, message.index))
            place = _inner(node, name)
        _apply(place, method, value, point, message.index)

    # -- reading ---------------------------------------------------------------

    def kinds(self, point: int) -> list[str]:
        """The kinds that hold something as of a point."""
        return [kind for kind, place in self._kinds.items() if place.as_of(point) is not None]

    def find(self, path: Path, point: int) -> WrittenValue | None:
        """What stands at a path as of a point, or None."""
        place = self._kinds.get(path.kind)
        node = place.as_of(point) if place is not None else None
        for name in path.names:
            node = _child(node, name, point) if node is not None else None
        return node


def _inner(node: WrittenValue, name: str) -> _Place:
    """The place of a name in an object, from now on with a history of its own."""
    place = node.over.get(name)
    if place is None:
        place = node.over[name] = _Place()
        if name in node.value:
            place.put(_FIRST, WrittenValue(node.value[name], node.by))
    return place


def _apply(place: _Place, method: str, value: Json, point: int, by: int) -> None:
    """One write at its place. Where the kinds do not meet, the value stands alone, as in ``context``."""
    node = place.last
    if method == "push":
        method, value = "concat", [value]
        if node is None or not isinstance(node.value, list):
            node = place.put(point, WrittenValue([], by))
    alike = node is not None and type(node.value) is type(value)
    if node is None or not alike or method == "set":
        place.put(point, WrittenValue(value, by))
    elif method == "concat" and isinstance(value, (list, str)):
        node.added.append((point, by, value))
    elif method in ("merge", "assign") and isinstance(value, dict):
        for name, part in value.items():
            _apply(_inner(node, name), "merge" if method == "merge" else "set", part, point, by)
    else:
        place.put(point, WrittenValue(value, by))


def _child(node: WrittenValue, name: str, point: int) -> WrittenValue | None:
    if isinstance(node.value, dict):
        place = node.over.get(name)
        found = place.as_of(point) if place is not None else None
        if found is None and name in node.value:
            return WrittenValue(node.value[name], node.by)
        return found
    index = list_index(name) if isinstance(node.value, list) else None
    if index is None:
        return None
    for part, by in _runs(node, point):
        if index < len(part):
            return WrittenValue(part[index], by)
        index -= len(part)
    return None


def _runs(node: WrittenValue, point: int) -> Iterator[tuple[Json, int]]:
    """The pieces of a list or string in their order, each with its writer."""
    yield node.value, node.by
    for when, by, piece in node.added:
        if when >= point:
            return
        yield piece, by


def _names(node: WrittenValue, point: int) -> list[str]:
    """The names of an object, in the order in which they came."""
    later = (n for n, place in node.over.items() if n not in node.value and place.as_of(point) is not None)
    return [*node.value, *later]


def writers(node: WrittenValue, point: int, most: int | None = MAX_PLACES) -> dict[int, list[Names]]:
    """The Messages that a value is made of, oldest first, each with the places below it that are its own.

    At most ``most`` places of each. What was appended to a list is at the place of its first element.
    """
    out: dict[int, list[Names]] = {}
    stack: list[tuple[Names, WrittenValue]] = [((), node)]
    while stack:
        names, part = stack.pop()
        for at, by in _own(part, names, point, most):
            places = out.setdefault(by, [])
            if most is None or len(places) < most:
                places.append(at)
        if part.over:
            inner = [(n, place.as_of(point)) for n, place in part.over.items()]
            stack += [((*names, n), child) for n, child in reversed(inner) if child is not None]
    return dict(sorted(out.items()))


def _own(node: WrittenValue, names: Names, point: int, most: int | None) -> Iterator[tuple[Names, int]]:
    """What of a node is told with no other one: all of it, the names that nobody wrote over, or its pieces."""
    if node.added:
        yield from _pieces(node, names, point)
    elif not isinstance(node.value, dict) or not node.over:
        yield names, node.by
    elif any(name in node.over for name in node.value):
        left = (name for name in node.value if name not in node.over)
        yield from (((*names, name), node.by) for name in islice(left, most))
    elif node.value or not _names(node, point):
        yield names, node.by


def _pieces(node: WrittenValue, names: Names, point: int) -> Iterator[tuple[Names, int]]:
    """A list or string that grew: who wrote its beginning, who appended; of an empty one who wrote it."""
    found = [(part, by) for part, by in _runs(node, point) if part]
    if not found:
        yield names, node.by
    at = 0
    for part, by in found:
        yield ((*names, str(at)) if isinstance(part, list) and part is not node.value else names), by
        at += len(part)


def value_of(node: WrittenValue, point: int) -> Json:
    """The value itself."""
    if isinstance(node.value, dict) and node.over:
        return {n: value_of(child, point) for n in _names(node, point) if (child := _child(node, n, point)) is not None}
    if not node.added:
        return node.value
    if isinstance(node.value, str):
        return "".join(part for part, _ in _runs(node, point))
    return [item for part, _ in _runs(node, point) for item in part]


def shortened(node: WrittenValue, point: int, limit: int) -> tuple[str, bool]:
    """The JSON of a value up to ``limit`` characters, and whether this is all of it."""
    out: list[str] = []
    left = limit
    for chunk in _chunks(node, point):
        out.append(chunk)
        left -= len(chunk)
        if left < 0:
            return "".join(out)[:limit], False
    return "".join(out), True


def _chunks(node: WrittenValue, point: int) -> Iterator[str]:
    """The JSON of a value, piece by piece: who wants its beginning pays for its beginning."""
    if isinstance(node.value, dict) and node.over:
        yield "{"
        for place, name in enumerate(_names(node, point)):
            child = _child(node, name, point)
            if child is not None:
                yield f"{', ' if place else ''}{_ENCODER.encode(name)}: "
                yield from _chunks(child, point)
        yield "}"
    elif isinstance(node.value, list) and node.added:
        items = (item for part, _ in _runs(node, point) for item in part)
        yield "["
        for place, item in enumerate(items):
            yield ", " if place else ""
            yield from _ENCODER.iterencode(item)
        yield "]"
    else:
        yield from _ENCODER.iterencode(value_of(node, point))
