"""``acts init``, the settings of a folder, completion and suggestions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acts.cli.commands.testing import FILES
from acts.cli.main import app
from tests.cli.conftest import run_acts


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_folder_of_init_tests_green_and_validates_without_a_warning(tmp_path: Path) -> None:
    made = run_acts("init", "mine", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {p.name for p in (tmp_path / "mine").iterdir()} == set(FILES.values())
    tested = run_acts("test", cwd=tmp_path / "mine")
    assert (tested.returncode, tested.stderr) == (0, ""), tested.stdout
    checked = run_acts("validate", "plan.yaml", "--strict", cwd=tmp_path / "mine")
    assert (checked.stdout, checked.stderr) == ("plan.yaml is valid: 4 calls\n", "")


def test_init_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.test.yaml").write_text("mine", "utf-8")
    code, output = invoke("init")
    assert code == 2
    assert "plan.test.yaml is already there" in output
    assert [p.name for p in tmp_path.iterdir()] == ["plan.test.yaml"]
    code, output = invoke("init", "--json", "a/b")
    assert code == 0
    assert json.loads(output) == {"folder": "a/b", "files": [*FILES.values()]}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[environment", "not readable TOML"),
        ("[environmnt]", "environmnt is no variable"),
        ("environment = 5", "environment is no variable"),
        ("[environment]\nPATH = 'x'", "PATH is no variable ACTS_"),
        ("[environment]\nACTS_TOOLS = 1", "ACTS_TOOLS is no variable"),
    ],
)
def test_a_wrong_file_of_settings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acts.toml").write_text(text, "utf-8")
    code, output = invoke("schema")
    assert code == 2
    assert "acts.toml" in output
    assert part in output


def test_the_environment_comes_before_the_settings_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTS_TASK_QUEUE", "mine")
    monkeypatch.delenv("ACTS_SCRIPTS", raising=False)
    Path("acts.toml").write_text('[environment]\nACTS_TASK_QUEUE = "theirs"\nACTS_SCRIPTS = "scripts"\n', "utf-8")
    invoke("schema")
    assert os.environ["ACTS_TASK_QUEUE"] == "mine"
    assert os.environ.pop("ACTS_SCRIPTS") == "scripts"
