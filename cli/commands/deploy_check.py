"""``acts deploy-check``: replays the open runs of a namespace with the code of this checkout, before it is rolled out.

Laws of this file:
- it starts, signals and changes nothing;
- by default it checks the runs that the new workers would take: not those pinned to a version of their own;
- a run that ends or is deleted during the check counts as checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cli.command_errors import EXIT_DONE, EXIT_FAILED, message
from cli.console import clean, console, count_text, print_blocks, print_err, print_json
from cli.runs import server
from cli.runs.replaying import ReplayVerdict, replay_histories
from cli.runs.run_list import ALL_TYPES, quote

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHistory

# The server's own search attribute; runs of unversioned workers do not have it
_BEHAVIOR: Final = "TemporalWorkflowVersioningBehavior"
_MAX_FAILURES: Final = 50  # printed in full; more of them are mostly alike
_HINT: Final = (
    "these runs would be stuck on the new workers: let them end on the old ones (docs/operations.md, worker versions), "
    "or make the change compatible"
)


@dataclass(frozen=True)
class CheckOptions:
    """Which runs to replay. ``query`` is a visibility query that narrows them; ``limit`` counts runs, newest first."""

    query: str | None = None
    limit: int = 1000
    has_pinned: bool = False
    queue: str | None = None

    def visibility_query(self) -> str:
        """The query for the server."""
        types = ", ".join(map(quote, ALL_TYPES))
        parts = ["ExecutionStatus = 'Running'", f"WorkflowType IN ({types})"]
        parts.append(f"TaskQueue = {quote(self.queue or server.task_queue())}")
        if not self.has_pinned:
            parts.append(f"({_BEHAVIOR} IS NULL OR {_BEHAVIOR} != 'Pinned')")
        if self.query:
            parts.append(f"({self.query})")
        return " AND ".join(parts)


async def deploy_check(options: CheckOptions, *, as_json: bool) -> int:
    """Replay the open runs; exit code 1 if one of them does not replay."""
    client = await server.connect()
    query = options.visibility_query()
    total = (await client.count_workflows(query, rpc_timeout=server.RPC)).count
    verdicts = [v async for v in replay_histories(_histories(client, query, options.limit))]
    failures = [v for v in verdicts if v.error is not None]
    code = EXIT_FAILED if failures else EXIT_DONE
    if as_json:
        rows = [v.to_json() for v in failures]
        print_json({"open": total, "checked": len(verdicts), "failed": len(failures), "failures": rows})
        return code
    _print_failures(failures)
    if len(verdicts) < min(total, options.limit):
        print_err(f"{count_text(total - len(verdicts), 'run')} ended during the check", "dim")
    elif total > options.limit:
        print_err(f"the newest {options.limit:,} of {total:,} open runs; --limit checks more", "bold yellow")
    types = ", ".join(f"{n} {type_}" for type_, n in sorted(Counter(v.workflow for v in verdicts).items()))
    console().print(_summary(len(verdicts), len(failures), types))
    return code


def _summary(checked: int, failed: int, types: str) -> str:
    if not checked:
        return "no open runs that these workers would take"
    replay = f"{count_text(checked - failed, 'open run')} of {checked:,} replay with this code ({types})"
    return f"✗ {replay}; {failed:,} do not" if failed else f"✓ {replay}"


def _print_failures(failures: list[ReplayVerdict]) -> None:
    for verdict in failures[:_MAX_FAILURES]:
        head = f"{verdict.workflow} does not replay: {verdict.error}"
        print_blocks([message(head, where=clean(verdict.id, 200))])
    if len(failures) > _MAX_FAILURES:
        print_err(f"… and {len(failures) - _MAX_FAILURES:,} more; --json has all", "dim")
    if failures:
        print_blocks([message(_HINT, severity="note")])


async def _histories(client: Client, query: str, limit: int) -> AsyncIterator[WorkflowHistory]:
    from temporalio.service import RPCError, RPCStatusCode

    async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
        try:
            yield await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history(rpc_timeout=server.RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
