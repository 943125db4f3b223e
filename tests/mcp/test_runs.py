"""Plans with the tools of an MCP server, through a real server and worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from tests.mcp.conftest import Engine
from tests.support import assert_eventually
from tests.workflow.foreign import call, cancelled, ended, failure, phase, result_of_failed


async def test_results_are_values_that_other_calls_use(engine: Engine) -> None:
    result = await engine.run(
        call("h.add", "†state.first", a=1, b=2),
        call("h.add", "†state.second", a="†state.first.sum", b=10),
        call("h.image", "†state.image"),
        call("h.text", "†state.text", n=1),
    )
    assert result["status"] == "completed"
    state = result["state"]
    assert state["second"] == {"sum": 13}
    assert state["image"] == [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    assert state["text"] == "done text"
    sent = [c for c in engine.hostile.calls() if c["tool"] == "add"]
    ids = {c["meta"]["_id"] for c in sent}
    assert len(ids) == 2
    assert all(c["meta"]["acts/id"] in ids and set(c["arguments"]) == {"a", "b"} for c in sent)


async def test_errors_are_data(engine: Engine) -> None:
    result = await engine.run(
        call("h.fail", "†state.a", _errorPath="†state.error"),
        call("h.text", "†state.b", _when='†state.error.code == "McpToolError"', n=1),
        call("h.oversized", "†state.c || †state.tooLarge.error"),
        # one after another: what this server writes by itself would otherwise fall into the middle of the 5 MB
        call("h.notJson", "†state.d || †state.noJson.error", _when="†state.tooLarge"),
        call("h.refuse", "†state.e || †state.refused.error", _when="†state.noJson"),
    )
    state = result["state"]
    assert state["error"] == {"code": "McpToolError", "message": "the disk is full", "details": "the disk is full"}
    assert state["b"] == "done text"
    codes = [state[key]["error"]["code"] for key in ("tooLarge", "noJson", "refused")]
    assert codes == ["PayloadTooLarge", "NotJson", "McpRefused"]


@pytest.mark.parametrize(
    ("tool", "reason"),
    [("h.net", "leads out of the schema"), ("h.nope", "has no such tool"), ("broken.x", "No such file")],
)
async def test_a_tool_that_is_not_there_is_named_with_the_reason(
    engine: Engine, tool: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts.activities.mcp.servers.LOOKUP_SECONDS", 0.5)
    error = await failure(await engine.start(call(tool, "†state.x")))
    assert error.type == "InvalidRequest"
    assert error.details[0][0]["code"] == "toolUnavailable"
    assert reason in error.message


async def test_a_crash_is_retried_where_that_is_safe_and_only_there(engine: Engine) -> None:
    lives = engine.hostile.lives()
    assert (await engine.run(call("h.crashNext", "†state.x")))["state"]["x"] == "done crashNext"
    assert engine.hostile.lives() == lives + 1
    result = await result_of_failed(await engine.start(call("h.crash", "†state.x")))
    assert [e["code"] for e in result["errors"]] == ["McpInterrupted"]
    assert len([c for c in engine.hostile.calls() if c["tool"] == "crash"]) == 1


async def test_a_destructive_tool_asks_a_person_who_sees_the_hints(engine: Engine) -> None:
    handle = await engine.start(call("h.wipe", "†state.x"))
    await phase(handle, "awaiting")
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert "`1:h.wipe` (`destructive`) of" in metadata.current_details
    assert (await handle.query("pending"))[0]["hints"] == ["destructive"]
    assert not [c for c in engine.hostile.calls() if c["tool"] == "wipe"]
    await handle.execute_update("decide", {"decision": "approve"})
    assert (await ended(handle))["state"]["x"] == "done wipe"


async def _exists(file: Path) -> bool:
    return file.exists()


@pytest.mark.long
async def test_progress_is_shown_and_a_cancelled_run_cancels_the_tool(engine: Engine) -> None:
    handle = await engine.start(call("h.slow", "†state.x"), call("h.waits", "†state.y"))

    async def progress() -> list[Any]:
        description = await handle.describe()
        details = [p.heartbeat_details.payloads for p in description.raw_description.pending_activities]
        return [d for d in details if d and b"step 3" in d[0].data]

    await assert_eventually(progress)
    await handle.cancel()
    await assert_eventually(lambda: _exists(engine.hostile.folder / "cancelled"))
    await cancelled(handle)
