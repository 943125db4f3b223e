"""``acts show``: one run, going on or over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cli.command_errors import DONE, CommandError, MessageBlock
from cli.console import clean, console, out_json, print_blocks, say
from cli.render.tables import (
    MAX_ROWS,
    calls_table,
    failure_blocks,
    headline,
    instances_table,
    print_outcome,
    usage_text,
)
from cli.runs import server
from cli.runs.follow import progress
from cli.runs.forecast_view import MADE_AGAIN, OWN, own, print_forecast, side_by_side
from cli.runs.instance_view import elsewhere, instance_of, look_at
from cli.runs.pending_view import print_decisions, read_waits, wait_lines
from cli.runs.queries import status_of
from cli.runs.run_outcome import Outcome, wait
from cli.text.problems import blocks

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription


def show(run: str, run_id: str | None, instance: str | None = None, *, as_json: bool) -> int:
    """Show a run, or one instance of it. The exit code is 0 however it ended: showing it was what was asked.

    Raises:
        Refusal: there is no such run, it has no such instance, or no server.
    """
    return server.go(_show(run, run_id, instance, as_json=as_json))


async def _show(run: str, run_id: str | None, instance: str | None, *, as_json: bool) -> int:
    client = await server.connect()
    handle = server.handle(client, run, run_id)
    try:
        found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    except CommandError as refusal:
        raise await _named(client, run, refusal) from None
    if instance is not None:
        return await _show_instance(client, found, instance, as_json=as_json)
    running = found.status is not None and found.status.name == "RUNNING"
    if running:
        status = await progress(client, handle)
        if as_json:
            out_json({**_facts(found), "progress": status})
        else:
            _print_running(found, status)
        return DONE
    outcome = await ended(client, found)
    table = await side_by_side(client, found, outcome.result)
    if as_json:
        ending = {"status": outcome.status, "result": outcome.result, "error": outcome.error}
        out_json({**_facts(found), **ending, **({"forecast": table} if table else {})})
    else:
        print_outcome(outcome, found.id, found.workflow_type, _lasted(found), f"run {found.run_id}")
        if outcome.result is None and not outcome.problems:
            await _print_last(client, found)
        _print_how_to_look_closer(found.id, outcome.result)
        print_blocks(blocks(outcome.problems, None))
        print_blocks(failure_blocks(outcome))
        print_forecast(table, OWN if own(outcome.result) else MADE_AGAIN)
    return DONE


async def ended(client: Client, found: WorkflowExecutionDescription) -> Outcome:
    """How exactly this run ended."""
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    return await wait(handle, follow=False)


def _print_running(found: WorkflowExecutionDescription, status: dict[str, Any] | None) -> None:
    screen = console()
    phase = str(status.get("phase")) if status else "running"
    tick = f"tick {status['tick']}" if status and status.get("tick") else ""
    screen.print(headline(phase, found.id, found.workflow_type, tick, f"for {_lasted(found)}", f"run {found.run_id}"))
    if status is None:
        say("no worker answers, so its calls cannot be shown; it goes on as soon as one does: `acts dev`")
        return
    if status.get("calls"):
        screen.print(calls_table(status["calls"], MAX_ROWS))
    if status.get("instances"):
        screen.print(instances_table(status["instances"], MAX_ROWS))
        _print_how_to_look_closer(found.id, status)
    if (status.get("usage") or {}).get("requests"):
        screen.print(f"usage  {clean(usage_text(status['usage']))}", style="dim")
    for text in status.get("notes") or ():
        screen.print(f"note: {clean(text)}", style="dim")
    if any(c.get("waitsFor") for c in status.get("calls") or ()):
        screen.print(f"waits for a message: acts provide {clean(found.id)} FILE", style="magenta")
    for text in wait_lines(found.id, read_waits(status.get("pending")) or []):
        screen.print(text, style="magenta")
    print_decisions(status.get("decisions"))


async def _print_last(client: Client, found: WorkflowExecutionDescription) -> None:
    """The calls and instances of a run that ended without a result: a worker can still tell them."""
    status = await status_of(client.get_workflow_handle(found.id, run_id=found.run_id))
    if status and status.get("calls"):
        console().print(calls_table(status["calls"], MAX_ROWS))
    if status and status.get("instances"):
        console().print(instances_table(status["instances"], MAX_ROWS))
    _print_how_to_look_closer(found.id, status)


def _print_how_to_look_closer(run: str, told: Any) -> None:
    """Where a run has instances, the command that shows one of them."""
    names = list(told.get("instances") or ()) if isinstance(told, dict) else []
    if names:
        console().print(f"one of them: {look_at(run, names[0])}", style="dim")


# -- one instance ----------------------------------------------------------------


async def _named(client: Client, run: str, refusal: CommandError) -> CommandError:
    """There is no run of this id; where it names an instance that has no run of its own, how to look at that."""
    command = await elsewhere(client, run) if "/" in run else ""
    return (
        CommandError(MessageBlock(refusal.blocks[0].head, "", [("hint", f"that is an instance: {command}")]))
        if command
        else refusal
    )


async def _show_instance(client: Client, found: WorkflowExecutionDescription, name: str, *, as_json: bool) -> int:
    one = await instance_of(client, found, name)
    if as_json:
        out_json({**_facts(found), "instance": {"id": name, "run": one.run, **one.item}})
        return DONE
    outcome = Outcome(str(one.item["status"]), one.item)
    print_outcome(outcome, f"{found.id} [{name}]", "" if one.run == found.id else f"in {one.run}")
    for text in wait_lines(found.id, one.waits, [w for w in one.waits if w.instance == name]):
        console().print(text, style="magenta")
    print_blocks(failure_blocks(outcome))
    return DONE


def _facts(found: WorkflowExecutionDescription) -> dict[str, Any]:
    return {
        "id": found.id,
        "runId": found.run_id,
        "workflow": found.workflow_type,
        "status": found.status.name.lower() if found.status else None,
        "started": _iso(found.start_time),
        "closed": _iso(found.close_time),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _lasted(found: WorkflowExecutionDescription) -> str:
    seconds = ((found.close_time or datetime.now(UTC)) - found.start_time).total_seconds()
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
