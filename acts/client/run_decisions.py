"""Decisions and messages sent to runs, by updates: applied, or refused with a reason, before the sender goes on.

Every wait is bounded; an update that no worker answered may still be applied later, and the error says so.
"""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.client.client_errors import ClientError
from acts.client.server import START_WORKER
from acts.language.errors import DecisionRefused, Problem, clean, shell
from acts.language.wire import DECIDE, INVALID_REQUEST, REJECT
from acts.tree.decisions import Decision, PendingApproval, match_decision

if TYPE_CHECKING:
    from acts.client.run_reader import RunReader

UPDATE_TIMEOUT: Final = timedelta(seconds=10)  # a worker needs milliseconds; one that has just started, a second or two
Sign = Callable[["RunReader", PendingApproval, dict[str, Any]], Awaitable[dict[str, Any]]]


def login_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


async def find_approval(run: RunReader, decision: Decision) -> PendingApproval:
    """The one pending approval of a run's tree that a decision is about. ClientError: there is none, or are several."""
    if decision.decision == REJECT and not (decision.reason or "").strip():
        raise ClientError("a rejection needs a reason", "an agent plans again with it")
    await run.describe_running()
    try:
        return match_decision(await run.require(run.pending()), decision)
    except DecisionRefused as error:
        hint = f"`{shell('acts', 'pending', (await run.root()).id)}` lists all that waits in its tree"
        raise ClientError(clean(error), hint) from None


async def send_decision(
    run: RunReader, decision: Decision, approval: PendingApproval, *, content: dict[str, Any] | None = None,
    sign: Sign | None = None,
) -> Any:  # fmt: skip
    """Send a decision about an approval; the status of the run after it. ``content`` is that of an edit.

    ClientError: the run refuses it, with the ``problems`` of an edit, or no worker answers.
    """
    by = login_name() if decision.by is None else decision.by
    about = {"call": approval.call, "instance": approval.instance, "version": approval.version, "by": by}
    about["subject"] = approval.subject if decision.subject is None else decision.subject
    sent = decision.model_copy(update={"workflow_id": None, **about}).to_json() | (content or {})
    waiting = run.other(approval.workflow_id)
    if sign is not None:
        sent = await sign(waiting, approval, sent)
    return await waiting.ask(send_update(waiting, DECIDE, sent))


async def send_update(run: RunReader, name: str, sent: Any) -> Any:
    """The answer to an update. RPCError where the server takes none; one that is late may still be applied."""
    from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
    from temporalio.service import RPCError, RPCStatusCode

    try:
        update = run.handle.execute_update(name, sent, rpc_timeout=UPDATE_TIMEOUT)
        return await asyncio.wait_for(update, UPDATE_TIMEOUT.total_seconds() + 1)
    except WorkflowUpdateFailedError as error:
        raise _refused_error(error.cause, sent) from None
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
        pass
    except RPCError as error:
        if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise
    hint = f"{START_WORKER}; it may still apply this: check `acts show` before you send it again"
    raise await run.no_answer_error("this is not applied yet", hint)


def _refused_error(cause: BaseException, sent: Any) -> ClientError:
    from temporalio.exceptions import ApplicationError

    problems: list[Problem] = []
    if isinstance(cause, ApplicationError) and cause.type == INVALID_REQUEST and cause.details:
        items = cause.details[0] if isinstance(cause.details[0], list) else []
        # The pointers are into a Request or a Solution; the edited text holds all Calls of its plan, or one of them
        prefix = f"/{call_position(str(sent['call']))}" if "with" in sent else ""
        for item in items:
            place = re.sub(r"^(/context/\d+/plan|/calls)(?=/|$)", "", str(item.get("pointer", "")))
            problems.append(Problem.from_json({**item, "pointer": place.removeprefix(prefix)}))
    text = clean(getattr(cause, "message", None) or cause, 2_000)
    hint = "nothing has changed; `acts pending` lists what waits"
    return ClientError(f"the run refuses it: {text}", hint, problems=problems)


def call_position(call: str) -> int:
    """The position of a Call in its plan, from 0; its id is ``<position from 1>:<tool>``."""
    number = call.partition(":")[0]
    if not number.isdecimal() or int(number) < 1:
        raise ClientError(f'"{clean(call, 100)}" is not the id of a call', "like 2:refund", "--call")
    return int(number) - 1
