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

from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from activities.mcp.answer_values import ToolFailure, read_answer
from activities.mcp.call_errors import McpCallError
from activities.mcp.server_tools import activity_of
from acts.language.tool_hints import SERVER_TOOL
from acts.language.wire import MAX_PAYLOAD_BYTES, MCP_REFUSED, MCP_TOOL_ERROR, NOT_JSON, RESULT_TOO_LARGE

if TYPE_CHECKING:
    from activities.mcp.servers import McpServers

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
            text = f'the Tool does not say which tool of MCP server "{server}" it is'
            hint = f'name it in its schema: "{SERVER_TOOL}": {{"server": "{server}", "tool": "<name>"}}'
            raise ApplicationError(f"{text}; {hint}", type=MCP_REFUSED, non_retryable=True)
        state = _ProgressState()
        async with heartbeat(state.detail):
            try:
                answer = await servers.call(
                    server, source["tool"], _arguments(call), digest=source.get("digest"), meta=_meta(call),
                    seconds=_seconds(), progress=state.note,
                )  # fmt: skip
            except McpCallError as error:
                raise ApplicationError(error.message, type=error.code, non_retryable=error.is_final) from None
        return await asyncio.to_thread(_result, answer, source["tool"])

    return call_tool


class _ProgressState:
    """What the server last said of its progress. Written in the servers' thread, read in the worker's."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] = {}

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        latest: dict[str, Any] = {
            "progress": progress,
            "total": total,
            "message": message and message[:MAX_PROGRESS_TEXT],
        }
        self._latest = {key: value for key, value in latest.items() if value is not None}

    def detail(self) -> dict[str, Any]:
        return self._latest


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if not key.startswith("_")}


def _meta(call: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(ID_KEYS, call["_id"]) if "_id" in call else {}


def _seconds() -> float:
    """What is left of this attempt for the server, in seconds."""
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
