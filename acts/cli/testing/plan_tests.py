"""Test files of plans: found, run without a server, and reported as data.

Laws of this file: nothing is printed. The Tools are those that this environment loads, as for ``acts validate``; a
Tool that it does not load takes any parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acts.cli.console import clean, command_error
from acts.cli.text.preflight import Preflight, missing_tools_error, run_preflight
from acts.cli.text.source import compare_plans, read_source
from acts.language.errors import InvalidRequest, Problem
from acts.language.values import Json, pointer
from acts.plan.validate import validate_request
from acts.testing.cases import AWAITING, Mismatch, PlanCase, find_mismatches, read_case_file
from acts.testing.rehearsal import CannedResults, Rehearsal, Script, rehearse

ENDINGS: Final = (".test.yaml", ".test.yml", ".test.json")
MAX_DIFF_LINES: Final = 40
# Folders that hold no tests of one's own
_SKIPPED: Final = ("node_modules", "__pycache__", "venv")


@dataclass(frozen=True)
class CaseReport:
    """One case: ``mismatches`` is empty for one that passed, ``problems`` are those of its Request."""

    name: str
    where: str
    mismatches: Sequence[Mismatch] = ()
    problems: Sequence[Problem] = ()

    @property
    def has_passed(self) -> bool:
        """True without a difference."""
        return not self.mismatches and not self.problems

    def to_json(self) -> dict[str, Any]:
        """``{name, passed, where, failures?, problems?}``"""
        out: dict[str, Any] = {"name": self.name, "passed": self.has_passed, "where": self.where}
        more: dict[str, Sequence[Mismatch | Problem]] = {"failures": self.mismatches, "problems": self.problems}
        return out | {key: [item.to_json() for item in items] for key, items in more.items() if items}


def case_lines(case: CaseReport) -> Iterator[str]:
    """Everything that is wrong with a case."""
    for problem in case.problems:
        yield clean(f"the plan is not valid: {problem.text()} [{problem.code}]")
    for mismatch in case.mismatches:
        yield clean(mismatch.text)
        yield from _diff_lines(mismatch)


def _diff_lines(mismatch: Mismatch) -> Iterator[str]:
    """The difference of two values, as a diff of their YAML."""
    if mismatch.expected is None and mismatch.actual is None:
        return
    rows = compare_plans(mismatch.expected, mismatch.actual, ("expected", "actual"))[2:]
    rows = [row for row in rows if not row.startswith("@@")]
    yield from (f"  {row}" for row in rows[:MAX_DIFF_LINES])
    if len(rows) > MAX_DIFF_LINES:
        yield f"  … {len(rows) - MAX_DIFF_LINES} more lines; --json has all"


def find_test_files(names: Sequence[str]) -> list[Path]:
    """The named test files, and those in the named folders; without names, those below the working directory.

    Raises:
        CommandError: a name is neither a file nor a folder, or there is no test file.
    """
    out: list[Path] = []
    for path in map(Path, names or (".",)):
        if not path.exists():
            raise command_error("there is no such file or folder", where=str(path))
        out += _files_in(path) if path.is_dir() else [path]
    if not out:
        where = ", ".join(names) or "this folder"
        hint = "a test file is called like its plan: orders.test.yaml for orders.yaml; see docs/testing.md"
        raise command_error(f"no test file in {where}", hint=hint)
    return list(dict.fromkeys(out))


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".") and path.name not in _SKIPPED:
            yield from _files_in(path)
        elif path.name.endswith(ENDINGS):
            yield path


class PlanTests:
    """A test file and its plan, read.

    Raises:
        CommandError: one of them cannot be read, or is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.source = read_source(str(path))
        try:
            file = read_case_file(self.source.value)
        except InvalidRequest as error:
            raise self.source.error(error.problems) from None
        self.cases = file.cases
        self.plan = read_source(str(_plan_beside(path) if file.plan is None else path.parent / file.plan))
        self._preflight: Preflight | None = None

    def run(self, name: str = "") -> list[CaseReport]:
        """Run the cases whose name has this in it."""
        return [self.run_case(case) for case in self.cases if name.casefold() in case.name.casefold()]

    def run_case(self, case: PlanCase) -> CaseReport:
        """Run one case; the Tools and Activities of the plan are looked up once for all of them."""
        where = self.source.where(pointer("cases", self.cases.index(case)))
        request = _with_context(self.plan.value, case.messages)
        preflight = self._preflight = self._preflight or run_preflight(request, file=self.plan.name, agent=False)
        if preflight.unseen:
            raise missing_tools_error("a test of this plan", preflight.unseen, self.plan.name)
        script = Script(CannedResults(case.results), case.decisions, case.provide, case.expect.status == AWAITING)
        try:
            rehearsal = _rehearse(request, preflight, script)
        except InvalidRequest as error:
            return CaseReport(case.name, where, problems=error.problems)
        return CaseReport(case.name, where, find_mismatches(case, rehearsal))


def rehearse_plan(
    plan: str | Path | Json, results: Mapping[str, Any] | None = None, *, input: Json = None,  # noqa: A002 - its name in a test file
    context: Iterable[Json] = (), decisions: Sequence[Mapping[str, Any]] | str = (), provide: Sequence[Json] = (),
) -> Rehearsal:  # fmt: skip
    """Run a plan (a Request, or the path of one) with canned results; functions among them get the Call.

    Raises:
        InvalidRequest: the plan, with this input, does not validate. CommandError: its file cannot be read.
    """
    file = None if isinstance(plan, dict) else str(plan)
    messages = [*context, *([] if input is None else [{"type": "input", "input": input}])]
    request = _with_context(plan if file is None else read_source(file).value, messages)
    script = Script(CannedResults(results or {}), decisions, tuple(provide), ends_waiting=True)
    return _rehearse(request, run_preflight(request, file=file, agent=False), script)


def _rehearse(request: Json, preflight: Preflight, script: Script) -> Rehearsal:
    prepared = validate_request(request, preflight.tools, preflight.served)
    return rehearse(prepared, script, preflight.tools, preflight.served)


def _with_context(request: Json, messages: Sequence[Json]) -> Json:
    context = request.get("context", []) if isinstance(request, dict) else None
    if not messages or not isinstance(context, list):
        return request  # the validator reports what is wrong with it
    return {**request, "context": [*context, *messages]}


def _plan_beside(path: Path) -> Path:
    """``orders.yaml`` for ``orders.test.yaml``, in any format."""
    stem = path.stem.removesuffix(".test")
    files = [path.with_name(stem + suffix) for suffix in (".yaml", ".yml", ".json")]
    file = next((f for f in files if f.is_file() and f != path), None)
    if file is None:
        hint = f'name it: "plan": {stem}.yaml, relative to the test file'
        raise command_error("the plan of this test file is not beside it", where=str(path), hint=hint)
    return file
