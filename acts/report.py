"""What a person or a program is told of a run: result, status, details. Pure.

Text that came from outside (tool names, messages) is shown as text: it is never let
through as Markdown or markup.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.decisions import summaries
from acts.errors import known, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.calls import Node
    from acts.decisions import Wait
    from acts.loop import Loop
    from acts.usage import Spent
    from acts.walk import Walk

# A table longer than this is not read in a browser; larger plans show their counts,
# what runs and what failed.
MAX_ROWS: Final = 100
# Pending decisions shown with their JSON
MAX_WAITS: Final = 20
# Failures named one by one in the message of a failed workflow
MAX_FAILURES: Final = 50
_ORDER: Final = (
    "running", "awaiting", "ready", "pending", "completed", "detached", "skipped", "failed", "rejected", "cancelled",
)  # fmt: skip
_MARK: Final = {
    "running": "▶", "awaiting": "⏸", "ready": "·", "pending": "·", "completed": "✓", "detached": "↗", "skipped": "–",
    "failed": "✗", "rejected": "✗", "cancelled": "⊘",
}  # fmt: skip
_MARKUP: Final = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]()#+!|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def call_item(walk: Walk, rank: int) -> dict[str, Any]:
    """``{id, tool, state, outputPath?, error?, …}`` of one Call."""
    node, run = walk.nodes[rank], walk.runs[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "state": run.state}
    if node.instance is not None:
        out["instance"] = node.instance
    path = walk.path_written(rank)
    if path is not None:
        out["outputPath"] = path
    if run.error is not None:
        out["error"] = run.error
    if run.missing:
        out["waitsFor"] = list(run.missing)
    return out


def calls(walk: Walk) -> list[dict[str, Any]]:
    """Every Call, as listed in the plan."""
    items = [call_item(walk, rank) for rank in range(len(walk.nodes))]
    places = [node.index for node in walk.nodes]
    return [items[rank] for rank in sorted(range(len(items)), key=places.__getitem__)]


def errors(walk: Walk) -> list[dict[str, Any]]:
    """The failures that nothing took: ``{call, instance?, code, message}``."""
    out = []
    for node, run in zip(walk.nodes, walk.runs, strict=True):
        if run.state in ("failed", "rejected") and run.error is not None:
            item = {"call": node.id, **run.error}
            out.append(item if node.instance is None else {**item, "instance": node.instance})
    return out


def result(walk: Walk, spent: Spent, status: str | None = None) -> dict[str, Any]:
    """The result of a Plan."""
    return {
        "status": status or walk.status,
        "state": walk.state(),
        "calls": calls(walk),
        "context": walk.appended(),
        "errors": errors(walk),
        "usage": spent.to_json(),
    }


def failure_text(walk: Walk) -> str:
    """One line per failure, for the message of a failed workflow."""
    found = errors(walk)
    lines = [f"- {e['call']}: [{e['code']}] {shorten(str(e['message']), 300)}" for e in found[:MAX_FAILURES]]
    more = [f"- … and {len(found) - MAX_FAILURES} more"] if len(found) > MAX_FAILURES else []
    skipped = walk.counts.get("skipped", 0)
    head = f"{len(found)} of {len(walk.nodes)} calls failed" + (f", {skipped} skipped" if skipped else "")
    return "\n".join([head + ":", *lines, *more])


def summary(node: Node) -> str:
    """``tool → path`` of a Call, for the label of its activity or child."""
    where = " || ".join(" && ".join(str(p) for p in o) for o in node.outcomes[: node.choices])
    text = f"{node.tool.name} → {where}" if where else node.tool.name
    text = text if node.instance is None else f"{text} [{node.instance}]"
    return shorten("".join(c if c.isprintable() else "�" for c in text), 200)


def plain(text: str, limit: int = 120) -> str:
    """Text from outside, on one line, with nothing left that Markdown or HTML would read."""
    return shorten("".join(c if c.isprintable() else " " for c in text), limit).translate(_MARKUP)


def agent_page(loop: Loop, phase: str, notes: list[str]) -> str:
    """The Markdown page of an agent: where it is, what it spent, the latest plan and what failed."""
    spent = loop.spent
    cost = "" if spent.cost is None else f", {spent.cost:.4f} US dollars"
    tokens = f"{spent.inputTokens:,} tokens in ({spent.cachedTokens:,} cached), {spent.outputTokens:,} out"
    parts = [
        f"**{phase}** — tick {loop.tick} of at most {loop.request.config.maxTicks}",
        f"{spent.requests} requests, {tokens}{cost}",
    ]
    parts += [f"- {plain(note, 300)}" for note in notes[-5:]]
    rows = []
    for call in loop.current()[-MAX_ROWS:]:
        error = call.get("error")
        note = f"{error['code']}: {error['message']}" if error else ""
        cells = (plain(call["id"]), plain(call["tool"]), plain(call.get("outputPath", "")), plain(note))
        rows.append(f"| {call.get('tick', '')} | {_MARK[call['state']]} {call['state']} | " + " | ".join(cells) + " |")
    if rows:
        parts.append("\n".join(["| tick | | call | tool | writes | note |", "|-|-|-|-|-|-|", *rows]))
    return "\n\n".join(parts)


def waiting(waits: Sequence[Wait], records: Sequence[Mapping[str, Any]]) -> str:
    """What waits for a decision, with the JSON to send for each, and what was decided."""
    parts = []
    if waits:
        parts.append(
            "\n\n### Waits for a decision\n\n"
            "Send the update `decide` with one of these (or the signal `approve` or `reject`):"
        )
    for wait in waits[:MAX_WAITS]:
        asked = {k: v for k, v in wait.to_json().items() if k in ("workflowId", "call", "instance", "version")}
        until = f", until {wait.deadline}" if wait.deadline else ""
        parts.append(f"\n**{plain(str(wait))}** since {wait.since}{until}\n")
        parts += [_code({"decision": "approve", **asked}), _code({"decision": "reject", "reason": "…", **asked})]
    if len(waits) > MAX_WAITS:
        parts.append(f"\n… and {len(waits) - MAX_WAITS} more: ask the query `pending`")
    if records:
        parts.append("\n\n### Decisions\n")
        parts += [f"- {plain(line, 300)}" for line in summaries(records[-MAX_WAITS:])]
    return "\n".join(parts)


def _code(value: Any) -> str:
    """JSON in a fence, which nothing in it can close: narrow enough to be seen whole."""
    text = json.dumps(value, ensure_ascii=False, indent=2).replace("`", "\\u0060")
    return f"```json\n{text}\n```\n"


class Details:
    """The Markdown page of a run that is being walked, kept up with what changed."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._table = len(walk.nodes) <= MAX_ROWS
        self._rows: list[str] = []
        if self._table:
            order = sorted(range(len(walk.nodes)), key=lambda r: walk.nodes[r].index)
            self._place = {rank: i for i, rank in enumerate(order)}
            self._rows = [self._row(rank) for rank in order]
        self._failed: list[int] = []

    def page(self, phase: str, notes: list[str]) -> str:
        """The page as it is now."""
        walk = self._walk
        for rank in walk.changed:
            if self._table:
                self._rows[self._place[rank]] = self._row(rank)
            elif walk.runs[rank].state == "failed" and len(self._failed) < MAX_ROWS:
                self._failed.append(rank)
        walk.changed.clear()
        counts = ", ".join(f"{walk.counts[s]} {s}" for s in _ORDER if walk.counts.get(s))
        parts = [f"**{phase}** — {counts or 'no calls'}"]
        parts += [f"- {plain(note, 300)}" for note in notes[-5:]]
        rows = self._rows if self._table else [self._row(rank) for rank in self._failed]
        if rows:
            parts.append("\n".join(["| | call | tool | writes | note |", "|-|-|-|-|-|", *rows]))
        return "\n\n".join(parts)

    def _row(self, rank: int) -> str:
        node, run = self._walk.nodes[rank], self._walk.runs[rank]
        where = self._walk.path_written(rank) or " || ".join(" && ".join(str(p) for p in o) for o in node.outcomes)
        note = ""
        if run.error is not None:
            note = f"{run.error['code']}: {run.error['message']}"
        elif run.missing:
            note = f"waits for {known(run.missing)}: send the signal provide"
        cells = (plain(node.id), plain(node.tool.name), plain(where), plain(note))
        return f"| {_MARK[run.state]} {run.state} | " + " | ".join(cells) + " |"
