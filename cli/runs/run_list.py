"""The runs of a namespace as the server's visibility lists them: no worker is asked.

Laws of this file:
- filters become one visibility query; nothing is filtered here;
- a filter on search attributes that the namespace lacks is an error that names ``acts setup``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import AGENT, BACKGROUND, BATCH, DELEGATE, INSTANCE, PLAN
from acts.tree.search_attributes import COST, MODEL, PHASE, TOOLS, WAITING
from cli.command_errors import CommandError, command_error
from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution

ALL_TYPES: Final = (PLAN, AGENT, DELEGATE, BATCH, INSTANCE, BACKGROUND)
# What a root may be; a detached run lives on without its parent
ROOT_TYPES: Final = (PLAN, AGENT)
# How the server calls the ends of a run, in our words
_STATUS: Final = {
    "RUNNING": "running", "COMPLETED": "completed", "FAILED": "failed", "CANCELED": "cancelled",
    "TERMINATED": "terminated", "TIMED_OUT": "timedOut", "CONTINUED_AS_NEW": "continued",
}  # fmt: skip
# The words of ActsPhase that a run ends with, and those that only the server knows
_SERVER_STATUS: Final = {"terminated": "Terminated", "timedOut": "TimedOut"}
PHASES: Final = (
    "planning", "awaiting", "running", "paused", "completed", "partial", "failed", "rejected", "cancelled",
    *_SERVER_STATUS,
)  # fmt: skip


@dataclass(frozen=True)
class RunFilters:
    """What to list. ``started_within`` and ``older_than`` are seconds; ``min_cost`` is in US dollars."""

    phases: Sequence[str] = ()
    is_waiting: bool = False
    tool: str | None = None
    model: str | None = None
    min_cost: float | None = None
    started_within: float | None = None
    older_than: float | None = None
    has_runs_below: bool = False

    def query(self, now: datetime) -> str:
        """The visibility query.

        Raises:
            CommandError: there is no such phase.
        """
        types = ALL_TYPES if self.has_runs_below else ROOT_TYPES
        parts = [f"WorkflowType IN ({', '.join(map(quote, types))})"]
        if not self.has_runs_below:
            parts.append("ParentWorkflowId IS NULL")
        if self.phases:
            parts.append(f"({' OR '.join(map(_phase_clause, self.phases))})")
        if self.is_waiting:
            parts.append(f"{WAITING} > 0 AND ExecutionStatus = 'Running'")
        parts += [f"{name} = {quote(value)}" for name, value in ((TOOLS, self.tool), (MODEL, self.model)) if value]
        if self.min_cost is not None:
            parts.append(f"{COST} >= {self.min_cost:g}")
        if self.started_within is not None:
            parts.append(f"StartTime >= {quote(_iso(now - timedelta(seconds=self.started_within)))}")
        if self.older_than is not None:
            parts.append(f"StartTime <= {quote(_iso(now - timedelta(seconds=self.older_than)))}")
        return " AND ".join(parts)


def quote(text: str) -> str:
    """A string of the visibility language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _phase_clause(phase: str) -> str:
    if phase in _SERVER_STATUS:
        return f"ExecutionStatus = {quote(_SERVER_STATUS[phase])}"
    if phase not in PHASES:
        raise command_error(f"there is no phase {phase!r}", where="--phase", hint=f"one of: {', '.join(PHASES)}")
    if phase == "failed":  # a Request that was refused ends before it has a phase
        return f"({PHASE} = 'failed' OR ExecutionStatus = 'Failed')"
    # A run that was terminated keeps the phase that it had
    still = " AND ExecutionStatus = 'Running'" if phase in ("planning", "awaiting", "running", "paused") else ""
    return f"({PHASE} = {quote(phase)}{still})"


async def list_runs(client: Client, filters: RunFilters, limit: int) -> AsyncIterator[dict[str, Any]]:
    """The newest runs first: ``{id, runId, workflow, phase, waiting?, tools?, model?, cost?, started, closed?}``.

    Raises:
        CommandError: the server refused the query, or the namespace has no such search attributes.
    """
    from temporalio.service import RPCError

    query = filters.query(datetime.now(UTC))
    try:
        async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
            yield _row(run)
    except RPCError as error:
        raise _explain(error) from None


def _explain(error: Any) -> CommandError:
    text = str(error.message)
    if "search attribute" in text.lower() or "is not defined" in text.lower():
        head = "the namespace has no search attributes of this project, so runs cannot be filtered by them"
        return command_error(head, hint="register them once: `acts setup`")
    return server.explain_rpc_error(error)


def _row(run: WorkflowExecution) -> dict[str, Any]:
    values: dict[str, Any] = {key.name: value for key, value in run.typed_search_attributes}
    status = _STATUS.get(run.status.name, run.status.name.lower()) if run.status else "running"
    phase = values.get(PHASE)
    is_over = status not in ("running", "continued")
    if phase is None or (is_over and phase in ("planning", "awaiting", "running", "paused")):
        phase = status
    row = {
        "id": run.id, "runId": run.run_id, "workflow": run.workflow_type, "phase": phase,
        "waiting": values.get(WAITING) if not is_over else None, "tools": values.get(TOOLS), "model": values.get(MODEL),
        "cost": values.get(COST), "started": _iso(run.start_time),
        "closed": None if run.close_time is None else _iso(run.close_time), "parent": run.parent_id,
    }  # fmt: skip
    return {k: list(v) if isinstance(v, tuple) else v for k, v in row.items() if v is not None}
