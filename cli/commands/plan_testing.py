"""``acts test``: the tests of one's own plans, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cli.command_errors import EXIT_DONE, EXIT_FAILED, EXIT_WRONG_INPUT, CommandError, command_error
from cli.console import console, count_text, print_blocks, print_json
from cli.render.plan_test_view import print_reports
from cli.testing.plan_tests import FileReport, PlanTests, find_test_files


def run_tests(
    files: Sequence[str], *, name: str = "", min_coverage: float = 0.0, as_json: bool = False, lists_cases: bool = False
) -> int:
    """Run test files. 0 if all cases passed, 1 if one failed or too few outcomes are reached, 2 for a wrong file.

    Raises:
        CommandError: there is no test file.
    """
    reports: list[FileReport] = []
    has_wrong_file = False
    for path in find_test_files(files):
        try:
            reports.append(_run_file(path, name))
        except CommandError as error:
            print_blocks(error.blocks)
            has_wrong_file = True
    reports = [report for report in reports if report.cases]
    if not reports and not has_wrong_file:
        raise command_error(f"no case has {name!r} in its name", where="--name")
    failed = sum(not case.has_passed for report in reports for case in report.cases)
    total = sum(len(r.coverage.texts) for r in reports if r.coverage is not None)
    reached = sum(len(r.coverage.reached) for r in reports if r.coverage is not None)
    percent = 100 * reached / total if total else 100.0
    is_covered = percent >= min_coverage
    passed = sum(len(report.cases) for report in reports) - failed
    if as_json:
        counts = {"passed": passed, "failed": failed, "coverage": round(percent, 1)}
        print_json({"files": [report.to_json() for report in reports], **counts})
    else:
        print_reports(reports, lists_cases=lists_cases)
        text = f"{count_text(passed, 'case')} passed, {failed} failed"
        text += f"; {percent:.0f} % of {count_text(total, 'outcome')}" if total else ""
        least = "" if is_covered else f", {min_coverage:g} % are required"
        console().print(text + least, style="bold red" if failed or not is_covered else "bold green")
    if has_wrong_file:
        return EXIT_WRONG_INPUT
    return EXIT_FAILED if failed or not is_covered else EXIT_DONE


def _run_file(path: Path, name: str) -> FileReport:
    return PlanTests(path).run(name)
