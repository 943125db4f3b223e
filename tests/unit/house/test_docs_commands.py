"""Every `acts …` command that the documentation names exists, with the options that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acts.cli.main import load_commands
from tests.conftest import MOST_RERUNS, find_ci_problems
from tests.file_order import LONG

ROOT = Path(__file__).parents[3]
PROGRAM: Any = load_commands()
# In a code span or a line of a code block
SPAN = re.compile(r"`(?:[A-Z_]+=\S+ )*(acts [^`]*[^` ])`")
LINE = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(acts [a-z].*)$")
# Where a command ends and the shell, or the reader's imagination, begins
END = re.compile(r"\s(?:#|\||>|&&|…)|;")


def commands(text: str) -> Iterator[str]:
    in_block = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            in_block = not in_block and line.strip() in ("```sh", "```bash", "```console")
        elif in_block and (match := LINE.match(line)):
            yield match[1]
        else:
            yield from SPAN.findall(line)


def problem_of(command: str) -> str | None:
    """What is wrong with a command line; None if it could be typed as it stands, its placeholders filled in."""
    try:
        words = shlex.split(END.split(command)[0])[1:]
    except ValueError as error:
        return str(error)
    if not words or words[0].startswith("-") or words[0].isupper():
        return None
    if (entry := PROGRAM.commands.get(words[0])) is None:
        return f"there is no command {words[0]!r}"
    if (below := getattr(entry, "commands", None)) and len(words) > 1 and not words[1].startswith("-"):
        words, entry = words[1:], below.get(words[1])
        if entry is None:
            return f"there is no command {words[0]!r}"
    options = {name for part in entry.params for name in (*part.opts, *part.secondary_opts)} | {"--help"}
    wrong = [word for word in words[1:] if re.match(r"--?[a-z]", word) and word.split("=")[0] not in options]
    return f"{words[0]} has no option {', '.join(wrong)}" if wrong else None


FILES_OF_GIT = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
PAGES = subprocess.run(FILES_OF_GIT, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
ALL = [
    (page, command)
    for page in sorted(PAGES)
    if (ROOT / page).is_file()
    for command in dict.fromkeys(commands((ROOT / page).read_text("utf-8")))
]


def test_the_documentation_names_commands() -> None:
    assert len(ALL) > 100


@pytest.mark.parametrize(("page", "command"), ALL)
def test_a_command_of_the_documentation_exists(page: str, command: str) -> None:
    assert problem_of(command) is None, f"{page}: {command}"


@pytest.mark.parametrize("command", ["acts frobnicate", "acts run plan.yaml --wacht", "acts list --phases awaiting"])
def test_a_wrong_command_is_noticed(command: str) -> None:
    assert problem_of(command)


# Codes of Problems, of models, and (below this line of wire.py) of failures
CODE = re.compile(r'\b(?:Problem|CallError|ModelError)\(\s*"(\w+)"|^ {4}"(model[A-Z]\w+)": \(', re.MULTILINE)
BELOW = "# Types of ApplicationError"
OTHERS = {"TypeError", "LocalOutcomeDeferred"}  # of the SDK; in histories, of a Call that goes on


def test_the_page_of_errors_has_every_code_and_no_other() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "acts").rglob("*.py"))
    wire = (ROOT / "acts" / "language" / "wire.py").read_text("utf-8").partition(BELOW)[2]
    codes = {found[1] or found[2] for found in CODE.finditer(code)} | set(re.findall(r'Final = "(\w+)"', wire))
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    named = {
        name for cell in re.findall(r"^\| (`\w+`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }
    assert codes - set(re.findall(r"`(\w+)`", page)) - OTHERS == set()
    assert {name for name in named - OTHERS if f'"{name}"' not in code} == set()


def report(name: str, reason: str = "") -> Any:
    return SimpleNamespace(nodeid=name, longrepr=("file", 1, f"Skipped: {reason}"))


def test_reruns_up_to_the_limit_and_optional_suites_pass() -> None:
    reruns = [report(f"test_{n}") for n in range(MOST_RERUNS)]
    assert find_ci_problems({"rerun": reruns, "skipped": [report("test_a", "Node.js is not installed")]}) == []


def test_the_alarm_rings() -> None:
    reruns = [report(f"test_{n}") for n in range(MOST_RERUNS + 1)]
    problems = find_ci_problems({"rerun": reruns, "skipped": [report("test_a", "boto3 is missing")]})
    assert problems == [
        "3 reruns, at most 2: test_0, test_1, test_2",
        "test_a should run here: Skipped: boto3 is missing",
    ]


TESTS = Path(__file__).parents[2]
FILES = sorted(TESTS.rglob("test_*.py"))


def test_every_long_file_exists() -> None:
    assert LONG.keys() <= {file.name for file in FILES}
