"""Batches that end without a word of all their rows: terminated, cancelled alone, timed out, failed as a whole.

Laws of this file:

* such a Batch concerns its page, not the set: an activity *closes* the page, which gives each row without a line one
  that says what happened, and counts all of them; the other Batches continue;
* a Batch that fails since the set, its results file or the Request cannot be used stops the run: the next would fail
  alike;
* of a run that is cancelled, rows without a line stay without one: the page is only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.wire import (
    BATCH_LOST,
    CANCELLED,
    CLOSE_PAGE,
    INVALID_REQUEST,
    RESULTS_EXIST,
    RESULTS_REFUSED,
    SET_CHANGED,
    SET_INVALID,
    SET_NOT_FOUND,
    SET_REFUSED,
    SET_TOO_LARGE,
    TIMEOUT,
)
from acts.machines.page_input import page_query
from acts.machines.run_commands import StartSetActivity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.errors import CallError
    from acts.machines.events import ChildEnded
    from acts.machines.set_run import SetRun
    from acts.tree.set_records import SetPage

# A Batch that fails so is not lost: no other could do better
STOPPING: Final = (
    SET_NOT_FOUND, SET_REFUSED, SET_INVALID, SET_TOO_LARGE, SET_CHANGED, RESULTS_REFUSED, RESULTS_EXIST,
    INVALID_REQUEST,
)  # fmt: skip
# The keys of the activities, before the names of the Batches
CLOSE: Final = "close/"
# The SDK's word for a workflow that somebody has terminated
_TERMINATED: Final = "TerminatedError"
# Characters of the message of a Batch's own failure: each of its rows has it
_MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class LostBatch:
    """A Batch that left rows without a line. ``report`` is what it said of the others, if anything.

    ``ending`` is how it ended, for people. ``line`` is ``{status, code, message}`` of the lines that its rows get;
    None: they get none, and are only counted.
    """

    name: str
    page: SetPage
    report: Mapping[str, Any]
    ending: str
    line: Mapping[str, str] | None


def find_lost(run: SetRun, event: ChildEnded, page: SetPage) -> LostBatch | None:
    """The Batch that has ended, if rows of it may have no line or are not counted yet."""
    report, error = event.report or {}, event.error
    if is_stopping(event):
        return None
    has_counts = "completed" in report
    if run.is_cancelling:
        has_written = run.config.results is not None and not has_counts
        is_unknown = has_written and error is not None and error.code != CANCELLED
        return LostBatch(event.key, page, {}, _ending(error), None) if is_unknown else None
    if has_counts and report["completed"] + report["failed"] >= run.progress.rows_to_run(page):
        return None
    return LostBatch(event.key, page, report, _ending(error), _line(run.own, event.key, error))


def is_stopping(event: ChildEnded) -> bool:
    """True where no other Batch could do better."""
    return event.is_unstarted or (event.error is not None and event.error.code in STOPPING)


def close_page(run: SetRun, lost: LostBatch) -> StartSetActivity:
    """The activity that writes the lines that are missing, and counts those of all rows of the page."""
    argument = {**page_query(run, lost.page), "run": run.position.identity}
    if run.config.results is not None:
        argument["file"] = run.config.results
    else:
        argument["ended"] = list(lost.report.get("instances") or ())
    if lost.line is not None:
        argument["line"] = dict(lost.line)
    return StartSetActivity(f"{CLOSE}{lost.name}", CLOSE_PAGE, argument, f"close {lost.name}")


def reports_of(run: SetRun, lost: LostBatch, answer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """What the run counts of a lost Batch; ``answer`` is that of the activity, None where it failed.

    A results file has the lines of all rows, also those that the Batch has reported.
    """
    own = [lost.report] if "completed" in lost.report else []
    if answer is None:
        return own
    return [answer] if run.config.results is not None else [*own, answer]


def note_of(run: SetRun, lost: LostBatch) -> str:
    """A remark for ``status``."""
    rows, status = run.progress.rows_to_run(lost.page), (lost.line or {}).get("status")
    return f"{lost.name} {lost.ending}: those of its {rows:,} rows that it had not reported count as {status}"


def _line(own: str, name: str, error: CallError | None) -> dict[str, str]:
    """What the lines of its rows say. A person who cancels a Batch cancels its rows; all else is a failure."""
    status, code, option = "failed", BATCH_LOST, " --only-failed"
    if error is not None and error.code == CANCELLED:
        status, code, option = "cancelled", CANCELLED, ""
    text = f"{own}/{name} {_ending(error)} before it reported this row, so what of the row has run is not known"
    hint = f"when {own} has ended, this runs such rows again, with the _ids that they had: acts retry {own}{option}"
    return {"status": status, "code": code, "message": f"{text}; {hint}"}


def _ending(error: CallError | None) -> str:
    """How a Batch ended, as a verb."""
    if error is None:
        return "ended"
    endings = {_TERMINATED: "was terminated", CANCELLED: "was cancelled", TIMEOUT: "timed out"}
    return endings.get(error.code) or f"failed ([{error.code}] {truncate(error.message, _MAX_REASON)})"
