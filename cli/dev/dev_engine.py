"""A server and a worker that live exactly as long as a ``with`` block: ``dev`` and ``demo`` run on it.

Laws of this file:
- the worker is a child process (``worker_child.py``). One that ends by itself is started again, later and later, and
  so is one whose modules have changed; ``acts dev`` ends with its server, or by a signal;
- the worker stops before the server, so that its last results are recorded.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acts.language.errors import format_choices
from cli.command_errors import EXIT_NO_SERVER, CommandError, command_error, message
from cli.console import print_blocks, print_err
from cli.dev.temporal_server import HOST, DevServer, DevServerError, dev_server
from cli.dev.watched_files import WatchedFiles
from cli.dev.worker_child import SHUTDOWN, SHUTDOWN_SECONDS, WorkerChild
from cli.runs.server import STATE_VARIABLE
from cli.text.preflight import DELEGATES, MODULES, default_delegates, default_modules, is_configured

# The folders of sets and of their results: the current one, unless the environment says otherwise
DATA: Final = "ACTS_DATA"
RESULTS: Final = "ACTS_RESULTS"
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How soon the end of the server and a changed file are noticed; the end of the worker is noticed at once
CHECK_SECONDS: Final = 1.0
# Until a worker that has ended is started again: twice as long after each end, up to the second number
FIRST_DELAY_SECONDS: Final = 1.0
MAX_DELAY_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 60.0  # a worker that ran for so long counts as sound
RETRY_SECONDS: Final = 3600.0  # a module that cannot be loaded is no better without a change


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


class Engine:
    """A running server and worker. ``serves`` is what the worker reports: ``{taskQueue, activities, tools, files}``."""

    def __init__(self, setup: EngineSetup, modules: str, worker: WorkerChild, server: DevServer) -> None:
        self.server, self.modules = server, modules
        self._setup = setup
        self._worker: WorkerChild | None = worker
        self.serves = worker.connect(server)
        self._files = WatchedFiles(self.serves["files"])
        self._failures = 0
        self._began = time.monotonic()

    def wait(self, stop: StopFlag) -> str:
        """Keep a worker running until the server has ended; the message says so.

        A worker that has ended is started again, and one whose modules have changed as well.

        Raises:
            KeyboardInterrupt: a stop was requested.
        """
        next_start = 0.0
        while True:
            if stop.is_set:
                raise KeyboardInterrupt
            if self._worker is None:
                time.sleep(CHECK_SECONDS / 4)
            elif self._worker.has_ended_within(CHECK_SECONDS):
                next_start = time.monotonic() + self._drop_ended_worker()
            if not _is_listening(self.server):
                return "the server has ended by itself"
            changed = self._files.find_changes()
            if changed:
                print_err(f"{_names(changed)} changed: the worker starts again", "dim")
                self.stop_worker()
                next_start = 0.0
            if self._worker is None and time.monotonic() >= next_start:
                next_start = time.monotonic() + self._start_worker()

    def _drop_ended_worker(self) -> float:
        """The worker has ended by itself: how many seconds to wait before the next."""
        if self._worker is not None:
            self._worker.kill()
        self._worker = None
        if time.monotonic() - self._began > STABLE_SECONDS:
            self._failures = 0
        delay: float = min(FIRST_DELAY_SECONDS * 2**self._failures, MAX_DELAY_SECONDS)
        self._failures += 1
        text = f"the worker has ended by itself and starts again in {delay:g} s; its calls are retried"
        print_blocks([message(text, severity="warning")])
        return delay

    def _start_worker(self) -> float:
        """Start a worker. Where it cannot start, the reason is printed: how many seconds until the next attempt."""
        worker = WorkerChild(_worker_environment(self._setup, self.modules), self._setup.log)
        try:
            self.serves = worker.connect(self.server)
        except CommandError as error:
            worker.kill()
            print_blocks(error.blocks)
            print_err("the server goes on; the worker starts again when a file changes", "dim")
            return RETRY_SECONDS
        except BaseException:
            worker.kill()
            raise
        self._worker, self._began = worker, time.monotonic()
        self._files = WatchedFiles(self.serves["files"])
        print_err(f"the worker is ready: {format_choices(self.serves['activities'])}", "dim")
        return 0.0

    def stop_worker(self) -> None:
        """Stop the worker, if it runs."""
        if self._worker is not None:
            self._worker.stop()
        self._worker = None


def _names(files: Sequence[str]) -> str:
    shown = [os.path.relpath(file) for file in files]
    return format_choices(shown, 3)


@contextmanager
def run_engine(setup: EngineSetup) -> Iterator[Engine]:
    """A server and a worker for as long as the block runs.

    Raises:
        CommandError: one of the two does not start; the other is stopped.
    """
    modules = setup.modules or ("" if is_configured() else default_modules())
    worker = WorkerChild(_worker_environment(setup, modules), setup.log)
    with ExitStack() as stack:
        stack.callback(worker.kill)
        try:
            server = stack.enter_context(
                dev_server(state=setup.state, port=setup.port, ui_port=setup.ui_port, ui=setup.ui)
            )
        except DevServerError as error:
            raise command_error(str(error), code=EXIT_NO_SERVER) from None
        engine = Engine(setup, modules, worker, server)
        stack.callback(_stop_for_good, engine)
        yield engine


def _stop_for_good(engine: Engine) -> None:
    """Stop the worker before the server, so that its last results are recorded; afterwards signals are ignored."""
    try:
        engine.stop_worker()
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


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


def _is_listening(server: DevServer) -> bool:
    host, _, port = server.address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(CHECK_SECONDS)
        return probe.connect_ex((host, int(port))) == 0
