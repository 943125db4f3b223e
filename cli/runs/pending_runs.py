"""The runs that may wait for a person: which the server's index names, which are asked, and which are not.

Laws of this file:
- the index (visibility) follows the runs by up to some seconds. A run that it says nothing of is asked, and so are
  the others where they are few; where they are many, their number is returned, so that nobody takes it for "none";
- few queries run at a time, and all of them are bounded: a run whose worker does not answer is named, and delays no
  other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from acts.tree.decisions import PendingApproval
from acts.tree.search_attributes import PHASE, TOOLS, WAITING
from cli.runs import server
from cli.runs.progress import MAX_CONCURRENT_QUERIES, add_parameters
from cli.runs.run_list import ROOT_TYPES
from cli.runs.run_reader import PLANNING_TYPES, RunReader

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


_RUNNING: Final = "ExecutionStatus = 'Running'"
# Where the namespace has no search attributes. A detached delegate has no parent in this list: it is a root of its own
RUNNING_RUNS: Final = f"WorkflowType IN ({_quoted(PLANNING_TYPES)}) AND {_RUNNING}"
_ROOTS: Final = f"(WorkflowType IN ({_quoted(ROOT_TYPES)}) AND ParentWorkflowId IS NULL)"
INDEXED_RUNS: Final = f"{_RUNNING} AND ({_ROOTS} OR {WAITING} > 0)"
TIMEOUT_SECONDS: Final = 60.0  # for all runs together
# Runs that wait for nobody, as the index says, are asked all the same if there are no more: half a second
ASK_ALL_UP_TO: Final = 32
# What of a namespace is listed: ten pages of the server
MAX_LISTED: Final = 10_000

RunApprovals = tuple[str, list[PendingApproval]]


@dataclass(frozen=True)
class PendingFilters:
    """What to list. ``older_than`` is in seconds since the wait began, ``limit`` a number of approvals."""

    tool: str | None = None
    older_than: float | None = None
    limit: int | None = None

    def keep(self, approvals: Sequence[PendingApproval], tools: Sequence[str], now: datetime) -> list[PendingApproval]:
        """The approvals that fit. That of a plan fits if the plan has the tool: ``tools`` are those of its run."""
        return [a for a in approvals if self._has_tool(a, tools) and self._is_old(a, now)]

    def _has_tool(self, approval: PendingApproval, tools: Sequence[str]) -> bool:
        if self.tool is None:
            return True
        return self.tool in tools if approval.call is None else approval.call.partition(":")[2] == self.tool

    def _is_old(self, approval: PendingApproval, now: datetime) -> bool:
        age = (now - datetime.fromisoformat(approval.since)).total_seconds()
        return self.older_than is None or age >= self.older_than


@dataclass
class PendingReport:
    """``unanswered`` are the runs whose worker did not answer, ``unread`` how many may wait and were not asked for want
    of room, ``running`` how many of which the index says that they do not wait, and which were not asked.
    """

    approvals: list[RunApprovals] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    unread: int = 0
    running: int = 0

    @property
    def count(self) -> int:
        """How many approvals are listed."""
        return sum(len(listed) for _, listed in self.approvals)


async def read_all(client: Client, filters: PendingFilters) -> PendingReport:
    """What waits in all runs, the oldest run first."""
    runs = await _running_runs(client)
    ids = {run.id for run in runs}
    topmost = sorted((r for r in runs if r.parent_id not in ids), key=lambda r: r.start_time)
    waiting = [run for run in topmost if _may_wait(run)]
    others = [run for run in topmost if not _may_wait(run)]
    report = PendingReport()
    if len(others) <= ASK_ALL_UP_TO:
        waiting = topmost
    else:
        report.running = len(others)
    await _Reading(client, filters, report).read(waiting)
    return report


async def _running_runs(client: Client) -> list[WorkflowExecution]:
    from temporalio.service import RPCError, RPCStatusCode

    async def read(query: str) -> list[WorkflowExecution]:
        listing = client.list_workflows(query, limit=MAX_LISTED, page_size=1_000, rpc_timeout=server.RPC)
        return [run async for run in listing]

    try:
        return await read(INDEXED_RUNS)
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT:
            raise
    return await read(RUNNING_RUNS)  # the namespace has no search attributes


def _attributes(run: WorkflowExecution) -> Mapping[str, Any]:
    return {key.name: value for key, value in run.typed_search_attributes}


def _may_wait(run: WorkflowExecution) -> bool:
    """False where the index knows the run, and that it waits for nobody."""
    values = _attributes(run)
    return values.get(PHASE) is None or bool(values.get(WAITING))


class _Reading:
    """Asks runs, in their order, until enough approvals are listed."""

    def __init__(self, client: Client, filters: PendingFilters, report: PendingReport) -> None:
        self._client, self._filters, self._report = client, filters, report
        self._limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)
        self._ends = asyncio.get_running_loop().time() + TIMEOUT_SECONDS

    async def read(self, runs: Sequence[WorkflowExecution]) -> None:
        queues = sorted({run.task_queue for run in runs})
        answers = await asyncio.gather(*(server.has_pollers(self._client, queue) for queue in queues))
        pollers = dict(zip(queues, answers, strict=True))
        step = len(runs) if self._filters.limit is None else 2 * MAX_CONCURRENT_QUERIES
        for first in range(0, len(runs), max(step, 1)):
            if self._filters.limit is not None and self._report.count >= self._filters.limit:
                self._report.unread = len(runs) - first
                break
            await self._read_some(runs[first : first + step], pollers)
        self._cut()

    async def _read_some(self, runs: Sequence[WorkflowExecution], pollers: Mapping[str, bool]) -> None:
        tasks = {run.id: asyncio.ensure_future(self._read_one(run)) for run in runs if pollers[run.task_queue]}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=max(0.0, self._ends - asyncio.get_running_loop().time()))
        answers = {id_: task.result() if task.done() else None for id_, task in tasks.items()}
        for task in tasks.values():
            task.cancel()
        self._report.approvals += [(run.id, listed) for run in runs if (listed := answers.get(run.id))]
        self._report.unanswered += [run.id for run in runs if answers.get(run.id) is None]

    async def _read_one(self, run: WorkflowExecution) -> list[PendingApproval] | None:
        async with self._limit:
            reader = RunReader(self._client, run.id, run.run_id)
            approvals = await reader.pending()
            tools = _attributes(run).get(TOOLS) or ()
            kept = self._filters.keep(approvals or [], tools, datetime.now(UTC))
            return None if approvals is None else kept and await add_parameters(reader, kept)

    def _cut(self) -> None:
        """Leave out what is beyond the limit."""
        room, report = self._filters.limit, self._report
        if room is None:
            return
        for index, (run, listed) in enumerate(report.approvals):
            report.approvals[index] = (run, listed[:room])
            report.unread += len(listed) > room
            room -= len(report.approvals[index][1])
        report.approvals = [(run, listed) for run, listed in report.approvals if listed]
