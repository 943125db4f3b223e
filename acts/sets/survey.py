"""The survey of a set: one pass over the file that says how many rows it has, where its pages begin and which repeat.

Laws of this file:

* memory does not grow with the file but for the table of pages (about 30 bytes for 250 rows) and two bits per row. The
  ids of all rows are compared by SQLite, which sorts them on disk;
* a page is recognised by a hash of its rows. So it does not matter which worker reads it, from which copy, or whether
  the file has grown since; a page that is another one now is an error, never other data;
* pages begin small, so that a small set is spread over several Batches, and soon have ``PAGE_ROWS`` rows.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from acts.language.wire import INVALID_REQUEST, SET_CHANGED, SET_INVALID, SET_TOO_LARGE
from acts.sets.row_reader import DIGEST_BYTES, LineReader, Row, iterate_rows, read_dialect, row_bytes, row_id
from acts.sets.set_files import SetError, quote
from acts.tree.set_records import SetPage, Survey, pack_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.tree.past_run import PastRow
    from acts.tree.set_records import Dialect

# Rows of a page: its Batch, with one child per row and three Calls each, has about 2,500 events of the server's 51,200
PAGE_ROWS: Final = 250
# The first pages have 25 rows, and every 8 pages 25 more: 1,000 rows make 20 pages
_STEP_ROWS: Final = 25
_STEP_PAGES: Final = 8
# Bytes of a page: it is in the Batch's history twice, and the results of its rows come on top
PAGE_BYTES: Final = 256 * 1024
# The table of pages is recorded in the history of the run: 40,000 pages are 10,000,000 rows and 1.2 MB
MAX_PAGES: Final = 40_000
# Of the database with the ids; what is beyond that is on disk
_CACHE_KIB: Final = 16 * 1024
# Ids that are written at once
_BLOCK: Final = 1_000


class RowIds:
    """The ids of the rows of a set: which repeat, and for a run that resumes another one, which rows do not run.

    ``past_run`` names the earlier run, for people. Its lines are added before the rows; of each id the latest counts.
    """

    def __init__(self, past_run: str | None = None, *, only_failed: bool = False) -> None:
        self.past_run, self._only_failed = past_run, only_failed
        self._database = sqlite3.connect("", check_same_thread=False)  # a temporary file, gone when it is closed
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.execute("CREATE TABLE ids (id BLOB, number INTEGER, line INTEGER, status TEXT)")
        self._database.execute("CREATE TABLE bad (line INTEGER PRIMARY KEY)")
        self._block: list[tuple[Any, ...]] = []

    def close(self) -> None:
        """Delete what was collected."""
        self._database.close()

    def add_past(self, rows: Iterable[PastRow]) -> None:
        """Add what became of rows in an earlier run."""
        for row in rows:
            if row.isLine:
                self._database.execute("INSERT OR IGNORE INTO bad VALUES (?)", (int(row.id.removeprefix("line ")),))
            else:
                self._add(row.id, None, None, row.status)

    def add(self, id_: str | None, number: int, line: int) -> None:
        """Add a row with this id, or with none that can be used; ``line`` is its place in the file."""
        self._add(id_, number, line, None)

    def _add(self, id_: str | None, *values: Any) -> None:
        self._block.append((None if id_ is None else id_.encode("utf-8", "surrogatepass"), *values))
        if len(self._block) >= _BLOCK:
            self._write()

    def _write(self) -> None:
        self._database.executemany("INSERT INTO ids VALUES (?, ?, ?, ?)", self._block)
        self._block.clear()

    def find(self, name: str, total: int) -> dict[str, Any]:
        """``{repeated, skipped, takenOver, leftOut}`` of a ``Survey``; all rows of ``name`` have been added.

        Raises:
            SetError: ``only`` leaves no row of the set.
        """
        self._write()
        repeated, skipped = bytearray(total // 8 + 1), bytearray(total // 8 + 1)
        taken_over = left_out = 0
        query = "SELECT id, number, status, line IN bad FROM ids ORDER BY id, rowid"
        for id_, entries in groupby(self._database.execute(query), key=itemgetter(0)):
            past: str | None = None
            is_first = True
            for _, number, status, is_bad in entries:
                if number is None:
                    past = status
                    continue
                if id_ is not None and not is_first:
                    repeated[number >> 3] |= 1 << (number & 7)
                ending = (past if is_first else None) or ("failed" if is_bad else None)
                is_first = id_ is None
                if self.past_run is None or ending == "failed" or (ending != "completed" and not self._only_failed):
                    continue
                skipped[number >> 3] |= 1 << (number & 7)
                taken_over += ending == "completed"
                left_out += ending != "completed"
        if self._only_failed and taken_over + left_out == total:
            counts = f"{taken_over:,} completed, {left_out:,} did not run to their end or are new"
            text = f'only "failed": no row of {name} has failed in {quote(self.past_run)}: {counts}'
            raise SetError(INVALID_REQUEST, f'{text}; without "only", every row that has not completed runs')
        bits = {"repeated": pack_bits(bytes(repeated)), "skipped": pack_bits(bytes(skipped))}
        return {**bits, "takenOver": taken_over, "leftOut": left_out}


def survey(stream: BinaryIO, name: str, id_field: str | None, ids: RowIds) -> Survey:
    """Read a file once. ``ids`` has what an earlier run says of its rows.

    Raises:
        SetError: the file cannot be used as a whole.
    """
    dialect = read_dialect(stream, name)
    if id_field is not None and dialect.columns and id_field not in dialect.columns:
        text = f'{name} has no column "{id_field}", which is to be the id of a row; it has: '
        raise SetError(SET_INVALID, text + ", ".join(dialect.columns)[:500])
    stream.seek(dialect.start)
    pages: list[tuple[int, int, int, str]] = []
    page, total, bytes_of_names = list[Row](), 0, row_bytes(dialect)
    size = 0
    for total, row in enumerate(iterate_rows(LineReader(stream), dialect, dialect.lines + 1), 1):
        is_full = len(page) >= rows_of_page(len(pages)) or size + row.size + bytes_of_names > PAGE_BYTES
        if page and is_full:
            pages.append(_close_page(page, pages, name))
            page, size = [], 0
        page.append(replace(row, data=None))
        size += row.size + bytes_of_names
        if id_field is not None or ids.past_run is not None:
            ids.add(None if row.data is None else row_id(row.data, id_field, total)[0], total, row.line)
    if not page:
        raise SetError(SET_INVALID, f"{name} has no rows{' below its header' if dialect.columns else ''}")
    pages.append(_close_page(page, pages, name))
    return Survey(total=total, dialect=dialect, pages=tuple(pages), **ids.find(name, total))


def _close_page(rows: list[Row], before: list[Any], name: str) -> tuple[int, int, int, str]:
    """The entry of a page in the table; ``before`` are those of the pages before it."""
    if len(before) >= MAX_PAGES:
        text = f"{name} has more than {MAX_PAGES:,} pages of {PAGE_ROWS} rows or {PAGE_BYTES >> 10} KiB"
        raise SetError(SET_TOO_LARGE, f"{text}: split it into several files, and run the plan for each")
    size, lines = sum(row.size for row in rows), sum(row.lines for row in rows)
    return size, len(rows), lines, page_hash(row.digest for row in rows)


def rows_of_page(number: int) -> int:
    """How many rows the page has at most that is the ``number``-th, from 0."""
    return min(PAGE_ROWS, _STEP_ROWS * (1 + number // _STEP_PAGES))


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
