"""Fire-and-forget: a call without an output path is a run of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import WorkflowExecutionStatus

from tests.workflow.foreign import (
    Foreign,
    call,
    ended,
    of_type,
    states,
)
from tests.workflow.tools import Gate, echo

Json = Any


# -- fire-and-forget -----------------------------------------------------------------


async def test_a_call_without_an_output_path_is_a_run_of_its_own_that_outlives_the_plan(foreign: Foreign) -> None:
    letter = Gate()
    async with foreign.serving(letter.activity("post"), echo):
        handle = await foreign.start(
            foreign.request(call("post", to="†state.name"), call("echo", "†state.done", value=1), context=[
                {"type": "state", "name": "Ada"}
            ])
        )  # fmt: skip
        result = await ended(handle)
        assert states(result) == {"1:post": "detached", "2:echo": "completed"}
        assert result["state"] == {"name": "Ada", "done": 1}
        await letter.reached()
        child = foreign.client.get_workflow_handle(f"{handle.id}/1:post")
        found = await child.describe()
        assert (found.workflow_type, found.status) == ("Background", WorkflowExecutionStatus.RUNNING)
        assert found.parent_id == handle.id
        letter.opened.set()
        await asyncio.wait_for(child.result(), 180)
    assert letter.arrived[0]["to"] == "Ada"
    assert letter.arrived[0]["_id"]
    (scheduled,) = await of_type(child, "ACTIVITY_TASK_SCHEDULED")
    assert scheduled.activity_type.name == "post"
    assert scheduled.task_queue.name == foreign.queue
    (initiated,) = await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    assert initiated.workflow_type.name == "Background"


async def test_fire_and_forget_sees_the_scopes_of_its_call(foreign: Foreign) -> None:
    seen: list[Json] = []

    async def look(call: Json, tool: Json, context: list[Json]) -> None:
        seen.extend(context)

    async with foreign.serving(look):
        handle = await foreign.start(
            foreign.request(call("look", _scopes=["state"]), context=[{"type": "state", "a": 1}])
        )
        await ended(handle)
        await asyncio.wait_for(foreign.client.get_workflow_handle(f"{handle.id}/1:look").result(), 180)
    assert seen == [{"type": "state", "state": {"a": 1}}]


async def test_a_child_id_in_use_gets_the_start_of_the_run_id(foreign: Foreign) -> None:
    letter = Gate()
    async with foreign.serving(letter.activity("post")):
        first = await foreign.start(foreign.request(call("post")), id=f"{foreign.queue}-again")
        await ended(first)
        second = await foreign.start(foreign.request(call("post")), id=first.id)
        await ended(second)
        await letter.reached(2)
        letter.opened.set()
        run = second.first_execution_run_id
        assert run is not None
        for id_ in (f"{first.id}/1:post", f"{first.id}/1:post~{run[:8]}"):
            await asyncio.wait_for(foreign.client.get_workflow_handle(id_).result(), 180)
    assert letter.arrived[0]["_id"] != letter.arrived[1]["_id"]
