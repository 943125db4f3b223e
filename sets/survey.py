"""The survey of a set: one pass over the file that says how many rows it has, where its pages begin and which repeat.

Laws of this file:

* memory does not grow with the file but for the table of pages (about 30 bytes for 250 rows) and one bit per row. What
  has to be compared, the hashes of all ids, is split by hash into parts that are compared one after another;
* a page is recognised by a hash of its rows. So it does not matter which worker reads it, from which copy, or whether
  the file has grown since; a page that is another one now is an error, never other data;
* pages begin small, so that a small set is spread over several Batches, and soon have ``PAGE_ROWS`` rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from acts.language.wire import SET_CHANGED, SET_INVALID, SET_TOO_LARGE
from acts.tree.row_numbers import pack_numbers
from acts.tree.set_records import SetPage
from sets.row_ids import RowIds
from sets.row_reader import DIGEST_BYTES, Dialect, LineReader, Row, iterate_rows, read_dialect, row_id
from sets.set_errors import SetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sets.row_ids import PastRows, RowSelection

# Rows of a page: its Batch, with one child per row and three Calls each, has about 2,500 events of the server's 51,200
PAGE_ROWS: Final = 250
# The first pages have 25 rows, and every 8 pages 25 more: 1,000 rows make 20 pages
_STEP_ROWS: Final = 25
_STEP_PAGES: Final = 8
# Bytes of a page: it is in the Batch's history twice, and the results of its rows come on top
PAGE_BYTES: Final = 256 * 1024
# The table of pages is recorded in the history of the run: 40,000 pages are 10,000,000 rows and 1.2 MB
MAX_PAGES: Final = 40_000
# Bytes of a file for each part of the ids: with rows of 50 bytes 500,000 ids, which take 50 MB while they are compared
_PART_BYTES: Final = 25 * 1024 * 1024
_MAX_PARTS: Final = 256


@dataclass(frozen=True, slots=True)
class Survey:
    """What a set holds. A page is ``[bytes, rows, lines, hash]``; ``repeated`` has the numbers of repeated rows.

    ``selection`` are the rows of a run that resumes another one.
    """

    total: int
    dialect: Dialect
    pages: tuple[tuple[int, int, int, str], ...]
    repeated: tuple[int, ...]
    selection: RowSelection | None = None

    def to_json(self) -> dict[str, Any]:
        """``{total, dialect, pages, repeated, skipped?, takenOver?, leftOut?}``: rows as a compressed bitmap."""
        own = {
            "total": self.total, "dialect": self.dialect.to_json(), "pages": [list(page) for page in self.pages],
            "repeated": pack_numbers(self.repeated, self.total),
        }  # fmt: skip
        return own if self.selection is None else own | self.selection.to_json()


def survey(
    stream: BinaryIO, name: str, size: int, id_field: str | None, beat: Callable[[], None],
    past: PastRows | None = None,
) -> Survey:  # fmt: skip
    """Read a file once. ``beat`` is called often; ``size`` is about how many bytes it has; ``past`` is what an earlier
    run says of its rows.

    Raises:
        SetError: the file cannot be used as a whole.
    """
    dialect = read_dialect(stream, name)
    stream.seek(dialect.start)
    lines = LineReader(stream)
    pages: list[tuple[int, int, int, str]] = []
    total = 0
    size += past.size if past is not None else 0
    with RowIds(min(size // _PART_BYTES + 1, _MAX_PARTS), past) as ids:
        page = _PageCounter(dialect.row_bytes)
        for row in iterate_rows(lines, dialect, dialect.lines + 1):
            if page.rows and not page.has_room(row, len(pages)):
                pages.append(page.close())
                _check_count(pages, name)
                beat()
            total += 1
            page.add(row)
            is_needed = row.data is not None and (id_field is not None or past is not None)
            id_ = row_id(row.data or {}, id_field, total)[0] if is_needed else None
            ids.add(id_, total, row.line)
        if page.rows:
            pages.append(page.close())
        if not total:
            raise SetError(SET_INVALID, f"{name} has no rows{' below its header' if dialect.columns else ''}")
        if id_field is not None and dialect.columns and id_field not in dialect.columns:
            text = f'{name} has no column "{id_field}", which is to be the id of a row; it has: '
            raise SetError(SET_INVALID, text + ", ".join(dialect.columns)[:500])
        repeated = tuple(sorted(ids.find(beat)))
        if past is not None:
            past.selection.check(name)
        return Survey(total, dialect, tuple(pages), repeated, None if past is None else past.selection)


def _check_count(pages: list[Any], name: str) -> None:
    if len(pages) > MAX_PAGES:
        text = f"{name} has more than {MAX_PAGES:,} pages of {PAGE_ROWS} rows or {PAGE_BYTES >> 10} KiB"
        raise SetError(SET_TOO_LARGE, f"{text}: split it into several files, and run the plan for each")


def rows_of_page(number: int) -> int:
    """How many rows the page has at most that is the ``number``-th, from 0."""
    return min(PAGE_ROWS, _STEP_ROWS * (1 + number // _STEP_PAGES))


class _PageCounter:
    """The page that is being read. Its hash is that of the digests of its rows, in order.

    ``row_bytes`` is what each row has as JSON beside its bytes in the file: it counts, too.
    """

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._reset()

    def _reset(self) -> None:
        self.bytes = self.rows = self.lines = 0
        self._digests: list[bytes] = []

    def has_room(self, row: Row, number: int) -> bool:
        size = self.bytes + row.size + (self.rows + 1) * self._row_bytes
        return self.rows < rows_of_page(number) and size <= PAGE_BYTES

    def add(self, row: Row) -> None:
        self.bytes, self.rows, self.lines = self.bytes + row.size, self.rows + 1, self.lines + row.lines
        self._digests.append(row.digest)

    def close(self) -> tuple[int, int, int, str]:
        page = (self.bytes, self.rows, self.lines, page_hash(self._digests))
        self._reset()
        return page


def page_hash(digests: Iterable[bytes]) -> str:
    """The hash of a page from the digests of its rows: 12 hex digits."""
    return hashlib.blake2b(b"".join(digests), digest_size=DIGEST_BYTES).hexdigest()


def read_page(stream: BinaryIO, dialect: Dialect, page: SetPage, name: str) -> list[Row]:
    """The rows of a page, from a stream that is at its offset. ``name`` is that of the file, for people.

    Raises:
        SetError: what is there now is not the page of the survey.
    """
    rows = list(islice(iterate_rows(LineReader(stream), dialect, page.line), page.rows))
    if page_hash(row.digest for row in rows) != page.hash:
        last = page.line + page.lines - 1
        text = f"{name} has changed since the run began: its lines {page.line:,} to {last:,} are not what they were"
        raise SetError(SET_CHANGED, f"{text}; when nothing writes to it any more, acts retry runs the rest")
    return rows
