"""``acts pending``, ``approve``, ``reject`` and ``edit``: pending decisions, and how a person decides; and
``provide``, ``cancel``, ``pause`` and ``resume``, which change a run and do not wait for what follows.

- A decision names the version that is pending when it is sent: nobody decides about a change that they have not seen.
- The difference of an edit is printed before it is sent. A text that is not sent is kept in a file, which is named.
- ``provide`` is an update, too; where no worker answers, or the server takes no updates, it is a signal.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.text import Text
from temporalio.service import RPCError

from acts.cli import bulk
from acts.cli import console as cli
from acts.cli.console import CommandError, clean, command_error, console, message, option, print_err
from acts.cli.render.tables import approval_lines, print_diff
from acts.cli.text import source as texts
from acts.cli.text.source import source_error
from acts.client import client, run_decisions, server
from acts.client.client_errors import ClientError
from acts.client.run_reader import IS_WAITING, RunReader, add_parameters, open_run, read_pending
from acts.language.config import parse_seconds
from acts.language.errors import DecisionRefused, InvalidRequest, visible
from acts.language.messages import Data, counting_now, parse_message
from acts.language.source_text import SourceText
from acts.language.values import Json, is_equal
from acts.language.wire import ANSWER, APPROVE, DECIDE, EDIT, PROVIDE, REJECT, REVOKE
from acts.tree.decisions import SHORT_SUBJECT, Decision, PendingApproval, Remember, read_decision
from acts.views.text import tool_change_lines

_MAX_ROWS: Final = 24  # of what is decided in the table, and characters of each; `acts show` has more
_MAX_WIDTH: Final = 400

AnyRun = Annotated[str | None, cli.argument("ID", "The id of a run (default: all runs).")]
WaitingTool = Annotated[str | None, option("--tool NAME", "Only calls of this tool, and plans that have one.")]
WaitsSince = Annotated[str | None, option("--older TIME", "Waiting for this time, like 1h.")]
MostApprovals = Annotated[
    int | None, option("--limit", "At most so many (default: 50; with --json all).", min=1, max=10_000)
]
Call = Annotated[str | None, option("--call,-c CALL", "One call, like 2:refund.")]
Instance = Annotated[str | None, option("--instance NAME", "One of several instances.")]
Below = Annotated[str | None, option("--workflow-id ID", "One of several waiting runs below this one.")]
Version = Annotated[
    int | None, option("--version", "The version that you have seen; the decision is refused for another one.", min=1)
]
Subject = Annotated[
    str | None, option("--subject HEX", "What you have seen, as the commands have it; the decision is refused else.")
]
By = Annotated[str | None, option("--by NAME", "Who decides (default: the login name).")]
Reason = Annotated[str, option("--reason TEXT", "Why; an agent plans again with it.")]
Remembers = Annotated[bool, option("--remember", "Approve calls like this one, too, until it is revoked …")]
LikeWhen = Annotated[str | None, option("--when CONDITION", '… if this holds of them, like "†call.cents < 1000".')]
LikeCount = Annotated[int | None, option("--count", "… so many more.", min=1)]
LikeUntil = Annotated[str | None, option("--until TIME", "… until then: a date with its zone, or like 8h.")]
AnsweredCall = Annotated[str | None, cli.argument("CALL", "The call, like 2:ask (default: the one that waits).")]
Output = Annotated[str | None, option("--output JSON", "The answer.")]
Fields = Annotated[list[str] | None, option("--set FIELD=VALUE", "One field of it; what is no JSON is a text.")]
Remembered = Annotated[str, cli.argument("NAME", "What to revoke, as `acts show` names it.")]
NewPlan = Annotated[str | None, option("--file PLAN", "Calls, or a call: sent instead of opening an editor.")]
SigningKey = Annotated[str | None, option("--key FILE", "Sign the decision with this private key (acts keygen).")]
Message = Annotated[str, cli.argument("MESSAGE", "A data, input or state message, or text: JSON, or a file with it.")]
Now = Annotated[bool, option("--now", "What an agent has not started of its tick does not start; it plans again.")]

app = cli.CommandGroup()


@app.add
async def pending(
    run: AnyRun = None, tool: WaitingTool = None, older: WaitsSince = None, limit: MostApprovals = None,
    as_json: cli.AsJson = False,
) -> int:  # fmt: skip
    """List everything that waits for a person, across all runs or in one; the oldest runs first.

    Examples:
      acts pending
      acts pending --tool refund --older 1h
    """
    most = 50 if limit is None and not as_json else limit
    report = await read_pending(run, tool, cli.read_seconds(older, "--older"), most)
    if as_json:
        return cli.print_json(report.to_json())
    blocks = [(id_, approval) for id_, listed in report.approvals for approval in listed]
    for at, (id_, approval) in enumerate(blocks):
        lines = [""] * bool(at) + list(approval_lines(id_, [approval], _MAX_ROWS, _MAX_WIDTH))
        for line in lines:
            console().print(Text(line))
    if not report.approvals:
        print_err("nothing waits for a decision" + (" in the runs that answered" if report.unanswered else ""))
    if report.unread:
        print_err(f"… {cli.count_text(report.unread, 'more run')} may wait; --limit lists more", "dim")
    if report.unanswered:
        text = f"no worker answered for {cli.list_names(report.unanswered, 10)}"
        cli.print_message(text, hint=server.START_WORKER, severity="warning")
    return cli.EXIT_DONE


@app.add
async def approve(
    run: bulk.AnyRun = None, call: Call = None, version: Version = None, subject: Subject = None, by: By = None,
    note: cli.Note = None, instance: Instance = None, workflow_id: Below = None, key: SigningKey = None,
    remember: Remembers = False, when: LikeWhen = None, count: LikeCount = None, until: LikeUntil = None,
    query: bulk.Query = None, phase: bulk.Phases = None, tool: WaitingTool = None, tag: bulk.Tags = None,
    since: bulk.Since = None, dry_run: bulk.DryRun = False, max_rate: bulk.MaxRate = bulk.RATE,
    yes: bulk.YesCount = None,
) -> int:  # fmt: skip
    """Approve a plan or a call that waits; with --remember also the calls like it that follow in this run.

    Without an ID, all that waits in the runs that the options name is shown, and approved as
    it was shown once its number is typed.

    Examples:
      acts approve order-7
      acts approve order-7 --call 2:refund --version 1 --note "as agreed"
      acts approve order-7 --call 2:refund --remember --count 20 --until 8h --when "†call.cents < 1000"
      acts approve --tool refund --tag customer=c-17
    """
    decision = Decision.model_construct(
        decision=APPROVE, call=call, instance=instance, workflow_id=workflow_id, version=version, subject=subject,
        by=by, reason=note, remember=_read_remember(remember=remember, when=when, count=count, until=until),
    )  # fmt: skip
    many = bulk.Bulk(query, phase or (), tool, tag or (), since, dry_run, max_rate, yes)
    if not many.require_one_way(run):
        await _decide(str(run), "approved", decision, key)
        return cli.EXIT_DONE
    if remember or any((call, instance, workflow_id, version, subject)):
        text = "a call, an instance, a version, a subject and --remember are of one run"
        raise command_error(text, hint="name it by its ID")
    return await _approve_many(many, decision, key)


def _read_remember(*, remember: bool, when: str | None, count: int | None, until: str | None) -> Remember | None:
    limits = {"when": when, "count": count, "until": None if until is None else _date(until)}
    if not remember:
        if any(value is not None for value in limits.values()):
            raise command_error("--when, --count and --until are limits of --remember", hint="add --remember")
        return None
    own = {key: value for key, value in limits.items() if value is not None}
    try:
        read_decision({"decision": APPROVE, "remember": own})
    except DecisionRefused as error:
        raise command_error(clean(str(error)), where="--remember") from None
    return Remember.model_validate(own)


async def _approve_many(many: bulk.Bulk, decision: Decision, key: str | None) -> int:
    """Approve what is shown whole, with its subject: whatever differs by then is refused by its run."""
    temporal = await server.connect()
    rows = await many.choose(temporal, IS_WAITING, tool=False)
    report = await read_pending(None, many.tool, client=temporal, only=frozenset(row["id"] for row in rows))
    waits = [(RunReader(temporal, id_), approval) for id_, listed in report.approvals for approval in listed]
    for id_, listed in report.approvals:
        for line in approval_lines(id_, listed, sys.maxsize, sys.maxsize, len(listed)):
            console().print(Text(line))
    if report.unanswered:
        cli.print_message(f"no worker answered for {cli.list_names(report.unanswered, 10)}", severity="warning")
    whole = [(run, approval) for run, approval in waits if approval.content is not None and approval.subject]
    if len(whole) < len(waits):
        text = f"{cli.count_text(len(waits) - len(whole), 'approval')} not shown whole: left alone"
        cli.print_message(text, severity="warning")

    async def approve_one(run: RunReader, approval: PendingApproval) -> str:
        own = decision.model_copy(update={"subject": approval.subject})
        await run_decisions.send_decision(run, own, approval, sign=_signer(key, own))
        return "approved"

    return await many.perform("approve", "decision", [(run.id, partial(approve_one, run, a)) for run, a in whole])


@app.add
async def answer(
    run: cli.Run, call: AnsweredCall = None, output: Output = None, fields: Fields = None, version: Version = None,
    subject: Subject = None, by: By = None, note: cli.Note = None, instance: Instance = None, workflow_id: Below = None,
    key: SigningKey = None,
) -> None:  # fmt: skip
    """Answer what a person is asked; what does not fit the form is refused, and the call goes on waiting.

    Examples:
      acts answer order-7 2:ask --output '{"ok": true}'
      acts answer order-7 2:ask --set ok=true --set "why=as agreed"
    """
    if (output is None) is not bool(fields):
        raise command_error("an answer is given once", hint="by --output JSON, or by --set field=value for each field")
    value = texts.read_inputs(fields or []) if output is None else texts.parse_source("--output", output, "JSON").value
    await _decide(run, "answered", Decision.model_construct(
        decision=ANSWER, call=call, instance=instance, workflow_id=workflow_id, version=version, subject=subject,
        by=by, reason=note, output=value,
    ), key)  # fmt: skip


@app.add
async def revoke(run: cli.Run, name: Remembered, by: By = None, reason: cli.Note = None) -> None:
    """Ask about calls again that somebody has approved from now on; `acts show` lists these approvals."""
    reader = await (await open_run(run)).root()
    sent = {"decision": REVOKE, "remembered": name, "by": by or run_decisions.login_name(), "reason": reason}
    await reader.ask(run_decisions.send_update(reader, DECIDE, {k: v for k, v in sent.items() if v is not None}))
    print_err(f"revoked: people decide about such calls of {clean(run)} again")


def _date(until: str) -> str:
    """A date, or a time from now like 8h, as a date with its zone."""
    try:
        moment = datetime.now(UTC) + timedelta(seconds=parse_seconds(until))
    except ValueError:
        return until
    return moment.isoformat(timespec="seconds")


@app.add
async def reject(
    run: cli.Run, reason: Reason, call: Call = None, version: Version = None, subject: Subject = None, by: By = None,
    instance: Instance = None, workflow_id: Below = None, key: SigningKey = None,
) -> None:  # fmt: skip
    """Reject a plan or a call that waits, with a reason."""
    await _decide(run, "rejected", Decision.model_construct(
        decision=REJECT, call=call, instance=instance, workflow_id=workflow_id, version=version, subject=subject,
        by=by, reason=reason,
    ), key)  # fmt: skip


@app.add
async def edit(
    run: cli.Run, call: Call = None, file: NewPlan = None, yes: cli.Yes = False, version: Version = None,
    subject: Subject = None, by: By = None, note: cli.Note = None, instance: Instance = None, workflow_id: Below = None,
    key: SigningKey = None,
) -> None:  # fmt: skip
    """Change the plan that waits, or one call, in $EDITOR. The new version then waits for an approval of its own."""
    decision = Decision.model_construct(
        decision=EDIT, call=call, instance=instance, workflow_id=workflow_id, version=version, subject=subject, by=by,
        reason=note,
    )  # fmt: skip
    reader = await open_run(run)
    approval = await run_decisions.find_approval(reader, decision)
    waiting = reader.other(approval.workflow_id)
    calls = await waiting.require(waiting.plan())
    name = call or approval.call
    position = None if name is None else run_decisions.call_position(name)
    if position is not None and position >= len(calls):
        raise command_error(f"the plan that waits has {len(calls)} calls, and no {name}", where="--call")
    before: Json = calls if position is None else calls[position]
    with _edited_text(file, before) as source:
        value = source.value
        if is_equal(value, before):
            print_err("nothing was changed")
            return
        if isinstance(value, dict) and "context" in value and "_tool" not in value:
            hint = "give the list of calls that its plan message holds, or one call: `acts pending` names what waits"
            raise command_error("this is a whole request, and an edit changes calls", where=source.name, hint=hint)
        if isinstance(value, list):  # a whole plan, perhaps in place of one call
            before, position = calls, None
        print_diff(texts.compare_plans(before, value, ("waits", "edited")))
        cli.require_yes("send it?", "it was not sent", yes=yes)
        content = {"plan": value} if position is None else {"call": name, "with": value}
        with _problems_in(source):
            await run_decisions.send_decision(reader, decision, approval, sign=_signer(key, decision), content=content)
    print_err(f"edited, and an edit is no approval: `{cli.shell('acts', 'pending', run)}` lists what waits now")


async def _decide(id_: str, past: str, decision: Decision, key: str | None) -> None:
    run = await open_run(id_)
    approval = await run_decisions.find_approval(run, decision)
    [whole] = await add_parameters(run, [approval]) if decision.decision == APPROVE else [approval]
    for text in tool_change_lines(whole.about):
        cli.print_message(clean(text), severity="warning")
    status = await run_decisions.send_decision(run, decision, approval, sign=_signer(key, decision))
    state = f"; the run is {status['phase']}" if isinstance(status, dict) and "phase" in status else ""
    print_err(clean(f"{past}: {approval} (version {approval.version}){state}"))


@contextmanager
def _problems_in(source: SourceText) -> Iterator[None]:
    """A block in which a text is sent: the problems that the run has with it name its lines."""
    try:
        yield
    except ClientError as error:
        if not error.problems:
            raise
        raise CommandError(*texts.problem_blocks(error.problems, source)) from None


def _signer(file: str | None, decision: Decision) -> run_decisions.Sign | None:
    """What signs a decision with the key of a file, if the run that waits shows what it wants signed."""
    if file is None:
        return None
    key = run_decisions.read_signing_key(file)
    return partial(_sign, key, is_named=decision.subject is not None)


async def _sign(
    key: Ed25519PrivateKey, waiting: RunReader, approval: PendingApproval, decision: dict[str, Any], *, is_named: bool
) -> dict[str, Any]:
    """The decision, signed. What is approved is printed whole; who has not named its subject says yes to it."""
    whole = await run_decisions.read_signable(waiting, approval)
    cli.print_err(visible(json.dumps(whole.content, indent=2, ensure_ascii=False), "\n"))
    if decision["decision"] in (APPROVE, ANSWER) and not is_named:
        hint = f"name what you have seen: --subject {str(approval.subject)[:SHORT_SUBJECT]}"
        cli.require_yes("Sign the approval of this?", "nothing was signed", hint=hint)
    return run_decisions.with_signature(key, whole, decision)


@contextmanager
def _edited_text(file: str | None, before: Json) -> Iterator[SourceText]:
    """The calls, or the call, of a file or from an editor. An error in the block names the file that keeps the text."""
    if file is not None:
        yield texts.read_source(file)
        return
    text, format_ = texts.format_plan(before)
    suffix = f".{format_.lower()}"
    with tempfile.NamedTemporaryFile("w", prefix="acts-edit-", suffix=suffix, delete=False, encoding="utf-8") as opened:
        opened.write(text)
    path = Path(opened.name)
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        try:
            subprocess.run([*shlex.split(program), str(path)], check=True)  # noqa: S603 - the person's editor
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            text = f"the editor {clean(program, 100)!r} failed, so nothing was sent: {error}"
            raise command_error(text, hint="set EDITOR, or name a file with --file") from None
        yield texts.read_source(str(path))
    except (CommandError, ClientError) as error:
        hint = f"correct it, and send it with --file {cli.shell(path)}"
        note = message(f"your text is kept in {path}", hint=hint, severity="note")
        error = cli.as_command_error(error) if isinstance(error, ClientError) else error
        raise CommandError(*error.blocks, note, code=error.code) from None
    path.unlink(missing_ok=True)


@app.add
async def provide(run: cli.Run, message: Message, now: Now = False) -> None:
    """Send a run a message that it waits for, or an agent a user's words.

    Examples:
      acts provide order-7 '{"type": "data", "kind": "guest", "data": {"name": "Ada"}}'
      acts provide agent-7 --now '{"type": "text", "text": "Refund half of it only"}'
    """
    is_json = message.lstrip().startswith(("{", "[", '"'))
    source = texts.parse_source("the message", message, "JSON") if is_json else texts.read_source(message)
    try:
        data = parse_message(source.value)
    except InvalidRequest as error:
        raise source_error(source, error.problems) from None
    if not isinstance(data, Data) and data.type != "text":
        head = f"a {data.type} message cannot be provided"
        raise command_error(head, where=source.name, hint="only data, input and state can, and an agent's user's text")
    sent = counting_now(source.value) if now else source.value
    reader = await open_run(run)
    # Beside a wrapped payload, the message may name a run below, which judges it; else this key is data
    below = data.raw.get("workflowId") if data.raw.get("type") in data.raw else None
    receiver = reader.other(below) if isinstance(below, str) else reader
    answers = await receiver.status() is not None
    if answers:
        with suppress(RPCError), _problems_in(source):
            status = await run_decisions.send_update(receiver, PROVIDE, sent)
            waits = "; what waits for a decision: acts pending" if status.get("waits") else ""
            print_err(f"{clean(run)} has the message{waits}")
            return
    await reader.ask(reader.handle.signal(PROVIDE, sent, rpc_timeout=server.RPC))
    print_err(f"{clean(run)} will get the message" + ("" if answers else " when a worker runs; none answers now"))


@app.add
async def cancel(
    run: bulk.AnyRun = None, query: bulk.Query = None, phase: bulk.Phases = None, tool: bulk.ByTool = None,
    tag: bulk.Tags = None, since: bulk.Since = None, dry_run: bulk.DryRun = False, max_rate: bulk.MaxRate = bulk.RATE,
    yes: bulk.YesCount = None,
) -> int:  # fmt: skip
    """Cancel a run: running calls are cancelled, no more start. Without an ID, all open runs that the options name."""
    many = bulk.Bulk(query, phase or (), tool, tag or (), since, dry_run, max_rate, yes)
    if not many.require_one_way(run):
        await client.Run(await server.connect(), str(run)).cancel()
        print_err(f"{clean(run)} is being cancelled")
        return cli.EXIT_DONE
    temporal = await server.connect()
    rows = await many.choose(temporal, "ExecutionStatus = 'Running'")
    many.show(rows)

    async def cancel_one(row: dict[str, Any]) -> str:
        await client.Run(temporal, row["id"], row["runId"]).cancel()
        return "being cancelled"

    return await many.perform("cancel", "run", [(row["id"], partial(cancel_one, row)) for row in rows])


@app.add
async def pause(run: cli.Run) -> None:
    """Start no more calls of a run; running ones continue."""
    await client.Run(await server.connect(), run).pause()
    print_err(f"{clean(run)} is paused: it starts no more calls")


@app.add
async def resume(run: cli.Run) -> None:
    """Resume a paused run."""
    await client.Run(await server.connect(), run).resume()
    print_err(f"{clean(run)} is resumed")
