"""The commands ``acts schedule …``. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.options import Agent, AsJson, File, Inputs, Note, Yes
from cli.program import ExitCode, command_group

schedule_command: Final = command_group("schedule", "Start plans and agents by the clock: Temporal's schedules.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a schedule; its runs are called ID-TIME.")]
Cron = Annotated[
    list[str] | None,
    typer.Option("--cron", metavar="CRON", help="Like '0 9 * * MON-FRI'; may be repeated."),
]
Every = Annotated[str | None, typer.Option(metavar="TIME", help="An interval, like 15m or 1d.")]
Offset = Annotated[str | None, typer.Option(metavar="TIME", help="Of --every: begin each interval so much later.")]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="Of --cron, like Europe/Berlin (default UTC).")
]
Jitter = Annotated[str | None, typer.Option(metavar="TIME", help="Start up to so much later, at random.")]
Overlap = Annotated[
    str,
    typer.Option(
        metavar="WORD",
        help="If the last run still runs: skip, buffer-one, buffer-all, cancel-other, terminate-other or allow-all.",
    ),
]
CatchUp = Annotated[str, typer.Option("--catch-up", metavar="TIME", help="After an outage, make up for so long back.")]
PauseOnFailure = Annotated[bool, typer.Option("--pause-on-failure", help="Pause when a run fails.")]
Paused = Annotated[bool, typer.Option("--paused", help="Create it paused.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the schedule of this id.")]


@schedule_command
def create(  # noqa: PLR0913, PLR0917 - each is an option of the command
    schedule_id: Id, file: File, cron: Cron = None, every: Every = None, offset: Offset = None, timezone: Zone = None,
    jitter: Jitter = None, overlap: Overlap = "skip", catch_up: CatchUp = "1h",
    pause_on_failure: PauseOnFailure = False, paused: Paused = False, replace: Replace = False, inputs: Inputs = None,
    agent: Agent = None,
) -> ExitCode:  # fmt: skip
    """Start a file by the clock, with --cron or --every.

    Each start is a run of its own, so its calls have ids of their own.
    """
    from cli.commands import schedule as implementation

    times = implementation.Times(tuple(cron or ()), every, offset, timezone, jitter)
    policy = implementation.Policy(overlap, catch_up, pause_on_failure, paused, replace)
    return implementation.create(schedule_id, file, times, policy, implementation.Source(tuple(inputs or ()), agent))


@schedule_command
def list_(as_json: AsJson = False) -> ExitCode:
    """List schedules: what they start, when next, and what they started last."""
    from cli.commands import schedule as implementation

    return implementation.list_schedules(as_json=as_json)


@schedule_command
def pause(schedule_id: Id, note: Note = None) -> ExitCode:
    """Start nothing until it is resumed; runs continue."""
    from cli.commands import schedule as implementation

    return implementation.pause(schedule_id, note)


@schedule_command
def resume(schedule_id: Id, note: Note = None) -> ExitCode:
    """Resume a paused schedule; what it missed is not made up for."""
    from cli.commands import schedule as implementation

    return implementation.resume(schedule_id, note)


@schedule_command
def trigger(schedule_id: Id, overlap: Overlap = "allow-all") -> ExitCode:
    """Start a run now, whatever the clock says."""
    from cli.commands import schedule as implementation

    return implementation.trigger(schedule_id, overlap)


@schedule_command
def delete(schedule_id: Id, yes: Yes = False) -> ExitCode:
    """Delete a schedule; its runs continue."""
    from cli.commands import schedule as implementation

    return implementation.delete(schedule_id, yes=yes)
