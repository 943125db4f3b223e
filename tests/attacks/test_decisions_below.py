"""Decisions about what waits inside delegates and instances, sent to the root, to the room, or to nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from tests.attacks.tree import Saved, delegating, own
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, ended, note_of, states
from tests.workflow.tools import echo

Json = Any
PAYS = {"approve": {"calls": ["pay"]}}


async def pay(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return call.get("value", "paid")


async def waiting(handle: Handle, count: int) -> list[dict[str, Json]]:
    async def found() -> list[dict[str, Json]]:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return listed if len(listed) == count else []

    return await assert_eventually(found)


async def decide(handle: Handle, decision: str, **more: Json) -> None:
    await asyncio.wait_for(handle.execute_update("decide", {"decision": decision, **more}), 60)


async def refused(handle: Handle, decision: str, **more: Json) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await decide(handle, decision, **more)
    return str(error.value.cause)


@pytest.mark.parametrize("per_child", [1, 3])
async def test_of_several_instances_that_wait_each_is_decided_by_its_name(foreign: Foreign, per_child: int) -> None:
    context = [own(i, text=i) for i in ("a", "b", "c")]
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("pay", "†state.x", value="†state.text"), context=context, **PAYS)
        )
        waits = await waiting(handle, 3)
        assert sorted(w["instance"] for w in waits) == ["a", "b", "c"]
        assert "3 waits" in await refused(handle, "approve")
        assert "3 waits" in await refused(handle, "approve", call="1:pay")
        assert "nothing that waits" in await refused(handle, "approve", instance="d")
        assert "nothing that waits" in await refused(handle, "approve", instance="a", call="2:pay")
        assert "nothing that waits" in await refused(handle, "approve", workflowId=handle.id, instance="a")
        assert "version" in await refused(handle, "approve", instance="a", version=9)
        await handle.signal("approve", {})
        await note_of(handle, "3 waits")
        assert len(await waiting(handle, 3)) == 3
        await decide(handle, "approve", instance="b")
        await decide(handle, "reject", instance="a", call="1:pay", reason="no")
        (last,) = await waiting(handle, 1)
        await decide(handle, "approve", workflowId=last["workflowId"])
        result = await ended(handle)
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "rejected", "b": "completed", "c": "completed",
    }  # fmt: skip
    assert result["instances"]["c"]["state"]["x"] == "c"
    assert "x" not in result["instances"]["a"]["state"]


async def test_a_child_of_several_instances_takes_no_edits(foreign: Foreign) -> None:
    context = [foreign.tool("echo"), *(own(i, text=i) for i in ("a", "b"))]
    async with foreign.serving(pay, echo):
        handle = await foreign.start(
            foreign.request(call("pay", "†state.x", value="†state.text"), context=context, instancesPerChild=2, **PAYS)
        )
        await waiting(handle, 2)
        changed = call("pay", "†state.x", value="changed")
        assert "instancesPerChild" in await refused(handle, "edit", instance="a", call="1:pay", **{"with": changed})
        await handle.cancel()


async def test_a_call_of_one_instance_is_edited_at_the_root(foreign: Foreign) -> None:
    context = [foreign.tool("echo"), *(own(i, text=i) for i in ("a", "b"))]
    async with foreign.serving(pay, echo):
        handle = await foreign.start(
            foreign.request(call("pay", "†state.x", value="†state.text"), context=context, **PAYS)
        )
        await waiting(handle, 2)
        changed = call("pay", "†state.x", value="changed")
        await decide(handle, "edit", instance="a", call="1:pay", **{"with": changed})

        async def edited() -> bool:
            return any(w["instance"] == "a" and w["version"] == 2 for w in await handle.query("pending"))

        await assert_eventually(edited)
        await decide(handle, "approve", instance="a", call="1:pay")
        await decide(handle, "approve", instance="b")
        result = await ended(handle)
    assert {i: r["state"]["x"] for i, r in result["instances"].items()} == {"a": "changed", "b": "b"}


async def test_what_an_edited_call_of_one_instance_wrote_stands_where_the_edit_says(foreign: Foreign) -> None:
    """The root knows the plan as it was before: what the child says has to hold without it."""
    context = [foreign.tool("echo"), *(own(i, text=i) for i in ("a", "b"))]
    plan = [call("pay", "†state.x", value="†state.text"), call("echo", "†state.y", value="†state.x || †state.text")]
    async with foreign.serving(pay, echo):
        handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
        await waiting(handle, 2)
        changed = call("echo", "†state.log", value="not paid", _outputMethod="push")
        await decide(handle, "edit", instance="a", call="1:pay", **{"with": changed})

        async def edited() -> bool:
            return any(w["instance"] == "a" and w["version"] == 2 for w in await handle.query("pending"))

        await assert_eventually(edited)
        await decide(handle, "approve", instance="a")
        await decide(handle, "approve", instance="b")
        result = await ended(handle)
    a, b = result["instances"]["a"], result["instances"]["b"]
    assert a["state"] == {"text": "a", "log": ["not paid"], "y": "a"}
    assert [(c["id"], c["outputPath"]) for c in a["calls"]] == [("1:echo", "†state.log"), ("2:echo", "†state.y")]
    assert b["state"] == {"text": "b", "x": "b", "y": "b"}
    told = [m for m in result["context"] if m["_instance"] == "a"]
    assert [(m["_call"]["_tool"], m["_outputPath"]) for m in told] == [("echo", "†state.log"), ("echo", "†state.y")]


@pytest.mark.parametrize("below", [
    "instance", "room",
])  # fmt: skip
async def test_an_invalid_edit_of_what_waits_below_is_refused(foreign: Foreign, saved: Saved, below: str) -> None:
    handle = await _waits_below(foreign, saved, below)
    assert "unknownTool" in await refused(handle, "edit", call="1:pay", **{"with": call("evil", "†state.x")})


@pytest.mark.parametrize("below", ["instance", "room"])
async def test_an_invalid_edit_of_what_waits_below_changes_nothing(foreign: Foreign, saved: Saved, below: str) -> None:
    async with foreign.serving(pay):
        handle = await _waits_below(foreign, saved, below)
        (wait,) = await handle.query("pending")
        await handle.signal("edit", {"call": "1:pay", "with": call("evil", "†state.x")})
        await note_of(handle, "unknownTool")
        (after,) = await waiting(handle, 1)
        assert after == wait
        await decide(handle, "approve")
        assert (await ended(handle))["status"] == "completed"


async def _waits_below(foreign: Foreign, saved: Saved, below: str) -> Handle:
    name = saved.walked(call("pay", "†state.output"), context=[foreign.tool("pay")])
    if below == "instance":
        request = foreign.request(call("pay", "†state.x"), context=[own("a", text="a")], **PAYS)
    else:
        request = foreign.request(call("send", "†state.x"), context=[delegating("send", name)], **PAYS)
    handle = await foreign.start(request)
    await waiting(handle, 1)
    return handle


async def test_what_waits_three_rooms_deep_is_decided_at_the_root(foreign: Foreign, saved: Saved) -> None:
    third = saved.walked(call("pay", "†state.output"), context=[foreign.tool("pay")])
    second = saved.walked(call("send", "†state.output"), context=[delegating("send", third)])
    first = saved.walked(call("send", "†state.output"), context=[delegating("send", second)])
    calls = [call("send", f"†state.r{n}", n=n) for n in range(2)]
    async with foreign.serving(pay):
        handle = await foreign.start(foreign.request(*calls, context=[delegating("send", first)], **PAYS))
        waits = await waiting(handle, 2)
        ids = sorted(w["workflowId"] for w in waits)
        assert ids == [f"{handle.id}/{n}:send/plan/1:send/plan/1:send/plan" for n in (1, 2)]
        assert "2 waits" in await refused(handle, "approve", call="1:pay")
        assert "nothing that waits" in await refused(handle, "approve", workflowId=f"{handle.id}/1:send")
        await decide(handle, "reject", workflowId=ids[0], reason="not this one")
        await decide(handle, "approve", workflowId=ids[1])
        result = await came_to(handle)
    assert result["state"] == {"r1": "paid"}
    assert states(result) == {"1:send": "failed", "2:send": "completed"}
    assert [d["decision"] for d in result["decisions"]] == ["approve", "reject"] or [
        d["decision"] for d in result["decisions"]
    ] == ["reject", "approve"]


async def test_what_waits_in_a_room_of_an_instance_is_decided_by_the_instance(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("pay", "†state.output", value="†input.v"), context=[foreign.tool("pay")])
    context = [delegating("send", name), own("a", text="a"), own("b", text="b")]
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.x", v="†state.text"), context=context, **PAYS)
        )
        waits = await waiting(handle, 2)
        assert sorted(w["workflowId"] for w in waits) == [f"{handle.id}/{i}/1:send/plan" for i in ("a", "b")]
        for w in waits:
            await decide(handle, "approve", workflowId=w["workflowId"], call="1:pay")
        result = await ended(handle)
    assert {i: r["state"]["x"] for i, r in result["instances"].items()} == {"a": "a", "b": "b"}


async def test_instance_narrows_to_what_waits_in_the_rooms_of_that_instance(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("pay", "†state.output", value="†input.v"), context=[foreign.tool("pay")])
    context = [delegating("send", name), own("a", text="a"), own("b", text="b")]
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.x", v="†state.text"), context=context, **PAYS)
        )
        await waiting(handle, 2)
        await decide(handle, "approve", instance="a")
        await decide(handle, "approve", instance="b")
        result = await ended(handle)
    assert result["status"] == "completed"


async def test_a_planner_in_a_room_is_decided_at_the_root_and_in_the_room(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved({"context": [{"role": "user", "content": "Inner."}, foreign.tool("pay"),
                              {"type": "plan", "plan": [], "mode": "lazy"}]})  # fmt: skip
    plan = {"calls": [call("pay", "†state.p", value="planned")], "output": "†state.p"}
    model = agents.script(({"tick": 1, "says": ["Inner."]}, plan), ({"tick": 2, "says": ["too dear"]}, plan))
    request = foreign.request(call("send", "†state.r"), context=[delegating("send", name)], model=model)
    async with foreign.serving(pay):
        handle = await foreign.start(request)
        (wait,) = await waiting(handle, 1)
        assert (wait["what"], wait["workflowId"]) == ("plan", f"{handle.id}/1:send")
        await decide(handle, "reject", reason="too dear")

        async def again() -> bool:
            return any(w["version"] > wait["version"] for w in await handle.query("pending"))

        await assert_eventually(again)
        room = foreign.client.get_workflow_handle(f"{handle.id}/1:send")
        await decide(room, "edit", plan=[call("pay", "†state.p", value="edited")])
        await decide(room, "approve")
        result = await ended(handle)
    assert result["state"] == {"r": "edited"}


async def test_signals_of_the_engine_that_a_stranger_sends_do_no_harm(foreign: Foreign) -> None:
    given = [None, 1, "x", [], {}, {"workflowId": 1}, {"usage": {"requests": -100}}, {"requests": -100, "id": "x"}]
    async with foreign.serving(pay):
        handle = await foreign.start(foreign.request(call("pay", "†state.x"), budget={"requests": 1}, **PAYS))
        await waiting(handle, 1)
        for word in ("waits", "spend", "spent", "granted"):
            for value in given:
                await handle.signal(word, value)
        await decide(handle, "approve")
        result = await ended(handle)
    assert (result["state"], result["usage"]["requests"]) == ({"x": "paid"}, 0)


async def test_pausing_and_providing_by_a_made_up_run_is_noted(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("pay", "†state.output"), context=[foreign.tool("pay")])
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.x"), context=[delegating("send", name)], **PAYS)
        )
        await waiting(handle, 1)
        for aim in ({"workflowId": "somebody-elses"}, {"workflowId": f"{handle.id}/none"}, {"instance": "none"}):
            await handle.signal("pause", aim)
            await handle.signal("provide", {"type": "state", "state": {"x": "provided"}, **aim})
        await decide(handle, "approve")
        result = await ended(handle)
    assert result["state"]["x"] == "paid"
