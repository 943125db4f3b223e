"""Definitions that try to see more, spend more or ask less than the run that uses them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.attacks.tree import OBJECT, Saved, Spy, delegating, leaks, secret, state, tree
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, ended, of_type, states, tool
from tests.workflow.tools import ONCE, echo

Json = Any
PAY = {"_tool": "pay", "_outputPath": "†state.output"}


async def pay(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return {"paid": True, "seen": context}


async def waiting(handle: Handle) -> list[dict[str, Json]]:
    async def found() -> list[dict[str, Json]]:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return listed

    return await assert_eventually(found)


async def decide(handle: Handle, decision: str, **more: Json) -> None:
    await asyncio.wait_for(handle.execute_update("decide", {"decision": decision, **more}), 60)


async def paid(foreign: Foreign, handle: Handle) -> int:
    """How often the tool ran, anywhere in the tree."""
    runs = await tree(foreign.client, handle)
    found = [
        await of_type(foreign.client.get_workflow_handle(run.id), "ACTIVITY_TASK_SCHEDULED") for run in runs.values()
    ]
    return sum(e.activity_type.name == "pay" for listed in found for e in listed)


# -- what it sees ------------------------------------------------------------------------


async def test_a_tool_named_like_the_parents_and_its_scopes_find_what_the_room_has(
    foreign: Foreign, saved: Saved, spy: Spy
) -> None:
    """The definition asks for all that the parent has; it has none of it."""
    everything = ["vault", "input", "state", "data", "†vault.key", "†state.order", "tool", "system", "error"]
    inner = saved.walked(
        {**PAY, "_scopes": everything}, context=[tool("pay", activity="pay", options={"taskQueue": foreign.queue})]
    )
    context = [
        delegating("pay", inner), {"type": "system", "message": secret("system")},
        {"type": "data", "kind": "vault", "data": {"key": secret("vault")}}, {"type": "input", "x": secret("input")},
        state(order=secret("order"), open=secret("open")),
    ]  # fmt: skip
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("pay", "†state.r", given=1, _scopes=["†state.open"]), context=context)
        )
        result = await ended(handle)
    assert result["state"]["r"]["seen"] == [
        {"type": "input", "input": {"given": 1}}, {"type": "state", "state": {"open": secret("open")}},
    ]  # fmt: skip
    assert await leaks(foreign.client, handle, {"1:pay": {"open"}, "1:pay/plan": {"open"}}, spy) == {}


@pytest.mark.parametrize("inner", [
    {"_tool": "pay", "value": "†vault.key", "_outputPath": "†state.output"},
    {"_tool": "secretTool", "_outputPath": "†state.output"},
    {"_tool": "greet", "name": "x", "_outputPath": "†state.output"},
    {"_tool": "pay", "_instance": "a", "_outputPath": "†state.output"},
], ids=["its data", "its tool", "a tool of the worker", "its instance"])  # fmt: skip
async def test_what_the_room_does_not_have_is_an_error_of_the_room(
    foreign: Foreign, saved: Saved, inner: dict[str, Json]
) -> None:
    name = saved.walked(inner, context=[foreign.tool("pay")])
    context = [
        delegating("send", name), foreign.tool("secretTool"), {"type": "tool", "tool": "greet"},
        {"type": "data", "kind": "vault", "data": {"key": 1}}, {"type": "state", "state": {"x": 1}, "_instance": "a"},
    ]  # fmt: skip
    async with foreign.serving(pay):
        handle = await foreign.start(foreign.request(call("send", "†state.r", _instance="a"), context=context))
        result = await came_to(handle)
    (error,) = result["instances"]["a"]["errors"]
    assert error["code"] == "InvalidRequest"
    assert await paid(foreign, handle) == 0


async def test_output_that_refers_to_the_parents_data_finds_none(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy
) -> None:
    name = saved({"config": {"maxTicks": 2}, "context": []})
    model = agents.script(({}, {"calls": [], "output": {"stolen": "†vault.key || †state.order"}}))
    context = [
        delegating("send", name), {"type": "data", "kind": "vault", "data": {"key": secret("vault")}},
        state(order=secret("order")),
    ]  # fmt: skip
    handle = await foreign.start(foreign.request(call("send", "†state.r"), context=context, model=model))
    result = await came_to(handle)
    assert states(result) == {"1:send": "failed"}
    assert await leaks(foreign.client, handle, {"1:send": set()}, spy) == {}


# -- what it asks -------------------------------------------------------------------------

LAX: dict[str, Json] = {
    "nothing about it": None, "false": {"calls": False, "plan": False, "scopes": False}, "an empty list": {"calls": []},
    "another tool": {"calls": ["other"]}, "nothing at all": {}, "onTimeout alone": {"onTimeout": "approve"},
    "a deadline that approves": {"timeout": "50ms", "onTimeout": "approve"},
}  # fmt: skip


@pytest.mark.parametrize("lax", LAX)
async def test_a_definition_cannot_ask_for_less_than_the_run_that_uses_it(
    foreign: Foreign, saved: Saved, lax: str
) -> None:
    config = {} if LAX[lax] is None else {"config": {"approve": LAX[lax]}}
    name = saved.walked(PAY, context=[foreign.tool("pay")], **config)
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.r"), context=[delegating("send", name)], approve={"calls": ["pay"]})
        )
        (wait,) = await waiting(handle)
        assert wait["workflowId"] == f"{handle.id}/1:send/plan"
        if "deadline" in lax:
            await asyncio.sleep(0.5)  # longer than the deadline of the definition: nobody has decided
        assert await paid(foreign, handle) == 0
        await decide(handle, "reject", reason="no")
        await came_to(handle)
        assert await paid(foreign, handle) == 0


async def test_the_plan_of_a_walked_definition_waits_where_a_person_sees_it(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(PAY, context=[foreign.tool("pay")])
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.r"), context=[delegating("send", name)], approve={"plan": True})
        )
        await waiting(handle)
        await decide(handle, "approve")
        (wait,) = await waiting(handle)
        assert (wait["what"], wait["workflowId"]) == ("plan", f"{handle.id}/1:send/plan")
        assert await paid(foreign, handle) == 0
        await decide(handle, "approve")
        assert (await ended(handle))["status"] == "completed"


async def test_a_decision_may_be_sent_to_the_room_that_the_wait_is_in(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(PAY, context=[foreign.tool("pay")])
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", "†state.r"), context=[delegating("send", name)], approve={"calls": ["pay"]})
        )
        await waiting(handle)
        room = foreign.client.get_workflow_handle(f"{handle.id}/1:send")
        await decide(room, "approve", call="1:pay")
        assert (await ended(handle))["status"] == "completed"


LAZY = [(above, mode) for above in ("plan", "agent", "instance") for mode in ("walked", "planned")]


@pytest.mark.parametrize(("above", "mode"), LAZY)
async def test_a_lazy_definition_waits_for_a_person_wherever_it_is_used(
    foreign: Foreign, agents: Agents, saved: Saved, above: str, mode: str
) -> None:
    """``approve.plan`` is true for lazy plans where nobody says otherwise, and here nobody does."""
    plan = {"type": "plan", "plan": [PAY], "run": True} if mode == "walked" else {"type": "plan", "plan": []}
    name = saved({"context": [{"role": "user", "content": "Inner."}, foreign.tool("pay"), {**plan, "mode": "lazy"}]})
    context = [delegating("send", name)]
    sends = call("send", "†state.r", given=1)
    model = agents.script(
        ({"says": ["Inner."]}, {"calls": [PAY], "output": "done"}), ({}, {"calls": [sends], "output": "done"})
    )
    async with foreign.serving(pay):
        if above == "agent":
            handle = await foreign.client.start_workflow(
                "Agent", {"config": {"model": model}, "context": context}, id=foreign.queue, task_queue=foreign.engine
            )
        else:
            more = [{"type": "state", "state": {"x": 1}, "_instance": "a"}] if above == "instance" else []
            handle = await foreign.start(foreign.request(sends, context=[*context, *more], model=model))
        (wait,) = await waiting(handle)
        assert wait["what"] == "plan"
        assert await paid(foreign, handle) == 0
        await decide(handle, "approve")
        assert (await came_to(handle))["status"] == "completed"


@pytest.mark.parametrize("above", ["plan", "agent", "instance"])
async def test_calls_that_a_person_confirms_are_confirmed_in_every_room(
    foreign: Foreign, agents: Agents, saved: Saved, above: str
) -> None:
    inner = saved.walked(PAY, context=[foreign.tool("pay")])
    outer = saved.walked(call("down", "†state.output"), context=[delegating("down", inner)])
    context = [delegating("send", outer)]
    sends = call("send", "†state.r", given=1)
    asked = {"calls": ["pay"]}
    async with foreign.serving(pay):
        if above == "agent":
            handle = await agents.start(
                {"calls": [sends], "output": "done"},
                {"calls": [], "output": "not paid"},
                context=context,
                approve=asked,
            )
        else:
            more = [{"type": "state", "state": {"x": 1}, "_instance": "a"}] if above == "instance" else []
            handle = await foreign.start(foreign.request(sends, context=[*context, *more], approve=asked))
        (wait,) = await waiting(handle)
        assert (wait["call"], await paid(foreign, handle)) == ("1:pay", 0)
        await decide(handle, "reject", reason="no", call="1:pay")
        await came_to(handle)
        assert await paid(foreign, handle) == 0


async def test_fire_and_forget_of_a_room_is_confirmed_too(foreign: Foreign, saved: Saved) -> None:
    """It is a run of its own: it waits there, and nothing is paid."""
    name = saved.walked(PAY, context=[foreign.tool("pay")])
    async with foreign.serving(pay):
        handle = await foreign.start(
            foreign.request(call("send", given=1), context=[delegating("send", name)], approve={"calls": ["pay"]})
        )
        assert states(await ended(handle)) == {"1:send": "detached"}
        room = foreign.client.get_workflow_handle(f"{handle.id}/1:send/delegate")

        async def there() -> bool:
            return "1:send/delegate" in await tree(foreign.client, handle)

        await assert_eventually(there)
        (wait,) = await waiting(room)
        assert wait["call"] == "1:pay"
        assert await paid(foreign, handle) == 0
        await decide(room, "approve")
        await asyncio.wait_for(room.result(), 60)
        assert await paid(foreign, handle) == 1


# -- what it spends -----------------------------------------------------------------------


def thirsty(saved: Saved, foreign: Foreign, **config: Json) -> str:
    """A definition that asks the model three times, one request after the other."""
    return saved.walked(
        call("think", "†state.a"), call("think", "†state.b", x="†state.a"),
        call("think", "†state.output", x="†state.b"),
        context=[tool("think", activity="", _output=OBJECT)], **({"config": config} if config else {}),
    )  # fmt: skip


@pytest.mark.parametrize("own", [{}, {"budget": {"requests": 1000, "tokens": 10**9, "depth": 99}}], ids=str)
@pytest.mark.parametrize("above", ["plan", "agent", "instance", "room"])
async def test_a_definition_cannot_spend_more_than_the_run_that_uses_it(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, own: Json, above: str
) -> None:
    name = thirsty(saved, foreign, **own)
    context = [delegating("send", name)]
    sends = call("send", "†state.r", given=1, _errorPath="†state.e")
    if above == "room":
        context = [delegating("send", saved.walked(call("send", "†state.output"), context=context, config=own))]
    think = ({"tool": "think"}, {"text": "{}"})
    if above == "agent":
        handle = await agents.start(
            think, ({"tick": 1}, {"calls": [sends], "output": "done"}), context=context, budget={"requests": 3}
        )
    else:
        more = [{"type": "state", "state": {"x": 1}, "_instance": "a"}] if above == "instance" else []
        handle = await foreign.start(
            foreign.request(sends, context=[*context, *more], model=agents.script(think), budget={"requests": 2})
        )
    result = await ended(handle)
    assert len(spy.words("think")) == 2
    assert result["usage"]["requests"] == (3 if above == "agent" else 2)


@pytest.mark.parametrize("above", [
    "plan", "agent",
    "instance",
    "room",
])  # fmt: skip
async def test_fire_and_forget_cannot_spend_more_than_the_run_that_uses_it(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, above: str
) -> None:
    """One such Call: what is left when it starts is all that it has."""
    context = [delegating("send", thirsty(saved, foreign))]
    sends = call("send", given=1)
    think = ({"tool": "think"}, {"text": "{}"})
    if above == "room":
        context = [delegating("send", saved.walked(call("send"), context=context))]
        sends = call("send", "†state.r", given=1)
    if above == "agent":
        handle = await agents.start(
            think, ({"tick": 1}, {"calls": [sends], "output": "done"}), context=context, budget={"requests": 2}
        )
    else:
        more = [{"type": "state", "state": {"x": 1}, "_instance": "a"}] if above == "instance" else []
        handle = await foreign.start(
            foreign.request(sends, context=[*context, *more], model=agents.script(think), budget={"requests": 1})
        )
    await ended(handle)
    await settled(foreign, handle)
    assert len(spy.words("think")) == 1


async def settled(foreign: Foreign, handle: Handle) -> None:
    """Wait for what was started and forgotten."""
    for run in (await tree(foreign.client, handle)).values():
        if run.type == "Background":
            try:
                await asyncio.wait_for(foreign.client.get_workflow_handle(run.id).result(), 60)
            except TimeoutError:
                raise
            except Exception:  # noqa: BLE001, S112 - how it ends is its own
                continue


async def test_many_that_are_forgotten_cannot_spend_the_budget_many_times(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy
) -> None:
    context = [delegating("send", thirsty(saved, foreign))]
    model = agents.script(({"tool": "think"}, {"text": "{}"}))
    calls = [call("send", given=n) for n in range(4)]
    handle = await foreign.start(foreign.request(*calls, context=context, model=model, budget={"requests": 3}))
    await ended(handle)
    await settled(foreign, handle)
    assert len(spy.words("think")) <= 3


@pytest.mark.parametrize("above", ["plan", "instance", "room"])
async def test_many_anonymous_ones_that_are_forgotten_cannot_spend_the_budget_many_times(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, above: str
) -> None:
    context = [delegating("think", "anonymous", _output=OBJECT)]
    model = agents.script(({"tool": "think"}, {"text": "{}"}))
    calls = [call("think", given=n) for n in range(5)]
    if above == "room":
        context = [delegating("send", saved.walked(*calls, context=context))]
        calls = [call("send", "†state.r", given=1)]
    more = [{"type": "state", "state": {"x": 1}, "_instance": "a"}] if above == "instance" else []
    handle = await foreign.start(
        foreign.request(*calls, context=[*context, *more], model=model, budget={"requests": 2})
    )
    await ended(handle)
    await settled(foreign, handle)
    assert len(spy.words("think")) <= 2


async def test_a_definition_cannot_be_nested_deeper_than_the_run_that_uses_it_allows(
    foreign: Foreign, saved: Saved
) -> None:
    name = "greedy-and-deep"
    saved({"config": {"budget": {"depth": 50}}, "context": [
        delegating("again", name),
        {"type": "plan", "run": True, "plan": [call("again", "†state.output"), call("again")]},
    ]}, name)  # fmt: skip
    handle = await foreign.start(
        foreign.request(call("again", "†state.r"), context=[delegating("again", name)], budget={"depth": 2})
    )
    result = await came_to(handle)
    assert "2 deep" in result["errors"][0]["message"]
    await settled(foreign, handle)
    runs = await tree(foreign.client, handle)
    assert max(name.count(":again") for name in runs) <= 2


async def test_a_room_that_pays_without_an_approval_pays_once(foreign: Foreign, saved: Saved) -> None:
    """The other side: where nobody asks, nobody waits."""
    name = saved.walked(PAY, context=[foreign.tool("pay", options=ONCE)])
    async with foreign.serving(pay, echo):
        handle = await foreign.start(foreign.request(call("send", "†state.r"), context=[delegating("send", name)]))
        await ended(handle)
    assert await paid(foreign, handle) == 1
