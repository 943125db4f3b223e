"""All MCP servers of one worker, in the event loop of one thread, so that a large answer never stops the worker's own.

The MCP SDK is imported here, by that thread, and only where ``ACTS_MCP`` names servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from activities.mcp.call_errors import McpCallError
from activities.mcp.mcp_config import McpServerConfig
from acts.language.wire import MCP_UNAVAILABLE

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from activities.mcp.connection import McpConnection

T = TypeVar("T")

# A run that asks for a Tool of a server that is just starting waits so long; its look-up may take 10 s in all
LOOKUP_SECONDS: Final = 8.0
# Three times two seconds for a server that ignores every request to end
STOP_SECONDS: Final = 7.0


class McpServers:
    """The servers of a worker. ``start`` and ``stop`` are called once; the rest from any event loop."""

    def __init__(self, configs: Sequence[McpServerConfig]) -> None:
        self.configs = {config.name: config for config in configs}
        self._connections: dict[str, McpConnection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._has_begun = asyncio.Event()

    def start(self) -> None:
        """Start all servers, if there are any; returns at once."""
        if not self.configs:
            return
        ready = threading.Event()
        threading.Thread(target=self._run_loop, args=(ready,), name="mcp", daemon=True).start()
        ready.wait()

    def _run_loop(self, ready: threading.Event) -> None:
        self._loop = loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._has_begun = asyncio.Event()
        starting = loop.create_task(self._start_all())
        loop.call_soon(ready.set)
        try:
            loop.run_forever()
        finally:
            starting.cancel()
            loop.close()

    async def _start_all(self) -> None:
        from activities.mcp.connection import McpConnection

        for name, config in self.configs.items():
            self._connections[name] = McpConnection(config)
        self._tasks = [asyncio.create_task(c.run(), name=f"mcp {n}") for n, c in self._connections.items()]
        self._has_begun.set()

    async def stop(self) -> None:
        """End all servers, and the thread."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        with contextlib.suppress(TimeoutError):
            stopping = asyncio.run_coroutine_threadsafe(self._stop_all(), loop)
            await asyncio.wait_for(asyncio.wrap_future(stopping), STOP_SECONDS)
        loop.call_soon_threadsafe(loop.stop)

    async def _stop_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work in the servers' loop; cancelling this cancels it."""
        if self._loop is None:
            work.close()
            raise McpCallError(MCP_UNAVAILABLE, "this worker does not run its MCP servers now")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # -- what a worker asks -----------------------------------------------------

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The Tools that the servers offer now, by name."""
        listings = [connection.listing for connection in list(self._connections.values())]
        return {name: tool.schema for listing in listings for name, tool in listing.tools.items()}

    async def find_tools(self, names: Iterable[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """The Tools of these names, and why others of a configured server are missing."""
        wanted = {name: server for name in names if (server := name.partition(".")[0]) in self.configs and "." in name}
        if not wanted:
            return {}, {}
        await self._in_loop(self._wait_for(set(wanted.values())))
        tools = self.tools
        available = {name: tools[name] for name in wanted if name in tools}
        return available, {name: self._reason(name, server) for name, server in wanted.items() if name not in tools}

    async def _wait_for(self, servers: set[str]) -> None:
        await self._has_begun.wait()  # the SDK is imported first, which takes half a second
        await asyncio.gather(*(self._connections[name].wait_up(LOOKUP_SECONDS) for name in servers))

    def read_once(self, names: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """``find_tools`` for a program that serves nothing: starts the servers of these Tools, reads, ends them."""
        needed = [config for name, config in self.configs.items() if any(n.startswith(f"{name}.") for n in names)]
        if not needed:
            return {}, {}
        own = McpServers(needed)
        own.start()
        loop = own._loop
        assert loop is not None  # noqa: S101 - started
        try:
            return asyncio.run_coroutine_threadsafe(own.find_tools(names), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(own._stop_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _reason(self, name: str, server: str) -> str:
        connection = self._connections[server]
        if not connection.is_up:
            return f'MCP server "{server}" is not up: {connection.failure}'
        if name in connection.listing.refused:
            return f'MCP server "{server}" has it, but it cannot be used: {connection.listing.refused[name]}'
        return f'MCP server "{server}" has no such tool'

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Any], *,
        digest: str | None, meta: Mapping[str, Any], seconds: float, progress: ProgressFnT,
    ) -> dict[str, Any]:  # fmt: skip
        """The answer to one Call (see ``McpConnection.call``)."""

        async def work() -> dict[str, Any]:
            await self._has_begun.wait()
            return await self._connections[server].call(
                tool, arguments, digest=digest, meta=meta, seconds=seconds, progress=progress
            )

        return await self._in_loop(work())
