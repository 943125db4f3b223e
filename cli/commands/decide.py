"""``acts approve`` and ``acts reject``: a decision about one pending approval.

Laws of this file:
- a decision goes to the run that waits, by the update ``decide``: it is applied, or refused with a reason, before the
  command ends;
- it names the version that is pending when it is sent, so nobody decides about a change that they have not seen;
- every wait is bounded. An update that no worker answered may still be applied later, and the error says so.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.wire import APPROVE, DECIDE, INVALID_REQUEST, REJECT
from acts.tree.decisions import Decision, PendingApproval, match_decision
from cli.command_errors import EXIT_DONE, CommandError, command_error
from cli.console import clean, print_err
from cli.runs import server
from cli.runs.run_reader import RunReader, open_run
from cli.runs.signing_key import sign_decision
from cli.text.problems import problem_blocks, problems_from_json

if TYPE_CHECKING:
    from cli.text.source_text import SourceText

UPDATE_TIMEOUT: Final = timedelta(seconds=10)  # a worker needs milliseconds; one that has just started, a second or two
# The pointer of a plan in a Request, or in a Solution
_PLAN_POINTER: Final = re.compile(r"^(/context/\d+/plan|/calls)(?=/|$)")
_PAST: Final = {APPROVE: "approved", REJECT: "rejected"}
# The end of the error that several approvals match: the keys that tell them apart, and the options of the same meaning
_NAME_ONE: Final = "; name one with "
_OPTIONS: Final = {"call": "--call", "instance": "--instance", "workflowId": "--workflow-id"}


@dataclass(frozen=True)
class ApprovalTarget:
    """The approval of a run that is meant, and who decides. None leaves a field open.

    ``key`` is the file of a private key: the decision is signed with it.
    """

    run: str
    call: str | None = None
    instance: str | None = None
    workflow_id: str | None = None
    version: int | None = None
    by: str | None = None
    reason: str | None = None
    key: str | None = None

    def decision(self, word: str) -> Decision:
        """The decision that ``match_decision`` compares with the approvals."""
        return Decision(word, self.call, self.instance, self.workflow_id, self.version)


def login_name() -> str | None:
    """The login name of the person at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


async def decide(word: str, target: ApprovalTarget) -> int:
    """Approve or reject."""
    if word == REJECT and not (target.reason or "").strip():
        raise command_error("a rejection needs a reason", where="--reason", hint="an agent plans again with it")
    run = await open_run(target.run)
    approval = await find_approval(run, target, word)
    status = await send_decision(run, target, approval, {"decision": word})
    phase = status.get("phase") if isinstance(status, dict) else None
    state = f"; the run is {phase}" if phase else ""
    print_err(clean(f"{_PAST[word]}: {approval} (version {approval.version}){state}"))
    return EXIT_DONE


async def find_approval(run: RunReader, target: ApprovalTarget, word: str) -> PendingApproval:
    """The one pending approval that a target matches.

    Raises:
        CommandError: it matches none, or several, or no worker answers.
    """
    await run.describe_running()
    approvals = await run.pending()
    if approvals is None:
        raise await run.no_answer_error()
    try:
        return match_decision(approvals, target.decision(word))
    except DecisionRefused as error:
        root = await run.root()
        hint = "`acts pending` lists everything that waits"
        if root is not run:
            hint = (
                f"this run lists only its own approvals; `acts pending {clean(root.id, 200)}` lists those of its tree"
            )
        raise command_error(_with_options(str(error)), hint=hint) from None


def _with_options(text: str) -> str:
    """The error of ``match_decision``, with the options of the command for the keys of a decision."""
    head, mark, keys = text.rpartition(_NAME_ONE)
    return head + mark + ", ".join(_OPTIONS.get(key, key) for key in keys.split(", ")) if mark else text


async def send_decision(
    run: RunReader, target: ApprovalTarget, approval: PendingApproval, content: dict[str, Any],
    source: SourceText | None = None,
) -> Any:  # fmt: skip
    """Send a decision about an approval; the status of the run after it.

    ``source`` is the text of an edit, so that problems name its lines.

    Raises:
        CommandError: it is refused, or no worker answers.
    """
    from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
    from temporalio.service import RPCError, RPCStatusCode

    keys = {"call": approval.call, "instance": approval.instance, "version": approval.version}
    keys |= {"by": target.by, "reason": target.reason}
    decision = {k: v for k, v in keys.items() if v is not None} | content
    waiting = run.other(approval.workflow_id)
    if target.key is not None:
        decision = await sign_decision(target.key, waiting, approval, decision)
    try:
        update = waiting.handle.execute_update(DECIDE, decision, rpc_timeout=UPDATE_TIMEOUT)
        return await asyncio.wait_for(update, UPDATE_TIMEOUT.total_seconds() + 1)
    except WorkflowUpdateFailedError as error:
        position = call_position(str(decision["call"])) if "with" in decision else None
        raise _refused_error(error.cause, source, position) from None
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
        pass
    except RPCError as error:
        if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise server.explain_rpc_error(error, waiting.id) from None
    hint = f"{server.START_WORKER}; it may still apply this decision: check `acts show` before you send it again"
    raise await waiting.no_answer_error("the decision is not applied yet", hint)


def _refused_error(cause: BaseException, source: SourceText | None, position: int | None) -> CommandError:
    from temporalio.exceptions import ApplicationError

    if isinstance(cause, ApplicationError) and cause.type == INVALID_REQUEST and cause.details:
        items = cause.details[0] if isinstance(cause.details[0], list) else []
        problems = problems_from_json([relocate_problem(p, position) for p in items])
        return CommandError(*problem_blocks(problems, source))
    text = getattr(cause, "message", None) or str(cause)
    hint = "nothing has changed; `acts pending` lists what waits"
    return command_error(f"the decision was refused: {text}", hint=hint)


def relocate_problem(problem: dict[str, Any], position: int | None) -> dict[str, Any]:
    """A problem of a plan as one of the edited text, which holds all Calls or the one at ``position``."""
    pointer = _PLAN_POINTER.sub("", str(problem.get("pointer", "")))
    return {**problem, "pointer": pointer if position is None else pointer.removeprefix(f"/{position}")}


def call_position(call: str) -> int:
    """The position of a Call in its plan, from 0; its id is ``<position from 1>:<tool>``.

    Raises:
        CommandError: it is not such an id.
    """
    number = call.partition(":")[0]
    if not number.isdecimal() or int(number) < 1:
        raise command_error(f'"{clean(call, 100)}" is not the id of a call', where="--call", hint="like 2:refund")
    return int(number) - 1
