"""``acts pending``, ``approve``, ``reject`` and ``edit``: what waits for a person, and what a person decides.

- A decision goes to the run that waits, by the update ``decide``: it is applied, or refused with a reason, before the
  command ends. It names the version that is pending when it is sent, so nobody decides about a change that they have
  not seen. Every wait is bounded; an update that no worker answered may still be applied later, and the error says so.
- The difference of an edit is printed before it is sent; the worker names its problems. A text that is not sent is kept
  in a file, and the file is named. An edit is not an approval, and the output says so.
- ``pending`` says what it has not seen: runs whose worker does not answer, runs beyond the limit.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from acts.cli.command_line import AsJson, CommandGroup, Note, Run, Yes, read_seconds, require_yes
from acts.cli.console import (
    EXIT_DONE,
    CommandError,
    clean,
    command_error,
    console,
    count_text,
    list_names,
    message,
    print_blocks,
    print_err,
    print_json,
)
from acts.cli.render.tables import decision_command, hints_text, new_table, parameter_lines, print_diff
from acts.cli.runs import server
from acts.cli.runs.listings import PendingFilters, PendingReport, RunApprovals, read_all
from acts.cli.runs.run_reader import RunReader, add_parameters, open_run
from acts.cli.runs.signing import sign_decision
from acts.cli.text.source import (
    SourceText,
    compare_plans,
    format_plan,
    problem_blocks,
    problems_from_json,
    read_source,
)
from acts.language.errors import DecisionRefused
from acts.language.values import Json
from acts.language.wire import APPROVE, DECIDE, EDIT, INVALID_REQUEST, REJECT
from acts.tree.decisions import Decision, PendingApproval, match_decision

# Approvals that a person is shown; --json has all of them, unless --limit says otherwise
SHOWN: Final = 50
_MAX_NAMES: Final = 10
_MAX_VALUE: Final = 100  # characters of one parameter in the table, and how many of them; `acts show` has all
_MAX_ROWS: Final = 8
UPDATE_TIMEOUT: Final = timedelta(seconds=10)  # a worker needs milliseconds; one that has just started, a second or two
# The pointer of a plan in a Request, or in a Solution
_PLAN_POINTER: Final = re.compile(r"^(/context/\d+/plan|/calls)(?=/|$)")

AnyRun = Annotated[str | None, typer.Argument(metavar="ID", help="The id of a run (default: all runs).")]
WaitingTool = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool, and plans that have one.")
]
WaitsSince = Annotated[str | None, typer.Option("--older", metavar="TIME", help="Waiting for this time, like 1h.")]
MostApprovals = Annotated[
    int | None, typer.Option("--limit", min=1, max=10_000, help="At most so many (default: 50; with --json all).")
]
Call = Annotated[str | None, typer.Option("--call", "-c", metavar="CALL", help="One call, like 2:refund.")]
Instance = Annotated[str | None, typer.Option(metavar="NAME", help="One of several instances.")]
Below = Annotated[
    str | None, typer.Option("--workflow-id", metavar="ID", help="One of several waiting runs below this one.")
]
Version = Annotated[
    int | None, typer.Option(min=1, help="The version that you have seen; the decision is refused for another one.")
]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides (default: the login name).")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; an agent plans again with it.")]
NewPlan = Annotated[
    str | None, typer.Option("--file", metavar="PLAN", help="Calls, or a call: sent instead of opening an editor.")
]
SigningKey = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="Sign the decision with this private key (acts keygen).")
]

app = CommandGroup()


@dataclass(frozen=True)
class ApprovalTarget:
    """A decision in a word, the approval that is meant, and who decides (None: the login name). None leaves it open.

    ``key`` is the file of a private key: the decision is signed with it.
    """

    word: str
    run: str
    call: str | None = None
    instance: str | None = None
    workflow_id: str | None = None
    version: int | None = None
    by: str | None = None
    reason: str | None = None
    key: str | None = None


@app.add
async def pending(
    run: AnyRun = None, tool: WaitingTool = None, older: WaitsSince = None, limit: MostApprovals = None,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """List everything that waits for a person, across all runs or in one; the oldest runs first.

    Examples:
      acts pending
      acts pending --tool refund --older 1h
    """
    limit = SHOWN if limit is None and not as_json else limit
    report = await read_approvals_of(run, PendingFilters(tool, read_seconds(older, "--older"), limit))
    if as_json:
        return print_json(report.to_json())
    if report.approvals:
        console().print(_approvals_table(report.approvals))
    else:
        print_err("nothing waits for a decision" + (" in the runs that answered" if report.unanswered else ""))
    if report.unread:
        print_err(f"… {count_text(report.unread, 'more run')} may wait; --limit lists more", "dim")
    if report.unanswered:
        text = f"no worker answered for {list_names(report.unanswered, _MAX_NAMES)}"
        print_blocks([message(text, hint=server.START_WORKER, severity="warning")])
    return EXIT_DONE


@app.add
async def approve(
    run: Run, call: Call = None, version: Version = None, by: By = None, note: Note = None, instance: Instance = None,
    workflow_id: Below = None, key: SigningKey = None,
) -> int:  # fmt: skip
    """Approve a plan or a call that waits.

    Examples:
      acts approve order-7
      acts approve order-7 --call 2:refund --version 1 --note "as agreed"
    """
    return await _decide("approved", ApprovalTarget(APPROVE, run, call, instance, workflow_id, version, by, note, key))


@app.add
async def reject(
    run: Run, reason: Reason, call: Call = None, version: Version = None, by: By = None, instance: Instance = None,
    workflow_id: Below = None, key: SigningKey = None,
) -> int:  # fmt: skip
    """Reject a plan or a call that waits, with a reason."""
    return await _decide("rejected", ApprovalTarget(REJECT, run, call, instance, workflow_id, version, by, reason, key))


@app.add
async def edit(
    run: Run, call: Call = None, file: NewPlan = None, yes: Yes = False, version: Version = None, by: By = None,
    note: Note = None, instance: Instance = None, workflow_id: Below = None, key: SigningKey = None,
) -> int:  # fmt: skip
    """Change the plan that waits, or one call, in $EDITOR. The new version then waits for an approval of its own."""
    target = ApprovalTarget(EDIT, run, call, instance, workflow_id, version, by, note, key)
    reader = await open_run(run)
    approval = await find_approval(reader, target)
    waiting = reader.other(approval.workflow_id)
    calls = await waiting.require(waiting.plan())
    name = call or approval.call
    position = None if name is None else call_position(name)
    if position is not None and position >= len(calls):
        raise command_error(f"the plan that waits has {len(calls)} calls, and no {name}", where="--call")
    before: Json = calls if position is None else calls[position]
    with _edited_text(file, before) as source:
        value = source.value
        if value == before:
            print_err("nothing was changed")
            return EXIT_DONE
        if isinstance(value, list):  # a whole plan, perhaps in place of one call
            before, position = calls, None
        print_diff(compare_plans(before, value, ("waits", "edited")))
        require_yes("send it?", "it was not sent", yes=yes)
        content = {"plan": value} if position is None else {"call": name, "with": value}
        await send_decision(reader, target, approval, content, source)
    print_err(f"edited, and an edit is no approval: `acts pending {clean(run, 200)}` lists what waits now")
    return EXIT_DONE


# -- what waits ------------------------------------------------------------------------------------------------------


async def read_approvals_of(id_: str | None, filters: PendingFilters | None = None) -> PendingReport:
    """The approvals of a run, or of all."""
    filters = filters or PendingFilters()
    if id_ is None:
        return await read_all(await server.connect(), filters)
    return PendingReport(await _read_one(await open_run(id_), filters))


async def _read_one(run: RunReader, filters: PendingFilters) -> list[RunApprovals]:
    await run.describe_running()
    approvals = await run.require(run.pending())
    plan = await run.plan() if filters.tool is not None else None
    tools = [str(call.get("_tool")) for call in plan or () if isinstance(call, dict)]
    approvals = filters.keep(approvals, tools, datetime.now(UTC))[: filters.limit]
    return [(run.id, await add_parameters(run, approvals))] if approvals else []


def _approvals_table(approvals: Sequence[RunApprovals]) -> Table:
    table = new_table("run", "waits", "version", "since", "until", "to approve")
    for run, listed in approvals:
        for approval in listed:
            rows = parameter_lines(approval, _MAX_VALUE)
            more = [f"  … {len(rows) - _MAX_ROWS} more"] if len(rows) > _MAX_ROWS else []
            scopes = " (its scopes)" if approval.what == "scopes" else ""
            instance = f" [{approval.instance}]" if approval.instance else ""
            subject = f"{approval.call or 'the plan'}{scopes}{hints_text(approval)}{instance}"
            what = [clean(subject, 200), *(f"  {row}" for row in rows[:_MAX_ROWS]), *more]
            dates = ("" if d is None else f"{d[:19].replace('T', ' ')}Z" for d in (approval.since, approval.deadline))
            command = decision_command(APPROVE, run, approval)
            cells = (clean(run, 200), "\n".join(what), clean(approval.version, 200), *dates, command)
            table.add_row(*map(Text, cells))
    return table


# -- decisions -------------------------------------------------------------------------------------------------------


def login_name() -> str | None:
    """The login name of the person at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


async def _decide(past: str, target: ApprovalTarget) -> int:
    run = await open_run(target.run)
    approval = await find_approval(run, target)
    status = await send_decision(run, target, approval)
    state = f"; the run is {status['phase']}" if isinstance(status, dict) and "phase" in status else ""
    print_err(clean(f"{past}: {approval} (version {approval.version}){state}"))
    return EXIT_DONE


async def find_approval(run: RunReader, target: ApprovalTarget) -> PendingApproval:
    """The one pending approval that a target matches.

    Raises:
        CommandError: it matches none, or several, or no worker answers.
    """
    if target.word == REJECT and not (target.reason or "").strip():
        raise command_error("a rejection needs a reason", hint="an agent plans again with it")
    await run.describe_running()
    approvals = await run.require(run.pending())
    decision = Decision.model_construct(
        decision=target.word, call=target.call, instance=target.instance, workflow_id=target.workflow_id,
        version=target.version,
    )  # fmt: skip
    try:
        return match_decision(approvals, decision)
    except DecisionRefused as error:
        hint = f"`acts pending {clean((await run.root()).id, 200)}` lists all that waits in its tree"
        raise command_error(str(error), hint=hint) from None


async def send_decision(
    run: RunReader, target: ApprovalTarget, approval: PendingApproval, content: dict[str, Any] | None = None,
    source: SourceText | None = None,
) -> Any:  # fmt: skip
    """Send a decision about an approval; the status of the run after it.

    ``content`` is that of an edit, ``source`` its text, so that problems name its lines.

    Raises:
        CommandError: it is refused, or no worker answers.
    """
    from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
    from temporalio.service import RPCError, RPCStatusCode

    keys = {"decision": target.word, "call": approval.call, "instance": approval.instance, "version": approval.version}
    keys |= {"by": login_name() if target.by is None else target.by, "reason": target.reason}
    decision = {k: v for k, v in keys.items() if v is not None} | (content or {})
    waiting = run.other(approval.workflow_id)
    if target.key is not None:
        decision = await sign_decision(target.key, waiting, approval, decision)
    try:
        update = waiting.handle.execute_update(DECIDE, decision, rpc_timeout=UPDATE_TIMEOUT)
        return await asyncio.wait_for(update, UPDATE_TIMEOUT.total_seconds() + 1)
    except WorkflowUpdateFailedError as error:
        raise _refused_error(error.cause, source, decision) from None
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
        pass
    except RPCError as error:
        if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise server.explain_rpc_error(error, waiting.id) from None
    hint = f"{server.START_WORKER}; it may still apply this decision: check `acts show` before you send it again"
    raise await waiting.no_answer_error("the decision is not applied yet", hint)


def _refused_error(cause: BaseException, source: SourceText | None, decision: dict[str, Any]) -> CommandError:
    from temporalio.exceptions import ApplicationError

    if isinstance(cause, ApplicationError) and cause.type == INVALID_REQUEST and cause.details:
        items = cause.details[0] if isinstance(cause.details[0], list) else []
        prefix = f"/{call_position(str(decision['call']))}" if "with" in decision else ""
        items = [{**item, "pointer": locate_in_edit(str(item.get("pointer", "")), prefix)} for item in items]
        return CommandError(*problem_blocks(problems_from_json(items), source))
    text = getattr(cause, "message", None) or str(cause)
    hint = "nothing has changed; `acts pending` lists what waits"
    return command_error(f"the decision was refused: {text}", hint=hint)


def locate_in_edit(pointer: str, prefix: str) -> str:
    """A pointer into a plan as one into the edited text, which holds all Calls, or the one at ``prefix``."""
    return _PLAN_POINTER.sub("", pointer).removeprefix(prefix)


def call_position(call: str) -> int:
    """The position of a Call in its plan, from 0; its id is ``<position from 1>:<tool>``.

    Raises:
        CommandError: it is not such an id.
    """
    number = call.partition(":")[0]
    if not number.isdecimal() or int(number) < 1:
        raise command_error(f'"{clean(call, 100)}" is not the id of a call', where="--call", hint="like 2:refund")
    return int(number) - 1


# -- edits ------------------------------------------------------------------------------------------------------------


@contextmanager
def _edited_text(file: str | None, before: Json) -> Iterator[SourceText]:
    """The calls, or the call, of a file or from an editor. An error in the block names the file that keeps the text."""
    if file is not None:
        yield read_source(file)
        return
    text, format_ = format_plan(before)
    suffix = f".{format_.lower()}"
    with tempfile.NamedTemporaryFile("w", prefix="acts-edit-", suffix=suffix, delete=False, encoding="utf-8") as opened:
        opened.write(text)
    path = Path(opened.name)
    try:
        _run_editor(path)
        yield read_source(str(path))
    except CommandError as error:
        hint = f"correct it, and send it with --file {path}"
        note = message(f"your text is kept in {path}", hint=hint, severity="note")
        raise CommandError(*error.blocks, note, code=error.code) from None
    path.unlink(missing_ok=True)


def _run_editor(path: Path) -> None:
    """Let a person change a file.

    Raises:
        CommandError: there is no editor, or it failed.
    """
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        subprocess.run([*shlex.split(program), str(path)], check=True)  # noqa: S603 - the person's editor
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        text = f"the editor {clean(program, 100)!r} failed, so nothing was sent: {error}"
        raise command_error(text, hint="set EDITOR, or name a file with --file") from None
