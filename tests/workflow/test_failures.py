"""What fails: retries, error paths, skipped calls, and a failed run that loses nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, failure, states, status, tool
from tests.workflow.tools import QUICK, echo, refuse

Json = Any


async def test_a_failure_goes_to_the_error_path_once_retries_are_spent(foreign: Foreign) -> None:
    attempts: list[int] = []

    async def break_down(call: Json, tool: Json, context: Json) -> None:
        attempts.append(activity.info().attempt)
        raise ApplicationError("out of paper", {"tray": 2}, type="jam")

    async with foreign.serving(break_down, echo):
        result = await foreign.run(
            call("break_down", "†state.page", _errorPath="†state.problem"),
            call("echo", "†state.printed", value="†state.page"),
            call("echo", "†state.told", value="†state.problem.message"),
            context=[foreign.tool("break_down", options=QUICK)],
        )
    problem = {"code": "jam", "message": "out of paper", "details": {"tray": 2}}
    assert attempts == [1, 2]
    assert result["status"] == "completed"
    assert result["state"] == {"problem": problem, "told": "out of paper"}
    assert states(result) == {"1:break_down": "completed", "2:echo": "skipped", "3:echo": "completed"}
    assert (place := result["calls"][0].pop("place")).startswith(f"{__file__}:")
    assert result["calls"][0].pop("undeclared") == f"jam in break_down ({place.rpartition(chr(47))[2]})"
    assert result["calls"][0] == {
        "id": "1:break_down", "tool": "break_down", "state": "completed", "outputPath": "†state.problem",
        "error": problem,
    }  # fmt: skip
    assert result["errors"] == []


async def test_a_failure_of_a_type_that_is_final_is_not_tried_again(foreign: Foreign) -> None:
    attempts: list[int] = []

    async def charge(call: Json, tool: Json, context: Json) -> None:
        attempts.append(activity.info().attempt)
        raise ApplicationError("stolen card", type="stolen")

    options = {"retry": {"maxAttempts": 5, "initialInterval": "1ms", "nonRetryable": ["stolen"]}}
    async with foreign.serving(charge):
        result = await foreign.run(
            call("charge", "†state.ok || †state.payFailed"), context=[foreign.tool("charge", options=options)]
        )
    assert attempts == [1]
    assert result["state"]["payFailed"]["code"] == "stolen"


@pytest.mark.parametrize("name", ["break_in_loop", "break_in_thread"])
async def test_the_stack_trace_begins_at_the_tool_and_the_server_keeps_the_failure(foreign: Foreign, name: str) -> None:
    handle = await foreign.start(
        foreign.request(
            call(name, "†state.a"), context=[tool(name, activity=name, options={"retry": {"initialInterval": "1h"}})]
        )
    )

    async def is_tried_again() -> Any:
        pending = (await handle.describe()).raw_description.pending_activities
        return next((one.last_failure for one in pending if one.attempt == 2), None)

    found = await assert_eventually(is_tried_again)
    assert found.message == "not sent"
    assert found.stack_trace.count("\n  File ") == 1
    assert found.stack_trace.splitlines()[0].endswith(f"in {name}")
    assert found.cause.message == "no connection"
    assert found.cause.cause.message == "the line is cut"
    assert "... 26 more" in found.cause.cause.stack_trace
    await handle.terminate("the test is over")


async def test_odd_failures_end_their_calls_at_once(foreign: Foreign) -> None:
    """None of them waits for the timeout of its Tool, five minutes, or keeps the history from being read."""
    final = {"retry": {"maxAttempts": 1}}
    anything: dict[str, Any] = {"how": {"type": "string"}}
    error = await foreign.failure(
        call("break_oddly", "†state.a", how="next"),
        call("break_oddly", "†state.b", how="causes"),
        call("leave", "†state.c"),
        context=[
            tool("break_oddly", activity="break_oddly", options=final, **anything),
            tool("leave", activity="leave", options=final),
        ],
    )
    assert error.message.splitlines()[1:] == [
        "- 1:break_oddly: [RuntimeError] the tool raised StopIteration: next() found nothing; give it a default",
        "- 2:break_oddly: [RuntimeError] attempt 94",
        "- 3:leave: [SystemExit] 3",
    ]


async def test_a_failed_call_skips_only_what_needs_it_and_nothing_completed_is_lost(foreign: Foreign) -> None:
    async with foreign.serving(refuse, echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.before", value=1),
                call("refuse", "†state.money"),
                call("echo", "†state.goods", value="†state.money"),
                call("echo", "†state.thanks", value="†state.goods"),
                call("refuse", "†state.more"),
                call("echo", "†state.after", value="†state.before"),
            )
        )
        error = await failure(handle)
    declined = {"code": "declined", "message": "no funds", "details": {"balance": 3}}
    assert error.type == "PlanFailed"
    assert error.message.splitlines() == [
        "2 of 6 calls failed, 2 skipped:",
        "- 2:refuse: [declined] no funds",
        "- 5:refuse: [declined] no funds",
    ]
    (result,) = error.details
    assert result["status"] == "failed"
    assert result["state"] == {"before": 1, "after": 1}
    assert result["errors"] == [{"call": "2:refuse", **declined}, {"call": "5:refuse", **declined}]
    assert list(states(result).values()) == ["completed", "failed", "skipped", "skipped", "failed", "completed"]
    assert [m["_outputPath"] for m in result["context"]] == ["†state.before", "†state.after"]
    assert (await status(handle))["phase"] == "failed"


async def test_the_result_is_exactly_what_the_protocol_says(foreign: Foreign) -> None:
    planned = [
        call("echo", "†user.name", value="†input.name", _outputMethod="set"),
        call("echo", "†state.a && †state.b", value="†user.name"),
        call("echo", value="dropped"),
    ]
    async with foreign.serving(echo):
        result = await foreign.run(*planned, context=[{"type": "input", "input": {"name": "Ada"}}])
    dates = [m.pop("_date") for m in result["context"]]
    assert all(datetime.fromisoformat(d).utcoffset() == timedelta(0) for d in dates)
    common = {"_outputMethod": "set"}
    assert result == {
        "status": "completed",
        "state": {"a": "Ada", "b": "Ada"},
        "calls": [
            {"id": "1:echo", "tool": "echo", "state": "completed", "outputPath": "†user.name"},
            {"id": "2:echo", "tool": "echo", "state": "completed", "outputPath": "†state.a && †state.b"},
            {"id": "3:echo", "tool": "echo", "state": "detached"},
        ],
        "context": [
            {"type": "data", "kind": "user", "data": {"name": "Ada"}, "_call": planned[0], "_outputPath": "†user.name"}
            | common,
            {"type": "state", "kind": "state", "state": {"a": "Ada"}, "_call": planned[1], "_outputPath": "†state.a"}
            | common,
            {"type": "state", "kind": "state", "state": {"b": "Ada"}, "_call": planned[1], "_outputPath": "†state.b"}
            | common,
        ],
        "errors": [],
        "usage": {"requests": 0, "inputTokens": 0, "outputTokens": 0, "cost": 0},
    }
