"""Which runs are being worked on, in memory that outlives this process: so a crash can be laid at a run's door.

The supervisor creates the memory, and reads it when the process has died; each thread of workflow tasks has a place of
its own in it. Writing is a copy of 36 bytes.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
import threading
from typing import Final

# A run id is a UUID in its text form
RUN_ID_BYTES: Final = 36
PLACE_BYTES: Final = 40
# Threads beyond these write nothing: more tasks than CPUs run at once only while they wait
PLACES: Final = 64
_EMPTY: Final = bytes(PLACE_BYTES)


class CrashNotes:
    """The memory, seen from the process that writes or from the one that reads. ``fd`` is its descriptor."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            with tempfile.TemporaryFile(prefix="acts-notes-") as file:
                file.truncate(PLACES * PLACE_BYTES)
                fd = os.dup(file.fileno())
        self.fd = fd
        self._memory = mmap.mmap(fd, PLACES * PLACE_BYTES)
        self._local = threading.local()
        self._places = itertools.count()

    def write(self, run_id: str) -> None:
        """Note that this thread works on a run."""
        start = self._place() * PLACE_BYTES
        if start >= 0:
            self._memory[start : start + RUN_ID_BYTES] = run_id.encode("ascii", "replace")[:RUN_ID_BYTES].ljust(
                RUN_ID_BYTES
            )

    def clear(self) -> None:
        """Note that this thread works on nothing."""
        start = self._place() * PLACE_BYTES
        if start >= 0:
            self._memory[start : start + PLACE_BYTES] = _EMPTY

    def read(self) -> list[str]:
        """The runs that were being worked on when the writing process died; empties the memory."""
        places = [self._memory[i * PLACE_BYTES : (i + 1) * PLACE_BYTES] for i in range(PLACES)]
        self._memory[:] = bytes(PLACES * PLACE_BYTES)
        return [place.strip(b"\0 ").decode("ascii", "replace") for place in places if place.strip(b"\0 ")]

    def _place(self) -> int:
        place = getattr(self._local, "place", None)
        if place is None:
            place = self._local.place = next(self._places)
        return place if place < PLACES else -1
