"""How many calls run at once, and what comes from outside while they do: messages, pauses, cancellation."""

from __future__ import annotations

import asyncio

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, cancelled, ended, of_type, phase, state_of, states, status
from tests.workflow.tools import Gate, Heart, echo


async def test_at_most_max_parallel_calls_run_and_they_start_in_plan_order(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity()):
        handle = await foreign.start(
            foreign.request(*[call("wait", f"†state.n{i}", value=i) for i in range(7)], maxParallel=2)
        )
        await gate.reached(2)

        async def are_shown() -> bool:
            return list(states(await status(handle)).values()) == ["running"] * 2 + ["ready"] * 5

        await assert_eventually(are_shown)
        assert len(await of_type(handle, "ACTIVITY_TASK_SCHEDULED")) == 2
        gate.opened.set()
        result = await ended(handle)
    assert gate.most <= 2
    assert result["state"] == {f"n{i}": i for i in range(7)}
    scheduled = [s.activity_id for s in await of_type(handle, "ACTIVITY_TASK_SCHEDULED")]
    assert scheduled == [f"{i + 1}:wait" for i in range(7)]


async def test_a_plan_waits_for_what_is_provided(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.a", value=["†input.name", "†user.age"]),
                call("echo", "†state.b", value=1),
                call("echo", "†state.c", value="†state.a"),
                missing="wait",
            )
        )
        await state_of(handle, "2:echo", "completed")
        waiting = await state_of(handle, "1:echo", "awaiting")
        assert waiting["waitsFor"] == ["†input.name", "†user.age"]
        await handle.signal("provide", {"type": "input", "input": {"name": "Ada"}})

        async def half() -> bool:
            waiting = await state_of(handle, "1:echo", "awaiting")
            return bool(waiting["waitsFor"] == ["†user.age"])

        await assert_eventually(half)
        await handle.signal("provide", {"type": "data", "kind": "user", "age": 36})
        result = await ended(handle)
    assert result["state"] == {"a": ["Ada", 36], "b": 1, "c": ["Ada", 36]}
    assert result["context"][:2] == [
        {"type": "input", "input": {"name": "Ada"}},
        {"type": "data", "kind": "user", "age": 36},
    ]


async def test_what_comes_with_the_start_is_not_lost(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(call("echo", "†state.a", value="†input.name"), missing="wait"),
            start_signal="provide",
            start_signal_args=[{"type": "input", "name": "Ada"}],
        )
        assert (await ended(handle))["state"] == {"a": "Ada"}


async def test_pause_starts_nothing_more_and_resume_goes_on(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity(), echo):
        handle = await foreign.start(
            foreign.request(call("wait", "†state.a", value=1), call("echo", "†state.b", value="†state.a"))
        )
        await gate.reached()
        await handle.signal("pause")
        await phase(handle, "paused")
        gate.opened.set()  # what runs goes on
        await state_of(handle, "1:wait", "completed")
        await state_of(handle, "2:echo", "ready")
        assert len(await of_type(handle, "ACTIVITY_TASK_SCHEDULED")) == 1
        await handle.signal("resume")
        assert (await ended(handle))["state"] == {"a": 1, "b": 1}


async def test_cancellation_reaches_what_runs_and_the_run_ends_canceled(foreign: Foreign) -> None:
    heart = Heart()
    async with foreign.serving(heart.activity(), echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.before", value=1),
                call("beat", "†state.a", _errorPath="†state.problem"),
                call("echo", "†state.b", value="†state.a || †state.problem"),
                context=[foreign.tool("beat", options={"heartbeat": "5s", "timeout": "1h"})],
            )
        )
        await asyncio.wait_for(heart.beating.wait(), 180)
        await state_of(handle, "1:echo", "completed")
        await handle.cancel()
        await cancelled(handle)
        await asyncio.wait_for(heart.stopped.wait(), 180)
    found = await status(handle)
    assert found["phase"] == "cancelled"
    assert list(states(found).values()) == ["completed", "cancelled", "cancelled"]
    assert await handle.query("context", {"path": "†state"}) == {"path": "†state", "value": {"before": 1}}


async def test_cancellation_while_large_inputs_are_being_started_leaves_nothing_behind(foreign: Foreign) -> None:
    """The calls of one plan may need several workflow tasks to be started; a cancellation may come between them."""
    gate = Gate()
    async with foreign.serving(gate.activity(), max_concurrent_activities=300):
        handle = await foreign.start(
            foreign.request(
                *[call("wait", f"†state.n{i}", value="†data.blob") for i in range(200)],
                context=[{"type": "data", "data": {"blob": "x" * 98_000}}],
                maxParallel=200,
            )
        )
        await gate.reached()
        await handle.cancel()
        await cancelled(handle)
        gate.opened.set()
