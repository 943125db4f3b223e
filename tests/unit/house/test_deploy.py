"""What lies in deploy/ fits together: with itself, with docs/deploy.md and with the real server.

There is no container engine here, so nothing below builds an image or starts a container. The programs that the
containers run (health check, namespace script) do run here, on a real server.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import temporalio.bridge
import yaml
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker
from typer.testing import CliRunner

from acts.cli.dev.temporal_server import DevServer, find_program
from acts.cli.main import app
from acts.language import variables
from acts.language.errors import SettingsError
from acts.tree.search_attributes import TYPES
from acts.worker.settings import Settings, list_variables
from tests.support import assert_eventually

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
# ${NAME}, ${NAME:-default}, ${NAME:?message}
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")
# Wide enough for a slow machine: a check takes half a second.
PROGRAM_TIMEOUT_SECONDS = 60

Service = dict[str, Any]


def load_compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return loaded


COMPOSE = load_compose()
SERVICES: dict[str, Service] = COMPOSE["services"]


def with_defaults(text: str) -> str:
    """The text as Compose reads it when .env sets nothing."""
    return VARIABLE.sub(lambda found: found["rest"] if found["how"] == "-" else "", text)


def dockerfile_stages() -> list[list[tuple[str, str]]]:
    """Per stage, its instructions as (name, rest), continued lines joined and comments dropped."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    stages: list[list[tuple[str, str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            stages.append([])
        if name:
            stages[-1].append((name, rest.strip()))
    return stages


def only(stage: list[tuple[str, str]], name: str) -> str:
    (rest,) = (rest for found, rest in stage if found == name)
    return rest


def compose_variables() -> dict[str, str | None]:
    """Every variable that compose.yaml reads, with its default."""
    found: dict[str, str | None] = {}
    for match in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text("utf-8")):
        default = match["rest"] if match["how"] == "-" else None
        assert found.setdefault(match["name"], default) == default, f"two defaults for {match['name']}"
    passed_on = {
        name for service in SERVICES.values() for name, value in service.get("environment", {}).items() if value is None
    }
    return found | dict.fromkeys(passed_on)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program with the environment given and, of ours, PATH alone."""
    path = os.pathsep.join([environment.pop("PATH", str(find_program().parent)), os.environ["PATH"]])
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROGRAM_TIMEOUT_SECONDS,
        env={**environment, "PATH": path},
    )  # fmt: skip


# compose.yaml


def test_compose_file_fits_the_compose_specification() -> None:
    checked = run(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml",
        PYTHONPATH=os.environ.get("PYTHONPATH", ""),
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_image_has_a_version_and_ports_are_open_to_this_host_alone() -> None:
    for service in SERVICES.values():
        assert with_defaults(service["image"]).rpartition(":")[2] not in {"", "latest"}
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


def test_no_password_has_a_default() -> None:
    secret = {name: default for name, default in compose_variables().items() if re.search("PASSWORD|KEY|PWD", name)}
    assert "POSTGRES_PASSWORD" in secret
    assert set(secret.values()) == {None}
    assert "\nPOSTGRES_PASSWORD=\n" in (DEPLOY / ".env.example").read_text("utf-8")


def test_env_example_names_every_variable_with_its_default() -> None:
    text = (DEPLOY / ".env.example").read_text("utf-8")
    lines = re.findall(r"^(?:# )?([A-Z_0-9]+)=(.*)$", text, flags=re.MULTILINE)
    named = compose_variables()
    assert {name for name, _ in lines} == set(named)
    assert {name: value for name, value in lines if named[name] is not None} == {
        name: default for name, default in named.items() if default is not None
    }


def test_the_list_of_settings_is_what_the_code_reads_and_the_docs_name_no_other() -> None:
    files = (ROOT / "acts").rglob("*.py")
    written = {name for file in files for name in re.findall(r"[\"'](ACTS_[A-Z_]+)[\"']", file.read_text("utf-8"))}
    assert written - {"ACTS_", "ACTS_DELEGATE"} <= variables.WORKER | variables.COMMANDS
    assert set(list_variables()) == variables.WORKER
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    others = {"ACTS_IMAGE", "ACTS_CODEC_KEY"}  # of the Compose file, and a mistake
    assert set(re.findall(r"\bACTS_[A-Z_]*[A-Z]", page)) - others <= variables.WORKER
    (library,) = Path(temporalio.bridge.__file__).parent.glob("*.so")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        assert [name for name in variables.CONNECTION if code.find(f"TEMPORAL_{name}".encode()) < 0] == []


def test_compose_passes_every_setting() -> None:
    environment = SERVICES["worker"]["environment"]
    assert {name for name in environment if name.startswith("ACTS_")} == variables.WORKER
    assert {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_REGION", "OTEL_EXPORTER_OTLP_ENDPOINT"} <= environment.keys()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ACTS_CODEC_KEY", "did you mean ACTS_CODEC_KEYS?"),
        ("ACTS_STORE", "did you mean ACTS_STORAGE?"),
        ("ACTS_XYZZY", "there are ACTS_ACTIVITIES, "),
        ("TEMPORAL_ADRESS", "did you mean TEMPORAL_ADDRESS?"),
        ("TEMPORAL_ADDR", "did you mean TEMPORAL_ADDRESS?"),
        ("TEMPORAL_TLS_CERT", "TEMPORAL_TLS_CLIENT_CERT_PATH"),
    ],
)
def test_a_variable_that_nobody_reads_stops_worker_and_command_with_the_name_that_was_meant(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(SettingsError, match=rf"^{name} is set, and .*{re.escape(meant)}"):
        Settings.from_environment()
    found = CliRunner().invoke(app, ["validate", "none.json"])
    assert (found.exit_code, meant in " ".join(found.output.split())) == (2, True)


@pytest.mark.parametrize("name", ["TEMPORAL_CLI_ADDRESS_X", "TEMPORAL_GRPC_META_TEAM", "TEMPORAL_HOME", "ACT_ONE"])
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert variables.find_mistake({name: "x", "ACTS_SECRETS": "env:ACTS_SECRET_", "ACTS_SECRET_KEY": "x"}) is None


def test_the_servers_version_is_the_one_that_the_tests_run_on() -> None:
    found = re.search(r"Server (\S+), UI (\S+)\)", run(find_program(), "--version").stdout)
    assert found
    tags = {name: with_defaults(service["image"]).rpartition(":")[2] for name, service in SERVICES.items()}
    assert {tags["temporal"], tags["temporal-schema"], tags["temporal-namespace"]} == {found[1]}
    assert tags["temporal-ui"] == found[2]


# Dockerfile


# healthcheck.py


async def check_health(server: DevServer, queue: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, DEPLOY / "healthcheck.py"),
        env={"TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": queue},
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await asyncio.wait_for(process.communicate(), PROGRAM_TIMEOUT_SECONDS)
    return process.returncode, complaint.decode()


@activity.defn
async def nothing() -> None:
    """What a worker needs to be one."""


async def test_a_worker_that_polls_is_healthy(server: DevServer, client: Client, task_queue: str) -> None:
    async def healthy() -> bool:
        return await check_health(server, task_queue) == (0, "")

    async with Worker(client, task_queue=task_queue, activities=[nothing]):
        await assert_eventually(healthy, why="the worker polls and the check says so")


# scripts/


async def test_namespace_script_sets_the_retention_each_time_it_runs(server: DevServer) -> None:
    for retention in ("72h", "720h"):
        done = run(
            "sh", DEPLOY / "scripts" / "namespace.sh",
            TEMPORAL_ADDRESS=server.address, TEMPORAL_NAMESPACE="deploy-test", RETENTION=retention,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

        async def is_set(retention: str = retention) -> bool:
            return bool(re.search(rf"RetentionTtl\s+{retention}", operator(server, "namespace", "describe")))

        await assert_eventually(is_set, why="the server shows the retention")

    async def has_attributes() -> bool:
        listed = operator(server, "search-attribute", "list")
        return {name for name in TYPES if re.search(rf"\b{name}\s+{TYPES[name]}\b", listed)} == set(TYPES)

    await assert_eventually(has_attributes, why="the server shows the search attributes")


def operator(server: DevServer, *command: str) -> str:
    """What a command of Temporal's program prints about the namespace of the test."""
    return run(find_program(), "operator", *command, "-n", "deploy-test", "--address", server.address).stdout


@pytest.mark.parametrize(
    ("name", "build", "words"),
    [
        ("acts", "", "needs both ACTS_DEPLOYMENT and ACTS_BUILD_ID"),
        ("", "1", "needs both ACTS_DEPLOYMENT and ACTS_BUILD_ID"),
        ("acts.prod", "1", "ACTS_DEPLOYMENT is 'acts.prod'"),
        ("acts:prod", "1", "ACTS_DEPLOYMENT is 'acts:prod'"),
        ("a" * 201, "1", "ACTS_DEPLOYMENT is"),
        ("acts", "a b", "ACTS_BUILD_ID is 'a b'"),
        ("acts", "x" * 64, "ACTS_BUILD_ID is"),
    ],
)
def test_what_is_no_version_is_refused_by_name(
    name: str, build: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_DEPLOYMENT", name)
    monkeypatch.setenv("ACTS_BUILD_ID", build)
    with pytest.raises(SettingsError, match=words.replace("(", r"\(")):
        Settings.from_environment()
