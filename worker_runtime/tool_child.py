"""A process of the pool for plain ``def`` Tools: runs one call after another, as ``tool_processes.py`` sends them.

The main thread runs the calls. Another one receives: a call, a cancellation, the worker's shutdown. A third one sends,
since a cancellation may be raised in the main thread in the midst of anything. When the worker has ended, this process
ends. It imports the module of a Tool at its first call, and of the worker only how log lines are written.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.common import _CompositeEvent
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError

from telemetry.call_identity import current_call, identify
from telemetry.logs import configure_logs
from telemetry.stack_traces import ShortTraceConverter
from telemetry.telemetry_settings import TelemetrySettings
from worker_runtime.log_guard import LogGuard
from worker_runtime.thread_control import clear_exception, raise_in_thread

# Kinds of messages: to this process, and from it
CALL: Final = "call"
CANCEL: Final = "cancel"
SHUTDOWN: Final = "shutdown"
HEARTBEAT: Final = "heartbeat"
RESULT: Final = "result"
FAILURE: Final = "failure"

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class Call:
    """One call: where its function is, and what the SDK's context of an activity needs."""

    module: str
    name: str
    args: tuple[Any, ...]
    info: activity.Info
    raises_on_cancel: bool
    secrets: tuple[str, ...] = ()


class Child:
    """The state of this process. ``lock`` guards ``is_running`` and the exception of a cancellation."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._cancelled, self._shutdown = threading.Event(), threading.Event()
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._is_running = self._raises = False
        self._failures, self._payloads = ShortTraceConverter(), DefaultPayloadConverter()
        self.logs = LogGuard()

    def run(self) -> None:
        """Run calls; the receiving thread ends the process."""
        for work in (self._receive, self._send):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()
        while True:
            call = self._calls.get()
            self._messages.put(self._outcome(call))

    def _send(self) -> None:
        while True:
            try:
                self._connection.send_bytes(self._messages.get())
            except OSError:
                os._exit(0)

    def _receive(self) -> None:
        while True:
            try:
                kind, content = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            if kind == CALL:
                self._cancelled.clear()
                self._calls.put(content)
            elif kind == SHUTDOWN:
                self._shutdown.set()
            elif kind == CANCEL:
                self._cancelled.set()
                with self._lock:
                    if self._is_running and self._raises:
                        raise_in_thread(self._thread_id, CancelledError)

    def _outcome(self, call: Call) -> bytes:
        """The message that ends a call, with the result or the failure as the SDK writes it."""
        try:
            try:
                result = self._perform(call)
            finally:
                with self._lock:
                    self._is_running = False
                    clear_exception(self._thread_id)
        except BaseException as error:  # noqa: BLE001 - also sys.exit: the process serves other calls
            return pickle.dumps((FAILURE, self._encode(error)))
        try:
            # Pickled twice: the worker reads the message first, and then finds out whether it knows the classes in it
            return pickle.dumps((RESULT, pickle.dumps(result)))
        except Exception as error:  # noqa: BLE001 - any value may refuse to be pickled
            text = f"the result, {type(result).__name__}, cannot be sent from the tool's process: {error}"
            return pickle.dumps(
                (FAILURE, self._encode(ApplicationError(text, type="InvalidResult", non_retryable=True)))
            )

    def _perform(self, call: Call) -> Any:
        self.logs.announce(call.secrets)
        function: Any = importlib.import_module(call.module)
        for part in call.name.split("."):
            function = getattr(function, part)
        activity._Context.set(self._context(call))  # noqa: SLF001 - no public way
        current_call.set(identify(call.info, call.args))
        with self._lock:
            self._is_running, self._raises = True, call.raises_on_cancel
        if self._cancelled.is_set():
            raise CancelledError("cancelled before it began")
        return function(*call.args)

    def _context(self, call: Call) -> Any:
        return activity._Context(  # noqa: SLF001 - as the SDK does in its own process pool
            info=lambda: call.info,
            heartbeat=lambda *details: self._messages.put(pickle.dumps((HEARTBEAT, details))),
            cancelled_event=_CompositeEvent(thread_event=self._cancelled, async_event=None),
            worker_shutdown_event=_CompositeEvent(thread_event=self._shutdown, async_event=None),
            shield_thread_cancel_exception=None,
            payload_converter_class_or_instance=self._payloads,
            runtime_metric_meter=None,
            client=None,
            cancellation_details=activity._ActivityCancellationDetailsHolder(),  # noqa: SLF001 - as above
        )

    def _encode(self, error: BaseException) -> bytes:
        failure = Failure()
        try:
            self._failures.to_failure(error, self._payloads, failure)
        except Exception:  # noqa: BLE001 - details that cannot be converted, or a __str__ that fails
            failure = Failure()
            text = f"{type(error).__name__}, whose details cannot be converted"
            self._failures.to_failure(ApplicationError(text, type=type(error).__name__), self._payloads, failure)
        return failure.SerializeToString()


def main() -> None:
    """Serve calls until the worker ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the worker; this process ends with it
    if sys.platform == "linux":  # also where C code keeps the receiving thread from noticing
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    configure_logs(TelemetrySettings.from_environment())
    connection = Connection(int(sys.argv[1]))
    child = Child(connection)
    with child.logs.watch():
        child.run()
