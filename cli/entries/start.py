"""Commands that start something. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import (
    Agent,
    AsJson,
    Delay,
    Detach,
    File,
    IfEnded,
    IfRunning,
    Inputs,
    Modules,
    NewId,
    Port,
    ResultsFile,
    SetFile,
    State,
    Ui,
    UiPort,
    Watch,
)
from cli.program import ExitCode, command


@command
def dev(
    state: State = Path(".acts"), port: Port = None, ui_port: UiPort = None, ui: Ui = True, activities: Modules = None
) -> int:
    """Start a server, its Web UI and a worker; Ctrl-C stops all of it."""
    from cli.commands import dev as implementation

    return implementation.dev(state, port, ui_port, ui=ui, modules=activities)


@command
def demo() -> int:
    """Run example plans on a server in memory, and stop it."""
    from cli.commands import demo as implementation

    return implementation.demo()


@command
def run(  # noqa: PLR0913, PLR0917 - each is an option of the command
    file: File, inputs: Inputs = None, watch: Watch = False, as_json: AsJson = False, run_id: NewId = None,
    detach: Detach = False, agent: Agent = None, if_running: IfRunning = "fail", if_ended: IfEnded = "again",
    delay: Delay = None, set_file: SetFile = None, results: ResultsFile = None,
) -> ExitCode:  # fmt: skip
    """Run a plan, or an agent, and wait for its end.

    A file with calls is a plan: they run unchanged. A file with config.model and
    without calls is for an agent: the model plans them. A file with both is a plan too,
    unless it has something that only an agent uses (a schema, config.maxTicks or
    config.step): then its calls are shown to the model, which plans its own.

    A batch of which some instances failed (partial) ends with code 1.

    With --set, the plan runs for each row of a file, which its calls read as one kind of
    data, such as †order.total; a bar shows how far it has come.

    Examples:
      acts run plan.yaml --watch
      acts run plan.yaml -i n=3 -i name=Ann --json | jq .state
      acts run plan.yaml --detach --id order-7
      acts run plan.yaml --set orders.csv --results out.jsonl
    """
    from cli.commands import run as implementation
    from cli.runs.start_policy import StartPolicy
    from cli.text.durations import read_seconds

    policy = StartPolicy(if_running, if_ended, read_seconds(delay, "--delay"))
    options = implementation.RunOptions(inputs or (), watch, as_json, detach, run_id, agent, policy, set_file, results)
    return implementation.run(file, options)


@command
def mcp(
    allow_decisions: Annotated[
        bool, typer.Option("--allow-decisions", help="Offer the tool `approve`, which decides for you.")
    ] = False,
) -> ExitCode:
    """Serve validate, simulate, run, status, pending and why as MCP tools on standard input and output."""
    from cli.commands.serve_mcp import serve_mcp

    return serve_mcp(allow_decisions=allow_decisions)
