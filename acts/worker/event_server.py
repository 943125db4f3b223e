"""The events of runs over HTTP: ``GET /runs/ID/events`` at the port of ``ACTS_HEALTH``, as AG-UI's server-sent events.

``Last-Event-ID`` (or ``?after=OFFSET``) reads on; ``?type=`` and ``?call=`` (lists with commas), ``?instance=`` and
``?run=`` choose. The id of a run is quoted as any part of a URL. Words of a model come from the worker that asks it.

Laws of this file: who may read is as with the codec server. Without a token only programs of this machine, and no web
page of another origin, whatever name it has for this machine; beyond it only requests with the token. Each reader has a
thread that does nothing; one thread sends to all, what was made once for all. Who stops reading is dropped.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import selectors
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from acts.activities.models import words
from acts.client.ag_ui_events import AgUiStream
from acts.client.event_feeds import EventFeeds, Watch, WatchRefused
from acts.payloads.codec_server import is_loopback
from acts.views.run_events import EventFilter, EventsRefused

logger = logging.getLogger(__name__)

TOKEN_VARIABLE: Final = "ACTS_EVENTS_TOKEN"  # noqa: S105 - the name of a variable
OPEN_SECONDS: Final = 60.0  # a tree of some 100,000 events is read from its beginning
ROUND_SECONDS: Final = 0.1  # between two rounds to all readers, a system call for each of them
BEAT_SECONDS: Final = 15.0  # proxies close a connection that is silent for half a minute or more
SEND_SECONDS: Final = 20.0  # a reader that has taken nothing for so long has stopped
RETRY_SECONDS: Final = 0.1  # until the others are looked at while the sockets of some are full
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


class EventServer:
    """Serves one client's runs; ``answer`` runs in a thread of its reader, all else in the worker's loop."""

    def __init__(self, client: Client, token: str) -> None:
        self._feeds, self._sender = EventFeeds(client, AgUiStream), _Sender()
        self._token, self._loop = token, asyncio.get_running_loop()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        def listen(run: str, key: str, message: str, text: str) -> None:
            if self._feeds.watchers:
                self._loop.call_soon_threadsafe(self._feeds.add_words, run, key, message, text)

        words.listeners.add(listen)
        try:
            yield
        finally:
            words.listeners.discard(listen)
            self._feeds.close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        refusal = self._refuse(request)
        if refusal is not None:
            _answer(request, *refusal)
            return
        opening = asyncio.run_coroutine_threadsafe(self._open(request), self._loop)
        try:
            watch = opening.result(OPEN_SECONDS)
        except Exception as error:  # noqa: BLE001 - the reader is told, whatever it is
            opening.cancel()
            _answer(request, *_problem(error))
            return
        try:
            request.send_response(200)
            for name, value in _HEADERS.items():
                request.send_header(name, value)
            request.end_headers()
            self._sender.serve(request.connection, watch)
        finally:
            with suppress(RuntimeError):  # the loop has ended, and the watch with it
                self._loop.call_soon_threadsafe(watch.close)

    def _refuse(self, request: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        """Why this request is not answered, if it is not."""
        bearer = (request.headers.get("Authorization") or "").removeprefix("Bearer ").encode(errors="replace")
        if self._token:
            is_right = hmac.compare_digest(bearer, self._token.encode())
            return None if is_right else (401, f"the header Authorization lacks the token of {TOKEN_VARIABLE}")
        address = str(request.connection.getsockname()[0])
        if not is_loopback(address):
            return 403, f"anybody who reaches {address} could read every run: set {TOKEN_VARIABLE}, or use 127.0.0.1"
        origins = [f"//{request.headers.get('Host')}", *request.headers.get_all("Origin", ())]
        if not all(is_loopback(urlsplit(origin).hostname or "") for origin in origins):
            return (
                403,
                f"a page of another machine asks: only pages of 127.0.0.1 may, or requests with {TOKEN_VARIABLE}",
            )
        return None

    async def _open(self, request: BaseHTTPRequestHandler) -> Watch:
        url = urlsplit(request.path)
        id_ = unquote(url.path.removeprefix("/runs/").removesuffix("/events"))
        if not id_ or not url.path.endswith("/events"):
            raise EventsRefused("the events of a run are at /runs/ID/events, its id quoted: a%2Fb is a/b")
        fields = {name: values[-1] for name, values in parse_qs(url.query).items()}
        after = request.headers.get("Last-Event-ID") or fields.get("after", "")
        types, calls = (frozenset(filter(None, fields.get(name, "").split(","))) for name in ("type", "call"))
        wanted = EventFilter(types, calls, fields.get("instance"), fields.get("run"))
        return await self._feeds.open(id_, partial(self._sender.wake), after=after, wanted=wanted)


@dataclass(eq=False)
class _Reader:
    """A reader's socket, and what it has not taken yet. ``ended`` is set when nothing more is sent."""

    connection: socket.socket
    watch: Watch
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    has_all: bool = False
    last_progress: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self, now: float) -> None:
        """Send what its socket takes. Raises OSError, WatchRefused, RPCError: it is dropped."""
        if not self.unsent and not self.has_all:
            content, self.has_all = self.watch.take()
            is_silent = now - self.last_progress > BEAT_SECONDS
            self.unsent = memoryview(content or (b": \n\n" if is_silent else b""))
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
                self.last_progress = now
        if self.unsent and now - self.last_progress > SEND_SECONDS:
            raise TimeoutError
        if self.has_all and not self.unsent:
            self.ended.set()


class _Sender:
    """Sends to all readers from one thread: a hundred that wake at once would take a worker's time from its runs."""

    def __init__(self) -> None:
        self._woken, self._readers = threading.Event(), list[_Reader]()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        self._woken.set()

    def serve(self, connection: socket.socket, watch: Watch) -> None:
        """Send all that is watched; returns when it was sent, or the reader has left or stopped reading."""
        connection.setblocking(False)
        reader = _Reader(connection, watch)
        with self._lock:
            self._readers.append(reader)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        self.wake()
        reader.ended.wait()

    def _wait(self) -> None:
        """Wait until there is more, or a socket that was full has room."""
        full = [reader.connection for reader in self._readers if reader.unsent]
        if full:
            with selectors.DefaultSelector() as selector:
                for connection in full:
                    selector.register(connection, selectors.EVENT_WRITE)
                selector.select(RETRY_SECONDS)
        else:
            self._woken.wait(BEAT_SECONDS)
            time.sleep(ROUND_SECONDS)  # what comes meanwhile goes with it
        self._woken.clear()

    def _run(self) -> None:
        while True:
            self._wait()
            now = time.monotonic()
            for reader in tuple(self._readers):
                try:
                    reader.send(now)
                except Exception as error:
                    if not isinstance(error, (OSError, WatchRefused, RPCError)):
                        logger.exception("a reader of events is dropped")
                    reader.ended.set()
            with self._lock:
                self._readers = [reader for reader in self._readers if not reader.ended.is_set()]
                if not self._readers:
                    self._thread = None
                    return


def _problem(error: Exception) -> tuple[int, str]:
    if isinstance(error, EventsRefused):
        return 400, str(error)
    if isinstance(error, WatchRefused):
        return 503, str(error)
    if isinstance(error, RPCError):
        is_gone = error.status in _GONE
        return (404, f"there is no such run: {error.message}") if is_gone else (502, f"the server: {error.message}")
    if isinstance(error, TimeoutError):
        return 504, f"the histories could not be read within {OPEN_SECONDS:g} s"
    return 500, f"the histories cannot be read: {error}"  # as where a key or a storage is missing: it says so


def _answer(request: BaseHTTPRequestHandler, status: int, problem: str) -> None:
    data = json.dumps({"ok": False, "problem": problem}).encode() + b"\n"
    request.send_response(status)
    headers: dict[str, Any] = {"Content-Type": "application/json", "Content-Length": len(data)}
    for name, value in headers.items():
        request.send_header(name, str(value))
    request.end_headers()
    request.wfile.write(data)
