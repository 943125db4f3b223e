"""Delegates and agents at work together: what each is given, what it may spend, who is asked, and what is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from tests.attacks.test_interventions import below, decide, holds, pay, see, waits
from tests.attacks.tree import OBJECT, TEXT, Saved, Spy, delegating, leaks, own, secret, state
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, cancelled, ended, failure, states, tool
from tests.workflow.tools import echo

Json = Any
PAYS = {"approve": {"calls": ["pay"]}}
LAZY = {"type": "plan", "mode": "lazy", "plan": []}
PAY, SEND, X = (
    call("pay", "†state.output", value="†input.v"),
    call("send", "†state.r"),
    call("pay", "†state.x", value=1),
)
THINK = tool("think", activity="", _output=OBJECT)
THINKS = ({"tool": "think"}, {"text": '{"deep": true}'})


def user(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


async def pending(handle: Handle, count: int) -> list[dict[str, Json]]:
    async def found() -> Json:
        listed = await handle.query("pending")
        return (listed,) if len(listed) == count else None

    return list((await assert_eventually(found, why=f"{count} wait"))[0])


async def approve_all(handle: Handle, count: int) -> None:
    for wait in await pending(handle, count):
        await decide(handle, "approve", call=wait["call"], workflowId=wait["workflowId"], reason=wait["call"])


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


async def test_the_scopes_that_were_approved_are_those_that_a_delegate_sees_at_every_level(
    foreign: Foreign, saved: Saved, spy: Spy
) -> None:
    seer = saved.walked(call("see", "†state.output", _scopes=["state", "user"]), context=[foreign.tool("see")])
    middle = saved.walked(call("deeper", "†state.output", _scopes=["†state.a"]), context=[delegating("deeper", seer)])
    names = {"name": secret("name"), "age": secret("age")}
    context = [state(a=secret("a"), b=secret("b")), {"type": "data", "kind": "user", "data": names}]
    asked, narrowed = (call("send", "†state.r", _scopes=s) for s in (["state", "user"], ["†state.a", "†user.name"]))
    async with foreign.serving(see):
        request = foreign.request(asked, context=[delegating("send", middle), *context], approve={"scopes": True})
        handle = await foreign.start(request)
        await waits(handle, what="scopes", call="1:send")
        await decide(handle, "edit", call="1:send", **{"with": narrowed})
        for version, run in ((2, ""), (1, "/1:send/plan"), (1, "/1:send/plan/1:deeper/plan")):
            await waits(handle, what="scopes", version=version, workflowId=handle.id + run)
            await decide(handle, "approve", version=version)
        result = await ended(handle)
    assert result["state"]["r"] == [{"type": "state", "state": {"a": secret("a")}}]
    given = {"1:send": {"a", "name"}, "1:send/plan": {"a", "name"}}
    given |= {f"1:send/plan/{run}": {"a"} for run in ("1:deeper", "1:deeper/plan")}
    assert await leaks(foreign.client, handle, given, spy) == {}


@pytest.mark.parametrize("root", ["agent", "instance"])
async def test_a_delegate_inherits_that_definitions_are_loaded_upfront(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, root: str
) -> None:
    word = {"type": "object", "properties": {"word": {**TEXT, "description": secret("word")}}}
    deep = saved.walked(context=[{"type": "input", "schema": word}])
    middle = saved({"context": [user("Middle."), delegating("deeper", deep)]})
    answers = [({"says": ["Middle."]}, {"output": "middle"}), ({}, {"calls": [SEND], "output": "done"})]
    if root == "agent":
        handle = await agents.start(*answers, context=[delegating("send", middle)], resolve="upfront")
    else:
        context, model = [delegating("send", middle), own("a", t=1)], agents.script(*answers)
        handle = await foreign.start(foreign.request(SEND, context=context, resolve="upfront", model=model))
    await ended(handle)
    assert "word" in spy.secrets(f"{handle.id}/{'plan-1' if root == 'agent' else 'a'}/1:send")


# -- who is asked ----------------------------------------------------------------------


async def test_two_agents_below_an_agent_are_told_apart_and_decided_from_the_root(
    foreign: Foreign, saved: Saved, agents: Agents
) -> None:
    lazy = saved({"context": [user("Inner."), foreign.tool("pay"), LAZY]})
    plan = {"calls": [SEND, call("send", "†state.s")], "output": ["†state.r", "†state.s"]}
    inner = {"calls": [X], "output": "†state.x"}
    async with foreign.serving(pay):
        handle = await agents.start(
            ({"says": ["Inner."]}, inner), ({}, plan), context=[delegating("send", lazy)], **PAYS
        )
        await pending(handle, 2)
        a, b = (f"{handle.id}/plan-1/{n}:send" for n in (1, 2))
        for aim in ({}, {"workflowId": a, "version": 2}, {"call": "1:send"}):
            with pytest.raises(WorkflowUpdateFailedError):
                await decide(handle, "approve", **aim)
        await decide(handle, "edit", workflowId=a, call="1:pay", **{"with": call("pay", "†state.x", value="edited")})
        await waits(handle, workflowId=a, version=2)
        await decide(handle, "approve", workflowId=a, version=2)
        await waits(handle, call="1:pay", workflowId=f"{a}/plan-1")
        await decide(handle, "approve", call="1:pay")
        await holds(handle, lambda found: len(found) == 1, "pending")
        await decide(handle, "approve")
        await waits(handle, call="1:pay", workflowId=f"{b}/plan-1")
        await decide(handle, "approve", workflowId=f"{b}/plan-1")
        result = await ended(handle)
    assert (result["output"], result["usage"]["requests"]) == (["edited", 1], 3)
    made = [(d["below"], d["what"], d["decision"]) for d in result["decisions"]]
    assert made == [("1:send", "plan", "edit"), ("1:send", "plan", "approve"), ("1:send", "call", "approve"),
                    ("2:send", "plan", "approve"), ("2:send", "call", "approve")]  # fmt: skip
    assert await handle.query("pending") == []


async def test_an_instance_inside_a_delegate_is_none_of_the_runs_own(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(X, context=[foreign.tool("pay"), own("a", t=1)])
    context = [delegating("send", name), own("a", t=1), own("b", t=2)]
    handle = await foreign.start(foreign.request(call("send", "†state.r", _instance="b"), context=context, **PAYS))
    (wait,) = await pending(handle, 1)
    assert wait["instance"] == "b"
    with pytest.raises(WorkflowUpdateFailedError):
        await decide(handle, "approve", instance="a")


async def test_a_decision_inside_a_delegate_is_none_about_an_instance_of_the_agent(
    foreign: Foreign, saved: Saved, agents: Agents
) -> None:
    name = saved.walked(X, context=[foreign.tool("pay"), own("a", t=1)])
    async with foreign.serving(pay):
        context = [delegating("send", name), own("a", t=1), own("b", t=2)]
        plan = {"calls": [SEND, call("send", _instance="b")], "output": "done"}
        handle = await agents.start(plan, context=context, **PAYS)
        await approve_all(handle, 1)
        result = await ended(handle)
    assert [m.get("_instance") for m in result["context"] if m.get("kind") == "decision"] == [None]


async def test_an_early_decision_that_names_a_version_is_kept(foreign: Foreign) -> None:
    async with foreign.serving(pay):
        handle = await foreign.start(foreign.request(X, call("pay", "†state.y", value="†state.x"), context=[], **PAYS))
        await waits(handle, call="1:pay")
        await handle.signal("approve", {"call": "2:pay", "version": 1})
        await decide(handle, "approve", call="1:pay")
        assert (await handle.query("status")).get("notes", []) == []
        assert (await ended(handle))["state"] == {"x": 1, "y": 1}


@pytest.mark.parametrize("at", ["", "/plan-1/1:send"])
async def test_nothing_waits_in_an_agent_that_was_cancelled(
    foreign: Foreign, saved: Saved, agents: Agents, at: str
) -> None:
    lazy = saved({"context": [user("Inner."), foreign.tool("pay"), LAZY]})
    mode = "eager" if at else "lazy"
    answers = [({"says": ["Inner."]}, {"calls": [X], "output": 1}), ({}, {"calls": [SEND], "output": 1})]
    handle = await agents.start(*answers, context=[delegating("send", lazy), {**LAZY, "mode": mode}])
    await waits(handle, workflowId=handle.id + at)
    await handle.cancel()
    await cancelled(handle)
    run = foreign.client.get_workflow_handle(handle.id + at)
    assert (await run.query("pending"), (await run.query("status"))["phase"]) == ([], "cancelled")


async def test_a_decision_names_the_call_as_the_result_does(foreign: Foreign, agents: Agents) -> None:
    plan = {"calls": [call("echo", "†state.y", value="†state.x"), X]}
    async with foreign.serving(pay, echo):
        context = [foreign.tool("pay"), foreign.tool("echo")]
        handle = await agents.start(plan, {"output": "†state.x"}, context=context, step="call", **PAYS)
        await approve_all(handle, 1)
        result = await ended(handle)
    assert [d["call"] for d in result["decisions"]] == [c["id"] for c in result["calls"]]


async def test_a_decision_two_rooms_deep_is_told_of_the_call_that_it_is_below(foreign: Foreign, saved: Saved) -> None:
    inner = paying(foreign, saved)
    outer = saved.walked(call("inner", "†state.output", v=1), context=[delegating("inner", inner)])
    async with foreign.serving(pay):
        calls = [call("send", f"†state.r{n}") for n in (1, 2)]
        handle = await foreign.start(foreign.request(*calls, context=[delegating("send", outer)], **PAYS))
        await pending(handle, 2)
        for n in (1, 2):
            await decide(handle, "approve", workflowId=f"{handle.id}/{n}:send/plan/1:inner/plan", reason=f"{n}:send")
        result = await ended(handle)
    assert [d["below"] for d in result["decisions"]] == [d["reason"] for d in result["decisions"]]


async def test_the_reason_for_which_a_walked_plan_was_rejected_is_told(foreign: Foreign, saved: Saved) -> None:
    run = {"type": "plan", "mode": "lazy", "run": True, "plan": [X]}
    name = saved({"context": [foreign.tool("pay"), run]})
    handle = await foreign.start(foreign.request(SEND, context=[delegating("send", name)]))
    await waits(handle, what="plan")
    await decide(handle, "reject", reason="too dear")
    assert "too dear" in (await came_to(handle))["errors"][0]["message"]


# -- fire-and-forget -----------------------------------------------------------------------


async def test_a_delegate_that_nobody_waits_for_is_asked_about_in_itself_when_the_root_is_over(
    foreign: Foreign, saved: Saved, spy: Spy
) -> None:
    name = saved.walked(call("see", "†state.output", _scopes=["state"]), context=[foreign.tool("see")])
    context = [delegating("send", name), state(a=secret("a"), b=secret("b"))]
    async with foreign.serving(see):
        asked = foreign.request(call("send", _scopes=["state"]), context=context, approve={"scopes": True})
        handle = await foreign.start(asked)
        await waits(handle, call="1:send")
        await decide(handle, "edit", call="1:send", **{"with": call("send", _scopes=["†state.a"])})
        await decide(handle, "approve", call="1:send", version=2)
        result = await ended(handle)
        assert (states(result), await handle.query("pending")) == ({"1:send": "detached"}, [])
        room = below(foreign, handle, "1:send/delegate")
        await holds(room, lambda found: len(found) == 1, "pending")
        await decide(room, "approve")
        assert (await ended(room))["output"] == [{"type": "state", "state": {"a": secret("a")}}]
        await asyncio.wait_for(below(foreign, handle, "1:send").result(), 60)
    given = {run: {"a"} for run in ("1:send", "1:send/delegate", "1:send/delegate/plan")}
    assert await leaks(foreign.client, handle, given, spy) == {}


async def test_what_waits_in_a_delegate_that_nobody_waits_for_is_known_there(foreign: Foreign, saved: Saved) -> None:
    plan, context = [call("send", v=1), X], [delegating("send", paying(foreign, saved))]
    handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
    await holds(below(foreign, handle, "1:send/delegate"), lambda found: len(found) == 1, "pending")
    await waits(handle, call="2:pay")
    assert len(await handle.query("pending")) == 1


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


@pytest.mark.parametrize(("budget", "most"), [({"requests": 4}, 4), ({"tokens": 25}, 4)])
async def test_what_an_anonymous_delegate_spent_in_vain_is_spent(
    foreign: Foreign, agents: Agents, budget: Json, most: int
) -> None:
    no = {"text": '{"deep": "no"}', "usage": {"inputTokens": 6, "outputTokens": 4}}
    deep = {"type": "object", "properties": {"deep": {"type": "integer"}}}
    plan = [call("think", f"†state.t{n}", after=f"†state.e{n - 1}" if n else 1, _errorPath=f"†state.e{n}")
            for n in range(6)]  # fmt: skip
    context, model = [delegating("think", "anonymous", _output=deep)], agents.script(({"tool": "think"}, no))
    result = await came_to(await foreign.start(foreign.request(*plan, context=context, model=model, budget=budget)))
    assert result["usage"]["requests"] <= most


async def test_a_share_takes_no_more_from_above_than_it_gives(foreign: Foreign, saved: Saved, agents: Agents) -> None:
    inner = saved({"context": [user("Inner.")]})
    middle = saved.walked(call("inner"), context=[delegating("inner", inner)], config={"budget": {"requests": 2}})
    plan = [SEND, *(call("think", f"†state.t{n}", a="†state.r", _errorPath=f"†log.t{n}") for n in range(8))]
    model, context = agents.script(THINKS, ({"says": ["Inner."]}, {"output": 1})), [delegating("send", middle), THINK]
    request = foreign.request(*plan, context=context, model=model, budget={"requests": 10})
    assert len((await ended(await foreign.start(request)))["state"]) == 9


async def test_calls_that_were_refused_above_do_not_count_here(foreign: Foreign, saved: Saved) -> None:
    tools = [foreign.tool("echo")]
    three = saved.walked(*(call("echo", f"†state.e{n}", value=n) for n in range(3)), context=tools)
    one = saved.walked(call("echo", "†state.output", value=1), context=tools)
    calls = [call("three", "†state.a", _errorPath="†state.e"), call("one", "†state.b", after="†state.a || †state.e")]
    context = [delegating("three", three), delegating("one", one)]
    middle = delegating("send", saved.walked(*calls, context=context, config={"budget": {"calls": 5}}))
    async with foreign.serving(echo):
        result = await came_to(await foreign.start(foreign.request(SEND, context=[middle], budget={"calls": 4})))
    assert (states(result), result["state"].get("r", {}).get("b")) == ({"1:send": "completed"}, 1)


@pytest.mark.parametrize(("root", "bytes_"), [("agent", 1_900_000), ("plan", 1_900_000), ("plan", 1_000_000)])
async def test_what_was_spent_and_decided_is_told_when_the_results_are_too_large(
    foreign: Foreign, saved: Saved, agents: Agents, root: str, bytes_: int
) -> None:
    calls = [call("think", "†state.t"), *(call("pay", f"†state.x{n}", bytes=bytes_ + n) for n in range(3))]
    context = [THINK, foreign.tool("pay")]
    async with foreign.serving(pay):
        if root == "agent":
            handle = await agents.start(THINKS, ({}, {"calls": calls}), context=context, **PAYS)
        else:
            made, model = delegating("send", saved.walked(*calls, context=context)), agents.script(THINKS)
            handle = await foreign.start(foreign.request(SEND, context=[made], model=model, **PAYS))
        await approve_all(handle, 3)
        result = (await failure(handle)).details[0]
    assert (result["usage"]["requests"], len(result.get("decisions", ()))) == (2 if root == "agent" else 1, 3)


async def test_an_instance_may_be_called_as_a_call_is(foreign: Foreign, saved: Saved) -> None:
    plan = [call("send", "†state.r", v=1), call("pay", "†state.x", _instance="1:send", value=2)]
    context = [delegating("send", paying(foreign, saved)), own("1:send", t=1)]
    handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
    await holds(handle, bool, "pending")
    assert {c["state"] for c in (await handle.query("status"))["calls"]} == {"running"}
