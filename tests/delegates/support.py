"""What the tests of delegates share: a definition, what a refusal looks like, a server that answers byte by byte."""

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

from activities.load_delegate import Loader
from acts.language.wire import NON_RETRYABLE_TYPES
from delegates.sources import DelegateSources

DEFINITION = {
    "context": [{"type": "system", "message": "Say it shorter."}, {"type": "input", "schema": {"type": "object"}}],
    "schema": {"type": "string"},
}
BYTES = json.dumps(DEFINITION).encode()

HOST = "internal.test"  # no name server knows it: only the resolver of a test does


@contextlib.contextmanager
def refused(type_: str, *words: str) -> Any:
    """Fails unless the block raises a failure of that type, worth a retry or not, whose message has all words."""
    with pytest.raises(ApplicationError) as caught:
        yield caught
    error = caught.value
    assert (error.type, error.non_retryable) == (type_, type_ in NON_RETRYABLE_TYPES), error
    assert [word for word in words if word not in error.message] == [], error.message


# -- a server ----------------------------------------------------------------------


@dataclass(frozen=True)
class Endless:
    """After ``head``, the same bytes again and again until the client goes away."""

    head: bytes
    again: bytes


@dataclass(frozen=True)
class Hanging:
    """``head`` and then nothing, until the client goes away."""

    head: bytes


Reply = bytes | Endless | Hanging


def answer(body: bytes = BYTES, status: int = 200, **headers: str) -> bytes:
    """A well-formed answer; ``content_type=""`` leaves a header out."""
    all_headers = {"content_type": "application/json", "content_length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in all_headers.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode() + body


def redirect(to: str, status: int = 302) -> bytes:
    return answer(b"", status, location=to)


@dataclass
class Site:
    """Each connection is asked one thing and gets the next reply; then it is closed."""

    port: int = 0
    replies: list[Reply] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """``arrived``: something was asked. ``left``: the client of a hanging or endless reply went away."""

    def url(self, path: str = "/d.json", host: str = HOST, scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def will(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            self.arrived.set()
            await self._send(self.replies.pop(0), reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply if isinstance(reply, bytes) else reply.head)
        await writer.drain()
        try:
            while isinstance(reply, Endless):
                writer.write(reply.again)
                await writer.drain()
            if isinstance(reply, Hanging):
                await reader.read()  # returns when the client closes
        finally:
            if not isinstance(reply, bytes):
                self.left.set()


@contextlib.asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    found = Site()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = listening.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        listening.close()
        await listening.wait_closed()


# -- a loader ----------------------------------------------------------------------


@dataclass
class Names:
    """A resolver: what each name leads to. ``asked`` says how often it was asked, and for what."""

    known: dict[str, Sequence[str]] = field(default_factory=lambda: {HOST: ["127.0.0.1"]})
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002 - as the system's
        self.asked.append(host)
        return self.known[host]


def loader(*hosts: str, names: Names | None = None, private: Sequence[str] = (), **more: Any) -> Loader:
    """A loader that fetches from these hosts ("host" or "host:port"), with names of its own.

    ``more`` is what a Loader takes; ``resolve=None`` is the system's resolver.
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
