"""The runs of a namespace as the server's visibility lists them, and the approvals of those that wait.

Laws of this file:
- filters of runs become one visibility query; no worker is asked for a list of runs;
- a filter on search attributes that the namespace lacks is an error that names ``acts setup``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.cli.console import command_error
from acts.cli.runs import server
from acts.cli.runs.run_reader import MAX_CONCURRENT_QUERIES, PLANNING_TYPES, RunReader, add_parameters
from acts.language.wire import AGENT, BACKGROUND, BATCH, DELEGATE, INSTANCE, PLAN
from acts.tree.decisions import PendingApproval
from acts.tree.search_attributes import COST, MODEL, PHASE, TOOLS, WAITING

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution

ALL_TYPES: Final = (PLAN, AGENT, DELEGATE, BATCH, INSTANCE, BACKGROUND)
# How the server calls the ends of a run, in our words
_STATUS: Final = {
    "RUNNING": "running", "COMPLETED": "completed", "FAILED": "failed", "CANCELED": "cancelled",
    "TERMINATED": "terminated", "TIMED_OUT": "timedOut", "CONTINUED_AS_NEW": "continued",
}  # fmt: skip
# The words of ActsPhase before a run ends, those that it ends with, and those that only the server knows
_OPEN: Final = ("planning", "awaiting", "running", "paused")
_SERVER_STATUS: Final = {"terminated": "Terminated", "timedOut": "TimedOut"}
PHASES: Final = (*_OPEN, "completed", "partial", "failed", "rejected", "cancelled", *_SERVER_STATUS)
_RUNNING: Final = "ExecutionStatus = 'Running'"
TIMEOUT_SECONDS: Final = 60.0  # for the answers of all runs together
MAX_LISTED: Final = 10_000  # ten pages of the server


def quote(text: str) -> str:
    """A string of the visibility language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def iso_text(moment: datetime) -> str:
    """A moment in UTC, with a Z."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_ROOTS: Final = f"WorkflowType IN ({quote(PLAN)}, {quote(AGENT)}) AND ParentWorkflowId IS NULL"


def runs_query(
    phases: Sequence[str] = (), *, waiting: bool = False, tool: str | None = None, model: str | None = None,
    min_cost: float | None = None, since: datetime | None = None, older: datetime | None = None, below: bool = False,
) -> str:  # fmt: skip
    """The visibility query of the runs to list. ``since`` and ``older`` bound their start; the cost is in US dollars.

    Raises:
        CommandError: there is no such phase.
    """
    parts = [f"WorkflowType IN ({', '.join(map(quote, ALL_TYPES))})" if below else _ROOTS]
    parts += [f"({' OR '.join(map(_phase_clause, phases))})"] if phases else []
    parts += [f"{WAITING} > 0 AND {_RUNNING}"] if waiting else []
    parts += [f"{name} = {quote(value)}" for name, value in ((TOOLS, tool), (MODEL, model)) if value]
    parts += [f"{COST} >= {min_cost:g}"] if min_cost is not None else []
    parts += [f"StartTime >= {quote(iso_text(since))}"] if since is not None else []
    parts += [f"StartTime <= {quote(iso_text(older))}"] if older is not None else []
    return " AND ".join(parts)


def _phase_clause(phase: str) -> str:
    if phase in _SERVER_STATUS:
        return f"ExecutionStatus = {quote(_SERVER_STATUS[phase])}"
    if phase not in PHASES:
        raise command_error(f"there is no phase {phase!r}", where="--phase", hint=f"one of: {', '.join(PHASES)}")
    if phase == "failed":  # a Request that was refused ends before it has a phase
        return f"({PHASE} = 'failed' OR ExecutionStatus = 'Failed')"
    # A run that was terminated keeps the phase that it had
    return f"({PHASE} = {quote(phase)}{f' AND {_RUNNING}' if phase in _OPEN else ''})"


async def list_runs(client: Client, query: str, limit: int) -> AsyncIterator[dict[str, Any]]:
    """The newest runs first: ``{id, runId, workflow, phase, waiting?, tools?, model?, cost?, started, closed?}``.

    Raises:
        CommandError: the server refused the query, or the namespace has no such search attributes.
    """
    from temporalio.service import RPCError

    try:
        async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
            yield _row(run)
    except RPCError as error:
        text = str(error.message).lower()
        if "search attribute" not in text and "is not defined" not in text:
            raise server.explain_rpc_error(error) from None
        head = "the namespace has no search attributes of this project, so runs cannot be filtered by them"
        raise command_error(head, hint="register them once: `acts setup`") from None


def _row(run: WorkflowExecution) -> dict[str, Any]:
    values: dict[str, Any] = {key.name: value for key, value in run.typed_search_attributes}
    status = _STATUS.get(run.status.name, run.status.name.lower()) if run.status else "running"
    is_over = status not in ("running", "continued")
    phase = values.get(PHASE)
    row = {
        "id": run.id, "runId": run.run_id, "workflow": run.workflow_type,
        "phase": status if phase is None or (is_over and phase in _OPEN) else phase,
        "waiting": values.get(WAITING) if not is_over else None, "tools": values.get(TOOLS), "model": values.get(MODEL),
        "cost": values.get(COST), "started": iso_text(run.start_time),
        "closed": None if run.close_time is None else iso_text(run.close_time), "parent": run.parent_id,
    }  # fmt: skip
    return {k: list(v) if isinstance(v, tuple) else v for k, v in row.items() if v is not None}


# -- what waits --------------------------------------------------------------------------------------------------------

# A root that began before `acts setup` has no search attributes: it is asked
INDEXED_RUNS: Final = f"{_RUNNING} AND ({WAITING} > 0 OR ({_ROOTS} AND {PHASE} IS NULL))"
# Where the namespace has none, all runs are asked but those below others
RUNNING_RUNS: Final = f"{_RUNNING} AND WorkflowType IN ({', '.join(map(quote, PLANNING_TYPES))})"

RunApprovals = tuple[str, list[PendingApproval]]


@dataclass(frozen=True)
class PendingFilters:
    """What to list. ``older_than`` is in seconds since the wait began, ``limit`` a number of approvals."""

    tool: str | None = None
    older_than: float | None = None
    limit: int | None = None

    def keep(self, approvals: Sequence[PendingApproval], tools: Sequence[str], now: datetime) -> list[PendingApproval]:
        """The approvals that fit. That of a plan fits if the plan has the tool: ``tools`` are those of its run."""
        latest = now - timedelta(seconds=self.older_than or 0)
        return [
            a for a in approvals
            if (self.older_than is None or datetime.fromisoformat(a.since) <= latest)
            and (self.tool is None or self.tool in (tools if a.call is None else [a.call.partition(":")[2]]))
        ]  # fmt: skip


@dataclass
class PendingReport:
    """``unanswered`` are the runs whose worker did not answer, ``unread`` how many more may wait: beyond the limit."""

    approvals: list[RunApprovals] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """``{waits, unanswered, unread}``"""
        waits = [{"run": id_, **approval.to_json()} for id_, listed in self.approvals for approval in listed]
        return {"waits": waits, "unanswered": self.unanswered, "unread": self.unread}


async def read_all(client: Client, filters: PendingFilters) -> PendingReport:
    """What waits in all runs, the oldest run first. A run that the server's index does not list yet is missing."""
    runs = await _waiting_runs(client)
    queues = sorted({run.task_queue for run in runs})
    answers = await asyncio.gather(*(server.has_pollers(client, queue) for queue in queues))
    served = {queue for queue, has_pollers in zip(queues, answers, strict=True) if has_pollers}
    step = 2 * MAX_CONCURRENT_QUERIES
    ends, report, room = asyncio.get_running_loop().time() + TIMEOUT_SECONDS, PendingReport(), filters.limit
    for first in range(0, len(runs), step):
        if room is not None and room <= 0:
            report.unread += len(runs) - first
            break
        batch = runs[first : first + step]
        tasks = {r.id: asyncio.ensure_future(_read_one(client, r, filters)) for r in batch if r.task_queue in served}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=max(0.0, ends - asyncio.get_running_loop().time()))
        for run in batch:
            task = tasks.get(run.id)
            listed = task.result() if task is not None and task.done() else None
            report.unanswered += [run.id] if listed is None else []
            report.unread += listed is not None and room is not None and len(listed) > room
            if kept := (listed or [])[:room]:
                report.approvals.append((run.id, kept))
                room = None if room is None else room - len(kept)
            if task is not None:
                task.cancel()
    return report


async def _waiting_runs(client: Client) -> list[WorkflowExecution]:
    """The topmost runs that may wait, the oldest first."""
    from temporalio.service import RPCError, RPCStatusCode

    runs: list[WorkflowExecution] = []
    for query in (INDEXED_RUNS, RUNNING_RUNS):
        listing = client.list_workflows(query, limit=MAX_LISTED, page_size=1_000, rpc_timeout=server.RPC)
        try:
            runs = [run async for run in listing]
            break
        except RPCError as error:  # the namespace has no search attributes
            if error.status != RPCStatusCode.INVALID_ARGUMENT or query == RUNNING_RUNS:
                raise
    ids = {run.id for run in runs}
    return sorted((r for r in runs if r.parent_id not in ids), key=lambda r: r.start_time)


async def _read_one(client: Client, run: WorkflowExecution, filters: PendingFilters) -> list[PendingApproval] | None:
    """The approvals of a run that fit; None if no worker answers."""
    reader = RunReader(client, run.id, run.run_id)
    approvals = await reader.pending()
    if approvals is None:
        return None
    tools: Any = next((value for key, value in run.typed_search_attributes if key.name == TOOLS), ())
    return await add_parameters(reader, filters.keep(approvals, tools, datetime.now(UTC)))
