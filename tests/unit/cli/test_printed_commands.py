"""Commands that are printed for a person to copy hold words of strangers only as a shell's quoted words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "acts"
# A command, up to the place of a value
COMMAND = re.compile(r"(?:^|[\s`:;&])(?:(?:acts|temporal) [a-z][\w-]*|cd)(?: --?[\w-]+| [a-z][\w-]*)* $")
# Or our own: a number, or of a table whose name is in capitals
QUOTED = re.compile(r"shell\(|shlex\.|^time\.|\b[A-Z]{3,}\b")


def unquoted(tree: ast.AST) -> Iterator[str]:
    """Values in a command that are neither quoted there nor where their name is given to them."""
    named = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.For):
            targets, source = (node.targets, node.value) if isinstance(node, ast.Assign) else ([node.target], node.iter)
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            named |= {name.id: ast.unparse(source) for name in names}
    for node in ast.walk(tree):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue) and part.format_spec is None and COMMAND.search(before):
                text = ast.unparse(part.value)
                if not QUOTED.search(text) and not QUOTED.search(named.get(text, "")):
                    yield f"line {part.lineno}: {before}{{{text}}}"
            before += str(part.value) if isinstance(part, ast.Constant) else "…"


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_what_stands_in_a_command_is_quoted(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert not [text for function in functions for text in unquoted(function)]
