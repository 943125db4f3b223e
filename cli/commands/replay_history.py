"""``acts replay``: does a history replay with the code that is installed here?

Laws of this file: the verdict is on stdout, and in the exit code; a run is read, never changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.command_errors import EXIT_DONE, EXIT_FAILED, command_error
from cli.console import clean, print_json, print_out
from cli.runs import server
from cli.runs.run_reader import open_run
from cli.text.source_text import read_source

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory
    from temporalio.converter import DataConverter

# Characters of the SDK's reason
MAX_REASON: Final = 2_000
_START: Final = "workflowExecutionStartedEventAttributes"


async def replay(argument: str, run_id: str | None, *, as_json: bool) -> int:
    """Replay the history of a run, or of a file."""
    is_file = run_id is None and _is_file(argument)
    history, converter, type_ = _from_file(argument) if is_file else await _from_server(argument, run_id)
    from cli.dev.replay_check import WORKFLOW_NAMES, replay_failure

    if type_ not in WORKFLOW_NAMES:
        text = f'"{clean(argument, 200)}" is a run of the type "{clean(type_, 100)}"'
        raise command_error(text, hint=f"the code here has: {', '.join(WORKFLOW_NAMES)}")
    failure = await replay_failure(history, converter)
    events = len(history.events)
    if as_json:
        reason = {} if failure is None else {"reason": failure[:MAX_REASON]}
        print_json({"workflowId": history.workflow_id, "events": events, "replays": failure is None, **reason})
    elif failure is None:
        print_out(f"{clean(history.workflow_id, 200)} replays: {events:,} events, with the code here")
    else:
        print_out(f"{clean(history.workflow_id, 200)} does not replay with the code here: {events:,} events")
        print_out(clean(failure, MAX_REASON))
        print_out(
            "A worker with this code cannot go on with the run. Serve it with the code that began it, or terminate it "
            "and start it anew (docs/repair.md)."
        )
    return EXIT_DONE if failure is None else EXIT_FAILED


def _is_file(argument: str) -> bool:
    """A name that ends like a file of histories, or a file that is there."""
    return argument.endswith(".json") or Path(argument).is_file()


def _from_file(name: str) -> tuple[WorkflowHistory, DataConverter, str]:
    from google.protobuf.json_format import ParseError
    from temporalio.client import WorkflowHistory

    from connection.converter import client_converter

    source = read_source(name)
    value: Any = source.value
    try:
        start = value["events"][0][_START]
        id_, type_ = str(start["workflowId"]), str(start["workflowType"]["name"])
        return WorkflowHistory.from_json(id_, json.dumps(value)), client_converter(), type_
    except (KeyError, IndexError, TypeError, ValueError, ParseError):
        hint = "temporal workflow show --workflow-id ID --output json prints one"
        raise command_error("the file holds no history of a workflow", where=source.name, hint=hint) from None


async def _from_server(id_: str, run_id: str | None) -> tuple[WorkflowHistory, DataConverter, str]:
    run = await open_run(id_, run_id)
    info = await run.describe()
    handle = run.client.get_workflow_handle(id_, run_id=info.run_id)
    history = await server.for_run(id_, handle.fetch_history(rpc_timeout=server.RPC))
    return history, run.client.data_converter, info.workflow_type
