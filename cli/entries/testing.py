"""Commands by which people begin plans of their own and test them.

The command line only: what a command does is imported when it runs.
"""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import AsJson
from cli.program import ExitCode, command

_Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILES]...", help="Test files, or folders of them (default: this folder).", show_default=False
    ),
]
_Name = Annotated[str, typer.Option("--name", "-k", metavar="TEXT", help="Only cases with this in their name.")]
_MinCoverage = Annotated[
    float, typer.Option(min=0, max=100, metavar="PERCENT", help="Fail if the cases reach fewer of all outcomes.")
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also list the cases that passed.")]
_Folder = Annotated[
    Path, typer.Argument(metavar="[FOLDER]", help="Where to write (default: here).", show_default=False)
]


@command
def init(folder: _Folder = Path(), as_json: AsJson = False) -> ExitCode:
    """Write a plan with tools, tests and a README into a folder; it runs at once.

    Examples:
      acts init my-plans && cd my-plans && acts test
    """
    from cli.commands import init as implementation

    return implementation.init(folder, as_json=as_json)


@command
def test(
    files: _Files = None, name: _Name = "", min_coverage: _MinCoverage = 0.0, verbose: _Verbose = False,
    as_json: AsJson = False,
) -> ExitCode:  # fmt: skip
    """Run the tests of plans (*.test.yaml) with canned results. Needs no server.

    Examples:
      acts test
      acts test orders.test.yaml -k declined
      acts test --min-coverage 90
    """
    from cli.commands import plan_testing as implementation

    return implementation.run_tests(
        files or (), name=name, min_coverage=min_coverage, as_json=as_json, lists_cases=verbose
    )
