"""Definitions that try to see more, spend more or ask less than the run that uses them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.attacks.tree import OBJECT, Spy, leaks, secret, state, tree
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, Handle, call, came_to, decide, ended, of_type, pending, states, tool

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
