"""Decisions and messages sent to runs, by updates: applied, or refused with a reason, before the sender goes on.

Every wait is bounded; an update that no worker answered may still be applied later, and the error says so.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acts.client.client_errors import ClientError
from acts.client.server import START_WORKER
from acts.language.errors import DecisionRefused, Problem, clean, shell
from acts.language.wire import DECIDE, INVALID_REQUEST, REJECT, UNDO
from acts.tree.decisions import SIGN, Decision, PendingApproval, make_statement, match_decision, read_decision

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
        if decision.decision == UNDO:
            hint = f"`{shell('acts', 'cancel', run.id)}` ends it, wherever it is, and then it can be undone"
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


async def read_signable(waiting: RunReader, approval: PendingApproval) -> PendingApproval:
    """An approval with the content that is signed. ClientError: the run shows none, or takes no signature."""
    if SIGN not in approval.about:
        hint = "decide without a key; the workers read ACTS_APPROVERS when a run begins"
        raise ClientError("this run takes no signed decisions: it began without approvers", hint)
    from acts.client.run_reader import add_parameters

    [whole] = await add_parameters(waiting, [approval])
    if whole.content is None:
        hint = "look at it again with `acts show`; if it does not change, tell an operator"
        raise ClientError(clean(f"what is shown of {approval} is not what would be signed"), hint)
    return whole


def with_signature(key: Ed25519PrivateKey, wait: PendingApproval, decision: dict[str, Any]) -> dict[str, Any]:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    value = key.sign(make_statement(wait, read_decision(decision), time))
    return {**decision, "signature": {"time": time, "value": base64.b64encode(value).decode()}}


def read_signing_key(file: str | Path) -> Ed25519PrivateKey:
    """The private key of a PEM file. ClientError: it cannot be read, or is none of Ed25519."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    hint = "`acts keygen FILE` makes a key; a key with a passphrase is not supported"
    name = clean(file, 200)
    try:
        key = load_pem_private_key(Path(file).read_bytes(), None)
    except OSError as error:
        raise ClientError(f"{name} cannot be read: {error.strerror}", hint, "--key") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ClientError(f"{name} is no private key of Ed25519 in PEM", hint, "--key")
    return key


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
