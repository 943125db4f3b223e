"""Lines of JSON-RPC from a server, bounded: a line that is too long is skipped, and its request is recognized. Pure.

Without a bound, one answer could take all memory of the worker, and putting it together chunk by chunk would take time
quadratic in its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# The result of a Call has at most 2 MiB, in base64 or escaped a multiple; a list of 500 tools has some megabytes
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# Every SDK writes these members first. A message that begins otherwise ends the connection
_ANSWER_HEAD: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"'
)
_HEAD_BYTES: Final = 200


@dataclass(frozen=True)
class OversizedLine:
    """A line of more than the limit. ``request_id`` is the request that it answers, None if that cannot be seen."""

    request_id: int | None


class LineSplitter:
    """Bytes in, lines out. It holds no more than ``limit`` bytes."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of a line that is being skipped

    def feed(self, chunk: bytes) -> Iterator[bytes | OversizedLine]:
        """The lines that this chunk completes, without their line ends; empty lines are left out."""
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._add(part)
            if (line := self._take()) is not None:
                yield line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._head is not None:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit:
            self._head = b"".join(self._parts)[:_HEAD_BYTES]
            self._parts.clear()

    def _take(self) -> bytes | OversizedLine | None:
        head, line = self._head, b"".join(self._parts)
        self._head, self._size = None, 0
        self._parts.clear()
        if head is not None:
            match = _ANSWER_HEAD.match(head)
            return OversizedLine(int(match[1]) if match else None)
        return line if line.strip() else None
