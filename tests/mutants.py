"""Mutants of four files that decide much: each changes one condition, operator, number or statement; a test must fail.

``make mutants`` notes which statements each pure test reaches. A mutant is the code of one function, changed in the
memory of a child process; the tests that reach it run there, the shortest first. So no file changes, and what reads
source code sees no mutant. A hash chooses the mutants: another line leaves the choice of the rest.
"""

import ast
import hashlib
import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

FIGURES = Path("benchmarks/figures/mutants.json")
FILES = ("acts/machines/walk.py", "acts/plan/graph.py", "acts/plan/context_log.py", "acts/machines/approvals.py")
EACH, SEED = 25, 1
TESTS = ["-qq", "-p", "no:xdist", "-m", "not server and not long", "--hypothesis-profile=mutants", "--capture=sys"]
TESTS += ["--ignore=tests/unit/cli/test_devserver.py", "tests/unit", "tests/property"]
MOST_SECONDS, MOST_BYTES = 600, 8 << 30  # of a process; several times what all tests take: a mutant may have no end
SWAPS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
Json = dict[str, Any]


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


def find_mutants(lines: list[bytes], node: Any, function: str = "", line: int = 0) -> Iterator[tuple[Json, bytes]]:
    """Each mutant of the bodies of functions: ``{line, function, code, mutation}``, where its statement begins at
    ``line``, and the text of its file.
    """
    line = node.lineno if isinstance(node, ast.stmt) else line
    for part, new in replace_parts(node) if function else ():
        begin, end, inserted = part.lineno - 1, part.end_lineno - 1, new if new == "pass" else f"({new})"
        row = lines[begin][: part.col_offset] + inserted.encode() + lines[end][part.end_col_offset :]
        mutant = {"line": line, "function": function, "code": lines[begin].decode().strip()}
        yield mutant | {"mutation": f"{ast.unparse(part)} -> {new}"}, b"".join([*lines[:begin], row, *lines[end + 1 :]])
    is_body = isinstance(node, (ast.ClassDef, ast.FunctionDef))
    function = f"{function}.{node.name}".strip(".") if is_body else function
    children = [] if isinstance(node, ast.JoinedStr) else node.body if is_body else ast.iter_child_nodes(node)
    for child in children:
        if child is not getattr(node, "annotation", None):
            yield from find_mutants(lines, child, function, line)


def choose(file: str) -> list[tuple[Json, bytes]]:
    """The mutants with the lowest hashes."""
    text, by_hash = Path(file).read_bytes(), dict[str, tuple[Json, bytes]]()
    for mutant, mutated in find_mutants(text.splitlines(keepends=True), ast.parse(text)):
        words = json.dumps([SEED, file, *(mutant[key] for key in ("function", "code", "mutation"))])
        name = hashlib.sha256(words.encode()).hexdigest()[:12]
        by_hash[name] = {"name": name, "file": file, **mutant}, mutated
    return [by_hash[name] for name in sorted(by_hash)[:EACH]]


def names_in(file: str) -> dict[str, Any]:
    return vars(sys.modules[file.removesuffix(".py").replace("/", ".")])


def patch(names: Mapping[str, Any], code: CodeType) -> None:
    """Give all functions of a module, or of a class, the code that they have in another text of it."""
    for new in code.co_consts:
        old = names.get(new.co_name) if isinstance(new, CodeType) else None
        old = old.fget if isinstance(old, property) else old
        if isinstance(old, type):
            patch(vars(old), new)
        elif isinstance(old, FunctionType):
            old.__code__ = new


class Marks(ast.NodeTransformer):
    """Each statement of a function says first that it is reached."""

    def visit(self, node: Any) -> Any:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and not isinstance(node, (ast.Module, ast.ClassDef)):
                marks = [ast.parse(f"_reach({statement.lineno})").body[0] for statement in block]
                setattr(node, field, [part for pair in zip(marks, block, strict=True) for part in pair])
        return self.generic_visit(node)


def run(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, bool]]:
    """Each test, and whether it passes."""
    for item, following in zip(items, [*items[1:], None], strict=False):
        yield item, not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def trace(items: list[pytest.Item]) -> dict[str, tuple[float, dict[str, set[int]]]]:
    """Of each test that passes: its seconds, and the lines of the statements that it reaches, by file."""
    reached, out = {file: set[int]() for file in FILES}, {}
    for file in FILES:
        names_in(file)["_reach"] = reached[file].add
        marked = ast.fix_missing_locations(Marks().visit(ast.parse(Path(file).read_bytes())))
        patch(names_in(file), compile(marked, file, "exec", dont_inherit=True))
    begin = time.monotonic()
    for item, passes in run(items):
        if passes:
            out[item.nodeid] = time.monotonic() - begin, {file: set(lines) for file, lines in reached.items()}
        for lines in reached.values():
            lines.clear()
        begin = time.monotonic()
    return out


def find_killer(file: str, text: bytes, items: list[pytest.Item]) -> str:
    """The first test that fails with this text of a file, or ``""``."""
    patch(names_in(file), compile(text, file, "exec", dont_inherit=True))
    return next((item.nodeid for item, passes in run(items) if not passes), "")


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a process of its own; None where it dies, by a limit, too."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def send() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        sender.send(work())

    child = multiprocessing.get_context("fork").Process(target=send)
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        child.join()


class Mutants:
    """A plugin of pytest, which runs the tests of each mutant."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to import it first

        settings.register_profile("mutants", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        past = {row["name"]: row for row in json.loads(FIGURES.read_text("utf-8"))["rows"]} if FIGURES.exists() else {}
        traces, rows = in_child(partial(trace, session.items)), list[Json]()
        for mutant, text in [choice for file in FILES for choice in choose(file)]:
            file, row = mutant["file"], past.get(mutant["name"], {})
            killer = row.get("killed_by") if "--again" in sys.argv else None  # only what survived, or is new
            if killer is None:
                items = [item for item in session.items if item.nodeid in traces]
                items = [item for item in items if mutant["line"] in traces[item.nodeid][1][file]]
                items.sort(key=lambda item: traces[item.nodeid][0])
                killer = in_child(partial(find_killer, file, text, items))
            ending = {"survives": row.get("survives", "")} if killer == "" else {"killed_by": killer or "no end"}
            rows.append(mutant | ending)
            print(len(items), json.dumps(rows[-1]), file=sys.__stderr__, flush=True)
        head = {"mutants": len(rows), "killed": sum("killed_by" in row for row in rows)}
        FIGURES.write_text(json.dumps(head | {"rows": rows}, ensure_ascii=False, indent=1) + "\n", "utf-8")
        return True


if __name__ == "__main__":
    os.nice(5)
    os.environ["TEST_EXAMPLES"] = "30"
    sys.exit(pytest.main(TESTS, plugins=[Mutants()]))
