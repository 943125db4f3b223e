"""The records of a set: what a ``Batch`` is started with, and what a run over a set carries into the next.

The rows are in none of them: a Batch reads its page by an activity.
"""

from __future__ import annotations

from typing import Any

from acts.tree.past_run import PastHistory, PastResults
from acts.tree.records import Capabilities, PermitLease, PlanInput, TreePosition
from acts.tree.signal_records import TreeSignal
from acts.tree.wire_format import Record, VersionedRecord


class SetSource(Record):
    """The Message of a Request that names a set: ``index`` is its place there, ``kind`` that of its rows."""

    source: str
    index: int
    type: str
    kind: str
    id: str | None = None


class SetPage(Record):
    """A page of a set: its place in bytes, its first line and row (from 1), how much it has, and its hash."""

    offset: int
    line: int
    row: int
    rows: int
    lines: int
    hash: str


class BatchInput(PlanInput):
    """A ``PlanInput`` whose instances are the rows of a page. Its ``request`` has none of them.

    ``dialect`` says how the file is read, ``repeated`` are the rows whose id an earlier row has, ``skipped`` those
    that do not run, since the run resumes another one. ``results`` is the file that takes their results, if any, and
    ``run`` the identity of the root, to which that file belongs.
    """

    set: SetSource
    dialect: dict[str, Any]
    page: SetPage
    repeated: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    results: str | None = None
    run: str = ""


class ResumedSet(Record):
    """The earlier run that a run over a set resumes, as far as it was read.

    ``source`` is how the result names it, ``results`` say what its rows have come to (the latest last).
    ``identity`` is what the ``_id``s of the rows derive from; None: that of the run itself.
    """

    source: dict[str, Any]
    results: tuple[PastResults | PastHistory, ...] = ()
    identity: str | None = None


class SetCursor(Record):
    """What of a set comes next: the index of the page, and where it begins."""

    page: int = 0
    offset: int = 0
    line: int = 1
    row: int = 1


class SetState(VersionedRecord):
    """A run over a set that continues as new, between two Batches. ``survey`` None: it has not begun to read."""

    request: dict[str, Any]
    capabilities: Capabilities
    position: TreePosition
    approvals: dict[str, Any]
    budget: dict[str, Any]
    survey: dict[str, Any] | None = None
    cursor: SetCursor = SetCursor()
    completed: int = 0
    failed: int = 0
    failures: tuple[dict[str, Any], ...] = ()
    stopped: dict[str, Any] | None = None
    provided: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    usage: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    isApproved: bool = True
    isPaused: bool = False
    actions: dict[str, int] = {}  # noqa: RUF012
    lease: PermitLease | None = None
    resumed: ResumedSet | None = None


class FileWait(TreeSignal):
    """From an activity of a set, to the root: a file cannot be read or written now. ``reason`` empty: it can again."""

    workflowId: str
    reason: str = ""
    nextTry: str = ""
