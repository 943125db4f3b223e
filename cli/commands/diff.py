"""The plan of a run as text, and ``acts diff``: what became of it.

Laws of this file:
- the text of a plan reads back as the same plan: YAML, and JSON where YAML would not;
- the plan as it was started stands in the run's input, the one that waits or runs now is
  what the run tells; nothing is guessed where nobody tells.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

from acts.language.values import Json
from acts.language.wire import AGENT, DELEGATE, EDIT, INSTANCE, PROMPT_CONTEXT, PLAN, PLAN_QUERY
from cli.command_errors import DONE, refuse
from cli.console import clean, console, say
from cli.runs import server
from cli.runs.pending_view import waits_of
from cli.runs.queries import ask, messages_of, request_of, status_of
from cli.runs.run_outcome import wait
from cli.text import yaml_text
from cli.text.positions import TextError

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

    from acts.tree.decisions import PendingApproval

_SHOWN: Final = 20  # instances with a plan of their own


def text_of(value: Json) -> tuple[str, Literal["JSON", "YAML"]]:
    """A plan or a Call for reading and changing."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    try:
        if yaml_text.parse(text) == value:
            return text, "YAML"
    except TextError:
        pass
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n", "JSON"


def difference(old: str, new: str, names: tuple[str, str]) -> list[str]:
    """The unified diff of two texts, as clean lines."""
    rows = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
    return [clean(row) for row in rows]


def print_difference(rows: Sequence[str]) -> None:
    """On stdout, coloured where a terminal looks."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for row in rows:
        console().print(row, style=styles.get(row[:1]) if row[:3] not in ("+++", "---") else "bold")


async def calls_of(client: Client, run: str) -> list[Any] | None:
    """The Calls of the plan that a run tells: the one that waits, or else runs."""
    found = await ask(client.get_workflow_handle(run), PLAN_QUERY)
    return found if isinstance(found, list) else None


@dataclass(frozen=True)
class World:
    """What a plan is checked against: the context of its run, and the Tools as the worker knows them."""

    messages: Sequence[Json]
    tools: Mapping[str, Json]
    served: Sequence[str]
    mode: str


async def world_of(client: Client, run: str) -> World | None:
    """As a run tells it; None when nobody does."""
    handle = client.get_workflow_handle(run)
    first = await ask(handle, PROMPT_CONTEXT, {"offset": 0})
    if not isinstance(first, dict) or not isinstance(first.get("tools"), dict):
        return None
    messages = await messages_of(handle)
    if messages is None:
        return None
    tools = first["tools"]
    served = [name for name, tool in tools.items() if tool["served"]]
    return World(messages, {name: tool["schema"] for name, tool in tools.items()}, served, str(first.get("mode")))


async def config_of(client: Client, run: str) -> Json:
    """The config that a run was started with, without limits that a plan by itself has no part in."""
    found = await client.get_workflow_handle(run).describe(rpc_timeout=server.RPC)
    request = await request_of(client, found)
    config = request.get("config") if isinstance(request, dict) else None
    return {k: v for k, v in config.items() if k != "budget"} if isinstance(config, dict) else {}


async def plan_below(client: Client, found: WorkflowExecutionDescription) -> str | None:
    """The run that walks the plan of a delegate, where that runs as it stands: the latest Plan that it started."""
    handle, out = client.get_workflow_handle(found.id, run_id=found.run_id), None
    async for event in handle.fetch_history_events(rpc_timeout=server.RPC):
        started = event.child_workflow_execution_started_event_attributes
        if started.workflow_type.name == PLAN:
            out = started.workflow_execution.workflow_id
    return out


def diff(run: str) -> int:
    """Print what became of a plan.

    Raises:
        Refusal: there is no such run, it has no plan, or nobody tells.
    """
    return server.go(_diff(run))


async def _diff(run: str) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    if found.workflow_type not in (PLAN, AGENT, INSTANCE, DELEGATE):
        raise refuse(f"a run of type {clean(found.workflow_type, 100)} has no plan", where=run)
    now, waits = await calls_of(client, run), None
    if found.workflow_type == DELEGATE and not now and (below := await plan_below(client, found)) is not None:
        say(f"its plan is walked by {clean(below)}:", "dim")
        return await _diff(below)
    if found.close_time is None:
        waits = await waits_of(handle)
    if now is None:
        raise refuse("nobody tells the plan of this run", where=run, hint="start a worker: `acts dev`")
    waiting = next((w for w in waits or () if w.workflow_id == run), None)
    proposed = waiting is not None and waiting.what == "plan"
    if found.workflow_type in (PLAN, INSTANCE):
        before, name = _last_plan(await request_of(client, found)), "as it was started"
    else:
        before, name = await _plan_before(client, found, proposed=proposed), "the plan before"
    version = "" if waiting is None else f"version {waiting.version}, "
    state = "waits" if proposed else "as it is now" if found.close_time is None else "as it ended"
    rows = difference(text_of(before)[0], text_of(now)[0], (name, version + state))
    if not rows:
        say("the plan is as it was")
    print_difference(rows)
    await _tell_edits_below(client, found, waits or [])
    return DONE


async def _tell_edits_below(
    client: Client, found: WorkflowExecutionDescription, waits: Sequence[PendingApproval]
) -> None:
    """Which instances have a plan of their own by now: what was edited there is not in the plan of this run."""
    edited = {w.workflow_id: w.instance for w in waits if w.instance is not None and w.version > 1}
    edited |= {walker(found.id, r): r["instance"] for r in await _records(client, found) if _is_edit_below(r)}
    edited |= await _edited_children(client, found)
    edited.pop(found.id, None)
    for number, (run, instance) in enumerate(edited.items()):
        if number == _SHOWN:
            say(f"… and the plans of {len(edited) - number} more instances")
            return
        if await _is_instance(client, run):
            say(clean(f"the plan of the instance {instance} was edited: acts diff {shlex.quote(run)}"))


async def _records(client: Client, found: WorkflowExecutionDescription) -> list[Any]:
    """Who decided what in a run and in those below it that have ended."""
    if found.close_time is None:
        told: Any = await status_of(client.get_workflow_handle(found.id))
    else:
        told = (await wait(client.get_workflow_handle(found.id, run_id=found.run_id), follow=False)).result
    return list(told.get("decisions") or ()) if isinstance(told, dict) else []


async def _edited_children(client: Client, found: WorkflowExecutionDescription) -> dict[str, str]:
    """The first of the instances that go on, by run, whose plan was edited: they tell it above when they end."""
    listed = found.raw_description.pending_children
    runs = [c.workflow_id for c in listed if c.workflow_type_name == INSTANCE][:_SHOWN]
    told = await asyncio.gather(*(status_of(client.get_workflow_handle(run)) for run in runs))
    edited = [
        run for run, status in zip(runs, told, strict=True) if any(map(_is_edit, (status or {}).get("decisions", ())))
    ]
    return {run: run.removeprefix(f"{found.id}/") for run in edited}


def _is_edit(record: Any) -> bool:
    return isinstance(record, dict) and record.get("decision") == EDIT


def _is_edit_below(record: Any) -> bool:
    return _is_edit(record) and isinstance(record.get("instance"), str) and "below" not in record


def walker(run: str, record: Mapping[str, Any]) -> str:
    """The run that walks the instance of a record; an agent's is below the plan of a tick."""
    tick = f"/plan-{record['tick']}" if "tick" in record else ""
    return f"{run}{tick}/{record['instance']}"


async def _is_instance(client: Client, run: str) -> bool:
    """False for a run that is not there: one that walks its instances itself has shown what was edited."""
    from temporalio.service import RPCError

    try:
        found = await client.get_workflow_handle(run).describe(rpc_timeout=server.RPC)
    except RPCError:
        return False
    return found.workflow_type == INSTANCE


def _last_plan(request: Json) -> list[Any]:
    context = request.get("context") if isinstance(request, dict) else None
    return _plans(context if isinstance(context, list) else [])[-1]


def _plans(messages: Sequence[Json]) -> list[list[Any]]:
    """The Calls of each plan message, an empty plan before them."""
    return [[], *(m.get("plan") or [] for m in messages if isinstance(m, dict) and m.get("type") == "plan")]


async def _plan_before(client: Client, found: WorkflowExecutionDescription, *, proposed: bool) -> list[Any]:
    """Of an agent: the last plan message, or the one before it when that is what runs."""
    messages = await messages_of(client.get_workflow_handle(found.id, run_id=found.run_id))
    plans = _plans(messages or [])
    return plans[-1] if proposed else plans[-2 if len(plans) > 1 else -1]
