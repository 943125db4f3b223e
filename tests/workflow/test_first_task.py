"""What is said to a run in the very moment in which it hands over is there before the next run knows what it carries.

A worker that dies just then makes a minute of that moment. Here it is made on purpose: what a run handed over starts
another one, together with a signal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue

from cli.dev.temporal_server import DevServer
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on, renewing_server
from tests.workflow.foreign import Foreign, Handle, call, ended, note_of, phase, status
from tests.workflow.tools import echo

Json = Any
LAZY = {"type": "plan", "plan": [], "mode": "lazy"}
SCRIPT = [
    {"when": {"tick": 1}, "solution": {"calls": [call("echo", "†state.a", value=1)]}},
    {"when": {"tick": 2, "says": ["a gift"]}, "solution": {"output": "seen"}},
    {"when": {"tick": 2}, "solution": {"output": "†state"}},
]


@pytest.fixture(scope="module")
def hasty() -> Iterator[DevServer]:
    with renewing_server(50) as running:
        yield running


@pytest.fixture
async def user(
    hasty: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Foreign]:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    (tmp_path / "works.json").write_text(json.dumps({"answers": SCRIPT}), "utf-8")
    client = await Client.connect(hasty.address, namespace=hasty.namespace)
    async with engine_on(hasty, f"engine-{task_queue}") as engine:
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


async def waits(handle: Handle) -> list[Json]:
    found: list[Json] = await handle.query("pending")
    return found


@pytest.mark.parametrize("what", ["Plan", "Agent"])
async def test_an_approval_of_the_plan_is_taken(user: Foreign, what: str) -> None:
    handle = await next_run(user, what, "approve", {"version": 1, "by": "Ada"})
    result = await ended(handle)
    assert result["state" if what == "Plan" else "output"] == ({"a": 1, "b": 2} if what == "Plan" else {"a": 1})
    assert [d["by"] for d in result["decisions"]] == ["Ada"]


async def test_a_rejection_is_taken(user: Foreign) -> None:
    handle = await next_run(user, "Plan", "reject", {"reason": "no"})
    assert (await ended(handle))["status"] == "rejected"


async def test_an_edit_is_taken(user: Foreign) -> None:
    handle = await next_run(user, "Plan", "edit", {"plan": [call("echo", "†state.c", value=3)]})

    async def second_version() -> bool:
        return [w["version"] for w in await waits(handle)] == [2]

    await assert_eventually(second_version)
    await handle.signal("approve", {"version": 2})
    assert (await ended(handle))["state"] == {"c": 3}


async def test_an_approval_of_a_call_is_taken(user: Foreign) -> None:
    handle = await next_run(user, "Plan, calls", "approve", {"call": "2:echo"})

    async def one_waits() -> bool:
        return [w["call"] for w in await waits(handle)] == ["1:echo"]

    await assert_eventually(one_waits)
    await handle.signal("approve", {"call": "1:echo"})
    assert (await ended(handle))["state"] == {"a": 1, "b": 2}


async def test_an_approval_that_may_be_of_several_calls_is_of_none(user: Foreign) -> None:
    handle = await next_run(user, "Plan, calls", "approve", {"by": "Ada"})
    await note_of(handle, "approve")
    assert len(await waits(handle)) == 2
    await handle.cancel()


async def test_an_approval_of_what_is_not_there_any_more_is_refused(user: Foreign) -> None:
    handle = await next_run(user, "Plan", "approve", {"version": 7, "by": "Ada"})

    async def waits_still() -> bool:
        return [w["version"] for w in await waits(handle)] == [1]

    await assert_eventually(waits_still)
    await handle.signal("approve", {"version": 1, "by": "Bob"})
    assert [d["by"] for d in (await ended(handle))["decisions"]] == ["Bob"]


async def test_an_agent_that_was_paused_in_that_moment_is_paused(user: Foreign) -> None:
    handle = await next_run(user, "Agent", "pause")
    await handle.execute_update("decide", {"decision": "approve"})
    await phase(handle, "paused")
    assert (await status(handle))["tick"] < 3
    await handle.signal("resume")
    assert (await ended(handle))["output"] == {"a": 1}


async def test_what_an_agent_was_given_in_that_moment_is_in_its_context(user: Foreign) -> None:
    handle = await next_run(user, "Agent", "provide", {"type": "input", "input": {"name": "a gift"}})
    await handle.execute_update("decide", {"decision": "approve"})
    assert (await ended(handle))["output"] == "seen"
