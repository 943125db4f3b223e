"""``kill -9`` of the worker while a run undoes what it did, over continue-as-new: each Call once, in reverse order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.test_kill import OPTIONS, killed, more_has_begun, steps, world_in
from tests.workflow.foreign import call, came_to, tool

Json = Any
CALLS = 25
MANY = [100, 101, 102]


@pytest.mark.long
async def test_a_run_that_undoes_what_it_did_survives_kill_9(tmp_path: Path) -> None:
    undo = {"_tool": "take_back", "value": "†result"}
    tools = [
        tool("add_one", activity="add_one", options=OPTIONS, _undo=undo),
        tool("take_back", activity="add_one", options=OPTIONS),
        tool("decline", activity="decline", options=OPTIONS),
        {"type": "input", "zero": 0},
    ]
    each = call("add_one", "†state.many", _each=MANY, value="†item", after=f"†state.n{CALLS}")
    plan = [*steps(CALLS), each, call("decline", "†state.money", after="†state.many")]
    with world_in(tmp_path) as world:
        world.start("engine")
        client = await Client.connect(world.server.address)
        request = {"config": {"onFailure": "undo"}, "context": [*tools, {"type": "plan", "plan": plan}]}
        handle = await client.start_workflow("Plan", request, id=world.queue, task_queue=world.queue)
        for _ in range(2):  # while it works, most likely
            before = world.begun()
            client = await killed(world, "engine")
            await more_has_begun(world, before)
        while not world.rows("SELECT 1 FROM begun WHERE call = '1:take_back'"):
            await more_has_begun(world, world.begun())
        for _ in range(3):
            before = world.begun()
            client = await killed(world, "engine")
            await more_has_begun(world, before)
        result = await came_to(client.get_workflow_handle(handle.id))
        assert (result["status"], result["undone"]["status"]) == ("failed", "completed")
        assert result["undone"]["calls"] == CALLS + len(MANY)
        done = world.rows("SELECT result FROM done WHERE call LIKE '%take_back' ORDER BY rowid")
        undone = [*(value + 1 for value in reversed(MANY)), *range(CALLS, 0, -1)]
        assert [number for (number,) in done] == [value + 1 for value in undone]
