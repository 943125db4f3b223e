"""The events of runs over HTTP: ``GET /runs/ID/events`` at the port of ``ACTS_HEALTH``, as AG-UI's server-sent events.

``Last-Event-ID`` (or ``?after=OFFSET``) reads on; ``?type=`` and ``?call=`` (lists with commas), ``?instance=`` and
``?run=`` choose. The id of a run is quoted as any part of a URL. Words of a model come from the worker that asks it.

Laws of this file: who may read is as with the codec server. Without a token only programs of this machine, and no web
page of another origin, whatever name it has for this machine; beyond it only requests with the token. Each reader has a
thread, which waits: what it sends was made once, for all. One that stops reading is dropped when its socket is full.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from acts.activities.models import words
from acts.client.ag_ui_events import AgUiStream
from acts.client.event_feeds import EventFeeds, Watch, WatchRefused
from acts.payloads.codec_server import is_loopback
from acts.views.run_events import EventFilter, OffsetError

TOKEN_VARIABLE: Final = "ACTS_EVENTS_TOKEN"  # noqa: S105 - the name of a variable
OPEN_SECONDS: Final = 60.0  # a tree of some 100,000 events is read from its beginning
BEAT_SECONDS: Final = 15.0  # proxies close a connection that is silent for half a minute or more
SEND_SECONDS: Final = 20.0  # a reader that has taken nothing for so long has stopped
_GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


class EventServer:
    """Serves one client's runs; ``answer`` runs in a thread of its reader, all else in the worker's loop."""

    def __init__(self, client: Client, token: str) -> None:
        self._feeds = EventFeeds(client, AgUiStream)
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
        woken = threading.Event()
        try:
            watch = asyncio.run_coroutine_threadsafe(self._open(request, woken), self._loop).result(OPEN_SECONDS)
        except (OffsetError, WatchRefused, RPCError, TimeoutError) as error:
            _answer(request, *_problem(error))
            return
        try:
            _send_events(request, watch, woken)
        finally:
            with suppress(RuntimeError):  # the loop has ended, and the watch with it
                self._loop.call_soon_threadsafe(watch.close)

    def _refuse(self, request: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        """Why this request is not answered, if it is not."""
        given = (request.headers.get("Authorization") or "").removeprefix("Bearer ").encode(errors="replace")
        if self._token:
            is_right = hmac.compare_digest(given, self._token.encode())
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

    async def _open(self, request: BaseHTTPRequestHandler, woken: threading.Event) -> Watch:
        url = urlsplit(request.path)
        id_ = unquote(url.path.removeprefix("/runs/").removesuffix("/events"))
        if not id_ or not url.path.endswith("/events"):
            raise OffsetError("the events of a run are at /runs/ID/events, its id quoted: a%2Fb is a/b")
        fields = {name: values[-1] for name, values in parse_qs(url.query).items()}
        after = request.headers.get("Last-Event-ID") or fields.get("after", "")
        types, calls = (frozenset(filter(None, fields.get(name, "").split(","))) for name in ("type", "call"))
        wanted = EventFilter(types, calls, fields.get("instance"), fields.get("run"))
        return await self._feeds.open(id_, woken.set, after=after, wanted=wanted)


def _send_events(request: BaseHTTPRequestHandler, watch: Watch, woken: threading.Event) -> None:
    request.send_response(200)
    for name, value in (
        ("Content-Type", "text/event-stream"),
        ("Cache-Control", "no-store"),
        ("X-Accel-Buffering", "no"),
    ):
        request.send_header(name, value)
    request.end_headers()
    request.connection.settimeout(SEND_SECONDS)
    is_over = False
    with suppress(OSError, WatchRefused, RPCError):  # it has left, or reads no more: it may come back with its offset
        while not is_over:
            woken.clear()
            content, is_over = watch.take()
            request.wfile.write(content or b": \n\n")
            if not is_over:
                woken.wait(BEAT_SECONDS)


def _problem(error: Exception) -> tuple[int, str]:
    if isinstance(error, OffsetError):
        return 400, str(error)
    if isinstance(error, WatchRefused):
        return 503, str(error)
    if isinstance(error, RPCError):
        is_gone = error.status in _GONE
        return (404, f"there is no such run: {error.message}") if is_gone else (502, f"the server: {error.message}")
    return 504, f"the histories could not be read within {OPEN_SECONDS:g} s"


def _answer(request: BaseHTTPRequestHandler, status: int, problem: str) -> None:
    data = json.dumps({"ok": False, "problem": problem}).encode() + b"\n"
    request.send_response(status)
    headers: dict[str, Any] = {"Content-Type": "application/json", "Content-Length": len(data)}
    for name, value in headers.items():
        request.send_header(name, str(value))
    request.end_headers()
    request.wfile.write(data)
