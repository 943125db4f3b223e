"""Runs are found by what they do and wait for, where the namespace has the attributes; elsewhere they just run."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer
from acts.client.run_reader import IS_WAITING, list_runs, runs_query
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, ended
from tests.workflow.tools import echo

NAMES = ("ActsPhase", "ActsWaiting", "ActsTools", "ActsModel", "ActsCost", "ActsRoot", "ActsWaitingSince")


async def attributes(handle: Handle) -> dict[str, Any]:
    """The search attributes of ours that the server has of a run."""
    found = (await handle.describe()).typed_search_attributes
    return {key.name: list(v) if isinstance(v, list) else v for key, v in found if key.name in NAMES}


async def event_count(handle: Handle) -> int:
    """How often the run wrote search attributes."""
    history = await handle.fetch_history()
    return sum(e.HasField("upsert_workflow_search_attributes_event_attributes") for e in history.events)


async def test_a_run_that_waits_is_found_and_one_that_ended_has_its_phase(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        request = foreign.request(call("echo", "†state.a", value=1), call("echo", value=2), approve={"calls": ["echo"]})
        handle = await foreign.start(request)
        root = {"ActsRoot": handle.id, "ActsTools": ["echo"]}

        async def is_awaiting() -> bool:
            held = await attributes(handle)
            since = held.pop("ActsWaitingSince", None)
            return since is not None and held == {"ActsPhase": "awaiting", "ActsWaiting": 2, **root}

        async def is_listed() -> bool:
            query = runs_query(conditions=(IS_WAITING,), tool="echo")
            return handle.id in {row["id"] async for row in list_runs(foreign.client, query, 1000)}

        await assert_eventually(is_awaiting)
        await assert_eventually(is_listed, why="a list is a moment behind")
        for id_ in ("1:echo", "2:echo"):
            await handle.signal("approve", {"call": id_})
        await ended(handle)
        assert await attributes(handle) == {"ActsPhase": "completed", "ActsWaiting": 0, **root}
        assert await event_count(handle) <= 6, "awaiting; perhaps twice running and awaiting again; completed"
        below = foreign.client.get_workflow_handle(f"{handle.id}/2:echo")
        assert (await attributes(below))["ActsRoot"] == handle.id


async def test_a_batch_with_a_failure_is_found_as_partial_and_its_instances_by_their_root(foreign: Foreign) -> None:
    people = [{"type": "state", "_instance": name, "state": {"n": n}} for name, n in (("a", 1), ("b", "x"))]
    bounded = foreign.tool("echo", value={"type": "integer"})
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(call("echo", "†state.m", value="†state.n"), context=[bounded, *people])
        )
        assert (await ended(handle))["status"] == "partial"
    assert (await attributes(handle))["ActsPhase"] == "partial"
    assert await event_count(handle) == 2, "running, partial"
    child = foreign.client.get_workflow_handle(f"{handle.id}/a")
    assert await attributes(child) == {"ActsRoot": handle.id}
    assert await event_count(child) == 0


@pytest.fixture
async def bare(server: DevServer) -> Client:
    """A client of a namespace without search attributes of ours."""
    name = f"bare-{uuid.uuid4().hex[:8]}"
    client = await Client.connect(server.address)
    retention = timedelta(days=1)
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(retention)
    await client.workflow_service.register_namespace(request)
    return await Client.connect(server.address, namespace=name)


async def test_a_namespace_without_the_attributes_runs_the_same_plans(
    server: DevServer, bare: Client, tmp_path: Path
) -> None:
    own = DevServer(server.address, None, server.pid, server.log, bare.namespace)

    async def starts() -> Handle | None:
        try:
            return await foreign.start(foreign.request(call("echo", "†state.a", value=1)))
        except Exception as error:  # noqa: BLE001 - the server learns of a new namespace within seconds
            raise AssertionError(str(error)) from None

    async with engine_on(own, "bare", tmp_path) as queue:
        foreign = Foreign(bare, queue, "bare-tools")
        async with foreign.serving(echo):
            handle = await assert_eventually(starts)
            assert handle is not None
            assert (await ended(handle))["state"] == {"a": 1}
    assert await attributes(handle) == {}
    assert await event_count(handle) == 0
