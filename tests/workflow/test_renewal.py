"""Continue-as-new: a run whose history is long enough hands over to a new one, and nobody notices."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.activities.shipped_tools import PLAN, WAIT_TOOL
from acts.cli.dev.temporal_server import DevServer
from acts.machines import lifetime
from acts.worker.plugin import build_replayer
from acts.workflows import payloads
from tests.crash.resets import reset, reset_points
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on, renewing_server
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    phase,
    result_of_failed,
    run_chain,
    state_of,
    states,
    status,
    tool,
)
from tests.workflow.tools import Gate, echo, refuse

Json = Any


@pytest.fixture(scope="module")
def impatient() -> Iterator[DevServer]:
    with renewing_server(50) as running:
        yield running


@pytest.fixture
async def hasty(impatient: DevServer, task_queue: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Foreign]:
    """A user of it, and a worker of the engine that makes a free moment for a new run after 60 events."""
    monkeypatch.setattr(lifetime, "DRAIN_EVENTS", 60)
    client = await Client.connect(impatient.address, namespace=impatient.namespace)
    async with engine_on(impatient, f"engine-{task_queue}") as engine:
        yield Foreign(client, engine, task_queue)


async def noise(call: Json, tool: Json, context: Json) -> str:
    return base64.b64encode(random.randbytes(900_000)).decode()  # noqa: S311


def chains(count: int, length: int) -> list[dict[str, Json]]:
    """Several chains side by side, so that hardly ever nothing runs."""
    return [call("echo", f"†data.c{c}.n{i + 1}", value=f"†data.c{c}.n{i}") for i in range(length) for c in range(count)]


def heads(count: int) -> dict[str, Json]:
    return {"type": "data", "data": {f"c{c}": {"n0": c} for c in range(count)}}


async def renewed(user: Foreign, handle: Handle) -> None:
    """There is more than one run, or soon will be."""

    async def several() -> bool:
        return len(await run_chain(user.client, handle.id)) > 1

    await assert_eventually(several)


async def test_a_long_run_continues_as_new_and_nobody_notices(hasty: Foreign) -> None:
    identities: list[str] = []
    letter = Gate()

    async def echo(call: dict[str, Json], tool: Json, context: Json) -> Json:
        identities.append(call["_id"])
        return call["value"]

    async with hasty.serving(echo, letter.activity("post"), refuse):
        extra = [call("post"), call("refuse", "†state.ok", _errorPath="†state.problem")]
        handle = await hasty.start(hasty.request(*extra, *chains(4, 15), context=[heads(4)]))
        result = await ended(handle)
        letter.opened.set()
    assert states(result)["1:post"] == "detached"
    assert result["state"] == {"problem": {"code": "declined", "message": "no funds", "details": {"balance": 3}}}
    assert [m["data"] for m in result["context"][-4:]] == [{f"c{c}": {"n15": c}} for c in range(4)]
    assert len(set(identities)) == len(identities) == 60
    assert len(result["context"]) == 61
    assert (await status(handle))["phase"] == "completed"

    await renewed(hasty, handle)


async def test_pauses_and_what_was_provided_outlive_a_new_run(hasty: Foreign) -> None:
    async with hasty.serving(echo):
        handle = await hasty.start(
            hasty.request(
                *chains(3, 8), call("echo", "†state.x", value=["†input.name", "†user.age"]), context=[heads(3)],
                missing="wait",
            )
        )  # fmt: skip
        await handle.signal("provide", {"type": "input", "name": "Ada"})

        async def rests() -> bool:
            found = await status(handle)
            (last,) = [c for c in found["calls"] if c["id"] == "25:echo"] or [{}]  # none before the run has begun
            done = [c for c in found["calls"] if c["state"] == "completed"]
            return len(done) == 24 and last.get("waitsFor") == ["†user.age"]

        await assert_eventually(rests)
        await handle.signal("pause")
        await handle.signal("provide", {"type": "data", "kind": "user", "age": 36})
        await state_of(handle, "25:echo", "ready")
        assert (await status(handle))["phase"] == "paused"
        await handle.signal("resume")
        result = await ended(handle)
    assert result["state"] == {"x": ["Ada", 36]}

    await renewed(hasty, handle)


@pytest.mark.long
async def test_a_run_too_large_to_carry_over_goes_on_as_it_is(hasty: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "LAST_EVENTS", 60)
    loud = [call("noise", f"†state.x{i}") for i in range(3)]
    async with hasty.serving(noise, echo):
        handle = await hasty.start(hasty.request(*loud, *chains(6, 10), context=[heads(6)]))
        result = await ended(handle)
    assert result["status"] == "completed"
    assert await handle.query("context", {"path": "†data.c5.n10"}) == {"path": "†data.c5.n10", "value": 5}


@pytest.mark.long
async def test_a_wait_keeps_its_end_in_a_new_run_and_after_a_reset(hasty: Foreign) -> None:
    wait = {"type": "tool", "tool": WAIT_TOOL}
    calls = [call("wait", "†state.due", **{"for": "4s"}), call("echo", "†state.late", value="†state.due")]
    async with hasty.serving(echo):
        handle = await hasty.start(hasty.request(*calls, *chains(4, 15), context=[wait, heads(4)]))
        first = (await state_of(handle, "1:wait", "running"))["waitsUntil"]
        await renewed(hasty, handle)
        await state_of(handle, "62:echo", "completed")
        latest = hasty.client.get_workflow_handle(handle.id)
        points = await assert_eventually(lambda: reset_points(latest), why="the latest run has ended a task")
        await reset(hasty.client, handle.id, points[-1])
        result = await ended(hasty.client.get_workflow_handle(handle.id))
    assert result["state"] == {"due": first, "late": first}
    written = next(m for m in result["context"] if m["_call"]["_tool"] == "wait")
    assert written["_date"] >= first


async def test_a_plan_inside_another_ends_by_its_condition_in_a_new_run(hasty: Foreign) -> None:
    inner = call("plan", "†state.out", plan=chains(2, 40), input={}, _scopes=["data"], until="†data.c0.n35")
    async with hasty.serving(echo):
        context = [{"type": "tool", "tool": PLAN}, hasty.tool("echo"), heads(2)]
        handle = await hasty.start(hasty.request(inner, context=context))
        assert (await ended(handle))["state"] == {"out": {}}
    inside = hasty.client.get_workflow_handle(f"{handle.id}/1:plan/plan")
    await renewed(hasty, inside)
    assert list(states(await ended(inside)).values())[-2:] == ["cancelled", "cancelled"]


async def test_no_message_is_lost_around_a_new_run(hasty: Foreign) -> None:
    names = [f"n{i}" for i in range(40)]
    async with hasty.serving(echo):
        waiting = [call("echo", f"†state.{n}", value=f"†input.{n}") for n in names]
        handle = await hasty.start(hasty.request(*waiting, *chains(2, 30), context=[heads(2)], missing="wait"))
        for i, name in enumerate(names):
            await handle.signal("provide", {"type": "input", "input": {name: i}})
        result = await ended(handle)
    assert result["state"] == {name: i for i, name in enumerate(names)}
    await renewed(hasty, handle)


async def test_a_run_that_continued_as_new_is_resumed_by_one_that_does(hasty: Foreign) -> None:
    ids: dict[str, list[int]] = {}
    broken = {25}

    async def count(call: dict[str, Json], tool: Json, context: Json) -> int:
        ids.setdefault(call["_id"], []).append(call["n"])
        if call["n"] in broken:
            raise ApplicationError("not now", type="notNow", non_retryable=True)
        return int(call["n"])

    chain = [call("count", f"†state.n{n}", n=n, **({"after": f"†state.n{n - 1}"} if n else {})) for n in range(50)]
    async with hasty.serving(count):
        first = await hasty.start(hasty.request(*chain))
        await result_of_failed(first)
        await renewed(hasty, first)
        broken.clear()
        second = await hasty.start(hasty.request(*chain, resume={"workflowId": first.id}))
        result = await ended(second)
        await renewed(hasty, second)
    assert result["state"] == {f"n{n}": n for n in range(50)}
    assert result["resumedFrom"]["calls"] == [f"{n + 1}:count" for n in range(25)]
    assert sorted(ids.values()) == [[n] if n != 25 else [n, n] for n in range(50)]


# A worker that dies just then makes a minute of that moment. Here it is made on purpose: what a run handed over
# starts another one, together with a signal.


LAZY = {"type": "plan", "plan": [], "mode": "lazy"}
SCRIPT = [
    {"when": {"tick": 1}, "solution": {"calls": [call("echo", "†state.a", value=1)]}},
    {"when": {"tick": 2, "says": ["a gift"]}, "solution": {"output": "seen"}},
    {"when": {"tick": 2}, "solution": {"output": "†state"}},
]


@pytest.fixture
async def user(
    impatient: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Foreign]:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    monkeypatch.setattr(payloads, "is_from_run", lambda: True)  # the next run is started by hand
    (tmp_path / "works.json").write_text(json.dumps({"answers": SCRIPT}), "utf-8")
    client = await Client.connect(impatient.address, namespace=impatient.namespace)
    async with engine_on(impatient, f"engine-{task_queue}") as engine:
        user = Foreign(client, engine, task_queue)
        async with user.serving(echo):
            yield user


async def waiting(user: Foreign, what: str, id_: str) -> Handle:
    """A run that waits for a decision about its plan, or about two Calls of it."""
    if what == "Agent":
        request = {"config": {"model": "scripted:works"}, "context": [user.tool("echo"), LAZY]}
        return await user.client.start_workflow("Agent", request, id=id_, task_queue=user.engine)
    request = user.request(call("echo", "†state.a", value=1), call("echo", "†state.b", value=2),
                           approve={"calls": what == "Plan, calls", "timeout": "1h"})  # fmt: skip
    if what == "Plan":
        request["context"][-1]["mode"] = "lazy"
    return await user.start(request, id=id_)


async def handed_over(user: Foreign, what: str, id_: str) -> RawValue:
    """What a run that waits hands over to the next, when signals have filled its history."""
    handle = await waiting(user, what, id_)
    await phase(handle, "awaiting")
    first = (await handle.describe()).run_id

    async def renewed() -> Payload | None:
        await asyncio.gather(*[handle.signal("approve", {"version": 9}) for _ in range(5)])
        run = user.client.get_workflow_handle(id_, run_id=first)
        *_, last = (await run.fetch_history()).events
        found = last.workflow_execution_continued_as_new_event_attributes.input.payloads
        return found[0] if found else None

    payload = await assert_eventually(renewed)
    assert payload is not None
    await handle.terminate("its successor is started by hand")
    return RawValue(payload)


async def next_run(user: Foreign, what: str, signal: str, *given: Json) -> Handle:
    """The run after one that waits, with a signal that is there before it has begun."""
    id_ = f"{user.queue}/{signal}"
    carried = await handed_over(user, what, id_)
    return await user.client.start_workflow(
        what.partition(",")[0], carried, id=id_, task_queue=user.engine, start_signal=signal, start_signal_args=given
    )


@pytest.mark.parametrize("what", ["Plan", "Agent"])
async def test_an_approval_of_the_plan_is_taken(user: Foreign, what: str) -> None:
    handle = await next_run(user, what, "approve", {"version": 1, "by": "Ada"})
    result = await ended(handle)
    assert result["state" if what == "Plan" else "output"] == ({"a": 1, "b": 2} if what == "Plan" else {"a": 1})
    assert [d["by"] for d in result["decisions"]] == ["Ada"]


async def test_what_an_agent_was_given_in_that_moment_is_in_its_context(user: Foreign) -> None:
    handle = await next_run(user, "Agent", "provide", {"type": "input", "input": {"name": "a gift"}})
    await handle.execute_update("decide", {"decision": "approve"})
    assert (await ended(handle))["output"] == "seen"


async def test_a_decision_that_a_reset_repeats_beside_the_first_task_of_a_new_run_is_replayed(hasty: Foreign) -> None:
    """The SDK joins a task that commands nothing with the next one, which has the decision; a replay does not."""
    plan = {"type": "plan", "mode": "lazy", "plan": [call("small", "†state.a", n=2)]}
    handle = await hasty.start({"context": [tool("small", activity="small"), plan]}, id=f"{hasty.queue}/repeats")
    await phase(handle, "awaiting")

    async def renewed() -> bool:
        await handle.signal("approve", {"version": 9})
        await status(handle)
        return len(await run_chain(hasty.client, handle.id)) > 1

    await assert_eventually(renewed)
    await handle.execute_update("decide", {"decision": "approve"})
    await ended(handle)
    last = (await run_chain(hasty.client, handle.id))[0]
    for _ in range(2):
        last = await reset(hasty.client, handle.id, (await reset_points(last))[1], last.run_id)
        assert (await ended(last))["state"] == {"a": 2}
        await build_replayer().replay_workflow(await last.fetch_history())
