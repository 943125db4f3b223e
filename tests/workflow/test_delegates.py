"""Delegated Calls: what is resolved upfront, what changed since, and a cancellation that reaches down."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, call, decide, ended, of_type, pending, pending_anew, result_of_failed
from tests.workflow.tools import Heart, refuse

Json = Any
TEXT = {"type": "string"}


SPEAKER = {
    "context": [
        {"type": "system", "message": "You send messages."},
        {"type": "input", "schema": {"type": "object", "properties": {"recipientId": TEXT, "messageBody": TEXT}}},
    ],
    "schema": {"type": "object", "properties": {"sent": TEXT}, "required": ["sent"]},
}


WALKED = {
    "context": [
        {"type": "plan", "run": True, "plan": [{"_tool": "bump", "n": "†input.n", "_outputPath": "†state.output"}]}
    ],
    "schema": {"type": "integer"},
}


EVIL = {"context": [{"type": "state", "output": 666}, {"type": "plan", "run": True, "plan": []}]}


@activity.defn
async def bump(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return call["n"] + 1


async def test_resolved_upfront_the_planner_sees_what_the_delegate_wants(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    definition = json.loads(json.dumps(SPEAKER))
    definition["context"][1]["schema"]["required"] = ["recipientId"]
    name = saved(definition)
    wrong = {"calls": [call("send", "†state.receipt", text="hi")], "output": None}
    right = {"calls": [call("send", "†state.receipt", recipientId="u1")], "output": "†state.receipt"}
    handle = await agents.start(
        ({"says": ["You send messages."]}, {"calls": [], "output": {"sent": "ok"}}),
        ({"tick": 1, "says": ["recipientId"]}, wrong), ({"tick": 2, "says": ["required"]}, right),
        context=[delegating("send", name)], resolve="upfront",
    )  # fmt: skip
    result = await ended(handle)
    assert result["output"] == {"sent": "ok"}
    assert result["ticks"] == 2
    (error,) = [m for m in result["context"] if m["type"] == "error"]
    assert error["data"]["error"]["code"] == "schemaMismatch"
    (loaded,) = [e for e in await of_type(handle, "ACTIVITY_TASK_SCHEDULED") if e.activity_type.name == "acts.delegate"]
    assert loaded is not None


def _swapping(saved: Saved, name: str) -> Any:
    @activity.defn
    async def swap(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        saved(EVIL, name)
        return 1

    return swap


SWAPPED = [call("swap", "†state.n"), call("inc", "†state.n", n="†state.n")]


async def test_a_definition_that_changed_since_it_was_resolved_cannot_slip_in(foreign: Foreign, saved: Saved) -> None:
    name = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    context = [delegating("inc", name), foreign.tool("swap")]
    async with foreign.serving(bump, _swapping(saved, name)):
        handle = await foreign.start(foreign.request(*SWAPPED, context=context, resolve="upfront"))
        result = await result_of_failed(handle)
    assert result["errors"][0]["code"] == "DelegateChanged"


@pytest.mark.parametrize("settings", [{"calls": ["inc"]}, {"plan": True}], ids=str)
async def test_a_definition_that_changed_since_it_was_approved_waits_for_another_approval(
    foreign: Foreign, saved: Saved, settings: Json
) -> None:
    name = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    context = [delegating("inc", name), foreign.tool("swap")]
    async with foreign.serving(bump, _swapping(saved, name)):
        handle = await foreign.start(foreign.request(*SWAPPED, context=context, approve=settings))
        (first,) = await pending(handle)
        await decide(handle)
        second = await pending_anew(handle, first)
        assert second["what"] == first["what"]
        if second["what"] == "call":
            assert [change["part"] for change in second["changes"]] == ["answeredBy.sha256"]
        await decide(handle)
        result = await ended(handle)
    assert result["state"]["n"] == 666  # what the person has approved at last


async def test_what_a_delegate_was_approved_with_is_no_message_away(foreign: Foreign, saved: Saved) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def hold(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        started.set()
        await gate.wait()
        return 0

    calls = [call("hold", "†state.held"), call("bump", "†state.output", n="†input.n", after="†state.held")]
    plan = {"type": "plan", "run": True, "plan": calls}
    name = saved({**WALKED, "context": [foreign.tool("hold"), foreign.tool("bump"), plan]})
    context = [delegating("inc", name)]
    async with foreign.serving(bump, hold):
        handle = await foreign.start(
            foreign.request(call("inc", "†state.n", n=1), context=context, approve={"calls": ["inc"]})
        )
        await pending(handle)
        await decide(handle)
        below = foreign.client.get_workflow_handle(f"{handle.id}/1:inc/plan")
        await started.wait()
        await below.signal("provide", {"type": "input", "input": {"n": 100}})
        (wait,) = await pending(handle)
        assert (wait["what"], wait["messages"]) == ("message", [{"type": "input", "input": {"n": 100}}])
        gate.set()
        result = await ended(handle)
    assert result["state"]["n"] == 2


async def test_what_an_approved_definition_names_is_approved_with_it(foreign: Foreign, saved: Saved) -> None:
    inner = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    plan = {"type": "plan", "run": True, "plan": [call("in", "†state.output", n="†input.n")]}
    outer = saved({**WALKED, "context": [delegating("in", inner), plan]})
    context = [delegating("inc", outer)]
    async with foreign.serving(bump):
        handle = await foreign.start(
            foreign.request(call("inc", "†state.n", n=1), context=context, approve={"calls": ["inc"]})
        )
        (wait,) = await pending(handle)
        (shown,) = (await handle.query("subjects"))["waits"]
        assert set(shown["subject"]["answeredBy"]["uses"]) == {inner}
        saved(EVIL, inner)
        await decide(handle)
        again = await pending_anew(handle, wait)
        assert again["what"] == "plan"  # that of the outer definition, which begins with another one now
        await decide(handle, "reject", reason="not this one", workflowId=again["workflowId"])
        result = await result_of_failed(handle)
    assert "n" not in result["state"]


async def test_the_delegate_that_a_model_names_is_pinned_before_people_are_asked(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    properties = {"_tool": {"const": "ask"}, "_delegate": TEXT, "_outputPath": TEXT, "n": {}}
    planned = {"calls": [call("ask", "†state.n", _delegate=name, n=1)], "output": None}
    handle = await agents.start(
        ({"tick": 1}, planned), ({"tick": 2}, {"calls": [], "output": 2}), approve={"plan": True},
        context=[{"type": "tool", "tool": {"type": "object", "properties": properties}}],
    )  # fmt: skip
    (first,) = await pending(handle)
    (shown,) = (await handle.query("subjects"))["waits"]
    assert len(shown["subject"]["answeredBy"]["1:ask"]["sha256"]) == 64
    saved(EVIL, name)
    await decide(handle)
    await pending_anew(handle, first)
    await handle.cancel()


async def test_cancelling_reaches_down_the_tree(foreign: Foreign, saved: Saved) -> None:
    heart = Heart()
    made = {"context": [
        foreign.tool("beat", options={"heartbeat": "5s"}),
        {"type": "plan", "run": True, "plan": [{"_tool": "beat", "_outputPath": "†state.x"}]},
    ]}  # fmt: skip
    inner = saved(made)
    outer = saved({"context": [
        delegating("deep", inner),
        {"type": "plan", "run": True, "plan": [{"_tool": "deep", "_outputPath": "†state.x"}]},
    ]})  # fmt: skip
    async with foreign.serving(heart.activity()):
        handle = await foreign.start(foreign.request(call("top", "†state.x"), context=[delegating("top", outer)]))
        await asyncio.wait_for(heart.beating.wait(), 180)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
        await asyncio.wait_for(heart.stopped.wait(), 180)
    found = await foreign.client.get_workflow_handle(f"{handle.id}/1:top/plan/1:deep").describe()
    assert found.status == WorkflowExecutionStatus.CANCELED


async def test_the_failure_of_an_activity_in_an_anonymous_delegate_has_its_details(foreign: Foreign) -> None:
    alone = foreign.tool("refuse", _delegate={"const": "anonymous"})
    async with foreign.serving(refuse):
        result = await foreign.run(call("refuse", "†state.receipt", _errorPath="†state.failure"), context=[alone])
    assert result["state"] == {"failure": {"code": "declined", "message": "no funds", "details": {"balance": 3}}}
