"""One instance of a batch, whoever walks it: ``acts show RUN --instance NAME``.

Laws of this file:
- who carries an instance is found here: the run itself, a child of its own, or one that it shares with others;
- of a run that is over its result tells; where that says nothing of the instance, and of a run that goes on, queries;
- what cannot be told is named, and nothing is guessed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import AGENT, CONTEXT, INSTANCE
from acts.tree.decisions import PendingApproval
from cli.command_errors import NO_SERVER, CommandError, refuse
from cli.console import clean
from cli.runs import server
from cli.runs.follow import progress
from cli.runs.pending_view import read_waits
from cli.runs.queries import ask, status_of
from cli.runs.run_outcome import wait

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

# Instances before this one whose child may carry it; a question to the server for each
_MAX_BEFORE: Final = 500
_MAX_NAMED: Final = 12
_UNBEGUN: Final = ("pending", "ready")


@dataclass(frozen=True)
class One:
    """An instance: ``{status, state?, calls, errors}``, the run that tells it, and all that waits there."""

    item: dict[str, Any]
    run: str
    waits: Sequence[PendingApproval] = ()


async def instance_of(client: Client, found: WorkflowExecutionDescription, name: str) -> One:
    """An instance of a run.

    Raises:
        Refusal: the run has none of this name, or nobody tells.
    """
    told = await _result(client, found)
    item = (told.get("instances") or {}).get(name) or {}
    of_result = One(_item(item, name, told), found.id) if "calls" in item else None
    if of_result is not None and "state" in item:
        return of_result
    try:
        return await _asked(client, found, name)
    except CommandError:
        if of_result is None:
            raise
        return of_result


async def names_of(client: Client, found: WorkflowExecutionDescription) -> list[str]:
    """The instances of a run, as far as it tells."""
    told = await _result(client, found)
    if not isinstance(told.get("instances"), dict):
        told = await status_of(client.get_workflow_handle(found.id, run_id=found.run_id)) or {}
    return list(told.get("instances") or ())


async def _result(client: Client, found: WorkflowExecutionDescription) -> dict[str, Any]:
    if found.close_time is None:
        return {}
    outcome = await wait(client.get_workflow_handle(found.id, run_id=found.run_id), follow=False)
    return outcome.result if isinstance(outcome.result, dict) else {}


def _item(item: Mapping[str, Any], name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Of an instance, what is shown: its errors named, and the decisions that were about it."""
    out = {k: item[k] for k in ("status", "state", "calls") if k in item}
    out["errors"] = [{**e, "instance": name} for e in item.get("errors") or () if isinstance(e, dict)]
    decided = [d for d in told.get("decisions") or () if isinstance(d, dict) and d.get("instance") == name]
    return {**out, "decisions": decided} if decided else out


async def _asked(client: Client, found: WorkflowExecutionDescription, name: str) -> One:
    """An instance as queries tell it: those to the run, or to what carries it below."""
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    status = await progress(client, handle)
    if status is None:
        hint = "start a worker: `acts dev`, or `python -m worker`"
        raise refuse(f"nobody tells the instances of {clean(found.id, 200)}", hint=hint, code=NO_SERVER)
    if found.workflow_type == AGENT and status.get("tick"):
        plan = await _described(client, f"{found.id}/plan-{status['tick']}")
        if plan is not None:
            return await instance_of(client, plan, name)
    known = list(status.get("instances") or ())
    if name not in known:
        raise unknown(found.id, known, name)
    calls = [c for c in status.get("calls") or () if c.get("instance") == name]
    waits = read_waits(status.get("pending")) or []
    if calls:
        state = await ask(handle, CONTEXT, {"path": "†state", "instance": name})
        return One(_walked(str(status["instances"][name]), calls, state, name, status), found.id, waits)
    begun = status["instances"][name] not in _UNBEGUN  # else a child of this id is one of an earlier run
    carrier = await _carrier(client, found.id, known, name) if begun else None
    if carrier is None:
        return One({"status": str(status["instances"][name]), "calls": [], "errors": []}, found.id)
    result = await _result(client, carrier)
    if "calls" in result:  # a child of its own, which has ended
        return One(_item(result, name, {}), carrier.id)
    below = await instance_of(client, carrier, name)
    return One(below.item, below.run, waits)


def _walked(
    status: str, calls: Sequence[Mapping[str, Any]], state: Any, name: str, told: Mapping[str, Any]
) -> dict[str, Any]:
    """What the queries to the run that walks an instance come to."""
    errors = [{"call": c.get("id"), **c["error"]} for c in calls if isinstance(c.get("error"), dict)]
    own = [{k: v for k, v in call.items() if k != "instance"} for call in calls]
    value = {"state": state["value"]} if isinstance(state, dict) and "value" in state else {}
    return _item({"status": status, **value, "calls": own, "errors": errors}, name, told)


async def _carrier(client: Client, run: str, known: Sequence[str], name: str) -> WorkflowExecutionDescription | None:
    """The child that carries an instance, once it is there: the nearest one, since it is named after its first."""
    place = list(known).index(name) + 1
    for first in reversed(known[max(place - _MAX_BEFORE, 0) : place]):
        found = await _described(client, f"{run}/{first}")
        if found is not None and found.workflow_type == INSTANCE:
            return found if first == name or name in await names_of(client, found) else None
    return None


async def _described(client: Client, run: str) -> WorkflowExecutionDescription | None:
    """What the server knows of a run; None when there is none of this id."""
    try:
        return await server.about(run, client.get_workflow_handle(run).describe(rpc_timeout=server.RPC))
    except CommandError:
        return None


def unknown(run: str, known: Sequence[str], name: str, where: str = "--instance") -> CommandError:
    """A run has no such instance; which it has."""
    near = get_close_matches(name, known, 1)
    more = f", … ({len(known)} in all)" if len(known) > _MAX_NAMED else ""
    listed = ", ".join(clean(k, 80) for k in known[:_MAX_NAMED]) + more
    hint = f"did you mean {clean(near[0], 80)}? " if near else ""
    hint += f"it has: {listed}" if known else "instances are named by `_instance` in the messages of its request"
    return refuse(f'the run {clean(run, 200)} has no instance "{clean(name, 100)}"', where=where, hint=hint)


def look_at(run: str, name: str) -> str:
    """The command that shows an instance."""
    return shlex.join(["acts", "show", clean(run), "--instance", clean(name)])


async def elsewhere(client: Client, run: str) -> str:
    """For an id that no run has: how to look at it, where it is ``RUN/NAME`` and NAME an instance of RUN; else ""."""
    parts = run.split("/")
    for at in range(len(parts) - 1, 0, -1):
        above, name = "/".join(parts[:at]), "/".join(parts[at:])
        found = await _described(client, above) if above else None
        if found is not None:
            return look_at(above, name) if name in await names_of(client, found) else ""
    return ""
