"""``acts run``: check a file, start it, wait for its end.

Laws of this file:
- nothing is started that no worker could run: what is wrong is said before, with lines;
- a run belongs to the server. Ctrl-C ends the waiting and says how to come back;
- stdout has the result and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from acts.language.values import Json
from acts.language.wire import AGENT, INVALID_REQUEST, PLAN
from cli.command_errors import DONE, CommandError, MessageBlock, refuse
from cli.console import clean, out, out_json, print_blocks, say
from cli.render.tables import failure_blocks, print_outcome
from cli.runs import server
from cli.runs.forecast_view import OWN, own, print_forecast
from cli.runs.run_outcome import Outcome, wait
from cli.text.inputs import with_inputs
from cli.text.plan_files import STDIN, Source, read
from cli.text.preflight import judge
from cli.text.problems import blocks

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

# Temporal cuts ids at 1,000 bytes; children append to ours
MAX_ID_BYTES: Final = 900
_GENERIC: Final = ("plan", "request", "agent", "index", "main")


@dataclass(frozen=True)
class Options:
    """What the command line says beside the file."""

    inputs: Sequence[str] = ()
    watch: bool = False
    as_json: bool = False
    detach: bool = False
    run: str | None = None
    agent: bool | None = None
    """What to run it as; None: what the file says."""


def run(given: str, options: Options) -> int:
    """Start a file; the exit code tells how it ended.

    Raises:
        Refusal: the file, the options or the server do not allow a start.
    """
    source = read(given)
    request = with_inputs(source.value, options.inputs)
    verdict = judge(request, file=None if given == STDIN else given, agent=options.agent)
    found = blocks(verdict.problems, source)
    if verdict.errors:
        raise CommandError(*found)
    print_blocks(found)
    workflow = AGENT if verdict.agent else PLAN
    if verdict.why:
        say(clean(f"starting {'an' if verdict.agent else 'a'} {workflow} ({verdict.why})"), "dim")
    return server.go(
        _start_and_wait(request, workflow, new_id(given) if options.run is None else options.run, source, options)
    )


def new_id(given: str) -> str:
    """An id that names the file and is not in use: ``weather-1f2e3d4c``."""
    path = Path(given).resolve()
    stem = path.parent.name if path.stem in _GENERIC else path.stem
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem).strip("-.")[:60]
    return f"{'run' if given == STDIN or not name else name}-{secrets.token_hex(4)}"


async def _start_and_wait(request: Json, workflow: str, run_id: str, source: Source, options: Options) -> int:
    target = server.find()
    client = await server.connect(target)
    queue = server.task_queue()
    if not await server.served(client, queue):
        hint = f"the run waits for one: `acts dev`, or `python -m worker` with TEMPORAL_ADDRESS={target.address}"
        print_blocks(
            [
                MessageBlock(
                    f'no worker serves the task queue "{queue}" at {target.address} yet',
                    "",
                    [("hint", hint)],
                    "warning",
                )
            ]
        )
    handle = await start(client, workflow, request, run_id, source.name)
    link = web_link(target.ui_url, client.namespace, handle)
    if options.detach:
        say(f"started {clean(handle.id)} at {target.address}" + (f"  {link}" if link else ""))
        out(handle.id)
        return DONE
    say(f"{workflow} {clean(handle.id)} at {target.address}" + (f"  {link}" if link else ""), "dim")
    return await finish(client, handle, workflow, source, options)


async def start(client: Client, workflow: str, request: Json, run_id: str, name: str) -> WorkflowHandle[Any, Any]:
    """Start a run.

    Raises:
        Refusal: the id or the Request cannot be taken.
    """
    from temporalio.exceptions import WorkflowAlreadyStartedError

    from acts.language.wire import MAX_PAYLOAD_BYTES as MAX_PAYLOAD

    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_PAYLOAD:
        hint = "keep large data outside and pass references, or split the plan"
        raise refuse(
            f"the request has {size:,} bytes of JSON; a run takes at most {MAX_PAYLOAD:,}", where=name, hint=hint
        )
    if not run_id or not run_id.isprintable() or len(run_id.encode()) > MAX_ID_BYTES:
        raise refuse(f"an id is 1 to {MAX_ID_BYTES} bytes of printable text", where="--id")
    try:
        return await client.start_workflow(
            workflow, request, id=run_id, task_queue=server.task_queue(), rpc_timeout=server.RPC
        )
    except WorkflowAlreadyStartedError:
        raise refuse(
            f'a run "{clean(run_id)}" is going on',
            where="--id",
            hint=f"choose another id, or look at it: acts show {clean(run_id)}",
        ) from None


async def finish(
    client: Client, handle: WorkflowHandle[Any, Any], workflow: str, source: Source | None, options: Options
) -> int:
    """Wait for the end of a run and show it."""
    from cli.runs.follow import watched

    began = time.monotonic()
    try:
        outcome = await (watched(client, handle) if options.watch else wait(handle))
    except asyncio.CancelledError:  # Ctrl-C
        say(f"stopped waiting; the run goes on: acts show {clean(handle.id)}, acts cancel {clean(handle.id)}")
        raise
    if options.as_json:
        out_json(outcome.to_json())
    elif not outcome.problems:
        print_outcome(outcome, handle.id, workflow, f"{time.monotonic() - began:.1f} s")
        print_blocks(failure_blocks(outcome))
        print_forecast(own(outcome.result), OWN)
    if outcome.problems:
        _print_problems(outcome, source)
    return outcome.code


def _print_problems(outcome: Outcome, source: Source | None) -> None:
    """What the worker says against the Request."""
    print_blocks([MessageBlock(f"the worker refuses the request ({INVALID_REQUEST})")])
    print_blocks(blocks(outcome.problems, source))


def web_link(ui_url: str | None, namespace: str, handle: WorkflowHandle[Any, Any]) -> str:
    """Where the Web UI shows a run, if we know a Web UI."""
    return f"{ui_url}/namespaces/{quote(namespace, safe='')}/workflows/{quote(handle.id, safe='')}" if ui_url else ""
