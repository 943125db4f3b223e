"""What a run tells of itself: its context, its Tools, its Calls, what was decided.

Laws of this file:
- of a run that is over its result tells, which needs no worker: each query makes a worker
  replay all of such a run, so it is asked one question at most, what its Tools are;
- of a run that goes on, or whose result was too large to hold its context, queries tell;
- the data that a run was given by one above it is not taken for that of a Request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.messages import read_request
from acts.language.tools import Tool, read_tool, read_tools, undecided_names
from acts.language.values import Json
from acts.language.wire import AGENT, DELEGATE, INSTANCE, PROMPT_CONTEXT, PLAN
from acts.provenance.message_authors import RunRecord
from cli.command_errors import NO_SERVER, CommandError, refuse
from cli.commands.show import ended
from cli.console import clean
from cli.runs import server
from cli.runs.queries import ask, messages_of, request_of, status_of

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

OURS: Final = (PLAN, AGENT, DELEGATE, INSTANCE)
# How long a worker may take for one answer: it replays the run first. 5,000 events were measured at 5 s
LEAST_SECONDS: Final = 5.0
SECONDS_PER_EVENT: Final = 0.003


@dataclass(frozen=True)
class RunReader:
    """What a run tells. ``above`` is the run of ours that gave it its data; ``complete``: its worker told of Tools."""

    told: RunRecord
    above: str | None
    complete: bool


async def account(client: Client, run: str) -> RunReader:
    """What a run tells.

    Raises:
        Refusal: there is no such run, it has no context, or nobody answers.
    """
    handle = server.handle(client, run)
    found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    if found.workflow_type not in OURS:
        text = f'the run "{clean(run, 200)}" is of the type {clean(found.workflow_type, 100)}, which has no context'
        raise refuse(text, hint=f"these types have one: {', '.join(OURS)}")
    above = await _above(client, found)
    request = None if above is not None else await _request(client, found)
    result = None if request is None else await _result(client, found)
    served = await server.served(client, found.task_queue)
    told = None if request is None or result is None else _of_result(request, result)
    if told is None and not served:
        raise _silent(found, f'no worker serves the queue "{clean(found.task_queue, 100)}"')
    told = told or await _of_queries(handle, found, request, result)
    page = {"offset": 0, "upto": 0}
    material = await ask(handle, PROMPT_CONTEXT, page, within=_patience(found)) if served else None
    tools = _defined(told.messages) if material is None else _tools(material)
    return RunReader(replace(told, tools=tools), above, material is not None)


def _patience(found: WorkflowExecutionDescription) -> timedelta:
    return timedelta(seconds=LEAST_SECONDS + SECONDS_PER_EVENT * found.history_length)


async def _above(client: Client, found: WorkflowExecutionDescription) -> str | None:
    """The run of ours that started this one; None for a root."""
    from temporalio.service import RPCError

    if found.parent_id is None:
        return None
    parent = client.get_workflow_handle(found.parent_id, run_id=found.parent_run_id)
    try:
        kind = (await parent.describe(rpc_timeout=server.RPC)).workflow_type
    except RPCError:  # gone: then nobody can tell what it was
        return found.parent_id
    return found.parent_id if kind in OURS else None


async def _request(client: Client, found: WorkflowExecutionDescription) -> Sequence[Json] | None:
    """The context that a run was started with; None when the history of its beginning is gone."""
    from temporalio.service import RPCError

    try:
        given = await request_of(client, found)
    except RPCError:
        return None
    context = given.get("context", []) if isinstance(given, dict) else None
    return context if isinstance(context, list) else None


async def _result(client: Client, found: WorkflowExecutionDescription) -> dict[str, Any] | None:
    """The result of a run that is over, if it has one."""
    result = (await ended(client, found)).result if found.close_time is not None else None
    return result if isinstance(result, dict) and isinstance(result.get("context"), list) else None


def _of_result(request: Sequence[Json], result: Mapping[str, Any]) -> RunRecord | None:
    """What a result tells; None where it was too large to hold the context."""
    if "context" in _omitted(result):
        return None
    messages = [*request, *result["context"]]
    return RunRecord(messages, {}, request, list(_calls(result)), result.get("decisions") or ())


def _omitted(result: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (result.get("omitted") or {}).get("bytes") or {}
    return found


def _calls(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The Calls of a run, those of its instances among them."""
    yield from result.get("calls") or ()
    for instance, item in (result.get("instances") or {}).items():
        for call in (item.get("calls") if isinstance(item, dict) else None) or ():
            yield {**call, "instance": instance}


async def _of_queries(
    handle: WorkflowHandle[Any, Any], found: WorkflowExecutionDescription, request: Sequence[Json] | None,
    result: Mapping[str, Any] | None,
) -> RunRecord:  # fmt: skip
    """What a worker tells; ``result`` saves it the question for the Calls."""
    messages = await messages_of(handle, _patience(found))
    if messages is not None and result is not None and "calls" not in _omitted(result):
        return RunRecord(messages, {}, request, list(_calls(result)), result.get("decisions") or ())
    status = await status_of(handle, _patience(found))
    if status is None:
        raise _silent(found, f'the workers of the queue "{clean(found.task_queue, 100)}" do not answer')
    if messages is None:
        run = clean(found.id, 200)
        head = f'the run "{run}" has no context to look at (it is {clean(status.get("phase"), 40)})'
        raise refuse(head, hint=f"`acts show {run}` tells how it is")
    return RunRecord(messages, {}, request, status.get("calls") or (), status.get("decisions") or ())


def _tools(material: Any) -> dict[str, Tool]:
    listed = material.get("tools") if isinstance(material, dict) else None
    read = {name: read_tool(name, item["schema"], served=item["served"])[0] for name, item in (listed or {}).items()}
    return {name: tool for name, tool in read.items() if tool is not None}


def _defined(messages: Sequence[Json]) -> dict[str, Tool]:
    """The Tools that say themselves what runs behind them: of the others only a worker knows."""
    parsed = read_request({"context": list(messages)})
    unknown = undecided_names(parsed)
    return {n: t for n, t in read_tools(parsed, {}, lambda _: False).by_name.items() if n not in unknown}


def _silent(found: WorkflowExecutionDescription, who: str) -> CommandError:
    hint = "a run is asked by way of its worker: start one with `acts dev`, or `python -m worker`"
    return refuse(f'{who}, so nobody can tell about "{clean(found.id, 200)}"', hint=hint, code=NO_SERVER)
