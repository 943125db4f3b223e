"""YAML text to a JSON value, with the line of whatever is wrong in it.

Laws of this file:
- YAML is another way of writing JSON here: a plain scalar is null, true, false or a
  number where JSON has that number; anything else (dates, yes, no, 0123) is a string;
- what JSON has not is refused with its line: keys that are no strings, tags, a key
  twice, .nan, merge keys, a second document;
- aliases are values; what they unfold to is bounded, and so is nesting. Nothing is
  recursive, so no text can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from acts.language.values import MAX_DEPTH, Json
from cli.text.positions import Place, TextError, TooDeepError, TwiceError

# Values that aliases may add to those that are written out. A Request that repeats a
# schema a thousand times needs a few ten thousand; a "billion laughs" is stopped early.
MAX_ALIASED: Final = 100_000

_TAG: Final = "tag:yaml.org,2002:"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, Json]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's where it was built in


@dataclass(slots=True)
class _Item:
    """A value that was read; ``size`` counts every value in it, ``depth`` its levels."""

    value: Json
    size: int = 1
    depth: int = 0


@dataclass(slots=True)
class _Open:
    """A list or object that is being read. In an object, ``key`` is the key whose value comes next."""

    value: Any
    anchor: str | None
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    depth: int = 1


def parse(text: str) -> Json:
    """The value of a YAML text.

    Raises:
        TextError: it is not YAML, or holds what JSON has not.
    """
    reader = _Reader()
    for _ in reader.walk(text):
        pass
    return reader.value


def places(text: str) -> Iterator[tuple[tuple[str | int, ...], Place]]:
    """Every value of a YAML text with its place: of its key, for what stands in an object."""
    return _Reader().walk(text)


class _Reader:
    """Builds the value from the parser's events. ``walk`` yields places on the way."""

    def __init__(self) -> None:
        self.value: Json = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Item | None] = {}  # None: not closed yet
        self._aliased = 0
        self._documents = 0

    def walk(self, text: str) -> Iterator[tuple[tuple[str | int, ...], Place]]:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                path = self._event(event)
                if path is not None:
                    yield path, _place(event)
        except yaml.YAMLError as error:
            raise _malformed(text, error) from None

    def _path(self) -> tuple[str | int, ...]:
        """The path of what comes next."""
        return tuple((o.key or "") if isinstance(o.value, dict) else len(o.value) for o in self._open)

    def _event(self, event: Any) -> tuple[str | int, ...] | None:
        """Take one event; the path of what it names: a key, or a value that has none."""
        if isinstance(event, yaml.NodeEvent):
            return self._node(event)
        if isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                hint = "one file holds one request: remove the ---"
                raise TextError("a second document begins here", _place(event), hint)
        return None

    def _node(self, event: Any) -> tuple[str | int, ...] | None:
        inner = self._open[-1] if self._open else None
        if inner is not None and isinstance(inner.value, dict) and inner.key is None:
            inner.key = self._key(inner, event)
            return self._path()
        path = None if inner is not None and isinstance(inner.value, dict) else self._path()
        if isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._alias(event), event)
        else:
            item = _Item(_scalar(event))
            if event.anchor:
                self._anchors[event.anchor] = item
            self._add(item, event)
        return path

    def _key(self, inner: _Open, event: Any) -> str:
        place = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise TextError("a key is a string, not a list, an object or an alias", place)
        key = _scalar(event)
        if not isinstance(key, str):
            raise TextError(f"the key {event.value} is not a string", place, f'write it in quotes: "{event.value}"')
        if key == "<<" and not event.style:
            raise TextError(
                'the merge key "<<" has no place in JSON', place, "repeat the fields, or alias a whole value"
            )
        if key in inner.lines:
            raise TwiceError(key, inner.lines[key], place)
        inner.lines[key] = place.line
        return key

    def _begin(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise TooDeepError(_place(event))
        wanted = _TAG + ("map" if isinstance(event, yaml.MappingStartEvent) else "seq")
        if event.tag and event.tag not in (wanted, "!"):
            raise _unknown_tag(event)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        item = _Item(done.value, done.size, done.depth)
        if done.anchor:
            self._anchors[done.anchor] = item
        self._add(item, event)

    def _add(self, item: _Item, event: Any) -> None:
        if not self._open:
            self.value = item.value
            return
        inner = self._open[-1]
        inner.size += item.size
        inner.depth = max(inner.depth, item.depth + 1)
        if len(self._open) + item.depth > MAX_DEPTH:
            raise TooDeepError(_place(event))
        if isinstance(inner.value, list):
            inner.value.append(item.value)
        elif inner.key is not None:
            inner.value[inner.key] = item.value
            inner.key = None

    def _alias(self, event: Any) -> _Item:
        name, place = event.anchor, _place(event)
        if name not in self._anchors:
            raise TextError(f"the alias *{name} has no anchor &{name} before it", place)
        item = self._anchors[name]
        if item is None:
            raise TextError(f"the alias *{name} stands inside of what it names", place, "JSON cannot contain itself")
        self._aliased += item.size
        if self._aliased > MAX_ALIASED:
            raise TextError(
                f"the aliases unfold to more than {MAX_ALIASED:,} values", place, "write less, or use data messages"
            )
        return item


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(event: Any) -> Json:
    text, place = event.value, _place(event)
    if event.tag in ("!", _TAG + "str") or (event.tag is None and not event.implicit[0]):
        return text
    value = _plain(text, place)
    if event.tag is None or event.tag == _TAG + _core_type(value):
        return value
    raise _unknown_tag(event)


def _core_type(value: Json) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "str")


def _plain(text: str, place: Place) -> Json:
    """What a scalar without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise TextError(f"{text} is not a JSON number", place, "use null, or leave the key out")
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    try:
        return float(text) if number.group(1) or number.group(2) else int(text)
    except ValueError:
        raise TextError("a number has more digits than can be read", place, "write it as a string, in quotes") from None


def _unknown_tag(event: Any) -> TextError:
    shown = event.tag.replace(_TAG, "!!")
    return TextError(
        f"the tag {shown} has no meaning here",
        _place(event),
        "JSON has strings, numbers, true, false, null, lists and objects",
    )


def _malformed(text: str, error: yaml.YAMLError) -> TextError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else None
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    hint = None
    if isinstance(error, yaml.reader.ReaderError):
        at = int(error.position)
        place = Place(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        problem = f"the character U+{ord(text[at]) if at < len(text) else 0:04X} is not allowed"
        hint = 'write it as an escape inside double quotes, like "\\u0007"'
    elif "tab" in problem or (place and _char(text, place) == "\t"):
        hint = "YAML is indented with spaces, never with tabs"
    elif "mapping values are not allowed" in problem:
        hint = 'a text that holds ": " stands in quotes'
    elif place and _char(text, place) in ("@", "`", "%", "*", "&", "!", "|", ">"):
        hint = f"a text that begins with {_char(text, place)} stands in quotes"
    return TextError(f"not valid YAML: {problem}", place, hint)


def _char(text: str, place: Place) -> str:
    rows = text.splitlines()
    row = rows[place.line - 1] if place.line <= len(rows) else ""
    return row[place.column - 1 : place.column]
