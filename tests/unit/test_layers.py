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

ROOT = Path(__file__).parents[2]

# Inside acts/ a room may import the rooms before it in this list.
ACTS = ("language", "plan", "tree", "planner", "machines", "simulation", "provenance", "views", "testing")
_ACTS = {f"acts.{room}" for room in ACTS}
# Every arrow between the other rooms: a room, and the rooms that it may import when it runs.
ALLOWED: dict[str, set[str]] = {
    **{f"acts.{room}": {f"acts.{below}" for below in ACTS[:place]} for place, room in enumerate(ACTS)},
    "workflows": {"workflows.runtime", *_ACTS},
    "workflows.runtime": {*(_ACTS - {"acts.provenance"}), "telemetry"},
    "telemetry": {"acts.language"},
    "activities": {
        *("telemetry", "activities.mcp", "activities.providers", "delegates", "sets"),
        "acts.language",
        "acts.planner",
        "acts.tree",
    },
    "activities.mcp": {"acts.language"},
    "activities.providers": {"telemetry", "acts.language", "acts.planner"},
    "connection": {"acts.language"},
    "delegates": {"acts.language", "acts.plan"},
    "sets": {"acts.language", "acts.tree", "delegates"},
    "cli": {"cli.entries", "cli.commands", "cli.runs", "cli.text", "acts.language"},
    "cli.entries": {"cli", "cli.commands", "cli.runs", "cli.text", "acts.language"},
    "cli.commands": {
        *("activities", "cli", "cli.dev", "cli.doctor", "cli.render", "cli.runs", "cli.testing", "cli.text"),
        *("connection", *_ACTS),
    },
    "cli.doctor": {
        "activities",
        "activities.providers",
        "cli",
        "cli.runs",
        "connection",
        "worker_settings",
        "acts.tree",
    },
    "cli.render": {"cli", "cli.runs", "cli.text", *_ACTS},
    "cli.runs": {"cli", "cli.dev", "cli.text", "connection", "telemetry", "worker", *_ACTS},
    "cli.starter": set(),
    "cli.testing": {"cli", "cli.render", "cli.text", *_ACTS},
    "cli.text": {"cli", "activities", "sets", *_ACTS},
    "cli.dev": {
        *("cli", "cli.runs", "cli.text", "acts.language", "acts.tree", "activities", "telemetry", "worker"),
        *("worker_runtime", "worker_settings"),
    },
    "worker_runtime": {"acts.language", "telemetry"},
    "worker": {
        *("activities", "activities.providers", "connection", "workflows", "workflows.runtime", "acts.language"),
        *("sets", "telemetry", "worker_runtime", "worker_settings"),
    },
    "worker_settings": {
        *("activities", "activities.providers", "connection", "delegates", "sets", "acts.language", "telemetry"),
        "worker_runtime",
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
    rooms = ("acts", "workflows", "activities", "connection", "delegates", "sets", "telemetry", "worker_runtime", "cli")
    paths = [path for room in rooms for path in modules(room) if path.name != "__init__.py"]
    return {dotted(path): path for path in (*paths, ROOT / "worker.py", ROOT / "worker_settings.py")}


def arrows(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports when it runs, wherever the import is; not those for types only."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    checking = (n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    for_types = {id(part) for block in checking for part in ast.walk(block)}
    names: list[str] = []
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {name for name in names if name in known}


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
        if module.startswith("workflows")
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
    assert twin_names({**known, "cli.page": page}) == ["page.py"]
    deep = module("deep", "class A: ...\nclass B(A): ...\nclass C(B): ...")
    assert heirs({"workflows.deep": deep}) == ["C"]


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
