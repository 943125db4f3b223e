"""One plan over many isolated contexts: children, views, failures that stay where they are."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.workflow.foreign import Foreign, Handle, call, ended, of_type, own, pending, states
from tests.workflow.tools import Gate, echo

Json = Any


async def upper(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if call["value"] == "break":
        raise ApplicationError("it broke", type="broken", non_retryable=True)
    return str(call["value"]).upper()


TEMPLATE = (call("upper", "†state.big", value="†state.text"), call("echo", "†state.twice", value="†state.big"))


def texts(**more: str) -> list[Json]:
    return [own(i, text=t) for i, t in {"a": "one", "b": "two", **more}.items()]


async def children(handle: Handle) -> dict[str, str]:
    """The children of a run: id below it, and type."""
    found = await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    return {e.workflow_id.removeprefix(handle.id + "/"): e.workflow_type.name for e in found}


async def test_a_template_runs_in_a_child_for_each_instance(foreign: Foreign) -> None:
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=[{"type": "state", "lang": "en"}, *texts()]))
        result = await ended(handle)
    assert await children(handle) == {"a": "Instance", "b": "Instance"}
    assert (result["status"], result["state"], result["calls"], result["errors"]) == (
        "completed", {"lang": "en"}, [], [],
    )  # fmt: skip
    assert result["instances"]["b"] == {
        "status": "completed",
        "state": {"lang": "en", "text": "two", "big": "TWO", "twice": "TWO"},
        "calls": [
            {"id": "1:upper", "tool": "upper", "state": "completed", "outputPath": "†state.big"},
            {"id": "2:echo", "tool": "echo", "state": "completed", "outputPath": "†state.twice"},
        ],
        "errors": [],
    }
    assert [(m["_instance"], m["state"]) for m in result["context"]] == [
        ("a", {"big": "ONE"}), ("a", {"twice": "ONE"}), ("b", {"big": "TWO"}), ("b", {"twice": "TWO"}),
    ]  # fmt: skip
    child = foreign.client.get_workflow_handle(f"{handle.id}/a")
    alone = await child.result()
    assert {k: alone[k] for k in ("status", "state", "calls", "errors")} == result["instances"]["a"]


async def test_pausing_the_run_pauses_its_instances(foreign: Foreign) -> None:
    gate = Gate()
    calls = [call("wait", "†state.x", value="†state.text"), call("echo", "†state.y", value="†state.x")]
    async with foreign.serving(gate.activity(), echo):
        handle = await foreign.start(foreign.request(*calls, context=texts()))
        await gate.reached(2)
        await handle.signal("pause")
        child = foreign.client.get_workflow_handle(f"{handle.id}/a")
        from tests.support import assert_eventually

        async def paused() -> bool:
            return (await child.query("status"))["phase"] == "paused"

        await assert_eventually(paused)
        gate.opened.set()

        async def rests() -> bool:
            return states(await child.query("status"))["1:wait"] == "completed"

        await assert_eventually(rests)
        assert states(await child.query("status"))["2:echo"] in ("ready", "pending")
        await handle.signal("resume")
        assert (await ended(handle))["status"] == "completed"


async def test_cancelling_the_run_cancels_its_instances(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity()):
        handle = await foreign.start(foreign.request(call("wait", "†state.x"), context=texts()))
        await gate.reached(2)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await ended(handle)
        assert isinstance(failed.value.cause, CancelledError)
        child = await foreign.client.get_workflow_handle(f"{handle.id}/a").describe()
        assert child.status is not None
        assert child.status.name in ("CANCELED", "FAILED")


async def test_a_batch_that_is_too_large_for_one_result_says_where_the_rest_is(foreign: Foreign) -> None:
    context = [own(f"i{n}", text="x" * 20_000) for n in range(30)]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=context))
        result = await ended(handle)
    assert result["instances"]["i7"] == {"status": "completed"}
    assert "omitted" in result
    alone = await foreign.client.get_workflow_handle(f"{handle.id}/i7").result()
    assert alone["state"]["twice"] == "X" * 20_000
    assert (await handle.query("context", {"path": "†state.twice", "instance": "i7"}))["value"] == "X" * 20_000


async def test_a_template_is_approved_once_before_any_instance_starts(foreign: Foreign) -> None:
    request = foreign.request(*TEMPLATE, context=texts())
    request["context"][-1]["mode"] = "lazy"
    async with foreign.serving(upper, echo):
        handle = await foreign.start(request)
        (wait,) = await pending(handle, 1)
        assert wait["what"] == "plan"
        assert await children(handle) == {}
        await handle.execute_update("decide", {"decision": "approve"})
        result = await ended(handle)
    assert result["status"] == "completed"
    assert len(result["decisions"]) == 1
