"""What a person or a program is told of a run: result, status, details. Pure.

Text that came from outside (tool names, messages) is shown as text: it is never let
through as Markdown or markup.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.decisions import summaries
from acts.errors import known, shorten
from acts.instances import UNIT, messages, walked
from acts.outputs import appended as written

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
    ranks = [rank for rank, node in enumerate(walk.nodes) if node.how != UNIT]
    return [call_item(walk, rank) for rank in sorted(ranks, key=lambda r: walk.nodes[r].index)]


def error_item(walk: Walk, rank: int) -> dict[str, Any] | None:
    """The failure of one Call that nothing took, or None."""
    node, run = walk.nodes[rank], walk.runs[rank]
    if run.state not in ("failed", "rejected") or run.error is None:
        return None
    item = {"call": node.id, **run.error}
    return item if node.instance is None else {**item, "instance": node.instance}


def errors(walk: Walk) -> list[dict[str, Any]]:
    """The failures that nothing took: ``{call, instance?, code, message}``."""
    out = [e for rank in range(len(walk.nodes)) if (e := error_item(walk, rank)) is not None]
    for run in walk.runs:
        for id_, item in (run.value or {}).items():
            out += [{**e, "instance": id_} for e in item["errors"]]
    return out


def result(walk: Walk, spent: Spent, status: str | None = None) -> dict[str, Any]:
    """The result of a Plan."""
    own = calls(walk)
    out: dict[str, Any] = {"status": status or walk.status, "state": walk.state()}
    if walk.prepared.request.instances():
        out["instances"] = instances(walk)
        own = [c for c in own if "instance" not in c]
    return {
        **out, "calls": own, "context": appended(walk), "errors": errors(walk), "usage": spent.to_json(),
    }  # fmt: skip


def instances(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, state, calls, errors}}``, in the order in which the context has them."""
    found = walked(walk)
    for run in walk.runs:
        found |= {i: {**item, "state": walk.state(i)} for i, item in (run.value or {}).items()}
    shown = ("status", "state", "calls", "errors")
    return {
        i: {k: found[i][k] for k in shown} if i in found else _untouched(walk, i)
        for i in walk.prepared.request.instances()
    }


def _untouched(walk: Walk, instance: str) -> dict[str, Any]:
    """An instance that no Call was for, or that was not reached."""
    over = walk.status if walk.status in ("cancelled", "rejected") else "completed"
    return {"status": over, "state": walk.state(instance), "calls": [], "errors": []}


def appended(walk: Walk) -> list[dict[str, Any]]:
    """The messages that came after the Request's, those of instances that children walked among them."""
    found: list[tuple[int, Any]] = []
    for run in walk.runs:
        for id_, item in (run.value or {}).items():
            found += messages(walk.known, id_, item)
    if not found:
        return walk.appended()
    template = all(instance is None for instance, _ in walk.known)
    if not template:
        places = {n.key: rank for rank, n in enumerate(walk.prepared.whole.nodes)} if walk.prepared.whole else {}
        for node, run in zip(walk.nodes, walk.runs, strict=True):
            found += [(places[node.key], written(node, p, v, date)) for p, v, date in run.written]
        return [*walk.provided, *(m for _, m in sorted(found, key=lambda pair: pair[0]))]
    return [*walk.provided, *(m for _, m in found)]


def failure_text(walk: Walk) -> str:
    """One line per failure, for the message of a failed workflow."""
    found = errors(walk)
    lines = [f"- {_where(e)}: [{e['code']}] {shorten(str(e['message']), 300)}" for e in found[:MAX_FAILURES]]
    more = [f"- … and {len(found) - MAX_FAILURES} more"] if len(found) > MAX_FAILURES else []
    skipped = walk.counts.get("skipped", 0)
    head = f"{len(found)} of {len(walk.nodes)} calls failed" + (f", {skipped} skipped" if skipped else "")
    if walk.prepared.whole is not None:
        head = f"{len(found)} calls failed in {len(dict.fromkeys(e.get('instance') for e in found))} instances"
    return "\n".join([head + ":", *lines, *more])


def _where(error: Mapping[str, Any]) -> str:
    return f"{error['call']} [{error['instance']}]" if "instance" in error else str(error["call"])


def summary(node: Node) -> str:
    """``tool → path`` of a Call, for the label of its activity or child."""
    where = " || ".join(" && ".join(str(p) for p in o) for o in node.outcomes[: node.choices])
    text = f"{node.tool.name} → {where}" if where else node.tool.name
    if node.how == UNIT:
        text = f"instance {node.id}"
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
