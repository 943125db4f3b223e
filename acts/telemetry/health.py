"""HTTP answers about this process: ``/live`` (start it again?) and ``/ready`` (may it count as a worker?).

Laws of this file: standard library; a server in threads of its own, so that it answers while the event loop does not;
it says nothing of runs, and answers nobody for longer than ``ANSWER_SECONDS``.

* ``/live`` is 200 while the worker's event loop comes back within ``LOOP_SECONDS``, and threads for workflow tasks are
  left. A server that is away makes no worker dead: starting it again would not help.
* ``/ready`` is 200 while the worker is connected, the server has seen it poll, and no stop was requested.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import TimeoutError as FutureTimeout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from acts.telemetry.telemetry_settings import HEALTH, TelemetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from acts.telemetry.telemetry_settings import Address

LIVE: Final = "/live"
READY: Final = "/ready"
# The loop comes back in milliseconds; Tools run beside it. Above the pause of a large garbage collection
LOOP_SECONDS: Final = 5.0
# For the one question to the server
ANSWER_SECONDS: Final = 5.0


class Health:
    """What one process says of itself. ``count_lost`` counts threads that stuck tasks have taken, of ``threads``."""

    def __init__(self, count_lost: Callable[[], int] = lambda: 0, threads: int = 0) -> None:
        self._count_lost, self._threads = count_lost, threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_polling: Callable[[], Coroutine[Any, Any, bool]] | None = None
        self._is_stopping = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The worker's event loop runs."""
        self._loop = loop

    def serve(self, is_polling: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """The worker runs; ``is_polling`` asks the server whether it sees that."""
        self._is_polling = is_polling

    def stop(self) -> None:
        """No new work is taken."""
        self._is_stopping = True

    def live_problem(self) -> str | None:
        """Why this process should be started again, or None."""
        lost = self._count_lost()
        if self._threads and lost >= self._threads:
            return f"stuck workflow tasks have taken all {lost} threads"
        if self._loop is None:
            return None
        beat = threading.Event()
        try:
            self._loop.call_soon_threadsafe(beat.set)
        except RuntimeError:
            return "the event loop has ended"
        return None if beat.wait(LOOP_SECONDS) else f"the event loop did not come back within {LOOP_SECONDS:g} s"

    def ready_problem(self) -> str | None:
        """Why this process does no work now, or None."""
        if self._is_stopping:
            return "a stop was requested"
        if self._loop is None or self._is_polling is None:
            return "the worker has not started yet"
        try:
            is_polling = asyncio.run_coroutine_threadsafe(self._is_polling(), self._loop)
            if is_polling.result(ANSWER_SECONDS):
                return None
        except FutureTimeout:
            return f"the server does not answer within {ANSWER_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker cannot work
            return f"the server does not answer: {type(error).__name__}"
        return "the server has seen no poll of this worker within two minutes"


class HealthServer:
    """Serves ``health`` at an address for as long as the block runs.

    Raises:
        TelemetryError: nothing can listen there.
    """

    def __init__(self, address: Address, health: Health) -> None:
        class Handler(_Handler):
            problems: ClassVar = {LIVE: health.live_problem, READY: health.ready_problem}

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET

        try:
            self._server = Server((address.host, address.port), Handler)
        except OSError as error:
            raise TelemetryError(f"{HEALTH} is {address}; nothing can listen there: {error.strerror}") from None
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    problems: ClassVar[dict[str, Callable[[], str | None]]]
    # Of a client that sends nothing, in seconds
    timeout = 5

    def do_GET(self) -> None:
        """Answer with ``{"ok": bool, "problem"?: text}``."""
        check = self.problems.get(self.path.partition("?")[0])
        problem = f"there are {LIVE} and {READY}" if check is None else check()
        content = {"ok": True} if problem is None else {"ok": False, "problem": problem}
        data = json.dumps(content).encode() + b"\n"
        self.send_response(404 if check is None else 200 if problem is None else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Probes are not logged."""
