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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from acts.language.errors import truncate
from acts.language.strict_json import json_size, read_json
from acts.language.values import defect, type_name
from acts.language.wire import SET_INVALID
from acts.sets.set_files import SetError, quote
from acts.tree.set_records import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A row is a Message of its instance, in a payload of at most 2 MiB, beside the plan and the global data
MAX_ROW_BYTES: Final = 1024 * 1024
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
class Row:
    """One row. ``line`` is its first line, from 1; ``size`` (bytes) and ``lines`` include blank lines before it.

    ``digest`` is that of all lines that were looked at to read it, save what is beyond the limit of a row.
    ``data`` None: it cannot be used, and ``fault`` says why.
    """

    line: int
    size: int
    lines: int
    digest: bytes
    data: dict[str, Any] | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Record:
    """What a few lines hold: their bytes, their number, and the values, or the fault; neither if they are blank."""

    size: int
    lines: int
    value: Any = None
    fault: str = ""


def row_bytes(dialect: Dialect) -> int:
    """What a row of CSV has as JSON beside its fields: the names of all columns, quotes, a colon and a comma."""
    return sum(json_size(column) + 4 for column in dialect.columns)


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
    beginning = stream.read(len(_BOM))
    if beginning[:2] in _OTHER_BOMS:
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
    columns = [column.strip() for column in header.value or ()]
    fault = header.fault or _header_fault(columns)
    if fault:
        raise SetError(
            SET_INVALID, f"the header of {name} cannot be used: {fault}; each column needs a name of its own"
        )
    start = bom + header.size
    return Dialect(format=CSV, columns=tuple(columns), delimiter=delimiter, start=start, lines=header.lines)


def _header_fault(columns: list[str]) -> str:
    doubles = [c for c in columns if columns.count(c) > 1]
    if not any(columns):
        return "it names no columns"
    if "" in columns:
        return f"it has no name for column {columns.index('') + 1}"
    if doubles:
        return f"it has the column {quote(doubles[0])} twice"
    return "it is not UTF-8" if defect(columns) is not None else ""


def iterate_rows(lines: LineReader, dialect: Dialect, first_line: int) -> Iterator[Row]:
    """The rows from here to the end of the stream. ``first_line`` is the number of the next line, from 1."""
    records = _csv_rows(lines, dialect) if dialect.format == CSV else _json_rows(lines)
    line, blank_bytes, blank_lines = first_line, 0, 0
    for record in records:
        if record.value is None and not record.fault:
            blank_bytes, blank_lines = blank_bytes + record.size, blank_lines + record.lines
        else:
            fault = _size_fault(record) or record.fault
            data = None if fault else record.value
            size, count = record.size + blank_bytes, record.lines + blank_lines
            yield Row(line, size, count, lines.take_digest(), data, fault)
            blank_bytes, blank_lines = 0, 0
        line += record.lines


def _size_fault(record: _Record) -> str:
    """Why a record is too large as a row, in the file or as JSON."""
    size, form = record.size, ""
    if size <= MAX_ROW_BYTES and not record.fault:
        size, form = json_size(record.value), " as JSON"
    if size <= MAX_ROW_BYTES:
        return ""
    limit = f"at most {MAX_ROW_BYTES:,} (1 MiB) are allowed"
    return f"it has {size:,} bytes{form}; {limit}: keep large data outside, and a reference to it in the row"


def _json_rows(lines: LineReader) -> Iterator[_Record]:
    while (item := lines.read()) is not None:
        text, size = item
        value, fault = _read_object(text) if text.strip() else (None, "")
        yield _Record(size, 1, value, fault)


def _read_object(text: bytes) -> tuple[Any, str]:
    """The object of a line, or what is wrong with it."""
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        return None, f"it is not JSON: {truncate(str(error), 200)}"
    if not isinstance(value, dict):
        return None, f"a row is a JSON object, not {type_name(value)}"
    reason = defect(value)
    return (value, "") if reason is None else (None, reason[1])


def _csv_rows(lines: LineReader, dialect: Dialect) -> Iterator[_Record]:
    columns = dialect.columns
    for record in _csv_records(lines, dialect.delimiter):
        if not record.value:
            yield _Record(record.size, record.lines, None, record.fault)
        elif len(record.value) != len(columns):
            fault = f"it has {len(record.value)} fields; the header has {len(columns)}"
            yield _Record(record.size, record.lines, None, fault)
        else:
            value = dict(zip(columns, record.value, strict=True))
            fault = "it is not UTF-8" if defect(value) is not None else ""
            yield _Record(record.size, record.lines, value, fault)


class _QuoteTooLongError(Exception):
    """A quote is still open after more bytes than a row may have."""


def _csv_records(lines: LineReader, delimiter: str) -> Iterator[_Record]:
    """The fields of each record. One that cannot be read is the line that it begins on."""
    record_lines: list[tuple[bytes, int]] = []
    size = 0

    def read_texts() -> Iterator[str]:
        nonlocal size
        while (item := lines.read()) is not None:
            record_lines.append(item)
            size += item[1]
            if size > MAX_ROW_BYTES:
                raise _QuoteTooLongError
            yield item[0].decode("utf-8", "surrogateescape")

    reader = csv.reader(read_texts(), delimiter=delimiter, strict=True)
    while True:
        try:
            fields = next(reader, None)
            if fields is None:
                return
            record = _Record(size, len(record_lines), fields)
        except (csv.Error, _QuoteTooLongError) as error:
            fault = f"it is not CSV: {error}" if isinstance(error, csv.Error) else "a quote is not closed"
            lines.give_back(record_lines[1:])
            record = _Record(record_lines[0][1], 1, None, fault)
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
