"""The rooms of the house and the arrows between them; they go one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# room: rooms it must not know
FORBIDDEN_ROOMS = {
    "acts": {"workflows", "activities", "delegates", "cli", "worker", "tests", "tools", "benchmarks"},
    "workflows": {"cli", "worker", "tests", "tools", "benchmarks"},
    "activities": {"workflows", "cli", "worker", "tests", "tools", "benchmarks"},
    "delegates": {"workflows", "cli", "worker", "tests", "tools", "benchmarks"},
}

# The protocol waits for nothing, touches nothing, and gives the same answer tomorrow.
IMPURE = {
    *("temporalio", "asyncio", "threading", "multiprocessing", "concurrent", "signal"),
    *("socket", "ssl", "http", "urllib.request", "httpx", "requests", "subprocess", "tempfile", "shutil", "sqlite3"),
    *("random", "secrets", "time"),
}

# Runs in an interpreter of its own, where importing temporalio fails however deep it happens.
BLOCKED = """
import importlib, sys
sys.modules["temporalio"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, wherever it stands, with its line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def broken(path: Path, forbidden: set[str]) -> list[str]:
    return [
        f"{path.name}:{line} imports {name}"
        for name, line in imports(path)
        if any(name == taboo or name.startswith(f"{taboo}.") for taboo in forbidden)
    ]


@pytest.mark.parametrize("room", FORBIDDEN_ROOMS)
def test_a_room_knows_only_the_rooms_below_it(room: str) -> None:
    assert [found for path in modules(room) for found in broken(path, FORBIDDEN_ROOMS[room])] == []


def test_the_protocol_imports_nothing_that_waits_or_touches_the_world() -> None:
    assert [found for path in modules("acts") for found in broken(path, IMPURE)] == []


def test_the_protocol_can_be_imported_where_there_is_no_temporal() -> None:
    names = [dotted(path) for path in modules("acts")]
    assert "acts" in names
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import temporalio", True),
        ("from temporalio.client import Client", True),
        ("def f():\n    import time", True),
        ("from urllib import request", True),
        ("from urllib.parse import quote", False),
        ("import timeit", False),
        ("from datetime import datetime", False),
    ],
)
def test_the_alarm_rings(line: str, found: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a column of the table
    path = tmp_path / "module.py"
    path.write_text(line, "utf-8")
    assert bool(broken(path, IMPURE)) is found


def test_the_alarm_for_a_hidden_temporal_rings() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, "tests.support", "temporalio.client"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "temporalio" in done.stderr
