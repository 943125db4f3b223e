"""``acts run``: validate a file, start it, wait for its end.

Laws of this file:
- a Request that no worker could run is not started: its problems are printed with their lines;
- a run belongs to the server: Ctrl-C ends the waiting only, and names the commands that show and cancel the run;
- stdout holds the result and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from acts.language.values import Json
from acts.language.wire import AGENT, INVALID_REQUEST, MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, PLAN
from acts.tree.child_ids import MAX_ID_BYTES
from cli.command_errors import EXIT_DONE, CommandError, command_error, message
from cli.console import clean, console, print_blocks, print_err, print_json, print_out
from cli.render.progress_view import LiveTable, LogLines
from cli.render.simulation_view import print_forecast
from cli.render.tables import failure_blocks, print_outcome
from cli.runs import server
from cli.runs.follow import follow
from cli.runs.run_forecast import PROPOSED, forecast_in_result
from cli.runs.run_outcome import Outcome, wait_for_outcome
from cli.runs.run_reader import RunReader
from cli.runs.start_description import describe_start
from cli.runs.start_policy import StartPolicy
from cli.text.inputs import add_inputs
from cli.text.preflight import run_preflight
from cli.text.problems import problem_blocks
from cli.text.set_input import add_set, names_set
from cli.text.source_text import STDIN, SourceText, read_source

if TYPE_CHECKING:
    from temporalio.client import Client

# File names that say nothing of the plan: the name of the folder is used
_GENERIC: Final = ("plan", "request", "agent", "index", "main")
_MAX_NAME: Final = 60


@dataclass(frozen=True)
class RunOptions:
    """The options of the command. ``agent`` says what the file is run as; None: the file decides."""

    inputs: Sequence[str] = ()
    watch: bool = False
    as_json: bool = False
    detach: bool = False
    run: str | None = None
    agent: bool | None = None
    policy: StartPolicy = field(default_factory=StartPolicy)
    set_file: str | None = None
    results: str | None = None


async def run(file: str, options: RunOptions) -> int:
    """Run a file; the exit code says how the run ended."""
    options.policy.check()
    source = read_source(file)
    request = add_set(add_inputs(source.value, options.inputs), options.set_file, options.results)
    preflight = run_preflight(request, file=None if file == STDIN else file, agent=options.agent)
    blocks = problem_blocks(preflight.problems_for_worker, source)
    if preflight.errors:
        raise CommandError(*blocks)
    print_blocks(blocks)
    workflow = AGENT if preflight.agent else PLAN
    if preflight.why:
        print_err(clean(f"starting {'an' if preflight.agent else 'a'} {workflow} ({preflight.why})"), "dim")
    run_id = new_id(file) if options.run is None else options.run
    return await start_and_wait(request, workflow, run_id, source, options)


def new_id(file: str) -> str:
    """An unused id that names the file: ``weather-1f2e3d4c``."""
    path = Path(file).resolve()
    stem = path.parent.name if path.stem in _GENERIC else path.stem
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem).strip("-.")[:_MAX_NAME]
    return f"{'run' if file == STDIN or not name else name}-{secrets.token_hex(4)}"


async def start_and_wait(request: Json, workflow: str, run_id: str, source: SourceText, options: RunOptions) -> int:
    """Start a run and wait for its end, as the options say; the exit code says how it ended."""
    target = server.find_target()
    client = await server.connect(target)
    await _warn_about_storage()
    queue = server.task_queue()
    if not await server.has_pollers(client, queue):
        text = f'no worker serves the task queue "{queue}" at {target.address} yet'
        hint = f"the run waits for one: `acts dev`, or `python -m worker` with TEMPORAL_ADDRESS={target.address}"
        print_blocks([message(text, hint=hint, severity="warning")])
    started = await start(client, workflow, request, run_id, source.name, options.policy)
    link = f"  {_web_link(target.ui_url, client.namespace, run_id)}" if target.ui_url else ""
    if options.detach:
        print_err(f"started {clean(run_id)} at {target.address}{link}")
        print_out(run_id)
        return EXIT_DONE
    print_err(f"{workflow} {clean(run_id)} at {target.address}{link}", "dim")
    watches = options.watch or (names_set(request) and not options.as_json)
    return await _finish(started, workflow, source, options, watches=watches)


async def _warn_about_storage() -> None:
    """Raises StorageError for a storage that refuses: the result of the run could not be read."""
    from connection.storage import verify_storage

    if away := await asyncio.to_thread(verify_storage, writes=False):
        hint = "the run starts; values above 128 KiB wait until the storage is back"
        print_blocks([message(clean(away), hint=hint, severity="warning")])


async def start(
    client: Client, workflow: str, request: Json, run_id: str, source_name: str, policy: StartPolicy | None = None
) -> RunReader:
    """Start a run; where the policy says so, use the one that has this id already.

    Raises:
        CommandError: the id is invalid or in use, or the Request is too large.
    """
    policy = policy or StartPolicy()
    from temporalio.exceptions import WorkflowAlreadyStartedError

    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    is_stored = client.data_converter.external_storage is not None
    limit = MAX_STORED_BYTES if is_stored else MAX_PAYLOAD_BYTES
    if size > limit:
        text = f"the request has {size:,} bytes of JSON; a run takes at most {limit:,}"
        hint = "keep large data outside and pass references, or split the plan"
        hint = hint if is_stored else f"set ACTS_STORAGE here and for the worker; or {hint}"
        raise command_error(text, where=source_name, hint=hint)
    if not run_id or not run_id.isprintable() or len(run_id.encode()) > MAX_ID_BYTES:
        raise command_error(f"an id is 1 to {MAX_ID_BYTES} bytes of printable text", where="--id")
    queue = server.task_queue()
    try:
        about = describe_start(request, source_name)
        await client.start_workflow(
            workflow, request, id=run_id, task_queue=queue, rpc_timeout=server.RPC, memo=about.memo,
            static_summary=about.summary, static_details=about.details, **policy.start_options(),
        )  # fmt: skip
    except WorkflowAlreadyStartedError:
        await _require_use_of_existing(client, run_id, policy)
    return RunReader(client, run_id)


async def _require_use_of_existing(client: Client, run_id: str, policy: StartPolicy) -> None:
    """Say that the run of this id is used. Raises CommandError where the policy does not allow it."""
    status = (await client.get_workflow_handle(run_id).describe(rpc_timeout=server.RPC)).status
    is_running = status is not None and status.name == "RUNNING"
    state = "is still running" if is_running else "has ended"
    if policy.attaches(is_running=is_running):
        print_err(f'the run "{clean(run_id)}" {state}: no other one is started', "dim")
        return
    option = "--if-running" if is_running else "--if-ended"
    hint = f"choose another id, or see what it does: acts show {clean(run_id)}; or use it: {option} use-existing"
    raise command_error(f'the run "{clean(run_id)}" {state}', where="--id", hint=hint)


async def watch_run(run: RunReader) -> Outcome:
    """Wait for a run and show its progress."""
    if console(stderr=True).is_terminal:
        with LiveTable(run.id) as table:
            return await follow(run, table)
    return await follow(run, LogLines(run.id))


async def _finish(run: RunReader, workflow: str, source: SourceText, options: RunOptions, *, watches: bool) -> int:
    """Wait for the end of a run and print its outcome."""
    began = time.monotonic()
    try:
        outcome = await (watch_run(run) if watches else wait_for_outcome(run.handle))
    except asyncio.CancelledError:  # Ctrl-C
        name = clean(run.id)
        again = f"acts show {name} --watch" if watches else f"acts show {name}"
        print_err(f"stopped waiting; the run continues: {again}, acts cancel {name}")
        raise
    if options.as_json:
        print_json(outcome.to_json())
    elif not outcome.problems:
        print_outcome(outcome, run.id, workflow, f"{time.monotonic() - began:.1f} s")
        print_blocks(failure_blocks(outcome))
        print_forecast(PROPOSED, forecast_in_result(outcome.result))
    if outcome.problems:
        print_blocks([message(f"the worker refuses the request ({INVALID_REQUEST})")])
        print_blocks(problem_blocks(outcome.problems, source))
    return outcome.code


def _web_link(ui_url: str, namespace: str, run_id: str) -> str:
    return f"{ui_url}/namespaces/{quote(namespace, safe='')}/workflows/{quote(run_id, safe='')}"
