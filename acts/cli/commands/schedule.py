"""``acts schedule``: plans and agents that start by the clock, as Temporal's schedules.

A Request that no worker could run is not scheduled: it is validated as ``acts run`` does. A schedule starts ordinary
runs, under ids of its own with the time behind them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from acts.cli.command_line import Agent, AsJson, CommandGroup, File, Inputs, Note, Yes, read_seconds, require_yes
from acts.cli.console import EXIT_DONE, clean, command_error, console, print_err, print_json
from acts.cli.render.tables import text_table
from acts.cli.runs import server
from acts.cli.text.preflight import check_file, require_valid
from acts.language.wire import AGENT, PLAN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from temporalio.client import ScheduleHandle, ScheduleListDescription, ScheduleOverlapPolicy

# The SDK's words
OverlapWord = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a schedule; its runs are called ID-TIME.")]
Cron = Annotated[
    list[str] | None,
    typer.Option("--cron", metavar="CRON", help="Like '0 9 * * MON-FRI'; may be repeated."),
]
Every = Annotated[str | None, typer.Option(metavar="TIME", help="An interval, like 15m or 1d.")]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="Of --cron, like Europe/Berlin (default UTC).")
]
Overlap = Annotated[
    OverlapWord,
    typer.Option(
        metavar="WORD",
        help="If the last run still runs: skip, buffer-one, buffer-all, cancel-other, terminate-other or allow-all.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the schedule of this id.")]

app = CommandGroup()
schedule = CommandGroup("schedule", "Start plans and agents by the clock: Temporal's schedules.")
app.add_typer(schedule)


@schedule.add
async def create(
    schedule_id: Id, file: File, cron: Cron = None, every: Every = None, timezone: Zone = None,
    overlap: Overlap = "skip", replace: Replace = False, inputs: Inputs = None, agent: Agent = None,
) -> int:  # fmt: skip
    """Start a file by the clock, with --cron or --every.

    Each start is a run of its own, so its calls have ids of their own.
    """
    from temporalio import client as sdk

    if bool(cron) == bool(every):
        raise command_error("say when to start: either --cron, or --every", hint="--cron '0 9 * * MON', --every 1h")
    seconds = read_seconds(every, "--every")
    intervals = [] if seconds is None else [sdk.ScheduleIntervalSpec(every=timedelta(seconds=seconds))]
    spec = sdk.ScheduleSpec(cron_expressions=cron or [], intervals=intervals, time_zone_name=timezone)
    source, request, preflight = check_file(file, inputs, agent=agent)
    require_valid(preflight, source)
    workflow = AGENT if preflight.agent else PLAN
    client = await server.connect()
    action = sdk.ScheduleActionStartWorkflow(workflow, request, id=schedule_id, task_queue=server.task_queue())
    # What an outage of the server has kept from starting is made up for, an hour back
    policy = sdk.SchedulePolicy(overlap=overlap_policy(overlap), catchup_window=timedelta(hours=1))
    content = sdk.Schedule(action=action, spec=spec, policy=policy)
    handle = client.get_schedule_handle(schedule_id)
    try:
        await client.create_schedule(schedule_id, content, rpc_timeout=server.RPC)
    except sdk.ScheduleAlreadyRunningError:
        if not replace:
            hint = "change it with --replace, or choose another id"
            raise command_error(f'there is a schedule "{clean(schedule_id)}"', hint=hint) from None
        await handle.update(lambda _: sdk.ScheduleUpdate(schedule=content), rpc_timeout=server.RPC)
    upcoming = (await handle.describe(rpc_timeout=server.RPC)).info.next_action_times
    first = f"; first start {_moment(upcoming[0])}" if upcoming else ""
    print_err(f"schedule {clean(schedule_id)} starts {clean(file)} as {workflow}{first}")
    return EXIT_DONE


@schedule.add
async def list_(as_json: AsJson = False) -> int:
    """List schedules: what they start, when next, and what they started last."""
    client = await server.connect()
    rows = [_row(listed) async for listed in await client.list_schedules(rpc_timeout=server.RPC)]
    rows.sort(key=lambda row: row["id"])
    if as_json:
        return print_json(rows)
    if not rows:
        print_err("no schedules")
        return EXIT_DONE
    cells = [
        (row["id"], row["workflow"], "paused" if row["paused"] else row["next"], row["last"], row["note"])
        for row in rows
    ]  # fmt: skip
    console().print(text_table(("schedule", "starts", "next", "last run", "note"), cells))
    return EXIT_DONE


@schedule.add
async def pause(schedule_id: Id, note: Note = None) -> int:
    """Start nothing until it is resumed; runs continue."""
    return await _perform(schedule_id, lambda handle: handle.pause(note=note, rpc_timeout=server.RPC), "paused")


@schedule.add
async def resume(schedule_id: Id, note: Note = None) -> int:
    """Resume a paused schedule; what it missed is not made up for."""
    return await _perform(schedule_id, lambda handle: handle.unpause(note=note, rpc_timeout=server.RPC), "resumed")


@schedule.add
async def trigger(schedule_id: Id, overlap: Overlap = "allow-all") -> int:
    """Start a run now, whatever the clock says."""
    policy = overlap_policy(overlap)
    return await _perform(
        schedule_id, lambda handle: handle.trigger(overlap=policy, rpc_timeout=server.RPC), "triggered"
    )


@schedule.add
async def delete(schedule_id: Id, yes: Yes = False) -> int:
    """Delete a schedule; its runs continue."""
    require_yes(f"delete the schedule {clean(schedule_id, 200)}?", "it was not deleted", yes=yes)
    return await _perform(schedule_id, lambda it: it.delete(rpc_timeout=server.RPC), "deleted; its runs continue")


async def _perform(schedule_id: str, request: Callable[[ScheduleHandle], Awaitable[None]], done: str) -> int:
    """Make a request about a schedule. Raises CommandError: there is no such schedule."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        await request((await server.connect()).get_schedule_handle(schedule_id))
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        head = f'there is no schedule "{clean(schedule_id, 200)}"'
        raise command_error(head, hint="`acts schedule list` names all") from None
    print_err(f"{clean(schedule_id)}: {done}")
    return EXIT_DONE


def overlap_policy(word: OverlapWord) -> ScheduleOverlapPolicy:
    """The SDK's policy of this name."""
    from temporalio.client import ScheduleOverlapPolicy

    return ScheduleOverlapPolicy[word.upper().replace("-", "_")]


def _row(listed: ScheduleListDescription) -> dict[str, Any]:
    """``{id, paused, workflow, next, last, note}``; times in UTC."""
    state = None if listed.schedule is None else listed.schedule.state
    action = None if listed.schedule is None else listed.schedule.action
    upcoming = [] if listed.info is None else listed.info.next_action_times
    recent = [] if listed.info is None else listed.info.recent_actions
    return {
        "id": listed.id, "paused": state is not None and state.paused, "workflow": getattr(action, "workflow", "?"),
        "next": _moment(upcoming[0]) if upcoming else "never",
        "last": getattr(recent[-1].action, "workflow_id", "") if recent else "",
        "note": (state.note if state is not None else None) or "",
    }  # fmt: skip


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
