"""The progress of a run: its status, the Calls of its child plan, its pending approvals with their parameters.

Laws of this file:
- an agent learns the states of its Calls when their plan ends, so the plan of the tick is queried too;
- the parameters of a pending Call are those that its run has resolved and will use. References of the plan could
  resolve to something else by now;
- only the server knows whether a worker has taken a Call: one that waits in its task queue is ``ready``;
- a decision does not depend on the parameters: if no worker answers, the approval is shown without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts.tree.child_ids import plan_child_id, short_id
from acts.tree.decisions import PendingApproval
from cli.runs.run_reader import RunReader

# Parameters by approval, for callers that poll
ParameterCache = dict[tuple[Any, ...], dict[str, Any]]

# Keys that are added to an approval's ``about``; the query ``pending`` uses neither
WITH: Final = "with"
EDITABLE: Final = "editable"
MAX_CONCURRENT_QUERIES: Final = 16  # each is a task for a worker that has other work


async def read_progress(run: RunReader, cache: ParameterCache | None = None) -> dict[str, Any] | None:
    """``status``, with the live states of the Calls and with ``pending`` (as JSON); None if no worker answers."""
    status = await run.status()
    if status is None:
        return None
    status = {**status, "calls": await _live_calls(run, status)}
    if status.get("waits") or status.get("phase") == "awaiting":
        approvals = await run.pending()
        if approvals:
            status["pending"] = [a.to_json() for a in await add_parameters(run, approvals, cache)]
    return status


async def _live_calls(run: RunReader, status: Mapping[str, Any]) -> list[Any]:
    """The Calls of a status; those of the current tick as the plan that executes them reports them."""
    calls, tick = await _as_server_sees(run, status.get("calls") or ()), status.get("tick")
    current = [i for i, call in enumerate(calls) if call.get("tick") == tick and call.get("state") == "pending"]
    if not tick or not current:
        return calls
    plan = run.other(plan_child_id(run.id, tick))
    child = await plan.status()
    live = await _as_server_sees(plan, (child or {}).get("calls") or [])
    if len(live) == len(current):  # the plan numbers its Calls anew, in the same order
        for index, call in zip(current, live, strict=True):
            calls[index] = {**call, **{k: calls[index][k] for k in ("id", "tool", "tick")}}
    return calls


async def _as_server_sees(run: RunReader, calls: Iterable[Any]) -> list[Any]:
    """The Calls of a run; one in flight with ``taskQueue`` while it waits there, or with its ``attempt``."""
    calls = list(calls)
    if not any(map(_is_in_flight, calls)):
        return calls
    activities = await run.activities()
    return [_with_activity(call, activities.get(short_id(_key_of(call)))) for call in calls]


def _key_of(call: Mapping[str, Any]) -> str:
    return f"{call['instance']}/{call['id']}" if call.get("instance") else str(call.get("id"))


def _with_activity(call: Mapping[str, Any], activity: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if activity is None or not _is_in_flight(call):
        return call
    call = {k: v for k, v in call.items() if k != "taskQueue"}
    if activity.get("isInQueue"):
        return {**call, "state": "ready", "taskQueue": activity["taskQueue"]}
    return {**call, "state": "running", **{k: activity[k] for k in ("attempt", "lastFailure") if activity.get(k)}}


def _is_in_flight(call: Mapping[str, Any]) -> bool:
    return call.get("state") == "running" or "taskQueue" in call


async def add_parameters(
    run: RunReader, approvals: Sequence[PendingApproval], cache: ParameterCache | None = None
) -> list[PendingApproval]:
    """The approvals, with ``about["with"]``: the Call with the parameters that it will have.

    ``about["editable"]`` is False if the run accepts no edit of it.
    """
    cache = {} if cache is None else cache
    missing = [a for a in approvals if a.call is not None and _key(a) not in cache]
    limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def query(id_: str) -> dict[str, Any]:
        async with limit:
            return await run.other(id_).pending_parameters() or {}

    ids = dict.fromkeys(a.workflow_id for a in missing)
    answers = dict(zip(ids, await asyncio.gather(*map(query, ids)), strict=True))
    added = {_key(a): _details(a, answers[a.workflow_id]) for a in missing}
    cache.update({key: details for key, details in added.items() if WITH in details})
    return [replace(a, about=_without_details(a) | {**added, **cache}.get(_key(a), {})) for a in approvals]


def _key(approval: PendingApproval) -> tuple[Any, ...]:
    return approval.workflow_id, approval.call, approval.instance, approval.version


def _details(approval: PendingApproval, answer: Mapping[str, Any]) -> dict[str, Any]:
    # a run inside an instance does not know the instance's name
    calls = {c["call"]: c[WITH] for c in answer.get("calls", ()) if c.get("instance") in (None, approval.instance)}
    details: dict[str, Any] = {} if answer.get(EDITABLE, True) else {EDITABLE: False}
    return {WITH: calls[approval.call], **details} if approval.call in calls else details


def _without_details(approval: PendingApproval) -> dict[str, Any]:
    return {k: v for k, v in approval.about.items() if k not in (WITH, EDITABLE)}
