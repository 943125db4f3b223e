"""The program ``acts``: its exit, its version, and how a command is registered.

Laws of this file: it knows no command; it imports nothing that ``acts --help`` does not need.
"""

from __future__ import annotations

import functools
import inspect
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

Begin with `acts init my-plans`; tab completion: `acts --install-completion`.
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
def main(version: Version_ = False) -> None:  # noqa: ARG001, FBT002 - a flag of the command line, which exits
    """The options of the program itself. The settings of the folder hold before a command reads its options."""
    if not os.path.isfile("acts.toml"):  # noqa: PTH113 - `acts COMMAND --help` needs nothing else of pathlib
        return
    from cli.command_errors import CommandError
    from cli.console import print_blocks
    from cli.text.project_file import load_project_file

    try:
        load_project_file()
    except CommandError as error:
        print_blocks(error.blocks)
        raise typer.Exit(error.code) from None


ExitCode = int | Coroutine[Any, Any, int]


def command(function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Register a command; its errors are printed and become exit codes."""
    return _register(app, function)


def command_group(name: str, text: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """What registers the commands of a group: ``acts NAME COMMAND``."""
    group = typer.Typer(name=name, help=text, rich_markup_mode=None, no_args_is_help=True)
    app.add_typer(group)
    return functools.partial(_register, group)


def _register(group: typer.Typer, function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
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

    group.command(function.__name__.rstrip("_").replace("_", "-"), help=_help_text(function))(run_command)
    return function


def _help_text(function: Callable[..., Any]) -> str:
    """The docstring; its examples stay a line each (that is what click's mark says), ready to be copied."""
    text = inspect.cleandoc(function.__doc__ or "")
    return text.replace("\n\nExamples:\n", "\n\n\b\nExamples:\n")
