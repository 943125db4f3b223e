"""A cache that is bounded by the bytes it holds, not by the number of its entries.

What was not used for the longest time is forgotten first. No lock is needed: each step is one operation on a dict, and
a lost race costs one more computation; the bytes are counted anew whenever something is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """Values by key. It holds at most ``limit`` bytes, or one larger value, by the sizes that ``put`` is given."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[Hashable, tuple[Value, int]] = {}  # the last used are the last
        self._bytes = 0

    def clear(self) -> None:
        """Forget everything."""
        self._entries, self._bytes = {}, 0

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, or None."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: Hashable, value: Value, size: int) -> Value:
        """Keep a value of about ``size`` bytes; returns it."""
        self._entries.pop(key, None)
        self._entries[key] = (value, size)
        self._bytes += size
        if self._bytes > self._limit:
            self._forget()
        return value

    def get_or_build(self, key: Hashable, build: Callable[[], tuple[Value, int]]) -> Value:
        """The value of a key; ``build`` makes it, with its size, where there is none."""
        value = self.get(key)
        return self.put(key, *build()) if value is None else value

    def _forget(self) -> None:
        """Forget a tenth more than is necessary, so that this is seldom done; never the last."""
        entries = list(self._entries.items())
        total = sum(size for _, (_, size) in entries)
        if total > self._limit:
            for key, (_, size) in entries[:-1]:
                if total <= self._limit - self._limit // 10:
                    break
                self._entries.pop(key, None)
                total -= size
        self._bytes = total
