"""What a run tells of itself, and what it finds out about the worker."""

from __future__ import annotations

import json
from typing import Any

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, of_type, status, tool
from tests.workflow.tools import Gate, echo

Json = Any


async def test_queries_tell_of_a_run_while_it_goes_on_and_afterwards(foreign: Foreign) -> None:
    gate = Gate()
    planned = [
        call("echo", "†state.a", value="†input.name"),
        call("wait", "†state.b", value="†state.a"),
        call("echo", "†state.c", value="†state.b"),
    ]
    given = {"type": "input", "input": {"name": "Ada"}}
    async with foreign.serving(gate.activity(), echo):
        request = foreign.request(*planned, context=[given])
        handle = await foreign.start(request)
        await gate.reached()
        expected = {
            "phase": "running",
            "calls": [
                {"id": "1:echo", "tool": "echo", "state": "completed", "outputPath": "†state.a"},
                {"id": "2:wait", "tool": "wait", "state": "running"},
                {"id": "3:echo", "tool": "echo", "state": "pending"},
            ],
            "usage": {"requests": 0, "inputTokens": 0, "outputTokens": 0, "cost": 0},
        }

        async def is_told() -> bool:  # a moment after the Activity has begun
            told = await status(handle)
            assert told == expected
            return True

        await assert_eventually(is_told)
        assert await handle.query("plan") == planned
        messages = await handle.query("context")
        assert messages[: len(request["context"])] == request["context"]
        assert [m["state"] for m in messages[len(request["context"]) :]] == [{"a": "Ada"}]
        assert await handle.query("pending") == []
        drawn = await handle.query("graph")
        assert drawn.startswith("flowchart")
        assert all(id_ in drawn for id_ in ("1:echo", "2:wait", "3:echo"))
        gate.opened.set()
        result = await ended(handle)
    after = await status(handle)
    assert (after["phase"], after["calls"]) == ("completed", result["calls"])
    assert await handle.query("plan") == planned
    assert await handle.query("context") == [*request["context"], *result["context"]]
    assert await handle.query("pending") == []
    assert await handle.query("graph") != drawn


async def test_the_context_is_read_in_pages_and_at_paths(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        request = foreign.request(
            *[call("echo", "†state.list", value=i, _outputMethod="push") for i in range(5)],
            context=[{"type": "input", "name": "Ada"}],
        )
        handle = await foreign.start(request)
        result = await ended(handle)
    everything = [*request["context"], *result["context"]]
    for page, expected in [
        ({"offset": 0, "limit": 2}, everything[:2]),
        ({"offset": 3, "limit": 2}, everything[3:5]),
        ({"offset": 7}, everything[7:]),
        ({"offset": 99, "limit": 2}, []),
    ]:
        found = await handle.query("context", page)
        assert found == {"messages": expected, "offset": page["offset"], "total": len(everything)}
    answers: list[tuple[str, dict[str, Json]]] = [
        ("†state", {"value": {"list": [0, 1, 2, 3, 4]}}),
        ("†state.list[3]", {"value": 3}),
        ("†state.nothing", {"absent": True}),
        ("†state.nothing || †input.name", {"value": "Ada"}),
    ]
    for path, answer in answers:
        assert await handle.query("context", {"path": path}) == {"path": path, **answer}
    assert "column 2" in (await handle.query("context", {"path": "†"}))["error"]


async def test_a_tool_may_be_named_that_the_worker_has(foreign: Foreign) -> None:
    request = {
        "context": [
            {"type": "tool", "tool": "greet"},
            {"type": "tool", "tool": "Tool.tally"},
            {"type": "plan", "plan": [call("greet", "†state.hello", name="Ada"), {"_tool": "tally", "items": [1, 2]}]},
        ]
    }
    handle = await foreign.start(request)
    result = await ended(handle)
    assert result["state"] == {"hello": "hello Ada", "tally": 2}
    marker, _ = await of_type(handle, "MARKER_RECORDED")  # the second one asks for search attributes
    looked_up = json.loads(marker.details["result"].payloads[0].data)
    assert set(looked_up["tools"]) == {"greet", "tally"}
    assert looked_up["served"] == ["greet", "house.count"]  # by its name, and what the tool names
    assert [s.activity_type.name for s in await of_type(handle, "ACTIVITY_TASK_SCHEDULED")] == ["greet", "house.count"]


async def test_a_tool_without_an_activity_runs_the_one_of_its_name_where_the_worker_has_it(foreign: Foreign) -> None:
    found = await foreign.run(
        call("greet", "†state.a", name="Ada"), context=[tool("greet", activity=None, name={"type": "string"})]
    )
    assert found["state"] == {"a": "hello Ada"}
    error = await foreign.failure(
        call("greet", "†state.a", name="Ada"), context=[tool("greet", activity="", name={"type": "string"})]
    )
    assert [p["code"] for p in error.details[0]] == ["noModel"]
    error = await foreign.failure(call("nobody", "†state.a"), context=[tool("nobody", activity=None)])
    assert [p["code"] for p in error.details[0]] == ["noModel"]
