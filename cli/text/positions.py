"""Where in a text something stands, and what is said when a text cannot be read. Lines and columns count from 1."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from acts.language.values import MAX_DEPTH


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line and a column of a text, both from 1."""

    line: int
    column: int


class TextError(Exception):
    """A text that is not what it should be. ``place`` is None when the whole of it is meant."""

    def __init__(self, message: str, place: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint


class TooDeepError(TextError):
    """More levels than any check could follow."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels", place, "flatten it, or move parts into tools")


class TwiceError(TextError):
    """A key stands twice in one object."""

    def __init__(self, key: str, first: int, place: Place) -> None:
        text = f'the key "{key}" stands twice in one object; the first is in line {first}'
        super().__init__(text, place, "keep one of the two, or rename one")


class Tokens:
    """Turns offsets of a text into places."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, offset: int) -> Place:
        """The place of an offset."""
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    def twice(self, key: str, first: int, again: int) -> TwiceError:
        """The error for a key that stands twice, by the offsets of both."""
        return TwiceError(key, self.place(first).line, self.place(again))
