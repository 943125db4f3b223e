"""A server and a worker that live exactly as long as a block: ``dev`` and ``demo`` run on it.

Laws of this file:
- the worker is a child (``cli.dev.worker_process``) that obeys a pipe: a word on it is a request
  to stop, its end means that we died. So it ends even after a ``kill -9`` of ours, and a
  worker that hangs or crashes can always be stopped;
- the worker stops before the server, so that what it did is recorded;
- every wait is bounded. A second Ctrl-C shortens the only one that may be long.
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

from cli.command_errors import NO_SERVER, PLAN_FAILED, WRONG_INPUT, refuse
from cli.console import say
from cli.dev.temporal_server import HOST, DevServer, DevServerError, dev_server
from cli.runs.server import STATE_VARIABLE
from cli.text.preflight import DELEGATES, MODULES, configured, default_delegates, default_modules

READY_SECONDS: Final = 30.0  # it needs 1 s; importing the worker's modules is the user's own time
SHUTDOWN: Final = "ACTS_SHUTDOWN_SECONDS"
# Whoever develops presses Ctrl-C to go on: running Activities get this long, where the
# environment does not say otherwise. They are tried again after the next start.
SHUTDOWN_SECONDS: Final = 3.0
MARGIN_SECONDS: Final = 3.0  # between what a worker is given to stop and being killed
PATIENCE_SECONDS: Final = 0.5  # a stop that takes longer says why
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS: Final = 1.0  # how soon the death of the server is noticed; that of the worker is at once


@dataclass(frozen=True)
class Engine:
    """A running server and worker. ``serves`` is what the worker says of itself."""

    server: DevServer
    serves: Mapping[str, Any]
    modules: str
    _pipe: int

    def wait(self, stop: Stop) -> str:
        """Block until one of the two is gone; which one.

        Raises:
            KeyboardInterrupt: a stop was asked for.
        """
        while True:
            if stop.asked:
                raise KeyboardInterrupt
            ready, _, _ = select.select([self._pipe], [], [], LOOK_SECONDS)
            if ready:
                return "the worker has ended by itself"
            if not _lives(self.server):
                return "the server has ended by itself"


@dataclass(frozen=True)
class Setup:
    """What to start. ``state`` None: in memory; ``log`` takes what the worker prints, else the terminal does."""

    state: Path | None
    port: int | None = None
    ui_port: int | None = None
    ui: bool = True
    modules: str | None = None
    files: Path | None = None
    """Where the worker's Activities keep files (``ACTS_STATE``), if not in ``state``."""
    log: Path | None = None


@contextmanager
def engine(setup: Setup) -> Iterator[Engine]:
    """A server and a worker for as long as the block runs.

    Raises:
        Refusal: one of the two does not come up; both are gone then.
    """
    modules = setup.modules or ("" if configured() else default_modules())
    with ExitStack() as stack:
        child, pipe = _start_worker(stack, setup, modules)
        try:
            server = stack.enter_context(
                dev_server(state=setup.state, port=setup.port, ui_port=setup.ui_port, ui=setup.ui)
            )
        except DevServerError as error:
            raise refuse(str(error), code=NO_SERVER) from None
        stack.callback(_stop_worker, child)
        serves = _connect_worker(child, pipe, server, setup.log)
        yield Engine(server, serves, modules, pipe)


class Stop:
    """Whether a stop was asked for. Python drops an exception that a signal raises inside of a
    destructor or a lock of the import system; this remembers it.
    """

    asked = False

    def hear(self, _number: int, _frame: object) -> None:
        """The signal handler."""
        self.asked = True
        raise KeyboardInterrupt


@contextmanager
def stops_by_signal() -> Iterator[Stop]:
    """SIGTERM and SIGHUP stop the block as Ctrl-C does; and Ctrl-C does, even where a shell had it ignored."""
    stop = Stop()
    before = [signal.signal(number, stop.hear) for number in STOPPING]
    try:
        yield stop
    finally:
        for number, handler in zip(STOPPING, before, strict=True):
            signal.signal(number, handler)


def choose_port(given: int | None, usual: int) -> tuple[int | None, bool]:
    """The port to ask for (None: any), and whether the usual one was taken."""
    if given is not None:
        return given, False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, usual))
        except OSError:
            return None, True
    return usual, False


def _start_worker(stack: ExitStack, setup: Setup, modules: str) -> tuple[subprocess.Popen[bytes], int]:
    """The child, importing already; it waits for the server's address."""
    mine, its = os.pipe()
    stack.callback(os.close, mine)
    output: IO[bytes] | None = stack.enter_context(setup.log.open("ab")) if setup.log is not None else None
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TEMPORAL_")}
    environment[MODULES] = modules
    if modules == default_modules():  # with the examples come their definitions, after the user's own
        environment[DELEGATES] = os.pathsep.join(filter(None, (os.environ.get(DELEGATES), default_delegates())))
    environment.setdefault(SHUTDOWN, str(SHUTDOWN_SECONDS))
    files = setup.files or setup.state
    if files is not None:
        environment[STATE_VARIABLE] = str(files.resolve())
    # The terminal's Ctrl-C goes to the whole group; we alone stop the child, in our own time. What is blocked is
    # inherited, so the child is deaf from its first instruction on; for us the signal only waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "cli.dev.worker_process", str(its)],
            stdin=subprocess.PIPE, stdout=output or sys.stderr, stderr=output, env=environment, pass_fds=(its,),
        )  # fmt: skip
        stack.callback(_kill, child)
    finally:
        os.close(its)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child, mine


def _connect_worker(
    child: subprocess.Popen[bytes], pipe: int, server: DevServer, log: Path | None
) -> Mapping[str, Any]:
    """Tell the child where the server is, and hear what it serves."""
    where = {"ADDRESS": server.address, "NAMESPACE": server.namespace, "CONFIG_FILE": os.devnull}
    with suppress(BrokenPipeError):  # then its last words are in the pipe
        _write(child, json.dumps({f"TEMPORAL_{name}": value for name, value in where.items()}))
    heard: dict[str, Any] = json.loads(_line(pipe) or "{}")
    if "error" in heard:
        hint = "the environment says what it loads and how it runs: the variables ACTS_*"
        raise refuse(str(heard["error"]), where="the worker", hint=hint, code=WRONG_INPUT)
    if not heard:
        hint = f"what it printed is in {log}" if log is not None else "what it printed stands above"
        raise refuse("the worker did not come up", hint=hint, code=PLAN_FAILED)
    return heard


def _line(pipe: int) -> str:
    """The child's one line, or nothing when it ended or took too long."""
    data = b""
    deadline = time.monotonic() + READY_SECONDS
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(pipe, 65536) if ready else b""
        if not part:
            return ""
        data += part
    return data.decode()


def _write(child: subprocess.Popen[bytes], text: str) -> None:
    if child.stdin is not None:
        child.stdin.write(text.encode() + b"\n")
        child.stdin.flush()


def _stop_worker(child: subprocess.Popen[bytes]) -> None:
    """Graceful, unless it takes too long or Ctrl-C comes again. What follows is short and not to be interrupted."""
    try:
        with suppress(OSError):
            _write(child, "stop")
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE_SECONDS)
            return
        say(f"running Activities have up to {_grace():g} s to finish; Ctrl-C again does not wait for them")
        child.wait(_grace() + MARGIN_SECONDS)
    except subprocess.TimeoutExpired:
        say("the worker did not stop in time and was killed; what ran will be tried again")
    except KeyboardInterrupt:
        pass
    finally:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        _kill(child)


def _grace() -> float:
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


def _lives(server: DevServer) -> bool:
    """Whether the server's process is there, seen without reaping it where that is possible, else by its port."""
    if hasattr(os, "waitid"):
        try:
            return os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False
    host, _, port = server.address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(LOOK_SECONDS)
        return probe.connect_ex((host, int(port))) == 0
