"""The Loop on a real server: ask, walk, ask again, until an output stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflow.agents import Agents, prompts
from tests.workflow.foreign import Foreign, call, tool

Json = Any
INPUT = {"type": "input", "input": {"customerId": "cust_123", "amount": 50}}


async def history(call: dict[str, Any], tool: Json, context: Json) -> Json:
    return {"orders": 5, "customer": call["customerId"]}


async def refund(call: dict[str, Any], tool: Json, context: Json) -> Json:
    return {"id": f"refund-{call['amount']}"}


@pytest.mark.parametrize(
    ("solution", "code"),
    [
        ({"calls": [call("nope", "†state.x")]}, "unknownTool"),
        ({"output": {"wrong": 1}}, "SchemaMismatch"),
        ({"text": "[1, 2]"}, "invalidSolution"),
    ],
)  # fmt: skip
async def test_a_solution_that_does_not_validate_is_not_run_and_goes_back_as_an_error(
    agents: Agents, foreign: Foreign, solution: Json, code: str
) -> None:
    result = await agents.run(
        solution,
        ({"tick": 2, "says": [code]}, {"output": {"done": True}}),
        context=[foreign.tool("refund")],
        schema={"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]},
    )
    assert result["output"] == {"done": True}
    assert result["ticks"] == 2
    assert result["calls"] == []
    assert code in [m["data"]["error"]["code"] for m in result["context"] if m["type"] == "error"]


async def test_of_many_tools_a_planner_asks_for_the_schemas_that_it_needs_and_keeps_them(
    agents: Agents, foreign: Foreign
) -> None:
    others = [tool(f"other{i}", activity="x", secret={"type": "string"}) for i in range(9)]
    later = {"says": ['"amount":{"anyOf"'], "lacks": ['"secret"']}
    async with foreign.serving(refund):
        result = await agents.run(
            ({"tick": 1, "says": ["other7"], "lacks": later["says"]}, {"solution": {"tools": ["refund"]}}),
            (
                {"tick": 2, **later, "says": [*later["says"], '"outcome":"described"']},
                {"calls": [call("refund", "†state.paid", amount="†input.amount")], "output": None},
            ),
            ({"tick": 3, **later}, {"output": "†state.paid.id"}),
            context=[INPUT, foreign.tool("refund", amount={"type": "number"}), *others],
            tools={"search": 5},
        )
    assert (result["output"], result["ticks"], result["usage"]["requests"]) == ("refund-50", 3, 3)


async def test_what_is_not_json_is_mended_in_a_second_turn_of_the_same_tick(agents: Agents) -> None:
    result = await agents.run(
        ({"says": ["That answer cannot be used"]}, {"output": "mended"}),
        ({"tick": 1}, {"text": "Sure! Here is your answer"}),
        context=[INPUT],
    )
    assert (result["output"], result["ticks"], result["usage"]["requests"]) == ("mended", 1, 2)


async def test_steps_of_one_call_keep_the_whole_plan_in_sight(agents: Agents, foreign: Foreign) -> None:
    plan = [call("history", "†state.history", customerId="†input.customerId"), call("refund", amount="†input.amount")]
    async with foreign.serving(history, refund):
        result = await agents.run(
            {"calls": plan, "output": "too early"},
            (
                {"tick": 2, "says": ["<outcomes>", '"_tool":"refund"', '"orders":5']},
                {"calls": plan[1:], "output": "paid"},
            ),
            context=[INPUT, foreign.tool("history"), foreign.tool("refund")],
            step="call",
        )
    assert result["output"] == "paid"
    assert [(c["tick"], c["id"], c["state"]) for c in result["calls"]] == [
        (1, "1:history", "completed"), (2, "1:refund", "detached"),
    ]  # fmt: skip
    assert result["context"][0]["plan"] == plan


async def test_limits_end_the_run_and_keep_what_was_done(agents: Agents, foreign: Foreign) -> None:
    again = ({}, {"calls": [call("refund", "†state.a", amount=1)]})
    context = [foreign.tool("refund")]
    async with foreign.serving(refund):
        for config, words in (
            ({"maxTicks": 2}, "maxTicks 2"),
            ({"budget": {"requests": 2}}, "2 requests"),
            ({"budget": {"calls": 2}}, "2 calls"),
            ({"budget": {"tokens": 5_000}}, "5,000 tokens"),
        ):
            error = await agents.failure(again, context=context, **config)
            assert error.type == "LimitExceeded"
            assert words in str(error)
            (result,) = error.details
            assert result["status"] == "failed"
            assert result["state"] == {"a": {"id": "refund-1"}}
            assert result["errors"][-1]["code"] == "LimitExceeded"


async def test_latent_calls_are_answered_by_the_planner_or_by_requests_of_their_own(
    agents: Agents, foreign: Foreign
) -> None:
    summarize = tool("summarize", activity=None, text={"type": "string"})
    summarize["tool"]["properties"]["_output"] = {"type": "string"}
    async with foreign.serving(history):
        result = await agents.run(
            {"calls": [
                call("summarize", "†state.known", text="short", _output="a short text"),
                call("history", "†state.history", customerId="†input.customerId"),
                call("summarize", "†state.later", text="†state.history.customer", _output="a guess"),
            ], "output": {"known": "†state.known", "later": "†state.later"}},
            ({"tool": "summarize", "says": ['"text":"cust_123"']},
             {"output": "about a customer", "path": "†state.later"}),
            context=[INPUT, foreign.tool("history"), summarize],
        )  # fmt: skip
    assert result["output"] == {"known": "a short text", "later": "about a customer"}
    assert result["usage"]["requests"] == 2


async def test_no_prompt_is_in_history(agents: Agents, foreign: Foreign) -> None:
    secret = "planted-" * 2_000
    async with foreign.serving(refund):
        handle = await agents.start(
            {"calls": [call("refund", "†state.a", amount=1)]}, {"output": "†state.a.id"},
            context=[{"type": "data", "data": {"large": secret}}, foreign.tool("refund")],
        )  # fmt: skip
        await handle.result()
    asked = await prompts(handle)
    assert [a.get("tick", 1) for a in asked] == [1, 2]
    assert all("planted" not in str(a) for a in asked)
