"""``acts pending``: everything that waits for a person, across all runs.

Laws of this file:
- runs are found by a visibility query; only the topmost of ours are asked, since a run
  lists what waits below it;
- few are asked at a time, and all of it is bounded: a run that nobody answers for is
  named, and keeps nobody from the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import AGENT, DELEGATE, INSTANCE, PLAN
from acts.tree.decisions import APPROVE, PendingApproval
from cli.command_errors import DONE, MessageBlock
from cli.console import clean, console, out_json, print_blocks, say
from cli.runs import server
from cli.runs.pending_parameters import call_lines, with_calls
from cli.runs.pending_view import command, waits_of

if TYPE_CHECKING:
    from rich.table import Table
    from temporalio.client import Client, WorkflowExecution

# Delegates and instances are known as parents; of a fire-and-forget run, a delegate is the topmost that can be asked
QUERY: Final = f"WorkflowType IN ('{PLAN}', '{AGENT}', '{DELEGATE}', '{INSTANCE}') AND ExecutionStatus = 'Running'"
AT_ONCE: Final = 16  # each question is a workflow task of a worker, which has other work too
ALL_SECONDS: Final = 60.0
_NAMED: Final = 10
_MAX_VALUE: Final = 100  # characters of one parameter in the table, and how many of them; `acts show` has all
_MAX_ROWS: Final = 8

Found = tuple[str, list[PendingApproval]]


def pending(*, as_json: bool) -> int:
    """Print what waits.

    Raises:
        Refusal: no server.
    """
    return server.go(_pending(as_json=as_json))


async def _pending(*, as_json: bool) -> int:
    client = await server.connect()
    roots = await _roots(client)
    found, silent = await _ask_all(client, roots)
    if as_json:
        listed = [{"run": run, **wait.to_json()} for run, waits in found for wait in waits]
        out_json({"waits": listed, "unanswered": silent})
        return DONE
    if found:
        console().print(_table(found))
    else:
        say("nothing waits for a decision" + (" in the runs that answered" if silent else ""))
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        text = f"nobody answered for {', '.join(clean(s, 100) for s in silent[:_NAMED])}{more}"
        hint = "a run is asked by way of its worker: start one with `acts dev`, or `python -m worker`"
        print_blocks([MessageBlock(text, "", [("hint", hint)], "warning")])
    return DONE


async def _roots(client: Client) -> list[WorkflowExecution]:
    """The running runs of ours that are not below another one."""
    listed = [run async for run in client.list_workflows(QUERY, rpc_timeout=server.RPC)]
    ids = {run.id for run in listed}
    return sorted((r for r in listed if r.parent_id not in ids), key=lambda r: r.start_time)


async def _ask_all(client: Client, roots: Sequence[WorkflowExecution]) -> tuple[list[Found], list[str]]:
    """What waits in each run, and the runs that nobody answered for."""
    queues = sorted({run.task_queue for run in roots})
    served = dict(zip(queues, await asyncio.gather(*(server.served(client, q) for q in queues)), strict=True))
    some = asyncio.Semaphore(AT_ONCE)

    async def one(run: WorkflowExecution) -> list[PendingApproval] | None:
        async with some:
            waits = await waits_of(client.get_workflow_handle(run.id, run_id=run.run_id))
            return waits and await with_calls(client, waits)

    asked = {run.id: asyncio.ensure_future(one(run)) for run in roots if served[run.task_queue]}
    if asked:
        await asyncio.wait(asked.values(), timeout=ALL_SECONDS)
    answers = {id_: task.result() if task.done() else None for id_, task in asked.items()}
    for task in asked.values():
        task.cancel()
    found: list[Found] = [(run.id, waits) for run in roots if (waits := answers.get(run.id))]
    return found, [run.id for run in roots if answers.get(run.id) is None]


def _table(found: Sequence[Found]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("run", "waits", "version", "since", "until", "to approve"):
        table.add_column(title, overflow="fold")
    for run, waits in found:
        for wait in waits:
            about = wait.call or "the plan"
            about += " (its scopes)" if wait.what == "scopes" else ""
            about += f" [{wait.instance}]" if wait.instance else ""
            cells: list[Any] = [wait.version, _short(wait.since), _short(wait.deadline)]
            what = Text("\n".join([clean(about, 200), *_told(wait)]))
            told = (Text(clean(cell, 200)) for cell in cells)
            table.add_row(Text(clean(run, 200)), what, *told, Text(command(APPROVE, run, wait, waits)))
    return table


def _told(wait: PendingApproval) -> list[str]:
    """What a Call would be called with, as far as there is room in a table."""
    rows = call_lines(wait, _MAX_VALUE)
    more = [f"  … {len(rows) - _MAX_ROWS} more"] if len(rows) > _MAX_ROWS else []
    return [f"  {row}" for row in rows[:_MAX_ROWS]] + more


def _short(date: str | None) -> str:
    """``2026-01-01 10:00:00`` in UTC."""
    return "" if date is None else f"{date[:19].replace('T', ' ')}Z"
