"""The plan of a run as text, and ``acts diff``: what became of it.

Laws of this file:
- the text of a plan reads back as the same plan: YAML, and JSON where YAML would not;
- the plan as it was started stands in the run's input, the one that waits or runs now is
  what the run tells; nothing is guessed where nobody tells.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import yaml

from acts.values import Json
from acts.wire import AGENT, MATERIAL, PLAN, PLAN_QUERY
from cli import server, yamltext
from cli.failures import DONE, refuse
from cli.output import clean, console, say
from cli.places import TextError
from cli.questions import ask, messages_of, request_of
from cli.waits import waits_of

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription


def text_of(value: Json) -> tuple[str, Literal["JSON", "YAML"]]:
    """A plan or a Call for reading and changing."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    try:
        if yamltext.parse(text) == value:
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
    first = await ask(handle, MATERIAL, {"offset": 0})
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
    if found.workflow_type not in (PLAN, AGENT):
        raise refuse(f"a run of type {clean(found.workflow_type, 100)} has no plan", where=run)
    now, waits = await calls_of(client, run), None
    if found.close_time is None:
        waits = await waits_of(handle)
    if now is None:
        raise refuse("nobody tells the plan of this run", where=run, hint="start a worker: `acts dev`")
    waiting = next((w for w in waits or () if w.workflow_id == run), None)
    proposed = waiting is not None and waiting.what == "plan"
    if found.workflow_type == PLAN:
        before, name = _last_plan(await request_of(client, found)), "as it was started"
    else:
        before, name = await _plan_before(client, found, proposed=proposed), "the plan before"
    version = "" if waiting is None else f"version {waiting.version}, "
    state = "waits" if proposed else "as it is now" if found.close_time is None else "as it ended"
    rows = difference(text_of(before)[0], text_of(now)[0], (name, version + state))
    if not rows:
        say("the plan is as it was")
    print_difference(rows)
    return DONE


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
