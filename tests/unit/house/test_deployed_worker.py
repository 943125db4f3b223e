"""The worker as deploy/ starts it: with the environment of the Compose file and of the Kubernetes manifests.

The server is that of the tests, and the ports are free ones; all else is as it is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from acts.cli.dev.temporal_server import DevServer, dev_server, free_address
from tests.support import assert_eventually, free_port
from tests.unit.house.test_deploy import DEPLOY, ROOT, SERVICES, with_defaults

START_SECONDS = 60  # it needs two; a machine under full load many times that


def compose_environment() -> dict[str, str]:
    """What Compose sets when .env sets nothing."""
    environment = SERVICES["worker"]["environment"]
    return {name: with_defaults(str(value)) for name, value in environment.items() if value is not None}


def kubernetes_environment() -> dict[str, str]:
    """What the ConfigMaps of the base set."""
    text = (DEPLOY / "kubernetes" / "base" / "kustomization.yaml").read_text("utf-8")
    maps = yaml.safe_load(text)["configMapGenerator"]
    return dict(literal.split("=", 1) for generated in maps for literal in generated["literals"])


ENVIRONMENTS = {"compose": compose_environment(), "kubernetes": kubernetes_environment()}


@asynccontextmanager
async def running_worker(environment: dict[str, str]) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The worker in an environment of its own, and the first line that it prints."""
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "acts.worker", cwd="/", env={**own, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        yield process, line.decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def get(port: int, path: str) -> int:
    """The status of an answer; 0: nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=START_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except OSError:
        return 0


@pytest.mark.long
async def test_a_server_that_is_away_at_the_start_is_waited_for_and_a_namespace_that_is_not_there_is_named(
    server: DevServer, task_queue: str, tmp_path: Path
) -> None:
    host, _, port = free_address(None).rpartition(":")
    environment = {"TEMPORAL_ADDRESS": f"{host}:{port}", "ACTS_TASK_QUEUE": task_queue}
    async with running_worker(environment) as (process, line):
        assert line.rstrip().endswith("(TEMPORAL_ADDRESS): Connection refused; waiting for it")
        with dev_server(state=tmp_path, port=int(port), ui=False):
            assert process.stdout is not None
            ready = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
            assert task_queue in ready.decode()
    environment = {"TEMPORAL_ADDRESS": server.address, "TEMPORAL_NAMESPACE": "nowhere"}
    async with running_worker(environment) as (process, line):
        assert "Namespace nowhere is not found" in line
        assert await asyncio.wait_for(process.wait(), START_SECONDS) == 3
        assert process.stdout is not None
        assert await process.stdout.read() == b"", "one line"


@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_the_worker_starts_answers_its_probes_and_stops_with_the_environment_of_the_deployment(
    name: str, server: DevServer, task_queue: str
) -> None:
    environment = dict(ENVIRONMENTS[name])
    ports = {variable: free_port() for variable in ("ACTS_HEALTH", "ACTS_METRICS")}
    environment |= {variable: f"127.0.0.1:{port}" for variable, port in ports.items()}
    environment |= {"TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": task_queue}
    async with running_worker(environment) as (process, line):
        assert task_queue in line

        async def answers() -> bool:
            health, metrics = ports["ACTS_HEALTH"], ports["ACTS_METRICS"]
            paths = ((health, "/live"), (health, "/ready"), (metrics, "/metrics"))
            statuses = [await asyncio.to_thread(get, port, path) for port, path in paths]
            return statuses == [200, 200, 200]

        await assert_eventually(answers, within=timedelta(seconds=START_SECONDS), why="the probes answer")
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), float(environment["ACTS_SHUTDOWN_SECONDS"]) + START_SECONDS)
        assert process.returncode == 0
