"""Asking a model from a workflow: the activity, what it may spend, what it answers.

The activity gets no prompt. It is told where the context is and how much of it counts,
and asks that run by query (``material``), so that no history holds a prompt. What a
query answers here never changes for the same ``upto``: messages are only appended.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from acts.language.config import Options
from acts.language.errors import CallError
from acts.language.wire import BUDGET_SPENT, MODEL, NON_RETRYABLE_TYPES
from workflows.dispatch import short_id
from workflows.payloads import MAX_RESULT, decode, dump, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acts.language.config import Config
    from acts.language.messages import Request
    from acts.language.tools import Tool
    from acts.language.usage import Usage
    from acts.machines.budget import BudgetGrant
    from acts.machines.commands import StartCall
    from workflows.purse import Purse

# One request, thinking included. Providers' own limits are at ten minutes and more.
REQUEST_SECONDS: Final = 900.0
# Five times the activity's own rhythm; a dead worker is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# … in the words of a Tool's options, for what is said of a failure
OPTIONS: Final = Options(timeout=REQUEST_SECONDS, heartbeat=HEARTBEAT_SECONDS)
# Overloads last minutes: 2, 4, 8, 16, 32 s and what the provider asks for
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=60),
    maximum_attempts=6, non_retryable_error_types=list(NON_RETRYABLE_TYPES),
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The run whose context a model is shown, and how many of its messages."""

    workflow_id: str
    run_id: str
    upto: int

    def to_json(self) -> dict[str, Any]:
        """``{workflowId, runId, upto}``."""
        return {"workflowId": self.workflow_id, "runId": self.run_id, "upto": self.upto}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Source:
        """What ``to_json`` gave."""
        return cls(data["workflowId"], data["runId"], data["upto"])


def own_context(upto: int) -> Source:
    """The context of this run."""
    info = workflow.info()
    return Source(info.workflow_id, info.run_id, upto)


def settings(config: Config, grant: BudgetGrant) -> dict[str, Any]:
    """The model's settings, as the activity takes them, and what a second turn may spend."""
    priced = config.budget.cost is not None or "cost" in grant.left
    out: dict[str, Any] = {"model": config.model, "priced": priced, "mayRepair": grant.repair}
    if grant.left:
        out["reserved"] = dict(grant.left)
    for key in ("temperature", "maxOutputTokens"):
        if getattr(config, key) is not None:
            out[key] = getattr(config, key)
    return out


def ask_solution(config: Config, tick: int, upto: int, grant: BudgetGrant) -> workflow.ActivityHandle[Any]:
    """Ask for the Solution of a tick."""
    asked = {"ask": "solution", **settings(config, grant), "tick": tick, "source": own_context(upto).to_json()}
    return _start(asked, f"tick-{tick}", f"tick {tick}")


def ask_output(config: Config, command: StartCall, source: Source, grant: BudgetGrant) -> workflow.ActivityHandle[Any]:
    """Ask for the result of a latent Call.

    Raises:
        CallError: its parameters are too large to be recorded.
    """
    node = command.node
    # A template's Call does not name its instance, and must be shown no other's data
    call = command.call if node.instance is None else {**command.call, "_instance": node.instance}
    asked = {
        "ask": "output", **settings(config, grant), "source": source.to_json(), "tool": node.tool.name,
        "call": call, "paths": node.outcome_texts, "scoped": command.context if "_scopes" in node.call else None,
    }  # fmt: skip
    return _start(asked, short_id(node.key), node.label)


def _start(asked: dict[str, Any], id_: str, label: str) -> workflow.ActivityHandle[Any]:
    return workflow.start_activity(
        MODEL, encode(asked), result_type=RawValue, activity_id=id_, summary=label,
        start_to_close_timeout=timedelta(seconds=REQUEST_SECONDS),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS), retry_policy=_RETRY,
    )  # fmt: skip


class Asking:
    """The latent Calls of one plan: what they may spend, what they were answered."""

    def __init__(self, config: Config, source: Source, spent: Usage, purse: Purse) -> None:
        self.config = config
        self.source = source
        self.spent = spent
        self.purse = purse

    def start(self, command: StartCall, others: int) -> asyncio.Task[Any]:
        """Ask for one Call; ``others`` may still have to ask.

        Raises:
            CallError: the budget is spent, or the Call is too large to be recorded.
        """
        if self.purse.above is not None:
            return asyncio.create_task(self._ask(command, others))
        grant = self.purse.ledger.request(others)
        if grant.refused is not None:
            raise CallError(BUDGET_SPENT, f"{grant.refused}, and this call needs a request to a model")
        try:
            return ask_output(self.config, command, self.source, grant)
        except CallError:
            self.purse.settle(None)
            raise

    async def _ask(self, command: StartCall, others: int) -> Any:
        """The same, where a run above keeps the budget."""
        grant = await self.purse.request(others)
        try:
            return await ask_output(self.config, command, self.source, grant)
        except CallError:
            self.purse.settle(None)
            raise

    def settled(self, task: asyncio.Task[Any]) -> tuple[Any, int]:
        """The result and the outcome it takes; or what the request's failure raises, its cost counted."""
        try:
            answer = task.result()
        except CallError:  # it was never asked
            raise
        except (Exception, asyncio.CancelledError) as error:
            self._spent(usage_of(error))
            raise
        found = decode(answer)
        self._spent(found["usage"])
        return found["output"], found["path"]

    def _spent(self, usage: Mapping[str, Any] | None) -> None:
        self.spent.add(usage)
        self.purse.settle(usage)


def usage_of(error: BaseException) -> Mapping[str, Any] | None:
    """What a failed request cost, where its failure says so."""
    cause: BaseException | None = error
    while isinstance(cause, ActivityError):
        cause = cause.__cause__
    if isinstance(cause, ApplicationError) and cause.details and isinstance(cause.details[0], dict):
        found = cause.details[0].get("usage")
        return found if isinstance(found, dict) else None
    return None


def material(request: Request, tools: Iterable[Tool], mode: str, page: Any) -> dict[str, Any]:
    """The answer to the query ``material``: the messages from ``offset``, and with the first what else is needed."""
    page = page if isinstance(page, dict) else {}
    offset = int(page.get("offset", 0))
    upto = min(int(page.get("upto", len(request.context))), len(request.context))
    out: dict[str, Any] = {"messages": []}
    if not page.get("known"):
        out.update(
            tools={t.name: {"schema": t.schema, "served": t.served} for t in tools}, output=request.schema, mode=mode,
            step=request.config.step, instances=list(request.instances()),
        )  # fmt: skip
    bytes_ = len(dump(out))
    for message in request.context[offset:upto]:
        bytes_ += len(dump(message.raw))
        if out["messages"] and bytes_ > MAX_RESULT:
            break
        out["messages"].append(message.raw)
    return out
