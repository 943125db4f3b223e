"""Instances that nobody would make on purpose, and batches of the wrong size."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.attacks.tree import Saved, delegating, own, state, tree
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, call, came_to, ended, failure, states, tool
from tests.workflow.tools import QUICK, echo

Json = Any
COPY = call("echo", "†state.copy", value="†state.text")
ODD = [
    "a/b", "a", "a/1:echo", "1:echo", "plan-1", "plan", "delegate", "/", "//", "..", ".", " a", "a ", "a b", "\ta",
    "a\n",    "\u0000", "\u0001", "\u007f", "\u001b[2J", "é", "e\u0301", "ﬁ", "fi", "Å", "\u212b",
    "A\u030a", "İ", "i̇", "ß",
    "SS",
    "😀", "👩‍👩‍👧", "\u202eabc", "\u200b", "\ufeff", "\u2028", "~", "a~", "a" * 5000, "a" * 5001, "б" * 5000,
    "b" * 899 + "é",
    "†state.text", "††", "{}", "null", "true", "0", "-1", "__proto__", "constructor", "_instance", "状態",
    "%2F", "a%2Fb",    "'; drop", "<b>", "`x`", "|", "[", "a…b", "…",
]  # fmt: skip


@pytest.mark.parametrize("per_child", [1, 7])
async def test_ids_of_any_kind_are_kept_apart(foreign: Foreign, per_child: int) -> None:
    context = [*(own(i, text=f"of {n}") for n, i in enumerate(ODD)), foreign.tool("echo")]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(COPY, context=context, instancesPerChild=per_child))
        result = await ended(handle)
    assert result["status"] == "completed", result["errors"]
    assert list(result["instances"]) == ODD
    for n, i in enumerate(ODD):
        assert result["instances"][i]["state"] == {"text": f"of {n}", "copy": f"of {n}"}


@pytest.mark.parametrize("per_child", [1, 3])
async def test_rooms_of_instances_with_odd_ids_are_kept_apart(foreign: Foreign, saved: Saved, per_child: int) -> None:
    """Where one id is made of another and the name of a call, their rooms would have the same id."""
    ids = ["a", "a/1:send", "1:send", "1:send/plan", "a/1:send/plan", "x" * 5000]
    name = saved.walked(call("echo", "†state.output", value="†input.value"), context=[foreign.tool("echo")])
    context = [*(own(i, text=f"of {n}") for n, i in enumerate(ids)), delegating("send", name)]
    calls = [call("send", "†state.sent", value="†state.text")]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*calls, context=context, instancesPerChild=per_child))
        result = await ended(handle)
    assert {i: r["state"]["sent"] for i, r in result["instances"].items()} == {i: f"of {n}" for n, i in enumerate(ids)}
    assert all(len(run.id.encode()) <= 1000 for run in (await tree(foreign.client, handle, asked=False)).values())


async def test_an_id_with_nothing_in_it_is_an_instance_or_is_refused(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(COPY, context=[own("", text="x"), own("a", text="y")]))
        try:
            result = await came_to(handle)
        except AssertionError:
            assert (await failure(handle)).type == "InvalidRequest"
        else:
            assert result["instances"][""]["state"] == {"text": "x", "copy": "x"}


@pytest.mark.parametrize("id_", [1, True, ["a"], {"a": 1}, 1.5], ids=str)
async def test_an_id_that_is_no_text_is_refused(foreign: Foreign, id_: Json) -> None:
    error = await foreign.failure(COPY, context=[{"type": "state", "state": {"text": 1}, "_instance": id_}])
    assert error.type == "InvalidRequest"


async def test_messages_of_one_id_are_one_instance_wherever_they_stand(foreign: Foreign) -> None:
    context = [own("a", text="old"), state(common=1), own("b", text="b"), own("a", text="new"), own("a", more=2)]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(COPY, context=context))
        result = await ended(handle)
    assert list(result["instances"]) == ["a", "b"]
    assert result["instances"]["a"]["state"] == {"common": 1, "text": "new", "more": 2, "copy": "new"}


@pytest.mark.parametrize("id_", ["c", "", "A", "a ", None, 1, ["a"], "†state.text", "*"], ids=repr)
@pytest.mark.parametrize("batch", [True, False])
async def test_an_unknown_instance_in_a_call_is_refused(foreign: Foreign, id_: Json, batch: bool) -> None:  # noqa: FBT001
    context = [own("a", text="x"), own("b", text="y")] if batch else [state(text="x")]
    if id_ is None:
        async with foreign.serving(echo):
            assert (await foreign.run({**COPY, "_instance": None}, context=context))["status"] == "completed"
        return
    error = await foreign.failure({**COPY, "_instance": id_}, context=context)
    assert (error.type, error.details[0][0]["code"]) == ("InvalidRequest", "unknownInstance")


async def test_an_instance_in_the_plan_of_a_definition_is_none_of_the_parents(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked({**COPY, "_instance": "a"}, context=[foreign.tool("echo"), state(text=1)])
    context = [delegating("send", name), own("a", text="x")]
    async with foreign.serving(echo):
        result = await came_to(await foreign.start(foreign.request(call("send", "†state.x"), context=context)))
    (error,) = result["errors"]
    assert error["code"] == "InvalidRequest"
    assert "unknownInstance" in error["message"]


@pytest.mark.parametrize("per_child", [1, 3])
async def test_one_instance_a_thousand_times_larger_than_the_rest(foreign: Foreign, per_child: int) -> None:
    context = [own(i, text=("x" * 1_000_000 if i == "big" else "x" * 1_000)) for i in ("a", "big", "c", "d")]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(COPY, context=context, instancesPerChild=per_child))
        result = await came_to(handle)
        found = {i: r["status"] for i, r in result["instances"].items()}
        assert {found[i] for i in ("a", "c", "d")} == {"completed"}, found
        child = foreign.client.get_workflow_handle(f"{handle.id}/d") if per_child == 1 else handle
        alone = await asyncio.wait_for(child.query("context", {"path": "†state.copy", "instance": "d"}), 60)
    assert len(alone["value"]) == 1_000
    assert found["big"] == "completed", result["errors"]


async def test_one_whose_activity_never_answers_times_out_and_the_others_finish(foreign: Foreign) -> None:
    async def dawdle(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        if call["value"] == "slow":
            await asyncio.Event().wait()
        return call["value"]

    patience = foreign.tool("dawdle", options={"timeout": "1500ms", **QUICK})
    context = [patience, *(own(i, text="slow" if i == "s" else "quick") for i in ("a", "s", "b"))]
    calls = [call("dawdle", "†state.x", value="†state.text"), call("dawdle", "†state.y", value="†state.x")]
    async with foreign.serving(dawdle, graceful_shutdown_timeout=timedelta(0)):
        result = await foreign.run(*calls, context=context, instancesPerChild=3)
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "completed", "s": "failed", "b": "completed",
    }  # fmt: skip
    assert [(e["instance"], e["code"]) for e in result["errors"]] == [("s", "timeout")]


async def test_2500_instances_come_to_an_end_and_each_has_its_own(foreign: Foreign) -> None:
    """Thoughts only: what is measured is the batch, and not a tool."""
    context = [tool("note", activity=""), *(own(f"i{n}", n=n) for n in range(2500))]
    calls = [call("note", "†state.copy", _output={"done": True})]
    handle = await foreign.start(
        foreign.request(*calls, context=context, instancesPerChild=250, model="scripted:unused", maxParallel=4)
    )
    result = await ended(handle, within=60)
    assert result["status"] == "completed"
    assert len(result["instances"]) == 2500
    assert {r["status"] for r in result["instances"].values()} == {"completed"}
    found = await handle.query("context", {"path": "†state", "instance": "i2499"})
    assert found["value"] == {"n": 2499, "copy": {"done": True}}


async def test_an_agent_whose_instances_are_named_like_its_ticks(foreign: Foreign, agents: Agents) -> None:
    context = [foreign.tool("echo"), *(own(i, text=i) for i in ("plan-1", "1:echo", "plan-1/plan-1", "</state>"))]
    async with foreign.serving(echo):
        handle = await agents.start(
            {"calls": [COPY], "output": None}, {"calls": [COPY], "output": "done"}, context=context
        )
        result = await ended(handle)
    assert result["output"] == "done"
    assert {i: r["state"]["copy"] for i, r in result["instances"].items()} == {
        i: i for i in ("plan-1", "1:echo", "plan-1/plan-1", "</state>")
    }  # fmt: skip


@pytest.mark.parametrize("per_child", [0, -1, 1.5, "2", None, 10**9], ids=repr)
async def test_a_size_of_children_that_is_none_is_refused_and_a_huge_one_is_one_child(
    foreign: Foreign, per_child: Json
) -> None:
    context = [own("a", text="x"), own("b", text="y")]
    if per_child in (10**9, None):
        async with foreign.serving(echo):
            result = await came_to(await foreign.start(foreign.request(COPY, context=context, instancesPerChild=10**9)))
        assert result["status"] == "completed"
        return
    error = await foreign.failure(COPY, context=context, instancesPerChild=per_child)
    assert error.type == "InvalidRequest"


async def test_an_instance_that_lacks_what_the_others_have_fails_alone(foreign: Foreign) -> None:
    context = [own("a", text="x"), own("b", other="y")]
    async with foreign.serving(echo):
        result = await came_to(await foreign.start(foreign.request(COPY, context=context)))
    assert states(result["instances"]["a"]) == {"1:echo": "completed"}
    assert result["instances"]["b"]["status"] == "failed"
    assert result["status"] == "partial"


async def grow(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return "x" * int(call["n"])


async def test_a_child_of_several_whose_results_are_too_large_together_loses_none(foreign: Foreign) -> None:
    context = [own(f"i{n}", n=300_000) for n in range(10)]
    async with foreign.serving(grow):
        handle = await foreign.start(
            foreign.request(call("grow", "†state.x", n="†state.n"), context=context, instancesPerChild=10)
        )
        result = await came_to(handle)
    assert {r["status"] for r in result["instances"].values()} == {"completed"}, result["errors"]


async def test_an_instance_whose_state_is_too_large_for_one_payload_keeps_what_was_completed(foreign: Foreign) -> None:
    context = [own("a", n=900_000), own("b", n=1)]
    calls = [call("grow", f"†state.x{n}", n="†state.n") for n in range(3)]
    async with foreign.serving(grow):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await came_to(handle)
    assert {i: r["status"] for i, r in result["instances"].items()} == {"a": "completed", "b": "completed"}


async def test_an_agents_instance_that_has_grown_too_large_is_a_clear_error_and_touches_no_other(
    foreign: Foreign, agents: Agents
) -> None:
    context = [foreign.tool("grow"), foreign.tool("echo"), own("a", n=900_000), own("b", n=1)]
    growing = [{"calls": [call("grow", f"†state.x{n}", n="†state.n")], "output": None} for n in range(3)]
    whole = [call("echo", "†state.all", value="†state", _instance=i) for i in ("a", "b")]
    async with foreign.serving(grow, echo):
        handle = await agents.start(
            *growing, {"calls": whole, "output": "done"}, {"calls": [], "output": "over"}, context=context
        )
        result = await ended(handle)
    (error,) = [m["data"]["error"] for m in result["context"] if m["type"] == "error"]
    assert (result["output"], error["code"]) == ("over", "PayloadTooLarge")
