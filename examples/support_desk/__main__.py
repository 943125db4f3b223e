"""Starts all of the desk, sends three cases, and starts again what dies: ``python -m examples.support_desk``."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2

from acts.cli.dev.temporal_server import spawn  # a child that dies with this process
from examples.support_desk import database

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
_HOST: Final = "127.0.0.1"
_POLL_SECONDS: Final = 0.1
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 10
_ACTS: Final = (sys.executable, "-m", "acts.cli")
CASES: Final = (
    {"kind": "refund", "orderId": "A-1", "message": "The mug is too small. My money back, please."},
    {"kind": "refund", "orderId": "A-2", "message": "I want to return the lamp."},
    {"kind": "exchange", "orderId": "A-3"},
)


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs: on PATH, or where Debian has them; None: the desk uses SQLite."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return next((Path(place).parent for place in (shutil.which("initdb"), *debian) if place), None)


def make_settings(state: Path, port: int) -> dict[str, str]:
    """The environment of the desk's programs: its own is called ``DESK_…``, that of the engine ``ACTS_…``."""
    for name in ("data", "results"):
        (state / name).mkdir(parents=True, exist_ok=True)
    secret = state / "secret"
    if not secret.exists():
        secret.touch(0o600)
        secret.write_text(secrets.token_urlsafe(24))
    programs = None if "DESK_DATABASE" in os.environ else find_postgres()
    site, payments, inbox = (f"http://{_HOST}:{port + number}" for number in range(3))
    own = {
        "SITE": site, "PAYMENTS": payments, "INBOX": inbox, "WEBHOOK": f"{site}/webhooks/payments",
        "DATABASE": f"postgresql://postgres@{_HOST}:{port + 3}/postgres" if programs else str(state / "shop.db"),
        "LEDGER": str(state / "ledger.db"), "SECRET": secret.read_text(), "ORDERS": "10000",
        "POSTGRES": str(programs or ""),
        "PYTHON": sys.executable, "ROOT": str(ROOT),
    }  # fmt: skip
    engine = {
        "STATE": str(state / "engine"), "DATA": str(state / "data"), "RESULTS": str(state / "results"),
        "ACTIVITIES": "examples.support_desk.tools", "PLANS": str(HERE / "plans"), "MCP": str(HERE / "mcp.json"),
        "NOTIFY": f"{site}/webhooks/notices", "NOTIFY_SECRET": own["SECRET"], "NOTIFY_LINK": site + "/?run={run}",
        "UI_TOKEN": own["SECRET"],
    }  # fmt: skip
    named = {f"DESK_{name}": value for name, value in own.items()}
    return {**named, **{f"ACTS_{name}": value for name, value in engine.items()}, "PYTHONPATH": str(ROOT), **os.environ}


def make_commands(settings: Mapping[str, str], state: Path) -> dict[str, list[str]]:
    """The programs of the desk, in the order in which they start."""
    database_port = settings["DESK_DATABASE"].rpartition(":")[2].partition("/")[0]
    programs = settings["DESK_POSTGRES"]
    return {
        **({"database": _make_postgres(Path(programs), state / "postgres", database_port)} if programs else {}),
        "payments": [sys.executable, "-m", "examples.support_desk.payments"],
        "site": [sys.executable, "-m", "examples.support_desk.desk"],
        "engine": [*_ACTS, "dev"],
        "inbox": [*_ACTS, "ui", "--port", settings["DESK_INBOX"].rpartition(":")[2]],
        "notices": [*_ACTS, "notify", "--every", "2s"],
    }


def _make_postgres(programs: Path, folder: Path, port: str) -> list[str]:
    """The command that starts a server over the folder, which is made the first time."""
    # PostgreSQL refuses to run as root: then Debian's user for it owns the folder
    as_user = [
        shutil.which("setpriv") or "setpriv",
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
        "--pdeathsig=KILL",
    ]
    prefix = as_user if os.geteuid() == 0 else []
    if not (folder / "PG_VERSION").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if prefix:
            shutil.chown(folder, "postgres", "postgres")
        made = [*prefix, str(programs / "initdb"), "-D", str(folder), "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd="/")  # noqa: S603 - the system's own program
    network = ["-h", _HOST, "-p", port, "-c", "unix_socket_directories="]
    return [*prefix, str(programs / "postgres"), "-D", str(folder), *network]


class Programs:
    """Running programs, each with a log of its own."""

    def __init__(self, commands: Mapping[str, list[str]], settings: Mapping[str, str], logs: Path) -> None:
        self.commands, self.settings, self._logs = commands, settings, logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            self.running[name] = spawn(self.commands[name], log, self.settings)

    def start_again(self) -> None:
        """Start what has ended."""
        for name in self.commands:
            if name not in self.running or self.running[name].poll() is not None:
                self.start(name)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def running(commands: Mapping[str, list[str]], settings: Mapping[str, str], logs: Path) -> Iterator[Programs]:
    programs = Programs(commands, settings, logs)
    try:
        programs.start_again()
        yield programs
    finally:
        programs.stop()


def wait_for_shop(programs: Programs) -> None:
    """Wait until database, payment service and site answer, and fill the database the first time."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            database.prepare(programs.settings["DESK_DATABASE"], int(programs.settings["DESK_ORDERS"]))
            httpx2.get(f"{programs.settings['DESK_PAYMENTS']}/ledger").raise_for_status()
            httpx2.get(programs.settings["DESK_SITE"])
        except Exception:  # the driver's own errors, too
            if time.monotonic() > deadline:
                raise
            programs.start_again()
            time.sleep(_POLL_SECONDS)
        else:
            return


def send_cases(settings: Mapping[str, str]) -> Iterator[str]:
    """Send the three cases, again until the engine takes them; their runs."""
    with httpx2.Client(base_url=settings["DESK_SITE"], timeout=_START_SECONDS) as client:
        for case in CASES:
            while not (answer := client.post("/cases", json=case).json()).get("run"):
                time.sleep(_POLL_SECONDS)
            yield answer["run"]


def main() -> None:
    state = Path(os.environ.get("DESK_STATE", ".support_desk")).resolve()
    settings = make_settings(state, int(os.environ.get("DESK_PORT", "8300")))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with running(make_commands(settings, state), settings, state) as programs:
        wait_for_shop(programs)
        runs = list(send_cases(settings))
        for plan, cron in (("export", "55 1 * * *"), ("nightly", "0 2 * * *")):
            command = [*_ACTS, "schedule", "create", plan, plan, "--cron", cron, "--replace"]
            with (state / "schedules.log").open("ab") as log:
                subprocess.run(command, check=True, env=settings, stdout=log, stderr=log)  # noqa: S603 - of this project
        print(f"the desk: {settings['DESK_SITE']}/desk   logs: {state}/*.log   Ctrl-C stops all of it")
        for run in runs:
            print(f"  {settings['DESK_SITE']}/?run={run}", flush=True)
        while True:
            time.sleep(1)
            programs.start_again()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
