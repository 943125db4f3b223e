"""``acts replay`` and ``deploy-check``: do histories replay with the code that is installed here?

The workflows, the converter and the interceptors are those of the worker, so a history that replays here replays there.
Nothing is sent to a server but requests for histories. A history that cannot be replayed is a verdict with a reason,
never an exception. ``deploy-check`` replays the runs that the new workers would take: not those pinned to a version of
their own; a run that ends or is deleted during the check counts as checked.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acts.cli.command_line import AsJson, CommandGroup, RunId
from acts.cli.console import (
    EXIT_DONE,
    EXIT_FAILED,
    clean,
    command_error,
    console,
    count_text,
    message,
    print_blocks,
    print_err,
    print_json,
    print_out,
)
from acts.cli.runs import server
from acts.cli.runs.listings import ALL_TYPES, quote
from acts.cli.runs.run_reader import open_run
from acts.cli.text.source import looks_like_file, read_source

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHistory

# Characters of a reason: the SDK's text names two events, ours names a call
MAX_REASON: Final = 2_000
# The SDK wraps the sentence that says which command does not fit into a dump of its failure
_SENTENCE: Final = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_CODE: Final = re.compile(r"^\[TMPRL\d+\] ")
# The server's own search attribute; runs of unversioned workers do not have it
_BEHAVIOR: Final = "TemporalWorkflowVersioningBehavior"
_MAX_FAILURES: Final = 50  # printed in full; more of them are mostly alike
_STUCK: Final = (
    "runs that do not replay would be stuck on workers with this code: let them end on the old ones "
    "(docs/operations.md, worker versions), or make the change compatible"
)

HistoryOrRun = Annotated[
    str, typer.Argument(metavar="ID|FILE", help="A run, or a history as `temporal workflow show -o json` prints it.")
]
Query = Annotated[
    str | None, typer.Option(metavar="QUERY", help="Only these: a visibility query, like \"ActsPhase = 'awaiting'\".")
]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many, the newest first.")]
Pinned = Annotated[bool, typer.Option("--pinned", help="Also runs that are pinned to a deployment version.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="The task queue (default: ACTS_TASK_QUEUE, or acts).")]

app = CommandGroup()


@app.add
async def replay(history: HistoryOrRun, run_id: RunId = None, as_json: AsJson = False) -> int:
    """Replay the history of a run with the code that is installed here: could this worker go on with it?

    Exit codes: 0 it replays, 1 it does not, 2 there is no such history, 3 no server.

      acts replay order-7
      temporal workflow show -w order-7 -o json > order-7.json; acts replay order-7.json
    """
    if run_id is None and looks_like_file(history):
        source = read_source(history)
        content = read_history(source.text, source.name)
    else:
        run = await open_run(history, run_id)
        handle = run.client.get_workflow_handle(history, run_id=(await run.describe()).run_id)
        content = await server.for_run(history, handle.fetch_history(rpc_timeout=server.RPC))
    type_ = content.events[0].workflow_execution_started_event_attributes.workflow_type.name
    if type_ not in ALL_TYPES:
        text = f'"{clean(history, 200)}" is a run of the type "{clean(type_, 100)}"'
        raise command_error(text, hint=f"the code here has: {', '.join(ALL_TYPES)}")

    async def single() -> AsyncIterator[WorkflowHistory]:
        yield content

    (verdict,) = [verdict async for verdict in replay_histories(single())]
    if as_json:
        print_json(verdict.to_json())
    elif verdict.error is None:
        print_out(f"{clean(verdict.id, 200)} replays: {verdict.events:,} events, with the code here")
    else:
        print_out(f"{clean(verdict.id, 200)} does not replay with the code here: {verdict.events:,} events")
        print_out(verdict.error)
        print_blocks([message(_STUCK, severity="note")])
    return EXIT_DONE if verdict.error is None else EXIT_FAILED


@app.add
async def deploy_check(
    query: Query = None, limit: Limit = 1000, pinned: Pinned = False, queue: Queue = None, as_json: AsJson = False
) -> int:
    """Replay the open runs with the code here, before a rollout. Code 1: one does not replay."""
    client = await server.connect()
    visible = open_runs_query(query, queue, has_pinned=pinned)
    total = (await client.count_workflows(visible, rpc_timeout=server.RPC)).count
    verdicts = [v async for v in replay_histories(_open_histories(client, visible, limit))]
    failures = [v for v in verdicts if v.error is not None]
    code = EXIT_FAILED if failures else EXIT_DONE
    if as_json:
        rows = [v.to_json() for v in failures]
        print_json({"open": total, "checked": len(verdicts), "failed": len(failures), "failures": rows})
        return code
    for verdict in failures[:_MAX_FAILURES]:
        head = f"{verdict.workflow} does not replay: {verdict.error}"
        print_blocks([message(head, where=clean(verdict.id, 200))])
    if failures:
        more = f"{len(failures):,} do not replay; --json has all. " if len(failures) > _MAX_FAILURES else ""
        print_blocks([message(more + _STUCK, severity="note")])
    if total > limit:
        print_err(f"the newest {limit:,} of {total:,} open runs; --limit checks more", "bold yellow")
    types = ", ".join(f"{n} {type_}" for type_, n in sorted(Counter(v.workflow for v in verdicts).items()))
    count = count_text(len(verdicts) - len(failures), "open run")
    text = f"{count} of {len(verdicts):,} replay with this code ({types})"
    text = f"✗ {text}; {len(failures):,} do not" if failures else f"✓ {text}"
    console().print(text if verdicts else "no open runs that these workers would take")
    return code


def open_runs_query(query: str | None = None, queue: str | None = None, *, has_pinned: bool = False) -> str:
    """The visibility query of the runs to replay; ``query`` narrows them."""
    types = ", ".join(map(quote, ALL_TYPES))
    parts = ["ExecutionStatus = 'Running'", f"WorkflowType IN ({types})"]
    parts.append(f"TaskQueue = {quote(queue or server.task_queue())}")
    if not has_pinned:
        parts.append(f"({_BEHAVIOR} IS NULL OR {_BEHAVIOR} != 'Pinned')")
    return " AND ".join([*parts, *([f"({query})"] if query else [])])


async def _open_histories(client: Client, query: str, limit: int) -> AsyncIterator[WorkflowHistory]:
    from temporalio.service import RPCError, RPCStatusCode

    async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
        try:
            yield await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history(rpc_timeout=server.RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise


# -- replaying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplayVerdict:
    """What came of one history. ``error`` is None where it replays; ``events`` counts those that it has."""

    id: str
    run_id: str
    workflow: str
    events: int
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """``{id, runId, workflow, events, replays, error?}``"""
        row = {"id": self.id, "runId": self.run_id, "workflow": self.workflow, "events": self.events}
        return row | {"replays": self.error is None} | ({} if self.error is None else {"error": self.error})


async def replay_histories(histories: AsyncIterable[WorkflowHistory]) -> AsyncIterator[ReplayVerdict]:
    """Replay one history after the other; each is in memory only while it is replayed.

    Where no workflow task has begun, nothing was decided yet: such a history replays.
    """
    from acts.worker import plugin

    # The verdict says what the log lines of the core, and the SDK's traceback of each failed task, would
    replayer = plugin.build_replayer(server.silent_runtime())
    logging.getLogger("temporalio").setLevel(logging.CRITICAL + 1)
    fresh: list[WorkflowHistory] = []

    async def begun() -> AsyncIterator[WorkflowHistory]:
        async for history in histories:
            if any(event.HasField("workflow_task_started_event_attributes") for event in history.events):
                yield history
            else:  # the replayer would wait for a task for ever
                fresh.append(history)

    async with replayer.workflow_replay_iterator(begun()) as results:
        async for result in results:
            yield _verdict(result.history, result.replay_failure)
    for history in fresh:
        yield _verdict(history, None)


def read_history(text: str, source: str) -> WorkflowHistory:
    """The history in a file: what ``temporal workflow show --output json`` or the Web UI's download gives.

    Raises:
        CommandError: it is none.
    """
    from temporalio.client import WorkflowHistory

    hint = "save one with: temporal workflow show -w ID --output json"
    try:
        data = json.loads(text)
        start = data["events"][0]["workflowExecutionStartedEventAttributes"]
        return WorkflowHistory.from_json(start.get("workflowId") or source, data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        text = f"not a workflow history: {clean(f'{type(error).__name__}: {error}', 300)}"
        raise command_error(text, where=source, hint=hint) from None


def _verdict(history: WorkflowHistory, failure: BaseException | None) -> ReplayVerdict:
    """The reason is the SDK's sentence, without what it wraps it into."""
    text = None if failure is None else str(failure) or type(failure).__name__
    if text is not None and (sentence := _SENTENCE.search(text)):
        text = re.sub(r"\\(.)", r"\1", sentence[1])
    start = history.events[0].workflow_execution_started_event_attributes
    return ReplayVerdict(
        history.workflow_id, start.original_execution_run_id, start.workflow_type.name, len(history.events),
        None if text is None else clean(_CODE.sub("", text), MAX_REASON),
    )  # fmt: skip
