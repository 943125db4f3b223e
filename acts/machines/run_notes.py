"""The remarks of a run for ``status`` and its page: it keeps the last few, each cut to some length.

Laws: nothing here knows what a remark is about.
"""

from __future__ import annotations

from typing import Final

from acts.language.errors import truncate

# Notes that a run keeps, and characters of each
MAX_NOTES: Final = 20
MAX_NOTE: Final = 300


def add_note(notes: list[str], text: str) -> None:
    """Add a remark to the notes of a run, which keeps the last few."""
    notes.append(truncate(text, MAX_NOTE))
    del notes[:-MAX_NOTES]


def has_note(notes: list[str], text: str) -> bool:
    """True for a remark that the run still has."""
    return truncate(text, MAX_NOTE) in notes
