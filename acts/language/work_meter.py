"""How much work a check may take, counted in steps, so that every run and every replay stops at the same place.

One step is one look at one part of a value or of a schema: some 2 µs of CPU. Time itself is never asked.
"""

from __future__ import annotations

from typing import Final

from acts.language.errors import TooComplex

# Steps of one check of one value: about half a second
MAX_CHECK_STEPS: Final = 250_000


class WorkMeter:
    """Counts steps and stops at ``limit``; ``subject`` is what takes them, for the error."""

    __slots__ = ("limit", "spent", "subject")

    def __init__(self, subject: str, limit: int = MAX_CHECK_STEPS) -> None:
        self.subject = subject
        self.limit = limit
        self.spent = 0

    @property
    def is_exhausted(self) -> bool:
        """True when more than ``limit`` was spent: every further step raises."""
        return self.spent > self.limit

    def spend(self, steps: int) -> None:
        """Count steps.

        Raises:
            TooComplex: they are more than ``limit`` in all.
        """
        self.spent += steps
        if self.spent > self.limit:
            raise TooComplex(f"{self.subject} takes more than the {self.limit:,} steps allowed")
