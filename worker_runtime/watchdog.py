"""A process beside the worker that ends it when its interpreter stands still; see ``watchdog_process.py``.

The worker beats from a thread of its own, which needs the interpreter lock: as long as it beats, Python code runs. A
board in shared memory names the workflow tasks that run, so that the log can say which run it was, and the next worker
can set aside a run that has ended two.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import itertools
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Final, Self

from worker_runtime import watchdog_process
from worker_runtime.process_watch import postpone_end
from worker_runtime.watchdog_process import SLOT_BYTES, read_record

# Half a tick of the watchdog
BEAT_SECONDS: Final = 0.5
# The first process of a container without an init of its own: no signal of another process there can kill it, so it has
# to do so itself, a little later. Its timer goes by the clock, but nobody stops such a process from a terminal
INIT: Final = 1
INIT_SECONDS: Final = 5.0
# As many as there are threads for workflow tasks; what finds no slot is not named
SLOTS: Final = 128
# Characters of a name: type, id and run. An id may have 1,000 of them, and a slot has room for some 400 bytes
MAX_NAME: Final = 150


class TaskBoard:
    """The workflow tasks that run now, in memory that the watchdog's process reads. Each thread has a slot."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(SLOTS * SLOT_BYTES)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._memory = mmap.mmap(self._descriptor, SLOTS * SLOT_BYTES)
        self._numbers = itertools.count()
        self._local = threading.local()

    def fileno(self) -> int:
        """The descriptor that the watchdog's process maps."""
        return self._descriptor

    def begin(self, name: str, run: str) -> None:
        """This thread begins a workflow task; ``run`` is the key that is counted if it ends the worker, or empty."""
        try:
            offset: int | None = self._local.offset
        except AttributeError:
            number = next(self._numbers)
            offset = self._local.offset = number * SLOT_BYTES if number < SLOTS else None
        if offset is None:
            return
        task = {"thread": threading.get_native_id(), "run": run, "name": name[-MAX_NAME:]}
        data = json.dumps(task, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) <= SLOT_BYTES:
            self._memory[offset : offset + SLOT_BYTES] = data.ljust(SLOT_BYTES, b"\0")

    def end(self) -> None:
        """This thread has ended its task."""
        offset = getattr(self._local, "offset", None)
        if offset is not None:
            self._memory[offset] = 0


class Watchdog:
    """A block in which another process watches this one. ``limit_seconds`` 0: none.

    ``purpose`` is what this worker serves: workers that serve the same share the record of stuck runs.
    """

    def __init__(self, limit_seconds: float, purpose: str, board: TaskBoard) -> None:
        self._limit, self._board = limit_seconds, board
        digest = hashlib.sha256(purpose.encode()).hexdigest()[:16]
        self._record = Path(tempfile.gettempdir()) / f"acts-stuck-{os.getuid()}-{digest}.json"
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def read_stuck_runs(self) -> dict[str, int]:
        """How often each run has ended a worker on this machine."""
        return read_record(self._record)

    def __enter__(self) -> Self:
        # Also for people: kill -USR2 writes the stacks of all threads, whatever they do
        faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)
        if self._limit:
            arguments = (str(os.getpid()), str(self._limit), str(self._board.fileno()), str(self._record))
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a file of ours
                [sys.executable, "-I", "-S", watchdog_process.__file__, *arguments],
                stdin=subprocess.PIPE, pass_fds=(self._board.fileno(),),
            )  # fmt: skip
            threading.Thread(target=self._beat, args=(self._process,), name="beat", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _beat(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 - a pipe
        with contextlib.suppress(OSError):  # the watchdog's process was killed: nobody watches any more
            while not self._stop.wait(BEAT_SECONDS):
                if os.getpid() == INIT:
                    postpone_end(self._limit + INIT_SECONDS)
                process.stdin.write(b".")
                process.stdin.flush()
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.wait()
