"""What a Call that waits would be called with: shown before anybody decides about it.

Laws of this file:
- it is what the run that waits says (the query ``asked``): the parameters as it has resolved them. The other queries
  could tell something else: ``plan`` has the references, and ``context`` what they yield now, which a Call later in
  the plan may have written;
- a decision does not wait for it: where nobody answers, the wait is shown without.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.tools import META
from acts.language.wire import PENDING_PARAMETERS
from acts.tree.decisions import PendingApproval
from cli.console import clean
from cli.runs.queries import ask

if TYPE_CHECKING:
    from temporalio.client import Client

Known = dict[tuple[Any, ...], dict[str, Any]]

# The keys of a wait's ``about`` that are ours; the query ``pending`` has none of these names
WITH: Final = "with"
EDITABLE: Final = "editable"
SCOPES: Final = "_scopes"
_AT_ONCE: Final = 16  # each is a question to a worker, which has other work too


async def with_calls(
    client: Client, waits: Sequence[PendingApproval], known: Known | None = None
) -> list[PendingApproval]:
    """The waits, each of a Call with ``about["with"]``: the Call as it would be made, where its run tells it.

    ``about["editable"]`` is False where no edit is taken. ``known`` keeps what was told, for who asks again and again.
    """
    known = {} if known is None else known
    new = [w for w in waits if w.call is not None and _key(w) not in known]
    runs = dict.fromkeys(w.workflow_id for w in new)
    some = asyncio.Semaphore(_AT_ONCE)

    async def ask_for(run: str) -> dict[str, Any]:
        async with some:
            found = await ask(client.get_workflow_handle(run), PENDING_PARAMETERS)
            return found if isinstance(found, dict) else {}

    told = dict(zip(runs, await asyncio.gather(*map(ask_for, runs)), strict=True))
    found = {_key(w): _more(w, told[w.workflow_id]) for w in new}
    known.update({key: more for key, more in found.items() if WITH in more})
    return [replace(w, about=_about(w, {**found, **known}.get(_key(w), {}))) for w in waits]


def _key(wait: PendingApproval) -> tuple[Any, ...]:
    return wait.workflow_id, wait.call, wait.instance, wait.version


def _more(wait: PendingApproval, told: Mapping[str, Any]) -> dict[str, Any]:
    # A run below an instance does not know of it
    calls = {c["call"]: c[WITH] for c in told.get("calls", ()) if c.get("instance") in (None, wait.instance)}
    more = {} if told.get(EDITABLE, True) else {EDITABLE: False}
    return {WITH: calls[wait.call], **more} if wait.call in calls else more


def _about(wait: PendingApproval, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in wait.about.items() if k not in (WITH, EDITABLE)}, **more}


def call_lines(wait: PendingApproval, limit: int) -> list[str]:
    """The parameters and scopes of a Call that waits, a line each of at most ``limit`` characters of JSON."""
    call = wait.about.get(WITH)
    if wait.call is None or not isinstance(call, Mapping):
        return []
    shown = {k: v for k, v in call.items() if k not in META or k == SCOPES}
    rows = [f"{clean(k, 60)}  {clean(truncate(json.dumps(v, ensure_ascii=False), limit))}" for k, v in shown.items()]
    return rows or ["no parameters"]
