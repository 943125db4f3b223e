"""Two workers of different versions on one queue, as in every rolling deploy: no run fails for it.

``make rolling`` does the same with 200 runs.
"""

from __future__ import annotations

import asyncio
import os
import uuid
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType, TaskQueueKind, TimeoutType
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion

import worker
import worker_settings
from activities.registry import Registry
from activities.task_queues import read_pollers
from activities.worker_versions import registry_version
from cli.dev.temporal_server import DevServer
from tests.crash.resets import last_point_before, reset
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    failure,
    note_of,
    phase,
    result_of_failed,
    state_of,
    tool,
)
from worker_runtime import draining_worker
from worker_runtime.draining_worker import DrainingWorker
from workflows.runtime import missed_activities

Json = Any
RUNS = int(os.environ.get("ACTS_ROLLING_RUNS", "6"))


@activity.defn(name="old.double")
async def double(call: Json, tool: Json, context: Json) -> int:
    return 2 * int(call["x"])


@activity.defn(name="new.triple")
async def triple(call: Json, tool: Json, context: Json) -> int:
    return 3 * int(call["x"])


@activity.defn(name="old.double")
async def double_of_y(call: Json, tool: Json, context: Json) -> int:
    return 2 * int(call["y"])


def schema(name: str, parameter: str = "x", **meta: Json) -> dict[str, Json]:
    meta = {"_activity": {"const": name}, "_outputPath": {"type": "string"}, **meta}
    return {"type": "object", "properties": {**meta, parameter: True}}


OLD = Registry({"old.double": schema("old.double")}, (double,))
LOCAL = schema("new.triple", _options={"const": {"local": True}})
NEW = Registry({**OLD.tools, "new.triple": schema("new.triple"), "local": LOCAL}, (double, triple))
CHANGED = Registry({"old.double": schema("old.double", "y")}, (double_of_y,))


class Workers:
    """Workers of the engine on a queue of their own; each can join and leave."""

    def __init__(self, server: DevServer, queue: str, executor: ThreadPoolExecutor) -> None:
        self._server, self._queue, self._executor = server, queue, executor

    @asynccontextmanager
    async def serving(
        self, *registries: Registry, deployment: WorkerDeploymentVersion | None = None
    ) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("TEMPORAL_ADDRESS", self._server.address)
                clients = [await worker.connect() for _ in registries]
            for client, registry in zip(clients, registries, strict=True):
                settings = worker_settings.Settings(task_queue=self._queue, shutdown_seconds=1, deployment=deployment)
                with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots
                    built = worker.build(client, settings, registry, self._executor)
                await stack.enter_async_context(built)
            versions = {f"acts/{registry_version(registry)}" for registry in registries}
            await assert_eventually(
                lambda: self._are_listed(versions), within=timedelta(seconds=60), why="the server lists the workers"
            )
            yield

    async def _are_listed(self, versions: set[str]) -> bool:
        client = await Client.connect(self._server.address)
        return versions <= {p.identity.split()[0] for p in await read_pollers(client, self._queue)}


@pytest.fixture
def queue() -> str:
    return f"rolling-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def workers(server: DevServer, queue: str) -> AsyncIterator[Workers]:
    with ThreadPoolExecutor(4) as executor:
        yield Workers(server, queue, executor)


@pytest.fixture
def user(plain_client: Client, queue: str) -> Foreign:
    return Foreign(plain_client, queue, queue)


def registered(*calls: Json, **config: Json) -> dict[str, Json]:
    names = dict.fromkeys(c["_tool"] for c in calls)
    tools = [{"type": "tool", "tool": name} for name in names]
    return {"config": config, "context": [*tools, {"type": "plan", "plan": list(calls)}]}


def inline(name: str, **options: Json) -> dict[str, Json]:
    return tool(name, activity=name, options=options, x=True)


PLAN = (
    call("old.double", "†state.a", x=1), call("new.triple", "†state.b", x="†state.a"),
    call("local", "†state.c", x="†state.b"), call("old.double", "†state.d", x="†state.c"),
)  # fmt: skip


async def test_no_run_fails_because_one_of_two_workers_lacks_its_tools(workers: Workers, user: Foreign) -> None:
    """A third waits when the newer worker joins, a third runs on both, a third runs while the older one leaves."""
    third = RUNS // 3
    held = registered(call("old.double", "†state.a", x=1), call("old.double", "†state.d", x="†state.a"))
    held["config"]["approve"] = {"plan": True}
    async with AsyncExitStack() as older, AsyncExitStack() as newer:
        await older.enter_async_context(workers.serving(OLD))
        waiting = [await user.start(held) for _ in range(third)]
        await phase(waiting[-1], "awaiting")
        await newer.enter_async_context(workers.serving(NEW))
        both = [await user.start(registered(*PLAN)) for _ in range(third)]
        results = await asyncio.gather(*(ended(handle, within=60 + RUNS) for handle in both))
        last = [await user.start(registered(*PLAN)) for _ in range(third)]
        await older.aclose()
        for handle in waiting:
            await handle.signal("approve", {"by": "test"})
        results += await asyncio.gather(*(ended(handle, within=60 + RUNS) for handle in [*last, *waiting]))
    grown = {"a": 2, "b": 6, "c": 18, "d": 36}
    assert [r["state"] for r in results] == [grown] * 2 * third + [{"a": 2, "d": 4}] * third


async def test_a_tool_without_an_activity_of_its_own_is_served_if_any_worker_serves_it(
    workers: Workers, user: Foreign
) -> None:
    undecided = {"type": "tool", "tool": {"new.triple": {"type": "object", "properties": {
        "_outputPath": {"type": "string"}, "x": True}}}}  # fmt: skip
    plan = {"type": "plan", "plan": [call("new.triple", "†state.b", x=2)]}
    async with workers.serving(OLD, NEW):
        handles = [await user.start({"context": [undecided, plan]}) for _ in range(RUNS // 2)]
        results = await asyncio.gather(*(ended(handle) for handle in handles))
    assert [r["state"] for r in results] == [{"b": 6}] * (RUNS // 2)


async def test_a_tool_that_no_worker_has_is_refused_with_the_workers_that_were_asked(
    workers: Workers, user: Foreign
) -> None:
    async with workers.serving(OLD, NEW):
        error = await failure(await user.start(registered(call("nobody.has", "†state.a"))))
    assert error.type == "InvalidRequest"
    assert 'no tool "nobody.has" is registered' in error.message
    for registry in (OLD, NEW):
        assert f"acts/{registry_version(registry)}" in error.message


async def test_a_call_whose_activity_no_worker_has_waits_visibly_for_one_that_does(
    workers: Workers, user: Foreign
) -> None:
    request = user.request(call("new.triple", "†state.b", x=2), context=[inline("new.triple")])
    async with workers.serving(OLD):
        handle = await user.start(request)
        note = await note_of(handle, "new.triple")
        assert f"acts/{registry_version(OLD)}" in note
        assert "it has old.double" in note
        await state_of(handle, "1:new.triple", "ready")
        async with workers.serving(NEW):
            assert (await ended(handle))["state"] == {"b": 6}


async def test_a_call_whose_activity_nobody_has_fails_after_a_while_and_its_run_can_go_on_after_a_fix(
    workers: Workers, user: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_activities, "START_SECONDS", 0.5)
    plan = [call("old.double", "†state.a", x=1), call("new.triple", "†state.b", x="†state.a")]
    request = user.request(*plan, context=[inline("old.double"), inline("new.triple")])
    async with workers.serving(OLD):
        handle = await user.start(request)
        (error,) = (await result_of_failed(handle))["errors"]
    assert error["code"] == "NotServed"
    assert f"acts/{registry_version(OLD)}" in error["message"]
    assert "it has old.double" in error["message"]
    assert "reset the run" in error["message"]
    async with workers.serving(NEW):
        again = await reset(user.client, handle.id, await last_point_before(handle, "ACTIVITY_TASK_FAILED"))
        assert (await ended(again))["state"] == {"a": 2, "b": 6}


async def test_a_fire_and_forget_call_finds_the_worker_that_has_its_activity(workers: Workers, user: Foreign) -> None:
    context = [inline("new.triple")]
    async with workers.serving(OLD, NEW):
        handle = await user.start(user.request(call("new.triple", None, x=2), context=context))
        await ended(handle)
        background = user.client.get_workflow_handle(f"{handle.id}/1:new.triple")

        async def over() -> bool:
            return (await background.describe()).status is not None and await background.result() is None

        assert await assert_eventually(over)


async def test_a_tool_that_a_run_pinned_and_the_code_no_longer_takes_fails_its_call_with_a_hint(
    workers: Workers, user: Foreign
) -> None:
    request = registered(call("old.double", "†state.a", x=1))
    request["config"]["approve"] = {"plan": True}
    async with workers.serving(OLD):
        handle = await user.start(request)
        await phase(handle, "awaiting")
    async with workers.serving(CHANGED):
        await handle.signal("approve", {"by": "test"})
        (error,) = (await result_of_failed(handle))["errors"]
    assert error["code"] == "KeyError"
    assert 'another definition of the tool "old.double"' in error["message"]
    async with workers.serving(OLD):
        again = await reset(user.client, handle.id, await last_point_before(handle, "ACTIVITY_TASK_FAILED"))
        assert (await ended(again))["state"] == {"a": 2}


async def dropped_tasks(handle: Handle) -> list[int]:
    """The tasks from the sticky queue that a worker was given, and whose end the server did not see."""
    events = {e.event_id: e async for e in handle.fetch_history_events()}
    timeouts = [
        e.workflow_task_timed_out_event_attributes for e in events.values()
        if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
    ]  # fmt: skip
    scheduled = [t.scheduled_event_id for t in timeouts if t.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE]
    queues = [events[id_].workflow_task_scheduled_event_attributes.task_queue.kind for id_ in scheduled]
    return [id_ for id_, kind in zip(scheduled, queues, strict=True) if kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY]


async def test_a_worker_that_stops_has_used_up_its_sticky_polls(
    server: DevServer, user: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a poll brings later, the SDK drops. On a machine that is as busy as it may be: without a limit."""
    monkeypatch.setattr(draining_worker, "DRAIN_SECONDS", 60.0)
    drain, polls = DrainingWorker._drain, []

    async def drain_and_count(worker: DrainingWorker) -> None:
        polls.append(worker._slots.sticky_polls)
        await drain(worker)
        polls.append(worker._slots.sticky_polls)

    monkeypatch.setattr(DrainingWorker, "_drain", drain_and_count)
    request = user.request(call("pay", "†state.a", x=1), context=[inline("pay")], approve={"calls": True})
    async with engine_on(server, user.engine):
        handle = await user.start(request)
        await phase(handle, "awaiting")
    assert polls[0] > 0
    assert polls[1] == 0
    await handle.terminate("seen enough")


@pytest.mark.skipif("ACTS_ROLLING_RUNS" not in os.environ, reason="a busy machine drops more: `make rolling` counts")
async def test_a_worker_that_stops_drops_hardly_a_task_of_the_runs_in_its_cache(
    server: DevServer, user: Foreign
) -> None:
    """The SDK alone drops about one at each of these four stops; of a busy worker, two may come too late."""
    request = user.request(call("pay", "†state.a", x=1), context=[inline("pay")], approve={"calls": True})
    runs = [await user.start(request, task_timeout=timedelta(seconds=5)) for _ in range(6)]

    async def signal(handle: Handle) -> None:
        while True:
            await handle.signal("resume")

    signals = [asyncio.create_task(signal(handle)) for handle in runs]
    try:
        for _ in range(4):
            async with engine_on(server, user.engine):
                await asyncio.gather(*(phase(handle, "awaiting") for handle in runs))
    finally:
        for task in signals:
            task.cancel()
        await asyncio.gather(*signals, return_exceptions=True)
    async with engine_on(server, user.engine):
        await asyncio.gather(*(phase(handle, "awaiting") for handle in runs))
    assert sum([len(await dropped_tasks(handle)) for handle in runs]) <= 2
    for handle in runs:
        await handle.terminate("seen enough")


def test_a_version_changes_with_tools_and_activities_and_with_nothing_else() -> None:
    versions = [registry_version(r) for r in (OLD, NEW, CHANGED, Registry(dict(OLD.tools), (double,)))]
    assert len(set(versions)) == 3
    assert versions[0] == versions[3]
