"""What a run is, in a line, for lists of runs: its static summary, details and memo, from the Request that starts it.

Laws of this file: names and first lines only. Parameters of Calls, data of the context and inputs stay out: a summary
is read by everybody who may list runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from acts.language.values import Json
from acts.views.markdown import code_span

# The server takes 400 bytes of a summary, and 20,000 of details
MAX_SUMMARY_BYTES: Final = 200
MAX_LISTED: Final = 50
MAX_NAME: Final = 80


@dataclass(frozen=True)
class StartDescription:
    """``summary`` is one line, ``details`` Markdown; ``memo`` is for programs."""

    summary: str
    details: str
    memo: dict[str, Json]


def describe_start(request: Json, source: str) -> StartDescription:
    """What a Request starts; ``source`` is the name of its file."""
    tools, text = [_tool(call) for call in _calls(request)], next(_first_lines(request), "")
    parts = [text] if text else []
    if tools:
        parts.append(f"{len(tools)} call{'' if len(tools) == 1 else 's'}: {', '.join(dict.fromkeys(tools))}")
    summary = _cut(" · ".join(parts) or source, MAX_SUMMARY_BYTES)
    lines = [f"from {code_span(source[:MAX_NAME])}", *([text] if text else [])]
    lines += [f"{place}. {code_span(tool)}" for place, tool in enumerate(tools[:MAX_LISTED], 1)]
    lines += [f"… and {len(tools) - MAX_LISTED:,} more"] if len(tools) > MAX_LISTED else []
    config = request.get("config") if isinstance(request, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    memo: dict[str, Json] = {"file": source[:MAX_NAME], "calls": len(tools)}
    memo |= {"model": model[:MAX_NAME]} if isinstance(model, str) else {}
    return StartDescription(summary, "\n\n".join(lines), memo)


def _messages(request: Json) -> list[dict[str, Any]]:
    context = request.get("context") if isinstance(request, dict) else None
    return [m for m in context if isinstance(m, dict)] if isinstance(context, list) else []


def _calls(request: Json) -> list[Json]:
    plans = [m["plan"] for m in _messages(request) if m.get("type") == "plan" and isinstance(m.get("plan"), list)]
    return plans[-1] if plans else []


def _tool(call: Json) -> str:
    name = call.get("_tool") if isinstance(call, dict) else None
    return name[:MAX_NAME] if isinstance(name, str) else "?"


def _first_lines(request: Json) -> Iterator[str]:
    """The first line of each instruction."""
    for message in _messages(request):
        text = message.get("content") if "role" in message else message.get("text")
        lines = text.strip().splitlines() if isinstance(text, str) else []
        if lines and message.get("type", "text") in ("text", "system"):
            yield _cut(lines[0].strip(), MAX_SUMMARY_BYTES // 2)


def _cut(text: str, size: int) -> str:
    data = " ".join(text.split()).encode(errors="replace")
    return data.decode() if len(data) <= size else data[: size - 3].decode(errors="ignore") + "…"
