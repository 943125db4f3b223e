"""The rooms of the house and the arrows between them; they go one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[3]

# The pure core: a room may import the rooms before it in this list.
CORE = ("language", "plan", "tree", "planner", "machines", "simulation", "provenance", "views", "testing")
_CORE = {f"acts.{room}" for room in CORE}
_CLI = {f"acts.cli{part}" for part in ("", ".commands", ".dev", ".render", ".testing", ".text")}
# Every arrow between the other rooms: a room, and the rooms that it may import, for types or when it runs.
ALLOWED: dict[str, set[str]] = {
    **{f"acts.{room}": {f"acts.{below}" for below in CORE[:place]} for place, room in enumerate(CORE)},
    "acts.workflows": {*(_CORE - {"acts.provenance"}), "acts.telemetry"},
    "acts.telemetry": {"acts.language"},
    "acts.activities": {
        *("acts.telemetry", "acts.activities.mcp", "acts.activities.models", "acts.delegates", "acts.sets"),
        *("acts.language", "acts.plan", "acts.planner", "acts.tree"),
    },
    "acts.activities.mcp": {"acts.language"},
    "acts.activities.models": {"acts.telemetry", "acts.language", "acts.planner"},
    "acts.payloads": {"acts.language"},
    "acts.delegates": {"acts.language", "acts.plan"},
    "acts.sets": {"acts.language", "acts.tree", "acts.delegates"},
    "acts.client": {*(_CORE - {"acts.testing"}), "acts.payloads", "acts.telemetry"},
    "acts.ui": {*(_CORE - {"acts.testing"}), "acts.client", "acts.payloads"},
    "acts.cli": {
        *(_CLI | _CORE),
        *("acts.activities", "acts.client", "acts.payloads", "acts.sets", "acts.telemetry", "acts.ui", "acts.worker"),
    },
    **{
        room: {
            *(_CLI - {room}),
            *_CORE,
            *(
                "acts.activities",
                "acts.activities.models",
                "acts.client",
                "acts.payloads",
                "acts.sets",
                "acts.telemetry",
                "acts.ui",
                "acts.worker",
            ),
        }
        for room in _CLI - {"acts.cli"}
    },
    "acts.cli.starter": set(),
    "acts.cli.demo": set(),
    "acts.worker": {
        *(_CORE - {"acts.provenance"}),
        *("acts.activities", "acts.activities.models", "acts.client", "acts.delegates", "acts.payloads"),
        *("acts.sets", "acts.telemetry", "acts.workflows"),
    },
}
# Two sides of one thing may share a name: what is decided or shown, and what performs it.
TWINS = {"results.py"}

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


def room_of(module: str) -> str:
    return module.rpartition(".")[0] or module


def production() -> dict[str, Path]:
    """Every module that ships, by its dotted name; packages have nothing in them."""
    return {dotted(path): path for path in modules("acts") if path.name != "__init__.py"}


def core_modules() -> list[Path]:
    return [path for room in CORE for path in modules(f"acts/{room}")]


def arrows(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, wherever the import is and for types alone too: a circle is a circle."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {name for name in names if name in known and known[name] != path}


def forbidden_arrows(known: dict[str, Path]) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, path in known.items()
        for target in sorted(arrows(path, known))
        if room_of(target) != room_of(module) and room_of(target) not in ALLOWED[room_of(module)]
    ]


def circles(known: dict[str, Path]) -> list[list[str]]:
    graph = nx.DiGraph([(m, target) for m, path in known.items() for target in arrows(path, known)])
    return [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]


def twin_names(known: dict[str, Path]) -> list[str]:
    names = Counter(path.name for path in known.values())
    return sorted(name for name, count in names.items() if count > 1 and name not in TWINS | {"__main__.py"})


def heirs(known: dict[str, Path]) -> list[str]:
    """Workflow classes that inherit more than one class of ours, in a row or side by side."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for module, path in known.items()
        if module.startswith("acts.workflows")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    }

    def above(name: str) -> int:
        return sum(1 + above(base) for base in bases.get(name, ()) if base in bases)

    return [name for name in bases if above(name) > 1]


def broken(path: Path, forbidden: set[str]) -> list[str]:
    return [
        f"{path.name}:{line} imports {name}"
        for name, line in imports(path)
        if any(name == taboo or name.startswith(f"{taboo}.") for taboo in forbidden)
    ]


def test_every_arrow_between_rooms_is_one_that_is_allowed() -> None:
    assert forbidden_arrows(production()) == []


def test_no_module_reaches_itself() -> None:
    assert circles(production()) == []


def test_no_two_files_share_a_name() -> None:
    assert twin_names(production()) == []


def test_a_workflow_inherits_one_class_of_ours_at_most() -> None:
    assert heirs(production()) == []


def test_the_alarms_of_the_rooms_ring(tmp_path: Path) -> None:
    def module(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text, "utf-8")
        return path

    upward = module("graph", "def f():\n    from acts.views import page")
    page = module("page", "from acts.plan import graph")
    known = {"acts.plan.graph": upward, "acts.views.page": page}
    assert forbidden_arrows(known) == ["acts.plan.graph imports acts.views.page"]
    assert circles(known) == [["acts.plan.graph", "acts.views.page"]]
    assert twin_names({**known, "acts.cli.page": page}) == ["page.py"]
    deep = module("deep", "class A: ...\nclass B(A): ...\nclass C(B): ...")
    assert heirs({"acts.workflows.deep": deep}) == ["C"]


def test_the_protocol_imports_nothing_that_waits_or_touches_the_world() -> None:
    assert [found for path in core_modules() for found in broken(path, IMPURE)] == []


def test_the_protocol_can_be_imported_where_there_is_no_temporal() -> None:
    names = [dotted(path) for path in core_modules()]
    assert "acts.plan" in names
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
