"""Much of everything: inputs, results, states and errors near and beyond what Temporal can record, and 10,000 calls.

Nothing here may end a run from outside (terminated), wedge it (a task retried for ever), or lose what completed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflow.foreign import (
    Foreign,
    call,
    ended,
    of_type,
    result_of_failed,
    states,
    status,
    tool,
)
from tests.workflow.tools import echo

Json = Any

NOBODY_NEEDS_SO_LONG = 120  # seconds; a bound against hanging, not an expectation


async def fails(call: Json, tool: Json, context: Json) -> None:
    raise ApplicationError("no" * call["size"], "x" * call["size"], type="declined", non_retryable=True)


async def text(call: Json, tool: Json, context: Json) -> str:
    return str(call["letter"] * call["count"])


async def length(call: Json, tool: Json, context: list[Json]) -> int:
    return len(call.get("value", "")) + sum(len(json.dumps(m)) for m in context)


# -- large inputs --------------------------------------------------------------------


async def test_sixty_calls_with_98_kb_each_start_at_once(foreign: Foreign) -> None:
    async with foreign.serving(length):
        result = await foreign.run(
            *[call("length", f"†state.n{i}", value="†data.blob") for i in range(60)],
            context=[{"type": "data", "data": {"blob": "x" * 98_000}}],
        )
    assert result["state"] == {f"n{i}": 98_000 for i in range(60)}


async def test_a_value_of_nearly_two_megabytes_goes_from_call_to_call(foreign: Foreign) -> None:
    async with foreign.serving(text, length):
        result = await foreign.run(
            call("text", "†data.x", letter="x", count=1_900_000), call("length", "†state.n", value="†data.x")
        )
    assert result["state"] == {"n": 1_900_000}


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


# -- large results -------------------------------------------------------------------


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


async def test_a_failed_run_with_a_large_state_in_another_alphabet_still_ends(foreign: Foreign) -> None:
    """What JSON in ASCII writes in six bytes is one letter of two."""
    plan = [call("text", f"†state.x{i}", letter="ю", count=150_000) for i in range(3)]
    async with foreign.serving(text, fails):
        handle = await foreign.start(foreign.request(*plan, call("fails", "†state.y", size=1)))
        result = await result_of_failed(handle)
    assert [e["call"] for e in result["errors"]] == ["4:fails"]
    assert await handle.query("context", {"path": "†state.x2"}) == {"path": "†state.x2", "value": "ю" * 150_000}


@pytest.mark.parametrize("path", ["†state.problem", None], ids=["with a large state", "without any"])
async def test_many_failures_with_large_details_still_end_the_run(foreign: Foreign, path: str | None) -> None:
    async with foreign.serving(fails, echo):
        plan = [call("fails", f"†state.x{i}", size=20_000) for i in range(120)]
        if path is not None:
            plan = [{**c, "_errorPath": f"{path}{i}"} for i, c in enumerate(plan)]
        handle = await foreign.start(foreign.request(*plan, call("echo", "†data.good", value=1)))
        result = await (result_of_failed(handle) if path is None else ended(handle))
    assert result["status"] == ("failed" if path is None else "completed")
    assert await handle.query("context", {"path": "†data.good"}) == {"path": "†data.good", "value": 1}
    assert len((await status(handle))["calls"]) == 121


# -- local activities ----------------------------------------------------------------


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


async def test_a_thousand_local_calls_take_a_few_tasks_and_no_ordinary_activity(foreign: Foreign) -> None:
    plan = [call("small", f"†data.n{i}", n=i) for i in range(1_000)]
    handle = await foreign.start(foreign.request(*plan, context=[local("small")], maxParallel=1_000))
    result = await ended(handle, within=NOBODY_NEEDS_SO_LONG)
    assert result["status"] == "completed"
    assert await of_type(handle, "ACTIVITY_TASK_SCHEDULED") == []
    assert len(await of_type(handle, "MARKER_RECORDED")) == 1_000 + 1, "and the question for search attributes"


async def test_each_attempt_of_a_local_activity_has_its_arguments_in_the_next_task_too(foreign: Foreign) -> None:
    retry = {"maxAttempts": 2, "initialInterval": "101ms"}  # a timer, which ends the workflow task
    again = tool("again", activity="secondTime", options={"local": True, "retry": retry})
    handle = await foreign.start(foreign.request(call("again", "†state.x", n=1), context=[again]))
    assert (await ended(handle))["state"] == {"x": [1, "object", []]}
    assert len(await of_type(handle, "TIMER_FIRED")) == 1


async def test_a_local_failure_with_large_details_reaches_its_error_path(foreign: Foreign) -> None:
    plan = [call("loud", f"†data.x{i}", n=1_200_000, _errorPath=f"†state.e{i}") for i in range(2)]
    result = await ended(await foreign.start(foreign.request(*plan, context=[local("loud")])))
    assert [result["state"][f"e{i}"]["code"] for i in range(2)] == ["loud", "loud"]


# -- many calls ---------------------------------------------------------------------


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
