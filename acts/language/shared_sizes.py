"""The JSON sizes of values that share parts, without writing them.

Laws of this file: one value may be in a result a thousand times (written at many paths, or part of the state of each
instance), and only its size as JSON has it a thousand times. Parts of lists are taken to be shared with nothing.
"""

from __future__ import annotations

from typing import Final

from acts.language.strict_json import json_size
from acts.language.values import Json

# Characters from which on a text is remembered, too
_LONG_TEXT: Final = 1_000


class SharedSizes:
    """Sizes in bytes. It remembers those of lists, objects and long texts, and holds these: no other gets their ids."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[Json, int]] = {}

    def size(self, value: Json) -> int:
        """What ``json_size`` returns; each object, each list and each long text is looked at once."""
        if not _is_remembered(value):
            return json_size(value)
        entry = self._sizes.get(id(value))
        if entry is None:
            size = self._size_of_object(value) if isinstance(value, dict) else json_size(value)
            entry = self._sizes[id(value)] = value, size
        return entry[1]

    def size_of_list(self, items: list[Json]) -> int:
        """The size of a list whose elements may share parts."""
        return 2 + sum(map(self.size, items)) + max(0, len(items) - 1)

    def _size_of_object(self, value: dict[str, Json]) -> int:
        size = 2 + max(0, len(value) - 1)
        scalars: dict[str, Json] = {}
        for key, part in value.items():
            if _is_remembered(part):
                size += json_size(key) + 1 + self.size(part)
            else:
                scalars[key] = part
        # Written together, which is quicker: without their braces and commas, which are counted
        return size + (json_size(scalars) - 2 - (len(scalars) - 1) if scalars else 0)


def _is_remembered(value: Json) -> bool:
    return isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) >= _LONG_TEXT)
