"""The command ``acts``.

Laws of this file:
- commands and their help only; what a command does is imported when it runs, so that ``acts --help`` needs neither
  pydantic nor Temporal;
- a command, or the coroutine that it returns, returns an exit code or raises a ``CommandError``, which is printed here.
"""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
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
def main(version: Version_ = False) -> None:
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


File = Annotated[str, typer.Argument(metavar="FILE", help="A request in JSON or YAML; - is standard input.")]
Run = Annotated[str, typer.Argument(metavar="ID", help="The id of a run.")]
AnyRun = Annotated[str | None, typer.Argument(metavar="ID", help="The id of a run (default: all runs).")]
FileOrRun = Annotated[str, typer.Argument(metavar="FILE|ID", help="A request, or the id of a run.")]
ValuePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a value, like state.order[0].price.")]
Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="A data, input or state message: JSON, or a file that holds it.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="KEY=JSON", help="Add to the input; a value that is not JSON is a string."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")]
PhaseNames = Annotated[
    list[str] | None,
    typer.Option("--phase", "-p", metavar="PHASE", help="Only in this phase, like awaiting."),
]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only those that wait for a person.")]
ByTool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only those with this tool.")]
ByModel = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only those with this model.")]
MinCost = Annotated[float | None, typer.Option("--min-cost", metavar="USD", help="Only those that cost at least this.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Started within this time, like 30m, 2h or 7d.")]
Older = Annotated[str | None, typer.Option(metavar="TIME", help="Started before this time, like 1h.")]
AllRuns = Annotated[bool, typer.Option("--all", "-a", help="Also runs below others: delegates, instances.")]
WatchList = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds.")]
ShowOnly = Annotated[bool, typer.Option("--show", help="Print the commands for an administrator; change nothing.")]
AsMermaid = Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")]
Agent = Annotated[
    bool | None,
    typer.Option("--agent/--plan", help="What to run the file as (default: see above).", show_default=False),
]
Tick = Annotated[int | None, typer.Option(min=1, help="One tick of a run (default: the latest).")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show every call as it happens.")]
NewId = Annotated[str | None, typer.Option("--id", help="The id of the run (default: a new one).")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, do not wait.")]
RunId = Annotated[str | None, typer.Option(help="One of several runs of the same id (default: the latest).")]
OneInstance = Annotated[
    str | None, typer.Option(metavar="NAME", help="One instance of a batch, whichever run executes it.")
]
InstanceView = Annotated[str | None, typer.Option(metavar="NAME", help="In the view of an instance.")]
Depth = Annotated[int, typer.Option(min=1, max=50, help="How many calls back.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="A tool that this environment does not load is an error, not a warning.")
]
State = Annotated[Path, typer.Option(envvar="ACTS_STATE", help="The folder of the state; one server per folder.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the server (default 7233, or a free one).")]
UiPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the Web UI (default 8233, or a free one).")]
Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Serve the Web UI.")]
MODULES_HELP: Final = "Python modules with Activities, comma separated (default: the examples)."
Modules = Annotated[str | None, typer.Option(envvar="ACTS_ACTIVITIES", metavar="MODULES", help=MODULES_HELP)]
# Of a decision
Call = Annotated[str | None, typer.Option("--call", "-c", metavar="CALL", help="One call, like 2:refund.")]
Instance = Annotated[str | None, typer.Option(metavar="NAME", help="One of several instances.")]
Below = Annotated[
    str | None, typer.Option("--workflow-id", metavar="ID", help="One of several waiting runs below this one.")
]
Version = Annotated[
    int | None, typer.Option(min=1, help="The version that you have seen; the decision is refused for another one.")
]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides (default: the login name).")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; an agent plans again with it.")]
Edited = Annotated[
    str | None, typer.Option("--file", metavar="PLAN", help="Calls, or a call: sent instead of opening an editor.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Send it without asking.")]


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
def run(
    file: File, inputs: Inputs = None, watch: Watch = False, as_json: AsJson = False, run_id: NewId = None,
    detach: Detach = False, agent: Agent = None,
) -> ExitCode:  # fmt: skip
    """Run a plan, or an agent, and wait for its end.

    A file with calls is a plan: they run unchanged. A file with config.model and
    without calls is for an agent: the model plans them. A file with both is a plan too,
    unless it has something that only an agent uses (a schema, config.maxTicks or
    config.step): then its calls are shown to the model, which plans its own.

    A batch of which some instances failed (partial) ends with code 1.
    """
    from cli.commands import run as implementation

    options = implementation.RunOptions(inputs or (), watch, as_json, detach, run_id, agent)
    return implementation.run(file, options)


@command
def list_(  # noqa: PLR0913, PLR0917 - each is an option of the command
    phase: PhaseNames = None, waiting: Waiting = False, tool: ByTool = None, model: ByModel = None,
    min_cost: MinCost = None, since: Since = None, older: Older = None, limit: Limit = 50, below: AllRuns = False,
    as_json: AsJson = False, watch: WatchList = False,
) -> ExitCode:  # fmt: skip
    """List runs, newest first: phase, cost, tools. Filters need `acts setup` once per namespace."""
    from cli.commands import list_runs as implementation
    from cli.runs.run_list import RunFilters
    from cli.text.durations import read_seconds

    filters = RunFilters(
        phase or (), waiting, tool, model, min_cost, read_seconds(since, "--since"), read_seconds(older, "--older"),
        below,
    )  # fmt: skip
    return implementation.list_command(implementation.ListOptions(filters, limit, as_json, watch))


@command
def setup(show: ShowOnly = False) -> ExitCode:
    """Prepare a namespace: register the search attributes by which runs are found."""
    from cli.commands import setup as implementation

    return implementation.setup(show_only=show)


@command
def show(run: Run, as_json: AsJson = False, run_id: RunId = None, instance: OneInstance = None) -> ExitCode:
    """Show a run: its calls, result and errors; of an agent also its ticks and its usage."""
    from cli.commands import show as implementation

    return implementation.show(run, run_id, instance, as_json=as_json)


@command
def why(
    run: Run, path: ValuePath, instance: InstanceView = None, depth: Depth = 5, as_json: AsJson = False
) -> ExitCode:
    """Show where a value of a run came from: who wrote it, what that call had read, and so on."""
    from cli.commands import why as implementation

    return implementation.why(implementation.WhyQuery(run, path, instance, depth), as_json=as_json)


@command
def validate(
    file: File, inputs: Inputs = None, strict: Strict = False, as_json: AsJson = False, agent: Agent = None
) -> int:
    """List every problem of a request. Needs no server.

    Whether a file is a plan or a task for an agent is decided as by `acts run`.
    """
    from cli.commands import offline

    return offline.validate(file, inputs or (), strict=strict, as_json=as_json, agent=agent)


@command
def simulate(file: File, inputs: Inputs = None, as_json: AsJson = False) -> int:
    """Show what a plan would do: waves, outcomes, forecast. Runs nothing."""
    from cli.commands import offline

    return offline.simulate(file, inputs or (), as_json=as_json)


@command
def graph(what: FileOrRun, inputs: Inputs = None, mermaid: AsMermaid = False) -> ExitCode:
    """Draw a plan; the plan of a run with the states of its calls."""
    from cli.text.source_text import looks_like_file

    if looks_like_file(what):
        from cli.commands import offline

        return offline.draw_file(what, inputs or (), mermaid=mermaid)
    from cli.commands import run_graph

    return run_graph.draw_run(what, mermaid=mermaid)


@command
def prompt(what: FileOrRun, inputs: Inputs = None, tick: Tick = None, as_json: AsJson = False) -> ExitCode:
    """Show what a planner is shown for a request, or was shown in a run, with an estimate of its tokens by part."""
    from cli.commands import show_prompt
    from cli.text.source_text import looks_like_file

    if looks_like_file(what):
        return show_prompt.prompt_of_file(what, inputs or (), tick, as_json=as_json)
    return show_prompt.prompt_of_id(what, tick, as_json=as_json)


@command
def schema() -> int:
    """Print the JSON Schema of a request file, for editors."""
    from cli.commands import offline

    return offline.print_schema()


@command
def pending(run: AnyRun = None, as_json: AsJson = False) -> ExitCode:
    """List everything that waits for a person, across all runs or in one."""
    from cli.commands import pending as implementation

    return implementation.pending(run, as_json=as_json)


def _target(run: str, by: str | None, **fields: Any) -> Any:
    from cli.commands.decide import ApprovalTarget, login_name

    return ApprovalTarget(run, by=login_name() if by is None else by, **fields)


@command
def approve(
    run: Run, call: Call = None, version: Version = None, by: By = None, note: Note = None, instance: Instance = None,
    workflow_id: Below = None,
) -> ExitCode:  # fmt: skip
    """Approve a plan or a call that waits."""
    from cli.commands.decide import decide

    target = _target(run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=note)
    return decide("approve", target)


@command
def reject(
    run: Run, reason: Reason, call: Call = None, version: Version = None, by: By = None, instance: Instance = None,
    workflow_id: Below = None,
) -> ExitCode:  # fmt: skip
    """Reject a plan or a call that waits, with a reason."""
    from cli.commands.decide import decide

    target = _target(run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=reason)
    return decide("reject", target)


@command
def edit(  # noqa: PLR0913, PLR0917 - each is an option of the command
    run: Run, call: Call = None, file: Edited = None, yes: Yes = False, version: Version = None, by: By = None,
    note: Note = None, instance: Instance = None, workflow_id: Below = None,
) -> ExitCode:  # fmt: skip
    """Change the plan that waits, or one call, in $EDITOR. The new version then waits for an approval of its own."""
    from cli.commands import edit as implementation

    target = _target(run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=note)
    return implementation.edit(target, implementation.EditOptions(file, yes))


@command
def diff(run: Run) -> ExitCode:
    """Show how a run's plan differs from the one it was started with; of an agent, from the plan before."""
    from cli.commands import diff as implementation

    return implementation.diff(run)


@command
def cancel(run: Run) -> ExitCode:
    """Cancel a run: running calls are cancelled, no more start."""
    from cli.commands import control

    return control.cancel(run)


@command
def pause(run: Run) -> ExitCode:
    """Start no more calls of a run; running ones continue."""
    from acts.language.wire import PAUSE
    from cli.commands import control

    return control.send_signal(run, PAUSE)


@command
def resume(run: Run) -> ExitCode:
    """Resume a paused run."""
    from acts.language.wire import RESUME
    from cli.commands import control

    return control.send_signal(run, RESUME)


@command
def provide(run: Run, message: Message) -> ExitCode:
    """Send a run a message that it waits for."""
    from cli.commands import control

    return control.provide(run, message)


if __name__ == "__main__":
    app()
