"""Questions to a run, as queries. No answer is no failure here: the caller says what it means."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.values import Json
from acts.language.wire import CONTEXT, STATUS
from acts.tree.batches import opened
from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

QUERY: Final = timedelta(seconds=5)
# Messages of one page: a run that is over replays for each, and a page ends at 1.5 MB anyway
PAGE: Final = 20_000
# The SDK's own query, by which the Web UI asks for the page of a run


async def ask(handle: WorkflowHandle[Any, Any], query: str, *given: Any, within: timedelta = QUERY) -> Any:
    """The answer of a query, or None when nobody gives one in time."""
    from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
    from temporalio.service import RPCError

    try:
        # bounded by us as well: the SDK tries again after a timeout of its own
        asked = handle.query(query, args=list(given), rpc_timeout=within)
        return await asyncio.wait_for(asked, within.total_seconds())
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError, TimeoutError):
        return None


async def status_of(handle: WorkflowHandle[Any, Any], within: timedelta = QUERY) -> dict[str, Any] | None:
    """The answer of the query ``status``, or None when there is none."""
    found = await ask(handle, STATUS, within=within)
    return found if isinstance(found, dict) else None


async def messages_of(handle: WorkflowHandle[Any, Any], within: timedelta = QUERY) -> list[Any] | None:
    """The whole context of a run, page by page; None when nobody tells."""
    out: list[Any] = []
    while True:
        page = await ask(handle, CONTEXT, {"offset": len(out), "limit": PAGE}, within=within)
        if not isinstance(page, dict) or not isinstance(page.get("messages"), list):
            return None
        out += page["messages"]
        if not page["messages"] or len(out) >= int(page.get("total", 0)):
            return out


async def request_of(client: Client, found: WorkflowExecutionDescription) -> Json:
    """The Request that a run was started with, or None; what is handed to a run below holds one.

    It stands in the first event of the first run; later runs (continue-as-new) name it.
    """
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    first = await _first_event(handle)
    if first is not None and first.first_execution_run_id not in ("", found.run_id):
        first = await _first_event(client.get_workflow_handle(found.id, run_id=first.first_execution_run_id))
    if first is None or not first.input.payloads:
        return None
    values = await client.data_converter.decode(first.input.payloads[:1])
    return _request_in(values[0])


def _request_in(given: Json) -> Json:
    """The Request of what a run was given: that itself, or what a run above handed over."""
    if not isinstance(given, dict):
        return given
    if {"shared", "instances"} <= given.keys():
        try:
            return opened(given)["request"]
        except ValueError:
            return given
    return given.get("request", given)


async def _first_event(handle: WorkflowHandle[Any, Any]) -> Any:
    async for event in handle.fetch_history_events(page_size=1, rpc_timeout=server.RPC):
        return event.workflow_execution_started_event_attributes
    return None
