"""What is said at a root reaches the runs below in the order in which it was said, however much comes at once."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from acts.cli.dev.temporal_server import DevServer
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, ended, note_of, of_type, tool
from tests.workflow.tools import echo

# While the worker is away, so that the root hears all of it in one task


@pytest.fixture
def own_engine(foreign: Foreign) -> Foreign:
    """The same user, with an engine of its own that a test may stop."""
    return Foreign(foreign.client, f"engine-{uuid.uuid4().hex[:8]}", foreign.queue)


async def heard(handle: Handle, count: int) -> list[str]:
    async def all_of_it() -> list[str]:
        found = [s.signal_name for s in await of_type(handle, "WORKFLOW_EXECUTION_SIGNALED")]
        return found if len(found) == count else []

    return await assert_eventually(all_of_it)


async def test_an_edit_below_and_the_approval_after_it_arrive_in_order(
    server: DevServer, own_engine: Foreign, tmp_path: Path
) -> None:
    """The approval is of what was there before the edit, and so approves nothing; were it first, the old would run."""
    user = own_engine
    plan = {"type": "plan", "run": True, "plan": [call("echo", "†state.output", value="unedited")]}
    definition = {"config": {"approve": {"calls": True}}, "context": [user.tool("echo"), plan]}
    (tmp_path / "asks.json").write_text(json.dumps(definition), "utf-8")
    context = [tool("ask", activity="", _delegate={"const": "asks"})]
    below = [f"{n}:ask/plan" for n in range(1, 7)]
    async with user.serving(echo):
        async with engine_on(server, user.engine, tmp_path):
            handle = await user.start(user.request(*(call("ask", f"†state.x{n}") for n in range(6)), context=context))

            async def all_wait() -> bool:
                return len(await handle.query("pending")) == len(below)

            await assert_eventually(all_wait)
        for name in below:
            aim = {"workflowId": f"{handle.id}/{name}", "call": "1:echo"}
            await handle.signal("edit", {**aim, "with": call("echo", "†state.output", value="edited")})
            await handle.signal("approve", aim)
        async with engine_on(server, user.engine, tmp_path):
            for name in below:
                child = user.client.get_workflow_handle(f"{handle.id}/{name}")
                assert await heard(child, 2) == ["decision", "decision"]
                signals = await of_type(child, "WORKFLOW_EXECUTION_SIGNALED")
                records = [json.loads(s.input.payloads[0].data) for s in signals]
                assert [record["decision"]["decision"] for record in records] == ["edit", "approve"]
            await note_of(handle, "version 1")

            async def all_are_edited() -> bool:
                return [wait["version"] for wait in await handle.query("pending")] == [2] * len(below)

            await assert_eventually(all_are_edited)
            for name in below:
                aim = {"workflowId": f"{handle.id}/{name}", "call": "1:echo", "version": 2}
                await handle.execute_update("decide", {"decision": "approve", **aim})
            result = await ended(handle)
    assert set(result["state"].values()) == {"edited"}
