"""What a Call that waits would be called with: shown before anybody decides about it.

Laws of this file:
- it is read from the page of the run that waits (Temporal's current details). There the parameters stand as the run
  has resolved them. The queries could tell something else: ``plan`` has the references, and ``context`` what they
  yield now, which a Call later in the plan may have written;
- what cannot be told for certain is not told: a name that stands twice on a page is nobody's;
- a decision does not wait for it: where nobody answers, the wait is shown without.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.decisions import Wait
from acts.errors import shorten
from acts.markdown import plain
from acts.tools import META
from acts.wire import INSTANCE
from cli import server
from cli.output import clean
from cli.questions import details_of, status_of

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

Known = dict[tuple[Any, ...], dict[str, Any]]

# The keys of a wait's ``about`` that are ours; the query has none of these names
WITH: Final = "with"
EDITABLE: Final = "editable"
SCOPES: Final = "_scopes"
_CALL: Final = re.compile(
    r"^(?P<name>[^\n]*) would be called with\n\n```json\n(?P<call>.*?)\n```$", re.MULTILINE | re.DOTALL
)
_AT_ONCE: Final = 16  # each page is a question to a worker, which has other work too


async def with_calls(client: Client, waits: Sequence[Wait], known: Known | None = None) -> list[Wait]:
    """The waits, each of a Call with ``about["with"]``: the Call as it would be made, where its run tells it.

    ``about["editable"]`` is False where no edit is taken. ``known`` keeps what was told, for who asks again and again.
    """
    known = {} if known is None else known
    new = [w for w in waits if w.call is not None and _key(w) not in known]
    runs = dict.fromkeys(w.workflow_id for w in new)
    inside = {w.workflow_id for w in new if w.instance is not None}
    some = asyncio.Semaphore(_AT_ONCE)

    async def ask_for(run: str) -> tuple[str, bool]:
        async with some:
            handle = client.get_workflow_handle(run)
            return await details_of(handle) or "", run in inside and await _carries_several(handle)

    told = dict(zip(runs, await asyncio.gather(*map(ask_for, runs)), strict=True))
    found = {_key(w): _more(w, *told[w.workflow_id]) for w in new}
    known.update({key: more for key, more in found.items() if WITH in more})
    return [replace(w, about=_about(w, {**found, **known}.get(_key(w), {}))) for w in waits]


def _key(wait: Wait) -> tuple[Any, ...]:
    return wait.workflow_id, wait.call, wait.instance, wait.version


def _more(wait: Wait, page: str, several: bool) -> dict[str, Any]:  # noqa: FBT001 - what a run told
    call = call_on(page, wait)
    return {**({} if call is None else {WITH: call}), **({EDITABLE: False} if several else {})}


def _about(wait: Wait, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in wait.about.items() if k not in (WITH, EDITABLE)}, **more}


async def _carries_several(handle: WorkflowHandle[Any, Any]) -> bool:
    """True for a child that walks several instances: of these, no Call can be edited."""
    from temporalio.service import RPCError

    try:
        found = await handle.describe(rpc_timeout=server.RPC)
    except RPCError:  # it has just ended
        return False
    status = await status_of(handle) if found.workflow_type == INSTANCE else None
    return len((status or {}).get("instances") or ()) > 1


def call_on(page: str, wait: Wait) -> dict[str, Any] | None:
    """The Call of a wait on the page of its run, as ``acts.report`` writes it; None where it does not stand there."""
    found: dict[str, list[str]] = {}
    for match in _CALL.finditer(page):
        found.setdefault(match["name"], []).append(match["call"])
    name = plain(wait.call)
    # A run below an instance does not know of it: there the Call stands without
    named = found.get(f"{name} [{plain(wait.instance)}]", found.get(name, [])) if wait.instance else found.get(name, [])
    if len(named) != 1:
        return None
    call = json.loads(named[0])
    return call if isinstance(call, dict) else None


def call_lines(wait: Wait, limit: int) -> list[str]:
    """The parameters and scopes of a Call that waits, a line each of at most ``limit`` characters of JSON."""
    call = wait.about.get(WITH)
    if wait.call is None or not isinstance(call, Mapping):
        return []
    shown = {k: v for k, v in call.items() if k not in META or k == SCOPES}
    rows = [f"{clean(k, 60)}  {clean(shorten(json.dumps(v, ensure_ascii=False), limit))}" for k, v in shown.items()]
    return rows or ["no parameters"]
