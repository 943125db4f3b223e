"""What a run finds out before it walks, and what it answers about its context."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow

from acts.errors import ActsError, InvalidRequest, Problem
from acts.references import Expression, parse
from acts.tools import registered_names, undecided_names
from acts.wire import REGISTRY
from workflows.payloads import MAX_PAYLOAD, MAX_RESULT, decode_request, dump, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from temporalio.common import RawValue

    from acts.messages import Request
    from acts.tools import Tool
    from acts.validate import Prepared

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


def not_yet(prepared: Prepared) -> list[Problem]:
    """What the protocol has and this version does not run. Said before anything starts."""
    out = _not_yet_at_all(prepared.request)
    for node in prepared.nodes:
        if node.how == "delegate":
            out.append(
                Problem("notSupported", "delegates are not run by this version", f"{node.pointer}/_delegate", node.id)
            )
    return out


def not_yet_planned(request: Request, tools: Iterable[Tool]) -> list[Problem]:
    """The same for an agent: what it could plan and this version does not run."""
    out = _not_yet_at_all(request)
    for tool in tools:
        if "_delegate" in tool.meta:
            text = f'tool "{tool.name}" has a delegate: delegates are not run by this version'
            out.append(Problem("notSupported", text, "/context"))
    return out


def _not_yet_at_all(request: Request) -> list[Problem]:
    out = []
    if request.instances():
        out.append(Problem("notSupported", "instances are not run by this version", "/context"))
    return out
