"""The one parser of a model's answer: fed with the text as it streams, it has the JSON when the text ends.

* Each Call of ``calls`` in the root object is reported as soon as its closing brace arrives; a ``calls`` inside a value
  is only a value.
* A key that is twice in one object is a fault: two readers could see two different Calls.
* Text that is not one JSON object (a fence, sentences, ``</think>``, garbage) ends the reports. It is then read again
  as a whole when the answer is complete. Servers that enforce the schema send none.
* The cost is linear in the text at any nesting (``ijson.items`` is quadratic in depth).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import ijson

from acts.language.strict_json import DuplicateKeyError
from acts.language.values import MAX_DEPTH, Json

_OPENING: Final = ("start_map", "start_array")
_CLOSING: Final = ("end_map", "end_array")
# Open brackets around the values of the root object, and around the Calls
_ROOT, _CALLS = 1, 2
# An escaped high surrogate; ijson reads one without its other half as "?", where JSON keeps it
_SURROGATE: Final = re.compile(r"\\u[dD][89abAB]")
_FENCE: Final = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


class AnswerParser:
    """One answer. ``on_call`` gets the index, from 0, and the JSON of each Call; its exceptions are passed on."""

    def __init__(self, on_call: Callable[[int, Json], None] | None = None) -> None:
        self._on_call = on_call
        self._pieces: list[str] = []
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._builder: Any = ijson.ObjectBuilder()
        self._has_begun = False
        self._depth = 0
        self._key: str | None = None
        self._in_calls = False
        self._keys: list[set[str]] = []

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self._pieces)

    def feed(self, text: str) -> None:
        """Parse the next piece of the text. No text raises."""
        self._pieces.append(text)
        if self._parser is None:
            return
        if not self._has_begun:
            # A model that no schema holds may begin with a fence or a sentence
            _, brace, rest = text.partition("{")
            self._has_begun = bool(brace)
            text = brace + rest
        if not text:
            return
        try:
            self._parser.send(text.encode())
        except (ijson.JSONError, ValueError, RecursionError, ArithmeticError, StopIteration):
            self._parser = None  # Calls that were complete before the garbage are still reported
        events = list(self._events)
        del self._events[:]
        for event, value in events:
            number = float(value) if isinstance(value, Decimal) else 0.0
            if self._depth > MAX_DEPTH or not math.isfinite(number):
                self._parser = None
                return
            if self._is_second(event, value):
                self._parser = None
                return
            self._handle(event, number if isinstance(value, Decimal) else value)

    def _is_second(self, event: str, value: Any) -> bool:
        """True for a key that its object has already."""
        if event == "start_map":
            self._keys.append(set())
        elif event == "end_map":
            self._keys.pop()
        elif event == "map_key":
            if value in self._keys[-1]:
                return True
            self._keys[-1].add(value)
        return False

    def _handle(self, event: str, value: Any) -> None:
        self._builder.event(event, value)
        self._depth += (event in _OPENING) - (event in _CLOSING)
        if self._depth == _ROOT:
            self._in_calls = False
            self._key = value if event == "map_key" else self._key
        elif self._depth == _CALLS:
            if not self._in_calls:
                self._in_calls = event == "start_array" and self._key == "calls"
            elif self._on_call is not None:
                calls = self._builder.value["calls"]
                self._on_call(len(calls) - 1, calls[-1])

    @property
    def is_streamed(self) -> bool:
        """True when ``value`` is what the stream was parsed to: its Calls are those that were reported."""
        is_complete = self._has_begun and self._depth == 0 and self._parser is not None
        return is_complete and not _SURROGATE.search(self.text)

    def value(self) -> Json:
        """The JSON of the answer.

        Raises:
            ValueError: it has none; the message says why.
        """
        return self._builder.value if self.is_streamed else find_json(self.text)


def find_json(text: str) -> Json:
    """The JSON of a text: all of it, or that in a fence or between sentences.

    Raises:
        ValueError: there is none; the message says why the whole text is no JSON.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError as error:
        reason = str(error) if text.strip() else "it is empty"
    fence = _FENCE.search(text)
    # Open models may write their thoughts before the answer
    for candidate in (fence.group(1) if fence else "", text.rpartition("</think>")[2]):
        start = candidate.find("{")
        if start >= 0:
            try:
                value, end = _DECODER.raw_decode(candidate, start)
            except (ValueError, RecursionError):
                continue
            if _has_object(candidate, end, value):
                raise ValueError("it has two JSON objects, and only one is an answer")
            return value
    raise ValueError(reason)


def _has_object(text: str, start: int, other: Json) -> bool:
    """True when another JSON object begins in the text at the first brace after ``start``."""
    brace = text.find("{", start)
    try:
        return brace >= 0 and _DECODER.raw_decode(text, brace)[0] != other
    except (ValueError, RecursionError):
        return False


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise DuplicateKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)
