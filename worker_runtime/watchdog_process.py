"""Ends a worker whose interpreter stands still: the watchdog's own process, started by ``watchdog.py``.

C code that does not release the interpreter lock stops every thread of a worker: its watch, its heartbeats and its
signal handlers. Only another process can end it, so that the orchestrator starts a new one.

Standard library only, and run as a file without site-packages: it has to be small, and to start in no time.

    watchdog_process.py PID LIMIT_SECONDS BOARD_FD RECORD

Standard input carries the beats of the worker; its end means that the worker has ended. Time is counted in ticks of
this process, not by the clock: a machine that sleeps, or a process group that is stopped, is no worker that hangs.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import sys
from pathlib import Path

# The worker beats twice in this time
TICK_SECONDS = 1.0
# From the request for the stacks to the end: faulthandler writes them within milliseconds
STACK_SECONDS = 2.0
# A slot of the board: one JSON text, padded with zeros
SLOT_BYTES = 512
# The runs that the record keeps: the newest
MAX_RECORD = 100
# A thread that waits for the lock computes some milliseconds meanwhile; the one that holds it, as much as it gets
BUSY_SECONDS = 0.1


def main() -> None:
    """Watch until the worker has ended."""
    pid, limit, board, record = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the worker; this process ends with it
    missed, before = 0.0, {}
    while os.getppid() == pid:
        if select.select([0], [], [], TICK_SECONDS)[0]:
            if not os.read(0, 65536):
                return
            missed = 0.0
        elif not is_stopped(pid):
            tasks = read_board(board)
            if not missed:
                before = {thread: cpu_seconds(pid, thread) for thread in tasks}
            missed += TICK_SECONDS
            if missed >= limit:
                computed = {cpu_seconds(pid, thread) - before.get(thread, 0.0): thread for thread in tasks}
                most = max(computed, default=0.0)
                end(pid, missed, tasks[computed[most]] if most > BUSY_SECONDS else None, record)
                return


def end(pid: int, seconds: float, task: dict[str, str] | None, record: Path) -> None:
    """Write why, the stacks of all threads, and the run to the record; end the worker."""
    name = "none, so a tool did, or the worker's own loop" if task is None else task["name"]
    sys.stderr.write(
        f"acts worker: process {pid} is ended: no Python code has run in it for {seconds:.0f} s, because C code does "
        f"not release the interpreter lock. The workflow task that computed meanwhile: {name}. The stacks follow\n"
    )
    sys.stderr.flush()
    if task is not None and task["run"]:
        write_record(record, task["run"])
    os.kill(pid, signal.SIGUSR2)  # faulthandler's handler needs no interpreter lock
    select.select([0], [], [], STACK_SECONDS)
    if os.getppid() == pid:
        os.kill(pid, signal.SIGKILL)


def read_board(board: int) -> dict[int, dict[str, str]]:
    """The workflow tasks that run, by the id of their thread."""
    with mmap.mmap(board, 0, access=mmap.ACCESS_READ) as memory:
        slots = [memory[i : i + SLOT_BYTES].rstrip(b"\0") for i in range(0, len(memory), SLOT_BYTES)]
    tasks: dict[int, dict[str, str]] = {}
    for slot in slots:
        try:
            task = json.loads(slot)
        except ValueError:  # empty, or half written
            continue
        tasks[task.pop("thread")] = task
    return tasks


def cpu_seconds(pid: int, thread: int) -> float:
    """What a thread has computed so far; 0 where the system does not say."""
    fields = _stat(Path(f"/proc/{pid}/task/{thread}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def is_stopped(pid: int) -> bool:
    """True for a process that was stopped by a signal or a debugger."""
    return _stat(Path(f"/proc/{pid}/stat"))[:1] in (["T"], ["t"])


def _stat(path: Path) -> list[str]:
    """The fields from the state on; none where there is no such file."""
    try:
        return path.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def write_record(record: Path, run: str) -> None:
    """Count the run in the record, which the next worker reads."""
    counts = read_record(record)
    counts[run] = counts.pop(run, 0) + 1
    try:
        temporary = record.with_suffix(f".{os.getpid()}")
        with open(temporary, "x", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            json.dump(dict(list(counts.items())[-MAX_RECORD:]), file)
        temporary.replace(record)
    except OSError as error:
        sys.stderr.write(f"acts worker: the run cannot be set aside: {error}\n")


def read_record(record: Path) -> dict[str, int]:
    """How often each run has ended a worker. A file of somebody else counts for nothing."""
    try:
        descriptor = os.open(record, os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            if os.fstat(descriptor).st_uid != os.getuid():
                return {}
            counts = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(counts, dict):
        return {}
    return {run: count for run, count in counts.items() if isinstance(count, int)}


if __name__ == "__main__":
    main()
