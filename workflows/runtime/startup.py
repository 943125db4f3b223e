"""What a run finds out before it begins: its identity, what the worker serves, and the definitions of delegates.

Each is asked once, by an activity, and read from history ever after, so that every replay decides alike.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import InvalidRequest, Problem, truncate
from acts.language.messages import ToolMessage
from acts.language.request_reader import read_request
from acts.language.secret_references import inline_secret_problems
from acts.language.tools import read_tools, registered_names, undecided_names
from acts.language.values import pointer
from acts.language.wire import (
    DELEGATE_UNAVAILABLE,
    FIRST_ATTEMPT,
    LOAD_DELEGATE,
    LOOK_UP_EVERYWHERE,
    NON_RETRYABLE_TYPES,
    REGISTRY,
)
from acts.tree.delegation import merged_tool, resolved_upfront, upfront_context
from acts.tree.identity import root_identity, tree_token
from acts.tree.records import Capabilities, TreePosition
from workflows.runtime.approver_look_up import look_up_approvers
from workflows.runtime.lifeline import exact_date
from workflows.runtime.payload_limits import share_storage

if TYPE_CHECKING:
    from temporalio.common import RawValue

    from acts.language.messages import Request

# A definition of 1 MiB over a slow line, and how often a server that does not answer is asked
LOAD_SECONDS: Final = 60.0
LOAD_ATTEMPTS: Final = 5
# Five times the loader's own rhythm; a worker that died is missed after this long, not after all of the time
LOAD_HEARTBEAT_SECONDS: Final = 15.0
# The look-up itself counts how often it goes to a worker; this is for workers that are busy or die
LOOK_UP_SECONDS: Final = 120.0
# One read of a history's first event for each attempt before this one
FIRST_ATTEMPT_SECONDS: Final = 30.0


async def complete_position(position: TreePosition, start: RawValue) -> TreePosition:
    """A run's place in its tree, with the identity and the token that a root has to make itself.

    ``start`` is what the run was started with.
    """
    info = workflow.info()
    if not position.identity:
        identity = root_identity(info.workflow_id, await _origin())
        position = position.model_copy(update={"identity": identity})
    if position.is_root and not position.token:
        token = tree_token(position.identity, start.payload.data)
        position = position.model_copy(update={"token": token})
    if position.is_root and not position.startedAt and not position.approvers:
        position = position.model_copy(update={"approvers": await look_up_approvers()})
    if not position.startedAt:
        position = position.model_copy(update={"startedAt": exact_date(info.workflow_start_time)})
    return share_storage(position)


async def _origin() -> str:
    """The id of the run that a person, a schedule or a cron started: the same for all that follows from that.

    All runs of a cron share the id of the first, so a round of it begins with the first attempt of the round.
    """
    info = workflow.info()
    if info.cron_schedule is None:
        return info.first_execution_run_id
    if info.attempt == 1 or info.continued_run_id is None:
        return info.original_execution_run_id
    query = {"workflowId": info.workflow_id, "runId": info.continued_run_id}
    origin: str = await workflow.execute_local_activity(
        FIRST_ATTEMPT, query, result_type=str, start_to_close_timeout=timedelta(seconds=FIRST_ATTEMPT_SECONDS),
        summary="the first attempt of this cron run",
    )  # fmt: skip
    return origin


async def prepare_request(raw: dict[str, Any], position: TreePosition) -> tuple[dict[str, Any], Request, Capabilities]:
    """A Request with what its delegates resolve upfront, read; and what the worker serves."""
    parsed = read_request(raw)
    if problems := inline_secret_problems(parsed):
        raise InvalidRequest(problems)
    accounts = position.with_budget(workflow.info().workflow_id, parsed.config.budget).accounts
    needs_price = any(account.limits.cost is not None for account in accounts)
    capabilities = await look_up(parsed, needs_price=needs_price)
    messages, pins = await load_upfront(parsed, capabilities)
    if messages:
        raw = {**raw, "context": [*raw["context"], *messages]}
        parsed = read_request(raw)
        capabilities = capabilities.model_copy(update={"pins": pins})
    return raw, parsed, capabilities


async def look_up(parsed: Request, *, needs_price: bool = False) -> Capabilities:
    """What the worker serves of what the Request leaves open; where a budget limits the cost, the price of a model.

    Of several models it is the highest price.
    """
    names = registered_names(parsed)
    query: dict[str, Any] = {"tools": names, "activities": list(dict.fromkeys((*undecided_names(parsed), *names)))}
    models = parsed.config.models
    if needs_price and models:
        query["model"] = models[0]
        query |= {"otherModels": list(models[1:])} if len(models) > 1 else {}
    if not query["activities"] and "model" not in query:
        return Capabilities()
    answer: dict[str, Any] = await workflow.execute_local_activity(
        REGISTRY, query, result_type=dict, start_to_close_timeout=timedelta(seconds=10),
        summary="which tools and activities the worker has",
    )  # fmt: skip
    unavailable = answer.get("unavailable", {})
    if answer.get("elsewhere"):
        answer |= await _look_up_everywhere(query, parsed, answer)
    if problems := _unavailable_tools(parsed, {n: r for n, r in unavailable.items() if not answer["tools"].get(n)}):
        raise InvalidRequest(problems)
    price = answer.get("price")
    return Capabilities(
        tools=answer["tools"], served=tuple(answer["served"]),
        price=(price["input"], price["output"]) if price else None,
    )  # fmt: skip


def _unavailable_tools(parsed: Request, reasons: dict[str, str]) -> list[Problem]:
    """The Tools that a server of the worker should offer, and why it does not."""
    places = {m.tool.removeprefix("Tool."): m.index for m in parsed.context
              if isinstance(m, ToolMessage) and isinstance(m.tool, str)}  # fmt: skip
    return [
        Problem(
            "toolUnavailable", f'the tool "{name}" is not there: {reason}', pointer("context", places[name], "tool")
        )
        for name, reason in reasons.items()
        if name in places
    ]


async def _look_up_everywhere(query: dict[str, Any], parsed: Request, own: dict[str, Any]) -> dict[str, Any]:
    """The answer of one worker (``own``), with what workers of other versions have; those that answer in time.

    Raises:
        InvalidRequest: a Tool is missing everywhere.
    """
    try:
        every: dict[str, Any] = await workflow.execute_activity(
            LOOK_UP_EVERYWHERE, query, result_type=dict, summary="which tools workers of other versions have",
            start_to_close_timeout=timedelta(seconds=10), schedule_to_close_timeout=timedelta(seconds=LOOK_UP_SECONDS),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.5,
                maximum_interval=timedelta(seconds=0.5),
            ),
        )  # fmt: skip
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return own
    tools = {**own["tools"], **every["tools"]}
    workers = truncate(", ".join(every["workers"].values()))
    explained = {*tools, *own.get("unavailable", ())}
    missing = [m for m in parsed.context if isinstance(m, ToolMessage) and isinstance(m.tool, str)
               and m.tool.removeprefix("Tool.") not in explained]  # fmt: skip
    problems = [
        Problem("unknownTool", f'no tool "{m.tool}" is registered with a worker of this queue; asked: {workers}',
                pointer("context", m.index, "tool"), hint="load it into one of them, or correct its name")
        for m in missing
    ]  # fmt: skip
    if problems:
        raise InvalidRequest(problems)
    return {"tools": tools, "served": [n for n in query["activities"] if n in {*own["served"], *every["served"]}]}


async def load_definition(name: str, sha256: str | None = None) -> dict[str, Any]:
    """A delegate's definition, loaded by an activity and so recorded: ``{definition, sha256, source}``."""
    query = {"delegate": name} if sha256 is None else {"delegate": name, "sha256": sha256}
    answer: dict[str, Any] = await workflow.execute_activity(
        LOAD_DELEGATE, query, result_type=dict, start_to_close_timeout=timedelta(seconds=LOAD_SECONDS),
        heartbeat_timeout=timedelta(seconds=LOAD_HEARTBEAT_SECONDS),
        retry_policy=RetryPolicy(maximum_attempts=LOAD_ATTEMPTS, non_retryable_error_types=list(NON_RETRYABLE_TYPES)),
        summary=f"load {truncate(name, 150)}",
    )  # fmt: skip
    return answer


async def load_upfront(parsed: Request, capabilities: Capabilities) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The messages that put what delegates take and return into their Tools, and the pinned SHA-256 by name.

    Raises:
        InvalidRequest: a definition cannot be loaded.
    """
    tools = read_tools(parsed, capabilities.tools, frozenset(capabilities.served).__contains__).by_name
    by_tool = resolved_upfront(parsed, tools)
    loaded: dict[str, Any] = {}
    problems = []
    for name in dict.fromkeys(by_tool.values()):
        try:
            loaded[name] = await load_definition(name)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.__cause__
            code = cause.type if isinstance(cause, ApplicationError) and cause.type else DELEGATE_UNAVAILABLE
            tool = next(t for t, d in by_tool.items() if d == name)
            text = f'the delegate "{name}" of tool "{tool}" cannot be loaded: {truncate(str(cause))}'
            problems.append(Problem(code, text, "/context", hint='or let it be loaded when it is used: "resolve"'))
    if problems:
        raise InvalidRequest(problems)
    if not loaded:
        return [], {}
    pins = {name: item["sha256"] for name, item in loaded.items()}
    return upfront_context({t: merged_tool(tools[t], loaded[d]["definition"]) for t, d in by_tool.items()}), pins
