"""``acts test`` and the plugin of pytest: the same cases, the same findings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from acts.cli.main import app
from tests.cli.conftest import ROOT, Acts, clean_environment, new_name

PLAN = """
context:
  - type: tool
    tool: {properties: {_tool: {const: charge}, _activity: {const: charge}, amount: {type: number}, _outputPath: {}}}
  - type: plan
    plan:
      - {_tool: charge, amount: "†input.amount", _outputPath: "†state.receipt || †state.error"}
"""
CASES = """
cases:
  - name: it is paid
    input: {amount: 3}
    results: {charge: {id: r1}}
    expect:
      state: {receipt: {id: r2}}
  - name: it fails
    input: {amount: 3}
    results: {charge: {$error: Declined}}
    expect: {state: {error: {code: Declined}}}
"""


def write(folder: Path, cases: str = CASES) -> None:
    (folder / "orders.yaml").write_text(PLAN, "utf-8")
    (folder / "orders.test.yaml").write_text(cases, "utf-8")


def acts_test(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["test", *arguments])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ACTS_ACTIVITIES", "ACTS_TOOLS", "ACTS_MCP"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_failed_case_is_shown_as_a_diff(folder: Path) -> None:
    write(folder)
    result = acts_test()
    assert result.exit_code == 1
    for part in ("1 passed, 1 failed", "orders.test.yaml:3", "-  id: r2", "+  id: r1"):
        assert part in result.stdout


def test_cases_are_selected_by_name(folder: Path) -> None:
    write(folder)
    result = acts_test("-k", "FAILS", "orders.test.yaml")
    assert result.exit_code == 0
    assert "1 case passed, 0 failed" in result.stdout


@pytest.mark.parametrize(
    ("cases", "texts"),
    [
        ("cases: [{name: a, inputs: 1}]", ["orders.test.yaml:1", "inputs", 'did you mean "input"?']),
        ("cases: []", ["orders.test.yaml:1", "cases", "at least 1 item"]),
        ("plan: other.yaml\ncases: [{name: a}]", ["other.yaml"]),
        ("cases: [", ["orders.test.yaml"]),
    ],
)
def test_a_wrong_file_is_explained(folder: Path, cases: str, texts: list[str]) -> None:
    write(folder, cases)
    result = acts_test()
    assert result.exit_code == 2
    assert all(text in result.output for text in texts), result.output


def test_pytest_collects_the_same_cases(folder: Path) -> None:
    write(folder)
    (folder / "test_own.py").write_text(
        "def test_own(rehearse_plan):\n"
        "    done = rehearse_plan('orders.yaml', {'charge': lambda call: call['amount']}, input={'amount': 3})\n"
        "    assert done.result['state'] == {'receipt': 3}\n",
        "utf-8",
    )
    words = ["-q", "-p", "acts.cli.testing.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, env=clean_environment(PYTHONPATH=str(ROOT)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "orders.test.yaml::it is paid" in done.stdout
    assert "+  id: r1" in done.stdout
    assert "Traceback" not in done.stdout


def test_the_plan_of_a_run_is_saved_with_a_test_that_passes_and_nothing_is_overwritten(
    acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    assert acts("run", "outing", "--id", name).exit_code == 0
    monkeypatch.setenv("ACTS_PLANS", "")
    saved = acts("save", name, "trip")
    assert saved.exit_code == 0, saved.output
    assert "✓ trip.test.yaml: 1 passed" in saved.output
    assert {file.name for file in tmp_path.iterdir()} == {"trip.yaml", "trip.test.yaml"}
    assert acts("test").exit_code == 0
    assert f"✓ {name}: 1 passed" in acts("test", "--from", name).output
    again = acts("save", name, "trip")
    assert again.exit_code == 2
    assert "choose another name" in again.output
