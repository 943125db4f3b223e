"""Much of everything: inputs, results, states and errors near and beyond what Temporal can record, and 10,000 calls.

Nothing here may end a run from outside (terminated), wedge it (a task retried for ever), or lose what completed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workflow.foreign import Foreign, call, ended, of_type, result_of_failed, states, status, tool
from tests.workflow.tools import echo, length, text

Json = Any

NOBODY_NEEDS_SO_LONG = 120  # seconds; a bound against hanging, not an expectation


LARGE_INPUTS: dict[str, tuple[list[dict[str, Json]], dict[str, Json]]] = {
    "parameters": (
        [call("text", "†data.x", letter="x", count=1_500_000), call("text", "†data.y", letter="y", count=1_500_000)],
        {"value": "†data.x", "more": "†data.y"},
    ),
    "scopes": (
        [call("text", "†user.x", letter="x", count=1_500_000), call("text", "†user.y", letter="y", count=1_500_000)],
        {"_scopes": ["user"]},
    ),
    "parameters and scopes": (
        [call("text", "†user.x", letter="x", count=1_200_000)],
        {"value": "†user.x", "_scopes": ["user"]},
    ),
}


@pytest.mark.parametrize("detached", [False, True], ids=["awaited", "fire-and-forget"])
@pytest.mark.parametrize("name", LARGE_INPUTS)
async def test_an_input_too_large_to_record_fails_its_call_alone(foreign: Foreign, name: str, detached: bool) -> None:  # noqa: FBT001
    before, given = LARGE_INPUTS[name]
    async with foreign.serving(text, length, echo):
        handle = await foreign.start(
            foreign.request(
                *before, call("length", None if detached else "†state.n", **given), call("echo", "†state.good", value=1)
            )
        )
        result = await result_of_failed(handle)
    assert result["state"] == {"good": 1}
    (error,) = result["errors"]
    assert error["call"] == f"{len(before) + 1}:length"
    assert error["code"] == "PayloadTooLarge"
    assert "bytes" in error["message"]


async def test_of_a_state_above_two_megabytes_what_fits_is_recorded_and_the_rest_can_be_asked_for(
    foreign: Foreign,
) -> None:
    async with foreign.serving(text, length):
        plan = [call("text", f"†state.x{i}", letter="x", count=900_000) for i in range(4)]
        handle = await foreign.start(foreign.request(*plan, call("length", "†data.n", value="†state.x3")))
        result = await ended(handle)
    assert result["status"] == "completed"
    assert list(states(result)) == [f"{i}:text" for i in range(1, 5)] + ["5:length"]
    assert list(result["state"]) == ["x0"]
    assert result["omitted"]["bytes"]["state"] > 2_700_000
    (cut,) = [c for c in result["omitted"]["cut"] if c["at"] == "/state/x3"]
    assert len((await handle.query(cut["query"], cut["argument"]))["value"]) == 900_000
    for i in range(4):
        found = await handle.query("context", {"path": f"†state.x{i}"})
        assert len(found["value"]) == 900_000


async def test_pages_of_the_context_are_as_large_as_can_be_sent(foreign: Foreign) -> None:
    async with foreign.serving(text):
        plan = [call("text", f"†state.x{i}", letter="x", count=300_000) for i in range(12)]
        handle = await foreign.start(foreign.request(*plan))
        await ended(handle)
    found: list[Json] = []
    while True:
        page = await handle.query("context", {"offset": len(found)})
        assert page["messages"]
        found += page["messages"]
        if len(found) == page["total"]:
            break
    assert len(found[-1]["state"]["x11"]) == 300_000


def local(name: str) -> Json:
    return tool(name, activity=name, options={"local": True, "retry": {"maxAttempts": 1}})


async def test_a_local_result_that_no_payload_can_hold_fails_its_call(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        plan = [call("big", "†data.x", n=3_000_000, _errorPath="†data.e"), call("echo", "†state.good", value=1)]
        result = await ended(await foreign.start(foreign.request(*plan, context=[local("big")])))
    assert result["state"] == {"good": 1}
    assert result["calls"][0]["error"]["code"] in ("PayloadTooLarge", "PayloadsTooLarge")


async def test_large_local_results_arrive_one_task_each_and_their_activities_run_once(foreign: Foreign) -> None:
    plan = [call("countedBig", f"†data.x{i}", n=1_400_000) for i in range(4)]
    handle = await foreign.start(foreign.request(*plan, context=[local("countedBig")]))
    result = await ended(handle)
    assert result["status"] == "completed"
    for i in range(4):
        found = await handle.query("context", {"path": f"†data.x{i}.text"})
        assert len(found["value"]) == 1_400_000
        assert (await handle.query("context", {"path": f"†data.x{i}.runs"}))["value"] == 1
    assert len(await of_type(handle, "ACTIVITY_TASK_SCHEDULED")) == 4


@pytest.mark.long
@pytest.mark.slow
async def test_ten_thousand_calls(foreign: Foreign) -> None:
    """A fan-out wider than ``maxParallel``, thoughts that came with their answers, readers of both, and a join."""
    plan = [call("echo", f"†state.n{i}", value=i) for i in range(200)]
    plan += [call("think", f"†data.t{i}", _output=i) for i in range(9_700)]
    plan += [call("echo", f"†state.m{i}", value=[f"†state.n{i * 2}", f"†data.t{i}"]) for i in range(99)]
    plan += [call("length", "†user.sum", value="†input.word", _scopes=["†state.m98"])]
    context = [tool("think", activity=""), {"type": "input", "word": "word"}]
    async with foreign.serving(echo, length, max_concurrent_activities=100):
        request = foreign.request(*plan, context=context, maxParallel=100, model="scripted:none")
        handle = await foreign.start(request)
        result = await ended(handle, within=NOBODY_NEEDS_SO_LONG)
    assert result["status"] == "completed"
    assert result["state"]["n199"] == 199
    assert result["state"]["m98"] == [196, 98]
    seen = {"type": "state", "state": {"m98": [196, 98]}}
    sum_ = {"path": "†user.sum", "value": 4 + len(json.dumps(seen))}
    assert await handle.query("context", {"path": "†user.sum"}) == sum_
    assert await handle.query("context", {"path": "†data.t9699"}) == {"path": "†data.t9699", "value": 9699}
    assert list(states(await status(handle)).values()) == ["completed"] * 10_000
