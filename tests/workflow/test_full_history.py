"""Histories near the size at which the server terminates a run: it continues as new, or ends with what it has.

The limits of the engine are a tenth of what they are, so that megabytes do for tens of megabytes.
"""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.machines import lifetime
from acts.worker import interceptors
from acts.workflows import payloads
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, came_to, ended, states, tool
from tests.workflow.tools import length

Json = Any

# A tenth of the usual limit, and the result of a run, whose limit stays
SERVER_BYTES = 5_000_000 + 1_500_000


def incompressible(count: int) -> str:
    return base64.b64encode(random.randbytes(count * 3 // 4)).decode()  # noqa: S311 - no secret


async def blob(call: Json, tool: Json, context: Json) -> str:
    return incompressible(call["count"])


@pytest.fixture(scope="module")
def cramped() -> Iterator[DevServer]:
    """A server that terminates a run above about a tenth of the usual size."""
    setting = f"limit.historySize.error={SERVER_BYTES}"
    with dev_server(ui=False, extra_args=("--dynamic-config-value", setting)) as running:
        yield running


@pytest.fixture
async def user(cramped: DevServer, task_queue: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Foreign]:
    for name in ("DRAIN_BYTES", "LAST_BYTES", "END_BYTES"):
        monkeypatch.setattr(lifetime, name, getattr(lifetime, name) // 10)
    monkeypatch.setattr(interceptors, "MAX_HISTORY_BYTES", interceptors.MAX_HISTORY_BYTES // 10)
    monkeypatch.setattr(payloads, "MAX_PAYLOAD_BYTES", payloads.MAX_PAYLOAD_BYTES // 10)
    client = await Client.connect(cramped.address, namespace=cramped.namespace)
    async with engine_on(cramped, f"engine-{task_queue}") as engine:
        yield Foreign(client, engine, task_queue)


@pytest.mark.long
async def test_a_hundred_calls_with_large_parameters_go_on_in_new_runs(user: Foreign) -> None:
    context = [{"type": "input", "input": {"text": incompressible(100_000)}}]
    async with user.serving(length):
        plan = [call("length", f"†state.n{i}", value="†input.text") for i in range(100)]
        handle = await user.start(user.request(*plan, context=context))
        result = await ended(handle)
    assert result["state"] == {f"n{i}": 100_000 for i in range(100)}
    last = await handle.describe()
    assert last.run_id != handle.first_execution_run_id


async def test_sixty_large_results_that_come_at_once_end_the_run_readably(user: Foreign) -> None:
    """The worker asks how large the history is, and fails the Calls whose results do not fit."""
    blobs = tool("noise", activity="noise")
    plan = [call("noise", f"†data.x{i}", n=150_000) for i in range(60)]
    handle = await user.start(user.request(*plan, context=[blobs]))
    result = await came_to(handle)
    ends = states(result)
    assert result["status"] == "failed"
    assert list(ends) == [f"{i}:noise" for i in range(1, 61)]
    done = [int(id_.partition(":")[0]) for id_, state in ends.items() if state == "completed"]
    assert len(done) >= 20
    assert {e["code"] for e in result["errors"]} <= {"PayloadTooLarge", "LimitExceeded"}
    found = await handle.query("context", {"path": f"†data.x{done[0] - 1}"})
    assert len(found["value"]) == 150_000


async def test_results_that_no_new_run_can_take_over_end_the_run_with_what_it_has(user: Foreign) -> None:
    async with user.serving(blob):
        plan = [call("blob", f"†data.x{i}", count=150_000) for i in range(60)]
        handle = await user.start(user.request(*plan, maxParallel=4))
        result = await came_to(handle)
    ends = list(states(result).values())
    assert ends.count("completed") >= 20
    assert {e["code"] for e in result["errors"]} == {"LimitExceeded"}
    assert "the history of this run is full" in result["errors"][0]["message"]


async def test_messages_that_fill_the_history_of_a_waiting_run_end_it_readably(user: Foreign) -> None:
    async with user.serving(length):
        plan = [call("length", "†state.n", value="†input.text"), call("length", "†state.m", value="†input.last")]
        handle = await user.start(user.request(*plan, missing="wait"))
        with suppress(RPCError):  # it has ended
            for i in range(60):
                await handle.signal("provide", {"type": "data", "data": {f"x{i}": incompressible(150_000)}})
                await handle.query("status")  # no run can end while more arrives than it can read
        result = await came_to(handle)
    assert {e["code"] for e in result["errors"]} == {"LimitExceeded"}
