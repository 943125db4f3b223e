"""The plugin of pytest: test files of plans are collected beside Python tests, and a fixture runs plans in them.

pytest loads it where this project is installed; elsewhere ``pytest -p acts.cli.testing.pytest_plugin``. Nothing is
imported before a test file is collected or the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from acts.cli.commands.testing import CaseReport
    from acts.testing.rehearsal import Rehearsal


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PlanTestFile | None:
    is_test = file_path.name.endswith((".test.yaml", ".test.yml", ".test.json"))
    return PlanTestFile.from_parent(parent, path=file_path) if is_test else None


@pytest.fixture
def rehearse_plan() -> Callable[..., Rehearsal]:
    """``rehearse_plan(plan, results, input=…)`` runs a plan with canned results, as ``acts test`` does.

    ``plan`` is a file or a Request; a function among the results gets the Call. Returns what happened: ``status``,
    ``result``, ``started``, ``complaints``.
    """
    from acts.cli.commands import testing
    from acts.cli.console import load_project_file

    load_project_file()
    return testing.rehearse_plan


class PlanTestFile(pytest.File):
    def collect(self) -> Iterator[PlanTestCase]:
        from acts.cli.commands.testing import PlanTests
        from acts.cli.console import CommandError, load_project_file

        try:
            load_project_file()
            tests = PlanTests(self.path)
        except CommandError as error:
            raise self.CollectError("\n".join(block.text() for block in error.blocks)) from None
        for case in tests.cases:
            item = PlanTestCase.from_parent(self, name=case.name)
            item.run_case = partial(tests.run_case, case)
            yield item


class PlanTestCase(pytest.Item):
    run_case: Callable[[], CaseReport]

    def runtest(self) -> None:
        report = self.run_case()
        if report.faults:
            pytest.fail("\n".join([report.where, *report.lines()]), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"
