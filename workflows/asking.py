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

from acts.compose import offered
from acts.config import Options
from acts.errors import CallError
from acts.report import summary
from acts.wire import BUDGET_SPENT, MODEL, NON_RETRYABLE_TYPES
from workflows.dispatch import short_id
from workflows.payloads import MAX_RESULT, decode, dump, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acts.commands import StartCall
    from acts.config import Config
    from acts.messages import Request
    from acts.tools import Tool
    from acts.usage import Spent

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


def settings(config: Config, spent: Spent) -> dict[str, Any]:
    """The model's settings, as the activity takes them, and what a second turn may spend."""
    out: dict[str, Any] = {"model": config.model, "priced": config.budget.cost is not None}
    left = {k: v for k, v in spent.left(config.budget).items() if k != "requests"}
    if left:
        out["left"] = left
    for key in ("temperature", "maxOutputTokens"):
        if getattr(config, key) is not None:
            out[key] = getattr(config, key)
    return out


def ask_solution(config: Config, tick: int, upto: int, spent: Spent) -> workflow.ActivityHandle[Any]:
    """Ask for the Solution of a tick."""
    asked = {
        "ask": "solution", **settings(config, spent), "repair": may_repair(spent, config), "tick": tick,
        "source": own_context(upto).to_json(),
    }  # fmt: skip
    return _start(asked, f"tick-{tick}", f"tick {tick}")


def ask_output(
    config: Config, command: StartCall, source: Source, spent: Spent, *, others: int
) -> workflow.ActivityHandle[Any]:
    """Ask for the result of a latent Call.

    Raises:
        CallError: its parameters are too large to be recorded.
    """
    node = command.node
    asked = {
        "ask": "output", **settings(config, spent), "repair": may_repair(spent, config, others=others),
        "source": source.to_json(), "tool": node.tool.name,
        "call": command.call, "paths": offered(node), "scoped": command.context if "_scopes" in node.call else None,
    }  # fmt: skip
    return _start(asked, short_id(node.id), summary(node))


def _start(asked: dict[str, Any], id_: str, label: str) -> workflow.ActivityHandle[Any]:
    return workflow.start_activity(
        MODEL, encode(asked), result_type=RawValue, activity_id=id_, summary=label,
        start_to_close_timeout=timedelta(seconds=REQUEST_SECONDS),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS), retry_policy=_RETRY,
    )  # fmt: skip


def may_repair(spent: Spent, config: Config, *, others: int = 0) -> bool:
    """True when the budget has a request left for a second turn, beside this one and ``others``."""
    left = spent.left(config.budget).get("requests")
    return left is None or left > others + 1


class Asking:
    """The latent Calls of one plan: what they may spend, what they were answered."""

    def __init__(self, config: Config, source: Source, spent: Spent) -> None:
        self.config = config
        self.source = source
        self.spent = spent
        self._flying = 0

    def start(self, command: StartCall, others: int) -> workflow.ActivityHandle[Any]:
        """Ask for one Call; ``others`` may still have to ask.

        Raises:
            CallError: the budget is spent, or the Call is too large to be recorded.
        """
        why = self.spent.exhausted(self.config.budget, flying=self._flying)
        if why is not None:
            raise CallError(BUDGET_SPENT, f"{why}, and this call needs a request to a model")
        handle = ask_output(self.config, command, self.source, self.spent, others=others + self._flying)
        self._flying += 1
        return handle

    def settled(self, task: asyncio.Task[Any]) -> tuple[Any, int]:
        """The result and the outcome it takes; or what the request's failure raises, its cost counted."""
        self._flying -= 1
        try:
            found = decode(task.result())
        except Exception as error:
            self.spent.add(usage_of(error))
            raise
        self.spent.add(found["usage"])
        return found["output"], found["path"]


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
