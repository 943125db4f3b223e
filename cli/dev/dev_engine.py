"""A server and a worker that live exactly as long as a ``with`` block: ``dev`` and ``demo`` run on it.

Laws of this file:
- the worker is a child process (``cli.dev.worker_process``) controlled by a pipe: a line on it requests a stop, its
  end means that the parent died. So the worker ends even after ``kill -9`` of the parent, and one that hangs or
  crashes can always be stopped;
- the worker stops before the server, so that its last results are recorded;
- every wait is bounded, and a second Ctrl-C cuts the only long one short.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from cli.command_errors import EXIT_FAILED, EXIT_NO_SERVER, EXIT_WRONG_INPUT, command_error
from cli.console import print_err
from cli.dev.temporal_server import HOST, DevServer, DevServerError, dev_server
from cli.runs.server import STATE_VARIABLE
from cli.text.preflight import DELEGATES, MODULES, default_delegates, default_modules, is_configured

READY_SECONDS: Final = 30.0  # it needs 1 s; importing the worker's modules takes as long as they take
SHUTDOWN: Final = "ACTS_SHUTDOWN_SECONDS"
# The folders of sets and of their results: the current one, unless the environment says otherwise
DATA: Final = "ACTS_DATA"
RESULTS: Final = "ACTS_RESULTS"
# Of running Activities, unless the environment says otherwise: a developer restarts often, and they are retried then
SHUTDOWN_SECONDS: Final = 3.0
KILL_SECONDS: Final = 3.0  # between the worker's own limit for a stop and the kill
QUIET_STOP_SECONDS: Final = 0.5  # a stop that takes longer is explained
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHECK_SECONDS: Final = 1.0  # how soon the end of the server is noticed; that of the worker is noticed at once


@dataclass(frozen=True)
class Engine:
    """A running server and worker. ``serves`` is what the worker reports: ``{taskQueue, activities, tools, line}``."""

    server: DevServer
    serves: Mapping[str, Any]
    modules: str
    _pipe: int

    def wait(self, stop: StopFlag) -> str:
        """Block until one of the two has ended; the message says which.

        Raises:
            KeyboardInterrupt: a stop was requested.
        """
        while True:
            if stop.is_set:
                raise KeyboardInterrupt
            readable, _, _ = select.select([self._pipe], [], [], CHECK_SECONDS)
            if readable:
                return "the worker has ended by itself"
            if not _is_listening(self.server):
                return "the server has ended by itself"


@dataclass(frozen=True)
class EngineSetup:
    """What to start. ``state`` None: in memory. ``log`` receives the worker's output, otherwise the terminal does.

    ``files``: where the worker's Activities keep files (``ACTS_STATE``), if not in ``state``.
    """

    state: Path | None
    port: int | None = None
    ui_port: int | None = None
    ui: bool = True
    modules: str | None = None
    files: Path | None = None
    log: Path | None = None


@contextmanager
def run_engine(setup: EngineSetup) -> Iterator[Engine]:
    """A server and a worker for as long as the block runs.

    Raises:
        CommandError: one of the two does not start; the other is stopped.
    """
    modules = setup.modules or ("" if is_configured() else default_modules())
    with ExitStack() as stack:
        child, pipe = _start_worker(stack, setup, modules)
        try:
            server = stack.enter_context(
                dev_server(state=setup.state, port=setup.port, ui_port=setup.ui_port, ui=setup.ui)
            )
        except DevServerError as error:
            raise command_error(str(error), code=EXIT_NO_SERVER) from None
        stack.callback(_stop_worker, child)
        serves = _connect_worker(child, pipe, server, setup.log)
        yield Engine(server, serves, modules, pipe)


class StopFlag:
    """Whether a stop was requested. Python drops an exception that a signal handler raises inside a destructor or
    an import lock; the flag stays.
    """

    is_set = False

    def on_signal(self, _number: int, _frame: object) -> None:
        """The signal handler."""
        self.is_set = True
        raise KeyboardInterrupt


@contextmanager
def stops_by_signal() -> Iterator[StopFlag]:
    """SIGTERM, SIGHUP and SIGINT stop the block, also if the shell had SIGINT ignored."""
    stop = StopFlag()
    before = [signal.signal(number, stop.on_signal) for number in STOP_SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def choose_port(requested: int | None, default: int) -> tuple[int | None, bool]:
    """The port to use (None: any), and whether the default one is in use."""
    if requested is not None:
        return requested, False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, default))
        except OSError:
            return None, True
    return default, False


def _start_worker(stack: ExitStack, setup: EngineSetup, modules: str) -> tuple[subprocess.Popen[bytes], int]:
    """The child, which imports its modules while it waits for the server's address, and the pipe to read from."""
    read_end, write_end = os.pipe()
    stack.callback(os.close, read_end)
    output: IO[bytes] | None = stack.enter_context(setup.log.open("ab")) if setup.log is not None else None
    # The terminal's Ctrl-C goes to the whole process group, but only the parent stops the child. A blocked signal is
    # inherited, so the child ignores it from its first instruction on; for the parent it is only delayed.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        child = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
            [sys.executable, "-m", "cli.dev.worker_process", str(write_end)],
            stdin=subprocess.PIPE, stdout=output or sys.stderr, stderr=output, pass_fds=(write_end,),
            env=_worker_environment(setup, modules),
        )  # fmt: skip
        stack.callback(_kill, child)
    finally:
        os.close(write_end)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child, read_end


def _worker_environment(setup: EngineSetup, modules: str) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TEMPORAL_")}
    environment[MODULES] = modules
    if modules == default_modules():  # the examples need their delegates, after the user's own
        environment[DELEGATES] = os.pathsep.join(filter(None, (os.environ.get(DELEGATES), default_delegates())))
    for variable in (DATA, RESULTS):  # the sets and the results of this folder's plans
        environment.setdefault(variable, str(Path.cwd()))
    environment.setdefault(SHUTDOWN, str(SHUTDOWN_SECONDS))
    files = setup.files or setup.state
    if files is not None:
        environment[STATE_VARIABLE] = str(files.resolve())
    return environment


def _connect_worker(
    child: subprocess.Popen[bytes], pipe: int, server: DevServer, log: Path | None
) -> Mapping[str, Any]:
    """Send the child the server's address, and return what it reports that it serves."""
    variables = {"ADDRESS": server.address, "NAMESPACE": server.namespace, "CONFIG_FILE": os.devnull}
    with suppress(BrokenPipeError):  # the child has ended, and its error is in the pipe
        _write_line(child, json.dumps({f"TEMPORAL_{name}": value for name, value in variables.items()}))
    report: dict[str, Any] = json.loads(_read_line(pipe) or "{}")
    if "error" in report:
        hint = "the variables ACTS_* say what it loads and how it runs"
        raise command_error(str(report["error"]), where="the worker", hint=hint, code=EXIT_WRONG_INPUT)
    if not report:
        hint = f"its output is in {log}" if log is not None else "see its output above"
        raise command_error("the worker did not start", hint=hint, code=EXIT_FAILED)
    return report


def _read_line(pipe: int) -> str:
    """The child's one line; nothing if it ended or took too long."""
    data = b""
    deadline = time.monotonic() + READY_SECONDS
    while not data.endswith(b"\n"):
        readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(pipe, 65536) if readable else b""
        if not part:
            return ""
        data += part
    return data.decode()


def _write_line(child: subprocess.Popen[bytes], text: str) -> None:
    if child.stdin is not None:
        child.stdin.write(text.encode() + b"\n")
        child.stdin.flush()


def _stop_worker(child: subprocess.Popen[bytes]) -> None:
    """Stop gracefully, unless it takes too long or Ctrl-C comes again; afterwards signals are ignored."""
    try:
        with suppress(OSError):
            _write_line(child, "stop")
        with suppress(subprocess.TimeoutExpired):
            child.wait(QUIET_STOP_SECONDS)
            return
        limit = _shutdown_seconds()
        print_err(f"running Activities have up to {limit:g} s to finish; Ctrl-C again does not wait for them")
        child.wait(limit + KILL_SECONDS)
    except subprocess.TimeoutExpired:
        print_err("the worker did not stop in time and was killed; its Activities will be retried")
    except KeyboardInterrupt:
        pass
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _kill(child)


def _shutdown_seconds() -> float:
    try:
        return min(max(float(os.environ.get(SHUTDOWN) or SHUTDOWN_SECONDS), 0.0), 3600.0)
    except ValueError:
        return SHUTDOWN_SECONDS


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()


def _is_listening(server: DevServer) -> bool:
    host, _, port = server.address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(CHECK_SECONDS)
        return probe.connect_ex((host, int(port))) == 0
