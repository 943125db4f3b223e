"""Calls of a Solution, each as soon as its closing brace has arrived.

* Fed with the text as it streams; the whole text, parsed at the end, stays the truth.
* Only ``calls`` of the root object counts: a ``calls`` inside a value is just a value.
* Nothing that a model writes raises here: garbage ends the reports, and no more. The cost
  is linear in the text, however it is nested (ijson's own ``items`` is quadratic in depth).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import ijson

from acts.language.values import MAX_DEPTH, Json

_BEGIN: Final = ("start_map", "start_array")
_END: Final = ("end_map", "end_array")
# Where the root's values stand, and where the Calls do: counted in open brackets
_ROOT, _CALLS = 1, 2


class StreamedCalls:
    """Tells ``report`` of each Call: its index from 0, and its JSON. An error of ``report`` is passed on."""

    def __init__(self, report: Callable[[int, Json], None]) -> None:
        self._report = report
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._begun = False
        self._depth = 0
        self._key: str | None = None
        self._inside = False
        self._call: Any = None
        self._count = 0

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        if self._parser is None:
            return
        if not self._begun:
            # A model that nobody holds to the schema may begin with a fence or a sentence
            _, brace, rest = text.partition("{")
            self._begun = bool(brace)
            text = brace + rest
        if not text:
            return
        try:
            self._parser.send(text.encode())
        except (ijson.JSONError, ValueError, RecursionError, ArithmeticError, StopIteration):
            self._parser = None  # what was complete before the garbage is still reported
        events = list(self._events)
        del self._events[:]
        for event, value in events:
            self._take(event, value)
            if self._depth > MAX_DEPTH:
                self._parser = None
                return

    def _take(self, event: str, value: Any) -> None:
        self._depth += (event in _BEGIN) - (event in _END)
        if self._call is not None:
            self._call.event(event, value)
            if self._depth == _CALLS:
                call, self._call = self._call.value, None
                self._tell(call)
        elif self._inside:
            if event in _BEGIN:
                self._call = ijson.ObjectBuilder()
                self._call.event(event, value)
            elif event in _END:
                self._inside = False
            else:
                self._tell(value)
        elif self._depth == _ROOT and event == "map_key":
            self._key = value
        elif self._depth == _CALLS and event == "start_array":
            self._inside = self._key == "calls"

    def _tell(self, call: Json) -> None:
        index, self._count = self._count, self._count + 1
        self._report(index, plain(call))


def plain(value: Json) -> Json:
    """A value as ``json.loads`` would have it: ijson reads fractions as ``Decimal``."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value
