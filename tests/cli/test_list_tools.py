"""``acts tools``: what the worker serves, and what ``acts run`` leaves to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Acts

REQUEST = """
context:
  - {type: tool, tool: addInterest}
  - {type: tool, tool: payInstallment}
  - {type: plan, plan: []}
"""


def test_the_worker_lists_its_tools_and_activities(acts: Acts) -> None:
    answers = json.loads(acts("tools", "--json").stdout)["workers"]
    assert [sorted(answer) for answer in answers] == [["activities", "tools", "version", "worker"]]
    lines = [line for line in acts("tools").stdout.splitlines() if line.startswith("payInstallment ")]
    assert len(lines) == 1
    assert "activity payInstallment" in lines[0]
    assert "activities without a tool: askWeather" in acts("tools").stdout
    schema = json.loads(acts("tools", "payInstallment").stdout)
    assert schema == answers[0]["tools"]["payInstallment"]


def test_a_misspelt_tool_gets_a_suggestion(acts: Acts) -> None:
    result = acts("tools", "payInstalment")
    assert result.exit_code == 2
    assert 'did you mean "payInstallment"?' in result.stderr


def test_without_a_worker_it_says_so(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", "nobody-polls-this")
    result = acts("tools")
    assert result.exit_code == 2
    assert 'no worker serves the task queue "nobody-polls-this"' in result.stderr


def test_run_leaves_tools_that_only_the_worker_has_to_it(
    acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "request.yaml").write_text(REQUEST, "utf-8")
    monkeypatch.delenv("ACTS_ACTIVITIES")
    here = acts("tools", "--here")
    assert "no tool is registered" in here.stderr
    checked = acts("validate", "request.yaml")
    assert checked.stderr.count("warning:") == 1
    assert 'the tools "addInterest", "payInstallment" are not registered here' in checked.stderr
    done = acts("run", "request.yaml")
    assert done.exit_code == 0, done.stderr
    assert "warning" not in done.stderr
