"""What a run finds out before it walks, and what it answers about its context."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import ActsError, InvalidRequest, Problem, truncate
from acts.language.references import Expression, parse
from acts.language.tools import read_tools, registered_names, undecided_names
from acts.language.wire import LOAD_DELEGATE, NON_RETRYABLE_TYPES, REGISTRY
from acts.tree.delegation import merged_tool, resolved_upfront, upfront_context
from workflows.payloads import MAX_PAYLOAD, MAX_RESULT, decode_request, dump, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.language.messages import Request

# A definition of 1 MiB over a slow line, and how often a server that does not answer is asked
LOAD_SECONDS: Final = 60.0
LOAD_ATTEMPTS: Final = 5
# Five times the loader's own rhythm; a worker that died is missed after this long, not after all of the time
LOAD_HEARTBEAT_SECONDS: Final = 15.0
# The answer to a query travels in one message; the default page of ``context``
PAGE: Final = 1000


async def look_up(parsed: Request) -> dict[str, Any]:
    """What the worker serves, asked once, when the Request leaves it open."""
    named = registered_names(parsed)
    asked = {"tools": named, "activities": list(dict.fromkeys((*undecided_names(parsed), *named)))}
    if not asked["activities"]:
        return {"tools": {}, "served": []}
    found: dict[str, Any] = await workflow.execute_local_activity(
        REGISTRY, asked, result_type=dict, start_to_close_timeout=timedelta(seconds=10),
        summary="which tools and activities the worker has",
    )  # fmt: skip
    return found


async def load_definition(name: str, sha256: str | None = None) -> dict[str, Any]:
    """A delegate's definition, loaded by an activity and so recorded: ``{definition, sha256, source}``."""
    asked = {"delegate": name} if sha256 is None else {"delegate": name, "sha256": sha256}
    found: dict[str, Any] = await workflow.execute_activity(
        LOAD_DELEGATE, asked, result_type=dict, start_to_close_timeout=timedelta(seconds=LOAD_SECONDS),
        heartbeat_timeout=timedelta(seconds=LOAD_HEARTBEAT_SECONDS),
        retry_policy=RetryPolicy(maximum_attempts=LOAD_ATTEMPTS, non_retryable_error_types=list(NON_RETRYABLE_TYPES)),
        summary=f"load {truncate(name, 150)}",
    )  # fmt: skip
    return found


async def load_upfront(parsed: Request, registry: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that put what delegates take and give into their Tools, before anybody plans.

    What was loaded is pinned in ``registry``: a definition that has changed by then is not used.

    Raises:
        InvalidRequest: a definition cannot be loaded.
    """
    tools = read_tools(parsed, registry["tools"], frozenset(registry["served"]).__contains__).by_name
    wanted = resolved_upfront(parsed, tools)
    loaded: dict[str, Any] = {}
    problems = []
    for name in dict.fromkeys(wanted.values()):
        try:
            loaded[name] = await load_definition(name)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.__cause__
            code = cause.type if isinstance(cause, ApplicationError) and cause.type else "DelegateUnavailable"
            tool = next(t for t, d in wanted.items() if d == name)
            text = f'the delegate "{name}" of tool "{tool}" cannot be loaded: {truncate(str(cause))}'
            problems.append(Problem(code, text, "/context", hint='or let it be loaded when it is used: "resolve"'))
    if problems:
        raise InvalidRequest(problems)
    if not loaded:
        return []
    registry["pins"] = {name: item["sha256"] for name, item in loaded.items()}
    return upfront_context({t: merged_tool(tools[t], loaded[d]["definition"]) for t, d in wanted.items()})


def page_of(all_: Callable[[], list[Any]], value: Callable[[Expression, str | None], Any], page: Any) -> Any:
    """What the query ``context`` answers: all the messages, a page of them, or the value of an expression."""
    if isinstance(page, dict) and isinstance(page.get("path"), str):
        try:
            found = value(parse(page["path"]), page.get("instance"))
        except ActsError as error:
            return {"error": str(error)}
        except KeyError:
            return {"error": f"unknown instance {page.get('instance')!r}"}
        return {"path": page["path"], "value": found} if _is_json(found) else {"path": page["path"], "absent": True}
    messages = all_()
    if not isinstance(page, dict):
        if len(dump(messages)) <= MAX_RESULT:
            return messages
        page = {}
    offset, limit = int(page.get("offset", 0)), int(page.get("limit", PAGE))
    fitting: list[Any] = []
    bytes_ = 0
    for message in messages[offset : offset + limit]:
        bytes_ += len(dump(message))
        if fitting and bytes_ > MAX_RESULT:
            break
        fitting.append(message)
    return {"messages": fitting, "offset": offset, "total": len(messages)}


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool, list, dict))


def read_given(given: RawValue) -> Any:
    """The JSON of the Request that a run was started with.

    Raises:
        InvalidRequest: it is none, or too large to be kept.
    """
    if size(given) > MAX_PAYLOAD:
        text = f"the Request has {size(given):,} bytes; at most {MAX_PAYLOAD:,} can be kept"
        raise InvalidRequest([Problem("limitExceeded", text)])
    return decode_request(given)


def asks_for_plan(request: Request) -> bool:
    """True when a human approves the plan before any of it runs: the default for lazy plans."""
    wanted = request.config.approve.plan
    return wanted is True or (wanted is None and request.plan is not None and request.plan.mode == "lazy")


def edited_request(request: Any, index: int, calls: list[Any]) -> dict[str, Any]:
    """A Request with other Calls in its plan message.

    Raises:
        InvalidRequest: it is too large to be kept.
    """
    context = list(request["context"])
    context[index] = {**context[index], "plan": calls}
    out = {**request, "context": context}
    bytes_ = len(dump(out))
    if bytes_ > MAX_PAYLOAD:
        text = f"the edited Request has {bytes_:,} bytes; at most {MAX_PAYLOAD:,} can be kept"
        raise InvalidRequest([Problem("limitExceeded", text)])
    return out
