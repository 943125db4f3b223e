"""People intervene below a run, or a run is interrupted: what is then said to have come of it is all of the truth."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from tests.attacks.tree import Saved, Spy, delegating, own, state
from tests.support import PATIENCE, assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, cancelled, ended, of_type, states, tool
from tests.workflow.tools import echo, refuse

Json = Any
PAYS = {"approve": {"calls": ["pay"]}}
DECLINED = {"code": "declined", "message": "no funds", "details": {"balance": 3}}
SOON = PATIENCE
TWO = [own("a", text="a"), own("b", text="b")]
PAY, LATER = call("pay", "†state.x", value="†state.text"), call("echo", "†state.y", value="†state.x || †state.text")


def noise(bytes_: int) -> str:
    """Text that cannot be packed into less than half of it."""
    return hashlib.shake_128(b"").hexdigest(bytes_ // 2)


async def see(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return context


async def pay(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if "bytes" in call:
        return noise(call["bytes"])
    return call.get("value", "paid")


async def waits(handle: Handle, **wanted: Json) -> dict[str, Json]:
    async def found() -> Json:
        fit = [w for w in await handle.query("pending") if wanted.items() <= w.items()]
        return fit[0] if len(fit) == 1 else None

    out: dict[str, Json] = await assert_eventually(found, within=SOON, why=f"{wanted} waits")
    return out


async def decide(handle: Handle, decision: str, **more: Json) -> None:
    await asyncio.wait_for(handle.execute_update("decide", {"decision": decision, **more}), 60)


async def edit(handle: Handle, call_: str, with_: Json, **where: str) -> None:
    """One Call is edited at the root, which is told of the new version."""
    version = (await waits(handle, call=call_, **where))["version"]
    await decide(handle, "edit", call=call_, **where, **{"with": with_})
    named = f"{call_.partition(':')[0]}:{with_['_tool']}"
    await waits(handle, **{**where, "call": named, "version": version + 1})


async def approve(handle: Handle, *instances: str, **more: str) -> None:
    for instance in instances:
        await waits(handle, instance=instance, **more)
        await decide(handle, "approve", instance=instance, **more)


async def holds(handle: Handle, question: Callable[[Json], bool], query: str = "status", *given: Json) -> None:
    """The answer of a run, which may not have begun yet, becomes such that the question is answered with yes."""

    async def found() -> bool:
        try:
            return question(await handle.query(query, *given))
        except RPCError:
            return False

    await assert_eventually(found, within=SOON)


def below(foreign: Foreign, handle: Handle, name: str) -> Handle:
    return foreign.client.get_workflow_handle(f"{handle.id}/{name}")


def all_in(state_: str) -> Callable[[Json], bool]:
    return lambda status_: bool(status_["calls"]) and all(c["state"] == state_ for c in status_["calls"])


def wrote(result: Json) -> list[tuple[str | None, str]]:
    """Which instance wrote where, in the order of the context."""
    return [(m.get("_instance"), m["_outputPath"]) for m in result["context"] if "_call" in m]


def states_of(result: Json) -> dict[str, Json]:
    return {i: r["state"] for i, r in result["instances"].items()}


async def after_edit(foreign: Foreign, with_: Json, *plan: Json, context: list[Json] = TWO) -> Json:
    """What comes of a plan whose first Call is edited in one instance, and approved in all."""
    async with foreign.serving(pay, echo, see, refuse):
        handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
        await edit(handle, "1:pay", with_, instance="a")
        await approve(handle, *dict.fromkeys(w["instance"] for w in await handle.query("pending")))
        return await came_to(handle)


# -- edits of one instance's Call ------------------------------------------------

_USER = {"type": "data", "kind": "user", "data": {"name": "Ada"}, "_instance": "a"}
_BOOK = state(book="b" * 5000, name="Ada", word="text")
_SEEN = [{k: _USER[k] for k in ("type", "kind", "data")}]


@pytest.mark.parametrize(("context", "changed", "truth"), [
    pytest.param([_USER], call("pay", "†state.x", value="†user.name || †state.text"), "Ada", id="own"),
    pytest.param([_BOOK], call("pay", "†state.x", value="†state.name || †state.text"), "Ada", id="all"),
    pytest.param([_USER], call("see", "†state.x", _scopes=["user"]), _SEEN, id="scopes"),
    pytest.param([], call("echo", "†state.x", value="†state.text"), "a", id="another tool"),
    ([], call("refuse", "†state.sorry", _errorPath="†state.x"), DECLINED),
    ([], call("pay", "†state.z && †state.x", value="both"), "both"),
    ([own("a", x=["own"])], call("pay", "†state.x", value=["more"], _outputMethod="concat"), ["own", "more"]),
])  # fmt: skip
async def test_an_edited_call_reads_and_writes_as_if_it_had_been_planned_so(
    foreign: Foreign, context: list[Json], changed: Json, truth: Json
) -> None:
    name = changed["_tool"]  # the plan has a Call of it, or only the Request has it
    plan = [PAY, *([call(name, "†state.o", _errorPath="†state.o")] if name in ("see", "refuse") else [])]
    tools = [foreign.tool(t) for t in ("see", "refuse", "echo")]
    result = await after_edit(foreign, changed, *plan, context=[*tools, *context, *TWO])
    assert [r["state"]["x"] for r in result["instances"].values()] == [truth, "b"]


async def test_an_edited_call_fails_where_what_it_writes_cannot_be_applied(foreign: Foreign) -> None:
    push = call("pay", "†state.word", value=1, _outputMethod="push")
    result = await after_edit(foreign, push, PAY, context=[_BOOK, *TWO])
    assert states(result["instances"]["a"]) == {"1:pay": "failed"}


async def test_what_an_edited_instance_appended_stands_in_plan_order(foreign: Foreign) -> None:
    plan = [{**PAY, "_instance": "a"}, {**LATER, "_instance": "b"}, call("echo", "†state.y", value=1, _instance="a")]
    result = await after_edit(foreign, call("pay", "†state.z", value=2), *plan)
    assert wrote(result) == [("a", "†state.z"), ("b", "†state.y"), ("a", "†state.y")]


async def test_an_edit_does_not_make_a_large_result_too_large(foreign: Foreign) -> None:
    large = call("pay", "†state.x", bytes=1_800_000)
    result = await after_edit(foreign, large, {**PAY, "bytes": 1_900_000}, context=TWO[:1])
    assert result["instances"]["a"]["status"] == "completed"


async def test_an_edit_may_say_again_which_instance_it_is_for(foreign: Foreign) -> None:
    same = call("pay", "†state.x", value="changed", _instance="a")
    result = await after_edit(foreign, same, PAY, call("echo", "†state.y", value="hello"))
    assert states(result["instances"]["a"]) == {"1:pay": "completed", "2:echo": "completed"}
    assert result["instances"]["a"]["state"] == {"text": "a", "x": "changed", "y": "hello"}


async def test_edited_twice_edited_and_rejected_turned_into_one_that_nobody_waits_for(foreign: Foreign) -> None:
    context = [foreign.tool("refuse"), *TWO, own("c", text="c")]
    plan = [PAY, call("refuse", "†state.r"), LATER]
    async with foreign.serving(pay, echo, refuse):
        handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
        await edit(handle, "1:pay", call("echo", "†state.q", value="once"), instance="a")
        await edit(handle, "1:echo", call("pay", "†state.q", value="twice"), instance="a")
        await edit(handle, "1:pay", call("pay", "†state.q", value="no"), instance="b")
        await edit(handle, "1:pay", call("pay", value="†state.text"), instance="c")
        await approve(handle, "a", "c")
        await decide(handle, "reject", instance="b", reason="no")
        result = await came_to(handle)
    assert states_of(result) == {
        "a": {"text": "a", "q": "twice", "y": "a"}, "b": {"text": "b", "y": "b"}, "c": {"text": "c", "y": "c"},
    }  # fmt: skip
    assert [states(result["instances"][i])["1:pay"] for i in "abc"] == ["completed", "rejected", "detached"]
    assert wrote(result) == [("a", "†state.q"), ("a", "†state.y"), ("b", "†state.y"), ("c", "†state.y")]
    made = sorted(f"{d['instance']}{d['version']} {d['decision']}" for d in result["decisions"])
    assert made == ["a1 edit", "a2 edit", "a3 approve", "b1 edit", "b2 reject", "c1 edit", "c2 approve"]


_HELLO = call("echo", "†state.greeting", value="hello")
_GREETED = [call("pay", "†state.x", value="†state.greeting", _instance=i) for i in "ab"]


async def test_an_edit_keeps_its_instance_where_one_workflow_walks_them_all(foreign: Foreign) -> None:
    async with foreign.serving(pay, echo):
        handle = await foreign.start(foreign.request(_HELLO, *_GREETED, context=TWO, **PAYS))
        await waits(handle, instance="a")
        changed = call("pay", "†state.x", value="changed †{state.greeting}")
        await decide(handle, "edit", instance="a", call="2:pay", **{"with": changed})
        waiting = [(w["call"], w.get("instance")) for w in await handle.query("pending")]
        assert sorted(waiting, key=str) == [("2:pay", "a"), ("3:pay", "b")]


async def test_an_edit_that_parts_the_instances_leaves_a_call_that_waits(foreign: Foreign) -> None:
    async with foreign.serving(pay, echo):
        handle = await foreign.start(foreign.request(_HELLO, _GREETED[0], context=TWO, **PAYS))
        await edit(handle, "2:pay", call("pay", "†state.x", value="changed", _instance="a"), instance="a")


async def test_a_second_edit_may_read_what_the_first_one_writes(foreign: Foreign) -> None:
    async with foreign.serving(pay):
        handle = await foreign.start(foreign.request(PAY, call("pay", "†state.w", value=1), context=TWO, **PAYS))
        await edit(handle, "2:pay", call("pay", "†state.z", value=2), instance="a")
        await decide(handle, "edit", instance="a", call="1:pay", **{"with": call("pay", "†state.x", value="†state.z")})


async def test_an_edit_may_read_what_another_call_has_read(foreign: Foreign) -> None:
    async with foreign.serving(pay, echo):
        request = foreign.request(PAY, call("echo", "†state.y", value="†state.text"), context=[state(text="t")], **PAYS)
        handle = await foreign.start(request)
        await holds(handle, lambda s: [c["state"] for c in s["calls"]] == ["awaiting", "completed"])
        await edit(handle, "1:pay", call("pay", "†state.z", value="†state.text"))


async def test_the_time_for_a_decision_goes_on_when_an_edit_names_another_tool(foreign: Foreign) -> None:
    request = foreign.request(PAY, context=[foreign.tool("echo"), state(text="t")])
    handle = await foreign.start(request | {"config": {"approve": {"calls": True, "timeout": "1h"}}})
    before = await waits(handle, call="1:pay")
    await edit(handle, "1:pay", call("echo", "†state.x", value=1))
    after = await waits(handle, call="1:echo")
    assert (after["since"], after["deadline"]) == (before["since"], before["deadline"])


# -- what is provided ------------------------------------------------------------

ASKS = call("echo", "†state.y", value="†input.answer")
ANSWER = {"type": "input", "input": {"answer": 1}}


async def test_what_is_provided_reaches_each_instance_of_a_child(foreign: Foreign) -> None:
    handle = await foreign.start(foreign.request(ASKS, context=TWO, missing="wait", instancesPerChild=2))
    child = below(foreign, handle, "a")
    await holds(child, all_in("awaiting"))
    await handle.signal("provide", {**ANSWER, "_instance": "b"})
    asked = {"path": "†input.answer", "instance": "b"}
    await holds(child, lambda found: found.get("value") == 1, "context", asked)


async def test_what_is_provided_while_children_start_reaches_all_of_them(foreign: Foreign) -> None:
    context = [state(noise=noise(600_000)), *(own(f"i{n}", text="t") for n in range(20))]
    calls = [ASKS, call("echo", "†state.n", value="†state.noise && †state.text")]
    handle = await foreign.start(foreign.request(*calls, context=context, missing="wait"))

    async def begun() -> bool:
        return bool(await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED"))

    await assert_eventually(begun)
    await handle.signal("provide", ANSWER)
    last = below(foreign, handle, "i19")
    await holds(last, lambda s: {c["state"] for c in s["calls"]} <= {"awaiting", "running"})
    await holds(last, lambda found: found.get("value") == 1, "context", {"path": "†input.answer"})


@pytest.mark.parametrize("now", ["ended", "going on"])
async def test_what_is_provided_does_not_undo_what_an_instance_wrote(foreign: Foreign, now: str) -> None:
    push = call("echo", "†state.list", value=1, _outputMethod="push", _instance="a")
    plan = [push, *({**PAY, "_instance": i} for i in ("ab" if now == "going on" else "b"))]
    async with foreign.serving(pay, echo):
        handle = await foreign.start(foreign.request(*plan, context=TWO, **PAYS))
        await waits(handle, instance="b")
        done = {"instance": "a", "path": "†state.list"}
        await holds(below(foreign, handle, "a"), lambda found: found.get("value") == [1], "context", done)
        if now == "ended":
            await holds(handle, lambda s: s["instances"]["a"] == "completed")
        await handle.signal("provide", {"type": "state", "state": {"list": "text"}})
        await holds(handle, lambda all_: any(m.get("state") == {"list": "text"} for m in all_), "context")
        await approve(handle, *("ab" if now == "going on" else "b"))
        result = await ended(handle)
    assert result["instances"]["a"]["state"]["list"] == [1]


async def test_an_agent_gives_what_is_provided_to_the_instance_it_is_for(foreign: Foreign, agents: Agents) -> None:
    async with foreign.serving(pay):
        plan = {"calls": [PAY], "output": "done"}
        handle = await agents.start(plan, context=[foreign.tool("pay"), *TWO], **PAYS)
        await waits(handle, instance="b")
        await handle.signal("provide", {"type": "state", "state": {"word": 1}, "instance": "a"})
        await approve(handle, "a", "b")
        result = await ended(handle)
    assert [r["state"].get("word") for r in result["instances"].values()] == [1, None]


async def test_an_agent_pauses_the_one_instance_that_is_named(foreign: Foreign, agents: Agents) -> None:
    async with foreign.serving(pay):
        plan = {"calls": [PAY], "output": "done"}
        handle = await agents.start(plan, context=[foreign.tool("pay"), *TWO], **PAYS)
        await waits(handle, instance="b")
        await handle.signal("pause", {"instance": "a"})
        await holds(below(foreign, handle, "plan-1/a"), lambda s: s["phase"] == "paused")
        assert (await handle.query("status"))["phase"] == "awaiting"
        assert (await below(foreign, handle, "plan-1/b").query("status"))["phase"] == "awaiting"
        await handle.signal("resume", {"workflowId": f"{handle.id}/plan-1/a"})
        await approve(handle, "a", "b")
        assert (await ended(handle))["status"] == "completed"


async def test_what_an_agent_is_given_for_a_delegate_below_is_for_that_one_alone(
    foreign: Foreign, saved: Saved, agents: Agents
) -> None:
    asks = call("echo", "†state.output", value="†input.word")
    name = saved.walked(asks, context=[foreign.tool("echo")], config={"missing": "wait"})
    async with foreign.serving(echo):
        plan = {"calls": [call("send", "†state.r")], "output": "†state.r"}
        handle = await agents.start(plan, context=[delegating("send", name)])
        delegate = f"{handle.id}/plan-1/1:send"
        await holds(below(foreign, handle, "plan-1/1:send/plan"), all_in("awaiting"))
        await handle.signal("provide", {"type": "input", "input": {"word": "hush"}, "workflowId": delegate})
        result = await ended(handle)
    assert result["output"] == "hush"
    assert [m for m in result["context"] if m["type"] == "input"] == []


async def test_a_walked_delegate_yields_what_it_was_provided_with(foreign: Foreign, saved: Saved) -> None:
    push = call("echo", "†state.list", value="†state.answer", _outputMethod="push")
    name = saved.walked(push, context=[foreign.tool("echo")], config={"missing": "wait"})
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("send", "†state.r"), context=[delegating("send", name)]))
        await holds(below(foreign, handle, "1:send/plan"), all_in("awaiting"))
        given = {"type": "state", "state": {"answer": 42, "list": [0]}, "workflowId": f"{handle.id}/1:send"}
        await handle.signal("provide", given)
        result = await ended(handle)
    assert result["state"]["r"] == {"answer": 42, "list": [0, 42]}


# -- agents and budgets ------------------------------------------------------------


async def test_the_planner_is_shown_the_call_that_failed(foreign: Foreign, agents: Agents) -> None:
    context, plan = [foreign.tool("refuse")], {"calls": [call("refuse", "†state.x", value="planned")]}
    changed = call("refuse", "†state.y", value="edited")
    async with foreign.serving(refuse):
        handle = await agents.start(plan, {"output": "over"}, context=context, approve={"calls": True})
        await edit(handle, "1:refuse", changed)
        await decide(handle, "approve")
        result = await ended(handle)
    assert [m["data"]["call"] for m in result["context"] if m["type"] == "error"] == [changed]


async def test_what_people_say_of_one_instance_is_not_shown_to_another(
    foreign: Foreign, agents: Agents, spy: Spy
) -> None:
    think = tool("think", activity="", _output={"type": "object"})
    second = {"calls": [call("think", "†state.t", _instance="b")], "output": "done"}
    answers = [{"calls": [PAY]}, second, ({"tool": "think"}, {"text": '{"deep": true}'})]
    async with foreign.serving(pay):
        handle = await agents.start(*answers, context=[foreign.tool("pay"), think, *TWO], **PAYS)
        await waits(handle, instance="a")
        await decide(handle, "approve", instance="a", reason="the debts of a")
        await approve(handle, "b")
        await ended(handle)
    assert "the debts of a" not in "".join(spy.words("think"))


async def test_calls_that_an_edit_adds_count_in_an_agent(foreign: Foreign, agents: Agents) -> None:
    echoes = [call("echo", f"†state.e{n}", value=n) for n in range(2)]
    context = [foreign.tool("pay"), foreign.tool("echo"), state(text="t")]
    async with foreign.serving(pay, echo):
        plans = [{"calls": [PAY]}, {"calls": echoes, "output": "done"}]
        handle = await agents.start(*plans, context=context, budget={"calls": 3}, **PAYS)
        await waits(handle, call="1:pay")
        await decide(handle, "edit", call="1:pay", plan=[PAY, *echoes])
        for id_ in ("1:pay", "2:echo", "3:echo"):
            await waits(handle, call=id_, version=2)
            await decide(handle, "approve", call=id_)
        found = await asyncio.wait_for(asyncio.gather(handle.result(), return_exceptions=True), 60)
    assert isinstance(found[0], BaseException), found[0]["calls"]


@pytest.mark.parametrize(("walked", "edited"), [(False, False), (False, True), (True, False)])
async def test_all_calls_of_a_tree_count_whoever_planned_them(
    foreign: Foreign, saved: Saved, agents: Agents, *, walked: bool, edited: bool
) -> None:
    pays, plan = call("pay", "†state.output"), [call("echo", "†state.e", value=1), call("send", "†state.r")]
    planned = saved({"context": [foreign.tool("pay")]})
    name = saved.walked(pays, context=[foreign.tool("pay")]) if walked else planned
    model = agents.script({"calls": [pays], "output": "†state.output"}, {"output": "†state.output"})
    context = [delegating("send", name), foreign.tool("echo")]
    async with foreign.serving(pay, echo):
        config = {"budget": {"calls": 2}, "model": model, "approve": {"plan": edited}}
        handle = await foreign.start(foreign.request(*plan[edited:], context=context, **config))
        if edited:
            await waits(handle, what="plan")
            await decide(handle, "edit", plan=plan)
            await decide(handle, "approve")
            await waits(handle, what="plan")
            await decide(handle, "approve")
        assert states(await came_to(handle)) == {"1:echo": "completed", "2:send": "failed"}


async def test_an_edit_may_not_add_more_than_is_left_below_too(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("echo", "†state.output", value=1), context=[foreign.tool("echo")])
    context = [delegating("send", name), foreign.tool("pay"), foreign.tool("echo"), state(text="t")]
    async with foreign.serving(pay, echo):
        handle = await foreign.start(
            foreign.request(call("send", "†state.r"), PAY, context=context, budget={"calls": 3}, **PAYS)
        )
        await holds(handle, lambda s: [c["state"] for c in s["calls"]] == ["completed", "awaiting"])
        plan = [call("send", "†state.r"), PAY, LATER]
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await decide(handle, "edit", call="2:pay", plan=plan)
        assert "the budget of 3 calls does not allow 1 more: 3 were made or planned" in str(refused.value.cause)


async def test_calls_that_an_edit_adds_below_count_above(foreign: Foreign, saved: Saved) -> None:
    pays = call("pay", "†state.output", value=1)
    name = saved.walked(pays, context=[foreign.tool("pay"), foreign.tool("echo")])
    context = [delegating("send", name, then={})]
    async with foreign.serving(pay, echo):
        plan = [call("send", "†state.r"), call("send", "†state.s", then="†state.r")]
        handle = await foreign.start(foreign.request(*plan, context=context, budget={"calls": 4}, **PAYS))
        await waits(handle, call="1:pay")
        await decide(handle, "edit", call="1:pay", plan=[pays, call("echo", "†state.e", value=2)])
        for id_ in ("1:pay", "2:echo"):
            await waits(handle, call=id_, version=2)
            await decide(handle, "approve", call=id_)
        assert states(await came_to(handle)) == {"1:send": "completed", "2:send": "failed"}


async def test_a_decision_about_a_delegate_is_told_of_the_instance_that_it_works_for(
    foreign: Foreign, saved: Saved
) -> None:
    name = saved.walked(call("pay", "†state.output", value=1), context=[foreign.tool("pay")])
    context = [delegating("send", name), *TWO]
    async with foreign.serving(pay):
        plan = foreign.request(call("send", "†state.r"), context=context, instancesPerChild=2, **PAYS)
        handle = await foreign.start(plan)
        for instance in "ab":
            await waits(handle, instance=instance)
            await decide(handle, "approve", instance=instance, reason=f"for {instance}")
        result = await ended(handle)
    assert [(d["instance"], d["reason"]) for d in result["decisions"]] == [("a", "for a"), ("b", "for b")]


# -- interruptions -----------------------------------------------------------------


@pytest.mark.parametrize("per_child", [1, 2])
async def test_each_instance_of_a_template_has_its_own_plan_order(foreign: Foreign, per_child: int) -> None:
    plan = [call("echo", "†state.l", value="†state.x", _outputMethod="push"),
            call("echo", "†state.x && †state.l", value="two", _outputMethod="push")]  # fmt: skip
    context = [own("a", text="a"), own("b", x=["own"])]
    async with foreign.serving(echo):
        result = await foreign.run(*plan, context=context, instancesPerChild=per_child)
    assert states_of(result)["a"] == {"text": "a", "x": ["two"], "l": ["two", ["two"]]}
    assert states_of(result)["b"] == {"x": ["own", "two"], "l": [["own"], "two"]}


async def test_what_an_instance_had_done_is_known_after_the_run_was_cancelled(foreign: Foreign) -> None:
    async with foreign.serving(pay, echo):
        request = foreign.request(PAY, call("echo", "†state.y", value=1), context=TWO[:1], **PAYS)
        handle = await foreign.start(request)
        await holds(
            below(foreign, handle, "a"), lambda s: [c["state"] for c in s["calls"]] == ["awaiting", "completed"]
        )
        await handle.cancel()
        await cancelled(handle)
        found = await handle.query("context", {"path": "†state.y", "instance": "a"})
    assert found.get("value") == 1
