"""JSON text as a value, and the positions of its parts.

Laws of this file:
- strict JSON: no NaN, no trailing commas, no duplicate keys (a reader could not tell which of the two counts);
- the parser of the standard library reads; the slow walk over the tokens only finds positions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from acts.language.strict_json import DuplicateKeyError, NestingError, read_json
from acts.language.values import MAX_DEPTH, Json
from cli.text.positions import LineIndex, NumberTooLargeError, Position, TextError, TooDeepError

_TOKEN: Final = re.compile(r'\s*(?:("[^"\\]*(?:\\.[^"\\]*)*")|([{}\[\],:])|([^\s{}\[\],:"]+))', re.DOTALL)
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOO_LARGE: Final = re.compile(r"the number (\S+) is too large")
_NOT_JSON: Final = re.compile(r"(NaN|-?Infinity)\b")


def parse(text: str) -> Json:
    """The value of a JSON text.

    Raises:
        TextError: it is not JSON, or nested too deeply, or has a duplicate key or a number that is too long.
    """
    try:
        return read_json(text, unique_keys=True)
    except json.JSONDecodeError as error:
        raise _syntax_error(text, error) from None
    except DuplicateKeyError:
        _check(text)
        raise
    except NestingError:
        _check(text)
        raise TextError(f"nested deeper than {MAX_DEPTH} levels", Position(1, 1)) from None
    except ValueError as error:  # a constant, or a number with more digits than Python reads
        raise _number_error(text, error) from None


def positions(text: str) -> Iterator[tuple[tuple[str | int, ...], Position]]:
    """The path of every value of a JSON text with its position; in an object, the position of its key.

    Raises:
        TextError: a duplicate key, or too many levels; otherwise the text must be valid JSON.
    """
    index = LineIndex(text)
    path: list[str | int] = []
    keys: list[dict[str, int] | None] = []  # per open object the offsets of its keys; None for a list
    expects_key = False
    for match in _TOKEN.finditer(text):
        string, mark, _ = match.groups()
        at = match.end() - len(match.group().lstrip())
        if mark in ("}", "]"):
            keys.pop()
            path.pop()
            expects_key = False
        elif mark == ",":
            expects_key = _next_item(keys, path)
        elif mark == ":":
            expects_key = False
        elif expects_key and string is not None:
            path[-1] = _add_key(index, keys[-1], string, at)
            yield tuple(path), index.position(at)
        else:
            if not keys or keys[-1] is None:
                yield tuple(path), index.position(at)
            if mark in ("{", "["):
                if len(keys) >= MAX_DEPTH:
                    raise TooDeepError(index.position(at))
                expects_key = mark == "{"
                keys.append({} if expects_key else None)
                path.append("" if expects_key else 0)


def _next_item(keys: list[dict[str, int] | None], path: list[str | int]) -> bool:
    """After a comma: True if a key must follow."""
    if keys and keys[-1] is not None:
        return True
    if path and isinstance(path[-1], int):
        path[-1] += 1
    return False


def _add_key(index: LineIndex, keys: dict[str, int] | None, string: str, at: int) -> str:
    key = str(json.loads(string))
    if keys is not None:
        if key in keys:
            raise index.duplicate_key_error(key, keys[key], at)
        keys[key] = at
    return key


def _check(text: str) -> None:
    for _ in positions(text):
        pass


def _number_error(text: str, error: ValueError) -> TextError:
    outside_strings = _STRING.sub(lambda m: "_" * len(m.group()), text)
    constant = _NOT_JSON.search(outside_strings)
    if constant and constant.group(1) in str(error):
        position = LineIndex(text).position(constant.start())
        return TextError(str(error), position, "use null, or leave the key out")
    too_large = _TOO_LARGE.fullmatch(str(error))
    if too_large:
        position = LineIndex(text).position(outside_strings.index(too_large.group(1)))
        return NumberTooLargeError(str(error), position, "write it as a string")
    longest = max(re.finditer(r"\d+", text), key=lambda m: len(m.group()), default=None)
    position = LineIndex(text).position(longest.start() if longest else 0)
    return TextError("a number has more digits than can be read", position, "write it as a string")


def _syntax_error(text: str, error: json.JSONDecodeError) -> TextError:
    char = text[error.pos : error.pos + 1]
    before = text[: error.pos].rstrip()
    hint = None
    if error.msg.startswith("Illegal trailing comma") or (before.endswith(",") and char in ("}", "]")):
        hint = "JSON has no comma before a closing bracket: remove it"
    elif char == "'":
        hint = 'JSON strings and keys are in double quotes: "like this"'
    elif char in ("/", "#"):
        hint = "JSON has no comments; a .yaml file may have them"
    elif not char:
        hint = "the text ends too early: a bracket, brace or quote is not closed"
    what = f"found {char!r}" if char else "found the end"
    return TextError(f"not valid JSON: {error.msg}; {what}", Position(error.lineno, error.colno), hint)
