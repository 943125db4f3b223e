"""YAML text as a JSON value, and the positions of its parts.

Laws of this file:
- YAML is a notation for JSON: a plain scalar is null, true, false or a number only where JSON has that number; all
  others (dates, yes, no, 0123) are strings;
- what JSON lacks is an error with its line: keys that are not strings, tags, duplicate keys, .nan, merge keys, a
  second document;
- an alias is a copy of a value; the size of all copies is bounded, and so is nesting. Nothing recurses, so no text
  can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from acts.language.values import MAX_DEPTH, Json
from cli.text.positions import DuplicateKeyError, Position, TextError, TooDeepError

# Values that aliases may add. A Request that repeats a schema a thousand times needs some ten thousand; a "billion
# laughs" is stopped early.
MAX_ALIASED: Final = 100_000

_TAG: Final = "tag:yaml.org,2002:"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, Json]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser if PyYAML was built with it

Path = tuple[str | int, ...]


@dataclass(slots=True)
class _Item:
    """A complete value; ``size`` counts the values in it, ``depth`` its levels."""

    value: Json
    size: int = 1
    depth: int = 0


@dataclass(slots=True)
class _Open:
    """A list or object that is not complete. In an object, ``key`` is the key whose value comes next."""

    value: Any
    anchor: str | None
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    depth: int = 1


def parse(text: str) -> Json:
    """The value of a YAML text.

    Raises:
        TextError: it is not YAML, or holds something that JSON lacks.
    """
    builder = _Builder()
    for _ in builder.walk(text):
        pass
    return builder.value


def positions(text: str) -> Iterator[tuple[Path, Position]]:
    """The path of every value of a YAML text with its position; in an object, the position of its key."""
    return _Builder().walk(text)


class _Builder:
    """Builds the value from the events of the parser; ``walk`` yields the positions."""

    def __init__(self) -> None:
        self.value: Json = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Item | None] = {}  # None: not complete
        self._aliased = 0
        self._documents = 0

    def walk(self, text: str) -> Iterator[tuple[Path, Position]]:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                path = self._add_event(event)
                if path is not None:
                    yield path, _position(event)
        except yaml.YAMLError as error:
            raise _syntax_error(text, error) from None

    def _path(self) -> Path:
        """The path of the next value."""
        return tuple((o.key or "") if isinstance(o.value, dict) else len(o.value) for o in self._open)

    def _add_event(self, event: Any) -> Path | None:
        """The path that the position of the event belongs to: of a key, or of a value without a key."""
        if isinstance(event, yaml.NodeEvent):
            return self._add_node(event)
        if isinstance(event, yaml.CollectionEndEvent):
            self._close(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                hint = "one file holds one request: remove the ---"
                raise TextError("a second document begins here", _position(event), hint)
        return None

    def _add_node(self, event: Any) -> Path | None:
        inner = self._open[-1] if self._open else None
        if inner is not None and isinstance(inner.value, dict) and inner.key is None:
            inner.key = _read_key(inner, event)
            return self._path()
        path = None if inner is not None and isinstance(inner.value, dict) else self._path()
        if isinstance(event, yaml.CollectionStartEvent):
            self._open_collection(event)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._copy_alias(event), event)
        else:
            item = _Item(_scalar(event))
            if event.anchor:
                self._anchors[event.anchor] = item
            self._add(item, event)
        return path

    def _open_collection(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise TooDeepError(_position(event))
        is_object = isinstance(event, yaml.MappingStartEvent)
        if event.tag and event.tag not in (_TAG + ("map" if is_object else "seq"), "!"):
            raise _tag_error(event)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open({} if is_object else [], event.anchor))

    def _close(self, event: Any) -> None:
        closed = self._open.pop()
        item = _Item(closed.value, closed.size, closed.depth)
        if closed.anchor:
            self._anchors[closed.anchor] = item
        self._add(item, event)

    def _add(self, item: _Item, event: Any) -> None:
        if not self._open:
            self.value = item.value
            return
        inner = self._open[-1]
        inner.size += item.size
        inner.depth = max(inner.depth, item.depth + 1)
        if len(self._open) + item.depth > MAX_DEPTH:
            raise TooDeepError(_position(event))
        if isinstance(inner.value, list):
            inner.value.append(item.value)
        elif inner.key is not None:
            inner.value[inner.key] = item.value
            inner.key = None

    def _copy_alias(self, event: Any) -> _Item:
        name, position = event.anchor, _position(event)
        if name not in self._anchors:
            raise TextError(f"the alias *{name} has no anchor &{name} before it", position)
        item = self._anchors[name]
        if item is None:
            raise TextError(f"the alias *{name} is inside its own anchor", position, "JSON cannot contain itself")
        self._aliased += item.size
        if self._aliased > MAX_ALIASED:
            text = f"the aliases expand to more than {MAX_ALIASED:,} values"
            raise TextError(text, position, "write less, or use data messages")
        return item


def _read_key(inner: _Open, event: Any) -> str:
    position = _position(event)
    if not isinstance(event, yaml.ScalarEvent):
        raise TextError("a key is a string, not a list, an object or an alias", position)
    key = _scalar(event)
    if not isinstance(key, str):
        raise TextError(f"the key {event.value} is not a string", position, f'write it in quotes: "{event.value}"')
    if key == "<<" and not event.style:
        hint = "repeat the fields, or alias a whole value"
        raise TextError('JSON has no merge key "<<"', position, hint)
    if key in inner.lines:
        raise DuplicateKeyError(key, inner.lines[key], position)
    inner.lines[key] = position.line
    return key


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(event: Any) -> Json:
    text = event.value
    if event.tag in ("!", _TAG + "str") or (event.tag is None and not event.implicit[0]):
        return text
    value = _plain_scalar(text, _position(event))
    if event.tag is None or event.tag == _TAG + _core_type(value):
        return value
    raise _tag_error(event)


def _core_type(value: Json) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "str")


def _plain_scalar(text: str, position: Position) -> Json:
    """The value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise TextError(f"{text} is not a JSON number", position, "use null, or leave the key out")
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    try:
        return float(text) if number.group(1) or number.group(2) else int(text)
    except ValueError:
        hint = "write it as a string, in quotes"
        raise TextError("a number has more digits than can be read", position, hint) from None


def _tag_error(event: Any) -> TextError:
    hint = "JSON has strings, numbers, true, false, null, lists and objects"
    return TextError(f"the tag {event.tag.replace(_TAG, '!!')} has no meaning here", _position(event), hint)


def _syntax_error(text: str, error: yaml.YAMLError) -> TextError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = Position(mark.line + 1, mark.column + 1) if mark is not None else None
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    char = _char(text, position) if position is not None else ""
    hint = None
    if isinstance(error, yaml.reader.ReaderError):
        at = int(error.position)
        position = Position(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        problem = f"the character U+{ord(text[at]) if at < len(text) else 0:04X} is not allowed"
        hint = 'write it as an escape inside double quotes, like "\\u0007"'
    elif "tab" in problem or char == "\t":
        hint = "YAML is indented with spaces, never with tabs"
    elif "mapping values are not allowed" in problem:
        hint = 'write a text that holds ": " in quotes'
    elif char and char in "@`%*&!|>":
        hint = f"write a text that begins with {char} in quotes"
    return TextError(f"not valid YAML: {problem}", position, hint)


def _char(text: str, position: Position) -> str:
    rows = text.splitlines()
    row = rows[position.line - 1] if position.line <= len(rows) else ""
    return row[position.column - 1 : position.column]
