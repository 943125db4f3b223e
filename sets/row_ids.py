"""The ids of the rows of a set: which repeat, and which an earlier run has had already.

Laws of this file: ids are compared by hashes of 96 bits, in parts that are split by hash and compared one after
another, so memory does not grow with the files: of one part, some 100 bytes for each id of the set and of the earlier
run. Which rows do not run is one bit per row.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from bisect import bisect_left
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, Final, Self

from acts.language.wire import INVALID_REQUEST
from acts.tree.row_numbers import pack_bits
from sets.past_results import Ending
from sets.set_errors import SetError, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sets.past_results import PastFile, PastLine, PastSpool

_HASH_BYTES: Final = 12
_NUMBER_BYTES: Final = 8
_ENTRIES: Final = 4096
# Of an entry of the earlier run, which has an ending in place of a row number
_IS_PAST: Final = 1 << 63


class RowSelection:
    """The rows that a run does not run, since it resumes another one. ``run`` names that one, for people."""

    def __init__(self, run: str, *, only_failed: bool) -> None:
        self._run, self._only_failed = run, only_failed
        self._skipped = bytearray()
        self.taken_over = self.left_out = self.running = 0

    def add(self, number: int, ending: Ending) -> None:
        """A row has come to this in the earlier run."""
        if ending == Ending.COMPLETED:
            self.taken_over += 1
        elif self._only_failed and ending != Ending.FAILED:
            self.left_out += 1
        else:
            self.running += 1
            return
        if number >> 3 >= len(self._skipped):
            self._skipped.extend(bytes((number >> 3) + 1 - len(self._skipped)))
        self._skipped[number >> 3] |= 1 << (number & 7)

    def check(self, name: str) -> None:
        """Raise SetError where ``only`` leaves no row of the set."""
        if self._only_failed and not self.running:
            counts = f"{self.taken_over:,} completed, {self.left_out:,} did not run to their end or are new"
            text = f'only "failed": no row of {name} has failed in {quote(self._run)}: {counts}'
            raise SetError(INVALID_REQUEST, f'{text}; without "only", every row that has not completed runs')

    def to_json(self) -> dict[str, Any]:
        """``{skipped, takenOver, leftOut}``."""
        return {
            "skipped": pack_bits(bytes(self._skipped)), "takenOver": self.taken_over, "leftOut": self.left_out
        }  # fmt: skip


class PastRows:
    """What earlier runs say of the rows: ``sources`` are their results, the oldest first. The latest line counts.

    ``selection`` is what follows.
    """

    def __init__(self, sources: Sequence[PastFile | PastSpool], selection: RowSelection) -> None:
        self._sources, self.selection = sources, selection

    @property
    def size(self) -> int:
        """The bytes of all. Raises SetError where one cannot be read."""
        return sum(source.size for source in self._sources)

    def lines(self) -> Iterator[PastLine]:
        """The lines of all. Raises SetError where one cannot be read."""
        for source in self._sources:
            yield from source.lines()


class RowIds:
    """Finds the rows whose id an earlier row has; with ``past``, selects those that run.

    Of several parts, each is kept in a file until it is compared.
    """

    def __init__(self, parts: int, past: PastRows | None = None) -> None:
        self._parts, self._selection = parts, None if past is None else past.selection
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        self._past = past
        self._first: set[bytes] = set()
        self._endings: dict[bytes, int] = {}
        self._failed_lines = array("Q")
        self._in_failed_lines: set[int] = set()
        self._repeated: list[int] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._parts > 1:
                self._files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(self._parts)]
            if self._past is not None:
                self._read_past(self._past.lines())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _read_past(self, lines: Iterable[PastLine]) -> None:
        failed_lines = array("Q")
        for line in lines:
            if line.row_line is not None:
                failed_lines.append(line.row_line)
            elif line.id is not None and self._files:
                self._write(_digest(line.id), _IS_PAST | line.ending)
            elif line.id is not None:
                self._endings[_digest(line.id)] = line.ending
        self._failed_lines = array("Q", sorted(failed_lines))

    def add(self, id_: str | None, number: int, line: int) -> None:
        """A row with this id, or with none that can be used; ``line`` is its place in the file."""
        if self._selection is not None and self._is_failed_line(line):
            self._in_failed_lines.add(number)
        if id_ is None:
            if self._selection is not None:
                self._selection.add(number, self._ending_of_line(number))
        elif self._files:
            self._write(_digest(id_), number)
        else:
            self._compare(_digest(id_), number)

    def _is_failed_line(self, line: int) -> bool:
        at = bisect_left(self._failed_lines, line)
        return at < len(self._failed_lines) and self._failed_lines[at] == line

    def _ending_of_line(self, number: int) -> Ending:
        return Ending.FAILED if number in self._in_failed_lines else Ending.NONE

    def _write(self, digest: bytes, number: int) -> None:
        file = self._files[int.from_bytes(digest[:2], "big") % self._parts]
        file.write(digest + number.to_bytes(_NUMBER_BYTES, "big"))

    def _compare(self, digest: bytes, number: int) -> None:
        ending = None
        if digest in self._first:
            self._repeated.append(number)
        else:
            self._first.add(digest)
            ending = self._endings.get(digest)
        if self._selection is not None:
            self._selection.add(number, self._ending_of_line(number) if ending is None else Ending(ending))

    def find(self, beat: Callable[[], None]) -> list[int]:
        """The numbers of the rows whose id an earlier row has; all rows have been added."""
        for file in self._files:
            self._first.clear()
            self._endings.clear()
            for digest, number in _entries(file):  # first those of the earlier run
                if number & _IS_PAST:
                    self._endings[digest] = number ^ _IS_PAST
                else:
                    self._compare(digest, number)
            beat()
        return self._repeated


def _digest(id_: str) -> bytes:
    return hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()


def _entries(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    size = _HASH_BYTES + _NUMBER_BYTES
    file.seek(0)
    while block := file.read(size * _ENTRIES):
        for at in range(0, len(block), size):
            yield block[at : at + _HASH_BYTES], int.from_bytes(block[at + _HASH_BYTES : at + size], "big")
