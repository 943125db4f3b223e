"""``acts storage``: the commands about stored values. The command line only: what they do is imported when they run."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import AsJson
from cli.program import ExitCode, command_group

Delete = Annotated[bool, typer.Option("--delete", help="Delete what is unused; without it, only count.")]
Grace = Annotated[str, typer.Option(metavar="TIME", help="Leave what was used within this time, like 12h or 7d.")]

storage_command = command_group("storage", "Values that ACTS_STORAGE keeps outside of histories.")


@storage_command
def gc(delete: Delete = False, grace: Grace = "1d", as_json: AsJson = False) -> ExitCode:
    """Find stored values that nothing refers to any more, and delete them.

    It reads all runs and schedules that the namespace still keeps. What they refer to stays, and so does what was
    used lately. Without --delete it changes nothing.
    """
    from cli.commands import stored_values as implementation
    from cli.text.durations import read_seconds

    return implementation.collect(read_seconds(grace, "--grace") or 0.0, delete=delete, as_json=as_json)


@storage_command
def check(as_json: AsJson = False) -> ExitCode:
    """Write, read and delete a small value, and count what is stored."""
    from cli.commands import stored_values as implementation

    return implementation.check(as_json=as_json)
