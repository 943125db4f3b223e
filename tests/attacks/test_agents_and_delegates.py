"""Delegates and agents at work together: what each is given, what it may spend, who is asked, and what is left."""

from __future__ import annotations

from typing import Any

from tests.attacks.test_interventions import below, decide, pay
from tests.attacks.tree import Saved, delegating
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, ended, failure
from tests.workflow.tools import echo

Json = Any
PAYS = {"approve": {"calls": ["pay"]}}
PAY, SEND, X = (
    call("pay", "†state.output", value="†input.v"),
    call("send", "†state.r"),
    call("pay", "†state.x", value=1),
)


def user(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


async def pending(handle: Handle, count: int) -> list[dict[str, Json]]:
    async def found() -> Json:
        listed = await handle.query("pending")
        return (listed,) if len(listed) == count else None

    return list((await assert_eventually(found, why=f"{count} wait"))[0])


def paying(foreign: Foreign, saved: Saved, **config: Json) -> str:
    """A delegate that waits until it may pay."""
    return saved.walked(PAY, context=[foreign.tool("pay"), {"type": "input", "input": {"v": None}}], config=config)


# -- what delegates write, and where ------------------------------------------------


async def test_what_delegates_write_stands_in_plan_order_whoever_ends_first(foreign: Foreign, saved: Saved) -> None:
    plan = [call("send", "†state.l", v="a", _outputMethod="push"),
            call("send", "†state.o", v={"k": {"x": 1, "z": 1}}, _outputMethod="merge"),
            call("send", "†state.l", v=["b", "c"], _outputMethod="concat"),
            call("send", "†state.o", v={"k": {"y": 2, "z": 2}}, _outputMethod="merge"),
            call("send", "†state.l && †state.o.list", v="d", _outputMethod="push"),
            call("echo", "†state.seen", value="†state.l"),
            call("send", "†state.l", v="e", _outputMethod="push")]  # fmt: skip
    async with foreign.serving(pay, echo):
        name = paying(foreign, saved)
        handle = await foreign.start(foreign.request(*plan, context=[delegating("send", name)], **PAYS))
        await pending(handle, 6)
        for n in (7, 5, 4, 1, 3, 2):
            await decide(handle, "approve", workflowId=f"{handle.id}/{n}:send/plan", reason=f"{n}:send")
        result = await ended(handle)
    objects = {"k": {"x": 1, "y": 2, "z": 2}, "list": ["d"]}
    assert result["state"] == {"l": [*"abcde"], "o": objects, "seen": [*"abcd"]}
    assert [m["_outputPath"].removeprefix("†state.") for m in result["context"]] == [*"lolol", "o.list", "seen", "l"]
    assert [d["below"] for d in result["decisions"]] == [d["reason"] for d in result["decisions"]]
    assert await handle.query("pending") == []


# -- what a delegate sees ------------------------------------------------------------


# -- who is asked ----------------------------------------------------------------------


# -- fire-and-forget -----------------------------------------------------------------------


# -- what may be spent -----------------------------------------------------------------------


async def test_an_agent_and_all_that_it_left_running_spend_no_more_than_there_is(
    foreign: Foreign, saved: Saved, agents: Agents
) -> None:
    spender = saved({"context": [user("Spend.")]})
    answers = [({"says": ["Spend."]}, {"calls": [call("none")]}), ({}, {"calls": [call("send")]})]
    handle = await agents.start(*answers, context=[delegating("send", spender)], budget={"requests": 12})
    (result,) = (await failure(handle)).details
    spent = result["usage"]["requests"]
    for n in range(1, result["ticks"] + 1):
        spent += (await failure(below(foreign, handle, f"plan-{n}/1:send/delegate"))).details[0]["usage"]["requests"]
    assert spent == 12
