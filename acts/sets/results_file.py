"""The results file of a set: a line for each row, exactly once, whatever is killed and however often it is repeated.

Theory of operation. Several workers append to one file. Beside it is its *journal*, ``.<name>.acts``, an SQLite
database that says what of the file counts: the run that owns it, the end of the file, and where the line of each row
begins. An append is one transaction of the journal, so it holds its lock, and it

1. drops what the file has beyond its end: lines of an append that died;
2. drops the lines of rows that the journal has already: a retry, or an attempt that was thought dead;
3. writes the other lines, and waits until they are on the disk (``fsync``);
4. commits their places and the new end: from then on the lines count.

A process that dies before 4 leaves lines that the next append drops, and its own retry writes them again; one that dies
after 4 leaves rows that its retry drops. So each row has one line. Rows are known by their number, not by the attempt
or the run that brings them: a reset or a repetition of any part of the run changes nothing.

A run that resumes another one reads that one's file up to the end in its journal; without a journal, all of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Final

from acts.delegates import sources
from acts.delegates.sources import FILE_FLAGS, IrregularFileError, open_parent, open_regular, quote
from acts.language.config import RESULTS_ENDINGS
from acts.language.errors import format_choices
from acts.language.wire import RESULTS_EXIST, RESULTS_REFUSED, RESULTS_UNAVAILABLE, RESUME_REFUSED
from acts.sets.set_files import RESULTS, SetError, check_name
from acts.tree.past_run import PastRow
from acts.tree.set_records import is_bad_row

# An append takes milliseconds; who waits longer is behind a file system that does not answer, and tries again later
LOCK_SECONDS: Final = 20.0
_CHUNK: Final = 1024 * 1024
# Bytes of a line: 64 MiB is the largest state that a run keeps, and as JSON text it may double
MAX_LINE: Final = 128 * 1024 * 1024
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE_FLAGS
# The run that the file belongs to, and where the file ends
_OWNER: Final = "SELECT run, end FROM file"


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """A results file: the folder without links, and the steps from there. ``label`` is its name in the plan."""

    root: str
    steps: tuple[str, ...]
    label: str

    @property
    def journal(self) -> str:
        """The name of its journal, in the same folder."""
        return f".{self.steps[-1]}.acts"

    def error(self, type_: str, fault: str) -> SetError:
        """The error that says what is wrong with the file."""
        earlier = " of the earlier run" if type_ == RESUME_REFUSED else ""
        return SetError(type_, f"the results file {quote(self.label)}{earlier} {fault}")


def find_results(folders: Sequence[Path], name: str) -> ResultsFile:
    """The results file that a plan names, in the first folder that it fits; SetError where it is not allowed."""
    check_name(name, "a results file", RESULTS_REFUSED)
    if not folders:
        raise SetError(RESULTS_REFUSED, f"this worker writes no results: {RESULTS} names no folder for {quote(name)}")
    for folder in map(Path.absolute, folders):
        if (place := sources.resolve_below(folder, name)) is not None:
            file, (root, steps) = ResultsFile(*place, name), place
            if Path(folder, name) not in (folder.joinpath(*steps), Path(root, *steps)):
                raise file.error(RESULTS_REFUSED, "leads through a link")
            if any(step.startswith(".") for step in steps) or not name.endswith(RESULTS_ENDINGS):
                fault = f"does not end in {format_choices(RESULTS_ENDINGS)}, or has a step that begins with a dot"
                raise file.error(RESULTS_REFUSED, fault)
            return file
    where = ", ".join(map(str, folders))
    raise SetError(RESULTS_REFUSED, f"the results file {quote(name)} is outside the folders of {RESULTS} ({where})")


def create(file: ResultsFile, run: str) -> None:
    """Create the file for a run, whose own it may be already; SetError where it is another's, or cannot be written."""
    with _explained(file, "written"), open_parent(file.root, file.steps) as parent:
        entries = os.listdir(parent)  # noqa: PTH208 - of a descriptor
        if file.journal not in entries and file.steps[-1] in entries:
            raise _name_is_used(file)
        with suppress(FileExistsError):  # another process was faster
            os.close(os.open(file.journal, _NEW, 0o644, dir_fd=parent))
        with _connect(file, parent) as journal:
            journal.execute("CREATE TABLE IF NOT EXISTS file (run TEXT NOT NULL, end INTEGER NOT NULL)")
            journal.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, begin INTEGER NOT NULL)")
            owner, _ = journal.execute(_OWNER).fetchone() or (None, 0)
            if owner != run:
                _create(file, parent, owner)
                journal.execute("DELETE FROM file")
                journal.execute("DELETE FROM rows")
                journal.execute("INSERT INTO file VALUES (?, 0)", (run,))
            journal.commit()
        os.fsync(parent)


def _create(file: ResultsFile, parent: int, owner: str | None) -> None:
    """Create the file itself. One that is there is of others, unless it is what a start that died has left: empty,
    beside a journal without an owner.
    """
    try:
        os.close(os.open(file.steps[-1], _NEW, 0o644, dir_fd=parent))
    except FileExistsError:
        if owner is not None or os.stat(file.steps[-1], dir_fd=parent, follow_symlinks=False).st_size:
            raise _name_is_used(file, "" if owner is None else " (of another run)") from None


def _name_is_used(file: ResultsFile, owner: str = "") -> SetError:
    text = f"exists already{owner}, and a run appends only to its own: remove it, or name another one"
    return file.error(RESULTS_EXIST, text)


def append(file: ResultsFile, run: str, lines: Iterable[tuple[int, bytes]]) -> int:
    """Append the lines (row number, JSON without a line end) of rows that have none yet; returns how many those are.

    SetError where the file is that of another run, or cannot be written now: then nothing of it counts.
    """
    new = {row: line + b"\n" for row, line in lines}
    with (
        _explained(file, "written"),
        _open_own(file, run) as (journal, end),
        os.fdopen(open_regular(file.root, file.steps, os.O_RDWR), "r+b", buffering=0) as results,
    ):
        size = os.fstat(results.fileno()).st_size
        if size < end:
            fault = f"has {size:,} bytes, of {end:,} that were written: it was changed; put it back as it was"
            raise file.error(RESULTS_UNAVAILABLE, fault)
        results.truncate(end)
        query = "SELECT number FROM rows WHERE number IN (SELECT value FROM json_each(?))"
        for (row,) in journal.execute(query, (json.dumps(list(new)),)):
            del new[row]
        try:
            begins = list(accumulate(map(len, new.values()), initial=end))
            view, offset = memoryview(b"".join(new.values())), end
            while view:
                written = os.pwrite(results.fileno(), view[:_CHUNK], offset)
                view, offset = view[written:], offset + written
            os.fsync(results.fileno())
            journal.executemany("INSERT INTO rows VALUES (?, ?)", zip(new, begins, strict=False))
            journal.execute("UPDATE file SET end = ?", (begins[-1],))
            journal.commit()
        except (OSError, sqlite3.Error):  # no space, most likely: give back what it took
            results.truncate(end)
            raise
    return len(new)


def read_rows(file: ResultsFile, run: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """The lines of the rows from ``first`` to ``last`` that count, in the order of the file; or SetError."""
    with _explained(file, "read"), _open_own(file, run, "BEGIN") as (journal, _):
        query = "SELECT begin FROM rows WHERE number BETWEEN ? AND ? ORDER BY begin"
        with os.fdopen(open_regular(file.root, file.steps), "rb") as results:
            for (begin,) in journal.execute(query, (first, last)):
                results.seek(begin)
                yield json.loads(results.readline())


def read_past(file: ResultsFile, run: str) -> Iterator[PastRow]:
    """The lines of an earlier run's file, as far as they count, one in memory at a time; or SetError."""
    with _explained(file, "read", RESUME_REFUSED):
        try:
            with os.fdopen(open_regular(file.root, file.steps), "rb") as stream:
                end, size = None, os.fstat(stream.fileno()).st_size
                with suppress(FileNotFoundError), _open_own(file, run, "BEGIN") as (_, confirmed):
                    end = confirmed
                if end is not None and size < end:
                    fault = f"has {size:,} bytes, of {end:,} that the earlier run wrote: put it back as it was"
                    raise file.error(RESUME_REFUSED, fault)
                yield from _parse_lines(file, stream, end)
        except SetError as error:
            if error.type == RESUME_REFUSED:
                raise
            fault = f"put the file of that run back, with its hidden file {file.journal}"
            raise file.error(RESUME_REFUSED, f"has become that of another run: {fault}") from None
        except (FileNotFoundError, NotADirectoryError):
            hint = "put it back, or start the plan without config.resume"
            fault = f"is not there any more, so nobody knows which rows completed: {hint}"
            raise file.error(RESUME_REFUSED, fault) from None


def _parse_lines(file: ResultsFile, stream: IO[bytes], end: int | None) -> Iterator[PastRow]:
    number, place = 0, 0
    while (end is None or place < end) and (text := stream.readline(MAX_LINE)):
        number, place = number + 1, place + len(text)
        if not text.endswith(b"\n") and end is None and len(text) < MAX_LINE:
            return  # the beginning of a line that the run did not finish
        try:
            line: Any = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        texts = (line.get("id"), line.get("status")) if isinstance(line, dict) else (None,)
        if not all(isinstance(value, str) for value in texts):
            fault = f"is not what the earlier run wrote: line {number:,}; put it back as it was"
            raise file.error(RESUME_REFUSED, fault)
        is_line = is_bad_row(line["id"], line.get("errors"))
        yield PastRow(id=line["id"], status=line["status"], isLine=is_line, hasErrors="handled" in line)


@contextmanager
def _open_own(file: ResultsFile, run: str, begin: str = "BEGIN IMMEDIATE") -> Iterator[tuple[sqlite3.Connection, int]]:
    """The journal of this run, locked against all other threads and processes, and the end of the file."""
    with open_parent(file.root, file.steps) as parent, _connect(file, parent, begin) as journal:
        owner, end = journal.execute(_OWNER).fetchone() or (None, 0)
        if owner != run:
            raise file.error(RESULTS_REFUSED, "has become that of another run: one file takes the results of one run")
        yield journal, end


@contextmanager
def _connect(file: ResultsFile, parent: int, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
    """A connection in a transaction; what is not committed is undone, also by the next process after one that died."""
    sources.check_regular(os.stat(file.journal, dir_fd=parent, follow_symlinks=False).st_mode)
    address = f"{Path(file.root, *file.steps[:-1], file.journal).as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS, isolation_level=None)) as journal:
        journal.execute(begin)
        yield journal


@contextmanager
def _explained(file: ResultsFile, what: str, refused: str = RESULTS_REFUSED) -> Iterator[None]:
    """Raise what goes wrong as a SetError."""
    try:
        yield
    except IrregularFileError as kind:
        raise file.error(refused, f"is {kind} now") from None
    except (OSError, ValueError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise file.error(RESULTS_UNAVAILABLE, f"cannot be {what}: {reason}") from error
