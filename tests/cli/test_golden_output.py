"""What the reading commands print, word for word: each file of ``golden/`` is one output, for a person to read.

To write them again:

    TEST_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/cli/test_golden_output.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from temporalio.client import Client

from acts.cli.main import COMMANDS, load_commands
from tests.cli.conftest import ROOT, Acts, new_name, wait_for_approvals

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = ROOT / "examples"
# What differs from run to run -> what stands for it
_VARIABLE = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "RUN-ID"),
    (r"\b[0-9a-f]{16}([0-9a-f]{48})?\b", "SUBJECT"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\b)", "TIME"),
    (r"\b\d+\.\d+ s\b", "SECONDS"),
    (r"\"seconds\": [\d.]+", '"seconds": SECONDS'),
    (r"/\S*/(examples|golden)/", r"\1/"),
    (r"[0-9a-f]{12}\b", "DIGITS"),
    (r"127.0.0.1:\d{5}", "SERVER"),
    (r" +", " "),
    (r" +$", ""),
)


def normalize(text: str, run: str) -> str:
    text = text.replace(run, "RUN") if run else text
    for pattern, word in _VARIABLE:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def check(name: str, text: str, run: str = "") -> None:
    """Compare an output with its golden file."""
    file = GOLDEN / f"{name}.txt"
    text = normalize(text, run)
    if os.environ.get("TEST_REWRITE_GOLDEN"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


@pytest.mark.parametrize("example", ["weather", "moderation", "trip"])
@pytest.mark.parametrize("command", [["validate"], ["simulate"], ["graph"], ["graph", "--mermaid"]])
@pytest.mark.usefixtures("wide_terminal")
def test_what_is_printed_of_a_file(command: list[str], example: str, acts: Acts) -> None:
    done = acts(command[0], str(EXAMPLES / example / "plan.yaml"), *command[1:])
    check("-".join([*command, example]).replace("--", ""), done.stdout + done.stderr)


@pytest.mark.usefixtures("wide_terminal")
def test_what_is_printed_of_a_run_that_has_ended(acts: Acts) -> None:
    run = new_name()
    done = acts("run", str(EXAMPLES / "weather" / "plan.yaml"), "--id", run)
    check("run", done.stdout, run)
    for command in (["show", run], ["show", run, "--json"], ["diff", run], ["graph", run],
                    ["why", run, "state.picnic"], ["why", run, "state.picnic", "--json"]):  # fmt: skip
        done = acts(*command)
        name = "-".join(word for word in command if word != run).replace("--", "").replace("state.", "")
        check(f"ended-{name}", done.stdout + done.stderr, run)
    for option in ("--svg", "--gantt"):
        picture = acts("graph", run, option).stdout
        assert picture.startswith("<svg ")
        assert picture.endswith("</svg>\n")
        assert "1:askWeather" in picture
    assert "a request has not run yet" in acts("graph", str(EXAMPLES / "weather" / "plan.yaml"), "--gantt").stderr
    assert "two drawings" in acts("graph", run, "--gantt", "--svg").stderr


@pytest.mark.usefixtures("wide_terminal")
def test_what_is_printed_of_an_agent_that_has_ended(acts: Acts) -> None:
    run = new_name()
    done = acts("run", str(EXAMPLES / "replan" / "plan.yaml"), "--id", run)
    check("agent-run", done.stdout + done.stderr, run)
    for command in (["show", run], ["graph", run], ["why", run, "output"], ["why", run, "state.apology"],
                    ["why", f"{run}/plan-2", "state.error.code"]):  # fmt: skip
        done = acts(*command)
        check("agent-" + "-".join(w.rpartition("/")[2] for w in command if w != run), done.stdout + done.stderr, run)


@pytest.mark.long
@pytest.mark.usefixtures("wide_terminal")
def test_what_is_printed_of_a_batch_that_has_ended(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_name()
    acts("run", str(EXAMPLES / "moderation" / "plan.yaml"), "--plan", "--id", run)
    monkeypatch.delenv("ACTS_ACTIVITIES")  # the tools are known to the worker alone
    for command in (["graph", run], ["graph", run, "--mermaid"], ["graph", f"{run}/c024"]):
        done = acts(*command)
        name = "-".join(w.replace(run, "").strip("/") or "run" for w in command).replace("--", "")
        check(f"batch-{name}", done.stdout + done.stderr, run)


@pytest.mark.usefixtures("wide_terminal")
async def test_what_is_printed_of_a_run_that_waits(acts: Acts, client: Client) -> None:
    run = new_name()
    acts("run", str(EXAMPLES / "recipient" / "approval.yaml"), "--id", run, "--detach")
    await wait_for_approvals(client, run)
    for command in (["show", run], ["pending", run], ["pending", run, "--json"], ["diff", run]):
        done = acts(*command)
        check("waiting-" + "-".join(w for w in command if w != run).replace("--", ""), done.stdout + done.stderr, run)
    done = acts("reject", run, "--reason", "not this one")
    check("waiting-reject", done.stdout + done.stderr, run)
    acts("cancel", run)


def test_what_the_help_prints(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    check("help", acts("--help").stdout)
    for command in ("run", "schedule", "approve", "dev"):
        check(f"help-{command}", acts(command, "--help").stdout)


def test_the_program_lists_a_command_as_its_own_help_begins() -> None:
    for name, command in load_commands().commands.items():
        text = " ".join((command.help or "").split())
        assert text.startswith(COMMANDS[name][1].removesuffix(".")), name
