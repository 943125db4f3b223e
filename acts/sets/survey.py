"""The rows of a JSON Lines or CSV file, and its survey: how many rows, where its pages begin, and which repeat.

Laws of this file:

* at most one row is in memory, and a row has at most ``MAX_ROW_BYTES``: what is longer is skipped and reported;
* a row that cannot be read is a row all the same: it has a number, a line and an error, and the next row is read from
  the next line;
* rows are the same wherever reading begins: blank lines belong to the row after them, and a digest to its row alone;
* a page is recognised by a hash of its rows. So it does not matter which worker reads it, from which copy, or whether
  the file has grown since; a page that is another one now is an error, never other data;
* memory does not grow with the file but for the table of pages (about 30 bytes for 250 rows) and two bits per row. The
  ids of all rows are compared by SQLite, which sorts them on disk;
* pages begin small, so that a small set is spread over several Batches, and soon have ``PAGE_ROWS`` rows.

A CSV row may span lines, inside quotes. Python's ``csv`` reads it, line by line from an iterator that counts: so its
end in bytes is exact. Where a quote is never closed, the row is the one line that it begins on.
"""

from __future__ import annotations

import csv
import hashlib
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, BinaryIO, Final

from acts.delegates.sources import quote
from acts.language.errors import truncate
from acts.language.strict_json import json_size, read_json
from acts.language.values import defect, type_name
from acts.language.wire import INVALID_REQUEST, SET_CHANGED, SET_INVALID, SET_TOO_LARGE
from acts.sets.set_files import SetError
from acts.tree.past_run import PastRow
from acts.tree.set_records import Dialect, SetPage, Survey, pack_bits

# A row is a Message of its instance, in a payload of at most 2 MiB, beside the plan and the global data
MAX_ROW_BYTES: Final = 1024 * 1024
# Characters of an id: it stands in workflow ids, in labels and in every line of the results
MAX_ID: Final = 300
JSON_LINES: Final = "jsonl"
CSV: Final = "csv"
_BOM: Final = b"\xef\xbb\xbf"
_CHUNK: Final = 64 * 1024
# 128 bits: nobody finds another page of the digest that people have approved
DIGEST_BYTES: Final = 16

# The default, 128 KiB, is less than a row may have
csv.field_size_limit(MAX_ROW_BYTES)


@dataclass(frozen=True, slots=True)
class Row:
    """One row, or what a few lines hold. ``size`` (bytes) and ``lines`` of a row include blank lines before it.

    ``data`` None: it cannot be used, and ``fault`` says why; without one, the lines are blank. ``line`` is its first
    line, from 1; ``digest`` that of all lines that were looked at to read it, save what is beyond the limit of a row.
    """

    size: int
    lines: int
    data: Any = None
    fault: str = ""
    line: int = 0
    digest: bytes = b""


class LineReader:
    """The lines of a stream as bytes with their ends, and a digest of those that a row took."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._returned = deque[tuple[bytes, int]]()
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def read(self) -> tuple[bytes, int] | None:
        """The next line and its bytes in the file; of a line beyond the limit only the beginning. None at the end."""
        if self._returned:
            line, size = self._returned.popleft()
        else:
            chunk = line = self._stream.readline(MAX_ROW_BYTES + 1)
            size = len(line)
            while size > MAX_ROW_BYTES and chunk and not chunk.endswith(b"\n"):
                chunk = self._stream.readline(_CHUNK)
                size += len(chunk)
        if not line:
            return None
        self._hash.update(line if len(line) == size else b"%d:%b" % (size, line))
        return line, size

    def give_back(self, lines: Sequence[tuple[bytes, int]]) -> None:
        """These lines are read again."""
        self._returned.extendleft(reversed(lines))

    def take_digest(self) -> bytes:
        """The digest of the lines that were read since the last one."""
        digest = self._hash.digest()
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        return digest


def read_dialect(stream: BinaryIO, name: str) -> Dialect:
    """How a file of this name is read, from its beginning; SetError where its header cannot be used."""
    beginning = stream.read(len(_BOM))
    if beginning[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SetError(SET_INVALID, f"{name} is UTF-16; a set is UTF-8: save it as UTF-8")
    bom = len(_BOM) if beginning == _BOM else 0
    stream.seek(bom)
    if not name.removesuffix(".gz").lower().endswith(".csv"):
        return Dialect(format=JSON_LINES, start=bom)
    lines = LineReader(stream)
    first = lines.read()
    if first is None:
        raise SetError(SET_INVALID, f"{name} is empty: a CSV file begins with a header that names its columns")
    delimiter = next((d for d in (",", ";", "\t") if d.encode() in first[0]), ",")
    lines.give_back([first])
    header = next(_csv_records(lines, delimiter))
    columns = [column.strip() for column in header.data or ()]
    double = next((c for c in columns if columns.count(c) > 1), "")
    faults = {
        "it names no columns": not any(columns),
        f"it has no name for column {[*columns, ''].index('') + 1}": "" in columns,
        f"it has the column {quote(double)} twice": double,
        "it is not UTF-8": defect(columns) is not None,
    }
    fault = header.fault or next((text for text, is_there in faults.items() if is_there), "")
    if fault:
        text = f"the header of {name} cannot be used: {fault}; each column needs a name of its own"
        raise SetError(SET_INVALID, text)
    start = bom + header.size
    return Dialect(format=CSV, columns=tuple(columns), delimiter=delimiter, start=start, lines=header.lines)


def iterate_rows(lines: LineReader, dialect: Dialect, first_line: int) -> Iterator[Row]:
    """The rows from here to the end of the stream. ``first_line`` is the number of the next line, from 1."""
    texts = iter(lines.read, None)
    records = _csv_rows(lines, dialect) if dialect.format == CSV else (_read_object(*item) for item in texts)
    line, blank_bytes, blank_lines = first_line, 0, 0
    for record in records:
        if record.data is None and not record.fault:
            blank_bytes, blank_lines = blank_bytes + record.size, blank_lines + record.lines
        else:
            fault = _size_fault(record) or record.fault
            size, count = record.size + blank_bytes, record.lines + blank_lines
            yield Row(size, count, None if fault else record.data, fault, line, lines.take_digest())
            blank_bytes, blank_lines = 0, 0
        line += record.lines


def _size_fault(record: Row) -> str:
    """Why a record is too large as a row, in the file or as JSON."""
    size, form = record.size, ""
    if size <= MAX_ROW_BYTES and not record.fault:
        size, form = json_size(record.data), " as JSON"
    if size <= MAX_ROW_BYTES:
        return ""
    limit = f"at most {MAX_ROW_BYTES:,} (1 MiB) are allowed"
    return f"it has {size:,} bytes{form}; {limit}: keep large data outside, and a reference to it in the row"


def _read_object(text: bytes, size: int) -> Row:
    """The object of a line, or what is wrong with it."""
    if not text.strip():
        return Row(size, 1)
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        return Row(size, 1, None, f"it is not JSON: {truncate(str(error), 200)}")
    if not isinstance(value, dict):
        return Row(size, 1, None, f"a row is a JSON object, not {type_name(value)}")
    reason = defect(value)
    return Row(size, 1, value) if reason is None else Row(size, 1, None, reason[1])


def _csv_rows(lines: LineReader, dialect: Dialect) -> Iterator[Row]:
    columns = dialect.columns
    for record in _csv_records(lines, dialect.delimiter):
        value, fault = None, record.fault
        if record.data and len(record.data) != len(columns):
            fault = f"it has {len(record.data)} fields; the header has {len(columns)}"
        elif record.data:
            value = dict(zip(columns, record.data, strict=True))
            fault = "it is not UTF-8" if defect(value) is not None else ""
        yield Row(record.size, record.lines, value, fault)


def _csv_records(lines: LineReader, delimiter: str) -> Iterator[Row]:
    """The fields of each record. One that cannot be read is the line that it begins on."""
    record_lines: list[tuple[bytes, int]] = []
    size = 0

    def read_texts() -> Iterator[str]:
        nonlocal size
        while (item := lines.read()) is not None:
            record_lines.append(item)
            size += item[1]
            if size > MAX_ROW_BYTES:
                raise csv.Error
            yield item[0].decode("utf-8", "surrogateescape")

    reader = csv.reader(read_texts(), delimiter=delimiter, strict=True)
    while True:
        try:
            fields = next(reader, None)
            if fields is None:
                return
            record = Row(size, len(record_lines), fields)
        except csv.Error as error:
            fault = f"it is not CSV: {error}" if str(error) else "a quote is not closed"
            lines.give_back(record_lines[1:])
            record = Row(record_lines[0][1], 1, None, fault)
            reader = csv.reader(read_texts(), delimiter=delimiter, strict=True)
        record_lines.clear()
        size = 0
        yield record


def row_id(data: dict[str, Any], field: str | None, number: int) -> tuple[str | None, str]:
    """The id of a row and nothing, or None and why it has none. ``number`` is the row's, from 1."""
    if field is None:
        return str(number), ""
    if field not in data:
        return None, f'it has no field "{field}", which is the id; it has: {truncate(", ".join(data), 200)}'
    value = data[field]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None, f'its id, the field "{field}", is {type_name(value)}; an id is a text or a whole number'
    if not value.strip() or len(value) > MAX_ID:
        return None, f'its id, the field "{field}", has {len(value)} characters; an id has 1 to {MAX_ID}'
    return value, ""


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
    """The ids of the rows of a set: which repeat, and for a run that resumes ``past_run``, which rows do not run.

    The lines of that one are added before the rows; of each id the latest counts. ``only`` leaves out what has not
    ``failed``; with ``errors``, what took an error path has failed, too.
    """

    def __init__(self, past_run: str | None = None, only: str | None = None) -> None:
        self.past_run, self._only = past_run, only
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
                self.add(row.id, None, None, "failed" if self._only == "errors" and row.hasErrors else row.status)

    def add(self, id_: str | None, number: int | None, line: int | None, status: str | None = None) -> None:
        """Add a row with this id, or with none that can be used; ``line`` is its place in the file."""
        self._block.append((None if id_ is None else id_.encode("utf-8", "surrogatepass"), number, line, status))
        if len(self._block) >= _BLOCK:
            self._write()

    def _write(self) -> None:
        self._database.executemany("INSERT INTO ids VALUES (?, ?, ?, ?)", self._block)
        self._block.clear()

    def find(self, name: str, total: int) -> dict[str, Any]:
        """``{repeated, skipped, takenOver, leftOut}`` of a ``Survey``; SetError where ``only`` leaves no row of it."""
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
                if self.past_run is None or ending == "failed" or (ending != "completed" and self._only is None):
                    continue
                skipped[number >> 3] |= 1 << (number & 7)
                taken_over += ending == "completed"
                left_out += ending != "completed"
        if self._only is not None and taken_over + left_out == total:
            counts = f"{taken_over:,} completed, {left_out:,} did not run to their end or are new"
            text = f'only "{self._only}": no row of {name} has failed in {quote(self.past_run)}: {counts}'
            raise SetError(INVALID_REQUEST, f'{text}; without "only", every row that has not completed runs')
        bits = {"repeated": pack_bits(bytes(repeated)), "skipped": pack_bits(bytes(skipped))}
        return {**bits, "takenOver": taken_over, "leftOut": left_out}


def survey(stream: BinaryIO, name: str, id_field: str | None, ids: RowIds) -> Survey:
    """Read a file once; SetError where it cannot be used. ``ids`` has what an earlier run says of its rows."""
    dialect = read_dialect(stream, name)
    if id_field is not None and dialect.columns and id_field not in dialect.columns:
        text = f'{name} has no column "{id_field}", which is to be the id of a row; it has: '
        raise SetError(SET_INVALID, text + ", ".join(dialect.columns)[:500])
    stream.seek(dialect.start)
    pages: list[tuple[int, int, int, str]] = []
    # What a row of CSV has as JSON beside its fields: the names of all columns, quotes, a colon and a comma
    bytes_of_names = sum(json_size(column) + 4 for column in dialect.columns)
    page, total, size = list[Row](), 0, 0
    for total, row in enumerate(iterate_rows(LineReader(stream), dialect, dialect.lines + 1), 1):
        most = min(PAGE_ROWS, _STEP_ROWS * (1 + len(pages) // _STEP_PAGES))
        is_full = len(page) >= most or size + row.size + bytes_of_names > PAGE_BYTES
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
    """The entry of a page in the table, after those ``before`` it."""
    if len(before) >= MAX_PAGES:
        text = f"{name} has more than {MAX_PAGES:,} pages of {PAGE_ROWS} rows or {PAGE_BYTES >> 10} KiB"
        raise SetError(SET_TOO_LARGE, f"{text}: split it into several files, and run the plan for each")
    size, lines = sum(row.size for row in rows), sum(row.lines for row in rows)
    return size, len(rows), lines, _page_hash(rows)


def _page_hash(rows: list[Row]) -> str:
    return hashlib.blake2b(b"".join(row.digest for row in rows), digest_size=DIGEST_BYTES).hexdigest()


def read_page(stream: BinaryIO, dialect: Dialect, page: SetPage, name: str) -> list[Row]:
    """The rows of a page, from a stream at its offset; SetError where they are not those of the survey."""
    rows = list(islice(iterate_rows(LineReader(stream), dialect, page.line), page.rows))
    if _page_hash(rows) != page.hash:
        last = page.line + page.lines - 1
        text = f"{name} has changed since the run began: its lines {page.line:,} to {last:,} are not what they were"
        raise SetError(SET_CHANGED, f"{text}; when nothing writes to it any more, acts retry runs the rest")
    return rows
