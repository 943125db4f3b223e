"""Mutants of four files that decide much: each changes one condition, operator, number or statement; a test must fail.

``make mutants`` works in a copy of the tree. First the tests must pass there, and fail where a file breaks. Tests that
read source code are left out: they would fail for any change. A hash chooses the mutants, so that a change of the code
leaves the choice of all others. ``--again`` tries those that survived, and new ones. As a plugin of pytest this file
gives each property few examples, and does not shrink them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "figures" / "mutants.json"
EACH, SEED = 25, 1
FILES = {  # with the nearest tests, which come first
    "acts/machines/walk.py": "unit/test_walk unit/test_elements unit/test_run_machines unit/test_rules",
    "acts/plan/graph.py": "unit/test_graph unit/test_walk unit/test_dangling_references",
    "acts/plan/context_log.py": "unit/test_context_log unit/test_result_placement unit/test_walk",
    "acts/machines/approvals.py": "unit/test_approvals unit/test_rules property/test_approvals unit/test_resync",
}
LAST = "acts/machines/approvals.py"
READ_SOURCES = "comparison deploy deployed_worker docs_commands figures kubernetes layers printed_commands ratchet"
UNRELATED = "devserver doctor health http_tool schema_compatibility telemetry typed_tools watchdog worst_requests"
WIDER = [f"--ignore=tests/unit/test_{name}.py" for name in f"{READ_SOURCES} {UNRELATED}".split()]
WIDER += ["tests/unit", "tests/property", "tests/replay"]
PYTEST = "-m pytest -q -x --tb=no -p tests.mutants -p no:xdist -p no:cacheprovider --hypothesis-profile=mutants -m"
PURE = "not server and not long"
LIMIT_SECONDS = 600  # several times what all of them take: a mutant that hangs is killed
LIMIT_BYTES = 8 << 30  # so is one that collects without end
SWAPS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}

settings.register_profile("mutants", settings(derandomize=True, phases=[Phase.explicit, Phase.generate], deadline=None))


def pytest_configure() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))


def replace_parts(node: Any) -> Iterator[tuple[Any, str]]:
    """Parts of a node, each with what a mutant has in its place."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in SWAPS:
            yield node, ast.unparse(ast.Compare(left, [SWAPS[type(op)]()], [right]))
        case ast.BinOp(left, op, right) if type(op) in SWAPS:
            yield node, ast.unparse(ast.BinOp(left, SWAPS[type(op)](), right))
        case ast.BoolOp(op, values):
            rests = [[*values[:at], *values[at + 1 :]] for at in range(len(values))]
            yield from ((node, ast.unparse(ast.BoolOp(op, rest) if len(rest) > 1 else rest[0])) for rest in rests)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, ast.unparse(operand)
        case ast.If() | ast.IfExp() | ast.comprehension():
            tests = node.ifs if isinstance(node, ast.comprehension) else [node.test]
            tests = [test for test in tests if ":=" not in ast.unparse(test)]  # the name would be missing
            yield from ((test, word) for test in tests for word in ("False", "True"))
        case ast.Constant(int(value)):
            yield node, str(not value if isinstance(value, bool) else value + 1)
        case ast.Call(ast.Name(name) as function) if name in NAMES:
            yield function, NAMES[name]
        case ast.Assign([ast.Attribute() | ast.Subscript(), *_]) | ast.AugAssign() | ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.Return(None) | ast.Raise() | ast.Continue() | ast.Break():
            yield node, "pass"


def find_mutants(text: str, node: Any, function: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """``{line, function, code, mutation}`` of each mutant of the bodies of functions, and the text of its file."""
    lines = text.encode().splitlines(keepends=True)
    for part, new in replace_parts(node) if function else ():
        begin, end = part.lineno - 1, part.end_lineno - 1
        inserted = (new if new == "pass" else f"({new})").encode()
        row = lines[begin][: part.col_offset] + inserted + lines[end][part.end_col_offset :]
        mutation = f"{ast.unparse(part)} -> {new}"
        mutant = {"line": begin + 1, "function": function, "code": lines[begin].decode().strip(), "mutation": mutation}
        yield mutant, b"".join([*lines[:begin], row, *lines[end + 1 :]]).decode()
    is_body = isinstance(node, (ast.ClassDef, ast.FunctionDef))
    function = f"{function}.{node.name}".strip(".") if is_body else function
    children = [] if isinstance(node, ast.JoinedStr) else node.body if is_body else ast.iter_child_nodes(node)
    for child in children:
        if child is not getattr(node, "annotation", None):
            yield from find_mutants(text, child, function)


def choose(file: str) -> list[tuple[dict[str, Any], str]]:
    """Mutants of a file: those with the lowest hashes."""
    text = (ROOT / file).read_text("utf-8")
    by_hash: dict[str, tuple[dict[str, Any], str]] = {}
    for mutant, mutated in find_mutants(text, ast.parse(text)):
        words = [SEED, file, *(mutant[key] for key in ("function", "code", "mutation"))]
        name = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:12]
        by_hash[name] = {"name": name, "file": file, **mutant}, mutated
    return [by_hash[name] for name in sorted(by_hash)[:EACH]]


def find_failure(tree: Path, file: str, text: str) -> str:
    """The first test that fails with this text of a file, or ``""``."""
    original = (tree / file).read_text("utf-8")
    (tree / file).write_text(text, "utf-8")
    shutil.rmtree((tree / file).parent / "__pycache__", ignore_errors=True)  # it knows a file by second and size
    command, environment = [sys.executable, *PYTEST.split(), PURE], os.environ | {"TEST_EXAMPLES": "10"}
    try:
        for tests in ([f"tests/{name}.py" for name in FILES[file].split()], WIDER):
            done = subprocess.run(  # noqa: PLW1510
                [*command, *tests], cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
            )
            lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
            if done.returncode:
                return (lines or [f"pytest ends with {done.returncode}: {done.stdout[-500:]}"])[0]
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        (tree / file).write_text(original, "utf-8")
    return ""


def main() -> None:
    os.nice(5)
    past = {row["name"]: row for row in json.loads(FIGURES.read_text("utf-8"))["rows"]} if FIGURES.exists() else {}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__"))
        if failure := find_failure(tree, LAST, (tree / LAST).read_text("utf-8")):
            sys.exit(f"{failure} fails without a mutant")
        if files := [file for file in FILES if not find_failure(tree, file, "raise ValueError\n")]:
            sys.exit(f"no test reads {files} of the copy")
        for mutant, text in [choice for file in FILES for choice in choose(file)]:
            row = past.get(mutant["name"], {})
            killer = ("--again" in sys.argv and row.get("killed_by")) or find_failure(tree, mutant["file"], text)
            rows.append(mutant | ({"killed_by": killer} if killer else {"survives": row.get("survives", "")}))
            print(json.dumps(rows[-1]), flush=True)
    head = {"mutants": len(rows), "killed": sum("killed_by" in row for row in rows)}
    FIGURES.write_text(json.dumps(head | {"rows": rows}, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
