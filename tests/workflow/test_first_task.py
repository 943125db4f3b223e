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

from acts.cli.dev.temporal_server import DevServer
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on, renewing_server
from tests.workflow.foreign import Foreign, Handle, call, ended, phase
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


async def test_what_an_agent_was_given_in_that_moment_is_in_its_context(user: Foreign) -> None:
    handle = await next_run(user, "Agent", "provide", {"type": "input", "input": {"name": "a gift"}})
    await handle.execute_update("decide", {"decision": "approve"})
    assert (await ended(handle))["output"] == "seen"
