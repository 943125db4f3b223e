"""``acts approve`` and ``acts reject``: a decision about the one thing that is meant.

Laws of this file:
- a decision goes to the run that waits, by the update ``decide``: it is taken, or refused
  with a reason, before the command ends;
- it names the version that waits as it is sent: nobody decides about what has just changed;
- every wait is bounded. What no worker has answered may still be taken later, and is told so.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.wire import DECIDE, INVALID_REQUEST
from acts.tree.decisions import APPROVE, REJECT, Decision, PendingApproval, match_decision
from cli.command_errors import DONE, NO_SERVER, CommandError, refuse
from cli.console import clean, say
from cli.runs import server
from cli.runs.pending_view import waits_of
from cli.text.problems import blocks, from_json

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

    from cli.text.plan_files import Source

ANSWER: Final = timedelta(seconds=10)  # a worker needs some milliseconds; one that has just come, a second or two
# Where a plan stands: in a Request, or in a Solution
_PLAN: Final = re.compile(r"^(/context/\d+/plan|/calls)(?=/|$)")
_DONE: Final = {APPROVE: "approved", REJECT: "rejected"}
# Before the keys of a decision, in what ``match`` says of several waits; and what these keys are here
_NAME_ONE: Final = "; name one with "
_OPTIONS: Final = {"call": "--call", "instance": "--instance", "workflowId": "--workflow-id"}


@dataclass(frozen=True)
class Aim:
    """Which wait of a run is meant, and who decides. What is None is left open."""

    run: str
    call: str | None = None
    instance: str | None = None
    workflow_id: str | None = None
    version: int | None = None
    by: str | None = None
    why: str | None = None

    def decision(self, word: str) -> Decision:
        """What ``match`` compares with the waits."""
        return Decision(word, self.call, self.instance, self.workflow_id, self.version)


def login_name() -> str | None:
    """Who decides, where nobody says so."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


def decide(word: str, aim: Aim) -> int:
    """Approve or reject what waits.

    Raises:
        Refusal: it cannot be taken, and why; or nobody answers.
    """
    if word == REJECT and not (aim.why or "").strip():
        raise refuse("a rejection has a reason", where="--reason", hint="it is what the planner goes by")
    return server.go(_decide(word, aim))


async def _decide(word: str, aim: Aim) -> int:
    client = await server.connect()
    wait = await waiting(client, aim, word)
    status = await send(client, aim, wait, {"decision": word})
    phase = status.get("phase") if isinstance(status, dict) else None
    say(clean(f"{_DONE[word]}: {wait} (version {wait.version})" + (f"; the run is {phase}" if phase else "")))
    return DONE


async def waiting(client: Client, aim: Aim, word: str) -> PendingApproval:
    """The one wait that is meant.

    Raises:
        Refusal: there is none, or there are several, or nobody tells.
    """
    handle = server.handle(client, aim.run)
    found = await server.about(aim.run, handle.describe(rpc_timeout=server.RPC))
    if found.close_time is not None:
        raise server.over(aim.run)
    waits = await waits_of(handle)
    if waits is None:
        raise await unanswered(client, found.task_queue, sent=False)
    try:
        return match_decision(waits, aim.decision(word))
    except DecisionRefused as error:
        raise refuse(in_options(str(error)), hint="`acts pending` lists everything that waits") from None


def in_options(text: str) -> str:
    """What ``match`` says against a decision, the keys that would name one wait as options of the command."""
    told, found, keys = text.rpartition(_NAME_ONE)
    return told + found + ", ".join(_OPTIONS.get(key, key) for key in keys.split(", ")) if found else text


async def send(
    client: Client, aim: Aim, wait: PendingApproval, told: dict[str, Any], source: Source | None = None
) -> Any:
    """Send a decision about a wait; the status as it then is.

    ``source`` is the text that an edit was read from: problems lead to its lines.

    Raises:
        Refusal: it was refused, or nobody answers.
    """
    more = {"call": wait.call, "instance": wait.instance, "version": wait.version, "by": aim.by, "reason": aim.why}
    decision = {**{k: v for k, v in more.items() if v is not None}, **told}
    handle = client.get_workflow_handle(wait.workflow_id)
    return await _update(client, handle, decision, source)


async def _update(
    client: Client, handle: WorkflowHandle[Any, Any], decision: dict[str, Any], source: Source | None
) -> Any:
    from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
    from temporalio.service import RPCError, RPCStatusCode

    try:
        asked = handle.execute_update(DECIDE, decision, rpc_timeout=ANSWER)
        return await asyncio.wait_for(asked, ANSWER.total_seconds() + 1)
    except WorkflowUpdateFailedError as error:
        at = place_of(str(decision["call"])) if "with" in decision else None
        raise _refused(error.cause, source, at) from None
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
        pass
    except RPCError as error:
        if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise server.refused(error, handle.id) from None
    found = await server.about(handle.id, handle.describe(rpc_timeout=server.RPC))
    raise await unanswered(client, found.task_queue, sent=True)


def _refused(cause: BaseException, source: Source | None, at: int | None) -> CommandError:
    from temporalio.exceptions import ApplicationError

    if isinstance(cause, ApplicationError) and cause.type == INVALID_REQUEST and cause.details:
        listed = cause.details[0] if isinstance(cause.details[0], list) else []
        return CommandError(*blocks(from_json([here(p, at) for p in listed]), source))
    text = getattr(cause, "message", None) or str(cause)
    return refuse(f"the decision was refused: {text}", hint="nothing has changed; `acts pending` lists what waits")


def here(problem: dict[str, Any], at: int | None) -> dict[str, Any]:
    """A problem of a plan as one of what was edited: all its Calls, or the one at this place."""
    inner = _PLAN.sub("", str(problem.get("pointer", "")))
    return {**problem, "pointer": inner if at is None else inner.removeprefix(f"/{at}")}


def place_of(call: str) -> int:
    """Where a Call stands in its plan, from 0; its id is ``<position from 1>:<tool>``.

    Raises:
        Refusal: it is no id.
    """
    number = call.partition(":")[0]
    if not number.isdecimal() or int(number) < 1:
        raise refuse(f'"{clean(call, 100)}" is not the id of a call', where="--call", hint="like 2:refund")
    return int(number) - 1


async def unanswered(client: Client, queue: str, *, sent: bool) -> CommandError:
    """Nobody answers in time: what that means, and what to do."""
    some = await server.served(client, queue)
    who = f'the workers of the task queue "{queue}" do not answer' if some else f'no worker serves the queue "{queue}"'
    head = f"{who}, so " + ("nobody has taken the decision yet" if sent else "nobody can tell what waits")
    hint = "start a worker: `acts dev`, or `python -m worker`"
    if sent:
        hint += "; it may then still take this decision: look with `acts show` before you send it again"
    return refuse(head, hint=hint, code=NO_SERVER)
