"""The engine's own worker in this process, and somebody foreign who uses it over the wire."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from acts.activities import registry
from acts.activities.plan_folders import read_plans
from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.worker import serve as worker
from acts.worker import settings as worker_settings
from tests.workflow.agents import Agents, Saved
from tests.workflow.foreign import Foreign

SERVED = "tests.workflow.served"


@pytest.fixture(scope="session")
def delegates_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests put the definitions of delegates."""
    return tmp_path_factory.mktemp("delegates")


@pytest.fixture(scope="session")
def sets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests put sets, and runs their results."""
    return tmp_path_factory.mktemp("sets")


@asynccontextmanager
async def engine_on(
    server: DevServer, queue: str, delegates: Path | None = None, sets: Path | None = None, plans: Path | None = None,
    modules: Sequence[str] = (SERVED,), shipped: str | None = "",
) -> AsyncIterator[str]:  # fmt: skip
    """The worker as ``python -m acts.worker`` builds it, with the tools of a test module registered."""
    served = registry.load(modules, [], plans=read_plans([plans] if plans else []), shipped=shipped)
    with pytest.MonkeyPatch.context() as environment, ThreadPoolExecutor(20) as executor:
        environment.setenv("TEMPORAL_ADDRESS", server.address)
        environment.setenv("TEMPORAL_NAMESPACE", server.namespace)
        environment.setenv("ACTS_DELEGATES", str(delegates or ""))
        environment.setenv("ACTS_DATA", str(sets or ""))
        environment.setenv("ACTS_RESULTS", str(sets or ""))
        client = await worker.connect()
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots, on purpose
            running = worker.build(client, worker_settings.Settings(task_queue=queue), served, executor)
        async with running:
            yield queue


@contextmanager
def renewing_server(events: int, *more: str) -> Iterator[DevServer]:
    """A server that suggests a new run after so many events instead of 4,096."""
    setting = f"limit.historyCount.suggestContinueAsNew={events}"
    with dev_server(ui=False, extra_args=("--dynamic-config-value", setting, *more)) as running:
        yield running


@pytest.fixture(scope="session")
async def engine(server: DevServer, delegates_folder: Path, sets_folder: Path) -> AsyncIterator[str]:
    """The task queue of a running worker of the engine."""
    async with engine_on(server, f"engine-{uuid.uuid4().hex[:8]}", delegates_folder, sets_folder) as queue:
        yield queue


@pytest.fixture(scope="session")
async def plain_client(server: DevServer) -> Client:
    """A client as the SDK makes it, without a word about how JSON is written."""
    return await Client.connect(server.address, namespace=server.namespace)


@pytest.fixture
async def foreign(plain_client: Client, engine: str, task_queue: str) -> Foreign:
    return Foreign(plain_client, engine, task_queue)


@pytest.fixture
def saved(delegates_folder: Path) -> Saved:
    return Saved(delegates_folder)


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes half a minute; left out with -m 'not slow'")
