"""``acts replay``: does a history replay with the code that is installed here?

Laws of this file: the verdict is on stdout, and in the exit code; a run is read, never changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli.command_errors import EXIT_DONE, EXIT_FAILED, command_error
from cli.console import clean, print_json, print_out
from cli.runs import server
from cli.runs.replaying import read_history, replay_one
from cli.runs.run_list import ALL_TYPES
from cli.runs.run_reader import open_run
from cli.text.source_text import read_source

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory


async def replay(argument: str, run_id: str | None, *, as_json: bool) -> int:
    """Replay the history of a run, or of a file."""
    is_file = run_id is None and _is_file(argument)
    history = _from_file(argument) if is_file else await _from_server(argument, run_id)
    type_ = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    if type_ not in ALL_TYPES:
        text = f'"{clean(argument, 200)}" is a run of the type "{clean(type_, 100)}"'
        raise command_error(text, hint=f"the code here has: {', '.join(ALL_TYPES)}")
    verdict = await replay_one(history)
    if as_json:
        print_json(verdict.to_json())
    elif verdict.error is None:
        print_out(f"{clean(verdict.id, 200)} replays: {verdict.events:,} events, with the code here")
    else:
        print_out(f"{clean(verdict.id, 200)} does not replay with the code here: {verdict.events:,} events")
        print_out(verdict.error)
        print_out(
            "A worker with this code cannot go on with the run. Serve it with the code that began it, or terminate it "
            "and start it anew (docs/repair.md)."
        )
    return EXIT_DONE if verdict.error is None else EXIT_FAILED


def _is_file(argument: str) -> bool:
    """A name that ends like a file of histories, or a file that is there."""
    return argument.endswith(".json") or Path(argument).is_file()


def _from_file(name: str) -> WorkflowHistory:
    source = read_source(name)
    return read_history(source.text, source.name)


async def _from_server(id_: str, run_id: str | None) -> WorkflowHistory:
    run = await open_run(id_, run_id)
    info = await run.describe()
    handle = run.client.get_workflow_handle(id_, run_id=info.run_id)
    return await server.for_run(id_, handle.fetch_history(rpc_timeout=server.RPC))
