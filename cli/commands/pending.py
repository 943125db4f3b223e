"""``acts pending``: the pending approvals of all runs, or of one.

Laws of this file: it says what it has not seen: runs whose worker does not answer, runs beyond the limit, and runs of
which the server's index says that they do not wait (yet).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from acts.language.wire import APPROVE
from acts.tree.decisions import PendingApproval
from cli.command_errors import EXIT_DONE, message
from cli.console import clean, console, count_text, print_blocks, print_err, print_json
from cli.render.pending_view import decision_command, hints_text, parameter_lines
from cli.render.tables import new_table
from cli.runs import server
from cli.runs.pending_runs import PendingFilters, PendingReport, RunApprovals, read_all
from cli.runs.progress import add_parameters
from cli.runs.run_reader import RunReader, open_run

# Approvals that a person is shown; --json has all of them, unless --limit says otherwise
SHOWN: Final = 50
_MAX_NAMES: Final = 10
_MAX_VALUE: Final = 100  # characters of one parameter in the table, and how many of them; `acts show` has all
_MAX_ROWS: Final = 8


async def pending(id_: str | None, filters: PendingFilters, *, as_json: bool) -> int:
    """Print the approvals of a run, or of all."""
    if filters.limit is None and not as_json:
        filters = PendingFilters(filters.tool, filters.older_than, SHOWN)
    report = await read_approvals_of(id_, filters)
    if as_json:
        print_json(report_json(report))
        return EXIT_DONE
    if report.approvals:
        console().print(_table(report.approvals))
    else:
        print_err("nothing waits for a decision" + (" in the runs that answered" if report.unanswered else ""))
    for line in _unseen_lines(report):
        print_err(line, "dim")
    if report.unanswered:
        unanswered = report.unanswered
        more = f" and {len(unanswered) - _MAX_NAMES} more" if len(unanswered) > _MAX_NAMES else ""
        text = f"no worker answered for {', '.join(clean(i, 100) for i in unanswered[:_MAX_NAMES])}{more}"
        hint = f"{server.START_WORKER}; if one runs, `acts show ID` says what keeps it from answering"
        print_blocks([message(text, hint=hint, severity="warning")])
    return EXIT_DONE


def report_json(report: PendingReport) -> dict[str, Any]:
    """``{waits, unanswered, unread, running}``"""
    waits = [{"run": id_, **approval.to_json()} for id_, listed in report.approvals for approval in listed]
    return {"waits": waits, "unanswered": report.unanswered, "unread": report.unread, "running": report.running}


def _unseen_lines(report: PendingReport) -> list[str]:
    lines = []
    if report.unread:
        lines.append(
            f"… {count_text(report.unread, 'more run')} may wait; --limit lists more, --tool and --older fewer"
        )
    if report.running:
        text = f"{count_text(report.running, 'other run')} did not wait when the server last indexed them"
        lines.append(f"{text}, some seconds ago at most; `acts list --phase running` lists them")
    return lines


async def read_approvals_of(id_: str | None, filters: PendingFilters | None = None) -> PendingReport:
    """The approvals of a run, or of all."""
    filters = filters or PendingFilters()
    if id_ is None:
        return await read_all(await server.connect(), filters)
    return PendingReport(await _read_one(await open_run(id_), filters))


async def _read_one(run: RunReader, filters: PendingFilters) -> list[RunApprovals]:
    await run.describe_running()
    approvals = await run.pending()
    if approvals is None:
        raise await run.no_answer_error()
    if (root := await run.root()) is not run:
        text = f"{clean(run.id, 200)} is part of the run {clean(root.id, 200)}, and lists only its own approvals"
        hint = f"`acts pending {clean(root.id, 200)}` lists those of the whole tree"
        print_blocks([message(text, hint=hint, severity="note")])
    plan = await run.plan() if filters.tool is not None else None
    tools = [str(call.get("_tool")) for call in plan or () if isinstance(call, dict)]
    approvals = filters.keep(approvals, tools, datetime.now(UTC))[: filters.limit]
    return [(run.id, await add_parameters(run, approvals))] if approvals else []


def _table(approvals: Sequence[RunApprovals]) -> Table:
    table = new_table("run", "waits", "version", "since", "until", "to approve")
    for run, listed in approvals:
        for approval in listed:
            what = Text("\n".join([clean(_subject(approval), 200), *_parameters(approval)]))
            cells: list[Any] = [approval.version, _short_date(approval.since), _short_date(approval.deadline)]
            rest = (Text(clean(cell, 200)) for cell in cells)
            command = Text(decision_command(APPROVE, run, approval, listed))
            table.add_row(Text(clean(run, 200)), what, *rest, command)
    return table


def _subject(approval: PendingApproval) -> str:
    """``2:pay (its scopes) [c1]``"""
    scopes = " (its scopes)" if approval.what == "scopes" else ""
    return (
        (approval.call or "the plan")
        + scopes
        + hints_text(approval)
        + (f" [{approval.instance}]" if approval.instance else "")
    )


def _parameters(approval: PendingApproval) -> list[str]:
    rows = parameter_lines(approval, _MAX_VALUE)
    more = [f"  … {len(rows) - _MAX_ROWS} more"] if len(rows) > _MAX_ROWS else []
    return [f"  {row}" for row in rows[:_MAX_ROWS]] + more


def _short_date(date: str | None) -> str:
    """``2026-01-01 10:00:00Z``"""
    return "" if date is None else f"{date[:19].replace('T', ' ')}Z"
