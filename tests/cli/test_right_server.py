"""The right server, or none: that of a folder in which `acts dev` has run, and no other one in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.client.client_errors import ClientError
from acts.client.server import find_target
from tests.cli.conftest import clean_environment, run_acts
from tests.support import assert_eventually

ONE_CALL = '{"context": [{"type": "tool", "tool": "t"}, {"type": "plan", "plan": [{"_tool": "t"}]}]}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a folder in which `acts dev` will run."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.json").write_text(ONE_CALL, "utf-8")
    return tmp_path


@pytest.fixture
def running(project: Path) -> Iterator[DevServer]:
    with dev_server(state=project / ".acts", ui=False) as server:
        yield server


@pytest.mark.long
def test_below_a_marked_folder_its_server_is_taken_and_no_other_one(project: Path) -> None:
    below = project / "plans"
    with dev_server(state=project / ".acts", ui=False) as server:
        assert run_acts("list", cwd=below).returncode == 0
        nobody = run_acts("show", "nobody", cwd=below)
        assert (nobody.returncode, f'in the namespace "default" at {server.address}' in nobody.stderr) == (2, True)
    for command in (["list"], ["run", "plan.json"], ["worker"]):
        done = run_acts(*command, cwd=below)
        said = done.stdout + done.stderr
        assert (done.returncode, f"the dev server of {project}/.acts is not running" in said) == (3, True), done
        assert f"cd {project} && acts dev" in said
    elsewhere = run_acts("list", cwd=below, TEMPORAL_ADDRESS="127.0.0.1:1")
    assert (elsewhere.returncode, "at 127.0.0.1:1 (TEMPORAL_ADDRESS)" in elsewhere.stderr) == (3, True)


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--watch"]])
async def test_a_server_that_dies_in_the_middle_is_one_sentence(
    flags: list[str], project: Path, running: DevServer
) -> None:
    command = [sys.executable, "-m", "acts.cli", "run", "plan.json", "--id", "r", *flags]
    process = subprocess.Popen(
        command, cwd=project / "plans", env=clean_environment(), stderr=subprocess.PIPE, text=True
    )

    async def has_begun() -> bool:
        return run_acts("show", "r", cwd=project).returncode == 0

    await assert_eventually(has_begun, why="the run is there")
    os.kill(running.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3
    (sentence,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert f'the Temporal server no longer answers (namespace "default" at {running.address})' in sentence
    assert "Traceback" not in said


def test_a_mark_of_somebody_else_above_chooses_no_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".acts").mkdir()
    (project / ".acts" / "lock").touch()
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "ACTS_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(project / "plans")
    with pytest.raises(ClientError, match="is not running"):
        find_target()
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    assert find_target().address == "127.0.0.1:7233"
    monkeypatch.setenv("ACTS_STATE", "typo")
    with pytest.raises(ClientError, match="the dev server of typo is not running"):
        find_target()
