"""What the tools of ``acts mcp`` do: JSON in, JSON out, a ``CommandError`` for everything that a caller can correct.

They are the commands of the same names, without their printing. Nothing here knows of MCP.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from acts.language.wire import AGENT, APPROVE, PLAN, REJECT
from acts.provenance.trace import Limits, ProvenanceIndex
from cli.command_errors import command_error
from cli.commands.decide import ApprovalTarget, find_approval, login_name, send_decision
from cli.commands.pending import read_approvals_of, report_json
from cli.commands.run import start
from cli.commands.why import parse_path
from cli.runs import server
from cli.runs.progress import read_progress
from cli.runs.run_outcome import Outcome, wait_for_outcome
from cli.runs.run_reader import RunReader, open_run
from cli.runs.run_record import read_record
from cli.text.preflight import Preflight, missing_tools_error, run_preflight

# Clients give a tool about a minute; a run goes on without anybody waiting
DEFAULT_WAIT_SECONDS: Final = 30.0
MAX_WAIT_SECONDS: Final = 600.0
# Calls that wrote one value, and lines in all
_WHY_EACH, _WHY_ALL = 20, 200

Answer = dict[str, Any]


async def _check(request: Json, agent: bool | None) -> Preflight:  # noqa: FBT001 - None: the request decides
    return await asyncio.to_thread(run_preflight, request, agent=agent)


async def validate(request: Json, agent: bool | None = None) -> Answer:  # noqa: FBT001 - as above
    """Every problem of a Request, and what it would be run as."""
    preflight = await _check(request, agent)
    problems = [p.to_json() for p in preflight.problems]
    return {"valid": not preflight.errors, "runsAs": AGENT if preflight.agent else PLAN, "problems": problems}


async def simulate(request: Json) -> Answer:
    """What a plan would do; of an invalid one, its problems."""
    from acts.simulation.simulate import simulate as simulate_request

    preflight = await _check(request, agent=False)
    if preflight.errors:
        return {"valid": False, "problems": [p.to_json() for p in preflight.problems]}
    if preflight.unseen:
        raise missing_tools_error("the simulation", preflight.unseen)
    try:
        simulation = await asyncio.to_thread(simulate_request, request, preflight.tools, preflight.served)
    except InvalidRequest as error:
        return {"valid": False, "problems": [p.to_json() for p in error.problems]}
    return {"valid": True, **simulation}


async def run(
    request: Json,
    id: str | None = None,  # noqa: A002 - the name of the tool's parameter
    wait: float = DEFAULT_WAIT_SECONDS,
    agent: bool | None = None,  # noqa: FBT001 - as above
) -> Answer:
    """Start a Request, and wait some seconds for its end."""
    preflight = await _check(request, agent)
    if preflight.errors:
        return {"valid": False, "problems": [p.to_json() for p in preflight.problems]}
    client = await server.connect()
    workflow = AGENT if preflight.agent else PLAN
    reader = await start(client, workflow, request, id or f"mcp-{secrets.token_hex(4)}", "the request")
    try:
        outcome = await asyncio.wait_for(wait_for_outcome(reader.handle), min(max(wait, 0.0), MAX_WAIT_SECONDS))
    except TimeoutError:
        return await _running(reader)
    return _ended(reader, outcome)


async def status(id: str) -> Answer:  # noqa: A002 - the name of the tool's parameter
    """A run as it is now, or its outcome."""
    reader = await open_run(id)
    await reader.describe()
    outcome = await reader.outcome()
    return await _running(reader) if outcome is None else _ended(reader, outcome)


async def _running(reader: RunReader) -> Answer:
    progress = await read_progress(reader)
    note = {}
    if progress is None:
        note["note"] = await reader.obstacle() or f"no worker answers: {server.START_WORKER}"
    return {"id": reader.id, "status": "running", "progress": progress, **note}


def _ended(reader: RunReader, outcome: Outcome) -> Answer:
    """The outcome, without the messages that the Calls appended: the state is their sum."""
    result = outcome.result
    if isinstance(result, dict):
        result = {key: value for key, value in result.items() if key != "context"}
    report = {"id": reader.id, "status": outcome.status, "result": result, "error": outcome.error}
    return {key: value for key, value in report.items() if value is not None}


async def pending(id: str | None = None) -> Answer:  # noqa: A002 - the name of the tool's parameter
    """The approvals that wait for a person, in one run or in all."""
    return report_json(await read_approvals_of(id))


async def approve(
    id: str,  # noqa: A002 - the name of the tool's parameter
    decision: str = APPROVE,
    call: str | None = None,
    instance: str | None = None,
    version: int | None = None,
    reason: str | None = None,
) -> Answer:
    """Approve or reject what waits. The record names the person whose client it is, and that it was a program."""
    if decision == REJECT and not (reason or "").strip():
        raise command_error("a rejection needs a reason", hint="an agent plans again with it")
    by = f"{login_name() or 'somebody'} (acts mcp)"
    target = ApprovalTarget(id, call=call, instance=instance, version=version, by=by, reason=reason)
    reader = await open_run(id)
    approval = await find_approval(reader, target, decision)
    after = await send_decision(reader, target, approval, {"decision": decision})
    phase = after.get("phase") if isinstance(after, dict) else None
    return {"decision": decision, "approval": approval.to_json(), "phase": phase}


async def why(id: str, path: str, instance: str | None = None, depth: int = Limits.depth) -> Answer:  # noqa: A002 - as above
    """Where a value of a run came from."""
    where = parse_path(path)
    read = await read_record(await open_run(id))
    index = ProvenanceIndex(read.record)
    trace = index.why(where, instance, limits=Limits(depth, _WHY_EACH, _WHY_ALL))
    if trace.text is None:
        _, names, likely = index.near(where, instance)
        hint = f"there is {', '.join(map(str, names[:20]))}" if names else f"did you mean {likely}?" if likely else ""
        raise command_error(f"there is no value at {path}", hint=hint)
    return {**trace.to_json(), "value": index.value(where, instance)}
