"""A cache that is bounded by the bytes it holds, not by the number of its entries.

Two generations stand in for a list of last uses: when the younger one is full it becomes the older one, and what
was not used since is forgotten. No lock is needed: each step is one operation on a dict, and a lost race costs one
more computation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """Values by key. It holds at most ``limit`` bytes and one more value, by the sizes that ``put`` is told."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._young: dict[Hashable, tuple[Value, int]] = {}
        self._old: dict[Hashable, tuple[Value, int]] = {}
        self._young_bytes = 0

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._young_bytes = {}, {}, 0

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, or None."""
        entry = self._young.get(key)
        if entry is not None:
            return entry[0]
        entry = self._old.get(key)
        return None if entry is None else self.put(key, *entry)

    def put(self, key: Hashable, value: Value, size: int) -> Value:
        """Keep a value of about ``size`` bytes; returns it. One that is larger than a generation is not kept."""
        if size > self._half:
            return value
        if self._young_bytes + size > self._half:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[key] = (value, size)
        self._young_bytes += size
        return value

    def get_or_build(self, key: Hashable, build: Callable[[], tuple[Value, int]]) -> Value:
        """The value of a key; ``build`` makes it, with its size, where there is none."""
        value = self.get(key)
        return self.put(key, *build()) if value is None else value
