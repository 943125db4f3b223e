"""What a check of a value with a schema finds wrong: places and texts."""

from __future__ import annotations

from typing import Any

Defect = tuple[tuple[str | int, ...], str]
"""The place in the value (keys and indexes), and what is wrong, in words."""
Defects = list[Defect]
Rule = Any
"""``(evaluation, value, depth) -> Defects | None``."""


def defect_of(text: str) -> Defects:
    """One defect of a value itself."""
    return [((), text)]


def defects_below(key: str | int, defects: Defects) -> Defects:
    """The defects of a part, as defects of the value that it is in."""
    return [((key, *at), text) for at, text in defects]
