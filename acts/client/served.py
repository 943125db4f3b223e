"""What the workers of a task queue serve: one of them is asked, by an Activity without a workflow."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.client.client_errors import ClientError, explained
from acts.client.server import RPC, START_WORKER, has_pollers
from acts.language.errors import clean, format_choices, suggest
from acts.language.wire import LIST_TOOLS, PLAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.client import Client

ANSWER_SECONDS: Final = 10.0  # a worker needs milliseconds, and asks no MCP server


async def ask_worker(client: Client, queue: str, query: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of the Activity ``acts.tools``; None where the server runs no Activity without a workflow.

    ClientError: no worker serves the queue, or none answers in time.
    """
    from temporalio.client import ActivityFailureError
    from temporalio.service import RPCError, RPCStatusCode

    if not await has_pollers(client, queue, is_for_activities=True):
        raise ClientError(f'no worker serves the task queue "{clean(queue, 100)}"', START_WORKER, is_unavailable=True)
    seconds = timedelta(seconds=ANSWER_SECONDS)
    try:
        with explained(client):
            try:
                answer: dict[str, Any] = await client.execute_activity(
                    LIST_TOOLS, query, id=f"acts-tools-{secrets.token_hex(6)}", task_queue=queue, result_type=dict,
                    start_to_close_timeout=seconds, schedule_to_close_timeout=seconds, rpc_timeout=RPC,
                )  # fmt: skip
            except RPCError as error:
                text = str(error.message).lower()
                if error.status == RPCStatusCode.UNIMPLEMENTED or "standalone" in text or "not enabled" in text:
                    return None
                raise
    except ActivityFailureError as error:
        text = f"no worker has answered within {ANSWER_SECONDS:g} s: {clean(error.__cause__ or error, 200)}"
        hint = "they are busy, or have just ended: the server lists a worker for minutes after its last poll"
        if "decoding arguments" in text:
            hint = "a worker cannot read what this shell writes: give all workers its ACTS_CODEC_KEYS and ACTS_STORAGE"
        raise ClientError(text, hint, is_unavailable=True) from None
    return answer


async def _ask_briefly(client: Client, queue: str) -> dict[str, Any]:
    """What a worker says of its plans and folders; {} where none can be asked."""
    try:
        return await ask_worker(client, queue, {"only": "plans"}) or {}
    except ClientError as error:
        if not error.is_unavailable:
            raise
    return {}


async def require_folders(client: Client, queue: str, variables: Iterable[str]) -> None:
    """Raises ClientError: a worker lacks a variable that a run over a set needs. Nothing where none can be asked."""
    unset = (await _ask_briefly(client, queue)).get("unset", ())
    if missing := [name for name in variables if name in unset]:
        text = f'a worker of the task queue "{clean(queue, 100)}" has no {" and no ".join(missing)}'
        raise ClientError(f"{text}: a run over a set would fail", "set it to the folders of sets, for each worker")


async def workflow_of_plan(client: Client, queue: str, name: str) -> str:
    """The type of workflow that a plan is for, as a worker says; ``Plan`` where none can be asked.

    ClientError: the worker has no plan of this name.
    """
    plans = (await _ask_briefly(client, queue)).get("plans")
    if plans is None:
        return PLAN
    if name not in plans:
        near = suggest(name, plans) or (f"there are: {format_choices(plans)}" if plans else "ACTS_PLANS names folders")
        text = f'no plan "{clean(name, 100)}" is served on the task queue "{clean(queue, 100)}"'
        raise ClientError(text, near)
    return str(plans[name]["workflow"])
