"""Calls of a Solution, each as soon as its closing brace has arrived.

* Fed with the text as it streams; the whole text, parsed at the end, stays the truth.
* Only ``calls`` of the root object counts: a ``calls`` inside a value is just a value.
* Nothing that a model writes raises here: garbage ends the reports, and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import ijson

from acts.values import Json


class Partial:
    """Tells ``report`` of each Call: its index from 0, and its JSON. An error of ``report`` is passed on."""

    def __init__(self, report: Callable[[int, Json], None]) -> None:
        self._report = report
        self._found: Any = ijson.sendable_list()
        self._parser: Any = ijson.items_coro(self._found, "calls.item")
        self._begun = False
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
        calls = list(self._found)
        del self._found[:]
        for call in calls:
            index, self._count = self._count, self._count + 1
            self._report(index, plain(call))


def plain(value: Json) -> Json:
    """A value as ``json.loads`` would have it: ijson reads fractions as ``Decimal``."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value
