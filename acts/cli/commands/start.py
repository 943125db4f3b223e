"""``acts run``, ``retry`` and ``fork``: a run is started, and its end awaited.

- A Request that no worker could run is not started: its problems are printed with their lines.
- A run belongs to the server: Ctrl-C ends the waiting only, and names the commands that show and cancel the run.
- A run that another one resumes is read, never changed; the worker decides which of its Calls are unchanged.
- stdout holds the result and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from acts.cli.command_line import (
    Agent,
    AsJson,
    CommandGroup,
    Detach,
    File,
    Inputs,
    NewId,
    Run,
    RunId,
    Watch,
    read_seconds,
)
from acts.cli.console import EXIT_DONE, clean, command_error, message, print_blocks, print_err, print_json, print_out
from acts.cli.render.progress import watch_run
from acts.cli.render.tables import failure_blocks, print_outcome
from acts.cli.runs import server
from acts.cli.runs.run_reader import RunReader, open_run, wait_for_outcome
from acts.cli.runs.starting import OnceEnded, StartPolicy, WhileRunning, new_id, start
from acts.cli.text.preflight import check_file, require_valid, run_preflight
from acts.cli.text.set_input import add_set, names_set, next_results
from acts.cli.text.source import STDIN, SourceText, parse_source, problem_blocks, read_source
from acts.language.values import Json
from acts.language.wire import AGENT, INVALID_REQUEST, PLAN
from acts.payloads.converter import verify_storage

# Characters of the earlier run's id in that of the new one
_MAX_NAME: Final = 200

SetFile = Annotated[
    str | None,
    typer.Option(
        "--set",
        metavar="FILE[:ID]",
        help="Run the plan for each row of a JSON Lines or CSV file; ID is the field of its id.",
    ),
]
ResultsFile = Annotated[
    str | None, typer.Option("--results", metavar="FILE", help="The file that takes a line for each row of the set.")
]
IfRunning = Annotated[
    WhileRunning,
    typer.Option("--if-running", metavar="WORD", help="If a run of --id runs: fail, use-existing or terminate it."),
]
IfEnded = Annotated[
    OnceEnded,
    typer.Option("--if-ended", metavar="WORD", help="If one has ended: again, again-if-failed, use-existing or fail."),
]
Delay = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Begin after this time, like 30m or 2h.")]
NewPlan = Annotated[
    str | None,
    typer.Option("--edit", metavar="FILE", help="The mended plan: calls, or a whole request (default: as it was)."),
]
FromCall = Annotated[
    str, typer.Option("--from", metavar="CALL", help="The first call that runs anew, like 7:charge; plan order counts.")
]
OnlyFailed = Annotated[bool, typer.Option("--only-failed", help="Of a batch or set: what failed, no others.")]
RetryResults = Annotated[
    str | None,
    typer.Option("--results", metavar="FILE", help="Of a set: the file for the results (default: out.2.jsonl)."),
]

app = CommandGroup()


@app.add
async def run(
    file: File, inputs: Inputs = None, watch: Watch = False, as_json: AsJson = False, run_id: NewId = None,
    detach: Detach = False, agent: Agent = None, if_running: IfRunning = "fail", if_ended: IfEnded = "again",
    delay: Delay = None, set_file: SetFile = None, results: ResultsFile = None,
) -> int:  # fmt: skip
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
    policy = StartPolicy(if_running, if_ended, read_seconds(delay, "--delay"))
    source, request, preflight = check_file(file, inputs, set_file=set_file, results=results, agent=agent)
    require_valid(preflight, source)
    workflow = AGENT if preflight.agent else PLAN
    if preflight.why:
        print_err(clean(f"starting {'an' if preflight.agent else 'a'} {workflow} ({preflight.why})"), "dim")
    waiting = Waiting(watch or (names_set(request) and not as_json), as_json, detach)
    return await start_and_wait(request, workflow, run_id or new_id(file), source, waiting, policy)


@app.add
async def retry(
    run: Run, edit: NewPlan = None, only_failed: OnlyFailed = False, results: RetryResults = None, run_id: RunId = None,
    new_id: NewId = None, watch: Watch = False, as_json: AsJson = False, detach: Detach = False,
) -> int:  # fmt: skip
    """Run what a plan has not completed: completed calls are taken over, failed ones keep their _id.

    A new run is started; the one that failed stays as it is. Of a set, rows that completed do not run again.

      acts retry order-7
      acts retry order-7 --edit mended.yaml
      acts retry orders-1f2e3d4c --only-failed --results out.2.jsonl
    """
    reader = await open_run(run, run_id)
    info = await reader.describe()
    if info.close_time is None:
        name = clean(run, 200)
        hint = f"acts cancel {name} ends it; acts fork {name} --from CALL runs it another way beside it"
        raise command_error(f'the run "{name}" has not ended', where="ID", hint=hint)
    waiting = Waiting(watch, as_json, detach)
    new_id = new_id or f"{run[:_MAX_NAME]}-retry-{secrets.token_hex(3)}"
    if info.workflow_type == AGENT:
        if edit is not None or only_failed:
            hint = "start one with `acts run FILE`, and a request of your own"
            raise command_error("an agent is retried as it was, without --edit and --only-failed", hint=hint)
        request = {**await _read_request(reader), "context": await reader.require(reader.messages())}
        print_err(clean(f"starting an Agent with the context of {run}: its model sees what was done"), "dim")
        return await start_and_wait(request, AGENT, new_id, _source_of(request), waiting)
    resume: dict[str, Any] = {"workflowId": run, "runId": info.run_id, **({"only": "failed"} if only_failed else {})}
    return await _resume(reader, resume, edit, results, new_id, waiting)


@app.add
async def fork(
    run: Run, from_call: FromCall, edit: NewPlan = None, run_id: RunId = None, new_id: NewId = None,
    watch: Watch = False, as_json: AsJson = False, detach: Detach = False,
) -> int:  # fmt: skip
    """Run a plan another way from one call on: the calls before it are taken over, all others run with a new _id.

    The first run stays as it is; it may still run.

      acts fork order-7 --from 7:charge --edit other.yaml
    """
    reader = await open_run(run, run_id)
    resume = {"workflowId": run, "runId": (await reader.describe()).run_id, "keep": {"before": from_call}}
    new_id = new_id or f"{run[:_MAX_NAME]}-fork-{secrets.token_hex(3)}"
    return await _resume(reader, resume, edit, None, new_id, Waiting(watch, as_json, detach))


# -- starting and waiting --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    """What is printed of a run once it is started."""

    watch: bool = False
    as_json: bool = False
    detach: bool = False


async def start_and_wait(
    request: Json, workflow: str, run_id: str, source: SourceText, waiting: Waiting, policy: StartPolicy | None = None
) -> int:
    """Start a run and wait for its end; the exit code says how it ended."""
    target = server.find_target()
    client = await server.connect(target)
    # Raises StorageError for a storage that refuses: the result of the run could not be read
    if away := await asyncio.to_thread(verify_storage, writes=False):
        print_blocks([message(clean(away), hint="values above 128 KiB wait until it is back", severity="warning")])
    queue = server.task_queue()
    if not await server.has_pollers(client, queue):
        text = f'no worker serves the task queue "{queue}" at {target.address} yet'
        hint = f"the run waits for one: `acts dev`, or `python -m acts.worker` with TEMPORAL_ADDRESS={target.address}"
        print_blocks([message(text, hint=hint, severity="warning")])
    started = await start(client, workflow, request, run_id, source.name, policy)
    link = ""
    if target.ui_url:
        link = f"  {target.ui_url}/namespaces/{quote(client.namespace, safe='')}/workflows/{quote(run_id, safe='')}"
    print_err(f"{workflow} {clean(run_id)} at {target.address}{link}", "dim")
    if waiting.detach:
        print_out(run_id)
        return EXIT_DONE
    return await _finish(started, workflow, source, waiting)


async def _finish(run: RunReader, workflow: str, source: SourceText, waiting: Waiting) -> int:
    """Wait for the end of a run and print its outcome."""
    began = time.monotonic()
    try:
        outcome = await (watch_run(run) if waiting.watch else wait_for_outcome(run.handle))
    except asyncio.CancelledError:  # Ctrl-C
        name = clean(run.id)
        print_err(f"stopped waiting; the run continues: acts show {name} --watch, acts cancel {name}")
        raise
    if waiting.as_json:
        print_json(outcome.to_json())
    elif not outcome.problems:
        print_outcome(outcome, run.id, workflow, f"{time.monotonic() - began:.1f} s")
        print_blocks(failure_blocks(outcome))
    if outcome.problems:
        print_blocks([message(f"the worker refuses the request ({INVALID_REQUEST})")])
        print_blocks(problem_blocks(outcome.problems, source))
    return outcome.code


# -- resuming --------------------------------------------------------------------------------------------------------


async def _resume(
    run: RunReader, resume: dict[str, Any], file: str | None, results: str | None, new_id: str, waiting: Waiting
) -> int:
    """Start a plan that resumes another."""
    type_ = (await run.describe()).workflow_type
    if type_ != PLAN:
        text = f'the run "{clean(run.id, 200)}" is of the type {clean(type_, 100)}'
        hint = "only a Plan can be resumed; that of an agent's tick is a Plan, such as ID/plan-1"
        raise command_error(text, where="ID", hint=hint)
    request, source = await _read_edited(run, file)
    config = dict(request.get("config") or {})
    if results is None and names_set(request) and isinstance(config.get("results"), str):
        config["results"] = next_results(config["results"])
        print_err(clean(f"results: {config['results']}"), "dim")
    elif results is not None:
        config |= add_set(request, None, results)["config"]
    request = {**request, "config": {**config, "resume": resume}}
    require_valid(run_preflight(request, file=None if file == STDIN else file, agent=False), source)
    print_err(clean(f"taking over what {run.id} had completed"), "dim")
    return await start_and_wait(request, PLAN, new_id, source, waiting)


async def _read_edited(run: RunReader, file: str | None) -> tuple[dict[str, Any], SourceText]:
    """The Request of the new run, and the text that its problems are shown in."""
    request = await _read_request(run)
    calls: Any = None
    if file is None:
        calls = await run.plan()  # as it was edited while it ran; without a worker, as it was sent
    else:
        edited = read_source(file)
        calls = edited.value
        if isinstance(calls, dict) and "context" in calls:
            return calls, edited
        calls = calls.get("plan") if isinstance(calls, dict) else calls
        if not isinstance(calls, list):
            hint = "a list of calls, a plan message, or a whole request"
            raise command_error("the file holds no plan", where=edited.name, hint=hint)
    if calls is not None:
        others = [m for m in request["context"] if not isinstance(m, dict) or m.get("type") != "plan"]
        plans = [m for m in request["context"] if isinstance(m, dict) and m.get("type") == "plan"]
        request = {**request, "context": [*others, {**(plans[-1] if plans else {"type": "plan"}), "plan": calls}]}
    return request, _source_of(request)


async def _read_request(run: RunReader) -> dict[str, Any]:
    request = await run.request()
    if not isinstance(request, dict) or not isinstance(request.get("context"), list):
        raise command_error(f'the run "{clean(run.id, 200)}" was not started with a request', where="ID")
    return request


def _source_of(request: Json) -> SourceText:
    return parse_source("the request", json.dumps(request, ensure_ascii=False, indent=2), "JSON")
