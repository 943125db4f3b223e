"""Worker deployment versions: a run ends on the version that began it, and a waiting one can be moved to another."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion

from acts.cli.dev.temporal_server import DevServer, find_program
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, failure, of_type, phase
from tests.workflow.test_rolling_workers import NEW, OLD, Workers, registered

Json = Any
SECONDS = 60  # a command of Temporal's program takes a tenth of one


@pytest.fixture
def queue() -> str:
    return f"versioned-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def workers(server: DevServer, queue: str) -> AsyncIterator[Workers]:
    with ThreadPoolExecutor(4) as executor:
        yield Workers(server, queue, executor)


@pytest.fixture
def user(plain_client: Client, queue: str) -> Foreign:
    return Foreign(plain_client, queue, queue)


def build(queue: str, number: str) -> WorkerDeploymentVersion:
    """Each test has a deployment of its own, named as its queue."""
    return WorkerDeploymentVersion(queue, number)


async def temporal(server: DevServer, *arguments: str) -> None:
    """A command of Temporal's program, as docs/operations.md has it."""
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


async def test_a_waiting_plan_is_moved_to_a_version_and_ends_there(
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
        query = f"RootWorkflowId = '{waiting.id}' AND ExecutionStatus = 'Running'"

        async def is_listed() -> bool:
            return (await user.client.count_workflows(query)).count == 1

        await assert_eventually(is_listed, why="the run is found")
        await temporal(
            server, "workflow", "update-options", "--yes", "--reason", "1 is retired", "--query", query,
            "--versioning-override-behavior", "one_time",
            "--versioning-override-deployment-name", queue, "--versioning-override-build-id", "2",
        )  # fmt: skip
        await waiting.signal("approve", {"by": "test"})
        assert (await ended(waiting))["state"] == {"a": 2, "d": 4}
        assert await builds(user, waiting.id) == {"1", "2"}
        assert await builds(user, f"{waiting.id}/2:old.double") == {"2"}


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
