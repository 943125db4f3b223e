"""``acts run``, ``retry``, ``fork`` and ``schedule``: runs are started, at once or by the clock, and their end awaited.

- A run belongs to the server: Ctrl-C ends the waiting only, and names the commands that show and cancel the run.
- stdout holds the result and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import quote

from temporalio import client as sdk
from temporalio.service import RPCError, RPCStatusCode

from acts.cli import bulk
from acts.cli import console as cli
from acts.cli.console import clean, command_error, option, print_blocks, print_err, print_json, read_seconds
from acts.cli.render import tables
from acts.cli.text import preflight as checks
from acts.cli.text import source as texts
from acts.client import client as runs
from acts.client import server, start_runs
from acts.client.run_reader import RunReader, RunResult, iso_text, open_run
from acts.client.served import require_folders, workflow_of_plan
from acts.language.source_text import SourceText
from acts.language.values import Json
from acts.language.wire import AGENT, INVALID_REQUEST, PLAN, SET_NOT_FOUND, UNDO
from acts.payloads.converter import verify_storage
from acts.tree.identity import child_id, retry_id

ResultsFile = Annotated[str | None, option("--results FILE", "The file that takes a line for each row of the set.")]
IfRunning = Annotated[
    start_runs.WhileRunning, option("--if-running WORD", "If a run of --id runs: fail, use-existing or terminate it.")
]
IfEnded = Annotated[
    start_runs.OnceEnded | None,
    option("--if-ended WORD", "If one has ended: use-existing (default), again, again-if-failed or fail."),
]
Delay = Annotated[str | None, option("--delay TIME", "Begin after this time, like 30m or 2h.")]
Tags = Annotated[list[str] | None, option("--tag NAME=VALUE", "To find and sum it by, like customer=c-17.")]
NewPlan = Annotated[
    str | None, option("--edit FILE", "The mended plan: calls, or a whole request (default: as it was).")
]
FromCall = Annotated[str, option("--from CALL", "The first call that runs anew, like 7:charge; plan order counts.")]
OnlyFailed = Annotated[bool, option("--only-failed", "Of a batch or set: what failed, no others.")]
OnlyErrors = Annotated[bool, option("--only-errors", "Of a set: what failed or took an error path, no others.")]
RetryResults = Annotated[
    str | None, option("--results FILE", "Of a set: the file for the results (default: out.2.jsonl).")
]
# The SDK's words
OverlapWord = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]
_WORDS: Final = get_args(OverlapWord)
ScheduleId = Annotated[str, cli.argument("ID", "The id of a schedule; its runs are called ID-TIME.")]
Cron = Annotated[list[str] | None, option("--cron CRON", "Like '0 9 * * MON-FRI'; may be repeated.")]
Every = Annotated[str | None, option("--every TIME", "An interval, like 15m or 1d.")]
Zone = Annotated[str | None, option("--timezone ZONE", "Of --cron, like Europe/Berlin (default UTC).")]
Overlap = Annotated[
    OverlapWord, option("--overlap WORD", f"If the last run still runs: {', '.join(_WORDS[:-1])} or {_WORDS[-1]}.")
]
Replace = Annotated[bool, option("--replace", "Replace the schedule of this id.")]

app = cli.CommandGroup()
schedule = cli.CommandGroup("schedule", "Start plans and agents by the clock: Temporal's schedules.")
app.add_typer(schedule)


_FRESH: Final = start_runs.IdPolicy("fail", "again")
_RETRIED_PHASES: Final = ("failed", "partial", "timedOut")  # not what a person has ended, unless --phase says so
_ONE_RETRY: Final = start_runs.IdPolicy("use-existing", "use-existing")


@dataclass(frozen=True)
class StartPolicy:
    """How a run is started, and what is printed of it then."""

    watch: bool = False
    as_json: bool = False
    detach: bool = False
    id_policy: start_runs.IdPolicy = _FRESH
    needs: tuple[str, ...] = ()  # variables that its workers must have


@app.add
async def run(
    file: cli.FileOrPlan, inputs: cli.Inputs = None, watch: cli.Watch = False, as_json: cli.AsJson = False,
    run_id: cli.NewId = None, detach: cli.Detach = False, agent: cli.Agent = None, if_running: IfRunning = "fail",
    if_ended: IfEnded = None, delay: Delay = None, set_file: cli.SetFile = None, results: ResultsFile = None,
    tag: Tags = None,
) -> int:  # fmt: skip
    """Run a plan, or an agent, and wait for its end.

    A file with calls is a plan: they run unchanged. A file with config.model and
    without calls is for an agent: the model plans them. A file with both is a plan too,
    unless it has something that only an agent uses (a schema, config.maxTicks or
    config.step): then its calls are shown to the model, which plans its own.

    A batch of which some instances failed (partial) ends with code 1.

    A word that is no file is the name of a plan that the workers serve (ACTS_PLANS).

    With --set, the plan runs for each row of a file, which its calls read as one kind of
    data, such as †order.total; a bar shows how far it has come.

    Examples:
      acts run plan.yaml --watch
      acts run plan.yaml -i n=3 -i name=Ann --json | jq .state
      acts run plan.yaml --detach --id order-7
      acts run refund --input orderId=7 --input more.json
      acts run plan.yaml --set orders.csv --results out.jsonl
    """
    policy = StartPolicy(
        watch, as_json, detach, start_runs.IdPolicy(if_running, if_ended, read_seconds(delay, "--delay"))
    )
    tags = dict(part.partition("=")[::2] for part in tag or ())
    if not texts.looks_like_file(file):
        request = _named_request(file, inputs, [set_file, results], tags)
        return await _run_named(file, request, agent, run_id, policy)
    source, request, preflight = checks.check_file(
        file, inputs, set_file=set_file, results=results, agent=agent, tags=tags
    )
    checks.require_valid(preflight, source)
    workflow = AGENT if preflight.agent else PLAN
    if preflight.why:
        print_err(clean(f"starting {'an' if preflight.agent else 'a'} {workflow} ({preflight.why})"), "dim")
    watch = watch or (checks.names_set(request) and not as_json)
    policy = dataclasses.replace(policy, watch=watch, needs=checks.folders_for_set(preflight.request))
    return await start_and_wait(request, workflow, run_id or new_id(file), source, policy)


@app.add
async def retry(
    run: bulk.AnyRun = None, edit: NewPlan = None, only_failed: OnlyFailed = False, only_errors: OnlyErrors = False,
    results: RetryResults = None,
    run_id: cli.RunId = None, new_id: cli.NewId = None, watch: cli.Watch = False, as_json: cli.AsJson = False,
    detach: cli.Detach = False, query: bulk.Query = None, phase: bulk.Phases = None, tool: bulk.ByTool = None,
    tag: bulk.Tags = None, since: bulk.Since = None, dry_run: bulk.DryRun = False, max_rate: bulk.MaxRate = bulk.RATE,
    yes: bulk.YesCount = None,
) -> int:  # fmt: skip
    """Run what a plan has not completed: completed calls are taken over, failed ones keep their _id.

    A new run is started; the one that failed stays as it is. Of a set, rows that completed do not run again.
    A run has one retry, unless --id names another: to retry it again is to get that one.
    Without an ID, the runs that the options name are retried, if they failed, are partial or timed out
    (or are in the --phase that is named).

      acts retry order-7
      acts retry order-7 --edit mended.yaml
      acts retry orders-1f2e3d4c --only-failed --results out.2.jsonl
      acts retry --phase failed --since 1d --tool refund --dry-run
    """
    only = "errors" if only_errors else "failed" if only_failed else None
    many = bulk.Bulk(query, phase or (), tool, tag or (), since, dry_run, max_rate, yes)
    if many.require_one_way(run):
        if any((edit, results, run_id, new_id, watch, as_json)):
            raise command_error("a plan, a results file, an id and --watch are of one run", hint="name it by its ID")
        return await _retry_many(many, only)
    reader = await open_run(str(run), run_id)
    info = await reader.describe()
    if info.close_time is None:
        name = cli.shell(run)
        hint = f"acts cancel {name} ends it; acts fork {name} --from CALL runs it another way beside it"
        raise command_error(f'the run "{clean(run, 200)}" has not ended', where="ID", hint=hint)
    request, source = await _retry_request(reader, only, edit, results, says_so=True)
    if info.workflow_type == PLAN:
        checks.require_valid(
            checks.run_preflight(request, file=None if edit == texts.STDIN else edit, agent=False), source
        )
    policy = StartPolicy(watch, as_json, detach, _FRESH if new_id else _ONE_RETRY)
    new_id = new_id or retry_id(reader.id, info.run_id)
    return await start_and_wait(request, info.workflow_type, new_id, source, policy)


async def _retry_request(
    run: RunReader, only: str | None, edit: str | None = None, results: str | None = None, *, says_so: bool = False
) -> tuple[dict[str, Any], SourceText]:
    """The Request of the retry of a run that has ended."""
    info = await run.describe()
    if info.workflow_type == AGENT:
        if edit is not None or only is not None:
            hint = "start one with `acts run FILE`, and a request of your own"
            raise command_error("an agent is retried as it was, without --edit and --only-…", hint=hint)
        context = await run.require(run.messages())
        if await run.other(child_id(run.id, UNDO)).exists():
            error = {"code": "undone", "message": "what had completed so far was undone: nothing of it holds any more"}
            context = [*context, {"type": "error", "data": {"call": None, "error": error}}]
        request = {**await _read_request(run), "context": context}
        if says_so:
            print_err(clean(f"starting an Agent with the context of {run.id}: its model sees what was done"), "dim")
        return request, _source_of(request)
    resume = {"workflowId": run.id, "runId": info.run_id, **({} if only is None else {"only": only})}
    return await _resume_request(run, resume, edit, results, says_so=says_so)


async def _retry_many(many: bulk.Bulk, only: str | None) -> int:
    client, queue = await server.connect(), server.task_queue()
    rows = await dataclasses.replace(many, phases=many.phases or _RETRIED_PHASES).choose(
        client, "ExecutionStatus != 'Running'"
    )
    many.show(rows)

    async def retry_one(row: dict[str, Any]) -> str:
        reader = RunReader(client, row["id"], row["runId"])
        request, _ = await _retry_request(reader, only)
        new_id = retry_id(reader.id, row["runId"])
        _, state = await start_runs.start_run(client, row["workflow"], request, new_id, _ONE_RETRY, queue)
        if not state:
            print(new_id)
        return "had been retried before" if state else "retried"

    return await many.perform("retry", "run", [(row["id"], partial(retry_one, row)) for row in rows])


@app.add
async def fork(
    run: cli.Run, from_call: FromCall, edit: NewPlan = None, run_id: cli.RunId = None, new_id: cli.NewId = None,
    watch: cli.Watch = False, as_json: cli.AsJson = False, detach: cli.Detach = False,
) -> int:  # fmt: skip
    """Run a plan another way from one call on: the calls before it are taken over, all others run with a new _id.

    The first run stays as it is; it may still run.

      acts fork order-7 --from 7:charge --edit other.yaml
    """
    reader = await open_run(run, run_id)
    resume = {"workflowId": run, "runId": (await reader.describe()).run_id, "keep": {"before": from_call}}
    new_id = new_id or f"{run[:200]}-fork-{secrets.token_hex(3)}"
    request, source = await _resume_request(reader, resume, edit, None, says_so=True)
    checks.require_valid(checks.run_preflight(request, file=None if edit == texts.STDIN else edit, agent=False), source)
    return await start_and_wait(request, PLAN, new_id, source, StartPolicy(watch, as_json, detach))


@app.add
async def undo(run: cli.Run, reason: cli.Note = None, as_json: cli.AsJson = False, detach: cli.Detach = False) -> int:
    """Undo what a run has completed, in reverse order, by the calls that its tools name (_undo).

    A run that waits for a decision ends, and undoes it itself. One that has ended is undone by a run of its own,
    RUN/undo: to undo it again is to get that one. What could not be undone is tried again by acts retry RUN/undo.
    """
    reader = await open_run(run)
    undoing, state = reader, "ends, and undoes what it has completed"
    if (await reader.describe()).close_time is None:
        await runs.Run(reader.client, run).undo(reason)
    else:
        undoing, state = await start_runs.undo_run(reader)
    print_err(clean(f"{undoing.id} {state or 'is started'}"), "dim")
    if detach:
        print(undoing.id)
        return cli.EXIT_DONE
    outcome = await undoing.ask(tables.await_run(undoing))
    if as_json:
        print_json(outcome.to_json())
    else:
        tables.print_outcome(outcome, undoing.id, PLAN)
        print_blocks(tables.failure_blocks(outcome))
    return exit_code(outcome)


async def _run_named(name: str, request: Json, agent: bool | None, run_id: str | None, policy: StartPolicy) -> int:
    workflow = None if agent is None else AGENT if agent else PLAN
    file = texts.find_plan(name)  # where the worker has other folders, its problems have no lines
    source = SourceText(f'the plan "{name}"', "", "JSON", request) if file is None else texts.read_source(file)
    return await start_and_wait(request, workflow, run_id or new_id(name), source, policy)


def _named_request(
    name: str, inputs: list[str] | None, of_sets: list[str | None], tags: dict[str, str] | None = None
) -> dict[str, Any]:
    if any(of_sets):
        raise command_error("a plan by name has its set in its file", where="--set", hint="or name the file itself")
    if not re.fullmatch(r"[\w.-]+", name):
        texts.read_source(name)  # which says that there is no such file
    return start_runs.make_request(name, texts.read_inputs(inputs or ()), tags or {})


async def start_and_wait(
    request: Json, workflow: str | None, run_id: str, source: SourceText, policy: StartPolicy
) -> int:
    """Start a run and wait for its end; of a plan's name, ``workflow`` None leaves the type to the worker."""
    target = server.find_target()
    client = await server.connect(target)
    # Raises StorageError for a storage that refuses: the result of the run could not be read
    if away := await asyncio.to_thread(verify_storage, writes=False):
        cli.print_message(clean(away), hint="values above 128 KiB wait until it is back", severity="warning")
    queue = server.task_queue()
    if not await server.has_pollers(client, queue):
        text = f'no worker serves the task queue "{queue}" at {target.address} yet'
        cli.print_message(text, hint=f"the run waits for one; {server.START_WORKER}", severity="warning")
    if policy.needs:
        await require_folders(client, queue, policy.needs)
    workflow = workflow or await workflow_of_plan(client, queue, request["plan"])
    run = await start(client, workflow, request, run_id, source.name, policy)
    link = ""
    if target.ui_url:
        link = f"  {target.ui_url}/namespaces/{quote(client.namespace, safe='')}/workflows/{quote(run_id, safe='')}"
    print_err(f"{workflow} {clean(run_id)} at {target.address}{link}", "dim")
    if policy.detach:
        print(run_id)
        return cli.EXIT_DONE
    began = time.monotonic()
    try:
        outcome = await run.ask(
            tables.watch_run(run, shows_end=policy.as_json) if policy.watch else tables.await_run(run)
        )
    except asyncio.CancelledError:  # Ctrl-C
        name = cli.shell(run.id)
        print_err(f"stopped waiting; the run continues: acts show {name} --watch, acts cancel {name}")
        raise
    if policy.as_json:
        print_json(outcome.to_json())
        print_blocks(tables.error_path_blocks(outcome.raw if isinstance(outcome.raw, dict) else {}))
    elif not outcome.problems:
        tables.print_outcome(outcome, run.id, workflow, f"{time.monotonic() - began:.1f} s")
        print_blocks(tables.failure_blocks(outcome))
    if outcome.problems:
        cli.print_message(f"the worker refuses the request ({INVALID_REQUEST})")
        print_blocks(texts.problem_blocks(outcome.problems, source))
    return exit_code(outcome)


def exit_code(outcome: RunResult) -> int:
    """The exit code of a command that waited for this run."""
    if outcome.ok:
        return cli.EXIT_DONE
    return cli.EXIT_WRONG_INPUT if outcome.problems else cli.EXIT_FAILED


def new_id(file: str) -> str:
    """An unused id that names the file: ``weather-1f2e3d4c``."""
    path = Path(file).resolve()
    stem = path.parent.name if path.stem in ("plan", "request", "agent", "index", "main") else path.stem
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem).strip("-.")[:60]
    return f"{'run' if file == texts.STDIN or not name else name}-{secrets.token_hex(4)}"


async def start(
    client: sdk.Client, workflow: str, request: Json, run_id: str, source_name: str, policy: StartPolicy
) -> RunReader:
    """Start a run, or say that the one that has the id is used."""
    run, state = await start_runs.start_run(
        client, workflow, request, run_id, policy.id_policy, server.task_queue(), source_name
    )
    if state:
        anew = f"; {start_runs.AGAIN} runs it again" if state == start_runs.HAS_ENDED else ""
        print_err(f'the run "{clean(run_id)}" {state}: no other one is started{anew}', "yellow")
    return run


async def _resume_request(
    run: RunReader, resume: dict[str, Any], file: str | None, results: str | None, *, says_so: bool
) -> tuple[dict[str, Any], SourceText]:
    type_ = (await run.describe()).workflow_type
    if type_ != PLAN:
        text = f'the run "{clean(run.id, 200)}" is of the type {clean(type_, 100)}'
        hint = "only a Plan can be resumed; that of an agent's tick is a Plan, such as ID/plan-1"
        raise command_error(text, where="ID", hint=hint)
    request, source = await _read_edited(run, file)
    config = dict(request.get("config") or {})
    if results is None and checks.names_set(request) and isinstance(config.get("results"), str):
        config["results"] = checks.next_results(config["results"])
    elif results is not None:
        config |= checks.add_set(request, None, results)["config"]
    if says_so:
        more = f"; results: {config['results']}" if checks.names_set(request) and "results" in config else ""
        print_err(clean(f"taking over what {run.id} had completed{more}"), "dim")
        has_instances = any({"_instance", "_instances"} & {*message} for message in request["context"])
        if has_instances and file is not None and "only" not in resume:
            text = "where the new plan changes a call, instances that have completed run it again, too"
            cli.print_message(text, hint="acts retry --only-failed leaves them out", severity="warning")
    return {**request, "config": {**config, "resume": resume}}, source


async def _read_edited(run: RunReader, file: str | None) -> tuple[dict[str, Any], SourceText]:
    request = await _read_request(run)
    calls: Any = await run.plan() if file is None else None  # as it was edited; without a worker, as it was sent
    if file is not None:
        edited = texts.read_source(file)
        calls = edited.value
        if isinstance(calls, dict) and "context" in calls:
            return calls, edited
        calls = calls.get("plan") if isinstance(calls, dict) else calls
        if not isinstance(calls, list):
            hint = "a list of calls, a plan message, or a whole request"
            raise command_error("the file holds no plan", where=edited.name, hint=hint)
    if calls is not None:
        request = start_runs.with_calls(request, calls)
    return request, _source_of(request)


async def _read_request(run: RunReader) -> dict[str, Any]:
    request = await run.request()
    if not isinstance(request, dict) or not isinstance(request.get("context"), list):
        raise command_error(f'the run "{clean(run.id, 200)}" was not started with a request', where="ID")
    return request


def _source_of(request: Json) -> SourceText:
    return texts.parse_source("the request", json.dumps(request, ensure_ascii=False, indent=2), "JSON")


@schedule.add
async def create(
    schedule_id: ScheduleId, file: cli.FileOrPlan, cron: Cron = None, every: Every = None, timezone: Zone = None,
    overlap: Overlap = "skip", replace: Replace = False, inputs: cli.Inputs = None, agent: cli.Agent = None,
    set_file: cli.SetFile = None, results: ResultsFile = None,
) -> None:  # fmt: skip
    """Start a file, or a plan, by the clock, with --cron or --every.

    A file is kept as it is now; of a name, each start takes the plan that the workers serve then. Each start is a run
    of its own, so its calls have ids of their own. In the names of a set and of its results, {date} is the day of the
    start in UTC, and {run} the id of the run.

      acts schedule create nightly plan.yaml --cron '0 2 * * *' --set 'orders-{date}.csv' --results 'out-{run}.jsonl'
    """
    if bool(cron) == bool(every):
        raise command_error("say when to start: either --cron, or --every", hint="--cron '0 9 * * MON', --every 1h")
    seconds = read_seconds(every, "--every")
    intervals = [] if seconds is None else [sdk.ScheduleIntervalSpec(every=timedelta(seconds=seconds))]
    spec = sdk.ScheduleSpec(cron_expressions=cron or [], intervals=intervals, time_zone_name=timezone)
    request, workflow = _scheduled_request(file, inputs, [set_file, results], agent, seconds)
    client = await server.connect()
    workflow = workflow or await workflow_of_plan(client, server.task_queue(), file)
    action = sdk.ScheduleActionStartWorkflow(workflow, request, id=schedule_id, task_queue=server.task_queue())
    # What an outage of the server has kept from starting is made up for, an hour back
    word = sdk.ScheduleOverlapPolicy[overlap.upper().replace("-", "_")]
    policy = sdk.SchedulePolicy(overlap=word, catchup_window=timedelta(hours=1))
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
    days = [f"{moment:%Y-%m-%d}" for moment in upcoming]
    if len(set(days)) < len(days) and checks.repeated_problem(request, 1.0) is not None:
        text = "it starts several times a day, and {date} is one results file for all of them: use {run}"
        cli.print_message(text, severity="warning")
    first = f"; first start {cli.moment_text(iso_text(upcoming[0]))}" if upcoming else ""
    print_err(f"schedule {clean(schedule_id)} starts {clean(file)} as {workflow}{first}")


def _scheduled_request(
    file: str, inputs: list[str] | None, of_set: list[str | None], agent: bool | None, seconds: float | None
) -> tuple[Json, str | None]:
    """What each start of a schedule is started with, and the type of workflow; None where the worker knows it."""
    named = None if texts.looks_like_file(file) else _named_request(file, inputs, of_set)
    if named is not None and texts.find_plan(file) is None:
        return named, None if agent is None else AGENT if agent else PLAN
    source, request, preflight = checks.check_file(file, inputs, set_file=of_set[0], results=of_set[1], agent=agent)
    if (problem := checks.repeated_problem(request, seconds)) is not None:
        raise problem
    later = [dataclasses.replace(p, severity="warning") if p.code == SET_NOT_FOUND else p for p in preflight.problems]
    checks.require_valid(dataclasses.replace(preflight, problems=later), source)
    workflow = AGENT if preflight.agent else PLAN
    return (request, workflow) if named is None else (named, None if agent is None else workflow)


@schedule.add
async def list_(as_json: cli.AsJson = False) -> int:
    """List schedules: what they start, when next, and what they started last."""
    client = await server.connect()
    rows = [_row(listed) async for listed in await client.list_schedules(rpc_timeout=server.RPC)]
    rows.sort(key=lambda row: row["id"])
    if as_json:
        return print_json(rows)
    if not rows:
        print_err("no schedules")
        return cli.EXIT_DONE
    cells = [(r["id"], r["workflow"], "paused" if r["paused"] else r["next"], r["last"], r["note"]) for r in rows]
    cli.console().print(tables.text_table(("schedule", "starts", "next", "last run", "note"), cells))
    return cli.EXIT_DONE


@schedule.add
async def pause(schedule_id: ScheduleId, note: cli.Note = None) -> None:
    """Start nothing until it is resumed; runs continue."""
    await _perform(schedule_id, lambda handle: handle.pause(note=note, rpc_timeout=server.RPC), "paused")


@schedule.add
async def resume(schedule_id: ScheduleId, note: cli.Note = None) -> None:
    """Resume a paused schedule; what it missed is not made up for."""
    await _perform(schedule_id, lambda handle: handle.unpause(note=note, rpc_timeout=server.RPC), "resumed")


@schedule.add
async def trigger(schedule_id: ScheduleId) -> None:
    """Start a run now, whatever the clock says."""
    policy = sdk.ScheduleOverlapPolicy.ALLOW_ALL
    await _perform(schedule_id, lambda it: it.trigger(overlap=policy, rpc_timeout=server.RPC), "triggered")


@schedule.add
async def delete(schedule_id: ScheduleId, yes: cli.Yes = False) -> None:
    """Delete a schedule; its runs continue."""

    async def confirm_and_delete(handle: sdk.ScheduleHandle) -> None:
        cli.require_yes(f"delete the schedule {clean(schedule_id, 200)}?", "it was not deleted", yes=yes)
        await handle.delete(rpc_timeout=server.RPC)

    await _perform(schedule_id, confirm_and_delete, "deleted; its runs continue")


async def _perform(schedule_id: str, request: Callable[[sdk.ScheduleHandle], Awaitable[None]], done: str) -> None:
    try:
        handle = (await server.connect()).get_schedule_handle(schedule_id)
        await handle.describe(rpc_timeout=server.RPC)  # the server deletes what is not there without a word
        await request(handle)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        head = f'there is no schedule "{clean(schedule_id, 200)}"'
        raise command_error(head, hint="`acts schedule list` names all") from None
    print_err(f"{clean(schedule_id)}: {done}")


def _row(listed: sdk.ScheduleListDescription) -> dict[str, Any]:
    """``{id, paused, workflow, next, last, note}``; times in UTC."""
    state, action = (None, None) if listed.schedule is None else (listed.schedule.state, listed.schedule.action)
    upcoming, recent = ([], []) if listed.info is None else (listed.info.next_action_times, listed.info.recent_actions)
    return {
        "id": listed.id, "paused": state is not None and state.paused, "workflow": getattr(action, "workflow", "?"),
        "next": cli.moment_text(iso_text(upcoming[0])) if upcoming else "never",
        "last": getattr(recent[-1].action, "workflow_id", "") if recent else "",
        "note": (state.note if state is not None else None) or "",
    }  # fmt: skip
