"""Positions in a text, and the errors of a text that cannot be read. Lines and columns count from 1."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from acts.language.values import MAX_DEPTH


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A line and a column of a text, both from 1."""

    line: int
    column: int


class TextError(Exception):
    """A text that cannot be read. ``position`` is None if the error concerns the whole text."""

    def __init__(self, message: str, position: Position | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.hint = hint


class NumberTooLargeError(TextError):
    """A number is beyond a double."""


class TooDeepError(TextError):
    """A value with more levels than the checks can follow."""

    def __init__(self, position: Position) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels", position, "flatten it, or move parts into tools")


class DuplicateKeyError(TextError):
    """A key that occurs twice in one object."""

    def __init__(self, key: str, first_line: int, position: Position) -> None:
        text = f'the key "{key}" occurs twice in one object; the first is in line {first_line}'
        super().__init__(text, position, "remove or rename one of the two")


class LineIndex:
    """Converts offsets of a text to positions."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def position(self, offset: int) -> Position:
        """The position of an offset."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def duplicate_key_error(self, key: str, first: int, second: int) -> DuplicateKeyError:
        """The error for a key that occurs at two offsets."""
        return DuplicateKeyError(key, self.position(first).line, self.position(second))
