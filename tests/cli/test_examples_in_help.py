"""Every command that the help or the docs show is one that the program understands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from cli.main import app
from tests.cli.conftest import ROOT

GROUP = typer.main.get_command(app)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "cli" / "starter").glob("*.md"))]
# What stands for another word in the docs: `acts show ID`, `acts test [FILES]`, `…`
PLACEHOLDER = re.compile(r"[\[\]…|]|\\\|")


def commands_of_help() -> Iterator[tuple[str, str]]:
    for name, command in getattr(GROUP, "commands").items():  # noqa: B009 - typer does not say that it is a group
        for line in (command.help or "").splitlines():
            if line.strip().startswith("acts "):
                yield f"help of {name}", line.strip()


def commands_of_page(path: Path) -> Iterator[tuple[str, str]]:
    in_block = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            in_block = not in_block
        elif in_block and (match := re.match(r"(?:\$ )?(acts .*)", line.strip())):
            yield f"{path.relative_to(ROOT)}:{number}", match[1]


ALL = [*commands_of_help(), *(pair for page in PAGES for pair in commands_of_page(page))]


@pytest.mark.parametrize(("where", "text"), ALL, ids=[f"{where} {text}"[:80] for where, text in ALL])
def test_a_command_that_is_shown_is_understood(where: str, text: str) -> None:
    for part in re.split(r"&&|\||>", text.partition("  #")[0]):
        words = shlex.split(part, comments=True)
        if words[:1] != ["acts"] or len(words) < 2 or words[1].startswith("-"):
            continue
        command = getattr(GROUP, "commands").get(words[1])  # noqa: B009 - as above
        assert command is not None, f"{where}: there is no command {words[1]}"
        if not any(PLACEHOLDER.search(word) for word in words):
            command.make_context(words[1], words[2:])
