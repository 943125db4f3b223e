"""The commands that need no server, and what all commands have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.commands.run import new_id
from cli.main import app
from cli.text.inputs import add_inputs
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import COMMAND_SECONDS, ROOT, clean_environment, run_acts

WEATHER = str(EXAMPLES / "weather" / "plan.yaml")
PAYMENT = str(EXAMPLES / "payment" / "plan.yaml")
FANOUT = str(EXAMPLES / "fanout" / "plan.yaml")
REFUND = str(EXAMPLES / "refund" / "plan.yaml")
TRIP = str(EXAMPLES / "trip" / "plan.yaml")
COMMANDS = (
    "dev", "demo", "run", "show", "validate", "simulate", "graph", "schema", "cancel", "pause", "resume", "provide",
    "pending", "approve", "reject", "edit", "diff", "why",
)  # fmt: skip


def acts(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)


def test_help_lists_every_command_and_the_exit_codes() -> None:
    result = acts("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in COMMANDS)
    assert "0 done, 1 the plan failed, 2 the input is wrong, 3 no server" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str) -> None:
    result = acts(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("arguments", [["nope"], ["run"], ["run", "--nope", "x"], ["dev", "--port", "0"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    assert acts(*arguments).exit_code == 2


IMPORTED = """
import sys
from cli.main import app
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
    assert imported_by("--help") & {"temporalio", "pydantic", "jsonschema", "rich", "yaml", "networkx"} == set()


@pytest.mark.parametrize("command", ["validate", "simulate", "graph"])
def test_a_command_about_a_file_needs_no_temporal(command: str) -> None:
    assert "temporalio" not in imported_by(command, WEATHER)


def test_the_schema_needs_no_temporal() -> None:
    assert "temporalio" not in imported_by("schema")


def test_validate_prints_a_summary() -> None:
    result = acts("validate", WEATHER)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "plan.yaml is valid: 4 calls" in result.stdout


def test_validate_as_json_lists_the_problems() -> None:
    result = acts("validate", "-", "--json", stdin='{"context": [{"type": "plan", "plan": [{"_tool": "x"}]}]}')
    assert result.exit_code == 2
    assert [p["code"] for p in json.loads(result.stdout)] == ["unknownTool"]
    assert json.loads(acts("validate", WEATHER, "--json").stdout) == []


def test_simulate_prints_waves_outcomes_and_a_forecast() -> None:
    result = acts("simulate", WEATHER)
    assert result.exit_code == 0
    for words in (
        "2  2:planPicnic, 3:bookMuseum",
        "1:askWeather → 2:planPicnic",
        "if 1:askWeather → †state.rainy",
        "0 model requests",
    ):
        assert words in result.stdout
    answer = json.loads(acts("simulate", WEATHER, "--json").stdout)
    assert answer["waves"] == [["1:askWeather"], ["2:planPicnic", "3:bookMuseum"], ["4:writeInvitation"]]


def test_the_forecast_of_a_template_names_its_children_and_what_it_does_not_count() -> None:
    result = acts("simulate", str(EXAMPLES / "moderation" / "plan.yaml"))
    assert result.exit_code == 0
    forecast = " ".join(result.stdout.partition("forecast")[2].split())
    assert "0 to 100 delegates, whose requests are not counted" in forecast
    assert forecast.endswith(", and what 100 children take")


@pytest.mark.parametrize(("command", "what"), [("simulate", "the simulation"), ("graph", "the drawing")])
def test_simulate_and_graph_name_the_tools_that_only_the_worker_knows(command: str, what: str, tmp_path: Path) -> None:
    calls = [{"_tool": "makeTea"}, {"_tool": "pour", "tea": "†state.tea"}]
    context = [{"type": "tool", "tool": "makeTea"}, {"type": "tool", "tool": "pour"}, {"type": "plan", "plan": calls}]
    (tmp_path / "tea.json").write_text(json.dumps({"context": context}), "utf-8")
    assert run_acts("validate", "tea.json", cwd=tmp_path).returncode == 0
    done = run_acts(command, "tea.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(
        f"error: tea.json: {what} needs the tools makeTea, pour, which only the worker knows\n"
        "  hint  set ACTS_ACTIVITIES to the modules that serve them (or ACTS_TOOLS to the folders of tools)"
    )


def test_graph_draws_for_the_terminal_and_as_mermaid() -> None:
    drawn = acts("graph", FANOUT)
    assert drawn.exit_code == 0
    assert "13 calls in 2 waves" in drawn.stdout
    assert acts("graph", FANOUT, "--mermaid").stdout.startswith("flowchart TD\n")


def test_a_task_for_an_agent_is_valid_but_has_no_plan_to_simulate_or_draw() -> None:
    task = '{"config": {"model": "scripted:x"}, "context": [{"type": "text", "text": "hello"}]}'
    assert "a task for an agent" in acts("validate", "-", stdin=task).stdout
    for command in ("simulate", "graph"):
        result = acts(command, "-", stdin=task)
        assert result.exit_code == 2
        assert "its agent makes one when it runs" in result.stderr


def test_validate_says_that_a_plan_is_only_shown_to_an_agent() -> None:
    answer = acts("validate", TRIP).stdout
    assert "a task for an agent, model scripted:trip/script, 2 calls to be shown to it" in answer
    assert "plan.yaml is valid: 2 calls\n" in acts("validate", TRIP, "--plan").stdout
    assert "an agent needs a model to plan" in acts("validate", WEATHER, "--agent").stderr


@pytest.mark.parametrize(("command", "words"), [("simulate", "1:bookFlight, 2:bookHotel"), ("graph", "• 2:bookHotel")])
def test_the_plan_that_an_agent_is_shown_is_simulated_and_drawn(command: str, words: str) -> None:
    result = acts(command, TRIP)
    assert result.exit_code == 0
    assert words in result.stdout
    assert "an agent is shown this plan and makes its own" in result.stderr


@pytest.mark.parametrize("command", ["simulate", "graph"])
def test_an_example_of_an_agent_has_no_plan_to_look_at_before_it_runs(command: str) -> None:
    result = acts(command, REFUND)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the file has no plan: its agent makes one when it runs" in result.stderr
    assert f"acts run {REFUND}" in result.stderr


def test_the_help_of_run_says_which_file_is_for_an_agent() -> None:
    text = " ".join(acts("run", "--help").output.split())
    assert "--agent" in text
    assert "config.model and without calls is for an agent" in text


def test_schema_prints_a_schema() -> None:
    assert json.loads(acts("schema").stdout)["title"] == "Request"


# -- inputs -------------------------------------------------------------------------------------------------------


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
        (["=x"], "'=x' is not an input"),
        (["a=1", "a=2"], 'the input "a" is given twice'),
        (["a=" + "[" * 5000 + "]" * 5000], "nested deeper"),
        (["a=[1e999]"], "the number 1e999 is too large"),
        (['a="\\ud800"'], "lone surrogate"),
        (['a={"x": 1, "x": 2}'], "occurs twice"),
    ],
)
def test_a_wrong_input_is_refused(inputs: list[str], words: str) -> None:
    result = acts("validate", WEATHER, *(w for i in inputs for w in ("--input", i)))
    assert result.exit_code == 2
    assert words in result.stderr


def test_inputs_do_not_hide_a_problem_of_the_context() -> None:
    assert "context is a list of Messages" in acts("validate", "-", "-i", "a=1", stdin='{"context": {}}').stderr


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


# -- messages -----------------------------------------------------------------------------------------------------


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


# -- the terminal -------------------------------------------------------------------------------------------------


def test_colors_are_off_without_a_terminal(tmp_path: Path) -> None:
    for environment in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in run_acts("simulate", WEATHER, cwd=tmp_path, **environment).stdout


def test_a_terminal_without_unicode_gets_ascii(tmp_path: Path) -> None:
    done = run_acts("graph", PAYMENT, cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "| * 1:processPayment -> " in done.stdout


def test_json_stays_json_whatever_the_terminal(tmp_path: Path) -> None:
    done = run_acts("simulate", PAYMENT, "--json", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert json.loads(done.stdout)["calls"][0]["writes"] == ["†state.receipt", "†state.error"]


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "cli", "schema"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


# -- no server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "x"],
        ["run", WEATHER],
        ["cancel", "x"],
        ["pause", "x"],
        ["graph", "x"],
        ["pending"],
        ["approve", "x"],
        ["reject", "x", "--reason", "no"],
        ["edit", "x"],
        ["diff", "x"],
    ],
)
def test_without_a_server_the_exit_code_is_3_and_a_hint_says_what_to_do(arguments: list[str], tmp_path: Path) -> None:
    done = run_acts(*arguments, cwd=tmp_path, TEMPORAL_ADDRESS="127.0.0.1:1")
    assert done.returncode == 3
    assert "no Temporal server answers at 127.0.0.1:1" in done.stderr
    assert "acts dev" in done.stderr
    assert done.stdout == ""


def test_a_configuration_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    done = run_acts("show", "x", cwd=tmp_path, TEMPORAL_PROFILE="nope")
    assert done.returncode == 2
    assert "'nope'" in done.stderr
