"""``acts show``: one run, or one instance of it, while it runs and after it has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from acts.views.set_counts import named_instances, set_counts
from cli.command_errors import EXIT_DONE, CommandError, command_error, message
from cli.commands.run import watch_run
from cli.console import clean, console, print_blocks, print_err, print_json
from cli.render.cut_lines import cut_lines
from cli.render.pending_view import approval_lines, print_decisions
from cli.render.simulation_view import print_forecast
from cli.render.tables import failure_blocks, headline, print_outcome, print_tables, usage_text
from cli.runs.instance_lookup import read_instance, show_command, suggest_command
from cli.runs.progress import add_parameters, read_progress
from cli.runs.run_forecast import read_forecast
from cli.runs.run_outcome import Outcome
from cli.runs.run_reader import RunReader, open_run, read_approvals
from cli.text.problems import problem_blocks

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription


async def show(id_: str, run_id: str | None, instance: str | None = None, *, as_json: bool, watch: bool = False) -> int:
    """Show a run, or an instance of it; with ``watch``, its progress until it ends. The exit code is 0 in any case."""
    run = await open_run(id_, run_id)
    try:
        info = await run.describe()
    except CommandError as error:
        raise await _missing_run_error(run, error) from None
    if watch and instance is None and info.close_time is None:
        await watch_run(run)
        info = await run.describe()
    if instance is not None:
        await _show_instance(run, info, instance, as_json=as_json)
    elif (outcome := await run.outcome()) is None:
        status = await read_progress(run)
        if as_json:
            obstacle = await run.obstacle() if status is None else ""
            print_json({**_facts(info), "progress": status, **({"obstacle": obstacle} if obstacle else {})})
        else:
            _print_running(info, status, await run.obstacle() if status is None else "")
    else:
        await _show_ended(run, info, outcome, as_json=as_json)
    return EXIT_DONE


async def _missing_run_error(run: RunReader, error: CommandError) -> CommandError:
    """No run has this id; if it names an instance that has no run of its own, the hint shows that."""
    command = await suggest_command(run) if "/" in run.id else ""
    return command_error(error.blocks[0].head, hint=f"that is an instance: {command}") if command else error


async def _show_ended(run: RunReader, info: WorkflowExecutionDescription, outcome: Outcome, *, as_json: bool) -> None:
    is_set = isinstance(outcome.result, dict) and set_counts(outcome.result) is not None
    title, table = ("", None) if is_set else await read_forecast(run)  # a forecast is that of one row
    if as_json:
        ending = {"status": outcome.status, "result": outcome.result, "error": outcome.error}
        print_json({**_facts(info), **ending, **({"forecast": table} if table else {})})
        return
    print_outcome(outcome, info.id, info.workflow_type, _duration(info), f"run {info.run_id}")
    report = outcome.result
    if outcome.result is None and not outcome.problems:
        report = await run.status() or {}  # a worker still knows the calls of a run that ended without a result
        print_tables(report)
    _print_instance_command(info.id, report)
    for text in cut_lines(info.id, outcome.result):
        console().print(text, style="yellow")
    print_blocks(problem_blocks(outcome.problems, None))
    print_blocks(failure_blocks(outcome))
    print_forecast(title, table)


def _print_running(info: WorkflowExecutionDescription, status: dict[str, Any] | None, obstacle: str) -> None:
    screen = console()
    phase = str(status.get("phase")) if status else "running"
    tick = f"tick {status['tick']}" if status and status.get("tick") else ""
    duration = f"for {_duration(info)}"
    screen.print(headline(phase, info.id, info.workflow_type, tick, duration, f"run {info.run_id}"))
    if status is None and obstacle:
        hint = "the server begins a failed workflow task again, as long as it takes; the worker's log says more"
        print_blocks([message(obstacle, hint=hint)])
        return
    if status is None:
        print_err("no worker answers, so its calls are unknown; it continues as soon as one runs: `acts dev`")
        return
    print_tables(status)
    _print_instance_command(info.id, status)
    if (status.get("usage") or {}).get("requests"):
        screen.print(f"usage  {clean(usage_text(status['usage']))}", style="dim")
    for text in status.get("notes") or ():
        screen.print(f"note: {clean(text)}", style="dim")
    if any(c.get("waitsFor") for c in status.get("calls") or ()):
        screen.print(f"waits for a message: acts provide {clean(info.id)} FILE", style="magenta")
    for text in approval_lines(info.id, read_approvals(status.get("pending")) or []):
        screen.print(text, style="magenta")
    print_decisions(status.get("decisions"))


def _print_instance_command(run: str, report: Any) -> None:
    """The command that shows one instance of a batch."""
    names = list(named_instances(report)) if isinstance(report, dict) else []
    if names:
        console().print(f"one of them: {show_command(run, names[0])}", style="dim")


async def _show_instance(run: RunReader, info: WorkflowExecutionDescription, name: str, *, as_json: bool) -> None:
    view = await read_instance(run, name)
    if as_json:
        print_json({**_facts(info), "instance": {"id": name, "run": view.run_id, **view.item}})
        return
    outcome = Outcome(str(view.item["status"]), view.item)
    print_outcome(outcome, f"{info.id} [{name}]", "" if view.run_id == info.id else f"in {view.run_id}")
    if info.close_time is None:
        root = await run.root()
        approvals = await root.pending() or []
        own = [a for a in approvals if a.instance == name and f"{a.workflow_id}/".startswith(f"{run.id}/")]
        for text in approval_lines(root.id, approvals, await add_parameters(root, own)):
            console().print(text, style="magenta")
    print_blocks(failure_blocks(outcome))


def _facts(info: WorkflowExecutionDescription) -> dict[str, Any]:
    return {
        "id": info.id,
        "runId": info.run_id,
        "workflow": info.workflow_type,
        "status": info.status.name.lower() if info.status else None,
        "started": _iso(info.start_time),
        "closed": _iso(info.close_time),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _duration(info: WorkflowExecutionDescription) -> str:
    seconds = ((info.close_time or datetime.now(UTC)) - info.start_time).total_seconds()
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
