"""A pool of processes for plain ``def`` Tools (``ACTS_ACTIVITY_PROCESSES``): each runs one call at a time.

For Tools that compute, and for C code that may hold the interpreter lock or never come back: a process can be ended,
a thread cannot. The SDK takes a ``ProcessPoolExecutor`` instead, but there one process that dies fails the whole
worker, a cancelled call is not stopped, and each call pays for a manager process. Here

* a process that dies fails its own call, retryably (``ToolProcessEnded``); another takes its place at the next call;
* a cancelled call gets ``CancelledError`` as in a thread, and its process is killed when that does not end it;
* a call that finds no free process waits, with heartbeats, inside its own timeout.

A call takes its arguments, its ``activity.info()`` and its heartbeats along, no ``contextvars``. Functions are found by
module and name; what has none (a method of an object, a function in a function) runs in a thread as before.
"""

from __future__ import annotations

import importlib
import logging
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError

from worker_runtime.log_guard import call_secrets
from worker_runtime.tool_child import CALL, CANCEL, FAILURE, HEARTBEAT, SHUTDOWN, Call

logger = logging.getLogger(__name__)

# The child finds modules where this process does, whatever it was started with
_LAUNCH: Final = "import sys; sys.path[:] = sys.argv[2:]; from worker_runtime.tool_child import main; main()"
TOOL_PROCESS_ENDED: Final = "ToolProcessEnded"
# From the end of a connection to that of its process
END_SECONDS: Final = 2.0
# How soon a cancellation is noticed
POLL_SECONDS: Final = 0.2
# From a cancellation until the process is killed: time to clean up, below the worker's own limit of 20 s
CANCEL_SECONDS: Final = 5.0
# A wait that is worth a line in the log: the worker accepts more calls than it has processes for
LONG_WAIT_SECONDS: Final = 10.0


class ToolProcess:
    """One process of the pool."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
                [sys.executable, "-c", _LAUNCH, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        self._connection = Connection(ours.detach())

    @property
    def is_alive(self) -> bool:
        """False once it has ended."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """End it at once."""
        self._popen.kill()
        self._popen.wait()
        self._connection.close()

    def run(self, call: Call) -> Any:
        """The result of a call. Raises what the call raises. Afterwards the process is free, or has ended."""
        try:
            self._connection.send((CALL, call))  # arguments that cannot be pickled raise before anything is sent
        except OSError:
            raise self._ending(call) from None
        is_over = False
        try:
            kind, content = self._wait_for_end()
            is_over = True
        except EOFError:
            raise self._ending(call) from None
        finally:
            if not is_over:
                self.kill()  # the call may still run: its end must not be taken for that of the next one
        if kind == FAILURE:
            raise _decode(content)
        return pickle.loads(content)  # noqa: S301 - from our own process

    def _ending(self, call: Call) -> ApplicationError:
        """The failure of a call whose process has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(END_SECONDS)
        self.kill()
        return ApplicationError(
            f"the process of the tool {call.info.activity_type} ended {_describe_end(self._popen.returncode)} while "
            "the tool ran",
            type=TOOL_PROCESS_ENDED,
        )  # fmt: skip

    def _wait_for_end(self) -> tuple[str, bytes]:
        """The last message of a call. Raises EOFError where there is none."""
        cancel_time: float | None = None
        knows_shutdown = False
        while True:
            kind, content = self._receive()
            if kind == HEARTBEAT:
                activity.heartbeat(*content)
            elif kind is not None:
                return kind, content
            if cancel_time is None and activity.is_cancelled():
                cancel_time = time.monotonic()
                self._send(CANCEL)
            elif cancel_time is not None and time.monotonic() - cancel_time > CANCEL_SECONDS:
                raise CancelledError("the tool did not end when it was cancelled; its process was killed")
            if not knows_shutdown and activity.is_worker_shutdown():
                knows_shutdown = True
                self._send(SHUTDOWN)

    def _receive(self) -> tuple[str | None, Any]:
        """A message, or None after some time. Raises EOFError when the process has ended."""
        try:
            return self._connection.recv() if self._connection.poll(POLL_SECONDS) else (None, None)
        except OSError:
            raise EOFError from None

    def _send(self, kind: str) -> None:
        with suppress(OSError):  # it has ended: the next message says so
            self._connection.send((kind, None))


class ToolProcesses:
    """The pool. Processes start when they are needed, up to ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._change = threading.Condition()
        self._free: list[ToolProcess] = []
        self._busy: set[ToolProcess] = set()
        self._starting = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one that runs in the pool; itself where no other process can find it."""
        place = find_place(function)
        if place is None:
            return function

        def run_in_process(*args: Any) -> Any:
            raises = not getattr(function, "__temporal_activity_definition").no_thread_cancel_exception
            # This thread only waits: a cancellation goes to the process, and comes back as its end
            with activity.shield_thread_cancel_exception():
                process = self._acquire()
                try:
                    return process.run(Call(*place, args, activity.info(), raises, call_secrets.get()))
                finally:
                    self._release(process)

        return run_in_process

    def _acquire(self) -> ToolProcess:
        start, is_reported = time.monotonic(), False
        beats = activity.info().heartbeat_timeout is not None
        while True:
            process = self._take()
            if process is not None:
                return process
            if activity.is_cancelled():
                raise CancelledError("cancelled while it waited for a process")
            if beats:
                activity.heartbeat(*activity.info().heartbeat_details)
            if not is_reported and time.monotonic() - start > LONG_WAIT_SECONDS:
                is_reported = True
                logger.warning(
                    "a call of %s has waited %.0f s for one of %d processes, and its timeout runs: serve such tools "
                    "with a worker of their own, on a queue of their own, with ACTS_MAX_ACTIVITIES=%d",
                    activity.info().activity_type, LONG_WAIT_SECONDS, self._most, self._most,
                )  # fmt: skip

    def _take(self) -> ToolProcess | None:
        """A free process, a new one, or none within a second."""
        with self._change:
            if not self._free and len(self._busy) + self._starting >= self._most:
                self._change.wait(1.0)
            while self._free:
                process = self._free.pop()
                if process.is_alive:
                    self._busy.add(process)
                    return process
                process.kill()
            if len(self._busy) + self._starting >= self._most:
                return None
            self._starting += 1
        try:
            process = ToolProcess()
        finally:
            with self._change:
                self._starting -= 1
        with self._change:
            self._busy.add(process)
        return process

    def _release(self, process: ToolProcess) -> None:
        with self._change:
            self._busy.discard(process)
            if process.is_alive:
                self._free.append(process)
            else:
                process.kill()
            self._change.notify()

    def close(self) -> None:
        """Kill all processes."""
        with self._change:
            for process in (*self._free, *self._busy):
                process.kill()
            self._free.clear()


def find_place(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Module and name under which another process finds this very function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        other: Any = importlib.import_module(module)
        for part in name.split("."):
            other = getattr(other, part)
    except (ImportError, AttributeError):
        return None
    return (module, name) if other is function else None


def _decode(content: bytes) -> BaseException:
    failure = Failure.FromString(content)
    return DefaultFailureConverter().from_failure(failure, DefaultPayloadConverter())


def _describe_end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"with code {code}"
    name = signal.Signals(-code).name
    return f"by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
