"""A user's side of the wire: a plain Temporal client, plain activities on a queue of their own, JSON.

Law of this file: it imports Temporal and the standard library, and nothing of the engine.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

from tests.support import assert_eventually

Json = Any
Handle = WorkflowHandle[Any, Any]
Function = Callable[..., Awaitable[Json]]

RESULT_SECONDS = 180  # a run needs less than one; a laptop under full load may take many times that

_TEXT = {"type": "string"}


def tool(
    name: str, /, *, activity: str | None, options: dict[str, Any] | None = None, **properties: Json
) -> dict[str, Any]:
    """A tool message: a Tool that lets its Calls choose everything a Call may choose."""
    meta: dict[str, Any] = {"_tool": {"const": name}, "_outputPath": _TEXT, "_errorPath": _TEXT, "_outputMethod": _TEXT}
    meta |= {"_output": True, "_scopes": {"type": "array"}, "_reasoningForCall": _TEXT}
    if activity is not None:
        meta["_activity"] = {"const": activity}
    if options is not None:
        meta["_options"] = {"const": options}
    return {"type": "tool", "tool": {"type": "object", "properties": meta | properties}}


def call(tool: str, path: str | None = None, /, **more: Json) -> dict[str, Any]:
    """A Call: the Tool's name, where the result goes, parameters and meta-properties."""
    return {"_tool": tool, **({} if path is None else {"_outputPath": path}), **more}


def own(id_: str, **values: Json) -> dict[str, Json]:
    return {"type": "state", "state": values, "_instance": id_}


@dataclass(frozen=True)
class Foreign:
    """Somebody with a Temporal client. ``engine`` is the engine's task queue, ``queue`` that of the own tools."""

    client: Client
    engine: str
    queue: str

    def tool(self, name: str, /, *, options: dict[str, Any] | None = None, **properties: Json) -> dict[str, Any]:
        """A Tool behind which the own Activity of that name stands."""
        return tool(name, activity=name, options={"taskQueue": self.queue, **(options or {})}, **properties)

    def request(self, *calls: dict[str, Any], context: Sequence[Json] = (), **config: Json) -> dict[str, Any]:
        """A Request with these Calls; a Tool that the context does not define is one of our own."""
        defined = {m["tool"]["properties"]["_tool"]["const"] for m in context if "properties" in m.get("tool", {})}
        named = dict.fromkeys(c["_tool"] for c in calls)
        tools = [self.tool(name) for name in named if name not in defined]
        return {"config": config, "context": [*tools, *context, {"type": "plan", "plan": list(calls)}]}

    async def start(self, *request: Json, id: str | None = None, **more: Any) -> Handle:  # noqa: A002 - Temporal's word
        """A run of the request, by the name of the workflow."""
        id_ = id or f"{self.queue[:60]}/{uuid.uuid4().hex[:8]}"
        return await self.client.start_workflow("Plan", args=request, id=id_, task_queue=self.engine, **more)

    async def run(self, *calls: dict[str, Any], context: Sequence[Json] = (), **config: Json) -> dict[str, Any]:
        """The result of a plan of these Calls."""
        return await ended(await self.start(self.request(*calls, context=context, **config)))

    async def failure(self, *calls: dict[str, Any], context: Sequence[Json] = (), **config: Json) -> ApplicationError:
        """What a plan of these Calls fails with."""
        return await failure(await self.start(self.request(*calls, context=context, **config)))

    @asynccontextmanager
    async def serving(self, *functions: Function, **settings: Any) -> AsyncIterator[None]:
        """A worker of our own tools: each function is an Activity of its name."""
        served = [f if hasattr(f, "__temporal_activity_definition") else activity.defn(f) for f in functions]
        settings = {"max_heartbeat_throttle_interval": timedelta(milliseconds=100), **settings}
        async with Worker(self.client, task_queue=self.queue, activities=served, **settings):
            yield


async def ended(handle: Handle, *, within: float = RESULT_SECONDS) -> dict[str, Any]:
    """The result of a run; a run that does not end in time fails the test and says what its last events were."""
    try:
        found = await asyncio.wait_for(handle.result(), within)
    except TimeoutError:
        last = [EventType.Name(e.event_type).removeprefix("EVENT_TYPE_") for e in await events(handle)][-8:]
        await handle.terminate("the test is over")
        raise AssertionError(f"the run did not end within {within} s; its last events: {last}") from None
    assert isinstance(found, dict)
    return found


async def failure(handle: Handle, *, within: float = RESULT_SECONDS) -> ApplicationError:
    """What a run fails with; never worth another attempt."""
    with pytest.raises(WorkflowFailureError) as failed:
        await ended(handle, within=within)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError), repr(cause)
    assert cause.non_retryable
    return cause


async def result_of_failed(handle: Handle, *, within: float = RESULT_SECONDS) -> dict[str, Any]:
    """The result that the failure of a plan carries."""
    error = await failure(handle, within=within)
    assert error.type == "PlanFailed", repr(error)
    (result,) = error.details
    assert isinstance(result, dict)
    return result


async def came_to(handle: Handle, *, within: float = RESULT_SECONDS) -> dict[str, Any]:
    """The result of a run, be it that of its failure."""
    try:
        return await ended(handle, within=within)
    except WorkflowFailureError:
        return await result_of_failed(handle)


def states(result: dict[str, Any]) -> dict[str, str]:
    """The states of the Calls of a result or a status, by id."""
    return {c["id"]: c["state"] for c in result["calls"]}


async def status(handle: Handle) -> dict[str, Any]:
    found = await handle.query("status")
    assert isinstance(found, dict)
    return found


async def events(handle: Handle) -> list[HistoryEvent]:
    """All events of a run, its successors left out."""
    return list((await handle.fetch_history()).events)


async def run_chain(client: Client, id_: str) -> list[Handle]:
    """The runs of a workflow id, the latest first: each names the one that it continues or repeats.

    A list of the server's would be a moment behind.
    """
    chain: list[Handle] = []
    run_id = str((await client.get_workflow_handle(id_).describe()).run_id)
    while run_id:
        chain.append(client.get_workflow_handle(id_, run_id=run_id))
        start = await anext(aiter(chain[-1].fetch_history_events()))
        run_id = start.workflow_execution_started_event_attributes.continued_execution_run_id
    return chain


async def tree_of(client: Client, root: str) -> list[str]:
    """The workflow id of a run, and those of all runs below it, by the histories of their parents."""
    ids = {root: None}
    left = [root]
    while left:
        for run in await run_chain(client, left.pop()):
            started = await of_type(run, "CHILD_WORKFLOW_EXECUTION_STARTED")
            new = [e.workflow_execution.workflow_id for e in started if e.workflow_execution.workflow_id not in ids]
            ids |= dict.fromkeys(new)
            left += new
    return list(ids)


async def of_type(handle: Handle, name: str) -> list[Any]:
    """The attributes of all events of a type, such as ``ACTIVITY_TASK_SCHEDULED``."""
    wanted = EventType.Value(f"EVENT_TYPE_{name}")
    attributes = f"{name.lower()}_event_attributes"
    return [getattr(e, attributes) for e in await events(handle) if e.event_type == wanted]


async def phase(handle: Handle, wanted: str) -> dict[str, Json]:
    async def reached() -> dict[str, Json] | None:
        found = await status(handle)
        return found if found["phase"] == wanted else None

    found = await assert_eventually(reached, why=wanted)
    assert found is not None
    return found


async def state_of(handle: Handle, id_: str, wanted: str) -> dict[str, Json]:
    async def reached() -> dict[str, Json] | None:
        calls = (await status(handle))["calls"]  # none, where the run has not begun
        return next((c for c in calls if (c["id"], c["state"]) == (id_, wanted)), None)

    found = await assert_eventually(reached, why=f"{id_} {wanted}")
    assert found is not None
    return found


async def pending(handle: Handle, count: int = 1) -> list[dict[str, Json]]:
    """What waits for a decision, once so many do."""

    async def enough() -> list[dict[str, Json]]:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return listed if len(listed) == count else []

    return await assert_eventually(enough, why=f"{count} wait")


async def pending_anew(handle: Handle, before: dict[str, Json]) -> dict[str, Json]:
    """What waits about another subject than that one."""

    async def changed() -> dict[str, Json] | None:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return next((wait for wait in listed if wait["subject"] != before["subject"]), None)

    return dict(await assert_eventually(changed, why="another subject") or {})


async def decide(handle: Handle, decision: str = "approve", **more: Json) -> dict[str, Json]:
    answer = handle.execute_update("decide", {"decision": decision, **more})
    found: dict[str, Json] = await asyncio.wait_for(answer, RESULT_SECONDS)
    return found


async def note_of(handle: Handle, word: str) -> str:
    async def noted() -> str | None:
        return next((n for n in (await status(handle)).get("notes", []) if word in n), None)

    found = await assert_eventually(noted, why=f"a note with {word!r}")
    assert found is not None
    return str(found)


async def cancelled(handle: Handle) -> None:
    with pytest.raises(WorkflowFailureError) as error:
        await ended(handle)
    assert isinstance(error.value.cause, CancelledError)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
