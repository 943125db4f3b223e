"""All MCP servers of one worker.

The MCP SDK takes half a second to import; it is imported in a thread, and only where ``ACTS_MCP`` names servers.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from temporalio.exceptions import ApplicationError

from acts.language.wire import MCP_UNAVAILABLE

if TYPE_CHECKING:
    from acts.activities.mcp.connection import McpConnection
    from acts.activities.mcp.server_tools import McpServerConfig

# A run that asks for a Tool of a server that is just starting waits so long; its look-up may take 10 s in all
LOOKUP_SECONDS: Final = 8.0
# Three times two seconds for a server that ignores every request to end
STOP_SECONDS: Final = 7.0

Tools = dict[str, dict[str, Any]]


class McpServers:
    """The servers of a worker. ``start`` and ``stop`` are called once, in the event loop of the worker."""

    def __init__(self, configs: Sequence[McpServerConfig]) -> None:
        self.configs = {config.name: config for config in configs}
        self._connections: dict[str, McpConnection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start all servers, if there are any; returns at once."""

        async def start_all() -> None:
            module = await asyncio.to_thread(importlib.import_module, "acts.activities.mcp.connection")
            self._connections = {name: module.McpConnection(config) for name, config in self.configs.items()}
            self._tasks = [asyncio.create_task(c.run(), name=f"mcp {n}") for n, c in self._connections.items()]

        if self.configs:
            self._starting = asyncio.create_task(start_all())

    async def stop(self) -> None:
        starting, self._starting = self._starting, None
        if starting is None:
            return
        await starting
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

    async def connection(self, server: str) -> McpConnection:
        """The connection to a server, which need not be up."""
        if self._starting is None:
            raise ApplicationError("this worker does not run its MCP servers now", type=MCP_UNAVAILABLE)
        await asyncio.shield(self._starting)
        return self._connections[server]

    @property
    def unlisted(self) -> list[str]:
        """The servers that have not said yet which tools they have."""
        listed = {name for name, connection in self._connections.items() if connection.is_listed}
        return [name for name in self.configs if name not in listed]

    @property
    def tools(self) -> Tools:
        """The Tools that the servers offer now, by name."""
        listings = [connection.listing for connection in self._connections.values()]
        return {name: schema for listing in listings for name, schema in listing.tools.items()}

    async def find_tools(self, names: Iterable[str]) -> tuple[Tools, dict[str, str]]:
        """The Tools of these names, and why others of a configured server are missing."""
        wanted = [name for name in names if "." in name and name.partition(".")[0] in self.configs]
        looks = dict(zip(wanted, await asyncio.gather(*map(self._find_tool, wanted)), strict=True))
        tools = {name: look for name, look in looks.items() if isinstance(look, dict)}
        return tools, {name: look for name, look in looks.items() if isinstance(look, str)}

    async def _find_tool(self, name: str) -> dict[str, Any] | str:
        """A Tool, or why there is none."""
        server = name.partition(".")[0]
        connection = await self.connection(server)
        is_up = await connection.wait_up(LOOKUP_SECONDS)
        listing = connection.listing
        if name in listing.tools:
            return listing.tools[name]
        reason = listing.refused.get(name)
        problem = f"has it, but it cannot be used: {reason}" if reason else "has no such tool"
        return f'MCP server "{server}" {problem if is_up else f"is not up: {connection.failure}"}'

    def read_once(self, names: Sequence[str]) -> tuple[Tools, dict[str, str]]:
        """``find_tools`` for a program that serves nothing: starts the servers of these Tools, reads, ends them."""
        needed = [config for name, config in self.configs.items() if any(n.startswith(f"{name}.") for n in names)]
        if not needed:
            return {}, {}

        async def read() -> tuple[Tools, dict[str, str]]:
            own = McpServers(needed)
            own.start()
            try:
                return await own.find_tools(names)
            finally:
                await own.stop()

        with ThreadPoolExecutor(1) as executor:  # the caller may have an event loop of its own
            return executor.submit(lambda: asyncio.run(read())).result()
