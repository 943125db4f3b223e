"""The Activity that calls the tools of one MCP server: ``mcp.<server>``, with the three arguments of any Activity.

Which tool is meant is in the Tool (``x-mcp``), which the run recorded when it was started. ``_id`` goes along as an
idempotency key. Progress of the tool is the detail of the heartbeats; a cancelled Call is cancelled at the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.activities.engine_activities import ResultTooLarge, encode_result, heartbeat
from acts.activities.mcp.mcp_config import McpCallError
from acts.activities.mcp.server_tools import ToolFailure, activity_of, read_answer
from acts.language.tools import SERVER_TOOL
from acts.language.wire import MAX_PAYLOAD_BYTES, MCP_REFUSED, MCP_TOOL_ERROR, NOT_JSON, RESULT_TOO_LARGE

if TYPE_CHECKING:
    from acts.activities.mcp.servers import McpServers

# Of the time of an attempt, what is left to report that the server did not answer
REPORT_SECONDS: Final = 0.5
# The key of the Call's _id by MCP's rules for names in _meta, and under its own name
ID_KEYS: Final = ("acts/id", "_id")
MAX_PROGRESS_TEXT: Final = 200


def call_activity(server: str, servers: McpServers) -> Callable[..., Any]:
    """The Activity of one server."""

    @activity.defn(name=activity_of(server))
    async def call_tool(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> RawValue:  # noqa: ARG001 - scopes stay here
        source = tool.get(SERVER_TOOL)
        if not isinstance(source, dict) or source.get("server") != server or not isinstance(source.get("tool"), str):
            hint = f'name it in its schema: "{SERVER_TOOL}": {{"server": "{server}", "tool": "<name>"}}'
            text = f'the Tool does not say which tool of MCP server "{server}" it is; {hint}'
            raise ApplicationError(text, type=MCP_REFUSED, non_retryable=True)
        latest: dict[str, Any] = {}

        async def note(progress: float, total: float | None, message: str | None) -> None:
            latest.update(progress=progress, total=total, message=(message or "")[:MAX_PROGRESS_TEXT])

        meta = dict.fromkeys(ID_KEYS, call["_id"]) if "_id" in call else {}
        arguments = {key: value for key, value in call.items() if not key.startswith("_")}
        async with heartbeat(lambda: latest):
            try:
                answer = await servers.call(
                    server, source["tool"], arguments, digest=source.get("digest"), meta=meta,
                    seconds=_seconds_left(), progress=note,
                )  # fmt: skip
            except McpCallError as error:
                raise ApplicationError(error.message, type=error.code, non_retryable=error.is_final) from None
        return await asyncio.to_thread(_result, answer, source["tool"])

    return call_tool


def _seconds_left() -> float:
    """What is left of this attempt for the server."""
    limit = activity.info().start_to_close_timeout
    seconds = limit.total_seconds() if limit is not None else 300.0
    return max(seconds - REPORT_SECONDS, seconds / 2)


def _result(answer: dict[str, Any], tool: str) -> RawValue:
    value = read_answer(answer)
    try:
        if isinstance(value, ToolFailure):
            encode_result(value.details)
            raise ApplicationError(value.message, value.details, type=MCP_TOOL_ERROR, non_retryable=True)
        return encode_result(value)
    except ResultTooLarge as error:
        text = f'the answer of "{tool}" has {error.size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded'
        raise ApplicationError(f"{text}: ask it for less at once", type=RESULT_TOO_LARGE, non_retryable=True) from None
    except (ValueError, TypeError) as error:
        text = f'the answer of "{tool}" is not JSON: {error}'
        raise ApplicationError(text, type=NOT_JSON, non_retryable=True) from None
