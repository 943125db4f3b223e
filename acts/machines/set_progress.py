"""How far a run over a set has come: which page is next, how many instances ended how, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError
from acts.language.wire import BUDGET_SPENT
from acts.tree.row_numbers import count_between, numbers_between, unpack_numbers
from acts.tree.set_records import SetCursor, SetPage
from acts.tree.set_rows import MAX_FAILURES, bad_row_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.tree.set_records import SetState


class SetProgress:
    """``survey`` is what the survey returned, None before; ``failures`` are the first ``{id, status, errors}``.

    ``rows`` are those that ended in this run of the workflow, where no results file has them: id, status, and whether
    the id is ``line`` and a number. They are read when another run resumes this one, and not carried over.
    """

    def __init__(self) -> None:
        self.survey: Mapping[str, Any] | None = None
        self.cursor = SetCursor()
        self.completed = self.failed = 0
        self.failures: list[dict[str, Any]] = []
        self.rows: list[tuple[str, str, bool]] = []
        self.stopped: CallError | None = None
        self._repeated = self._skipped = b""

    def begin(self, survey: Mapping[str, Any]) -> None:
        """Begin with the first page of a survey."""
        self._read(survey)
        dialect = survey["dialect"]
        self.cursor = SetCursor(offset=dialect["start"], line=dialect["lines"] + 1)
        self._pass_over()

    def _read(self, survey: Mapping[str, Any]) -> None:
        self.survey = survey
        self._repeated = unpack_numbers(survey["repeated"])
        self._skipped = unpack_numbers(survey.get("skipped", ""))

    @property
    def total(self) -> int | None:
        """The rows that this run walks; None before they are counted."""
        return None if self.survey is None else int(self.survey["total"]) - self.taken_over - self.left_out

    @property
    def taken_over(self) -> int:
        """The rows that had completed in the earlier run."""
        return int((self.survey or {}).get("takenOver", 0))

    @property
    def left_out(self) -> int:
        """The other rows that do not run: ``only`` leaves them out."""
        return int((self.survey or {}).get("leftOut", 0))

    @property
    def ended(self) -> int:
        """The instances that have ended."""
        return self.completed + self.failed

    @property
    def has_pages(self) -> bool:
        """True while another Batch could start."""
        return self.stopped is None and self._is_on_page

    @property
    def _is_on_page(self) -> bool:
        return self.survey is not None and self.cursor.page < len(self.survey["pages"])

    @property
    def page(self) -> SetPage:
        """The next page."""
        _, rows, lines, hash_ = (self.survey or {})["pages"][self.cursor.page]
        at = self.cursor
        return SetPage(offset=at.offset, line=at.line, row=at.row, rows=rows, lines=lines, hash=hash_)

    def repeated_on(self, page: SetPage) -> tuple[int, ...]:
        """The rows of a page whose id an earlier row has."""
        return numbers_between(self._repeated, page.row, page.row + page.rows - 1)

    def skipped_on(self, page: SetPage) -> tuple[int, ...]:
        """The rows of a page that do not run."""
        return numbers_between(self._skipped, page.row, page.row + page.rows - 1)

    def rows_to_run(self, page: SetPage) -> int:
        """How many rows of a page run."""
        return page.rows - count_between(self._skipped, page.row, page.row + page.rows - 1)

    def take_page(self) -> None:
        """The next page is the one after it that has rows to run."""
        self._advance()
        self._pass_over()

    def _pass_over(self) -> None:
        while self._skipped and self._is_on_page and not self.rows_to_run(self.page):
            self._advance()

    def _advance(self) -> None:
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
        for id_, item in (report.get("instances") or {}).items():
            self.rows.append((id_, item["status"], bad_row_number(id_, item.get("errors")) is not None))

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
        if state.survey is not None:
            self._read(state.survey)
        self.cursor = state.cursor
        self.completed, self.failed, self.failures = state.completed, state.failed, list(state.failures)
        self.stopped = None if state.stopped is None else CallError(state.stopped["code"], state.stopped["message"])
