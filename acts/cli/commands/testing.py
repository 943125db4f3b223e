"""``acts init`` and ``acts test``: a folder with a plan of one's own, and the tests of plans, without a server.

``init`` overwrites nothing that exists, and writes either all files or none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from acts.cli.command_line import AsJson, CommandGroup
from acts.cli.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    CommandError,
    clean,
    command_error,
    console,
    count_text,
    print_blocks,
    print_json,
)
from acts.cli.testing.plan_tests import CaseReport, PlanTests, case_lines, find_test_files

STARTER: Final = Path(__file__).resolve().parent.parent / "starter"
# File of the starter -> its name in the folder
FILES: Final = {
    "plan.yaml": "plan.yaml", "order_tools.py": "order_tools.py", "plan.test.yaml": "plan.test.yaml",
    "acts.toml": "acts.toml", "README.md": "README.md", "gitignore": ".gitignore",
}  # fmt: skip
_STYLES: Final = {"+": "green", "-": "red"}

Folder = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to write (default: here).", show_default=False)]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILES]...", help="Test files, or folders of them (default: this folder).", show_default=False
    ),
]
Name = Annotated[str, typer.Option("--name", "-k", metavar="TEXT", help="Only cases with this in their name.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also list the cases that passed.")]

app = CommandGroup()


@app.add
def init(folder: Folder = Path(), as_json: AsJson = False) -> int:
    """Write a plan with tools, tests and a README into a folder; it runs at once.

    Examples:
      acts init my-plans && cd my-plans && acts test
    """
    existing = [name for name in FILES.values() if (folder / name).exists()]
    if existing:
        verb = "is" if len(existing) == 1 else "are"
        text = f"{', '.join(existing)} {verb} already there, and nothing is overwritten"
        raise command_error(text, where=clean(folder), hint="name another folder: acts init my-plans")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, name in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write((STARTER / source).read_text("utf-8"))
    except OSError as error:
        raise command_error(f"it cannot be written: {error.strerror or error}", where=clean(folder)) from None
    if as_json:
        return print_json({"folder": str(folder), "files": [*FILES.values()]})
    screen = console()
    screen.print(f"{clean(folder)}: {', '.join(FILES.values())}", style="green")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    for command, effect in (("acts test", "run its tests"), ("acts dev", "start a server and a worker"),
                            ("acts run plan.yaml", "run it, in another terminal")):  # fmt: skip
        screen.print(f"  {(enter + command).ljust(len(enter) + 20)}{effect}")
    return EXIT_DONE


@app.add
def test(files: Files = None, name: Name = "", verbose: Verbose = False, as_json: AsJson = False) -> int:
    """Run the tests of plans (*.test.yaml) with canned results. Needs no server.

    Examples:
      acts test
      acts test orders.test.yaml -k declined
    """
    reports: dict[str, list[CaseReport]] = {}
    has_wrong_file = False
    for path in find_test_files(files or ()):
        try:
            reports[str(path)] = PlanTests(path).run(name)
        except CommandError as error:
            print_blocks(error.blocks)
            has_wrong_file = True
    cases = [case for listed in reports.values() for case in listed]
    if not cases and not has_wrong_file:
        raise command_error(f"no case has {name!r} in its name", where="--name")
    failed = sum(not case.has_passed for case in cases)
    passed = len(cases) - failed
    if as_json:
        rows = [{"file": file, "cases": [case.to_json() for case in listed]} for file, listed in reports.items()]
        print_json({"files": rows, "passed": passed, "failed": failed})
    else:
        for file, listed in reports.items():
            _print_file(file, listed, lists_cases=verbose)
        text = f"{count_text(passed, 'case')} passed, {failed} failed"
        console().print(text, style="bold red" if failed else "bold green")
    return EXIT_WRONG_INPUT if has_wrong_file else EXIT_FAILED if failed else EXIT_DONE


def _print_file(file: str, cases: Sequence[CaseReport], *, lists_cases: bool) -> None:
    """Print what passed, and what differs."""
    screen = console()
    failed = [case for case in cases if not case.has_passed]
    counts = f"{len(cases) - len(failed)} passed" + (f", {len(failed)} failed" if failed else "")
    screen.print(f"{'✗' if failed else '✓'} {clean(file)}: {counts}", style="red" if failed else "green")
    for case in cases:
        if lists_cases and case.has_passed:
            screen.print(f"  ✓ {clean(case.name)}", style="dim")
    for case in failed:
        screen.print(f"  ✗ {clean(case.name)}  ({clean(case.where)})", style="bold red")
        for line in case_lines(case):  # - is expected, + is what the plan does
            screen.print(f"    {line}", style=_STYLES.get(line.lstrip()[:1], None))
