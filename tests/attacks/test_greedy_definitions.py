"""Definitions that try to see more, spend more or ask less than the run that uses them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from temporalio.service import RPCError

from tests.attacks.tree import OBJECT, Spy, leaks, secret, state, tree
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    came_to,
    decide,
    ended,
    failure,
    of_type,
    pending,
    states,
    tool,
)

Json = Any
PAY = {"_tool": "pay", "_outputPath": "†state.output"}


async def pay(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return {"paid": True, "seen": context}


async def paid(foreign: Foreign, handle: Handle) -> int:
    """How often the tool ran, anywhere in the tree."""
    runs = await tree(foreign.client, handle)
    found = [
        await of_type(foreign.client.get_workflow_handle(run.id), "ACTIVITY_TASK_SCHEDULED") for run in runs.values()
    ]
    return sum(e.activity_type.name == "pay" for listed in found for e in listed)


# -- what it sees ------------------------------------------------------------------------


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
        (wait,) = await pending(handle)
        assert wait["workflowId"] == f"{handle.id}/1:send/plan"
        if "deadline" in lax:
            await asyncio.sleep(0.5)  # longer than the deadline of the definition: nobody has decided
        assert await paid(foreign, handle) == 0
        await decide(handle, "reject", reason="no")
        await came_to(handle)
        assert await paid(foreign, handle) == 0


async def test_a_definition_cannot_give_what_is_asked_about_another_name(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(PAY, context=[foreign.tool("pay")])
    alias = tool("payOut", activity="pay", options={"taskQueue": foreign.queue})
    async with foreign.serving(pay):
        raw = foreign.request(
            call("send", "†state.r"), context=[delegating("send", name), alias], approve={"calls": ["payOut"]}
        )
        handle = await foreign.start(raw)
        (wait,) = await pending(handle)
        assert wait["call"] == "1:pay"
        await decide(handle, "reject", reason="no")
        await came_to(handle)
        assert await paid(foreign, handle) == 0


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


async def settled(foreign: Foreign, handle: Handle) -> None:
    """Wait for what was started and forgotten."""
    for run in (await tree(foreign.client, handle)).values():
        if run.type == "Background":
            try:
                await asyncio.wait_for(foreign.client.get_workflow_handle(run.id).result(), 180)
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


async def test_an_agent_and_all_that_it_left_running_spend_no_more_than_there_is(
    foreign: Foreign, saved: Saved, agents: Agents
) -> None:
    spender = saved({"context": [{"role": "user", "content": "Spend."}]})
    answers = [({"says": ["Spend."]}, {"calls": [call("none")]}), ({}, {"calls": [call("send")]})]
    handle = await agents.start(*answers, context=[delegating("send", spender)], budget={"requests": 12})
    (result,) = (await failure(handle)).details
    spent = result["usage"]["requests"]
    for n in range(1, result["ticks"] + 1):
        below = foreign.client.get_workflow_handle(f"{handle.id}/plan-{n}/1:send/delegate")
        with suppress(RPCError):  # the budget may be gone before the last of them starts
            spent += (await failure(below)).details[0]["usage"]["requests"]
    assert spent == 12
