"""One MCP server of this worker: started, listed, called, and started again with back-off when it ends. asyncio.

All of it runs in one event loop. A connection that breaks fails the Calls in flight and nothing else: the next Call
waits until the server is back, as long as its patience allows.

The SDK would check results with the server's own schema by rules that can take for ever, so requests go past that: the
engine checks a result with what was recorded when the run was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import TypeAdapter, ValidationError

from activities.mcp.call_errors import McpCallError
from activities.mcp.mcp_config import McpServerConfig
from activities.mcp.server_tools import MAX_TOOLS, ServerTool, ToolListing, read_listing
from activities.mcp.transports import OVERSIZED, ProcessStreams, http_streams
from acts.language.errors import format_choices, truncate
from acts.language.wire import (
    MCP_INTERRUPTED,
    MCP_REFUSED,
    MCP_TOOL_CHANGED,
    MCP_UNAVAILABLE,
    RESULT_TOO_LARGE,
    TIMEOUT,
)

logger = logging.getLogger(__name__)

# The wait before a server is started again: doubled each time, back to the first once it was up for a minute
FIRST_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 60.0
# How long a Call waits for a server that is down, within the time of its attempt
PATIENCE_SECONDS: Final = 30.0
# A list is read again before a Call when it is older: the first where the server promises to tell of changes
TOLD_SECONDS: Final = 60.0
UNTOLD_SECONDS: Final = 1.0
# For requests that compute nothing: a server that does not list its tools in this time is started again
PROBE_SECONDS: Final = 5.0
LIST_SECONDS: Final = 30.0
# A paginator that never ends
MAX_PAGES: Final = 100
# Errors of JSON-RPC that another attempt would meet again: invalid request, unknown method, invalid parameters
_LASTING: Final = (-32600, -32601, -32602)
_ANSWER: Final[TypeAdapter[types.CallToolResult]] = TypeAdapter(types.CallToolResult)


class McpConnection:
    """The connection to one server. ``run`` keeps it up until it is cancelled."""

    def __init__(self, config: McpServerConfig) -> None:
        self.config = config
        self.listing = ToolListing()
        self.failure = "it has not been started yet"
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._broken = asyncio.Event()
        self._listed: list[dict[str, Any]] = []  # as it came, to see that nothing has changed
        self._listed_at = 0.0
        self._list_lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """True while Calls can be sent."""
        return self._client is not None

    async def run(self) -> None:
        """Start the server, and again whenever it ends."""
        delay = FIRST_BACKOFF_SECONDS
        while True:
            began = time.monotonic()
            await self._serve()
            if time.monotonic() - began > STEADY_SECONDS:
                delay = FIRST_BACKOFF_SECONDS
            logger.warning('MCP server "%s": %s; started again in %g s', self.config.name, self.failure, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_BACKOFF_SECONDS)

    async def _serve(self) -> None:
        """One life of the server: until the connection breaks."""
        self._broken.clear()
        process = ProcessStreams(self.config) if self.config.command is not None else None
        try:
            await self._connect_and_wait(process)
        except TimeoutError:
            self.failure = f"it did not start within {self.config.acts.startTimeout:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a server does, the next start may succeed
            self.failure = _describe(error)
        finally:
            self._client = None
            self._up.clear()
        if process is not None and process.ended_itself:
            self.failure = process.last_words

    async def _connect_and_wait(self, process: ProcessStreams | None) -> None:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.config.acts.startTimeout):
                client = Client(process or http_streams(self.config), cache=None, message_handler=self._hear)
                await stack.enter_async_context(client)
                await self._list(client)
            self._client = client
            self._up.set()
            logger.info('MCP server "%s" has %d tools', self.config.name, len(self.listing.tools))
            await self._wait_for_end(process)
            self._client = None
            self._up.clear()

    async def _wait_for_end(self, process: ProcessStreams | None) -> None:
        ends = [asyncio.ensure_future(self._broken.wait())]
        if process is not None:
            ends.append(asyncio.ensure_future(process.has_ended.wait()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _break(self, client: Client, reason: str) -> None:
        """End a connection, unless another one is up already."""
        if client is self._client:
            self.failure = reason
            self._client = None
            self._up.clear()
            self._broken.set()

    async def _hear(self, message: Any) -> None:
        """Notifications of the server."""
        if isinstance(message, types.ToolListChangedNotification):
            self._listed_at = 0.0

    # -- tools -----------------------------------------------------------------

    async def _list(self, client: Client) -> None:
        """Read the list of tools, page by page."""
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        began = time.monotonic()
        for _ in range(MAX_PAGES):
            page = await client.session.list_tools(
                params=types.PaginatedRequestParams(cursor=cursor) if cursor else None
            )
            listed += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(listed) > MAX_TOOLS:
                break
        self._listed_at = began
        if listed == self._listed:
            return
        before, self.listing = self.listing.refused, await asyncio.to_thread(read_listing, self.config, listed)
        self._listed = listed
        for name in self.listing.refused.keys() - before.keys():
            logger.warning('MCP tool "%s" is not offered: %s', name, truncate(self.listing.refused[name], 300))

    async def _refresh(self, client: Client) -> None:
        """Read the list again if it may be out of date."""
        capability = client.server_capabilities.tools
        result = client.session.initialize_result  # later protocols tell of changes in subscriptions only
        is_told = result is not None and capability is not None and capability.list_changed is True
        async with self._list_lock:
            if time.monotonic() - self._listed_at > (TOLD_SECONDS if is_told else UNTOLD_SECONDS):
                async with asyncio.timeout(LIST_SECONDS):
                    await self._list(client)

    async def wait_up(self, seconds: float) -> bool:
        """True once Calls can be sent; False when that takes longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._up.wait(), seconds)
        return self.is_up

    def _check_tool(self, tool: str, digest: str | None) -> ServerTool:
        """The tool as it is now.

        Raises:
            McpCallError: it is gone, or not the one of the digest.
        """
        name = f"{self.config.name}.{tool}"
        server = f'MCP server "{self.config.name}"'
        current = self.listing.tools.get(name)
        if current is None:
            reason = self.listing.refused.get(name)
            text = (
                f"cannot be used: {reason}"
                if reason
                else f"does not exist; it has {format_choices(self.listing.tools)}"
            )
            raise McpCallError(
                MCP_TOOL_CHANGED, f'the tool "{tool}" of MCP server "{self.config.name}" {text}', is_final=True
            )
        if digest is not None and current.digest != digest:
            text = f'{server} has changed the schema or the hints of its tool "{tool}" since this run was started'
            raise McpCallError(MCP_TOOL_CHANGED, f"{text}: start a new run, which reads them anew", is_final=True)
        return current

    # -- calls -----------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        digest: str | None,
        meta: Mapping[str, Any],
        seconds: float,
        progress: ProgressFnT,
    ) -> dict[str, Any]:
        """The answer to one Call, as ``tools/call`` has it in JSON.

        Raises:
            McpCallError: there is none, and why.
        """
        deadline = time.monotonic() + seconds
        client = await self._client_with_tools(min(PATIENCE_SECONDS, seconds))
        self._check_tool(tool, digest)
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=dict(meta))
        try:
            result = await client.session.send_request(
                types.CallToolRequest(params=params), _ANSWER,
                request_read_timeout_seconds=max(deadline - time.monotonic(), 0.0), progress_callback=progress,
            )  # fmt: skip
        except MCPError as error:
            raise self._call_error(client, tool, error, seconds) from None
        except ValidationError as error:
            text = f'MCP server "{self.config.name}" gave "{tool}" an answer that is none: {_describe(error)}'
            raise McpCallError(MCP_REFUSED, text, is_final=True) from None
        return result.model_dump(by_alias=True, exclude_unset=True)

    async def _client_with_tools(self, seconds: float) -> Client:
        """The client, once the server is up and its list of tools is fresh. Nothing of a Call has been sent before.

        Raises:
            McpCallError: that takes longer.
        """
        deadline = time.monotonic() + seconds
        while await self.wait_up(deadline - time.monotonic()) and (client := self._client) is not None:
            try:
                await self._refresh(client)
            except (TimeoutError, MCPError, ValidationError, RuntimeError) as error:
                self._break(client, f"it does not list its tools: {_describe(error)}")
            else:
                return client
        text = f'MCP server "{self.config.name}" is not up: {self.failure}'
        raise McpCallError(MCP_UNAVAILABLE, text)

    def _call_error(self, client: Client, tool: str, error: MCPError, seconds: float) -> McpCallError:
        server, reason = f'MCP server "{self.config.name}"', truncate(error.error.message, 1_000)
        if error.code == OVERSIZED or "the answer has more than" in reason:
            text = f'the answer of "{tool}" is too large: {reason}'
            return McpCallError(RESULT_TOO_LARGE, f"{text}; ask the tool for less at once", is_final=True)
        if error.code == REQUEST_TIMEOUT:
            self._watch(client)
            return McpCallError(TIMEOUT, f'{server} did not answer "{tool}" within {seconds:g} s')
        if self.config.url is not None:
            self._watch(client)
        if error.code == CONNECTION_CLOSED:
            return McpCallError(
                MCP_INTERRUPTED, f'{server} ended while "{tool}" ran: whether it had its effect is unknown'
            )
        text = f'{server} refuses "{tool}": {reason} ({error.code})'
        return McpCallError(MCP_REFUSED, text, is_final=error.code in _LASTING)

    def _watch(self, client: Client) -> None:
        """Start the server again unless it lists its tools; newer protocols have no ping."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._probe(client))

    async def _probe(self, client: Client) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._list(client)
        except Exception:  # noqa: BLE001 - any failure means the same
            self._break(client, "it no longer answers")


def _describe(error: BaseException) -> str:
    """The first error of a group, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return truncate(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 300)
    return truncate(str(error) or type(error).__name__, 300)
