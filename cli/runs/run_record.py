"""What ``acts why`` needs of a run: its context, Tools, Calls and decisions, as a ``RunRecord``.

Laws of this file:
- a run that has ended is read from its result, which needs no worker; only its Tools take one query (each query makes
  a worker replay the whole run);
- a run that has not ended, or whose result was too large for the context, is read by queries;
- data that a parent run passed to its child does not count as data of a Request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acts.language.request_reader import read_request
from acts.language.tools import Tool, read_tool, read_tools, undecided_names
from acts.language.values import Json
from acts.provenance.message_authors import RunRecord
from acts.views.set_counts import named_instances
from cli.command_errors import command_error
from cli.console import clean
from cli.runs.run_reader import PLANNING_TYPES, RunReader


@dataclass(frozen=True)
class ReadRecord:
    """``parent`` is the run that passed this one its data; ``has_tools``: the worker described the Tools."""

    record: RunRecord
    parent: str | None
    has_tools: bool


async def read_record(run: RunReader) -> ReadRecord:
    """The record of a run.

    Raises:
        CommandError: there is no such run, it has no context, or no worker answers.
    """
    await run.describe_planning("context")
    await run.allow_replay_time()
    parent = await _planning_parent(run)
    request = None if parent is not None else await _request_context(run)
    result = {} if request is None else await run.result()
    record = None
    if request is not None and "context" in result and "context" not in _omitted(result):
        record = _record([*request, *result["context"]], request, result)
    if record is None:
        if not await run.has_worker():
            raise await run.no_answer_error()
        record = await _query_record(run, request, result)
    tools = await run.prompt_context() if await run.has_worker() else None
    described = _declared_tools(record.messages) if tools is None else _worker_tools(tools)
    return ReadRecord(replace(record, tools=described), parent, tools is not None)


async def _planning_parent(run: RunReader) -> str | None:
    """The run that started this one and has a context; None for a root."""
    parent_id = (await run.describe()).parent_id
    if parent_id is None:
        return None
    parent = run.other(parent_id)
    if await parent.exists() and (await parent.describe()).workflow_type not in PLANNING_TYPES:
        return None
    return parent_id  # also if its history is gone, and with it its type


async def _request_context(run: RunReader) -> Sequence[Json] | None:
    """The context that the run was started with; None if the history of its start is gone."""
    from temporalio.service import RPCError

    try:
        request = await run.request()
    except RPCError:
        return None
    context = request.get("context", []) if isinstance(request, dict) else None
    return context if isinstance(context, list) else None


def _record(messages: Sequence[Json], request: Sequence[Json] | None, result: Mapping[str, Any]) -> RunRecord:
    return RunRecord(messages, {}, request, list(_calls(result)), result.get("decisions") or ())


def _omitted(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parts of a result that were too large to be recorded."""
    omitted: Mapping[str, Any] = (result.get("omitted") or {}).get("bytes") or {}
    return omitted


def _calls(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The Calls of a run and of its instances."""
    yield from result.get("calls") or ()
    for instance, item in named_instances(result).items():
        for call in (item.get("calls") if isinstance(item, dict) else None) or ():
            yield {**call, "instance": instance}


async def _query_record(run: RunReader, request: Sequence[Json] | None, result: Mapping[str, Any]) -> RunRecord:
    messages = await run.messages()
    if messages is not None and "calls" in result and "calls" not in _omitted(result):
        return _record(messages, request, result)
    status = await run.status()
    if status is None:
        raise await run.no_answer_error()
    if messages is None:
        name = clean(run.id, 200)
        head = f'the run "{name}" has no context to read (its phase is {clean(status.get("phase"), 40)})'
        raise command_error(head, hint=f"`acts show {name}` shows its state")
    return RunRecord(messages, {}, request, status.get("calls") or (), status.get("decisions") or ())


def _worker_tools(answer: Mapping[str, Any]) -> dict[str, Tool]:
    items = (answer.get("tools") or {}).items()
    tools = {name: read_tool(name, item["schema"], served=item["served"])[0] for name, item in items}
    return {name: tool for name, tool in tools.items() if tool is not None}


def _declared_tools(messages: Sequence[Json]) -> dict[str, Tool]:
    """The Tools whose own schema says what executes them; a worker alone knows the others."""
    request = read_request({"context": list(messages)})
    undecided = undecided_names(request)
    return {n: t for n, t in read_tools(request, {}, lambda _: False).by_name.items() if n not in undecided}
