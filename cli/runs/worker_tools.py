"""What the workers of a task queue serve: each version of them is asked, by an activity without a workflow.

The server gives the activity to any worker, so it is asked for until each version that polls has answered.
"""

from __future__ import annotations

import re
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import LIST_TOOLS, NOT_SERVED
from cli.command_errors import CommandError, command_error
from cli.console import clean
from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client

_VERSION: Final = re.compile(r"^acts/([0-9a-f]{8}) ")
# Of one answer: a worker gives it at once, if a slot is free
ANSWER_SECONDS: Final = 10.0
# Of two equally many versions, one is missed in a million cases
TRIES: Final = 24


async def read_worker_tools(client: Client, queue: str) -> list[dict[str, Any]]:
    """The answer of each version of the workers: ``{version, worker, tools, activities}``.

    Raises:
        CommandError: no worker answers, or the server cannot run an activity without a workflow.
    """
    identities = await server.read_pollers(client, queue, is_for_activities=True)
    if not identities:
        text = f'no worker serves the task queue "{queue}"'
        raise command_error(text, hint=server.START_WORKER)
    versions = {m[1] for identity in identities if (m := _VERSION.match(identity))}
    answers: dict[str, dict[str, Any]] = {}
    for _ in range(TRIES):
        answer = await _ask(client, queue)
        answers[answer["version"]] = answer
        if versions <= set(answers):
            break
    return [answers[version] for version in sorted(answers)]


async def _ask(client: Client, queue: str) -> dict[str, Any]:
    from temporalio.client import ActivityFailureError
    from temporalio.service import RPCError

    seconds = timedelta(seconds=ANSWER_SECONDS)
    try:
        answer: dict[str, Any] = await client.execute_activity(
            LIST_TOOLS, {}, id=f"acts-tools-{secrets.token_hex(6)}", task_queue=queue, result_type=dict,
            start_to_close_timeout=seconds, schedule_to_close_timeout=seconds, rpc_timeout=server.RPC,
        )  # fmt: skip
    except ActivityFailureError as error:
        raise _no_answer(error.__cause__ or error) from None
    except RPCError as error:
        raise _explain(error) from None
    return answer


def _no_answer(cause: BaseException) -> CommandError:
    if getattr(cause, "type", None) == NOT_SERVED:
        return command_error(f"the worker is of an earlier release: {clean(str(cause), 300)}", hint="restart it")
    text = f"no worker has answered within {ANSWER_SECONDS:g} s: {clean(str(cause), 200)}"
    return command_error(text, hint="they may be busy; the Web UI lists who polls the task queue")


def _explain(error: Any) -> CommandError:
    from temporalio.service import RPCStatusCode as Code

    text = str(error.message).lower()
    if error.status == Code.UNIMPLEMENTED or "standalone" in text or "not enabled" in text:
        hint = "`acts tools --here` lists what this environment loads"
        return command_error(
            "the server cannot run an activity without a workflow, so no worker can be asked", hint=hint
        )
    return server.explain_rpc_error(error)
