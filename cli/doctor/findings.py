"""What a check of ``acts doctor`` finds: a level, a line of text, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "warn", "fail"]
MARKS: Final[dict[Level, str]] = {"ok": "✓", "warn": "!", "fail": "✗"}
STYLES: Final[dict[Level, str]] = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One line. ``fail``: runs do not work until it is mended; ``warn``: something may be missed or lost."""

    check: str
    level: Level
    text: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """``{check, level, text, hint?}``"""
        row = {"check": self.check, "level": self.level, "text": self.text}
        return row | ({"hint": self.hint} if self.hint else {})


def ok(check: str, text: str, hint: str = "") -> Finding:
    """All is well."""
    return Finding(check, "ok", text, hint)


def warn(check: str, text: str, hint: str = "") -> Finding:
    """It works, and something is worth a look."""
    return Finding(check, "warn", text, hint)


def fail(check: str, text: str, hint: str = "") -> Finding:
    """It does not work."""
    return Finding(check, "fail", text, hint)
