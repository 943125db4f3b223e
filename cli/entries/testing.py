"""Commands that try out plans of one's own. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

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


@command
def test(
    files: _Files = None, name: _Name = "", min_coverage: _MinCoverage = 0.0, verbose: _Verbose = False,
    as_json: AsJson = False,
) -> ExitCode:  # fmt: skip
    """Run the tests of plans (*.test.yaml) with canned results. Needs no server.

    Examples: `acts test`, `acts test orders.test.yaml -k declined`, `acts test --min-coverage 90`
    """
    from cli.commands import plan_testing as implementation

    return implementation.run_tests(
        files or (), name=name, min_coverage=min_coverage, as_json=as_json, lists_cases=verbose
    )
