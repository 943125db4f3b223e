"""Test files of plans: found, run without a server, and reported as data.

Laws of this file: nothing is printed. The Tools are those that this environment loads, as for ``acts validate``; a
Tool that it does not load takes any parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.values import Json
from acts.plan.validate import validate_request
from acts.testing.canned_results import CannedResults
from acts.testing.case_file import AWAITING, CaseFile, PlanCase, read_case_file
from acts.testing.expectations import Mismatch, find_mismatches
from acts.testing.outcome_coverage import Coverage, outcomes_of
from acts.testing.rehearsal import Rehearsal, Script, rehearse
from cli.command_errors import CommandError, command_error
from cli.text.preflight import Preflight, missing_tools_error, run_preflight
from cli.text.problems import problem_blocks
from cli.text.source_text import SourceText, read_source

MARK: Final = ".test"
SUFFIXES: Final = (".yaml", ".yml", ".json")
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
        if self.mismatches:
            out["failures"] = [m.to_json() for m in self.mismatches]
        if self.problems:
            out["problems"] = [p.to_json() for p in self.problems]
        return out


@dataclass(frozen=True)
class FileReport:
    """One test file. ``coverage`` is None where no case could be run."""

    file: str
    plan: str
    cases: list[CaseReport] = field(default_factory=list)
    coverage: Coverage | None = None

    def to_json(self) -> dict[str, Any]:
        """``{file, plan, cases, coverage?}``"""
        out: dict[str, Any] = {"file": self.file, "plan": self.plan, "cases": [c.to_json() for c in self.cases]}
        return out if self.coverage is None else {**out, "coverage": self.coverage.to_json()}


def find_test_files(names: Sequence[str]) -> list[Path]:
    """The named test files, and those in the named folders; without names, those below the working directory.

    Raises:
        CommandError: a name is neither a file nor a folder, or there is no test file.
    """
    out: list[Path] = []
    for name in names or (".",):
        path = Path(name)
        if path.is_dir():
            out += _files_in(path)
        elif path.is_file():
            out.append(path)
        else:
            raise command_error("there is no such file or folder", where=name)
    if not out:
        where = ", ".join(names) or "this folder"
        hint = "a test file is called like its plan: orders.test.yaml for orders.yaml; see docs/testing.md"
        raise command_error(f"no test file in {where}", hint=hint)
    return list(dict.fromkeys(out))


def is_test_file(path: Path) -> bool:
    """True for ``orders.test.yaml``"""
    return path.suffix in SUFFIXES and path.stem.endswith(MARK)


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _SKIPPED:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files_in(path)
        elif is_test_file(path):
            yield path


class PlanTests:
    """A test file and its plan, read.

    Raises:
        CommandError: one of them cannot be read, or is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.source = read_source(str(path))
        try:
            self.file: CaseFile = read_case_file(self.source.value)
        except InvalidRequest as error:
            raise CommandError(*problem_blocks(error.problems, self.source)) from None
        plan = path.parent / self.file.plan if self.file.plan is not None else _plan_beside(path)
        self.plan: SourceText = read_source(str(plan))
        self._preflight: Preflight | None = None
        self.coverage: Coverage | None = None

    def run(self, name: str = "") -> FileReport:
        """Run the cases whose name has this in it."""
        reports = [self.run_case(case) for case in self.file.cases if name.casefold() in case.name.casefold()]
        return FileReport(self.source.name, self.plan.name, reports, self.coverage)

    def run_case(self, case: PlanCase) -> CaseReport:
        """Run one case."""
        where = self.source.where(case.pointer)
        request = _with_context(self.plan.value, case.context)
        tools, served = self._tools_for(request)
        try:
            prepared = validate_request(request, tools, served)
        except InvalidRequest as error:
            return CaseReport(case.name, where, problems=error.problems)
        if self.coverage is None:
            self.coverage = outcomes_of(prepared)
        ends_waiting = case.expect.status == AWAITING
        script = Script(CannedResults(case.results), case.decisions, case.provide, ends_waiting)
        rehearsal = rehearse(prepared, script, tools, served)
        self.coverage.add(rehearsal)
        return CaseReport(case.name, where, find_mismatches(case, rehearsal))

    def _tools_for(self, request: Json) -> tuple[Mapping[str, Any], Sequence[str]]:
        """The Tools and Activities that the plan is validated with: looked up once for all cases."""
        if self._preflight is None:
            self._preflight = preflight = run_preflight(request, file=self.plan.name, agent=False)
            if preflight.unseen:
                raise missing_tools_error("a test of this plan", preflight.unseen, self.plan.name)
        return self._preflight.tools, self._preflight.served


def rehearse_plan(
    plan: str | Path | Json, results: Mapping[str, Any] | None = None, *, input: Json = None,  # noqa: A002 - its name in a test file
    context: Iterable[Json] = (), decisions: Sequence[Mapping[str, Any]] | str = (), provide: Sequence[Json] = (),
) -> Rehearsal:  # fmt: skip
    """Run a plan (a Request, or the path of one) with canned results; functions among them get the Call.

    Raises:
        InvalidRequest: the plan, with this input, does not validate. CommandError: its file cannot be read.
    """
    file = None if isinstance(plan, dict) else str(plan)
    request = plan if file is None else read_source(file).value
    messages = [*context, *([] if input is None else [{"type": "input", "input": input}])]
    request = _with_context(request, messages)
    preflight = run_preflight(request, file=file, agent=False)
    prepared = validate_request(request, preflight.tools, preflight.served)
    script = Script(CannedResults(results or {}), decisions, tuple(provide), ends_waiting=True)
    return rehearse(prepared, script, preflight.tools, preflight.served)


def _with_context(request: Json, messages: Sequence[Json]) -> Json:
    context = request.get("context", []) if isinstance(request, dict) else None
    if not messages or not isinstance(context, list):
        return request  # the validator reports what is wrong with it
    return {**request, "context": [*context, *messages]}


def _plan_beside(path: Path) -> Path:
    """``orders.yaml`` for ``orders.test.yaml``, in any format."""
    stem = path.stem.removesuffix(MARK)
    files = [path.with_name(stem + suffix) for suffix in SUFFIXES]
    file = next((f for f in files if is_test_file(path) and f.is_file()), None)
    if file is None:
        hint = f'name it: "plan": {stem}.yaml, relative to the test file'
        raise command_error("the plan of this test file is not beside it", where=str(path), hint=hint)
    return file
