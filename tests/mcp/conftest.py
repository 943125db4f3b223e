"""The hostile server as a worker has it, and a way to call its tools."""

from __future__ import annotations

import json
import sys
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.activities import registry
from acts.activities.mcp.server_tools import McpServerConfig
from acts.activities.mcp.servers import McpServers
from acts.cli.dev.temporal_server import DevServer
from acts.worker import serve as worker
from acts.worker import settings as worker_settings
from tests.workflow.foreign import Handle, ended

SERVER = Path(__file__).with_name("hostile_server.py")
# A server needs half a second to start; under full load many times that
START_SECONDS = 60.0


def entry(folder: Path, **acts: Any) -> dict[str, Any]:
    """The hostile server in the file of ACTS_MCP."""
    return {"command": sys.executable, "args": [str(SERVER), str(folder)], **({"acts": acts} if acts else {})}


@dataclass
class Hostile:
    """The server under the name ``h``; ``folder`` is its memory."""

    folder: Path
    servers: McpServers
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)

    async def call(self, tool: str, *, seconds: float = START_SECONDS, **arguments: Any) -> dict[str, Any]:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append((progress, total, message))

        connection = await self.servers.connection("h")
        return await connection.call(tool, arguments, {"_id": "k"}, None, seconds, note)

    async def text(self, tool: str, **more: Any) -> str:
        return str((await self.call(tool, **more))["content"][0]["text"])

    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def lives(self) -> int:
        return len((self.folder / "lives").read_text())


Start = Callable[..., Awaitable[Hostile]]


async def start_hostile(folder: Path, **acts: Any) -> Hostile:
    config = McpServerConfig.model_validate({"name": "h", **entry(folder, **acts)})
    servers = McpServers([config])
    servers.start()
    return Hostile(folder, servers)


@pytest.fixture
async def hostile(tmp_path: Path) -> AsyncIterator[Hostile]:
    """A server of one's own, for tests that end it."""
    running = await start_hostile(tmp_path)
    yield running
    await running.servers.stop()


@pytest.fixture(scope="module")
async def lasting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hostile]:
    """A server that the tests of a file share."""
    running = await start_hostile(tmp_path_factory.mktemp("hostile"))
    yield running
    await running.servers.stop()


class Engine:
    """A worker with the hostile server, and a client that starts plans."""

    def __init__(self, client: Client, queue: str, hostile: Hostile) -> None:
        self.client, self.queue, self.hostile = client, queue, hostile

    async def start(self, *calls: dict[str, Any], **config: Any) -> Handle:
        tools = [{"type": "tool", "tool": name} for name in dict.fromkeys(c["_tool"] for c in calls)]
        request = {"config": config, "context": [*tools, {"type": "plan", "plan": list(calls)}]}
        return await self.client.start_workflow("Plan", request, id=f"mcp-{uuid.uuid4().hex}", task_queue=self.queue)

    async def run(self, *calls: dict[str, Any], **config: Any) -> dict[str, Any]:
        return await ended(await self.start(*calls, **config))


@pytest.fixture(scope="module")
async def engine(server: DevServer, client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    policy = {"tools": {"slow": {"options": {"heartbeat": "60s"}}}}
    content = {"mcpServers": {"h": entry(folder, **policy), "broken": {"command": "/no/such/program"}}}
    (folder / "mcp.json").write_text(json.dumps(content))
    served = registry.load([], [], folder / "mcp.json")
    queue = f"mcp-{uuid.uuid4().hex[:8]}"
    served.servers.start()
    with pytest.MonkeyPatch.context() as environment, ThreadPoolExecutor(2) as executor:
        environment.setenv("TEMPORAL_ADDRESS", server.address)
        environment.setenv("TEMPORAL_NAMESPACE", server.namespace)
        own = await worker.connect()
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots, on purpose
            running = worker.build(own, worker_settings.Settings(task_queue=queue), served, executor)
        async with running:
            yield Engine(client, queue, Hostile(folder, served.servers))
    await served.servers.stop()
