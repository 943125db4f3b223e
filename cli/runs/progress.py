"""The progress of a run: its status, the Calls of its child plan, its pending approvals with their parameters.

Laws of this file:
- an agent learns the states of its Calls when their plan ends, so the plan of the tick is queried too;
- the parameters of a pending Call are those that its run has resolved and will use. References of the plan could
  resolve to something else by now;
- a decision does not depend on the parameters: if no worker answers, the approval is shown without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts.tree.child_ids import plan_child_id
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
    calls, tick = list(status.get("calls") or ()), status.get("tick")
    current = [i for i, call in enumerate(calls) if call.get("tick") == tick and call.get("state") == "pending"]
    if not tick or not current:
        return calls
    child = await run.other(plan_child_id(run.id, tick)).status()
    live = (child or {}).get("calls") or []
    if len(live) == len(current):  # the plan numbers its Calls anew, in the same order
        for index, call in zip(current, live, strict=True):
            calls[index] = {**call, **{k: calls[index][k] for k in ("id", "tool", "tick")}}
    return calls


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
