"""What the tests of the command line share: the command itself, as a process, and a worker behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import examples
from cli.dev.temporal_server import DevServer
from cli.main import app

ROOT = Path(__file__).parents[2]
COMMAND_SECONDS = 60  # it needs about one; a machine under full load many times that

Acts = Callable[..., Result]


def clean_environment(**more: str) -> dict[str, str]:
    """Ours, without what a developer's shell may say of servers and tools."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_", "PYTHONIO"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TEMPORAL_CONFIG_FILE": os.devnull, **more}


def run_acts(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=cwd,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


@pytest.fixture(scope="session")
def worker(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A real worker process that serves the examples; yields the environment that leads to it."""
    environment = {
        "TEMPORAL_ADDRESS": server.address,
        "ACTS_TASK_QUEUE": f"cli-{os.getpid()}",
        "ACTS_ACTIVITIES": ",".join(examples.MODULES),
        "ACTS_STATE": str(tmp_path_factory.mktemp("state")),
        "ACTS_SCRIPTS": str(tmp_path_factory.mktemp("scripts")),
        "ACTS_DELEGATES": os.pathsep.join(examples.DELEGATES),
        "ACTS_SHUTDOWN_SECONDS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "worker"],
        cwd=ROOT,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "acts worker" in process.stdout.readline()
        yield environment
        process.terminate()


@pytest.fixture
def acts(worker: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acts:
    """``acts ARGUMENTS`` where the server and the worker are; in this process, because a new one costs a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    for name, value in worker.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: str) -> Result:
        with ThreadPoolExecutor(1) as own:  # a command runs a loop of its own, and this thread may have one
            return own.submit(CliRunner().invoke, app, list(arguments), catch_exceptions=False).result()

    return call
