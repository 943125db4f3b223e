"""A text in JSON or YAML as a value whose parts have positions: files of Requests, of plans, of tests.

- YAML is a notation for JSON here: a plain scalar is null, true, false or a number only where JSON has that number; all
  others (dates, yes, no, 0123) are strings. What JSON lacks is an error with its line: keys that are not strings, tags,
  duplicate keys, .nan, merge keys, a second document. An alias is a copy of a value; the size of all copies is bounded,
  and so is nesting.
- The standard library reads JSON; the positions in both formats are those of YAML's nodes, as JSON is YAML but for
  a few characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import yaml
from yaml.composer import Composer
from yaml.cyaml import CParser  # type: ignore[attr-defined]
from yaml.resolver import BaseResolver

from acts.language.errors import clean
from acts.language.spelling import read_plain
from acts.language.strict_json import DuplicateKeyError, read_json
from acts.language.values import MAX_DEPTH, Json, pointer

Format = Literal["JSON", "YAML"]
MAX_EXCERPT: Final = 100  # characters of a line that an error shows
SUFFIXES: Final = (".json", ".yaml", ".yml")


class Position(NamedTuple):
    """A line and a column of a text, both from 1."""

    line: int
    column: int


class TextError(Exception):
    """A text that cannot be read; ``is_syntax``: it is no text of its format, else it holds what cannot be accepted."""

    def __init__(
        self, message: str, position: Position | None = None, hint: str = "", *, is_syntax: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.position, self.hint, self.is_syntax = message, position, hint, is_syntax


@dataclass(frozen=True)
class SourceText:
    """A text with the value that it holds, and the name that errors use."""

    name: str
    text: str
    format: Format
    value: Json

    @cached_property
    def _positions(self) -> dict[str, Position]:
        with suppress(TextError):  # a JSON text that YAML cannot read: messages have no lines
            return positions(self.text, self.format, self.value)
        return {}

    def position(self, at: str) -> Position | None:
        """The position of the value at a JSON pointer, or of the nearest value around it."""
        while at and at not in self._positions:
            at = at.rpartition("/")[0]
        return self._positions.get(at)

    def where(self, at: str) -> str:
        """``plan.json:12``"""
        position = self.position(at)
        return self.name if position is None else f"{self.name}:{position.line}"

    def excerpt(self, at: str) -> str:
        position = self.position(at)
        return "" if position is None else cut_line(self.text, position)


def cut_line(text: str, position: Position) -> str:
    """A line of a text; of a long one the part around the column."""
    row = (text.split("\n")[position.line - 1 : position.line] or [""])[0]
    start = max(0, position.column - 1 - MAX_EXCERPT // 2) if len(row) > MAX_EXCERPT else 0
    part = row[start : start + MAX_EXCERPT].strip()
    return clean(("…" if start else "") + part + ("…" if start + MAX_EXCERPT < len(row) else ""))


# Bytes that aliases may add, as if written out. No Request that runs has more; a "billion laughs" is stopped early.
MAX_ALIASED: Final = 4 * 1024 * 1024
_PART_BYTES: Final = 4  # of a part of the text, less its characters: quotes, brackets, a comma

_TAG: Final = "tag:yaml.org,2002:"
# What JSON has and YAML lacks: tabs between values, some characters, escapes of halves of a character
_NOT_YAML: Final = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# What stands where JSON cannot go on -> what to do
_JSON_HINTS: Final = {
    **dict.fromkeys("}]", "a value is missing before it, or there is a comma too many"),
    **dict.fromkeys("/#", "JSON has no comments; a .yaml file may have them"),
    "'": 'JSON strings and keys are in double quotes: "like this"',
    "": "the text ends too early: a bracket, brace or quote is not closed",
}


def parse(text: str, format_: Format) -> Json:
    """The value of a text; a ``TextError`` where it is not of this format, or holds something that JSON lacks.

    ``<+>`` in a value is the plain spelling of ``†``, and is replaced before anything else is done with it.
    """
    return read_plain(_parse(text, format_))


def _parse(text: str, format_: Format) -> Json:
    if format_ == "YAML":
        return _read_yaml(text)
    try:
        return read_json(text, unique_keys=True)
    except json.JSONDecodeError as error:
        char = text[error.pos : error.pos + 1]
        actual = f"found {char!r}" if char else "found the end"
        position, hint = Position(error.lineno, error.colno), _JSON_HINTS.get(char, "")
        raise TextError(f"not valid JSON: {error.msg}; {actual}", position, hint, is_syntax=True) from None
    except ValueError as error:  # YAML's nodes have its position
        _read_yaml(_as_yaml(text))
        raise TextError(str(error), is_syntax=not isinstance(error, DuplicateKeyError)) from None


def positions(text: str, format_: Format, value: Json) -> dict[str, Position]:
    """The position of every part of a text's ``value`` by its JSON pointer; in an object, the position of its key."""

    def locate(node: Any, value: Json, at: str, key: Any = None) -> Iterator[tuple[str, Position]]:
        yield at, _position(key or node)
        if isinstance(value, dict):
            for name, (key_node, part) in zip(value, node.value, strict=True):
                yield from locate(part, value[name], at + pointer(name), key_node)
        elif isinstance(value, list):
            for index, part in enumerate(node.value):
                yield from locate(part, value[index], f"{at}/{index}")

    return dict(locate(_compose(text if format_ == "YAML" else _as_yaml(text)), value, ""))


def _as_yaml(text: str) -> str:
    """A JSON text that YAML reads, with all parts in the same places."""
    return re.sub(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", r"\\u0020", _NOT_YAML.sub(" ", text))


class _Loader(Composer, CParser, BaseResolver):
    """Composes nodes in Python, which bounds their depth, from the events of libyaml's parser."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if self._depth >= MAX_DEPTH and isinstance(event, yaml.CollectionStartEvent):
            raise _depth_error(event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)


_PLAIN: Final[Any] = _Loader("")  # says what a scalar without quotes is


def _compose(text: str) -> Any:
    try:
        return _Loader(text).get_single_node() or yaml.ScalarNode(f"{_TAG}null", "", yaml.Mark("", 0, 0, 0, None, 0))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = None if mark is None else Position(mark.line + 1, mark.column + 1)
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read")
        if isinstance(error, yaml.reader.ReaderError):
            at = int(error.position)
            position = Position(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
            problem = f"the character U+{ord(text[at]) if at < len(text) else 0:04X} is not allowed"
        hint = "in quotes a text may hold anything; indent with spaces, not with tabs; one file holds one document"
        raise TextError(f"not valid YAML: {problem}", position, hint, is_syntax=True) from None


def _read_yaml(text: str) -> Json:
    """The value of a YAML text; what aliases repeat is bounded."""
    # No text has more parts than characters, nor an escape (of two characters) more than three bytes
    remaining = 2 * _PART_BYTES * (len(text.encode("utf-8", "replace")) + 1) + MAX_ALIASED

    def spend(node: Any) -> None:
        nonlocal remaining
        remaining -= _PART_BYTES + (len(node.value.encode()) if isinstance(node, yaml.ScalarNode) else 0)
        if remaining < 0:
            error = f"the aliases expand to more than {MAX_ALIASED:,} bytes"
            raise TextError(error, _position(node), "write less, or use data messages")

    def read(node: Any, depth: int) -> Json:
        spend(node)
        if isinstance(node, yaml.ScalarNode):
            return _read_scalar(node)
        if depth >= MAX_DEPTH:  # by aliases; one inside its own anchor has no end
            raise _depth_error(node)
        is_object = isinstance(node, yaml.MappingNode)
        if node.tag != _TAG + ("map" if is_object else "seq"):
            raise _tag_error(node)
        if not is_object:
            return [read(part, depth + 1) for part in node.value]
        out: dict[str, Json] = {}
        for key_node, part in node.value:
            spend(key_node)
            key = _read_key(key_node)
            if key in out:
                first = next(k for k, _ in node.value if k.value == key)
                error = f'the key "{key}" occurs twice in one object; the first is in line {_position(first).line}'
                raise TextError(error, _position(key_node), "remove or rename one of the two")
            out[key] = read(part, depth + 1)
        return out

    return read(_compose(text), 0)


def _read_key(node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise TextError("a key is a string, not a list or an object", _position(node))
    if node.tag != f"{_TAG}str":
        text = f"the key {node.value} is not a string"
        raise TextError(text, _position(node), f'write it in quotes: "{node.value}"')
    if node.value == "<<" and not node.style:
        raise TextError('JSON has no merge key "<<"', _position(node), "repeat the fields, or alias a whole value")
    return str(node.value)


def _read_scalar(node: Any) -> Json:
    text = node.value
    if node.tag == f"{_TAG}str":
        if not node.style and re.fullmatch(r"[-+]?(\.inf|Infinity)|\.?nan", text, re.IGNORECASE):
            raise TextError(f"{text} is not a JSON number", _position(node), "use null, or leave the key out")
        return str(text)
    if node.tag != _PLAIN.resolve(yaml.ScalarNode, text, (True, False)):
        raise _tag_error(node)
    kind = node.tag.removeprefix(_TAG)
    if kind in ("null", "bool"):
        return None if kind == "null" else text.lower() == "true"
    try:
        return read_json(text)
    except ValueError as error:
        raise TextError(str(error), _position(node), "write it as a string, in quotes") from None


def _position(node: Any) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _depth_error(node: Any) -> TextError:
    return TextError(f"nested deeper than {MAX_DEPTH} levels", _position(node), "flatten it, or move parts into tools")


def _tag_error(node: Any) -> TextError:
    hint = "JSON has strings, numbers, true, false, null, lists and objects"
    return TextError(f"the tag {node.tag.replace(_TAG, '!!')} has no meaning here", _position(node), hint)
