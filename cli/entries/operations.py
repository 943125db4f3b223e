"""Commands for people who operate the engine. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import AsJson
from cli.program import ExitCode, command

Query = Annotated[
    str | None, typer.Option(metavar="QUERY", help="Only these: a visibility query, like \"ActsPhase = 'awaiting'\".")
]
CheckLimit = Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many, the newest first.")]
Pinned = Annotated[bool, typer.Option("--pinned", help="Also runs that are pinned to a deployment version.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="The task queue (default: ACTS_TASK_QUEUE, or acts).")]


@command
def deploy_check(
    query: Query = None, limit: CheckLimit = 1000, pinned: Pinned = False, queue: Queue = None, as_json: AsJson = False
) -> ExitCode:
    """Replay the open runs with the code here, before a rollout. Code 1: one does not replay."""
    from cli.commands import deploy_check as implementation

    options = implementation.CheckOptions(query, limit, pinned, queue)
    return implementation.deploy_check(options, as_json=as_json)


Ask = Annotated[
    list[str] | None, typer.Option("--ask", metavar="MODEL", help="Ask this model something small; may be repeated.")
]


@command
def doctor(ask: Ask = None, queue: Queue = None, as_json: AsJson = False) -> ExitCode:
    """Check server, workers, settings and models; say what is wrong and what to do. Code 1: something is wrong."""
    from cli.commands import doctor as implementation

    return implementation.doctor(ask or (), queue, as_json=as_json)
