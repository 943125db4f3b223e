"""Commands about plans; most need no server. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from cli.options import Agent, AsJson, AsMermaid, File, FileOrRun, Inputs, Like, Strict, Tick
from cli.program import ExitCode, command


@command
def validate(
    file: File, inputs: Inputs = None, strict: Strict = False, as_json: AsJson = False, agent: Agent = None
) -> int:
    """List every problem of a request. Needs no server.

    Whether a file is a plan or a task for an agent is decided as by `acts run`.

    Examples:
      acts validate plan.yaml
    """
    from cli.commands import offline

    return offline.validate(file, inputs or (), strict=strict, as_json=as_json, agent=agent)


@command
def simulate(file: File, inputs: Inputs = None, like: Like = None, as_json: AsJson = False) -> ExitCode:
    """Show what a plan would do: waves, outcomes, forecast. Runs nothing.

    Its time is known where tools declare `_options.expected`, or from earlier runs (--like).

    Examples:
      acts simulate plan.yaml -i n=3
      acts simulate plan.yaml --like plan-1f2e3d4c
    """
    from cli.commands import offline

    if not like:
        return offline.simulate(file, inputs or (), as_json=as_json)
    from cli.commands import simulate_like

    return simulate_like.simulate(file, inputs or (), like, as_json=as_json)


@command
def graph(what: FileOrRun, inputs: Inputs = None, mermaid: AsMermaid = False) -> ExitCode:
    """Draw a plan; the plan of a run with the states of its calls.

    Examples:
      acts graph plan.yaml
      acts graph plan-1f2e3d4c --mermaid
    """
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
