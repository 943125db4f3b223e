"""What the commands share: how one is registered, and the arguments and options of several, each with its help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from acts.cli.console import CommandError, command_error, configure_streams, print_blocks, print_err

ExitCode = int | Coroutine[Any, Any, int]

File = Annotated[str, typer.Argument(metavar="FILE", help="A request in JSON or YAML; - is standard input.")]
FileOrRun = Annotated[str, typer.Argument(metavar="FILE|ID", help="A request, or the id of a run.")]
Run = Annotated[str, typer.Argument(metavar="ID", help="The id of a run.")]
RunId = Annotated[str | None, typer.Option(help="One of several runs of the same id (default: the latest).")]
NewId = Annotated[str | None, typer.Option("--id", help="The id of the run (default: a new one).")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="KEY=JSON", help="Add to the input; a value that is not JSON is a string."),
]
Agent = Annotated[
    bool | None,
    typer.Option("--agent/--plan", help="What to run the file as (default: see above).", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show every call as it happens.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, do not wait.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")]


class CommandGroup(typer.Typer):
    """Commands that return an exit code, or a coroutine of one; a ``CommandError`` is printed and becomes its code."""

    def __init__(self, name: str | None = None, text: str | None = None) -> None:
        super().__init__(name=name, help=text, rich_markup_mode=None, no_args_is_help=True)

    def add(self, function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
        """Register a function under its name, with its docstring as help; examples in it stay a line each."""

        @functools.wraps(function)
        def run_command(*args: Any, **kwargs: Any) -> None:
            configure_streams()
            try:
                code = function(*args, **kwargs)
                if isinstance(code, Coroutine):
                    from acts.cli.runs.server import run_async

                    code = run_async(code)
            except CommandError as error:
                print_blocks(error.blocks)
                code = error.code
            raise typer.Exit(code)

        text = inspect.cleandoc(function.__doc__ or "").replace("\n\nExamples:\n", "\n\n\b\nExamples:\n")
        self.command(function.__name__.rstrip("_").replace("_", "-"), help=text)(run_command)
        return function


def read_seconds(text: str | None, option: str) -> float | None:
    """The seconds of ``30s``, ``2h``, ``7d``, or a number; None stays None.

    Raises:
        CommandError: the text is no duration.
    """
    from acts.language.config import parse_seconds

    if text is None:
        return None
    try:
        return parse_seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise command_error(f"{text!r} is no duration", where=option, hint="for example 30s, 2h or 7d") from None


def require_yes(question: str, refusal: str, *, yes: bool) -> None:
    """Ask a question that ``--yes`` answers; no answer means no, and raises a ``CommandError``."""
    try:
        yes = yes or typer.confirm(question, err=True)
    except typer.Abort:
        print_err()
    if not yes:
        raise command_error(refusal, hint="--yes does it without asking")
