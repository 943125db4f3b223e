"""What ``acts doctor`` makes of what it reads; tests/cli/test_list.py has it read from a real server."""

from __future__ import annotations

import time

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.enums.v1 import WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo

from acts.activities.registry import load
from acts.cli.commands import operations as doctor
from acts.cli.commands.operations import (
    describe_poller,
    judge_backlog,
    judge_deployment,
    judge_payloads,
    judge_workers,
)

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ACTS_MODELS", "ACTS_ACTIVITIES")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def poller(digest: str, number: int = 1, build: str = "", age: float = 0.0, payloads: str = "") -> PollerInfo:
    mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED if build else 0
    options = WorkerDeploymentOptions(deployment_name="acts", build_id=build, worker_versioning_mode=mode)
    identity = f"acts/{digest} {number}@host{payloads}" if digest else f"{number}@host"
    found = PollerInfo(identity=identity, deployment_options=options)
    found.last_access_time.FromMilliseconds(round((time.time() - age) * 1000))
    return found


@pytest.mark.parametrize(
    ("pollers", "level", "words"),
    [
        ([poller("aaaaaaaa", 1), poller("aaaaaaaa", 2)], "ok", "2 workers on 'acts', tools 2 × aaaaaaaa"),
        ([poller("aaaaaaaa", 1), poller("bbbbbbbb", 2)], "warn", "1 × aaaaaaaa, 1 × bbbbbbbb: they differ"),
        # Two deployment versions: each serves its own runs
        ([poller("aaaaaaaa", 1, "1"), poller("bbbbbbbb", 2, "2")], "ok", "tools 1 × aaaaaaaa, 1 × bbbbbbbb"),
        ([poller("", 7)], "ok", "1 × not of this engine (7@host)"),
    ],
)
def test_workers_are_counted_by_their_tools(pollers: list[PollerInfo], level: str, words: str) -> None:
    (finding,) = judge_workers("acts", pollers, None)  # the shell loads no Tools: nothing to compare
    assert finding.level == level
    assert words in finding.text
    *_, of_shell = judge_workers("acts", pollers, load([], []), gone=2)
    assert "of this shell" in of_shell.text
    assert "(2 more that the server lists have ended or stand still)" in judge_workers("acts", pollers, None, 2)[0].text


@pytest.mark.parametrize(
    ("workers", "shell", "level", "words"),
    [
        (("", ""), "", None, ""),
        ((" keys=1a storage=5e", " keys=1a storage=5e"), " keys=1a storage=5e", None, ""),
        (
            ("", " keys=1a"),
            " keys=1a",
            "fail",
            "workers differ in ACTS_CODEC_KEYS; by digest, none: acts/aaaaaaaa 0@host,",
        ),
        ((" keys=1a", " keys=2b"), " keys=1a", "warn", "2b: acts/aaaaaaaa 1@host keys=2b, 0 s ago; this shell: 1a"),
        ((" keys=1a", " keys=1a storage=5e"), " keys=1a", "fail", "workers differ in ACTS_STORAGE"),
        ((" storage=5e",), "", "warn", "this shell and the workers differ in ACTS_STORAGE"),
    ],
)
def test_workers_with_other_keys_or_storage_are_named(
    workers: tuple[str, ...], shell: str, level: str | None, words: str
) -> None:
    pollers = [poller("aaaaaaaa", n, payloads=label) for n, label in enumerate(workers)]
    findings = judge_payloads([*pollers, poller("", 7)], shell)  # one of another engine has no digests
    assert [finding.level for finding in findings] == ([] if level is None else [level])
    assert all(words in finding.text for finding in findings)


def test_a_worker_that_is_gone_is_named_with_its_version_and_when_it_polled_last() -> None:
    assert (
        describe_poller(poller("aaaaaaaa", 7, "2", 45))
        == "acts/aaaaaaaa 7@host (version 2 of deployment 'acts'), 45 s ago"
    )
    assert describe_poller(poller("", 7, age=45)) == "7@host, 45 s ago"


def test_a_backlog_counts_when_it_lasts() -> None:
    assert [judge_backlog(*row).level for row in ((0, 0.0), (2_000, 5.0), (3, 61.0))] == ["ok", "ok", "warn"]


@pytest.mark.parametrize(
    ("current", "builds", "unversioned", "level", "words"),
    [
        ("2", {"1", "2"}, "", "ok", "new runs go to version 2 of deployment 'acts'; 1, 2 poll"),
        ("3", {"1", "2"}, "", "fail", "version 3 of deployment 'acts' is current and no worker of it polls"),
        ("", {"1"}, "", "fail", "no current version; 1 poll: new runs wait for ever"),
        ("", {"1"}, "7@host, 45 s ago", "warn", "new runs go to unversioned workers (7@host, 45 s ago)"),
    ],
)
def test_a_deployment_without_a_current_version_that_polls_fails(
    current: str, builds: set[str], unversioned: str, level: str, words: str
) -> None:
    finding = judge_deployment("acts", current, builds, unversioned)
    assert finding.level == level
    assert words in finding.text
    assert level == "ok" or "--deployment-name acts --build-id" in finding.hint


@pytest.mark.parametrize(
    ("name", "value", "check", "level", "words"),
    [
        ("OPENAI_API_KEY", "sk-not-shown", "models", "ok", "openai:… have a key here"),
        ("ACTS_MODELS", "/nowhere.yaml", "models", "fail", "ACTS_MODELS names /nowhere.yaml"),
        ("ACTS_MAX_ACTIVITIES", "many", "settings", "fail", "ACTS_MAX_ACTIVITIES is 'many'"),
        ("ACTS_TOOL_LIMITS", "pai=5", "settings", "fail", "names 'pai', which is no Activity of this worker"),
        ("ACTS_DEPLOYMENT", "acts", "settings", "ok", "version acts:…"),  # the build is the unit's
        ("ACTS_ACTIVITIES", "no.such.module", "tools", "fail", "no.such.module"),
    ],
)
async def test_settings_are_checked_and_keys_are_not_shown(
    name: str, value: str, check: str, level: str, words: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(name, value)
    findings: doctor.Findings = {}
    await doctor.add_findings(findings, check, *doctor.SHELL_CHECKS[check])
    (finding,) = findings[check]
    assert (finding.level, words in finding.text) == (level, True), finding
    assert "sk-not-shown" not in str(finding)
