"""Reads the results of earlier runs, for a run that resumes them: what became of which row.

Laws of this file:

* one line of a file is in memory at a time;
* of a file with a journal counts what the journal confirms: a run may have been killed in the middle of an append. A
  journal of another run means that the file was replaced;
* a file is only read. One that is not there any more is an error: without it, nobody knows which rows completed.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, TYPE_CHECKING, Any, Final

from acts.language.wire import RESULTS_UNAVAILABLE, RESUME_REFUSED
from acts.tree.set_rows import bad_row_number
from sets.folder_paths import kind_of_file, open_parent
from sets.results_file import confirmed_end
from sets.set_errors import SetError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from acts.tree.past_run import PastRow
    from sets.results_file import ResultsFile

# Bytes of a line: 64 MiB is the largest state that a run keeps, and as JSON text it may double
MAX_LINE: Final = 128 * 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ending(IntEnum):
    """What a row came to in an earlier run. ``ENDED``: otherwise, cancelled for example."""

    NONE = 0
    COMPLETED = 1
    FAILED = 2
    ENDED = 3


@dataclass(frozen=True, slots=True)
class PastLine:
    """A line of a results file. Of a row that could not be used, ``row_line`` is its line in the set; it has no id."""

    ending: Ending
    id: str | None = None
    row_line: int | None = None


class PastSpool:
    """What the rows of an earlier run without a results file came to: ``write`` puts them into a temporary file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, rows: Iterable[PastRow]) -> None:
        """Append rows."""
        for row in rows:
            self._stream.write(json.dumps([row.id, row.status, row.isLine]).encode() + b"\n")

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._stream.tell()

    def lines(self) -> Iterator[PastLine]:
        """Its rows."""
        self._stream.seek(0)
        for text in self._stream:
            id_, status, is_line = json.loads(text)
            number = bad_row_number(id_, None) if is_line else None
            yield PastLine(ending_of(status), None if number else id_, number)


@dataclass(frozen=True, slots=True)
class PastFile:
    """A results file of an earlier run, and the identity of that run."""

    file: ResultsFile
    run: str

    @property
    def size(self) -> int:
        """Its bytes.

        Raises:
            SetError: it cannot be read.
        """
        with self._open() as stream:
            return os.fstat(stream.fileno()).st_size

    def lines(self) -> Iterator[PastLine]:
        """Its lines, as far as they count.

        Raises:
            SetError: it cannot be read, or is not what the run wrote.
        """
        with self._open() as stream:
            end, size = confirmed_end(self.file, self.run), os.fstat(stream.fileno()).st_size
            if end is not None and size < end:
                text = f"has {size:,} bytes, of {end:,} that the earlier run wrote"
                raise self._refusal(f"{text}: put it back as it was")
            yield from self._read(stream, end)

    def _read(self, stream: IO[bytes], end: int | None) -> Iterator[PastLine]:
        number, place = 0, 0
        while (end is None or place < end) and (text := stream.readline(MAX_LINE)):
            number, place = number + 1, place + len(text)
            if not text.endswith(b"\n") and end is None and len(text) < MAX_LINE:
                return  # the beginning of a line that the run did not finish
            line = parse_line(text)
            if line is None:
                raise self._refusal(f"is not what the earlier run wrote: line {number:,}; put it back as it was")
            yield line

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        file = self.file
        try:
            with open_parent(file.root, file.steps) as parent:
                stream = os.fdopen(os.open(file.name, _FLAGS, dir_fd=parent), "rb")
        except (FileNotFoundError, NotADirectoryError):
            hint = "put it back, or start the plan without config.resume"
            raise self._refusal(f"is not there any more, so nobody knows which rows completed: {hint}") from None
        except OSError as error:
            text = f"the results file {quote(file.label)} of the earlier run cannot be read: {error.strerror or error}"
            raise SetError(RESULTS_UNAVAILABLE, text) from error
        with stream:
            kind = kind_of_file(os.fstat(stream.fileno()).st_mode)
            if kind is not None:
                raise self._refusal(f"is {kind} now")
            yield stream

    def _refusal(self, fault: str) -> SetError:
        return SetError(RESUME_REFUSED, f"the results file {quote(self.file.label)} of the earlier run {fault}")


def ending_of(status: str) -> Ending:
    """The ending that a status stands for."""
    return {"completed": Ending.COMPLETED, "failed": Ending.FAILED}.get(status, Ending.ENDED)


def parse_line(text: bytes) -> PastLine | None:
    """A line of a results file; None for what is none."""
    try:
        line: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("id"), str) or not isinstance(line.get("status"), str):
        return None
    status, id_ = line["status"], line["id"]
    ending = ending_of(status)
    row_line = bad_row_number(id_, line.get("errors", ()))
    return PastLine(ending, id_) if row_line is None else PastLine(ending, row_line=row_line)
