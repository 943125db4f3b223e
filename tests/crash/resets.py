"""Resets of runs, as the Web UI and ``temporal workflow reset`` make them, and the ledger that they must not upset."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from tests.crash.test_kill import World
from tests.workflow.foreign import Handle

Json = Any


def type_of(event: Json) -> str:
    return EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")


async def reset_points(handle: Handle) -> list[int]:
    """Where a run can be reset: the ends of its workflow tasks."""
    return [e.event_id async for e in handle.fetch_history_events() if type_of(e) == "WORKFLOW_TASK_COMPLETED"]


async def last_point_before(handle: Handle, event: str) -> int:
    """The end of the last task before the first event of a type: what that task commanded is not done after a reset."""
    point = 0
    async for e in handle.fetch_history_events():
        if type_of(e) == event:
            return point
        if type_of(e) == "WORKFLOW_TASK_COMPLETED":
            point = e.event_id
    raise AssertionError(f"the run has no {event}")


async def reset(client: Client, id_: str, point: int, run_id: str | None = None) -> Handle:
    """The new run that goes on from the task that ended at ``point``."""
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace, reason="test", workflow_task_finish_event_id=point, request_id=str(uuid.uuid4()),
        workflow_execution=WorkflowExecution(workflow_id=id_, run_id=run_id or ""),
    )  # fmt: skip
    answer = await client.workflow_service.reset_workflow_execution(request)
    return client.get_workflow_handle(id_, run_id=answer.run_id)


async def runs_of(client: Client, prefix: str) -> AsyncIterator[Any]:
    async for run in client.list_workflows(f"WorkflowId STARTS_WITH '{prefix}'"):
        yield run


def logical(run: str, call: str) -> tuple[str, str]:
    """A Call whatever id its run got: where an id is in use, a child's has the start of a run id behind it."""
    return re.sub(r"~[0-9a-f]{8}(?=/|$)", "", run), call


def keys_of(world: World, prefix: str) -> dict[tuple[str, str], set[str]]:
    """The ``_id``s under which each logical Call of these runs was begun."""
    out: dict[tuple[str, str], set[str]] = {}
    for run, call, id_ in world.rows("SELECT DISTINCT run, call, id FROM begun WHERE run LIKE ?", f"{prefix}%"):
        out.setdefault(logical(run, call), set()).add(id_)
    return out


def each_call_has_one_key_and_one_effect(world: World, prefix: str, count: int) -> None:
    """``count`` logical Calls, each with one ``_id``; no ``_id`` is of two of them; each has its one effect."""
    keys = keys_of(world, prefix)
    assert len(keys) == count, sorted(keys)
    assert {call: len(ids) for call, ids in keys.items()} == dict.fromkeys(keys, 1), "a call was begun under two keys"
    ids = [id_ for found in keys.values() for id_ in found]
    assert len(set(ids)) == count, "two calls have one key"
    done = [id_ for (id_,) in world.rows("SELECT id FROM done WHERE run LIKE ?", f"{prefix}%")]
    assert sorted(done) == sorted(ids), "an effect is missing, or was applied twice"
