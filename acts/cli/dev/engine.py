"""A server and a worker that live exactly as long as a ``with`` block: ``dev`` and ``demo`` run on it.

- The worker is ``python -m acts.worker``, a child process that dies with this one. One that ends by itself is started
  again, and so is one whose modules have changed; ``acts dev`` ends with its server, or by a signal.
- The worker stops before the server, so that its last results are recorded. Every wait is bounded, and a second Ctrl-C
  cuts the only long one short.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from acts.cli.console import (
    EXIT_FAILED,
    EXIT_NO_SERVER,
    EXIT_WRONG_INPUT,
    CommandError,
    command_error,
    message,
    print_blocks,
    print_err,
)
from acts.cli.dev.temporal_server import POLL_SECONDS, DevServer, DevServerError, dev_server, is_listening, spawn
from acts.cli.runs.server import STATE_VARIABLE
from acts.cli.text.preflight import FOLDERS, MODULES, default_modules, has_examples, is_configured
from acts.language.errors import format_choices

# Files that a worker reads when it starts
_SETTINGS_FILES: Final = ("ACTS_MCP", "ACTS_MODELS")
DELEGATES: Final = "ACTS_DELEGATES"
# Names the file in which a worker writes what it serves, in place of the line that it prints
REPORT: Final = "ACTS_START_REPORT"
SHUTDOWN: Final = "ACTS_SHUTDOWN_SECONDS"
# Of running Activities, unless the environment says otherwise: a developer restarts often, and they are retried then
SHUTDOWN_SECONDS: Final = 3.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READY_SECONDS: Final = 60.0  # it needs 1 s; importing the worker's modules takes as long as they take
KILL_SECONDS: Final = 3.0  # between the worker's own limit for a stop and the kill
QUIET_STOP_SECONDS: Final = 0.5  # a stop that takes longer is explained
# How soon the end of the server and a changed file are noticed; the end of the worker is noticed at once
CHECK_SECONDS: Final = 1.0
RESTART_SECONDS: Final = 1.0  # until a worker that has ended is started again


class Engine:
    """A running server and its worker. ``serves`` is what the worker reports: ``{taskQueue, activities, tools}``."""

    def __init__(self, server: DevServer, modules: str, files: Path | None, log: Path | None) -> None:
        self.server, self.modules = server, modules
        self.serves: dict[str, Any] = {}
        self._log = log
        self._report = server.log.with_name("worker.json")
        self._environment = _worker_environment(server, modules, files) | {REPORT: str(self._report)}
        if log is not None or not sys.stderr.isatty():
            self._environment.setdefault("NO_COLOR", "1")  # of the SDK's core neither
        self._worker: subprocess.Popen[bytes] | None = None
        self._files: dict[str, float] = {}  # when each was changed

    def start_worker(self) -> None:
        """Start a worker, and wait until it serves.

        Raises:
            CommandError: it cannot start.
        """
        self.serves = {}
        self._report.unlink(missing_ok=True)
        with ExitStack() as stack:
            output = sys.stderr if self._log is None else stack.enter_context(self._log.open("ab"))
            self._worker = spawn([sys.executable, "-m", "acts.worker"], output, self._environment)
        deadline = time.monotonic() + READY_SECONDS
        while not self.serves and self._worker.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            with suppress(OSError, ValueError):  # it is not there, or not yet whole
                self.serves = json.loads(self._report.read_text("utf-8"))
        if not self.serves:
            code = EXIT_WRONG_INPUT if self._worker.poll() == EXIT_WRONG_INPUT else EXIT_FAILED
            self._kill_worker()
            hint = "see its output above" if self._log is None else f"its output is in {self._log}"
            raise command_error("the worker did not start", hint=hint, code=code)
        self._files = _read_times(watched_files(self.serves["modules"], self.modules))

    def wait(self, stop: threading.Event) -> str:
        """Keep a worker running until the server has ended; the message says so.

        A worker that has ended is started again, and one whose modules have changed as well. Where it cannot start, the
        reason is printed, and a change of a file starts the next.

        Raises:
            KeyboardInterrupt: a stop was requested.
        """
        while is_listening(self.server.address):
            if stop.is_set():
                raise KeyboardInterrupt
            has_ended = self._worker is not None and self._has_ended_within(CHECK_SECONDS)
            if has_ended:
                text = (
                    f"the worker has ended by itself and starts again in {RESTART_SECONDS:g} s; its calls are retried"
                )
                print_blocks([message(text, severity="warning")])
            if has_ended or self._worker is None:
                time.sleep(RESTART_SECONDS)
            before, self._files = self._files, _read_times(self._files)
            changed = [os.path.relpath(file) for file, at in self._files.items() if at != before[file]]
            if changed:
                print_err(f"{format_choices(changed, 3)} changed: the worker starts again", "dim")
                self.stop_worker()
            if has_ended or changed:
                self._restart_worker()
        return "the server has ended by itself"

    def _has_ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            return self._worker is not None and self._worker.wait(seconds) is not None
        return False

    def _restart_worker(self) -> None:
        try:
            self.start_worker()
        except CommandError as error:
            print_blocks(error.blocks)
            print_err("the server goes on; the worker starts again when a file changes", "dim")
        else:
            print_err(f"the worker is ready: {format_choices(self.serves['activities'])}", "dim")

    def stop_worker(self) -> None:
        """Stop the worker gracefully, unless it takes too long or Ctrl-C comes again."""
        if self._worker is None:
            return
        try:
            self._worker.terminate()
            if self._has_ended_within(QUIET_STOP_SECONDS):
                return
            limit = float(self._environment[SHUTDOWN] or SHUTDOWN_SECONDS)
            print_err(f"running Activities have up to {limit:g} s to finish; Ctrl-C again does not wait for them")
            if not self._has_ended_within(limit + KILL_SECONDS):
                print_err("the worker did not stop in time and was killed; its Activities will be retried")
        except KeyboardInterrupt:
            pass
        finally:
            self._kill_worker()

    def _kill_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
        self._worker = None


@contextmanager
def run_engine(
    state: Path | None, *, port: int | None = None, ui_port: int | None = None, ui: bool = True,
    modules: str | None = None, files: Path | None = None, log: Path | None = None,
) -> Iterator[Engine]:  # fmt: skip
    """A server and a worker for as long as the block runs.

    ``state`` None: in memory. ``modules`` None: the examples, or what is configured. ``files``: where the worker's
    Activities keep files (``ACTS_STATE``), if not in ``state``. ``log`` receives its output, else the terminal.

    Raises:
        CommandError: one of the two does not start; the other is stopped.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(dev_server(state=state, port=port, ui_port=ui_port, ui=ui))
        except DevServerError as error:
            raise command_error(str(error), code=EXIT_NO_SERVER) from None
        engine = Engine(server, modules or ("" if is_configured() else default_modules()), files or state, log)
        stack.callback(_ignore_signals)  # nothing interrupts the end of the server
        stack.callback(engine.stop_worker)
        engine.start_worker()
        yield engine


def _ignore_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stops_by_signal() -> Iterator[threading.Event]:
    """SIGTERM, SIGHUP and SIGINT stop the block, also if the shell had SIGINT ignored.

    Python drops an exception that a signal handler raises inside a destructor; the event stays set.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    before = [signal.signal(number, on_signal) for number in STOP_SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def watched_files(modules: Mapping[str, str], names: str) -> list[str]:
    """The files that a developer may change under a worker: of the loaded modules those below the current folder and
    those of ``names``; Tools, MCP servers and models in files.

    Folders whose names begin with a dot, and those of installed packages, are left out.
    """
    here = Path.cwd()
    own = {file: Path(file).relative_to(here).parts for file in modules.values() if Path(file).is_relative_to(here)}
    files = {file for file, parts in own.items() if not any(p.startswith(".") or p == "site-packages" for p in parts)}
    files |= {file for name, file in modules.items() if name in names.split(",")}
    folders = [Path(folder) for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    files |= {str(file) for folder in folders for file in (folder, *folder.glob("*.json"))}
    return sorted(files | {file for name in _SETTINGS_FILES if (file := os.environ.get(name))})


def _read_times(files: Iterable[str]) -> dict[str, float]:
    """When each file was changed; 0 for one that is not there."""
    paths = {file: Path(file) for file in files}
    return {file: path.stat().st_mtime if path.exists() else 0.0 for file, path in paths.items()}


def _worker_environment(server: DevServer, modules: str, files: Path | None) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TEMPORAL_")}
    environment |= {"TEMPORAL_ADDRESS": server.address, "TEMPORAL_NAMESPACE": server.namespace, MODULES: modules}
    environment["TEMPORAL_CONFIG_FILE"] = os.devnull
    if has_examples() and modules == default_modules():  # they need their delegates, after the user's own
        import examples

        own = os.environ.get(DELEGATES)
        environment[DELEGATES] = os.pathsep.join([*([own] if own else []), *examples.DELEGATES])
    # The folders of sets and results are the current one; no line is logged for what goes well
    defaults = {"ACTS_DATA": str(Path.cwd()), "ACTS_RESULTS": str(Path.cwd()), "ACTS_LOG_LEVEL": "warning"}
    defaults[SHUTDOWN] = str(SHUTDOWN_SECONDS)
    if files is not None:
        environment[STATE_VARIABLE] = str(files.resolve())
    return defaults | environment
