"""``acts schedule``: plans and agents that start by the clock, as Temporal's schedules.

Laws of this file:
- a Request that no worker could run is not scheduled: it is validated as ``acts run`` does;
- a schedule starts ordinary runs, under ids of its own with the time behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from acts.language.wire import AGENT, PLAN
from cli.command_errors import EXIT_DONE, CommandError, command_error
from cli.console import clean, console, print_blocks, print_err, print_json
from cli.render.tables import new_table
from cli.runs import server
from cli.text.durations import read_seconds
from cli.text.inputs import add_inputs
from cli.text.preflight import run_preflight
from cli.text.problems import problem_blocks
from cli.text.source_text import STDIN, read_source

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from temporalio.client import Schedule, ScheduleHandle, ScheduleListDescription, ScheduleOverlapPolicy, ScheduleSpec

# The SDK's words, which end with an underscore where Python has them
OVERLAPS: Final = ("skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all")
# The server refuses less
MIN_CATCH_UP_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Times:
    """When to start: ``cron`` expressions, or ``every`` so long; durations as texts like ``15m``."""

    cron: tuple[str, ...] = ()
    every: str | None = None
    offset: str | None = None
    timezone: str | None = None
    jitter: str | None = None

    def spec(self) -> ScheduleSpec:
        """As the SDK has it.

        Raises:
            CommandError: there is no time, or a duration is none.
        """
        from temporalio.client import ScheduleIntervalSpec, ScheduleSpec

        if bool(self.cron) == bool(self.every):
            raise command_error("say when to start: either --cron, or --every", hint="--cron '0 9 * * MON', --every 1h")
        if self.offset and not self.every:
            raise command_error("--offset belongs to --every", where="--offset")
        every, offset, jitter = (_span(getattr(self, n), f"--{n}") for n in ("every", "offset", "jitter"))
        if every is not None and offset is not None and offset >= every:
            raise command_error("--offset is shorter than --every", where="--offset")
        intervals = [] if every is None else [ScheduleIntervalSpec(every=every, offset=offset)]
        return ScheduleSpec(
            cron_expressions=list(self.cron), intervals=intervals, jitter=jitter, time_zone_name=self.timezone
        )


@dataclass(frozen=True)
class Policy:
    """What happens where starts meet, where they were missed, and where a run fails."""

    overlap: str = "skip"
    catch_up: str = "1h"
    pause_on_failure: bool = False
    is_paused: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class Source:
    """What is added to the file's input, and what it is run as (None: the file decides)."""

    inputs: tuple[str, ...] = ()
    agent: bool | None = None


async def create(schedule_id: str, file: str, times: Times, policy: Policy, source: Source) -> int:
    """Create a schedule, or replace one."""
    from temporalio.client import (
        Schedule,
        ScheduleActionStartWorkflow,
        ScheduleAlreadyRunningError,
        SchedulePolicy,
        ScheduleState,
    )

    spec, overlap = times.spec(), overlap_policy(policy.overlap)
    catch_up = _span(policy.catch_up, "--catch-up")
    if catch_up is None or catch_up.total_seconds() < MIN_CATCH_UP_SECONDS:
        raise command_error(f"it is at least {MIN_CATCH_UP_SECONDS:g} s", where="--catch-up")
    request, workflow = _read_request(file, source)
    client = await server.connect()
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(workflow, request, id=schedule_id, task_queue=server.task_queue()),
        spec=spec,
        policy=SchedulePolicy(overlap=overlap, catchup_window=catch_up, pause_on_failure=policy.pause_on_failure),
        state=ScheduleState(paused=policy.is_paused),
    )
    try:
        await client.create_schedule(schedule_id, schedule, rpc_timeout=server.RPC)
    except ScheduleAlreadyRunningError:
        if not policy.replaces:
            hint = "change it with --replace, or choose another id"
            raise command_error(f'there is a schedule "{clean(schedule_id)}"', hint=hint) from None
        await _replace(client.get_schedule_handle(schedule_id), schedule)
    description = await client.get_schedule_handle(schedule_id).describe(rpc_timeout=server.RPC)
    upcoming = description.info.next_action_times
    first = f"; first start {_moment(upcoming[0])}" if upcoming and not policy.is_paused else ""
    print_err(f"schedule {clean(schedule_id)} starts {clean(file)} as {workflow}{first}")
    return EXIT_DONE


def _read_request(file: str, options: Source) -> tuple[Any, str]:
    """The Request of a file and the workflow that runs it. Raises CommandError: with its problems."""
    source = read_source(file)
    request = add_inputs(source.value, options.inputs)
    preflight = run_preflight(request, file=None if file == STDIN else file, agent=options.agent)
    blocks = problem_blocks(preflight.problems, source)
    if preflight.errors:
        raise CommandError(*blocks)
    print_blocks(blocks)
    return request, AGENT if preflight.agent else PLAN


async def _replace(handle: ScheduleHandle, schedule: Schedule) -> None:
    from temporalio.client import ScheduleUpdate

    await handle.update(lambda _: ScheduleUpdate(schedule=schedule), rpc_timeout=server.RPC)


def overlap_policy(word: str) -> ScheduleOverlapPolicy:
    """The SDK's policy of this name. Raises CommandError: there is none."""
    from temporalio.client import ScheduleOverlapPolicy

    if word not in OVERLAPS:
        raise command_error(f"{word!r} is no policy", where="--overlap", hint=f"one of: {', '.join(OVERLAPS)}")
    return ScheduleOverlapPolicy[word.upper().replace("-", "_")]


def _span(text: str | None, option: str) -> timedelta | None:
    seconds = read_seconds(text, option)
    return None if seconds is None else timedelta(seconds=seconds)


async def list_schedules(*, as_json: bool) -> int:
    """A line per schedule."""
    client = await server.connect()
    rows = [_row(listed) async for listed in await client.list_schedules(rpc_timeout=server.RPC)]
    rows.sort(key=lambda row: row["id"])
    if as_json:
        print_json(rows)
        return EXIT_DONE
    if not rows:
        print_err("no schedules")
        return EXIT_DONE
    table = new_table("schedule", "starts", "next", "last run", "note")
    for row in rows:
        upcoming = "paused" if row["paused"] else row.get("next", "never")
        cells = (row["id"], row.get("workflow", "?"), upcoming, row.get("last", ""), row.get("note", ""))
        table.add_row(*(Text(clean(cell, 200)) for cell in cells))
    console().print(table)
    return EXIT_DONE


def _row(listed: ScheduleListDescription) -> dict[str, Any]:
    """``{id, paused, workflow?, next?, last?, lastStart?, note?}``; times in UTC."""
    row: dict[str, Any] = {"id": listed.id, "paused": False}
    if listed.schedule is not None:
        row |= {"paused": listed.schedule.state.paused, "workflow": getattr(listed.schedule.action, "workflow", "?")}
        row |= {"note": listed.schedule.state.note} if listed.schedule.state.note else {}
    if listed.info is not None and listed.info.next_action_times:
        row["next"] = _moment(listed.info.next_action_times[0])
    if listed.info is not None and listed.info.recent_actions:
        latest = listed.info.recent_actions[-1]
        row |= {"last": getattr(latest.action, "workflow_id", ""), "lastStart": _moment(latest.started_at)}
    return row


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


async def _handle(schedule_id: str) -> ScheduleHandle:
    return (await server.connect()).get_schedule_handle(schedule_id)


async def _perform(schedule_id: str, request: Awaitable[None], done: str) -> int:
    """Make a request about a schedule. Raises CommandError: there is no such schedule."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        await request
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            head = f'there is no schedule "{clean(schedule_id, 200)}"'
            raise command_error(head, hint="`acts schedule list` names all") from None
        raise
    print_err(f"{clean(schedule_id)}: {done}")
    return EXIT_DONE


async def pause(schedule_id: str, note: str | None) -> int:
    """Pause a schedule."""
    handle = await _handle(schedule_id)
    return await _perform(schedule_id, handle.pause(note=note, rpc_timeout=server.RPC), "paused")


async def resume(schedule_id: str, note: str | None) -> int:
    """Resume a schedule."""
    handle = await _handle(schedule_id)
    return await _perform(schedule_id, handle.unpause(note=note, rpc_timeout=server.RPC), "resumed")


async def trigger(schedule_id: str, overlap: str) -> int:
    """Start a run of a schedule now."""
    policy = overlap_policy(overlap)
    handle = await _handle(schedule_id)
    return await _perform(schedule_id, handle.trigger(overlap=policy, rpc_timeout=server.RPC), "triggered")


async def delete(schedule_id: str, *, yes: bool) -> int:
    """Delete a schedule, after a question on a terminal."""
    import typer

    if not yes and not typer.confirm(f"Delete the schedule {clean(schedule_id, 200)}?", err=True):
        return EXIT_DONE
    handle = await _handle(schedule_id)
    return await _perform(schedule_id, handle.delete(rpc_timeout=server.RPC), "deleted; its runs continue")
