"""Every `acts …` command that the documentation names exists, with the options that it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts.cli.main import load_commands
from tools.check_links import markdown_files

ROOT = Path(__file__).parents[2]
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


ALL = [
    (path.relative_to(ROOT).as_posix(), command)
    for path in markdown_files(ROOT)
    for command in dict.fromkeys(commands(path.read_text("utf-8")))
]


def test_the_documentation_names_commands() -> None:
    assert len(ALL) > 100


@pytest.mark.parametrize(("page", "command"), ALL)
def test_a_command_of_the_documentation_exists(page: str, command: str) -> None:
    assert problem_of(command) is None, f"{page}: {command}"


@pytest.mark.parametrize("command", ["acts frobnicate", "acts run plan.yaml --wacht", "acts list --phases awaiting"])
def test_a_wrong_command_is_noticed(command: str) -> None:
    assert problem_of(command)
