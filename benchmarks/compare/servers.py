"""The servers that the alternatives need, each with an empty database in a temporary folder, on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acts.cli.dev.temporal_server import dev_server, free_address, spawn

# A commit waits for no disk, as with the SQLite of the Temporal server: kill -9 of a user's process loses nothing
POSTGRES: Final = ("-c", "fsync=off", "-c", "max_connections=300", "-c", "listen_addresses=127.0.0.1")
READY_SECONDS: Final = 90.0
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Served:
    """What a server gives an alternative, its process, and the bytes that it has stored."""

    environment: Mapping[str, str]
    pids: tuple[int, ...]
    stored: Callable[[], int]


@contextmanager
def temporal(folder: Path, _: Path) -> Iterator[Served]:
    """The development server of acts, whose settings are good for everything on Temporal."""

    def stored() -> int:
        (file,) = folder.glob("*.db")
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as book:
            pages, free, size = (book.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size"))  # fmt: skip
        return (pages - free) * size

    with dev_server(state=folder, ui=False) as server:
        yield Served({"TEMPORAL_ADDRESS": server.address}, (server.pid,), stored)


@contextmanager
def postgres(folder: Path, _: Path) -> Iterator[Served]:
    """PostgreSQL from the system, with the database ``shop``."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if programs is None:
        raise SystemExit("no PostgreSQL in /usr/lib/postgresql: apt-get install postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    data = folder / "postgres"
    data.mkdir()
    if user:
        folder.chmod(0o711)
        shutil.chown(data, user)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    subprocess.run([programs / "initdb", "-D", data, "-U", "shop", "-A", "trust", "-N"], check=True, user=user, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603  # fmt: skip
    port = free_address(None).rpartition(":")[2]
    with (folder / "postgres.log").open("wb") as log:
        process = subprocess.Popen([programs / "postgres", "-D", data, "-p", port, "-k", data, *POSTGRES], user=user, env=environment, stdout=log, stderr=log)  # noqa: S603  # fmt: skip

    def ask(command: str, database: str = "shop") -> str:
        told = [programs / "psql", "-XAtq", "-h", "127.0.0.1", "-p", port, "-U", "shop", database, "-c", command]
        return subprocess.run(told, check=True, capture_output=True, text=True, env=environment).stdout  # noqa: S603

    try:
        _until(lambda: ask("create database shop", "postgres") == "", "PostgreSQL")
        address = f"127.0.0.1:{port}/shop"
        yield Served(
            {"DATABASE_URL": f"postgresql://shop@{address}", "DATABASE_ADDRESS": f"shop@{address}"},
            (process.pid,),
            lambda: int(ask("checkpoint; select pg_database_size('shop')")),
        )
    finally:
        process.send_signal(2)  # SIGINT: end now, in order
        process.wait()


@contextmanager
def prefect(folder: Path, venv: Path) -> Iterator[Served]:
    """Prefect's server with PostgreSQL; results are files in its folder."""
    with postgres(folder, venv) as database:
        address = free_address(None)
        home = folder / "prefect"
        environment = {
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": f"http://{address}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "WARNING",
            "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{database.environment['DATABASE_ADDRESS']}",
        }
        host, _, port = address.rpartition(":")
        command = [venv / "bin" / "prefect", "server", "start", "--host", host, "--port", port, "--no-ui"]
        with (folder / "prefect.log").open("wb") as log:
            process = spawn(command, log, {**os.environ, **environment})

        def is_up() -> bool:
            with urllib.request.urlopen(f"http://{address}/api/health", timeout=2) as answer:
                return answer.status == 200  # noqa: PLR2004

        def stored() -> int:
            return database.stored() + sum(file.stat().st_size for file in (home / "storage").glob("*"))

        try:
            _until(is_up, "Prefect's server")
            yield Served(environment, (*database.pids, process.pid), stored)
        finally:
            process.terminate()
            process.wait()


def _until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, subprocess.CalledProcessError):
            if is_true():
                return
        time.sleep(0.1)
    raise SystemExit(f"{what} does not start")


def cpu_seconds(*pids: int) -> float:
    """CPU seconds of processes and of all their descendants, those that have ended included."""
    own, children = dict[int, float](), dict[int, list[int]]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = entry.read_text("utf-8", "replace").rpartition(")")[2].split()
            pid = int(entry.parent.name)
            own[pid] = sum(int(field) for field in fields[11:15]) / _TICKS_PER_SECOND
            children.setdefault(int(fields[1]), []).append(pid)

    def of(pid: int) -> float:
        return own.get(pid, 0.0) + sum(of(child) for child in children.get(pid, ()))

    return sum(map(of, pids))
