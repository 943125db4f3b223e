"""The records of a set: its survey, what a ``Batch`` is started with, what a run over a set carries into the next.

The rows are in none of them: a Batch reads its page by an activity. Below are the two forms that a set's rows have in
records: a *line*, ``{id, status, state, errors}``, is the result of one row; a *bitmap* names rows by their numbers.
A row that cannot be used is named by its line in the file, since its id is unknown or that of another row.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from acts.language.errors import truncate
from acts.language.strict_json import unpack
from acts.language.values import Json
from acts.language.wire import BAD_ROW, DUPLICATE_ID
from acts.tree.past_run import PastHistory, PastResults
from acts.tree.records import PlanInput, RunState, TreePosition
from acts.tree.wire_format import Record

# Failures that a run over a set lists, and the errors of each
MAX_FAILURES: Final = 100
MAX_ERRORS: Final = 3
# Characters of the message of each: 100 failures are at most 300 kB in the state that the run carries over
MAX_ERROR: Final = 1_000
# Digits of a line number in an id: files have fewer than 1e15 lines
_BAD_ROW_ID: Final = re.compile(r"line [1-9][0-9]{0,14}")


class Dialect(Record):
    format: str
    columns: tuple[str, ...] = ()  # of CSV
    delimiter: str = ","
    # Its rows begin at this byte, after so many lines
    start: int = 0
    lines: int = 0


class Survey(Record):
    total: int
    dialect: Dialect
    pages: tuple[tuple[int, int, int, str], ...]  # (bytes, rows, lines, hash)
    source: str = ""  # the name of the file that was read, where the Request has a pattern
    repeated: str = ""  # a bitmap: the rows that repeat an earlier id
    # Of a run that resumes another one: a bitmap of the rows that do not run, how many of those had completed, and how
    # many others ``only`` leaves out
    skipped: str = ""
    takenOver: int = 0
    leftOut: int = 0


class SetPage(Record):
    """A page of a set: its place in bytes, its first line and row (from 1), how much it has, and its hash."""

    offset: int
    line: int
    row: int
    rows: int
    lines: int
    hash: str


class PageReading(Record):
    source: str
    id: str | None  # the field with the ids of the rows
    dialect: Dialect
    page: SetPage
    repeated: tuple[int, ...] = ()  # rows whose id an earlier row has
    skipped: tuple[int, ...] = ()  # rows that do not run, since the run resumes another one


class BatchInput(PlanInput):
    """A ``PlanInput`` whose instances are the rows of a page. Its ``request`` has none of them. ``types`` are those of
    columns of a CSV file, as the Tools of the plan say.
    """

    index: int  # their place in its context
    type: str
    kind: str
    reading: PageReading
    types: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    results: str | None = None  # the file that takes their results, and the identity of the root, whose file it is
    run: str = ""


class ResumedSet(Record):
    """The earlier run that a run over a set resumes, as far as it was read."""

    source: dict[str, Any]  # how the result names it
    results: tuple[PastResults | PastHistory, ...] = ()  # what its rows have come to, the latest last
    file: str = ""  # the name of its set, where the Request has a pattern
    identity: str | None = None  # what the ``_id``s of the rows derive from; None: the run itself


class SetState(RunState):
    """A run over a set that continues as new, between two Batches. ``survey`` None: it has not begun to read."""

    position: TreePosition
    survey: Survey | None = None
    nextPage: int = 0
    completed: int = 0
    failed: int = 0
    failures: tuple[dict[str, Any], ...] = ()
    handled: int = 0
    undeclared: dict[str, int] = {}  # noqa: RUF012 - pydantic copies defaults
    stopped: dict[str, str] | None = None
    provided: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    usage: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    isApproved: bool = True
    isPaused: bool = False
    resumed: ResumedSet | None = None


# -- names -----------------------------------------------------------------------------

RUN_PART: Final = "{run}"
DATE_PART: Final = "{date}"
_WILD: Final = re.compile(r"[*?]")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def has_pattern(name: str) -> bool:
    """True for a name that is another one in another run, or that may mean several files."""
    return is_wild(name) or RUN_PART in name or DATE_PART in name


def is_wild(name: str) -> bool:
    return _WILD.search(name) is not None and _URL.match(name) is None


def fill_name(name: str, run: str, date: str) -> str:
    """A name with this run (its workflow id, ``/`` as ``-``) and the date of its start (``2026-11-28``)."""
    return name.replace(RUN_PART, run.replace("/", "-")).replace(DATE_PART, date)


def fill_results(request: Json, run: str, date: str) -> Json:
    """A Request with this run and date in the name of its results file."""
    config = request.get("config") if isinstance(request, dict) else None
    if not isinstance(config, dict) or not isinstance(config.get("results"), str):
        return request
    return {**request, "config": {**config, "results": fill_name(config["results"], run, date)}}


# -- lines ---------------------------------------------------------------------------


def line_of(id_: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """``{id, status, state, errors, handled?}``: ``handled`` are the failures that took an error path,
    ``{call, code, message, undeclared?}``.
    """
    facts = {"status": report.get("status", "failed"), "state": report.get("state", {})}
    calls = (c for c in report.get("calls") or () if c.get("state") == "completed" and isinstance(c.get("error"), dict))
    handled = [
        {"call": c.get("id"), "code": c["error"].get("code"), "message": f"{c['error'].get('message')}"[:MAX_ERROR],
         **({"undeclared": c["undeclared"]} if "undeclared" in c else {})}
        for c in islice(calls, MAX_ERRORS)
    ]  # fmt: skip
    line = {"id": id_, **facts, "errors": list(report.get("errors") or ())}
    return {**line, "handled": handled} if handled else line


def failed_line(id_: str, code: str, message: str, status: str = "failed") -> dict[str, Any]:
    """The line of a row that did not run, or of which nothing is known."""
    return line_of(id_, {"status": status, "errors": [{"call": None, "code": code, "message": message}]})


def bad_row_line(source: str, bad: Sequence[Any]) -> dict[str, Any]:
    """The line of a row that cannot be used; ``bad`` is ``[number, line, code, message]``."""
    _, line, code, message = bad
    return failed_line(f"line {line}", code, f"line {line:,} of {source}: {message}")


def is_bad_row(id_: str, errors: Any) -> bool:
    """True for the line of a row that could not be used; a row that could may have an id like ``line 3``, too."""
    error = errors[0] if isinstance(errors, list) and errors and _BAD_ROW_ID.fullmatch(id_) else None
    return isinstance(error, dict) and error.get("call") is None and error.get("code") in (BAD_ROW, DUPLICATE_ID)


def add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts by name; of names beyond the first ``MAX_ERRORS`` under one."""
    for name, count in more.items():
        key = name if name in counts or len(counts) < MAX_ERRORS else "others"
        counts[key] = counts.get(key, 0) + count


@dataclass(slots=True)
class RowCounts:
    """What the run over a set adds of some lines; ``failures`` are the first ``{id, status, errors}``.

    ``handled`` rows took an error path; ``undeclared`` counts what no Tool declares and did, by its name.
    """

    completed: int = 0
    failed: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    handled: int = 0
    undeclared: dict[str, int] = field(default_factory=dict)

    def add(self, line: Mapping[str, Any]) -> None:
        self.handled += "handled" in line
        add_counts(self.undeclared, Counter(e["undeclared"] for e in line.get("handled", ()) if "undeclared" in e))
        if line["status"] == "completed":
            self.completed += 1
            return
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            errors = [
                {"call": e.get("call"), "code": e.get("code"), "message": truncate(str(e.get("message")), MAX_ERROR)}
                for e in line["errors"][:MAX_ERRORS]
            ]
            self.failures.append({"id": line["id"], "status": line["status"], "errors": errors})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# -- bitmaps: any choice of 10,000,000 rows takes at most 1.6 MB -----------------------


def pack_bits(bits: bytes) -> str:
    """A bitmap as text; nothing for one without numbers."""
    return base64.b85encode(zlib.compress(bits, 6)).decode() if any(bits) else ""


def unpack_bits(text: str) -> bytes:
    return unpack(base64.b85decode(text)) if text else b""


def numbers_between(bits: bytes, first: int, last: int) -> tuple[int, ...]:
    return tuple(n for n in range(first, last + 1) if n >> 3 < len(bits) and bits[n >> 3] >> (n & 7) & 1)


def count_between(bits: bytes, first: int, last: int) -> int:
    """How many numbers of a bitmap are from ``first`` to ``last``; of 250 numbers in about a microsecond."""
    part = int.from_bytes(bits[first >> 3 : (last >> 3) + 1], "little") >> (first & 7)
    return (part & ((1 << (last - first + 1)) - 1)).bit_count()
