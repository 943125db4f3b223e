"""One plan over many isolated contexts: children, views, failures that stay where they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    events,
    of_type,
    states,
)
from tests.workflow.tools import Gate, echo

Json = Any


def own(id_: str, **state: Json) -> dict[str, Json]:
    return {"type": "state", "state": state, "_instance": id_}


async def upper(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if call["value"] == "break":
        raise ApplicationError("it broke", type="broken", non_retryable=True)
    return str(call["value"]).upper()


async def see(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    """What an Activity is shown."""
    return context


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


async def test_nothing_of_another_instance_is_in_a_childs_history(foreign: Foreign) -> None:
    context = [own(i, text=f"secret of {i}", more={"deep": [f"treasure {i}"]}) for i in ("north", "south")]
    calls = [call("see", "†state.seen", _scopes=["state"]), call("echo", "†state.x", value="†state.text")]
    async with foreign.serving(see, echo):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await ended(handle)
    assert result["instances"]["north"]["state"]["seen"] == [
        {"type": "state", "state": {"text": "secret of north", "more": {"deep": ["treasure north"]}}}
    ]
    for mine, other in (("north", "south"), ("south", "north")):
        held = "".join(e.SerializeToString().decode("utf-8", "replace") for e in await events(
            foreign.client.get_workflow_handle(f"{handle.id}/{mine}")))  # fmt: skip
        assert f"secret of {mine}" in held
        assert f"secret of {other}" not in held
        assert f"treasure {other}" not in held


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


# -- agents ------------------------------------------------------------------------


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


async def test_an_agent_plans_a_whole_batch_in_one_request(foreign: Foreign, agents: Agents) -> None:
    comments = [own(f"c{n}", text=f"comment {n}") for n in range(30)]
    plan = {"calls": list(TEMPLATE), "output": {"done": True}}
    context = [foreign.tool("upper"), foreign.tool("echo"), *comments]
    async with foreign.serving(upper, echo):
        handle = await agents.start(plan, context=context)
        result = await ended(handle)
    assert (result["output"], result["ticks"], result["usage"]["requests"]) == ({"done": True}, 1, 1)
    assert result["instances"]["c12"]["state"] == {"text": "comment 12", "big": "COMMENT 12", "twice": "COMMENT 12"}
    assert len(result["calls"]) == 60
    assert json.dumps(result["context"]).count('"_instance"') == 60


# -- decisions ---------------------------------------------------------------------


async def pending(handle: Handle, count: int) -> list[Json]:
    async def waits() -> Json:
        found = await handle.query("pending")
        return found if len(found) == count else None

    found: list[Json] = await assert_eventually(waits, why=f"{count} decisions wait")
    return found


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


async def test_calls_inside_are_confirmed_one_by_one_at_the_root(foreign: Foreign) -> None:
    calls = [call("upper", "†state.big", value="†state.text", _instance=i) for i in ("a", "b", "c")]
    async with foreign.serving(upper):
        handle = await foreign.start(foreign.request(*calls, context=texts(c="three"), approve={"calls": True}))
        waits = await pending(handle, 3)
        assert {(w["instance"], w["call"]) for w in waits} == {("a", "1:upper"), ("b", "2:upper"), ("c", "3:upper")}
        told = await handle.query("status")
        assert (told["phase"], told["waits"]) == ("awaiting", 3)
        await handle.execute_update("decide", {"decision": "approve", "instance": "a"})
        await handle.signal("reject", {"instance": "b", "reason": "too loud", "by": "Ada"})
        edited = call("upper", "†state.big", value="edited", _instance="c")
        await handle.execute_update("decide", {"decision": "edit", "instance": "c", "call": "3:upper", "with": edited})

        async def version_two() -> Json:
            (wait,) = await handle.query("pending")
            return wait["version"] == 2

        await assert_eventually(version_two)
        await handle.execute_update("decide", {"decision": "approve", "instance": "c", "version": 2})
        result = await ended(handle)
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "completed", "b": "rejected", "c": "completed",
    }  # fmt: skip
    assert result["instances"]["c"]["state"]["big"] == "EDITED"
    assert [(d["instance"], d["decision"]) for d in result["decisions"] if d["instance"] == "b"] == [("b", "reject")]
    assert result["status"] == "partial"
