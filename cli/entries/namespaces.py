"""Commands that prepare a namespace. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from cli.options import ShowOnly
from cli.program import ExitCode, command


@command
def setup(show: ShowOnly = False) -> ExitCode:
    """Prepare a namespace: register the search attributes by which runs are found."""
    from cli.commands import setup as implementation

    return implementation.setup(show_only=show)
