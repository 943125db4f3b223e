"""What the tests of delegates share: a definition, the check of an error, and a server that sends scripted bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from acts.activities.run_setup import Loader
from acts.delegates.sources import DelegateSources
from acts.language.wire import NON_RETRYABLE_TYPES

DEFINITION = {
    "context": [{"type": "system", "message": "Say it shorter."}, {"type": "input", "schema": {"type": "object"}}],
    "schema": {"type": "string"},
}
BYTES = json.dumps(DEFINITION).encode()

HOST = "internal.test"  # only the resolver of a test resolves it


@contextlib.contextmanager
def raises_load_error(type_: str, *words: str) -> Any:
    """Expects an ApplicationError of that type from the block, retryable or not by its type, with all words."""
    with pytest.raises(ApplicationError) as caught:
        yield caught
    error = caught.value
    assert (error.type, error.non_retryable) == (type_, type_ in NON_RETRYABLE_TYPES), error
    assert [word for word in words if word not in error.message] == [], error.message


@dataclass(frozen=True)
class Endless:
    """After ``head``, the same bytes again and again until the client disconnects."""

    head: bytes
    repeated: bytes


@dataclass(frozen=True)
class Hanging:
    """``head`` and then nothing, until the client disconnects."""

    head: bytes


Reply = bytes | Endless | Hanging


def answer(body: bytes = BYTES, status: int = 200, **headers: str) -> bytes:
    """A well-formed answer; ``content_type=""`` omits that header."""
    all_headers = {"content_type": "application/json", "content_length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in all_headers.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode() + body


def redirect(to: str, status: int = 302) -> bytes:
    return answer(b"", status, location=to)


@dataclass
class Site:
    """A server: each connection makes one request, gets the next reply, and is closed."""

    port: int = 0
    replies: list[Reply] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    has_request: asyncio.Event = field(default_factory=asyncio.Event)
    client_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """``client_closed``: the client of a hanging or endless reply has disconnected."""

    def url(self, path: str = "/d.json", host: str = HOST, scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def reply_with(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            self.has_request.set()
            await self._send(self.replies.pop(0), reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply if isinstance(reply, bytes) else reply.head)
        await writer.drain()
        try:
            while isinstance(reply, Endless):
                writer.write(reply.repeated)
                await writer.drain()
            if isinstance(reply, Hanging):
                await reader.read()  # returns when the client closes
        finally:
            if not isinstance(reply, bytes):
                self.client_closed.set()


@contextlib.asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    server = Site()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


@dataclass
class Names:
    """A resolver with the addresses of each name. ``lookups`` are the names it was asked for, in order."""

    addresses: dict[str, Sequence[str]] = field(default_factory=lambda: {HOST: ["127.0.0.1"]})
    lookups: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002 - as the system's
        self.lookups.append(host)
        return self.addresses[host]


def loader(*hosts: str, names: Names | None = None, private: Sequence[str] = (), **more: Any) -> Loader:
    """A loader that fetches from these hosts ("host" or "host:port"), with a resolver of its own.

    ``more`` are arguments of Loader; ``resolve=None`` is the system's resolver.
    """
    return Loader(
        DelegateSources((), frozenset(map(_host, hosts)), frozenset(map(_host, private))),
        **{"resolve": names or Names(), **more},
    )


def for_site(*sites: Site, names: Names | None = None, **more: Any) -> Loader:
    """A loader that may fetch from these sites, which are on 127.0.0.1."""
    return loader(names=names, private=[f"{HOST}:{s.port}" for s in sites], **more)


def _host(text: str) -> tuple[str, int | None]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host else (text, None)
