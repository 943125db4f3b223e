"""Commands that look at runs. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from cli.options import (
    AllRuns,
    AsJson,
    ByModel,
    ByTool,
    Depth,
    Here,
    InstanceView,
    Limit,
    MinCost,
    Older,
    OneInstance,
    PhaseNames,
    Run,
    RunId,
    Since,
    ToolName,
    ValuePath,
    Waiting,
    Watch,
    WatchList,
)
from cli.program import ExitCode, command


@command
def list_(  # noqa: PLR0913, PLR0917 - each is an option of the command
    phase: PhaseNames = None, waiting: Waiting = False, tool: ByTool = None, model: ByModel = None,
    min_cost: MinCost = None, since: Since = None, older: Older = None, limit: Limit = 50, below: AllRuns = False,
    as_json: AsJson = False, watch: WatchList = False,
) -> ExitCode:  # fmt: skip
    """List runs, newest first: phase, cost, tools. Filters need `acts setup` once per namespace.

    Examples:
      acts list --waiting
      acts list --phase failed --since 1d
      acts list --tool refund --min-cost 0.5
    """
    from cli.commands import list_runs as implementation
    from cli.runs.run_list import RunFilters
    from cli.text.durations import read_seconds

    filters = RunFilters(
        phase or (), waiting, tool, model, min_cost, read_seconds(since, "--since"), read_seconds(older, "--older"),
        below,
    )  # fmt: skip
    return implementation.list_command(implementation.ListOptions(filters, limit, as_json, watch))


@command
def show(
    run: Run, as_json: AsJson = False, run_id: RunId = None, instance: OneInstance = None, watch: Watch = False
) -> ExitCode:
    """Show a run: its calls, result and errors; of an agent also its ticks and its usage.

    Examples:
      acts show plan-1f2e3d4c
      acts show batch-7 --instance c4
    """
    from cli.commands import show as implementation

    return implementation.show(run, run_id, instance, as_json=as_json, watch=watch)


@command
def why(
    run: Run, path: ValuePath, instance: InstanceView = None, depth: Depth = 5, as_json: AsJson = False
) -> ExitCode:
    """Show where a value of a run came from: who wrote it, what that call had read, and so on.

    Examples:
      acts why plan-1f2e3d4c state.order[0].price
    """
    from cli.commands import why as implementation

    return implementation.why(implementation.WhyQuery(run, path, instance, depth), as_json=as_json)


@command
def diff(run: Run, as_json: AsJson = False) -> ExitCode:
    """Show how a run's plan differs from the one it was started with; of an agent, from the plan before."""
    from cli.commands import diff as implementation

    return implementation.diff(run, as_json=as_json)


@command
def tools(name: ToolName = None, here: Here = False, as_json: AsJson = False) -> ExitCode:
    """List the tools that the workers serve; with a name, the schema of one.

    Examples:
      acts tools
      acts tools chargeCard
      acts tools --here
    """
    from cli.commands import list_tools as implementation

    return implementation.tools(name, here=here, as_json=as_json)
