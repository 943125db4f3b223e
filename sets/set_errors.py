"""Errors of sets and of results files. ``type`` is one of the ``SET_…`` and ``RESULTS_…`` types of ``wire.py``.

Nothing here knows Temporal: the activities say which of them are retried.
"""

from __future__ import annotations

from typing import Final

from acts.language.errors import truncate

# Characters of a quoted value
MAX_QUOTE: Final = 200


class SetError(Exception):
    """A set that cannot be read, or results that cannot be written. ``type`` is the reason."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type, self.message = type_, message


def quote(text: object) -> str:
    """A value for a message: on one line, shortened, with control characters escaped."""
    return truncate(repr(text), MAX_QUOTE)
