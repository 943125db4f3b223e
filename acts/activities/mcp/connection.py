"""One MCP server of this worker: started, listed, called, and started again with back-off when it ends.

The SDK's client runs the process or speaks HTTP. A connection that breaks fails the Calls in flight and nothing else:
the next Call finds out when it lists the tools, and waits until the server is back, as long as its patience allows. A
server gets the environment that the SDK regards as safe and what its configuration says, never the keys of the worker.

The SDK would check results with the server's own schema by rules that can take forever, so requests go past that: the
engine checks a result with what was recorded when the run was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import TypeAdapter, ValidationError
from temporalio.exceptions import ApplicationError

from acts.activities.mcp.server_tools import MAX_TOOLS, McpServerConfig, ToolListing, read_listing
from acts.language.config import settings_text
from acts.language.errors import format_choices, truncate
from acts.language.secret_masks import SecretMasks
from acts.language.tools import SERVER_TOOL
from acts.language.values import Json
from acts.language.wire import MCP_INTERRUPTED, MCP_REFUSED, MCP_TOOL_CHANGED, MCP_UNAVAILABLE, TIMEOUT

logger = logging.getLogger(__name__)

# The wait before a server is started again: doubled each time, back to the first once it was up for a minute
FIRST_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 60.0
# How long a Call waits for a server that is down, within the time of its attempt
PATIENCE_SECONDS: Final = 30.0
# A list is read again before a Call when it is older
FRESH_SECONDS: Final = 1.0
# A server that does not list its tools in this time is started again
LIST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
# A paginator that never ends
MAX_PAGES: Final = 100
# Of an answer over HTTP; in a stream of events, the SDK bounds each
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
MAX_ANSWER_VALUES: Final = 1_000_000  # an empty list has three bytes of text, and takes eighty
# Bytes of what a server writes to stderr that are kept, and characters of its last line in an error
STDERR_BYTES: Final = 4_096
STDERR_CHARACTERS: Final = 300
# Errors of JSON-RPC that another attempt would meet again: invalid request, unknown method, invalid parameters
_LASTING: Final = (-32600, -32601, -32602)
_ANSWER: Final[TypeAdapter[types.CallToolResult]] = TypeAdapter(types.CallToolResult)


class McpConnection:
    """The connection to one server. ``run`` keeps it up until it is cancelled."""

    def __init__(self, config: McpServerConfig) -> None:
        self.config = config
        self._masks = SecretMasks(config.secrets)
        self.listing = ToolListing()
        self.failure = "it has not been started yet"
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._broken = asyncio.Event()
        self._stderr = b""
        self._listed: list[dict[str, Any]] = []  # as it came, to see that nothing has changed
        self._listed_at = 0.0
        self._list_lock = asyncio.Lock()

    async def run(self) -> None:
        """Start the server, and again whenever it ends."""
        delay = FIRST_BACKOFF_SECONDS
        while True:
            began = time.monotonic()
            try:
                await self._serve()
            except TimeoutError:
                self.failure = f"it did not start within {self.config.acts.startTimeout:g} s"
            except Exception as error:  # noqa: BLE001 - whatever a server does, the next start may succeed
                self.failure = self._describe(error)
            finally:
                self._break(self._client, self.failure + self._last_words())
            if time.monotonic() - began > STEADY_SECONDS:
                delay = FIRST_BACKOFF_SECONDS
            logger.warning('MCP server "%s": %s; started again in %g s', self.config.name, self.failure, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_BACKOFF_SECONDS)

    async def _serve(self) -> None:
        """One life of the server: until the connection breaks."""
        self._broken.clear()
        self._stderr = b""
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self.config.acts.startTimeout):
                client = await self._connect(stack)
                await self._list(client)
            self._client = client
            self._up.set()
            logger.info('MCP server "%s" has %d tools', self.config.name, len(self.listing.tools))
            await self._broken.wait()

    def _break(self, client: Client | None, reason: str) -> None:
        """End a connection, unless another one is up already."""
        if client is self._client:
            self.failure = reason
            self._client = None
            self._up.clear()
            self._broken.set()

    @property
    def is_listed(self) -> bool:
        return self._listed_at > 0

    async def wait_up(self, seconds: float) -> bool:
        """True once Calls can be sent; False when that takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._up.is_set():
                    await self._up.wait()
        return self._up.is_set()

    async def _connect(self, stack: contextlib.AsyncExitStack) -> Client:
        """The client of a process that is started, or of a server behind a URL. The SDK follows redirects within its
        origin only.
        """
        own = self.config
        if own.url is None:
            parameters = StdioServerParameters(
                command=str(own.command), args=[*own.args], env=own.env, cwd=own.cwd, encoding_error_handler="replace"
            )
            transport = stdio_client(parameters, stack.enter_context(self._stderr_pipe()))
        else:
            # How long a Call may take is for its Tool to say, so reading has no limit of its own
            timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
            http = httpx2.AsyncClient(
                headers={"accept-encoding": "identity", **own.headers}, timeout=timeout,
                event_hooks={"response": [_bound_body]},
            )  # fmt: skip
            await stack.enter_async_context(http)
            transport = streamable_http_client(own.url, http_client=http)
        return await stack.enter_async_context(Client(transport, cache=None))

    @contextmanager
    def _stderr_pipe(self) -> Iterator[Any]:
        """A file for the process to write its errors to; the last of them are kept."""
        loop, (read, write) = asyncio.get_running_loop(), os.pipe()
        os.set_blocking(read, False)

        def keep() -> None:
            with contextlib.suppress(BlockingIOError):
                self._stderr = _cut_lines(self._stderr + os.read(read, STDERR_BYTES))

        loop.add_reader(read, keep)
        try:
            with os.fdopen(write, "w") as file:
                yield file
        finally:
            keep()  # the last that a process wrote
            loop.remove_reader(read)
            os.close(read)

    def _last_words(self) -> str:
        """The end of the last line that the process wrote to stderr."""
        text = self._masks.mask_text(self._stderr.decode(errors="replace")).strip().rpartition("\n")[2]
        line = "".join(c if c.isprintable() else " " for c in text.strip())[-STDERR_CHARACTERS:]
        return f"; it wrote: {line}" if line else ""

    # -- tools -------------------------------------------------------------------

    async def _list(self, client: Client) -> None:
        """Read the list of tools, page by page."""
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        began = time.monotonic()
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await client.session.list_tools(params=params)
            listed += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(listed) > MAX_TOOLS:
                break
        self._listed_at, listed = began, [self._masks.mask_value(tool) for tool in listed]
        if listed == self._listed:
            return
        before, self.listing = self.listing.refused, await asyncio.to_thread(read_listing, self.config, listed)
        self._listed = listed
        for name in self.listing.refused.keys() - before.keys():
            logger.warning('MCP tool "%s" is not offered: %s', name, truncate(self.listing.refused[name], 300))

    async def _client_with_tools(self, seconds: float) -> Client:
        """The client, once the server is up and its list of tools is fresh; raises where that takes longer."""
        deadline = time.monotonic() + seconds
        while await self.wait_up(deadline - time.monotonic()) and (client := self._client) is not None:
            try:
                async with self._list_lock, asyncio.timeout(LIST_SECONDS):
                    if time.monotonic() - self._listed_at > FRESH_SECONDS:
                        await self._list(client)
            except (TimeoutError, MCPError, ValidationError, RuntimeError) as error:
                self._break(client, f"it does not list its tools: {self._describe(error)}")
            else:
                return client
        raise ApplicationError(f'MCP server "{self.config.name}" is not up: {self.failure}', type=MCP_UNAVAILABLE)

    def _check_tool(self, tool: str, digest: str | None) -> None:
        """Raise unless the tool is there, and still the one of the digest."""
        name, subject = f"{self.config.name}.{tool}", f'the tool "{tool}" of MCP server "{self.config.name}"'
        current = self.listing.tools.get(name)
        if current is None:
            reason = self.listing.refused.get(name)
            problem = f"cannot be used: {reason}" if reason else f"is not in {format_choices(self.listing.tools)}"
            raise ApplicationError(f"{subject} {problem}", type=MCP_TOOL_CHANGED, non_retryable=True)
        if digest is not None and current[SERVER_TOOL]["digest"] != digest:
            text = f"{subject} has another schema or other hints than when this run was started: start a new run"
            raise ApplicationError(f"{text}, which reads them anew", type=MCP_TOOL_CHANGED, non_retryable=True)

    async def call(
        self, tool: str, arguments: Json, meta: Json, digest: str | None, seconds: float, progress: ProgressFnT
    ) -> dict[str, Any]:
        """The answer to one Call, as ``tools/call`` has it in JSON. Raises ApplicationError: the Call has no answer;
        not retryable where it would have none again.
        """
        deadline = time.monotonic() + seconds
        client = await self._client_with_tools(min(PATIENCE_SECONDS, seconds))
        self._check_tool(tool, digest)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments, _meta=meta))
        left = max(deadline - time.monotonic(), 0.0)
        server = f'MCP server "{self.config.name}"'
        try:
            result = await client.session.send_request(
                request, _ANSWER, request_read_timeout_seconds=left, progress_callback=progress
            )
        except ValidationError as error:
            text = f'{server} gave "{tool}" an answer that is none: {self._describe(error)}'
            raise ApplicationError(text, type=MCP_REFUSED, non_retryable=True) from None
        except MCPError as error:
            self._listed_at = 0.0  # the next Call finds out whether the server still answers
            reason = truncate(self._masks.mask_text(error.error.message), 1_000)
            code, text = {
                REQUEST_TIMEOUT: (TIMEOUT, f'did not answer "{tool}" within {seconds:g} s'),
                CONNECTION_CLOSED: (MCP_INTERRUPTED, f'ended while "{tool}" ran: whether it had its effect is unknown'),
            }.get(error.code, (MCP_REFUSED, f'refuses "{tool}": {reason} ({error.code})'))
            raise ApplicationError(f"{server} {text}", type=code, non_retryable=error.code in _LASTING) from None
        return result.model_dump(by_alias=True, exclude_unset=True)

    def _describe(self, error: BaseException) -> str:
        """The first error of a group, in words."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = settings_text(error) if isinstance(error, ValidationError) else str(error)
        return truncate(self._masks.mask_text(text or type(error).__name__), 300)


async def _bound_body(response: httpx2.Response) -> None:
    response.stream = _BoundedBody(response)


class _BoundedBody(httpx2.AsyncByteStream):
    """A body as it is sent: one that is compressed, though nobody asked for it, is not read, nor a larger one."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response, self._stream = response, cast("httpx2.AsyncByteStream", response.stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        encoding, content = (self._response.headers.get(f"content-{name}", "") for name in ("encoding", "type"))
        if encoding.strip().lower() not in ("", "identity"):
            raise httpx2.StreamError(f"the body is in the encoding {truncate(encoding, 100)}; only identity is read")
        has_events = self._response.is_success and content.lower().startswith("text/event-stream")
        left = math.inf if has_events else MAX_ANSWER_BYTES
        values = math.inf if has_events else MAX_ANSWER_VALUES
        async for chunk in self._stream:
            left -= len(chunk)
            values -= sum(map(chunk.count, (b",", b"[", b"{")))
            if min(left, values) < 0:
                text = f"the body has more than {MAX_ANSWER_BYTES:,} bytes, or {MAX_ANSWER_VALUES:,} values"
                raise httpx2.StreamError(text)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _cut_lines(data: bytes) -> bytes:
    """The last lines of what a process wrote, without one that is cut: a part of a secret has no mask. While such a
    line goes on, a NUL stands for it.
    """
    if len(data) <= STDERR_BYTES and data[:1] != b"\0":
        return data
    _, ends, rest = data[-STDERR_BYTES:].partition(b"\n")
    return rest if ends else b"\0"
