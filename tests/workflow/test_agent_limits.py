"""What may come at an agent in mid-loop: messages, pauses, a cancellation, limits, a worker that goes away."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError

from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    cancelled,
    decide,
    ended,
    failure,
    phase,
    state_of,
    status,
    tool,
)
from tests.workflow.tools import Gate

Json = Any
WORD = {"type": "input", "input": {"word": "provided-word"}}


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def quick(call: dict[str, Any], tool: Json, context: Json) -> Json:
    return call.get("x")


# -- messages from outside ---------------------------------------------------------


async def test_a_message_that_came_while_a_plan_is_walked_is_shown_in_the_next_tick(
    agents: Agents, foreign: Foreign, gate: Gate
) -> None:
    async with foreign.serving(gate.activity("hold")):
        handle = await agents.start(
            {"calls": [call("hold", "†state.a")]}, ({"tick": 2, "says": ["provided-word"]}, {"output": "†input.word"}),
            context=[foreign.tool("hold")],
        )  # fmt: skip
        await gate.reached()
        await handle.signal("provide", WORD)
        gate.opened.set()
        assert (await ended(handle))["output"] == "provided-word"


async def test_a_call_that_waits_for_data_goes_on_when_the_agent_is_provided_with_it(
    agents: Agents, foreign: Foreign
) -> None:
    async with foreign.serving(quick):
        handle = await agents.start(
            {"calls": [call("quick", "†state.a", x="†input.word")], "output": "†state.a"},
            context=[foreign.tool("quick")], missing="wait",
        )  # fmt: skip
        child = foreign.client.get_workflow_handle(f"{handle.id}/plan-1")
        await phase(handle, "running")
        await assert_eventually(lambda: _runs(child), why="the plan of the first tick")
        await state_of(child, "1:quick", "awaiting")
        await handle.signal("provide", WORD)
        assert (await ended(handle))["output"] == "provided-word"


WORDS = {"type": "text", "text": "Only half of it, please."}


async def test_what_is_provided_now_stops_what_has_not_started_and_the_agent_plans_again_with_the_users_words(
    agents: Agents, foreign: Foreign, gate: Gate
) -> None:
    plan = [call("hold", "†state.a"), call("quick", "†state.b", x="†state.a"), call("quick", "†state.c", x=1)]
    says = ["<text>\nOnly half", '"call":"1:hold","outcome":"completed"', '"2:quick"', '"outcome":"not run"']
    async with foreign.serving(gate.activity("hold"), quick):
        handle = await agents.start(
            {"calls": plan, "output": "†state.b"},
            ({"tick": 2, "says": [*says, '"wrote":{"†state.c":1}']}, {"output": "half"}),
            context=[foreign.tool("hold"), foreign.tool("quick")],
        )
        await gate.reached()
        child = foreign.client.get_workflow_handle(f"{handle.id}/plan-1")
        await state_of(child, "3:quick", "completed")
        await handle.execute_update("provide", {**WORDS, "when": "now"})
        await state_of(child, "2:quick", "cancelled")
        gate.opened.set()
        result = await ended(handle)
    assert (result["output"], result["ticks"]) == ("half", 2)
    assert [(c["id"], c["state"]) for c in result["calls"]] == [("1:hold", "completed"), ("3:quick", "completed")]


async def test_what_is_provided_now_reaches_the_children_that_walk_instances(
    agents: Agents, foreign: Foreign, gate: Gate
) -> None:
    orders = [{"type": "data", "kind": "order", "data": {"id": i}, "_instance": i} for i in ("o1", "o2")]
    plan = [call("hold", "†state.a"), call("quick", "†state.b", x="†state.a")]
    async with foreign.serving(gate.activity("hold"), quick):
        handle = await agents.start(
            {"calls": plan, "output": None},
            (
                {"tick": 2, "says": ["<text>\nOnly half"], "lacks": ['"2:quick","outcome":"completed"']},
                {"output": "ok"},
            ),
            context=[foreign.tool("hold"), foreign.tool("quick"), *orders],
        )
        await gate.reached(2)
        await handle.execute_update("provide", {**WORDS, "when": "now"})
        for i in ("o1", "o2"):
            await state_of(foreign.client.get_workflow_handle(f"{handle.id}/plan-1/{i}"), "2:quick", "cancelled")
        gate.opened.set()
        result = await ended(handle)
    assert (result["output"], result["status"]) == ("ok", "completed")
    assert {i: [c["state"] for c in own["calls"]] for i, own in result["instances"].items()} == {
        "o1": ["completed"], "o2": ["completed"],
    }  # fmt: skip


@pytest.mark.parametrize("when", ["next", "now"])
async def test_words_withdraw_a_plan_that_waits_for_a_person_now_or_are_answered_after_it(
    agents: Agents, foreign: Foreign, when: str
) -> None:
    async with foreign.serving(quick):
        handle = await agents.start(
            {"calls": [call("quick", "†state.a", x=1)], "output": "†state.a"},
            ({"tick": 2, "says": ["Only half", "not run" if when == "now" else "completed"]}, {"output": "heard"}),
            context=[foreign.tool("quick")], approve={"plan": True},
        )  # fmt: skip
        await phase(handle, "awaiting")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("provide", {**WORDS, "when": "later"})
        assert '"when" is "next" (after the tick) or "now"' in str(refused.value.cause)
        if when == "next":
            await handle.signal("provide", WORDS)
            await decide(handle, "approve")
        else:
            await handle.execute_update("provide", {**WORDS, "when": when})
        assert (await ended(handle))["output"] == "heard"


async def _runs(handle: Handle) -> bool:
    from temporalio.service import RPCError

    try:
        return bool((await status(handle))["calls"])
    except RPCError:
        return False


# -- pause, resume, cancel ---------------------------------------------------------


async def test_a_pause_holds_back_the_next_call_and_the_next_tick(agents: Agents, foreign: Foreign, gate: Gate) -> None:
    async with foreign.serving(gate.activity("hold"), quick):
        handle = await agents.start(
            {"calls": [call("hold", "†state.a"), call("quick", "†state.b", x="†state.a")]}, {"output": "†state.b"},
            context=[foreign.tool("hold"), foreign.tool("quick")],
        )  # fmt: skip
        await gate.reached()
        await handle.signal("pause")
        child = foreign.client.get_workflow_handle(f"{handle.id}/plan-1")
        await phase(child, "paused")
        gate.opened.set()
        await state_of(child, "2:quick", "ready")
        await handle.signal("resume")
        assert (await ended(handle))["output"] == "through"


async def test_cancelling_an_agent_cancels_the_plan_that_it_walks(agents: Agents, foreign: Foreign, gate: Gate) -> None:
    async with foreign.serving(gate.activity("hold")):
        handle = await agents.start({"calls": [call("hold", "†state.a")]}, context=[foreign.tool("hold")])
        await gate.reached()
        await handle.cancel()
        child = foreign.client.get_workflow_handle(f"{handle.id}/plan-1")
        await phase(child, "cancelled")
        gate.opened.set()
        await cancelled(handle)
        await cancelled(child)
    assert (await status(handle))["phase"] == "cancelled"


# -- limits --------------------------------------------------------------------------


async def test_latent_calls_of_a_tick_spend_the_budget_of_the_agent(agents: Agents) -> None:
    think = tool("think", activity="", i={"type": "integer"})
    handle = await agents.start(
        {"calls": [call("think", f"†state.a{i}", i=i) for i in range(3)]},
        *(({"tool": "think", "says": [f'"i":{i}}}']}, {"output": i, "path": f"†state.a{i}"}) for i in range(3)),
        context=[think],
        budget={"requests": 3},
    )
    error = await failure(handle)
    (result,) = error.details
    assert error.type == "LimitExceeded"
    assert result["usage"]["requests"] == 3
    assert [c["state"] for c in result["calls"]] == ["completed", "completed", "failed"]
    assert [e["code"] for e in result["errors"]] == ["BudgetExceeded", "LimitExceeded"]
    assert all("the budget of 3 requests is spent" in e["message"] for e in result["errors"])  # what was set


async def test_an_answer_that_is_too_large_to_be_recorded_is_not_asked_for_again(agents: Agents) -> None:
    handle = await agents.start({"output": "x" * 2_200_000}, context=[{"type": "text", "text": "Go."}])

    async def decided() -> bool:
        found = await handle.describe()
        again = any(a.attempt > 1 for a in found.raw_description.pending_activities)
        return again or found.status != WorkflowExecutionStatus.RUNNING

    await assert_eventually(decided, why="another attempt, or the end")
    found = await handle.describe()
    if found.status == WorkflowExecutionStatus.RUNNING:
        await handle.terminate("the test is over")
    assert found.status != WorkflowExecutionStatus.RUNNING


async def test_a_lazy_agent_leaves_branches_open_and_asks_when_it_runs(agents: Agents) -> None:
    think, write = tool("think", activity=""), tool("write", activity="")
    result = await agents.run(
        {"calls": [
            call("think", "†state.yes || †state.no"),
            call("write", "†state.letter", x="†state.yes"),
            call("write", "†state.letter", x="†state.no", _output="guess"),
        ], "output": "†state.letter"},
        ({"tool": "think", "lacks": ["Only plan"]}, {"output": "why not", "path": "†state.no"}),
        ({"tool": "write", "says": ['"x":"why not"']}, {"output": "Dear …", "path": "†state.letter"}),
        context=[think, write, {"type": "plan", "plan": [], "mode": "lazy"}], approve={"plan": False},
    )  # fmt: skip
    assert result["output"] == "Dear …"
    assert [c["state"] for c in result["calls"]] == ["completed", "skipped", "completed"]
    assert result["usage"]["requests"] == 3
    assert next(m for m in result["context"] if m["type"] == "plan")["mode"] == "lazy"
