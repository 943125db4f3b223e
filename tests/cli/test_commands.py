"""The commands that need no server, and what all commands have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from acts.cli.commands.start import new_id
from acts.cli.main import app
from acts.cli.text.preflight import EXAMPLES
from acts.cli.text.source import add_inputs
from tests.cli.conftest import COMMAND_SECONDS, ROOT, clean_environment, run_acts

WEATHER = str(EXAMPLES / "weather" / "plan.yaml")


def acts(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)


@pytest.mark.parametrize("arguments", [["nope"], ["run"], ["run", "--nope", "x"], ["dev", "--port", "0"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    assert acts(*arguments).exit_code == 2


IMPORTED = """
import sys
from acts.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit:
    print(*{name.split(".")[0] for name in sys.modules})
"""


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_nothing_that_is_slow() -> None:
    assert imported_by("--help") & {"temporalio", "pydantic", "mcp", "jsonschema", "rich", "yaml", "networkx"} == set()


@pytest.mark.parametrize("command", ["simulate", "graph"])
def test_a_command_about_a_file_needs_no_temporal(command: str) -> None:
    assert "temporalio" not in imported_by(command, WEATHER)


def test_validate_as_json_lists_the_problems() -> None:
    result = acts("validate", "-", "--json", stdin='{"context": [{"type": "plan", "plan": [{"_tool": "x"}]}]}')
    assert result.exit_code == 2
    assert [p["code"] for p in json.loads(result.stdout)] == ["unknownTool"]
    assert json.loads(acts("validate", WEATHER, "--json").stdout) == []


def test_a_task_for_an_agent_is_valid_but_has_no_plan_to_simulate_or_draw() -> None:
    task = '{"config": {"model": "scripted:x"}, "context": [{"type": "text", "text": "hello"}]}'
    assert "a task for an agent" in acts("validate", "-", stdin=task).stdout
    for command in ("simulate", "graph"):
        result = acts(command, "-", stdin=task)
        assert result.exit_code == 2
        assert "its agent makes one when it runs" in result.stderr


def test_each_outcome_of_a_simulation_has_a_heading_of_its_own() -> None:
    names: dict[str, Any] = {"_tool": {"const": "check"}, "_outputPath": {}, "_when": {}}
    tool = {"type": "tool", "tool": {"type": "object", "properties": names}}
    plan = [{"_tool": "check", "_outputPath": "†state.good || †state.bad"},
            {"_tool": "check", "_outputPath": "†state.sent", "_when": "†state.good.cents > 10"}]  # fmt: skip
    result = acts("simulate", "-", stdin=json.dumps({"context": [tool, {"type": "plan", "plan": plan}]}))
    heads = [line.strip() for line in result.stdout.splitlines() if line.startswith("  if ")]
    good = "if 1:check → †state.good"
    assert heads == [f"{good}, 2:check runs", "if 1:check → †state.bad", f"{good}, 2:check does not run"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("Bergen", "Bergen"), ('"5"', "5"), ("", ""), ("a=b", "a=b"), ("null", None), ("[1, {}]", [1, {}]),
        ("NaN", "NaN"), ("1e3", 1000.0), ("{", "{"), ("†state.x", "†state.x"),
    ],
)  # fmt: skip
def test_an_input_is_json_or_a_string(text: str, value: Any) -> None:
    answer = add_inputs({"context": []}, [f"k={text}"])
    assert answer == {"context": [{"type": "input", "input": {"k": value}}]}


def test_inputs_are_one_message_after_all_others_and_the_request_is_not_changed() -> None:
    request = {"context": [{"type": "input", "input": {"city": "Lisbon", "people": 4}}]}
    answer = add_inputs(request, ["city=Bergen", "n=1"])
    assert request == {"context": [{"type": "input", "input": {"city": "Lisbon", "people": 4}}]}
    assert answer["context"][1:] == [{"type": "input", "input": {"city": "Bergen", "n": 1}}]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["city"], "'city' is not an input"),
        (["a=1", "a=2"], 'the input "a" is given twice'),
        (["a=" + "[" * 5000 + "]" * 5000], "nested deeper"),
        (["a=[1e999]"], "the number 1e999 is too large"),
        (['a="\\ud800"'], "lone surrogate"),
    ],
)
def test_a_wrong_input_is_refused(inputs: list[str], words: str) -> None:
    result = acts("validate", WEATHER, *(w for i in inputs for w in ("--input", i)))
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("examples/weather/plan.yaml", "weather-"),
        ("orders.json", "orders-"),
        ("a b/Straße 1.json", "Straße-1-"),
        ("-", "run-"),
        ("/plan.json", "run-"),
    ],
)
def test_an_id_names_the_file_and_is_new(file: str, start: str) -> None:
    first, second = new_id(file), new_id(file)
    assert first.startswith(start)
    assert first != second


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("{", "not valid JSON"), ("[]", "a Message is an object"), ('{"type": "stat"}', 'did you mean "state"'),
        ('{"type": "plan", "plan": []}', "a plan message cannot be provided"), ("no.json", "there is no such file"),
        ('{"type": "data", "data": {"a": 1, "a": 2}}', "occurs twice"),
    ],
)  # fmt: skip
def test_an_invalid_message_is_refused_before_the_command_connects(message: str, words: str) -> None:
    result = acts("provide", "some-run", message)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "acts.cli", "schema"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("arguments", [["show", "x"], ["run", WEATHER], ["pending"], ["approve", "x"]])
def test_without_a_server_the_exit_code_is_3_and_a_hint_says_what_to_do(arguments: list[str], tmp_path: Path) -> None:
    done = run_acts(*arguments, cwd=tmp_path, TEMPORAL_ADDRESS="127.0.0.1:1")
    assert done.returncode == 3
    assert "no Temporal server answers at 127.0.0.1:1 (TEMPORAL_ADDRESS): Connection refused" in done.stderr
    assert "start it, or name another one in TEMPORAL_ADDRESS" in done.stderr
    assert done.stdout == ""
