"""The results file of a set: a line for each row, exactly once, whatever is killed and however often it is repeated.

Theory of operation. Several workers append to one file. Beside it is its *journal*, ``.<name>.acts``, which says what
of the file counts:

    {"v": 1, "run": "<identity of the run>"}
    {"end": 4096, "rows": [[1, 25], [31, 31]]}        one record for each append: the end of the file, and whose lines

An append holds the lock of the journal (``flock``; the system frees it when a process dies) and

1. drops what no record confirms: a beginning of a record, and of the file what is beyond the last ``end``;
2. drops the lines of rows that a record has already: a retry, or an attempt that was thought dead;
3. writes the other lines, and waits until they are on the disk (``fsync``);
4. writes the record, and waits for that too: from then on the lines count.

A process that dies before 4 leaves lines that the next append drops, and its own retry writes them again; one that dies
after 4 leaves rows that its retry drops. So each row has one line. Rows are known by their number, not by the attempt
or the run that brings them: a reset or a repetition of any part of the run changes nothing.

``fault`` is for tests: it is called between the steps, and may raise.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from acts.language.wire import RESULTS_EXIST, RESULTS_REFUSED, RESULTS_UNAVAILABLE, RESUME_REFUSED
from sets.folder_paths import check_name, kind_of_file, open_parent, resolve_below
from sets.set_errors import SetError, quote
from sets.set_sources import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_VERSION: Final = 1
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# An append takes milliseconds; who waits longer is behind a file system that does not answer, and tries again later
LOCK_SECONDS: Final = 20.0
_LOCK_PAUSE: Final = 0.005
_CHUNK: Final = 1024 * 1024
# What lets the next attempt succeed, by the reason for which one failed
_HINTS: Final = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in that quota",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), f"let the worker write in that folder of {RESULTS}"),
    errno.ENOENT: "put back the file, its hidden journal, or the folder",
}
# The first record of a journal: the identity of a run is a hash
_HEADER_BYTES: Final = 4096
_locks: Final[dict[str, threading.Lock]] = defaultdict(threading.Lock)


@dataclass(slots=True)
class _Journal:
    """What a journal says, as far as it was read: ``position`` is the end of its last whole record."""

    run: str | None = None
    position: int = 0
    end: int = 0
    rows: bytearray = field(default_factory=bytearray)

    def has(self, row: int) -> bool:
        return row >> 3 < len(self.rows) and bool(self.rows[row >> 3] >> (row & 7) & 1)

    def add(self, row: int) -> None:
        if row >> 3 >= len(self.rows):
            self.rows.extend(bytes((row >> 3) + 1 - len(self.rows)))
        self.rows[row >> 3] |= 1 << (row & 7)


# By device, inode and run: journals only grow, so what was read before need not be read again
_read_before: Final[dict[tuple[int, int, str], _Journal]] = {}
_MAX_JOURNALS: Final = 8


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """A results file: the folder without links, and the steps from there. ``label`` is its name in the plan."""

    root: str
    steps: tuple[str, ...]
    label: str

    @property
    def name(self) -> str:
        """The name of the file in its folder."""
        return self.steps[-1]

    @property
    def journal(self) -> str:
        """The name of its journal, in the same folder."""
        return f".{self.name}.acts"


def find_results(folders: Sequence[Path], name: str) -> ResultsFile:
    """The results file that a plan names, in the first folder that it fits.

    Raises:
        SetError: it is not allowed.
    """
    check_name(name, "a results file", RESULTS_REFUSED)
    if not folders:
        raise SetError(RESULTS_REFUSED, f"this worker writes no results: {RESULTS} names no folder for {quote(name)}")
    for folder in folders:
        place = resolve_below(folder, name)
        if place is not None and place[1][-1].startswith("."):
            raise SetError(RESULTS_REFUSED, f"the results file {quote(name)} has a name that begins with a dot")
        if place is not None:
            return ResultsFile(*place, name)
    where = ", ".join(map(str, folders))
    raise SetError(RESULTS_REFUSED, f"the results file {quote(name)} is outside the folders of {RESULTS} ({where})")


def create(file: ResultsFile, run: str) -> None:
    """Create the file for a run; one that is there already must be that of this run.

    Raises:
        SetError: it exists already, or cannot be written now.
    """
    with _locked(file, os.O_CREAT) as (parent, journal):
        state = _read_journal(journal, run)
        if state.run == run:
            os.close(os.open(file.name, _FLAGS | os.O_CREAT, 0o644, dir_fd=parent))
            return
        if _exists(parent, file.name):
            if os.fstat(journal).st_size == 0:
                os.unlink(file.journal, dir_fd=parent)
            owner = "" if state.run is None else " (of another run)"
            text = f"the results file {quote(file.label)} exists already{owner}, and a run appends only to its own"
            raise SetError(RESULTS_EXIST, f"{text}: remove it, or name another one")
        os.ftruncate(journal, 0)
        os.pwrite(journal, json.dumps({"v": _VERSION, "run": run}).encode() + b"\n", 0)
        os.fsync(journal)
        os.close(os.open(file.name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=parent))
        os.fsync(parent)


def append(
    file: ResultsFile, run: str, lines: Iterable[tuple[int, bytes]], fault: Callable[[str], None] | None = None
) -> int:
    """Append the lines (row number, JSON without a line end) of rows that have none yet; returns how many those are.

    Raises:
        SetError: the file is that of another run, or cannot be written now: then nothing of it counts.
    """
    reach = fault or (lambda _point: None)
    with _locked(file) as (parent, journal):
        state = _read_journal(journal, run)
        if state.run != run:
            text = f"the results file {quote(file.label)} has become that of another run"
            raise SetError(RESULTS_REFUSED, f"{text}: one file takes the results of one run")
        _drop_unconfirmed(journal, state.position)
        kind = kind_of_file(os.stat(file.name, dir_fd=parent, follow_symlinks=False).st_mode)
        if kind is not None:
            raise SetError(RESULTS_REFUSED, f"the results file {quote(file.label)} is {kind} now")
        results = os.open(file.name, _FLAGS, dir_fd=parent)
        try:
            _check_length(file, results, state)
            new = {row: line for row, line in lines if not state.has(row)}
            if new:
                _write(results, journal, state, new, reach)
            return len(new)
        finally:
            os.close(results)


def confirmed_end(file: ResultsFile, run: str) -> int | None:
    """How many bytes of the file the journal of a run confirms; None: there is no journal.

    Raises:
        SetError: the journal is that of another run, or cannot be read now.
    """
    try:
        with _locks[_lock_key(file)], open_parent(file.root, file.steps) as parent:
            journal = os.open(file.journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            try:
                state = _read_journal(journal, run)
            finally:
                os.close(journal)
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"the journal of the results file {quote(file.label)} cannot be read: {error.strerror or error}"
        raise SetError(RESULTS_UNAVAILABLE, text) from error
    if state.run != run:
        text = f"the results file {quote(file.label)} of the earlier run has become that of another run"
        raise SetError(RESUME_REFUSED, f"{text}: put the file of that run back, with its hidden file {file.journal}")
    return state.end


def read_rows(file: ResultsFile, run: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """The lines of the rows from ``first`` to ``last`` that count; an append has rows of one page alone.

    Raises:
        SetError: the file is that of another run, or cannot be read now.
    """
    try:
        with open_parent(file.root, file.steps) as parent:
            with _open_to_read(parent, file.journal) as journal:
                places = _places_of_rows(journal, run, first, last)
            if places is None:
                raise SetError(RESULTS_REFUSED, f"the results file {quote(file.label)} has become that of another run")
            with _open_to_read(parent, file.name) as results:
                for begin, end in places:
                    results.seek(begin)
                    while results.tell() < end:
                        yield json.loads(results.readline())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not what was written: {error}"
        text = f"the results file {quote(file.label)} cannot be read: {reason}"
        raise SetError(RESULTS_UNAVAILABLE, text) from error


def _open_to_read(parent: int, name: str) -> IO[bytes]:
    return os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent), "rb")


def _places_of_rows(journal: IO[bytes], run: str, first: int, last: int) -> list[tuple[int, int]] | None:
    """Where the lines of these rows begin and end; None: the journal is that of another run."""
    header = _read_record(journal.readline(_HEADER_BYTES))
    if header is None or header.get("run") != run:
        return None
    out: list[tuple[int, int]] = []
    begin = 0
    while (record := _read_record(journal.readline())) is not None:
        if any(low <= last and high >= first for low, high in record["rows"]):
            out.append((begin, record["end"]))
        begin = record["end"]
    return out


def _lock_key(file: ResultsFile) -> str:
    return f"{file.root}/{'/'.join(file.steps)}"


def _write(results: int, journal: int, state: _Journal, new: dict[int, bytes], reach: Callable[[str], None]) -> None:
    data = b"".join(line + b"\n" for line in new.values())
    end = state.end + len(data)
    record = json.dumps({"end": end, "rows": _ranges(new)}, separators=(",", ":")).encode() + b"\n"
    reach("begin")
    try:
        _write_all(results, data, state.end, reach)
        os.fsync(results)
        reach("lines")
        _write_all(journal, record, state.position, reach)
        os.fsync(journal)
    except OSError:  # no space, most likely: give back what it took
        os.ftruncate(journal, state.position)
        os.ftruncate(results, state.end)
        raise
    reach("record")
    state.position, state.end = state.position + len(record), end
    for row in new:
        state.add(row)


def _write_all(descriptor: int, data: bytes, offset: int, reach: Callable[[str], None]) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view[:_CHUNK], offset)
        view, offset = view[written:], offset + written
        reach("part")


def _ranges(rows: Iterable[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for row in sorted(rows):
        if out and out[-1][1] == row - 1:
            out[-1][1] = row
        else:
            out.append([row, row])
    return out


# -- the journal -------------------------------------------------------------------------


@contextmanager
def _locked(file: ResultsFile, more_flags: int = 0) -> Iterator[tuple[int, int]]:
    """The folder and the journal, locked against all other threads and processes."""
    try:
        with _locks[_lock_key(file)], open_parent(file.root, file.steps) as parent:
            while True:
                journal = os.open(file.journal, _FLAGS | more_flags, 0o644, dir_fd=parent)
                try:
                    _lock(file, journal)
                    if _is_current(journal, parent, file.journal):
                        yield parent, journal
                        return
                finally:
                    os.close(journal)
    except OSError as error:
        text = f"the results file {quote(file.label)} cannot be written: {error.strerror or error}"
        hint = _HINTS.get(error.errno or 0)
        raise SetError(RESULTS_UNAVAILABLE, text if hint is None else f"{text}; {hint}") from error


def _is_current(journal: int, parent: int, name: str) -> bool:
    """False for a journal that was removed while its lock was waited for."""
    try:
        now = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return now.st_ino == os.fstat(journal).st_ino


def _lock(file: ResultsFile, journal: int) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                text = f"the results file {quote(file.label)} is locked by another process for {LOCK_SECONDS:g} s"
                raise SetError(RESULTS_UNAVAILABLE, text) from None
            time.sleep(_LOCK_PAUSE)
        else:
            return


def _read_journal(journal: int, run: str) -> _Journal:
    """What the journal says; of that of the run, the part that was read before is not read again."""
    status = os.fstat(journal)
    key = (status.st_dev, status.st_ino, run)
    header = _read_record(os.pread(journal, _HEADER_BYTES, 0).partition(b"\n")[0] + b"\n")
    owner = None if header is None else str(header.get("run"))
    state = _read_before.pop(key, None)
    if owner != run:  # the file may have been removed, and have become that of another run
        return _Journal(owner)
    if state is None or state.position > status.st_size:
        state = _Journal(owner)
    data = bytearray()
    while chunk := os.pread(journal, _CHUNK, state.position + len(data)):
        data += chunk
    for line in bytes(data).splitlines(keepends=True):
        record = _read_record(line)
        if record is None:
            break
        state.position += len(line)
        state.end = record.get("end", state.end)
        for first, last in record.get("rows", ()):
            for row in range(first, last + 1):
                state.add(row)
    while len(_read_before) >= _MAX_JOURNALS:
        del _read_before[next(iter(_read_before))]
    _read_before[key] = state
    return state


def _read_record(line: bytes) -> dict[str, Any] | None:
    """A whole record; None for the beginning of one."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _drop_unconfirmed(journal: int, position: int) -> None:
    if os.fstat(journal).st_size > position:
        os.ftruncate(journal, position)


def _check_length(file: ResultsFile, results: int, state: _Journal) -> None:
    size = os.fstat(results).st_size
    if size > state.end:
        os.ftruncate(results, state.end)
    elif size < state.end:
        text = f"the results file {quote(file.label)} has {size:,} bytes, of {state.end:,} that were written"
        raise SetError(RESULTS_UNAVAILABLE, f"{text}: it was changed; put it back as it was")


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
