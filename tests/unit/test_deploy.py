"""What lies in deploy/ fits together: with itself, with docs/deploy.md, with pyproject.toml and with the real server.

There is no container engine here, so nothing below builds an image or starts a container; docs/deploy.md says what
was run by hand. The programs that the containers run (health check, namespace script) do run here, on a real server.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import Worker

from acts.tree.search_attributes import TYPES
from cli.dev.server_settings import DYNAMIC_CONFIG
from cli.dev.temporal_server import DevServer, find_program
from tests.support import assert_eventually

ROOT = Path(__file__).parents[2]
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
JOBS = {name for name, service in SERVICES.items() if "admin-tools" in service["image"]}


def every_service() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", SERVICES)


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
    """The rest of the one instruction of that name."""
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


def seconds(duration: str) -> int:
    number, unit = int(duration[:-1]), duration[-1]
    return number * {"s": 1, "m": 60}[unit]


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


@every_service()
def test_every_image_has_a_version(name: str) -> None:
    repository, _, tag = with_defaults(SERVICES[name]["image"]).rpartition(":")
    assert repository
    assert tag not in {"", "latest"}


@every_service()
def test_ports_are_open_to_this_host_alone(name: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_the_database_has_no_port_and_no_network_with_the_workers() -> None:
    assert "ports" not in SERVICES["postgres"]
    assert COMPOSE["networks"]["data"]["internal"] is True
    assert not set(SERVICES["postgres"]["networks"]) & set(SERVICES["worker"]["networks"])


@every_service()
def test_what_ends_by_itself_is_not_restarted_and_what_serves_is(name: str) -> None:
    wanted = "on-failure:5" if name in JOBS else "unless-stopped"
    assert SERVICES[name]["restart"] == wanted


@every_service()
def test_nobody_waits_for_a_state_that_cannot_come(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        if other in JOBS:
            assert wait["condition"] == "service_completed_successfully"
        else:
            assert wait["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[other]


@every_service()
def test_mounted_files_are_there(name: str) -> None:
    sources = [volume.split(":")[0] for volume in SERVICES[name].get("volumes", [])]
    for source in sources:
        if source.startswith("."):
            assert (DEPLOY / source).exists()
            assert any(volume.endswith(":ro") for volume in SERVICES[name]["volumes"])
        else:
            assert source in COMPOSE["volumes"]


def test_prometheus_reads_the_port_that_the_workers_open_and_grafana_reads_prometheus() -> None:
    environment = SERVICES["worker"]["environment"]
    port = environment["ACTS_METRICS"].rpartition(":")[2]
    assert {"9464", "8081"} == {port, environment["ACTS_HEALTH"].rpartition(":")[2]}
    assert "EXPOSE 9464 8081" in (DEPLOY / "Dockerfile").read_text("utf-8")
    assert set(SERVICES["prometheus"]["networks"]) & set(SERVICES["worker"]["networks"])
    assert SERVICES["grafana"]["networks"] == ["metrics"]
    scraped = (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    assert f"port: {port}" in scraped
    (source,) = (DEPLOY / "grafana" / "provisioning" / "datasources").glob("*.y*ml")
    assert "url: http://prometheus:9090" in source.read_text("utf-8")


def test_a_worker_may_finish_its_graceful_stop() -> None:
    worker = SERVICES["worker"]
    assert seconds(worker["stop_grace_period"]) > int(worker["environment"]["ACTS_SHUTDOWN_SECONDS"])


def test_no_password_has_a_default() -> None:
    secret = {name: default for name, default in compose_variables().items() if re.search("PASSWORD|KEY|PWD", name)}
    assert "POSTGRES_PASSWORD" in secret
    assert set(secret.values()) == {None}
    assert "\nPOSTGRES_PASSWORD=\n" in (DEPLOY / ".env.example").read_text("utf-8")


def test_env_example_names_every_variable_with_its_default() -> None:
    lines = re.findall(r"^(?:# )?([A-Z_]+)=(.*)$", (DEPLOY / ".env.example").read_text("utf-8"), flags=re.MULTILINE)
    variables = compose_variables()
    assert {name for name, _ in lines} == set(variables)
    assert {name: value for name, value in lines if variables[name] is not None} == {
        name: default for name, default in variables.items() if default is not None
    }


def documented_settings() -> set[str]:
    section = (ROOT / "docs" / "deploy.md").read_text("utf-8").split("## Settings")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([A-Z_]+)`", section, flags=re.MULTILINE))


def test_the_worker_is_given_no_setting_that_the_docs_do_not_have() -> None:
    assert set(SERVICES["worker"]["environment"]) <= documented_settings()


def settings_in_the_sources() -> set[str]:
    """The names of settings that a program reads: those in strings of the code."""
    rooms = ("worker_runtime", "activities", "connection", "delegates", "telemetry", "workflows")
    files = [
        ROOT / "worker.py",
        ROOT / "worker_settings.py",
        *(file for room in rooms for file in (ROOT / room).rglob("*.py")),
    ]
    return {name for file in files for name in re.findall(r"[\"'](ACTS_[A-Z_]+)[\"']", file.read_text("utf-8"))}


def test_the_docs_have_the_settings_that_the_worker_reads() -> None:
    read = set(re.findall(r"\bACTS_[A-Z_]+", (ROOT / "worker_settings.py").read_text("utf-8")))
    assert {name for name in documented_settings() if name.startswith("ACTS_")} == read


def test_each_setting_of_the_workers_in_compose_is_one_that_they_read() -> None:
    ours = {name for name in SERVICES["worker"]["environment"] if name.startswith("ACTS_")}
    assert ours <= settings_in_the_sources()


def test_the_servers_version_is_the_one_that_the_tests_run_on() -> None:
    found = re.search(r"Server (\S+), UI (\S+)\)", run(find_program(), "--version").stdout)
    assert found
    tags = {name: with_defaults(service["image"]).rpartition(":")[2] for name, service in SERVICES.items()}
    assert {tags["temporal"], tags["temporal-schema"], tags["temporal-namespace"]} == {found[1]}
    assert tags["temporal-ui"] == found[2]


# Dockerfile


def test_the_image_runs_the_worker_as_a_numbered_user() -> None:
    stage = dockerfile_stages()[-1]
    assert only(stage, "CMD") == '["python", "-m", "worker"]'
    assert only(stage, "STOPSIGNAL") == "SIGTERM"
    user, group = only(stage, "USER").split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_last_stage_installs_nothing() -> None:
    commands = [rest for name, rest in dockerfile_stages()[-1] if name in {"RUN", "SHELL", "ADD"}]
    assert [rest for rest in commands if re.search(r"\b(pip|apt|apt-get|curl|gcc|make)\b", rest)] == []
    assert only(dockerfile_stages()[0], "FROM").split() == ["python:3.11-slim", "AS", "build"]
    assert only(dockerfile_stages()[-1], "FROM") == "python:3.11-slim"


def test_the_image_is_built_from_what_pyproject_ships_and_nothing_else() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shipped = set(pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    assert {"worker.py", "worker_settings.py"} <= set(shipped)
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {line[1:] for line in patterns if line.startswith("!")}
    for_the_build = {"pyproject.toml", "constraints.txt", "LICENSE", "README.md", "deploy/healthcheck.py"}
    assert let_in == shipped | for_the_build


def test_the_health_check_of_the_image_is_copied_into_it() -> None:
    stage = dockerfile_stages()[-1]
    assert only(stage, "HEALTHCHECK").endswith('CMD ["python", "/app/healthcheck.py"]')
    assert ("COPY", "constraints.txt deploy/healthcheck.py /app/") in stage


# Linters

YAML_RULES = (
    "{extends: default, rules: {document-start: disable, line-length: disable, braces: {max-spaces-inside: 1}, "
    "comments: {min-spaces-from-content: 1}}}"
)


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", str(DEPLOY / "Dockerfile")],
        ["shellcheck", *map(str, sorted((DEPLOY / "scripts").glob("*.sh")))],
        ["yamllint", "--strict", "-d", YAML_RULES, str(DEPLOY)],
    ],
    ids=lambda command: command[0],
)
def test_linters_find_nothing(command: list[str]) -> None:
    done = run(Path(sys.executable).parent / command[0], *command[1:])
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_linter_would_find_something(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:latest\nRUN cd /src\n", "utf-8")
    done = run(Path(sys.executable).parent / "hadolint", tmp_path / "Dockerfile")
    assert done.returncode == 1
    assert "DL3007" in done.stdout  # "latest"


# dynamicconfig.yaml


def settings_of_the_server() -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "dynamicconfig.yaml").read_text("utf-8"))
    return {key: entry["value"] for key, (entry,) in loaded.items()}


@pytest.fixture(scope="module")
def server_program() -> Iterator[mmap.mmap]:
    with (
        find_program().open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


@pytest.mark.parametrize("key", settings_of_the_server())
def test_the_server_has_a_setting_of_that_name(server_program: mmap.mmap, key: str) -> None:
    assert server_program.find(key.encode()) >= 0


def test_a_misspelt_setting_would_be_noticed(server_program: mmap.mmap) -> None:
    assert server_program.find(b"history.transferProcessorMaxPolRPS") < 0


def test_the_server_is_told_all_that_the_development_server_is_told() -> None:
    here = settings_of_the_server()
    assert set(here) >= set(DYNAMIC_CONFIG)
    other = {key for key, text in DYNAMIC_CONFIG.items() if here[key] != yaml.safe_load(text.strip('"'))}
    # Only these differ: here a host has many shards and a database to share, there one shard has it all.
    assert other == {f"history.{queue}ProcessorMaxPollRPS" for queue in ("transfer", "timer", "visibility")}


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


async def test_a_worker_on_another_host_does_not_make_this_one_healthy(server: DevServer, task_queue: str) -> None:
    elsewhere = await Client.connect(server.address, identity="1@elsewhere")
    request = DescribeTaskQueueRequest(
        namespace=server.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )

    async def polled() -> bool:
        answer = await elsewhere.workflow_service.describe_task_queue(request)
        return [poller.identity for poller in answer.pollers] == ["1@elsewhere"]

    async with Worker(elsewhere, task_queue=task_queue, activities=[nothing]):
        await assert_eventually(polled, why="the other worker polls")
        code, complaint = await check_health(server, task_queue)
    assert code == 1
    assert f"no poll of task queue '{task_queue}'" in complaint


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
async def test_a_worker_with_a_health_port_is_asked_itself(status: int, code: int) -> None:
    paths: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readline()).decode().split()[1])
        writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, DEPLOY / "healthcheck.py"),
            env={"ACTS_HEALTH": f"0.0.0.0:{port}", "TEMPORAL_ADDRESS": "127.0.0.1:1"}, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, complaint = await asyncio.wait_for(process.communicate(), PROGRAM_TIMEOUT_SECONDS)
    assert (process.returncode, paths) == (code, ["/ready"])
    assert code == 0 or "503" in complaint.decode()


async def test_no_server_is_not_healthy() -> None:
    nowhere = DevServer("127.0.0.1:1", None, "default", 0, None, None)  # port 1 is never listened on
    code, complaint = await check_health(nowhere, "acts")
    assert code == 1
    assert complaint.startswith("unhealthy: ")


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


@pytest.fixture
def sql_tool(tmp_path: Path) -> Path:
    """A stand-in for temporal-sql-tool, which no package here has: it writes down how it was called."""
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncase "$*" in *"$FAIL_ON"*) exit 1 ;; esac\n', "utf-8")
    tool.chmod(0o755)
    return tool


def test_schema_script_sets_up_both_databases(sql_tool: Path) -> None:
    done = run("sh", DEPLOY / "scripts" / "schema.sh", PATH=str(sql_tool.parent), FAIL_ON="nothing")
    assert done.returncode == 0, done.stderr
    assert (sql_tool.parent / "calls").read_text("utf-8").splitlines() == [
        f"--db {database} {step}"
        for database, folder in (("temporal", "temporal"), ("temporal_visibility", "visibility"))
        for step in (
            "create",
            "setup-schema -v 0.0",
            f"update-schema -d /etc/temporal/schema/postgresql/v12/{folder}/versioned",
        )
    ]


def test_schema_script_stops_where_a_step_fails(sql_tool: Path) -> None:
    done = run("sh", DEPLOY / "scripts" / "schema.sh", PATH=str(sql_tool.parent), FAIL_ON="setup-schema")
    assert done.returncode == 1
    assert len((sql_tool.parent / "calls").read_text("utf-8").splitlines()) == 2
