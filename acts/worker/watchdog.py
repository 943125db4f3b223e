"""Ends this process when it stands still. Standard library only.

C code that does not release the interpreter lock stops every thread of a worker. Only another process can end it, so
that the orchestrator starts a new one. ``watchdog`` starts this file again as a small process without site-packages,

    watchdog.py PID LIMIT_SECONDS BOARD_FD RECORD

and beats to its standard input from a thread, which needs the interpreter lock. That process counts time in ticks of
its own, not by the clock: a machine that sleeps, or a process group that is stopped, is no worker that hangs. A board
in shared memory names the workflow tasks that run, so that the log can say which run it was, and the next worker can
fail a run that has ended two.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import itertools
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BEAT_SECONDS: Final = 0.5  # half a tick of the watchdog
SLOTS: Final = 128  # as many as there are threads for workflow tasks; what finds no slot is not named
SLOT_BYTES: Final = 512  # a slot of the board: one JSON text, padded with zeros
# Characters of a name: type, id and run. An id may have 1,000 of them, and a slot has room for some 400 bytes
MAX_NAME: Final = 150


class TaskBoard:
    """The workflow tasks that run now, in memory that the watchdog's process reads. Each thread has a slot."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(SLOTS * SLOT_BYTES))  # a hole in a file that a full disk cannot fill ends the process
            file.flush()
            self.descriptor = os.dup(file.fileno())  # what the watchdog's process maps
        weakref.finalize(self, os.close, self.descriptor)
        self._memory = mmap.mmap(self.descriptor, SLOTS * SLOT_BYTES)
        self._numbers = itertools.count()
        self._local = threading.local()

    def begin(self, name: str, run: str) -> None:
        """This thread begins a workflow task; ``run`` is the key that is counted if it ends the worker, or empty."""
        if not hasattr(self._local, "offset"):
            self._local.offset = next(self._numbers) * SLOT_BYTES
        data = json.dumps({"run": run, "name": name[-MAX_NAME:]}, ensure_ascii=False).encode("utf-8", "replace")
        offset = self._local.offset
        if offset < len(self._memory) and len(data) <= SLOT_BYTES:
            self._memory[offset : offset + SLOT_BYTES] = data.ljust(SLOT_BYTES, b"\0")

    def end(self) -> None:
        if self._local.offset < len(self._memory):
            self._memory[self._local.offset] = 0


@contextlib.contextmanager
def watchdog(limit_seconds: float, purpose: str, board: TaskBoard) -> Iterator[Path]:
    """A block in which another process watches this one; yields the record of stuck runs. ``limit_seconds`` 0: none.

    ``purpose`` is what this worker serves: workers that serve the same share the record.
    """
    digest = hashlib.sha256(purpose.encode()).hexdigest()[:16]
    record, stop = Path(tempfile.gettempdir()) / f"acts-stuck-{os.getuid()}-{digest}.json", threading.Event()
    # Also for people: kill -USR2 writes the stacks of all threads, whatever they do
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)
    if limit_seconds:
        arguments = map(str, (os.getpid(), limit_seconds, board.descriptor, record))
        process = subprocess.Popen(  # noqa: S603 - this interpreter and a file of ours
            [sys.executable, "-I", "-S", __file__, *arguments], stdin=subprocess.PIPE, pass_fds=(board.descriptor,)
        )
        threading.Thread(target=_beat, args=(process, stop), name="beat", daemon=True).start()
    try:
        yield record
    finally:
        stop.set()


def _beat(process: subprocess.Popen[bytes], stop: threading.Event) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe
    with contextlib.suppress(OSError):  # the watchdog's process was killed: nobody watches any more
        while not stop.wait(BEAT_SECONDS):
            process.stdin.write(b".")
            process.stdin.flush()
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.wait()


# -- in the watchdog's process ------------------------------------------------------------------------

TICK_SECONDS: Final = 1.0  # the worker beats twice in this time
# From the request for the stacks to the end: faulthandler writes them within milliseconds
STACK_SECONDS: Final = 2.0
MAX_RECORD: Final = 100  # the runs that the record keeps: the newest


def main() -> None:
    """Watch until the worker has ended."""
    pid, limit, board, record = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the worker; this process ends with it
    missed = 0.0
    while os.getppid() == pid and missed < limit:
        if not select.select([0], [], [], TICK_SECONDS)[0]:
            missed = 0.0 if is_stopped(pid) else missed + TICK_SECONDS
        elif os.read(0, 65536):
            missed = 0.0
        else:
            return
    if os.getppid() == pid:
        end(pid, missed, read_board(board), record)


def is_stopped(pid: int) -> bool:
    """True where somebody has stopped it (SIGSTOP, a debugger), and lets it go on. Only Linux tells."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def end(pid: int, seconds: float, tasks: list[dict[str, str]], record: Path) -> None:
    """Write why, the stacks of all threads, and the run to the record; end the worker."""
    names = "; ".join(task["name"] for task in tasks) or "none, so a tool did, or the worker's own loop"
    sys.stderr.write(
        f"acts worker: process {pid} is ended: no Python code has run in it for {seconds:.0f} s, because C code does "
        f"not release the interpreter lock. The workflow tasks that ran meanwhile: {names}. The stacks follow\n"
    )
    sys.stderr.flush()
    if len(tasks) == 1 and tasks[0]["run"]:  # of several, it is unknown which
        write_record(record, tasks[0]["run"])
    os.kill(pid, signal.SIGUSR2)  # faulthandler's handler needs no interpreter lock
    select.select([], [], [], STACK_SECONDS)
    if os.getppid() == pid:
        os.kill(pid, signal.SIGKILL)


def read_board(board: int) -> list[dict[str, str]]:
    tasks: list[dict[str, str]] = []
    with mmap.mmap(board, 0, access=mmap.ACCESS_READ) as memory:
        for start in range(0, len(memory), SLOT_BYTES):
            with contextlib.suppress(ValueError):  # empty, or half written
                tasks.append(json.loads(memory[start : start + SLOT_BYTES].rstrip(b"\0")))
    return tasks


def write_record(record: Path, run: str) -> None:
    """Count the run in the record, which the next worker reads."""
    counts = read_record(record)
    counts[run] = counts.pop(run, 0) + 1
    temporary = record.with_suffix(f".{os.getpid()}")
    try:
        with open(temporary, "x", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            json.dump(dict(list(counts.items())[-MAX_RECORD:]), file)
        temporary.replace(record)
    except OSError as error:
        sys.stderr.write(f"acts worker: the run cannot be counted: {error}\n")


def read_record(record: Path) -> dict[str, int]:
    """How often each run has ended a worker. A file of somebody else counts for nothing."""
    try:
        descriptor = os.open(record, os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            if os.fstat(descriptor).st_uid != os.getuid():
                return {}
            counts = json.load(file)
            return {run: count for run, count in counts.items() if isinstance(count, int)}
    except (OSError, ValueError, AttributeError):
        return {}


if __name__ == "__main__":
    main()
