"""The rows of a JSON Lines or CSV file, one after another, from any offset.

Laws of this file:

* at most one row is in memory, and a row has at most ``MAX_ROW_BYTES``: what is longer is skipped and reported;
* a row that cannot be read is a row all the same: it has a number, a line and an error, and the next row is read from
  the next line;
* each row says how many bytes and lines it took, and has a digest of them, so that a page can be found and recognised;
* rows are the same wherever reading begins: blank lines belong to the row after them, and a digest to its row alone.

A CSV row may span lines, inside quotes. Python's ``csv`` reads it, line by line from an iterator that counts: so its
end in bytes is exact. Where a quote is never closed, the row is the one line that it begins on.
"""

from __future__ import annotations

import csv
import hashlib
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from acts.language.errors import truncate
from acts.language.strict_json import json_size, read_json
from acts.language.values import defect, type_name
from acts.language.wire import BAD_ROW, SET_INVALID
from sets.set_errors import SetError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A row is a Message of its instance, in a payload of at most 2 MiB, beside the plan and the global data
MAX_ROW_BYTES: Final = 1024 * 1024
# A control character, one byte of a file, is six of JSON text (``\u0001``)
_MOST_PER_BYTE: Final = 6
# Characters of an id: it stands in workflow ids, in labels and in every line of the results
MAX_ID: Final = 300
JSON_LINES: Final = "jsonl"
CSV: Final = "csv"
_BOM: Final = b"\xef\xbb\xbf"
_OTHER_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
_CHUNK: Final = 64 * 1024
# Two pages that differ have the same digest once in 3e14 times
DIGEST_BYTES: Final = 6

# The default, 128 KiB, is less than a row may have
csv.field_size_limit(MAX_ROW_BYTES)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is read: its format, and of CSV the columns and the delimiter. ``start`` is where its rows begin."""

    format: str
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    start: int = 0
    lines: int = 0

    @property
    def row_bytes(self) -> int:
        """What a row of CSV has as JSON beside its fields: the names of all columns, quotes, a colon and a comma."""
        return sum(json_size(column) + 4 for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """The dialect as JSON."""
        return {
            "format": self.format, "columns": list(self.columns), "delimiter": self.delimiter,
            "start": self.start, "lines": self.lines,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Dialect:
        """The dialect that ``to_json`` gave."""
        return cls(data["format"], tuple(data["columns"]), data["delimiter"], data["start"], data["lines"])


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``line`` is its first line, from 1; ``size`` (bytes) and ``lines`` include blank lines before it.

    ``digest`` is that of all lines that were looked at to read it, save what is beyond the limit of a row.

    ``data`` None: it cannot be used, and ``code`` and ``message`` say why.
    """

    line: int
    size: int
    lines: int
    digest: bytes
    data: dict[str, Any] | None = None
    code: str = ""
    message: str = ""


class _QuoteTooLongError(Exception):
    """A quote is still open after more bytes than a row may have."""


class LineReader:
    """The lines of a stream as bytes with their ends, and a digest of those that a row took."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._returned = deque[tuple[bytes, int]]()
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def read(self) -> tuple[bytes, int] | None:
        """The next line and its bytes in the file; of a line beyond the limit only the beginning. None at the end."""
        item = self._returned.popleft() if self._returned else self._read_line()
        if item is not None:
            self._hash.update(item[0] if len(item[0]) == item[1] else b"%d:%b" % (item[1], item[0]))
        return item

    def _read_line(self) -> tuple[bytes, int] | None:
        line = self._stream.readline(MAX_ROW_BYTES + 1)
        if not line:
            return None
        size = len(line)
        if size > MAX_ROW_BYTES and not line.endswith(b"\n"):
            while chunk := self._stream.readline(_CHUNK):
                size += len(chunk)
                if chunk.endswith(b"\n"):
                    break
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
    """How a file of this name is read, from its beginning.

    Raises:
        SetError: it is neither JSON Lines nor CSV, or its header cannot be used.
    """
    is_csv = name.removesuffix(".gz").lower().endswith(".csv")
    beginning = stream.read(len(_BOM))
    if beginning[:2] in _OTHER_BOMS:
        raise SetError(SET_INVALID, f"{name} is UTF-16; a set is UTF-8: save it as UTF-8")
    bom = len(_BOM) if beginning == _BOM else 0
    stream.seek(bom)
    return _read_header(stream, name, bom) if is_csv else Dialect(JSON_LINES, start=bom)


def _read_header(stream: BinaryIO, name: str, bom: int) -> Dialect:
    lines = LineReader(stream)
    first = lines.read()
    if first is None:
        raise SetError(SET_INVALID, f"{name} is empty: a CSV file begins with a header that names its columns")
    text = first[0].decode("utf-8", "surrogateescape")
    delimiter = next((d for d in (",", ";", "\t") if d in text), ",")
    lines.give_back([first])
    used = [0, 0]

    def counted() -> Iterator[str]:
        while (line := lines.read()) is not None and used[0] <= MAX_ROW_BYTES:
            used[0] += line[1]
            used[1] += 1
            yield line[0].decode("utf-8", "surrogateescape")

    try:
        columns = next(csv.reader(counted(), delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise SetError(SET_INVALID, f"the header of {name} cannot be read: {error}") from None
    columns = [column.strip() for column in columns]
    doubles = [c for c in dict.fromkeys(columns) if columns.count(c) > 1]
    fault = None
    if not any(columns):
        fault = "names no columns"
    elif "" in columns:
        fault = f"has no name for column {columns.index('') + 1}"
    elif doubles:
        fault = f"has the column {quote(doubles[0])} twice"
    elif defect(columns) is not None:
        fault = "is not UTF-8"
    if fault is not None:
        raise SetError(SET_INVALID, f"the header of {name} {fault}: each column needs a name of its own")
    return Dialect(CSV, tuple(columns), delimiter, bom + used[0], used[1])


def iterate_rows(lines: LineReader, dialect: Dialect, first_line: int) -> Iterator[Row]:
    """The rows from here to the end of the stream. ``first_line`` is the number of the next line, from 1."""
    return _csv_rows(lines, dialect, first_line) if dialect.format == CSV else _json_rows(lines, first_line)


def _json_rows(lines: LineReader, first_line: int) -> Iterator[Row]:
    line, blank_bytes, blank_lines = first_line, 0, 0
    while (item := lines.read()) is not None:
        text, size = item
        if not text.strip():
            blank_bytes, blank_lines, line = blank_bytes + size, blank_lines + 1, line + 1
            continue
        yield _json_row(text, size, Row(line, size + blank_bytes, 1 + blank_lines, lines.take_digest()))
        blank_bytes, blank_lines, line = 0, 0, line + 1


def _json_row(text: bytes, size: int, row: Row) -> Row:
    if size > MAX_ROW_BYTES:
        return _too_large(row, size)
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        return replace(row, code=BAD_ROW, message=f"it is not JSON: {truncate(str(error), 200)}")
    if not isinstance(value, dict):
        return replace(row, code=BAD_ROW, message=f"a row is a JSON object, not {type_name(value)}")
    reason = defect(value)
    return _usable(row, value, size) if reason is None else replace(row, code=BAD_ROW, message=reason[1])


def _csv_rows(lines: LineReader, dialect: Dialect, first_line: int) -> Iterator[Row]:
    records, row_bytes = _CsvRecords(lines, dialect.delimiter), dialect.row_bytes
    line, blank_bytes, blank_lines = first_line, 0, 0
    while (fields := records.read()) is not None:
        count, size = len(records.lines), sum(size for _, size in records.lines)
        if fields == [] and not records.fault[0]:
            blank_bytes, blank_lines, line = blank_bytes + size, blank_lines + count, line + count
            continue
        row = Row(line, size + blank_bytes, count + blank_lines, lines.take_digest())
        if size > MAX_ROW_BYTES:
            yield _too_large(row, size)
        elif records.fault[0]:
            yield replace(row, code=records.fault[0], message=records.fault[1])
        else:
            yield _csv_row(fields, row, dialect.columns, size + row_bytes)
        blank_bytes, blank_lines, line = 0, 0, line + count


class _CsvRecords:
    """The records of a CSV file: the fields of each, its ``lines``, and its ``fault``, a code and a text."""

    def __init__(self, lines: LineReader, delimiter: str) -> None:
        self._source, self._delimiter = lines, delimiter
        self._reader = self._new_reader()
        self.lines: list[tuple[bytes, int]] = []
        self.fault = ("", "")

    def read(self) -> list[str] | None:
        """The next record; [] for a blank line, and for one that cannot be read. None at the end."""
        self.lines, self.fault = [], ("", "")
        try:
            return next(self._reader, None)
        except csv.Error as error:
            self.fault = (BAD_ROW, f"it is not CSV: {error}")
        except _QuoteTooLongError:
            self.fault = (BAD_ROW, "a quote is not closed")
        self._source.give_back(self.lines[1:])
        del self.lines[1:]
        self._reader = self._new_reader()
        return []

    def _new_reader(self) -> Any:
        return csv.reader(self._texts(), delimiter=self._delimiter, strict=True)

    def _texts(self) -> Iterator[str]:
        size = 0
        while (item := self._source.read()) is not None:
            size = item[1] + (size if self.lines else 0)
            self.lines.append(item)
            if size > MAX_ROW_BYTES:
                raise _QuoteTooLongError
            yield item[0].decode("utf-8", "surrogateescape")


def _csv_row(fields: list[str], row: Row, columns: tuple[str, ...], size: int) -> Row:
    if len(fields) != len(columns):
        text = f"it has {len(fields)} fields; the header has {len(columns)}"
        return replace(row, code=BAD_ROW, message=text)
    value = dict(zip(columns, fields, strict=True))
    if defect(value) is not None:
        return replace(row, code=BAD_ROW, message="it is not UTF-8")
    return _usable(row, value, size)


def _usable(row: Row, value: dict[str, Any], size: int) -> Row:
    """The row with its data, unless that is too large as JSON. ``size`` is about what it has, escapes apart."""
    if size * _MOST_PER_BYTE <= MAX_ROW_BYTES:
        return replace(row, data=value)
    size = json_size(value)
    return replace(row, data=value) if size <= MAX_ROW_BYTES else _too_large(row, size, " as JSON")


def _too_large(row: Row, size: int, form: str = "") -> Row:
    limit = f"at most {MAX_ROW_BYTES:,} (1 MiB) are allowed"
    text = f"it has {size:,} bytes{form}; {limit}: keep large data outside, and a reference to it in the row"
    return replace(row, code=BAD_ROW, message=text)


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
