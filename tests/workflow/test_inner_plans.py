"""Plans inside plans: what a Call of the Tool ``plan`` walks, how often, and when it ends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity

from acts.activities.plan_folders import read_plans
from acts.activities.shipped_tools import PLAN
from acts.cli.dev.temporal_server import DevServer
from acts.language.errors import SettingsError
from tests.crash.resets import reset, reset_points
from tests.workflow.agents import Agents
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, decide, ended, own, pending, result_of_failed, states, tree_of
from tests.workflow.tools import Gate, echo, refuse

Json = Any
WALK = {"type": "tool", "tool": PLAN}


def walk(*calls: Json, path: str = "†state.out", **more: Json) -> dict[str, Json]:
    return call("plan", path, plan=list(calls), **more)


def request(
    foreign: Foreign, *calls: Json, tools: tuple[str, ...] = ("echo",), data: Json = None, **config: Json
) -> Json:
    context = [WALK, *map(foreign.tool, tools), *([] if data is None else [{"type": "input", "input": data}])]
    return foreign.request(*calls, context=context, **config)


async def test_a_pipeline_for_each_element_keeps_its_failures_apart(foreign: Foreign) -> None:
    @activity.defn
    async def charge(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        return await (refuse if call["cents"] < 0 else echo)({**call, "value": call["cents"]}, tool, context)

    inner = [call("charge", "†state.paid", cents="†input.order.cents"),
             call("echo", "†state.output", value="paid †{state.paid} of †{user.name}")]  # fmt: skip
    orders = [{"cents": 5}, {"cents": -1}, {"cents": 7}]
    each = walk(*inner, _each="†input.orders", input={"order": "†item"}, _scopes=["user"], _errorPath="†state.failed")
    whole = request(foreign, each, tools=("echo", "charge"), data={"orders": orders})
    whole["context"].append({"type": "data", "kind": "user", "data": {"name": "Ada"}})
    async with foreign.serving(charge, echo):
        result = await ended(await foreign.start(whole))
    failed = result["state"]["failed"]
    assert failed["details"]["results"] == ["paid 5 of Ada", None, "paid 7 of Ada"]
    assert [(e["index"], e["code"]) for e in failed["details"]["errors"]] == [(1, "PlanFailed")]


async def test_as_soon_as_until_holds_what_still_runs_is_cancelled_and_nothing_more_starts(foreign: Foreign) -> None:
    slow, late = Gate(), Gate()
    inner = [
        call("echo", "†state.quotes", value=1, _outputMethod="push"),
        call("slow", "†state.quotes", _outputMethod="push"),
        call("late", "†state.booked", after="†state.quotes"),
        walk(call("slow", "†state.output"), path="†state.nested"),
    ]
    first = walk(*inner, until="†state.quotes.length >= 1")
    async with foreign.serving(echo, slow.activity("slow"), late.activity("late")):
        handle = await foreign.start(request(foreign, first, tools=("echo", "slow", "late")))
        result = await ended(handle)
    assert result["state"]["out"] == {"quotes": [1]}
    assert not late.arrived
    inside = await foreign.client.get_workflow_handle(f"{handle.id}/1:plan/plan").result()
    assert list(states(inside).values()) == ["completed", "cancelled", "cancelled", "cancelled"]


async def test_a_plan_is_walked_again_with_its_last_state_until_its_condition_holds(foreign: Foreign) -> None:
    count = [call("echo", "†state.n", value="†input.previous.n || 0"), call("inc", "†state.m", n="†state.n"),
             call("echo", "†state.n", value="†state.m")]  # fmt: skip

    async def inc(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        ids[call["_id"]] += 1
        return call["n"] + 1

    ids: Counter[str] = Counter()
    until, unmet = "†state.n >= 3", {"path": "†state.never", "_errorPath": "†state.unmet"}
    calls = [walk(*count, until=until, repeat={"max": 5, "every": "1ms"}),
             walk(*count, until=until, repeat={"max": 2}, **unmet)]  # fmt: skip
    async with foreign.serving(echo, inc):
        result = await ended(await foreign.start(request(foreign, *calls, tools=("echo", "inc"))))
    assert result["state"]["out"] == {"n": 3, "m": 3}
    assert result["state"]["unmet"]["code"] == "untilUnmet"
    assert "walked 2 times" in result["state"]["unmet"]["message"]
    assert (len(ids), set(ids.values())) == (5, {1})


async def test_a_reset_in_the_middle_of_a_repetition_walks_on_and_repeats_no_effect(foreign: Foreign) -> None:
    gate = Gate()
    turn = [call("gate", "†state.seen", value="†input.previous.n || 0"), call("inc", "†state.n", n="†state.seen")]

    async def inc(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        seen.append(call["_id"])
        return call["n"] + 1

    seen: list[str] = []
    again = walk(*turn, until="†state.n >= 2", repeat={"max": 5})
    async with foreign.serving(gate.activity("gate"), inc):
        handle = await foreign.start(request(foreign, again, tools=("gate", "inc")))
        await gate.reached()
        _, delegate, _ = await tree_of(foreign.client, handle.id)
        for id_ in (delegate, handle.id):
            run = foreign.client.get_workflow_handle(id_)
            await reset(foreign.client, id_, (await reset_points(run))[-1])
        gate.opened.set()
        result = await ended(foreign.client.get_workflow_handle(handle.id))
    assert result["state"]["out"]["n"] == 2
    assert len(set(seen)) == 2


async def test_who_approves_it_sees_its_calls_and_a_tool_inside_still_asks(foreign: Foreign) -> None:
    whole = request(
        foreign,
        walk(call("echo", "†state.output", value="†input.n"), input={"n": 4}),
        approve={"plan": True, "calls": ["echo"]},
    )
    async with foreign.serving(echo):
        handle = await foreign.start(whole)
        (wait,) = await pending(handle)
        assert wait["what"] == "plan"
        await decide(handle)
        (wait,) = await pending(handle)
        assert (wait["what"], wait["call"]) == ("call", "1:echo")
        await decide(handle)
        assert (await ended(handle))["state"]["out"] == 4


async def test_a_plan_by_name_has_its_own_tools_and_those_of_the_run(
    server: DevServer, foreign: Foreign, tmp_path: Path
) -> None:
    (tmp_path / "welcome.yaml").write_text(
        "context:\n  - {type: tool, tool: greet}\n  - type: plan\n    plan:\n"
        "      - {_tool: greet, name: †input.name, _outputPath: †state.greeting}\n"
    )  # fmt: skip
    queue = f"{foreign.queue}-plans"
    async with engine_on(server, queue, plans=tmp_path):
        user = Foreign(foreign.client, queue, foreign.queue)
        named = call("plan", "†state.out", plan="welcome", input={"name": "Ada"})
        wrapped, asks = walk({**named, "_outputPath": "†state.output"}), {"approve": {"plan": True}}
        for planned, more in ((named, {}), (named, asks), (wrapped, asks)):
            handle = await user.start(request(user, planned, tools=(), **more))
            for _ in more:
                await decide(handle)
                assert [wait["what"] for wait in await pending(handle)] == ["plan"]  # its content
                await decide(handle)
            assert (await ended(handle))["state"]["out"] == {"greeting": "hello Ada"}
        missing = await result_of_failed(await user.start(request(user, {**named, "plan": "welcom"}, tools=())))
    assert missing["errors"][0]["code"] == "PlanNotFound"
    assert 'did you mean "welcome"' in missing["errors"][0]["message"]


def test_a_plan_by_name_that_walks_itself_stops_the_worker(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        plan = {"type": "plan", "plan": [call("plan", "†state.x", plan=other)]}
        (tmp_path / f"{name}.json").write_text(json.dumps({"context": [plan]}))
    with pytest.raises(SettingsError, match="walks itself: a → b → a"):
        read_plans([tmp_path])


async def test_an_agent_plans_one_and_its_calls_have_the_tools_of_the_run(foreign: Foreign, agents: Agents) -> None:
    inner = [call("echo", "†state.a", value="†input.n"), call("big", "†state.b", value="†state.a")]
    answer = {"calls": [walk(*inner, input={"n": 2}, until="†state.b")], "output": "†state.out.b"}
    tools = [WALK, foreign.tool("echo"), foreign.tool("big"), foreign.tool("unused")]

    async def big(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        return call["value"]

    async with foreign.serving(echo, big):
        result = await ended(await agents.start(({"tick": 1}, answer), context=tools))
    assert result["output"] == 2


async def test_it_holds_in_instances_and_what_one_may_not_do_a_plan_inside_may_not(foreign: Foreign) -> None:
    each = walk(call("echo", "†state.output", value="†state.n"), _scopes=["state"])
    rows = [own("a", n=1), own("b", n=2)]
    async with foreign.serving(echo):
        result = await foreign.run(each, context=[WALK, foreign.tool("echo"), *rows])
        assert {id_: one["state"]["out"] for id_, one in result["instances"].items()} == {"a": 1, "b": 2}
        nested = walk(walk(call("echo", "†state.output", value=1), path="†state.output"))
        refused = await result_of_failed(await foreign.start(request(foreign, nested, budget={"depth": 1})))
        spent = await result_of_failed(await foreign.start(request(foreign, nested, budget={"calls": 1})))
    assert "budget.depth" in refused["errors"][0]["message"]
    assert spent["errors"][0]["code"] == "BudgetExceeded"
