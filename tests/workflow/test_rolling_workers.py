"""Workers of different versions on one queue, as in every rolling deploy, and worker deployment versions."""

from __future__ import annotations

import asyncio
import shlex
import uuid
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion

from acts.activities.registry import Registry
from acts.cli.commands.operations import Finding, check_versions
from acts.cli.dev.temporal_server import DevServer, find_program
from acts.client.run_reader import RunReader
from acts.telemetry.observation import read_pollers
from acts.worker import serve as worker
from acts.worker import settings as worker_settings
from acts.worker.serve import DrainingWorker
from acts.workflows import in_flight as missed_calls
from tests.crash.resets import last_point_before, reset
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import (
    Foreign,
    call,
    ended,
    failure,
    note_of,
    of_type,
    phase,
    result_of_failed,
    state_of,
    tool,
)

Json = Any


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
                names = (
                    {}
                    if deployment is None
                    else {"deployment": deployment.deployment_name, "build_id": deployment.build_id}
                )
                settings = worker_settings.Settings(task_queue=self._queue, shutdown_seconds=1, **names)  # type: ignore[arg-type]
                with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots
                    built = worker.build(client, settings, registry, self._executor)
                await stack.enter_async_context(built)
            versions = {f"acts/{registry.version}" for registry in registries}
            await assert_eventually(
                lambda: self._are_listed(versions), within=timedelta(seconds=180), why="the server lists the workers"
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


async def test_a_call_whose_activity_no_worker_has_waits_visibly_for_one_that_does(
    workers: Workers, user: Foreign
) -> None:
    request = user.request(call("new.triple", "†state.b", x=2), context=[inline("new.triple")])
    async with workers.serving(OLD):
        handle = await user.start(request)
        note = await note_of(handle, "new.triple")
        assert f"acts/{OLD.version}" in note
        assert "it has old.double" in note
        await state_of(handle, "1:new.triple", "ready")
        async with workers.serving(NEW):
            assert (await ended(handle))["state"] == {"b": 6}


async def test_a_call_whose_activity_nobody_has_fails_after_a_while_and_its_run_can_go_on_after_a_fix(
    workers: Workers, user: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_calls, "NOT_SERVED_SECONDS", 0.5)
    plan = [call("old.double", "†state.a", x=1), call("new.triple", "†state.b", x="†state.a")]
    request = user.request(*plan, context=[inline("old.double"), inline("new.triple")])
    async with workers.serving(OLD):
        handle = await user.start(request)
        (error,) = (await result_of_failed(handle))["errors"]
    assert error["code"] == "NotServed"
    assert f"acts/{OLD.version}" in error["message"]
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


@pytest.mark.long
async def test_a_tool_that_a_run_pinned_and_the_code_no_longer_takes_fails_its_call(
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
    async with workers.serving(OLD):
        again = await reset(user.client, handle.id, await last_point_before(handle, "ACTIVITY_TASK_FAILED"))
        assert (await ended(again))["state"] == {"a": 2}


async def test_a_worker_that_stops_has_used_up_its_sticky_polls(
    server: DevServer, user: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a poll brings later, the SDK drops. On a machine that is as busy as it may be: without a limit."""
    monkeypatch.setattr(worker, "DRAIN_SECONDS", 60.0)
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


SECONDS = 60  # a command of Temporal's program takes a tenth of one


def build(queue: str, number: str) -> WorkerDeploymentVersion:
    """Each test has a deployment of its own, named as its queue."""
    return WorkerDeploymentVersion(queue, number)


async def temporal(server: DevServer, *arguments: str) -> None:
    """A command of Temporal's program, as docs/deploy.md has it."""
    process = await asyncio.create_subprocess_exec(
        *(find_program(), *arguments, "--address", server.address),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={"HOME": "/nonexistent"},
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, out.decode()


async def make_current(server: DevServer, version: WorkerDeploymentVersion) -> None:
    """The server refuses it until it has seen the version poll all queues that the current one polls."""

    async def is_current() -> bool:
        await temporal(
            server, "worker", "deployment", "set-current-version", "--yes",
            "--deployment-name", version.deployment_name, "--build-id", version.build_id,
        )  # fmt: skip
        return True

    await assert_eventually(is_current, within=timedelta(seconds=SECONDS), why="the version is current")


async def builds(user: Foreign, id_: str) -> set[str]:
    """The build ids of the workers that completed the workflow tasks of a run."""
    tasks = await of_type(user.client.get_workflow_handle(id_), "WORKFLOW_TASK_COMPLETED")
    return {task.deployment_version.build_id for task in tasks}


WAITING = registered(
    call("old.double", "†state.a", x=1), call("old.double", None, x=5), call("old.double", "†state.d", x="†state.a"),
    approve={"plan": True},
)  # fmt: skip
RENEWED = registered(call("old.double", "†state.a", x=1), call("new.triple", "†state.b", x="†state.a"))


async def test_a_plan_that_waits_across_an_update_ends_on_its_version_and_a_new_one_runs_on_the_new(
    server: DevServer, workers: Workers, user: Foreign, queue: str
) -> None:
    async with AsyncExitStack() as older, AsyncExitStack() as newer:
        await older.enter_async_context(workers.serving(OLD, deployment=build(queue, "1")))
        await make_current(server, build(queue, "1"))
        waiting = await user.start(WAITING)
        await phase(waiting, "awaiting")
        await newer.enter_async_context(workers.serving(NEW, deployment=build(queue, "2")))
        await make_current(server, build(queue, "2"))
        renewed = await user.start(RENEWED)
        assert (await ended(renewed))["state"] == {"a": 2, "b": 6}
        await waiting.signal("approve", {"by": "test"})
        assert (await ended(waiting))["state"] == {"a": 2, "d": 4}
        assert await builds(user, waiting.id) == {"1"}
        assert await builds(user, renewed.id) == {"2"}
        background = f"{waiting.id}/2:old.double"
        assert await user.client.get_workflow_handle(background).result() is None
        assert await builds(user, background) == {"1"}


async def test_a_plan_whose_version_has_no_worker_is_named_with_the_command_that_moves_it_and_ends_there(
    server: DevServer, workers: Workers, user: Foreign, queue: str
) -> None:
    async with AsyncExitStack() as older, AsyncExitStack() as newer:
        await older.enter_async_context(workers.serving(OLD, deployment=build(queue, "1")))
        await make_current(server, build(queue, "1"))
        waiting = await user.start(WAITING)
        await phase(waiting, "awaiting")
        await newer.enter_async_context(workers.serving(NEW, deployment=build(queue, "2")))
        await make_current(server, build(queue, "2"))
        await older.aclose()
        found: list[Finding] = []

        async def is_told() -> bool:
            found[:] = await check_versions(user.client, queue)
            return found[0].level == "fail" and found[0].hint.endswith("-build-id 2")

        await assert_eventually(is_told, why="the run is found, and the version that is current now")
        assert f"1 open run can go on in version {queue}:1 only, which no worker serves" in found[0].text
        error = await RunReader(user.client, waiting.id).no_answer_error()
        assert f"a worker of version {queue}:1 is needed, and none polls" in error.head
        assert "move the run" in error.hint
        await temporal(server, *shlex.split(found[0].hint.partition("move them: ")[2])[1:])
        await waiting.signal("approve", {"by": "test"})
        assert (await ended(waiting))["state"] == {"a": 2, "d": 4}
        assert await builds(user, waiting.id) == {"1", "2"}


async def test_a_plan_that_began_before_versioning_goes_on_with_the_first_version(
    server: DevServer, workers: Workers, user: Foreign, queue: str
) -> None:
    async with AsyncExitStack() as older, AsyncExitStack() as newer:
        await older.enter_async_context(workers.serving(OLD))
        waiting = await user.start(WAITING)
        await phase(waiting, "awaiting")
        await newer.enter_async_context(workers.serving(NEW, deployment=build(queue, "1")))
        await make_current(server, build(queue, "1"))
        await older.aclose()
        await waiting.signal("approve", {"by": "test"})
        assert (await ended(waiting))["state"] == {"a": 2, "d": 4}
        assert await builds(user, waiting.id) == {"", "1"}


async def test_workers_of_another_version_are_not_asked_for_a_tool(
    server: DevServer, workers: Workers, user: Foreign, queue: str
) -> None:
    """A task of a pinned run goes to its own version only: the run would wait a minute for the other one."""
    async with workers.serving(OLD, deployment=build(queue, "1")), workers.serving(NEW, deployment=build(queue, "2")):
        await make_current(server, build(queue, "1"))
        handle = await user.start(RENEWED)
        error = await failure(handle)
        assert 'no tool "new.triple" is registered' in error.message
        scheduled = await of_type(handle, "ACTIVITY_TASK_SCHEDULED")
        assert [event.activity_type.name for event in scheduled] == []
