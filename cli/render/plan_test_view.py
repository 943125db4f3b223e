"""Reports of plan tests as text: a line per file and per failed case, with what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cli.console import clean, console, count_text
from cli.text.plan_text import compare_plans

if TYPE_CHECKING:
    from acts.testing.expectations import Mismatch
    from cli.testing.plan_tests import CaseReport, FileReport

MAX_DIFF_LINES: Final = 40
MAX_OUTCOMES: Final = 10
_STYLES: Final = {"+": "green", "-": "red"}


def print_reports(reports: Sequence[FileReport], *, lists_cases: bool) -> None:
    """Print what passed, what differs, and which outcomes no case reaches."""
    screen = console()
    for report in reports:
        failed = [case for case in report.cases if not case.has_passed]
        style = "red" if failed else "green"
        screen.print(f"{'✗' if failed else '✓'} {clean(report.file)}: {_counts(report, len(failed))}", style=style)
        for case in report.cases:
            if lists_cases and case.has_passed:
                screen.print(f"  ✓ {clean(case.name)}", style="dim")
        for case in failed:
            print_case(case)
        for line in _missing(report):
            screen.print(f"  {line}", style="dim")


def print_case(case: CaseReport) -> None:
    """Print a failed case, with a diff of what differs: - is expected, + is what the plan does."""
    screen = console()
    screen.print(f"  ✗ {clean(case.name)}  ({clean(case.where)})", style="bold red")
    for line in case_lines(case):
        screen.print(f"    {line}", style=_STYLES.get(line.lstrip()[:1], None))


def case_lines(case: CaseReport) -> Iterator[str]:
    """Everything that is wrong with a case."""
    for problem in case.problems:
        yield clean(f"the plan is not valid: {problem.text()} [{problem.code}]")
    for mismatch in case.mismatches:
        yield clean(mismatch.text)
        yield from diff_lines(mismatch)


def diff_lines(mismatch: Mismatch) -> Iterator[str]:
    """The difference of two values, as a diff of their YAML."""
    if mismatch.expected is None and mismatch.actual is None:
        return
    rows = compare_plans(mismatch.expected, mismatch.actual, ("expected", "actual"))[2:]
    rows = [row for row in rows if not row.startswith("@@")]
    yield from (f"  {row}" for row in rows[:MAX_DIFF_LINES])
    if len(rows) > MAX_DIFF_LINES:
        yield f"  … {len(rows) - MAX_DIFF_LINES} more lines; --json has all"


def _counts(report: FileReport, failed: int) -> str:
    passed = len(report.cases) - failed
    parts = [f"{passed} passed", *([f"{failed} failed"] if failed else [])]
    if report.coverage is not None:
        parts.append(f"{len(report.coverage.reached)} of {count_text(len(report.coverage.texts), 'outcome')}")
    return ", ".join(parts)


def _missing(report: FileReport) -> Iterator[str]:
    missing = [] if report.coverage is None else report.coverage.missing
    for call, text in missing[:MAX_OUTCOMES]:
        yield clean(f"no case reaches {call}: {text}")
    if len(missing) > MAX_OUTCOMES:
        yield f"… and {len(missing) - MAX_OUTCOMES} more outcomes; --json lists all"
