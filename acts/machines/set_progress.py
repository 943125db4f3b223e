"""How far a run over a set has come: which page is next, how many instances ended how, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError
from acts.language.wire import BUDGET_SPENT
from acts.tree.set_records import SetCursor, SetPage
from acts.tree.set_rows import MAX_FAILURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.tree.set_records import SetState


class SetProgress:
    """``survey`` is what the survey returned, None before; ``failures`` are the first ``{id, status, errors}``."""

    def __init__(self) -> None:
        self.survey: Mapping[str, Any] | None = None
        self.cursor = SetCursor()
        self.completed = self.failed = 0
        self.failures: list[dict[str, Any]] = []
        self.stopped: CallError | None = None

    def begin(self, survey: Mapping[str, Any]) -> None:
        """Begin with the first page of a survey."""
        self.survey = survey
        dialect = survey["dialect"]
        self.cursor = SetCursor(offset=dialect["start"], line=dialect["lines"] + 1)

    @property
    def total(self) -> int | None:
        """The rows of the set; None before they are counted."""
        return None if self.survey is None else int(self.survey["total"])

    @property
    def ended(self) -> int:
        """The instances that have ended."""
        return self.completed + self.failed

    @property
    def has_pages(self) -> bool:
        """True while another Batch could start."""
        return self.survey is not None and self.stopped is None and self.cursor.page < len(self.survey["pages"])

    @property
    def page(self) -> SetPage:
        """The next page."""
        _, rows, lines, hash_ = (self.survey or {})["pages"][self.cursor.page]
        at = self.cursor
        return SetPage(offset=at.offset, line=at.line, row=at.row, rows=rows, lines=lines, hash=hash_)

    def take_page(self) -> None:
        """The next page is the one after it."""
        bytes_, rows, lines, _ = (self.survey or {})["pages"][self.cursor.page]
        at = self.cursor
        self.cursor = SetCursor(
            page=at.page + 1, offset=at.offset + bytes_, line=at.line + lines, row=at.row + rows
        )  # fmt: skip

    def add(self, report: Mapping[str, Any]) -> None:
        """A Batch has ended with this report."""
        self.completed += report["completed"]
        self.failed += report["failed"]
        self.failures += list(report.get("failures") or ())[: MAX_FAILURES - len(self.failures)]

    def stop(self, error: CallError) -> None:
        """No further Batch starts, for this reason; the first one counts."""
        self.stopped = self.stopped or error

    @property
    def status(self) -> str:
        """How the run ends, or would end now."""
        if self.stopped is not None and (self.stopped.code != BUDGET_SPENT or not self.completed):
            return "failed"
        if self.stopped is not None:
            return "partial"
        if not self.failed:
            return "completed"
        return "partial" if self.completed else "failed"

    def text(self) -> str:
        """How far it came, in words."""
        total = self.total or 0
        rest = f", {total - self.ended:,} did not run to their end" if self.ended < total else ""
        return (
            f"{self.ended:,} of {total:,} rows have ended ({self.completed:,} completed, {self.failed:,} failed){rest}"
        )

    def errors(self) -> list[dict[str, Any]]:
        """The errors of the run: why it stopped, and those of the failures that it lists."""
        out: list[dict[str, Any]] = []
        if self.stopped is not None:
            text = f"the run stopped: {self.stopped.message}; {self.text()}"
            out.append({"call": None, "code": self.stopped.code, "message": text})
        for failure in self.failures:
            out += [{**error, "instance": failure["id"]} for error in failure["errors"]]
        return out

    def snapshot(self) -> dict[str, Any]:
        """The fields of ``SetState`` that say how far it has come."""
        stopped = None if self.stopped is None else {"code": self.stopped.code, "message": self.stopped.message}
        return {
            "survey": None if self.survey is None else dict(self.survey), "cursor": self.cursor,
            "completed": self.completed, "failed": self.failed, "failures": tuple(self.failures), "stopped": stopped,
        }  # fmt: skip

    def restore(self, state: SetState) -> None:
        """Take it over."""
        self.survey, self.cursor = state.survey, state.cursor
        self.completed, self.failed, self.failures = state.completed, state.failed, list(state.failures)
        self.stopped = None if state.stopped is None else CallError(state.stopped["code"], state.stopped["message"])
