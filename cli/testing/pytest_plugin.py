"""The plugin of pytest: test files of plans are collected beside Python tests, and a fixture runs plans in them.

pytest loads it where this project is installed; elsewhere ``pytest -p cli.testing.pytest_plugin``. Its name there is
that of the module, so that both may happen.

Laws of this file: nothing is imported before a test file is collected or the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from acts.testing.case_file import PlanCase
    from acts.testing.rehearsal import Rehearsal
    from cli.testing.plan_tests import CaseReport, PlanTests

_ENDINGS: Final = (".test.yaml", ".test.yml", ".test.json")
_OPTION: Final = "--acts-coverage"
_FILES: Final = pytest.StashKey[list["PlanTestFile"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--acts-coverage``"""
    text = "list the outcomes of plans that no case of their test files reaches"
    parser.getgroup("acts").addoption(_OPTION, action="store_true", help=text)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PlanTestFile | None:
    """Collect ``orders.test.yaml``."""
    if not file_path.name.endswith(_ENDINGS):
        return None
    file: PlanTestFile = PlanTestFile.from_parent(parent, path=file_path)
    parent.config.stash.setdefault(_FILES, []).append(file)
    return file


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List what no case reaches."""
    if not config.getoption(_OPTION):
        return
    for file in config.stash.get(_FILES, []):
        coverage = None if file.tests is None else file.tests.coverage
        if coverage is not None:
            counts = f"{len(coverage.reached)} of {len(coverage.texts)} outcomes"
            terminalreporter.write_line(f"{file.name}: {counts}")
            for call, text in coverage.missing:
                terminalreporter.write_line(f"  no case reaches {call}: {text}")


@pytest.fixture
def rehearse_plan() -> Callable[..., Rehearsal]:
    """``rehearse_plan(plan, results, input=…)`` runs a plan with canned results, as ``acts test`` does.

    ``plan`` is a file or a Request; a function among the results gets the Call. Returns what happened: ``status``,
    ``result``, ``started``, ``complaints``.
    """
    from cli.testing import plan_tests
    from cli.text.project_file import load_project_file

    load_project_file()
    return plan_tests.rehearse_plan


class PlanTestFile(pytest.File):
    """A test file of a plan."""

    tests: PlanTests | None = None

    def collect(self) -> Iterator[PlanTestCase]:
        """One item per case."""
        from cli.command_errors import CommandError
        from cli.testing.plan_tests import PlanTests
        from cli.text.project_file import load_project_file

        try:
            load_project_file()
            self.tests = PlanTests(self.path)
        except CommandError as error:
            raise self.CollectError("\n".join(_block_text(block) for block in error.blocks)) from None
        for case in self.tests.file.cases:
            yield PlanTestCase.from_parent(self, name=case.name, case=case)


class PlanTestCase(pytest.Item):
    """One case."""

    def __init__(self, *, case: PlanCase, **more: Any) -> None:
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        """Run the plan and compare."""
        tests = self.parent.tests if isinstance(self.parent, PlanTestFile) else None
        report = None if tests is None else tests.run_case(self.case)
        if report is not None and not report.has_passed:
            raise CaseFailed(report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What differs, without a traceback."""
        if not isinstance(excinfo.value, CaseFailed):
            return super().repr_failure(excinfo, style)
        from cli.render.plan_test_view import case_lines

        report = excinfo.value.report
        return "\n".join([report.where, *case_lines(report)])

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where pytest says that the case is."""
        return self.path, None, f"{self.path.name}: {self.name}"


class CaseFailed(Exception):
    """A case differs from what it expects."""

    def __init__(self, report: CaseReport) -> None:
        super().__init__(report.name)
        self.report = report


def _block_text(block: Any) -> str:
    facts = "".join(f"\n  {label}: {text}" for label, text in block.facts)
    return f"{block.where}: {block.head}{facts}" if block.where else f"{block.head}{facts}"
