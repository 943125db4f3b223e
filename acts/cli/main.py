"""The program ``acts``: its help, its version, its exit, and the settings of the folder that it runs in.

A command's module is imported when the command runs, so that ``acts --help`` needs neither pydantic nor Temporal.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from acts.language.variables import find_mistake

HELP: Final = """Run plans of tool calls as durable Temporal workflows.

Exit codes: 0 done, 1 the plan failed, 2 the input is wrong, 3 no server.
A run that was rejected or cancelled, or is partial, ends with 1 as well.

The server: TEMPORAL_ADDRESS or a profile of Temporal's configuration, else the one of
`acts dev` in this folder or above, and no other where that is down, else 127.0.0.1:7233.

Begin with `acts init my-plans`; tab completion: `acts --install-completion`.
"""

# Each command in the order of the help: its module in `acts.cli.commands`, and how its docstring begins
COMMANDS: Final = {
    "dev": ("dev", "Start a server, its Web UI and a worker; Ctrl-C stops all of it."),
    "ui": ("dev", "Serve the inbox: pending decisions of all runs"),
    "demo": ("dev", "Run example plans on a server in memory, and stop it."),
    "worker": ("dev", "Start a worker, as `python -m acts.worker` does."),
    "run": ("start", "Run a plan, or an agent, and wait for its end."),
    "mcp": ("mcp", "Serve validate, simulate, run, status, pending and why as MCP tools on standard input and output."),
    "init": ("testing", "Write a plan with tools, tests and a README into a folder; it runs at once."),
    "trust": ("testing", "Let commands in a folder load the tools that its acts.toml names."),
    "test": ("testing", "Run the tests of plans (*.test.yaml) with canned results."),
    "save": ("testing", "Make the plan of a run that has ended one by name, which planners see as a tool"),
    "list": ("read", "List runs, newest first: phase, cost, tools."),
    "show": ("read", "Show a run: its calls, result and errors; of an agent also its ticks and its usage."),
    "events": ("read", "Print what happens in a run and below it"),
    "why": ("read", "Show where a value of a run came from: who wrote it, what that call had read, and so on."),
    "diff": ("read", "Show how a run's plan differs from the one it was started with"),
    "tools": ("read", "List the tools that the workers serve; with a name, the schema of one."),
    "validate": ("plans", "List every problem of a request."),
    "simulate": ("plans", "Show what a plan would do: waves, outcomes, forecast."),
    "graph": ("plans", "Draw a plan; the plan of a run with the states of its calls."),
    "prompt": ("plans", "Show what a planner is shown for a request, or was shown in a run"),
    "schema": ("plans", "Print the JSON Schema of a request file, for editors."),
    "pending": ("decide", "List everything that waits for a person, across all runs or in one"),
    "approve": ("decide", "Approve a plan or a call that waits."),
    "reject": ("decide", "Reject a plan or a call that waits, with a reason."),
    "answer": ("decide", "Answer what a person is asked."),
    "revoke": ("decide", "Ask about calls again that somebody has approved from now on."),
    "edit": ("decide", "Change the plan that waits, or one call, in $EDITOR."),
    "provide": ("decide", "Send a run a message that it waits for."),
    "cancel": ("decide", "Cancel a run: running calls are cancelled, no more start."),
    "pause": ("decide", "Start no more calls of a run; running ones continue."),
    "resume": ("decide", "Resume a paused run."),
    "retry": ("start", "Run what a plan has not completed: completed calls are taken over"),
    "fork": ("start", "Run a plan another way from one call on: the calls before it are taken over."),
    "undo": ("start", "Undo what a run has completed, in reverse order, by the calls that its tools name"),
    "replay": ("operations", "Replay the history of a run with the code that is installed here"),
    "setup": ("operations", "Prepare a namespace: register the search attributes by which runs are found."),
    "deploy-check": ("operations", "Replay the open runs with the code here, before a rollout."),
    "doctor": ("operations", "Check server, workers, settings and models; say what is wrong and what to do."),
    "keygen": ("operations", "Make a key: of an approver, for `acts approve --key`; or for payloads (--codec)."),
    "notify": ("operations", "Post to ACTS_NOTIFY what waits for people, is escalated, fails or spends its budget."),
    "codec-server": ("operations", "Decrypt payloads for the Web UI and for `temporal`"),
    "schedule": ("start", "Start plans and agents by the clock: Temporal's schedules."),
    "storage": ("operations", "Values that ACTS_STORAGE keeps outside of histories."),
}


# Who starts one of these runs the code of the folder, and trusts it from then on
_SERVING: Final = ("dev", "worker")
# These say themselves which variable of the environment is misspelt
_REPORTING: Final = ("doctor", "worker")


class LazyGroup(TyperGroup):
    """The commands; the module of one is imported when it is resolved."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, text) in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            module = import_module(f"acts.cli.commands.{COMMANDS[args[0]][0]}")
            self.commands[args[0]] = typer.main.get_group(module.app).commands[args[0]]
        return super().resolve_command(ctx, args)


class Program(typer.Typer):
    """The app as a program that exits at once: an interpreter that exits soon after the SDK connected may crash."""

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
        traces = sys.modules.get("acts.telemetry.tracing")
        if traces is not None and (tracing := traces.Tracing.current) is not None:
            tracing.stop()
        os._exit(code if isinstance(code, int) else int(bool(code)))


app = Program(
    name="acts", cls=LazyGroup, help=HELP, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
)


def load_commands() -> TyperGroup:
    group = typer.main.get_group(app)
    for name in COMMANDS:
        group.resolve_command(typer.Context(group), [name])
    return group


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        from importlib.metadata import version

        typer.echo(f"acts {version('acts-engine')}")
        raise typer.Exit


Version_ = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def main(ctx: typer.Context, version: Version_ = False) -> None:  # noqa: ARG001, FBT002 - a flag, which exits
    """The options of the program itself. The settings of the folder hold before a command reads its options."""
    _load_project(ctx)
    if ctx.invoked_subcommand not in _REPORTING and (mistake := find_mistake(os.environ)):
        from acts.cli.console import print_message

        print_message(mistake, severity="error")
        raise typer.Exit(2)


def _load_project(ctx: typer.Context) -> None:
    if not Path("acts.toml").is_file():
        return
    from acts.cli.console import CommandError, is_trusted, load_project_file, print_blocks, print_message

    try:
        if ctx.invoked_subcommand in _SERVING or is_trusted(Path()):
            load_project_file()
        elif ctx.invoked_subcommand != "trust":
            text = "acts.toml and the tools that it names are not loaded: this folder is not trusted yet"
            print_message(f"{text} (`acts trust`, or `--activities MODULES` for once)", severity="note")
    except CommandError as error:
        print_blocks(error.blocks)
        raise typer.Exit(error.code) from None
