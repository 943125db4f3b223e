"""``Plan`` on a real server: started by its name with JSON, its tools plain activities on somebody else's queue."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowExecutionStatus

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, of_type, states, status, tool
from tests.workflow.tools import Gate, echo

Json = Any


async def test_an_activity_is_called_with_the_call_the_tool_and_the_context(foreign: Foreign) -> None:
    seen: list[tuple[Json, ...]] = []

    async def look(*arguments: Json) -> str:
        seen.append(arguments)
        return activity.info().activity_type

    look = activity.defn(name="look.around")(look)
    defined = tool("look", activity="look.around", options={"taskQueue": foreign.queue}, where={"type": "string"})
    planned = call("look", "†state.seen", where="†data.place", deep=[{"er": "††literal"}], _reasoningForCall="why not")
    async with foreign.serving(look):
        handle = await foreign.start(
            foreign.request(planned, context=[defined, {"type": "data", "data": {"place": "Lisbon"}}])
        )
        result = await ended(handle)
    ((given, schema, context),) = seen
    identity = given.pop("_id")
    assert given == {**planned, "where": "Lisbon", "deep": [{"er": "†literal"}]}
    assert schema == defined["tool"]
    assert context == []
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", identity)
    assert result["state"] == {"seen": "look.around"}
    (scheduled,) = await of_type(handle, "ACTIVITY_TASK_SCHEDULED")
    assert scheduled.activity_type.name == "look.around"
    assert scheduled.activity_id == "1:look"


def told(scheduled: Any) -> dict[str, Json]:
    """What history says of how patiently an Activity runs; seconds."""

    def seconds(duration: Any) -> float:
        return float(duration.ToTimedelta().total_seconds())

    retry = scheduled.retry_policy
    return {
        "queue": scheduled.task_queue.name,
        "timeout": seconds(scheduled.start_to_close_timeout),
        "wait": seconds(scheduled.schedule_to_start_timeout),
        "whole": seconds(scheduled.schedule_to_close_timeout),
        "heartbeat": seconds(scheduled.heartbeat_timeout),
        "attempts": retry.maximum_attempts,
        "interval": seconds(retry.initial_interval),
        "backoff": retry.backoff_coefficient,
        "final": {"PayloadsTooLarge"} ^ set(retry.non_retryable_error_types),
    }


DEFAULTS = {
    "timeout": 300,
    "wait": 0,
    "whole": 0,
    "heartbeat": 0,
    "attempts": 3,
    "interval": 1,
    "backoff": 2,
    "final": set(),
}
RETRY = {"maxAttempts": 7, "initialInterval": "250ms", "backoff": 1.5, "nonRetryable": ["declined", "stolen"]}
TOLD = {"attempts": 7, "interval": 0.25, "backoff": 1.5, "final": {"declined", "stolen"}}
# 0 is no limit: a Call may wait for a worker as long as the queue is long, unless its Tool says otherwise
OPTIONS: list[tuple[dict[str, Json], dict[str, Json]]] = [
    ({}, {}),
    ({"timeout": "90s"}, {"timeout": 90}),
    ({"timeout": 2.5, "queueTimeout": "2h"}, {"timeout": 2.5, "wait": 7200}),
    ({"timeout": "24h", "heartbeat": "5m"}, {"timeout": 86400, "heartbeat": 300}),
    ({"retry": RETRY}, TOLD),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS, ids=lambda o: json.dumps(o, default=str)[:30])
async def test_options_say_how_patiently_an_activity_runs(
    foreign: Foreign, options: dict[str, Json], expected: dict[str, Json]
) -> None:
    async with foreign.serving(echo):
        request = foreign.request(call("echo", "†state.a", value=1), context=[foreign.tool("echo", options=options)])
        handle = await foreign.start(request)
        await ended(handle)
    (scheduled,) = await of_type(handle, "ACTIVITY_TASK_SCHEDULED")
    assert told(scheduled) == {**DEFAULTS, "queue": foreign.queue, **expected}


async def test_a_local_activity_runs_inside_the_workflow_task(foreign: Foreign) -> None:
    request = foreign.request(
        call("count", "†state.n", items=[1, 2, 3]),
        context=[tool("count", activity="house.count", options={"local": True})],
    )
    handle = await foreign.start(request)
    assert (await ended(handle))["state"] == {"n": 3}
    assert await of_type(handle, "ACTIVITY_TASK_SCHEDULED") == []
    assert len(await of_type(handle, "MARKER_RECORDED")) == 1 + 2, "and questions: search attributes, what is served"


async def test_the_id_of_a_call_is_the_same_for_each_attempt_and_for_no_other_call_or_run(foreign: Foreign) -> None:
    seen: list[tuple[str, str]] = []

    async def flaky(call: dict[str, Json], tool: Json, context: Json) -> int:
        seen.append((call["_id"], str(activity.info().workflow_run_id)))
        if activity.info().attempt < 3:
            raise RuntimeError("not yet")
        return activity.info().attempt

    patient = foreign.tool("flaky", options={"retry": {"maxAttempts": 3, "initialInterval": "1ms"}})
    plan = [call("flaky", "†state.a"), call("flaky", "†state.b"), call("flaky", "†state.c", after="†state.a")]
    id_ = f"{foreign.queue}-twice"
    async with foreign.serving(flaky):
        for _ in range(2):  # the second run under the same workflow id is a run of its own
            handle = await foreign.start(foreign.request(*plan, context=[patient]), id=id_)
            assert (await ended(handle))["state"] == {"a": 3, "b": 3, "c": 3}
    counts = {key: len([k for k, _ in seen if k == key]) for key, _ in seen}
    assert list(counts.values()) == [3] * 6
    assert len({run for _, run in seen}) == 2


async def test_nothing_waits_for_a_whole_wave(foreign: Foreign) -> None:
    slow = Gate()
    async with foreign.serving(slow.activity(), echo):
        handle = await foreign.start(
            foreign.request(
                call("wait", "†state.slow"),
                call("echo", "†state.a", value=1),
                call("echo", "†state.b", value="†state.a"),
                call("echo", "†state.c", value="†state.b"),
            )
        )

        async def chain_is_done() -> bool:
            return states(await status(handle)).get("4:echo") == "completed"

        await assert_eventually(chain_is_done)
        # "ready" where the run has not seen a worker of the queue at its start: it looks again after 30 s
        assert states(await status(handle))["1:wait"] in ("ready", "running")
        slow.opened.set()
        assert (await ended(handle))["status"] == "completed"


async def test_a_call_without_an_output_path_is_a_run_of_its_own_that_outlives_the_plan(foreign: Foreign) -> None:
    letter = Gate()
    async with foreign.serving(letter.activity("post"), echo):
        handle = await foreign.start(
            foreign.request(call("post", to="†state.name"), call("echo", "†state.done", value=1), context=[
                {"type": "state", "name": "Ada"}
            ])
        )  # fmt: skip
        result = await ended(handle)
        assert states(result) == {"1:post": "detached", "2:echo": "completed"}
        assert result["state"] == {"name": "Ada", "done": 1}
        await letter.reached()
        child = foreign.client.get_workflow_handle(f"{handle.id}/1:post")
        found = await child.describe()
        assert (found.workflow_type, found.status) == ("Background", WorkflowExecutionStatus.RUNNING)
        assert found.parent_id == handle.id
        letter.opened.set()
        await asyncio.wait_for(child.result(), 180)
    assert letter.arrived[0]["to"] == "Ada"
    assert letter.arrived[0]["_id"]
    (scheduled,) = await of_type(child, "ACTIVITY_TASK_SCHEDULED")
    assert scheduled.activity_type.name == "post"
    assert scheduled.task_queue.name == foreign.queue
    (initiated,) = await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    assert initiated.workflow_type.name == "Background"


async def test_a_child_id_in_use_gets_the_start_of_the_run_id(foreign: Foreign) -> None:
    letter = Gate()
    async with foreign.serving(letter.activity("post")):
        first = await foreign.start(foreign.request(call("post")), id=f"{foreign.queue}-again")
        await ended(first)
        second = await foreign.start(foreign.request(call("post")), id=first.id)
        await ended(second)
        await letter.reached(2)
        letter.opened.set()
        run = second.first_execution_run_id
        assert run is not None
        for id_ in (f"{first.id}/1:post", f"{first.id}/1:post~{run[:8]}"):
            await asyncio.wait_for(foreign.client.get_workflow_handle(id_).result(), 180)
    assert letter.arrived[0]["_id"] != letter.arrived[1]["_id"]
