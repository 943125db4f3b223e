"""JSON text to a value, with the line of whatever is wrong in it.

Laws of this file:
- strict JSON: no NaN, no trailing commas, and no key twice in one object (which of the
  two would count?);
- the C parser reads; the slow walk over the tokens runs only to say where something is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from acts.language.values import MAX_DEPTH, Json
from cli.text.positions import Place, TextError, Tokens, TooDeepError

_TOKEN: Final = re.compile(r'\s*(?:("[^"\\]*(?:\\.[^"\\]*)*")|([{}\[\],:])|([^\s{}\[\],:"]+))', re.DOTALL)
_NOT_JSON: Final = re.compile(r"(NaN|-?Infinity)\b")


class _TwiceError(ValueError):
    """A key stands twice in one object; where, the walk finds."""


def parse(text: str) -> Json:
    """The value of a JSON text.

    Raises:
        TextError: it is not JSON, or not JSON that can be kept.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise _malformed(text, error) from None
    except _TwiceError:
        _check(text)
        raise
    except RecursionError:
        _check(text)
        raise TextError(f"nested deeper than {MAX_DEPTH} levels", Place(1, 1)) from None
    except ValueError as error:  # a constant, or a number with more digits than Python reads
        raise _number(text, error) from None


def places(text: str) -> Iterator[tuple[tuple[str | int, ...], Place]]:
    """Every value of a JSON text with its place: of its key, for what stands in an object.

    Raises:
        TextError: a key twice, or nesting too deep; the text is JSON otherwise.
    """
    tokens = Tokens(text)
    path: list[str | int] = []
    keys: list[dict[str, int] | None] = []  # per open object its keys; None for a list
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
            path[-1] = _key(tokens, keys[-1], string, at)
            yield tuple(path), tokens.place(at)
        else:
            if not keys or keys[-1] is None:
                yield tuple(path), tokens.place(at)
            if mark in ("{", "["):
                expects_key = _open(tokens, keys, path, mark, at)


def _open(tokens: Tokens, keys: list[dict[str, int] | None], path: list[str | int], mark: str, at: int) -> bool:
    if len(keys) >= MAX_DEPTH:
        raise TooDeepError(tokens.place(at))
    keys.append({} if mark == "{" else None)
    path.append("" if mark == "{" else 0)
    return mark == "{"


def _next_item(keys: list[dict[str, int] | None], path: list[str | int]) -> bool:
    """After a comma: True when a key must come."""
    if keys and keys[-1] is not None:
        return True
    if path and isinstance(path[-1], int):
        path[-1] += 1
    return False


def _key(tokens: Tokens, seen: dict[str, int] | None, string: str, at: int) -> str:
    key = str(json.loads(string))
    if seen is not None:
        if key in seen:
            raise tokens.twice(key, seen[key], at)
        seen[key] = at
    return key


def _check(text: str) -> None:
    for _ in places(text):
        pass


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def _constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


def _number(text: str, error: ValueError) -> TextError:
    named = _NOT_JSON.search(re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', lambda m: "_" * len(m.group()), text))
    if named and named.group(1) in str(error):
        return TextError(str(error), Tokens(text).place(named.start()), "use null, or leave the key out")
    longest = max(re.finditer(r"\d+", text), key=lambda m: len(m.group()), default=None)
    at = longest.start() if longest else 0
    return TextError("a number has more digits than can be read", Tokens(text).place(at), "write it as a string")


def _malformed(text: str, error: json.JSONDecodeError) -> TextError:
    found = text[error.pos : error.pos + 1]
    before = text[: error.pos].rstrip()
    hint = None
    if before.endswith(",") and found in ("}", "]"):
        hint = "JSON has no comma before a closing bracket: remove it"
    elif found == "'":
        hint = 'JSON strings and keys stand in double quotes: "like this"'
    elif found in ("/", "#"):
        hint = "JSON has no comments; a .yaml file may have them"
    elif not found:
        hint = "the text ends too early: a bracket, brace or quote is not closed"
    elif error.msg.startswith("Illegal trailing comma"):
        hint = "JSON has no comma before a closing bracket: remove it"
    what = f"found {found!r}" if found else "found the end"
    return TextError(f"not valid JSON: {error.msg}; {what}", Place(error.lineno, error.colno), hint)
