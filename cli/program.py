"""The program ``acts``: its exit, its version, and how a command is registered.

Laws of this file: it knows no command; it imports nothing that ``acts --help`` does not need.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

HELP: Final = """Run plans of tool calls as durable Temporal workflows.

Exit codes: 0 done, 1 the plan failed, 2 the input is wrong, 3 no server.
A run that was rejected or cancelled, or is partial, ends with 1 as well.

The server: TEMPORAL_ADDRESS or a profile of Temporal's configuration, else the dev
server of this folder (`acts dev`), else 127.0.0.1:7233.
"""


class Program(typer.Typer):
    """The app as a program that exits at once, without waiting for threads of the SDK.

    An interpreter that exits soon after the SDK connected sometimes crashes at shutdown (code 134 or 139), and scripts
    read the exit code.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        code: Any = 0
        try:
            super().__call__(*args, **kwargs)
        except SystemExit as ending:
            code = ending.code
            if "temporalio" not in sys.modules:
                raise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        if (traces := sys.modules.get("telemetry.tracing")) is not None:
            traces.flush()
        os._exit(code if isinstance(code, int) else int(bool(code)))


app = Program(
    name="acts",
    help=HELP,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        from importlib.metadata import version

        typer.echo(f"acts {version('acts-engine')}")
        raise typer.Exit


Version_ = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def main(version: Version_ = False) -> None:  # noqa: FBT002 - a flag of the command line
    """The options of the program itself."""


ExitCode = int | Coroutine[Any, Any, int]


def command(function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Register a command; its errors are printed and become exit codes."""

    @functools.wraps(function)
    def run_command(*args: Any, **kwargs: Any) -> None:
        from cli.command_errors import CommandError
        from cli.console import configure_streams, print_blocks

        configure_streams()
        try:
            code = function(*args, **kwargs)
            if isinstance(code, Coroutine):
                from cli.runs.server import run_async

                code = run_async(code)
        except CommandError as error:
            print_blocks(error.blocks)
            code = error.code
        raise typer.Exit(code)

    app.command(function.__name__.rstrip("_"))(run_command)
    return function
