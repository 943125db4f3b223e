"""``acts pending``: the pending approvals of all runs, or of one.

Laws of this file:
- runs come from a visibility query; only the topmost of each tree are queried, as a root lists its whole tree;
- few queries run at a time, and all of them are bounded: a run whose worker does not answer is named, and delays no
  other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from acts.language.wire import APPROVE
from acts.tree.decisions import PendingApproval
from cli.command_errors import EXIT_DONE, message
from cli.console import clean, console, print_blocks, print_err, print_json
from cli.render.pending_view import decision_command, hints_text, parameter_lines
from cli.render.tables import new_table
from cli.runs import server
from cli.runs.progress import MAX_CONCURRENT_QUERIES, add_parameters
from cli.runs.run_reader import PLANNING_TYPES, RunReader, open_run

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution

# A detached delegate has no parent in this list, so it is the topmost run of its own
_TYPES: Final = ", ".join(f"'{t}'" for t in PLANNING_TYPES)
RUNNING_RUNS: Final = f"WorkflowType IN ({_TYPES}) AND ExecutionStatus = 'Running'"
TIMEOUT_SECONDS: Final = 60.0  # for all runs together
_MAX_NAMES: Final = 10
_MAX_VALUE: Final = 100  # characters of one parameter in the table, and how many of them; `acts show` has all
_MAX_ROWS: Final = 8

RunApprovals = tuple[str, list[PendingApproval]]


async def pending(id_: str | None, *, as_json: bool) -> int:
    """Print the approvals of a run, or of all."""
    approvals, unanswered = await read_approvals_of(id_)
    if as_json:
        waits = [{"run": id_, **approval.to_json()} for id_, listed in approvals for approval in listed]
        print_json({"waits": waits, "unanswered": unanswered})
        return EXIT_DONE
    if approvals:
        console().print(_table(approvals))
    else:
        print_err("nothing waits for a decision" + (" in the runs that answered" if unanswered else ""))
    if unanswered:
        more = f" and {len(unanswered) - _MAX_NAMES} more" if len(unanswered) > _MAX_NAMES else ""
        text = f"no worker answered for {', '.join(clean(i, 100) for i in unanswered[:_MAX_NAMES])}{more}"
        print_blocks([message(text, hint=server.START_WORKER, severity="warning")])
    return EXIT_DONE


async def read_approvals_of(id_: str | None) -> tuple[list[RunApprovals], list[str]]:
    """The approvals of a run, or of all; and the runs that did not answer."""
    if id_ is None:
        client = await server.connect()
        return await _read_all(client, await _topmost_runs(client))
    return await _read_one(await open_run(id_)), []


async def _read_one(run: RunReader) -> list[RunApprovals]:
    await run.describe_running()
    approvals = await run.pending()
    if approvals is None:
        raise await run.no_answer_error()
    if (root := await run.root()) is not run:
        text = f"{clean(run.id, 200)} is part of the run {clean(root.id, 200)}, and lists only its own approvals"
        hint = f"`acts pending {clean(root.id, 200)}` lists those of the whole tree"
        print_blocks([message(text, hint=hint, severity="note")])
    return [(run.id, await add_parameters(run, approvals))] if approvals else []


async def _topmost_runs(client: Client) -> list[WorkflowExecution]:
    """The running runs whose parent is not one of them."""
    runs = [run async for run in client.list_workflows(RUNNING_RUNS, rpc_timeout=server.RPC)]
    ids = {run.id for run in runs}
    return sorted((r for r in runs if r.parent_id not in ids), key=lambda r: r.start_time)


async def _read_all(client: Client, runs: Sequence[WorkflowExecution]) -> tuple[list[RunApprovals], list[str]]:
    """The approvals of each run that has some, and the runs without an answer."""
    queues = sorted({run.task_queue for run in runs})
    pollers = dict(zip(queues, await asyncio.gather(*(server.has_pollers(client, q) for q in queues)), strict=True))
    limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def read(run: WorkflowExecution) -> list[PendingApproval] | None:
        async with limit:
            reader = RunReader(client, run.id, run.run_id)
            approvals = await reader.pending()
            return approvals and await add_parameters(reader, approvals)

    tasks = {run.id: asyncio.ensure_future(read(run)) for run in runs if pollers[run.task_queue]}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=TIMEOUT_SECONDS)
    answers = {id_: task.result() if task.done() else None for id_, task in tasks.items()}
    for task in tasks.values():
        task.cancel()
    approvals: list[RunApprovals] = [(run.id, listed) for run in runs if (listed := answers.get(run.id))]
    return approvals, [run.id for run in runs if answers.get(run.id) is None]


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
