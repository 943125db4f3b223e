"""What ``acts doctor`` makes of what it reads; tests/cli/test_doctor.py has it read from a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.enums.v1 import WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo

from activities.registry import Registry
from activities.worker_versions import registry_version
from cli.dev.temporal_server import DevServer
from cli.doctor import local_checks
from cli.doctor.worker_checks import QueueState, check_backlog, check_versions, judge_deployment

EMPTY = Registry({}, ())
VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ACTS_MODELS", "ACTS_ACTIVITIES",
             "ACTS_TOOLS", "ACTS_MCP", "ACTS_METRICS", "ACTS_HEALTH")  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def poller(digest: str, number: int = 1, build: str = "") -> PollerInfo:
    mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED if build else 0
    options = WorkerDeploymentOptions(deployment_name="acts", build_id=build, worker_versioning_mode=mode)
    identity = f"acts/{digest} {number}@host" if digest else f"{number}@host"
    return PollerInfo(identity=identity, deployment_options=options)


def queue(*pollers: PollerInfo, backlog: int = 0, age: float = 0.0) -> QueueState:
    return QueueState("acts", pollers, {"workflow": 0, "activity": backlog}, {"workflow": 0.0, "activity": age})


@pytest.mark.parametrize(
    ("pollers", "level", "words"),
    [
        ([poller("aaaaaaaa", 1), poller("aaaaaaaa", 2)], "ok", "2 workers on 'acts', tools 2 × aaaaaaaa"),
        ([poller("aaaaaaaa", 1), poller("bbbbbbbb", 2)], "warn", "have different tools: 1 × aaaaaaaa, 1 × bbbbbbbb"),
        # Two deployment versions: each serves its own runs
        ([poller("aaaaaaaa", 1, "1"), poller("bbbbbbbb", 2, "2")], "ok", "tools 1 × aaaaaaaa, 1 × bbbbbbbb"),
        ([poller("", 7)], "ok", "1 × not of this engine (7@host)"),
    ],
)
def test_workers_are_counted_by_their_tools(pollers: list[PollerInfo], level: str, words: str) -> None:
    (finding,) = check_versions(queue(*pollers), None)
    assert finding.level == level
    assert words in finding.text


def test_tools_of_this_shell_that_no_worker_has_are_reported(environment: pytest.MonkeyPatch) -> None:
    other, same = queue(poller("aaaaaaaa")), queue(poller(registry_version(EMPTY)))
    assert [f.level for f in check_versions(other, EMPTY)] == ["ok"]  # this shell names no tools
    environment.setenv("ACTS_TOOLS", "folder")
    assert [f.level for f in check_versions(other, EMPTY)] == ["ok", "warn"]
    assert [f.level for f in check_versions(same, EMPTY)] == ["ok"]


@pytest.mark.parametrize(
    ("backlog", "age", "level", "words"),
    [
        (0, 0.0, "ok", "nothing waits"),
        (2_000, 5.0, "ok", "2,000 activity tasks, the oldest for 5 s"),
        (3, 61.0, "warn", "3 activity tasks, the oldest for 61 s"),
    ],
)
def test_a_backlog_counts_when_it_lasts(backlog: int, age: float, level: str, words: str) -> None:
    (finding,) = check_backlog(queue(backlog=backlog, age=age))
    assert finding.level == level
    assert words in finding.text


@pytest.mark.parametrize(
    ("current", "builds", "has_unversioned", "level", "words"),
    [
        ("2", {"1", "2"}, False, "ok", "new runs go to version 2 of deployment 'acts'; 1, 2 poll"),
        ("3", {"1", "2"}, False, "fail", "version 3 of deployment 'acts' is current and no worker of it polls"),
        ("", {"1"}, False, "fail", "no current version; 1 poll: new runs wait for ever"),
        ("", {"1"}, True, "warn", "new runs go to unversioned workers"),
    ],
)
def test_a_deployment_without_a_current_version_that_polls_fails(
    current: str,
    builds: set[str],
    has_unversioned: bool,  # noqa: FBT001 - a column of the table
    level: str,
    words: str,
) -> None:
    finding = judge_deployment("acts", current, builds, has_unversioned=has_unversioned)
    assert finding.level == level
    assert words in finding.text
    assert level == "ok" or "--deployment-name acts --build-id" in finding.hint


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({}, "ok", "no model has a key here"),
        ({"OPENAI_API_KEY": "sk-not-shown"}, "ok", "openai:… can be asked"),
        ({"ACTS_MODELS": "/nowhere.yaml"}, "fail", "ACTS_MODELS names /nowhere.yaml"),
    ],
)
def test_models_with_a_key_are_named_and_keys_are_not(
    settings: dict[str, str], level: str, words: str, environment: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        environment.setenv(name, value)
    (finding,) = local_checks.check_models()
    assert finding.level == level
    assert words in finding.text
    assert "sk-not-shown" not in str(finding)


def test_a_setting_that_stops_a_worker_fails(environment: pytest.MonkeyPatch) -> None:
    assert [f.level for f in local_checks.check_settings()] == ["ok"]
    environment.setenv("ACTS_MAX_ACTIVITIES", "many")
    environment.setenv("ACTS_ACTIVITIES", "no.such.module")
    (finding,) = local_checks.check_settings()
    assert "ACTS_MAX_ACTIVITIES is 'many'" in finding.text
    registry, findings = local_checks.load_registry()
    assert registry is None
    assert [(f.level, "no.such.module" in f.text) for f in findings] == [("fail", True)]


async def test_an_address_that_a_worker_opens_is_tried(environment: pytest.MonkeyPatch, server: DevServer) -> None:
    environment.setenv("ACTS_METRICS", server.address)
    environment.setenv("ACTS_HEALTH", "9464")
    findings = await local_checks.check_addresses()
    assert [f.level for f in findings] == ["ok", "fail"]
    environment.setenv("ACTS_HEALTH", "127.0.0.1:1")  # port 1 is never listened on
    assert [f.level for f in await local_checks.check_addresses()] == ["ok", "warn"]


async def test_an_mcp_server_needs_a_program_or_an_address_that_answers(
    environment: pytest.MonkeyPatch, tmp_path: Path, server: DevServer
) -> None:
    servers = {"a": {"command": "python3"}, "b": {"command": "no-such-program"},
               "c": {"url": f"http://{server.address}/mcp"}, "d": {"url": "http://127.0.0.1:1/mcp"}}  # fmt: skip
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    environment.setenv("ACTS_MCP", str(file))
    registry, _ = local_checks.load_registry()
    assert registry is not None
    assert [f.level for f in await local_checks.check_mcp(registry)] == ["ok", "fail", "ok", "fail"]
