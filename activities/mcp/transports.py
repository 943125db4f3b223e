"""The streams to one MCP server: a child process, or streamable HTTP; both bounded in what they accept.

The SDK's own client for processes joins a line of any length, chunk by chunk; ours skips what is too long and answers
the request in its place. A server gets the environment that the SDK regards as safe and what its configuration says,
never the keys of the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from activities.mcp.message_lines import MAX_MESSAGE_BYTES, LineSplitter, OversizedLine

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from activities.mcp.mcp_config import McpServerConfig

CHUNK_BYTES: Final = 64 * 1024
# Our own code in an error that stands for an answer that is too large; outside of what JSON-RPC reserves
OVERSIZED: Final = -31_001
# A server ends when its input ends; then it is told by SIGTERM, then killed. A worker's stop has 20 s in all
EXIT_SECONDS: Final = 2.0
# Of what a server writes to stderr, for the error that says why it ended
STDERR_LINES: Final = 20
STDERR_CHARACTERS: Final = 300
CONNECT_SECONDS: Final = 10.0


class ProcessStreams:
    """The streams to a server in a child process; a context manager, entered once, that gives the two streams."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.has_ended = asyncio.Event()
        self.ended_itself = False

    @property
    def last_words(self) -> str:
        """How the process ended, and the last line that it wrote to stderr."""
        code = None if self._process is None else self._process.returncode
        ending = "it has ended" if code is None else f"it ended with code {code}"
        return f"{ending}; it wrote: {self._stderr[-1]}" if self._stderr else ending

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[SessionMessage]]:
        config = self._config
        self._process = await asyncio.create_subprocess_exec(
            str(config.command), *config.args, env=get_default_environment() | config.env, cwd=config.cwd,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        works = (self._read(incoming), self._write(outgoing, incoming), self._keep_stderr())
        self._tasks = [asyncio.create_task(work) for work in works]
        self._streams = (incoming, read, write, outgoing)
        return read, write

    async def __aexit__(self, *exc_info: object) -> None:
        work = asyncio.create_task(self._stop())
        is_cancelled = False
        while not work.done():  # a cancelled owner must not leave the process behind; every wait in it is bounded
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                is_cancelled = True
        work.result()
        if is_cancelled:
            raise asyncio.CancelledError

    async def _read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        lines = LineSplitter()
        try:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                while chunk := await self._process.stdout.read(CHUNK_BYTES):
                    for line in lines.feed(chunk):
                        message = _read_line(line)
                        if message is None:  # nobody can tell what it answers
                            return
                        await incoming.send(message)
        finally:
            self.has_ended.set()
            incoming.close()

    async def _write(
        self,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert self._process is not None  # noqa: S101 - entered
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - a pipe
        try:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
        except (OSError, RuntimeError):
            incoming.close()  # the session fails what is in flight instead of waiting for it

    async def _keep_stderr(self) -> None:
        """Read stderr to its end, or the server blocks; keep its last lines."""
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stderr is not None  # noqa: S101 - a pipe
        lines = LineSplitter(CHUNK_BYTES)
        while chunk := await self._process.stderr.read(CHUNK_BYTES):
            for line in lines.feed(chunk):
                text = "…" if isinstance(line, OversizedLine) else line.decode(errors="replace")
                self._stderr.append("".join(c if c.isprintable() else " " for c in text.strip())[:STDERR_CHARACTERS])

    async def _stop(self) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - entered
        self.ended_itself = self.has_ended.is_set()
        for stream in self._streams:
            stream.close()
        if process.stdin is not None:
            process.stdin.close()
        for name in ("", "SIGTERM", "SIGKILL"):
            if name:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    _signal_group(process, name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
                break
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        transport = getattr(process, "_transport", None)
        if transport is not None:  # a child of the server may hold its pipes; then nothing else closes ours
            transport.close()


def _signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    """Send a signal to a server and what it has started; where there are no groups, to the server."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, getattr(signal, name))
    else:
        process.kill()


def _read_line(line: bytes | OversizedLine) -> SessionMessage | Exception | None:
    """The message of a line, an error for the log, or None where the connection has to end."""
    if isinstance(line, OversizedLine):
        if line.request_id is None:
            return None
        text = f"the answer has more than {MAX_MESSAGE_BYTES:,} bytes"
        error = types.ErrorData(code=OVERSIZED, message=text)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=line.request_id, error=error))
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValidationError, ValueError):
        return ValueError("a line that is no JSON-RPC message")


@asynccontextmanager
async def http_streams(config: McpServerConfig) -> AsyncGenerator[tuple[Any, Any], None]:
    """The streams to a server behind a URL. Its redirects are followed within its origin only, by the SDK."""
    # How long a Call may take is for its Tool to say, so reading has no limit of its own
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    transport = _BoundedTransport()
    async with (
        httpx2.AsyncClient(headers=config.headers, timeout=timeout, transport=transport) as client,
        streamable_http_client(
            str(config.url), http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as (read, write),
    ):  # fmt: skip
        yield read, write


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """HTTP whose JSON bodies end with an error beyond the limit; the SDK bounds the events of a stream."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MAX_MESSAGE_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
