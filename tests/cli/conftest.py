"""Shared by the tests of the command line: the command, a worker, and waiting for states of runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from typer.testing import CliRunner, Result

import examples
from acts.cli.dev.temporal_server import DevServer
from acts.cli.main import app
from acts.language.wire import PENDING, STATUS
from tests.support import assert_eventually

ROOT = Path(__file__).parents[2]
NEEDY = """
context:
- {type: tool, tool: askWeather}
- {type: plan, plan: [{_tool: askWeather, city: †input.city, _outputPath: †state.weather}]}
"""
COMMAND_SECONDS = 180  # it needs about one; a machine under full load many times that

Acts = Callable[..., Result]
ENGLISH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_activity": {"const": "compareLanguage"}, "_outputPath": {"type": "string"}, "language": {"type": "string"},
        "note": {},
    },
    "required": ["language"],
}  # fmt: skip


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without a developer's settings of servers and tools."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_", "PYTHONIO"))}
    return {**environment, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TEMPORAL_CONFIG_FILE": os.devnull, **more}


def run_acts(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """``acts ARGUMENTS`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "acts.cli", *arguments],
        cwd=cwd,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


@contextmanager
def worker_process(environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "acts.worker"], cwd=ROOT, env=clean_environment(**environment),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert any("acts worker" in line for line in process.stdout)
        yield
        process.terminate()


@pytest.fixture(scope="session")
def worker(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A worker process that serves the examples; yields the environment of its clients."""
    environment = {
        "TEMPORAL_ADDRESS": server.address,
        "ACTS_TASK_QUEUE": f"cli-{os.getpid()}",
        "ACTS_ACTIVITIES": ",".join((*examples.MODULES, "tests.cli.served")),
        "ACTS_DATA": str(sets := tmp_path_factory.mktemp("sets")),
        "ACTS_RESULTS": str(sets),
        "ACTS_STATE": str(tmp_path_factory.mktemp("state")),
        "ACTS_SCRIPTS": str(tmp_path_factory.mktemp("scripts")),
        "ACTS_PLANS": str(plans := tmp_path_factory.mktemp("plans")),
        "ACTS_DELEGATES": os.pathsep.join(examples.DELEGATES),
        "ACTS_SHUTDOWN_SECONDS": "1",
    }
    shutil.copy(ROOT / "examples" / "weather" / "plan.yaml", plans / "outing.yaml")
    (plans / "needy.yaml").write_text(NEEDY, "utf-8")
    with worker_process(environment):
        yield environment


@pytest.fixture
def acts(worker: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acts:
    """``acts ARGUMENTS`` against the server and the worker; in this process, because a new one costs a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    for name, value in worker.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: str) -> Result:
        with ThreadPoolExecutor(1) as thread:  # a command runs an event loop of its own, and this thread may have one
            return thread.submit(CliRunner().invoke, app, list(arguments), catch_exceptions=False).result()

    return call


@pytest.fixture
async def no_other_runs(client: Client) -> None:
    """No run of an earlier test is open: a look at all runs asks each of them, and waits for those without a worker."""

    async def are_over() -> bool:
        async for run in client.list_workflows("ExecutionStatus = 'Running'"):
            with suppress(RPCError):  # the list is a moment behind
                await client.get_workflow_handle(run.id, run_id=run.run_id).terminate("of an earlier test")
        return (await client.count_workflows("ExecutionStatus = 'Running'")).count == 0

    await assert_eventually(are_over, why="no run is open")


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for every line of a table."""
    monkeypatch.setenv("COLUMNS", "250")


def new_name() -> str:
    """An unused run id."""
    return f"cli-{uuid.uuid4().hex[:8]}"


def squeeze(text: str) -> str:
    """A text without the spaces that make columns."""
    return re.sub(r" +", " ", text)


async def wait_for_state(client: Client, run: str, call: str, state: str) -> None:
    async def look() -> bool:
        status: dict[str, Any] = await client.get_workflow_handle(run).query(STATUS)
        return any(c["id"] == call and c["state"] == state for c in status["calls"])

    await assert_eventually(look, why=f"{call} is {state}")


async def wait_for_end(client: Client, run: str) -> None:
    async def look() -> bool:
        return (await client.get_workflow_handle(run).describe()).close_time is not None

    await assert_eventually(look, why=f"{run} has ended")


async def wait_for_listing(client: Client, run: str, query: str = "ExecutionStatus = 'Running'") -> None:
    """Wait until the server lists a run under a query: its lists follow what happens to a run by a moment."""

    async def look() -> bool:
        return (await client.count_workflows(f"WorkflowId = '{run}' AND {query}")).count == 1

    await assert_eventually(look, why=f"{run} is listed under {query}")


async def start_waiting(acts: Acts, client: Client, request_file: str, count: int = 1) -> str:
    """A detached run, once so many approvals are pending."""
    name = new_name()
    detached = acts("run", request_file, "--detach", "--id", name)
    assert detached.exit_code == 0, detached.stderr
    await wait_for_approvals(client, name, count)
    return name


async def wait_for_approvals(client: Client, run: str, count: int = 1) -> list[Any]:
    """The pending approvals of a run, once there are so many."""

    async def look() -> list[Any]:
        approvals: list[Any] = await client.get_workflow_handle(run).query(PENDING)
        return approvals if len(approvals) == count else []

    approvals: list[Any] = await assert_eventually(look, why=f"{run} has {count} pending approvals")
    return approvals
