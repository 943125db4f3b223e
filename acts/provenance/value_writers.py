"""The parts of a value by the Message that wrote them, as of any point of a context.

This folds Messages like ``context_log``, with two differences: each part keeps its writer, and
nothing is discarded. A slot keeps every value that it ever held, with the point from which it did,
so that a value can be taken apart as of any Message. That costs time in the parts of the value,
however long the context is. (``context_log`` folds old values away to stay linear; it cannot serve
both.) A Message whose part was replaced is no writer of the value, nor is one that only made the
object or list in which others wrote.

A *point* is the index of a Message; "as of n" means of the Messages before n.
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
_SHARED: Final = -1  # of the global Messages in the view of an instance: they come before its own
# Paths of one Message within one value that are reported: nobody reads more
MAX_PATHS: Final = 4
_point = itemgetter(0)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


@dataclass(slots=True)
class WrittenValue:
    """The value that one Message (``by``) put into a slot, and what later Messages wrote into it.

    ``overwritten`` are the properties of an object that were written later, ``added`` what was appended to
    a list or string: ``(point, Message, value)``. ``item`` is its index in the list that the Message wrote.
    """

    value: Json
    by: int
    overwritten: dict[str, _Slot] = field(default_factory=dict)
    added: list[tuple[int, int, Json]] = field(default_factory=list)
    item: int | None = None


@dataclass(slots=True)
class _Slot:
    """All values that one path ever held, oldest first, each with its point."""

    history: list[tuple[int, WrittenValue]] = field(default_factory=list)

    def put(self, point: int, written: WrittenValue) -> WrittenValue:
        self.history.append((point, written))
        return written

    @property
    def latest(self) -> WrittenValue | None:
        return self.history[-1][1] if self.history else None

    def as_of(self, point: int) -> WrittenValue | None:
        at = bisect_left(self.history, point, key=_point)
        return self.history[at - 1][1] if at else None


class ValueWriters:
    """The fold of the global Messages, or with ``own`` the view of an instance."""

    def __init__(self, shared: Iterable[Data], own: Iterable[Data] | None = None) -> None:
        self._kinds: dict[str, _Slot] = {}
        for message in shared:
            self._fold(message, message.index if own is None else _SHARED)
        for message in own or ():
            self._fold(message, message.index)

    def _fold(self, message: Data, point: int) -> None:
        names: Names = ()
        method, value = "merge", message.payload
        if message.path is not None and value is not ABSENT:
            names, method, value = message.path.names, message.method, get(message.payload, message.path.names)
        if value is ABSENT:
            return
        slot = self._kinds.setdefault(message.kind, _Slot())
        for name in names:
            node = slot.latest
            if node is None or not isinstance(node.value, dict):
                node = slot.put(point, WrittenValue({}, message.index))
            slot = _property_slot(node, name)
        _write(slot, method, value, point, message.index)

    def kinds(self, point: int) -> list[str]:
        """The kinds that hold something as of a point."""
        return [kind for kind, slot in self._kinds.items() if slot.as_of(point) is not None]

    def find(self, path: Path, point: int) -> WrittenValue | None:
        """The value at a path as of a point, or None."""
        slot = self._kinds.get(path.kind)
        node = slot.as_of(point) if slot is not None else None
        for name in path.names:
            node = _child(node, name, point) if node is not None else None
        return node


# -- writing -------------------------------------------------------------------


def _property_slot(node: WrittenValue, name: str) -> _Slot:
    """The slot of an object's property, which has a history of its own from now on."""
    slot = node.overwritten.get(name)
    if slot is None:
        slot = node.overwritten[name] = _Slot()
        if name in node.value:
            slot.put(_FIRST, WrittenValue(node.value[name], node.by))
    return slot


def _write(slot: _Slot, method: str, value: Json, point: int, by: int) -> None:
    """One write. If the types do not match, the new value replaces the old one, as in ``context_log``."""
    node = slot.latest
    if method == "push":
        method, value = "concat", [value]
        if node is None or not isinstance(node.value, list):
            node = slot.put(point, WrittenValue([], by))
    same_type = node is not None and type(node.value) is type(value)
    if node is None or not same_type or method == "set":
        slot.put(point, WrittenValue(value, by))
    elif method == "concat" and isinstance(value, (list, str)):
        node.added.append((point, by, value))
    elif method in ("merge", "assign") and isinstance(value, dict):
        for name, part in value.items():
            _write(_property_slot(node, name), "merge" if method == "merge" else "set", part, point, by)
    else:
        slot.put(point, WrittenValue(value, by))


# -- reading -------------------------------------------------------------------


def _child(node: WrittenValue, name: str, point: int) -> WrittenValue | None:
    if isinstance(node.value, dict):
        slot = node.overwritten.get(name)
        written = slot.as_of(point) if slot is not None else None
        if written is None and name in node.value:
            return WrittenValue(node.value[name], node.by)
        return written
    index = list_index(name) if isinstance(node.value, list) else None
    if index is None:
        return None
    for piece, by in _pieces_with_writer(node, point):
        if index < len(piece):
            return WrittenValue(piece[index], by, item=index)
        index -= len(piece)
    return None


def _pieces_with_writer(node: WrittenValue, point: int) -> Iterator[tuple[Json, int]]:
    """The pieces of a list or string in their order."""
    yield node.value, node.by
    for when, by, piece in node.added:
        if when >= point:
            return
        yield piece, by


def _names(node: WrittenValue, point: int) -> list[str]:
    """The names of an object's properties, in the order in which they were added."""
    later = (n for n, slot in node.overwritten.items() if n not in node.value and slot.as_of(point) is not None)
    return [*node.value, *later]


def find_writers(node: WrittenValue, point: int, limit: int | None = MAX_PATHS) -> dict[int, list[Names]]:
    """The Messages that wrote a value, oldest first, each with the paths inside the value that only it wrote.

    At most ``limit`` paths of each. What was appended to a list is at the path of its first item.
    """
    out: dict[int, list[Names]] = {}
    stack: list[tuple[Names, WrittenValue]] = [((), node)]
    while stack:
        names, part = stack.pop()
        for at, by in _exclusive_parts(part, names, point, limit):
            paths = out.setdefault(by, [])
            if limit is None or len(paths) < limit:
                paths.append(at)
        if part.overwritten:
            inner = [(n, slot.as_of(point)) for n, slot in part.overwritten.items()]
            stack += [((*names, n), child) for n, child in reversed(inner) if child is not None]
    return dict(sorted(out.items()))


def _exclusive_parts(node: WrittenValue, names: Names, point: int, limit: int | None) -> Iterator[tuple[Names, int]]:
    """The parts of a node that no later Message wrote overwritten: all of it, some properties, or its pieces."""
    if node.added:
        yield from _piece_paths(node, names, point)
    elif not isinstance(node.value, dict) or not node.overwritten:
        yield names, node.by
    elif any(name in node.overwritten for name in node.value):
        untouched = (name for name in node.value if name not in node.overwritten)
        yield from (((*names, name), node.by) for name in islice(untouched, limit))
    elif node.value or not _names(node, point):
        yield names, node.by


def _piece_paths(node: WrittenValue, names: Names, point: int) -> Iterator[tuple[Names, int]]:
    """The pieces of a list or string that grew; of an empty one, the Message that made it."""
    pieces = [(piece, by) for piece, by in _pieces_with_writer(node, point) if piece]
    if not pieces:
        yield names, node.by
    at = 0
    for piece, by in pieces:
        yield ((*names, str(at)) if isinstance(piece, list) and piece is not node.value else names), by
        at += len(piece)


def build_value(node: WrittenValue, point: int) -> Json:
    """The value as of a point."""
    if isinstance(node.value, dict) and node.overwritten:
        children = ((name, _child(node, name, point)) for name in _names(node, point))
        return {name: build_value(child, point) for name, child in children if child is not None}
    if not node.added:
        return node.value
    pieces = (piece for piece, _ in _pieces_with_writer(node, point))
    return "".join(pieces) if isinstance(node.value, str) else [item for piece in pieces for item in piece]


def encode_beginning(node: WrittenValue, point: int, limit: int) -> tuple[str, bool]:
    """The JSON of a value up to ``limit`` characters, and whether this is all of it."""
    out: list[str] = []
    room = limit
    for chunk in _chunks(node, point):
        out.append(chunk)
        room -= len(chunk)
        if room < 0:
            return "".join(out)[:limit], False
    return "".join(out), True


def _chunks(node: WrittenValue, point: int) -> Iterator[str]:
    """The JSON of a value in chunks, so that its beginning costs no more than that."""
    if isinstance(node.value, dict) and node.overwritten:
        yield "{"
        for at, name in enumerate(_names(node, point)):
            child = _child(node, name, point)
            if child is not None:
                yield f"{', ' if at else ''}{_ENCODER.encode(name)}: "
                yield from _chunks(child, point)
        yield "}"
    elif isinstance(node.value, list) and node.added:
        yield "["
        for at, item in enumerate(item for piece, _ in _pieces_with_writer(node, point) for item in piece):
            yield ", " if at else ""
            yield from _ENCODER.iterencode(item)
        yield "]"
    else:
        yield from _ENCODER.iterencode(build_value(node, point))
