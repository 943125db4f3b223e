"""What a person or a program is told of a run: result, status, details. Pure.

Text that came from outside (tool names, messages) is shown as text, see ``markdown``. A plan of more
Calls than are read in a table shows its counts and what failed.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import format_choices, truncate
from acts.language.references import conjunction
from acts.machines.call_report import call_item, calls, errors
from acts.machines.instance_results import instance_messages, instance_summaries
from acts.plan.planned_call import UNIT
from acts.plan.result_placement import appended_message as written
from acts.views.markdown import MAX_ROWS, code_span, fence, fit_lines, row, table
from acts.views.state_marks import CALL_STATES, STATE_MARKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.usage import Usage
    from acts.machines.loop import Loop
    from acts.machines.walk import Walk
    from acts.tree.decisions import PendingApproval

# Pending decisions shown with their JSON
MAX_WAITS: Final = 20
# Characters of a note, of an error, of a reason
MAX_NOTE: Final = 300
# Characters of one parameter of a Call that waits; the page is no place to read more
MAX_VALUE: Final = 1_000
# Failures named one by one in the message of a failed workflow
MAX_FAILURES: Final = 50
_FAILED: Final = ("failed", "rejected")
_WRONG: Final = (*_FAILED, "cancelled")
_STATUS: Final = "ask the query `status`"
_PENDING: Final = "ask the query `pending`"
_HOW_TO_DECIDE: Final = (
    "To decide: *More Actions*, *Send an Update*, `decide`, and one of these as *Data*. "
    'You may add `"by"` and `"reason"`.'
)


def result(walk: Walk, spent: Usage, status: str | None = None) -> dict[str, Any]:
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
    found = instance_summaries(walk)
    for run in walk.runs:
        found |= run.value or {}
    return {i: _instance(walk, i, found.get(i)) for i in walk.prepared.request.instances()}


def _instance(walk: Walk, instance: str, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """What one came to; None is one that no Call was for, or that was not reached."""
    if found is None:
        over = walk.status if walk.status in ("cancelled", "rejected") else "completed"
        found = {"status": over, "calls": [], "errors": []}
    return {
        "status": found["status"], "state": walk.state(instance), "calls": found["calls"], "errors": found["errors"],
    }  # fmt: skip


def appended(walk: Walk) -> list[dict[str, Any]]:
    """The messages that came after the Request's, those of instances that children walked among them."""
    found: list[tuple[int, Any]] = []
    for run in walk.runs:
        for id_, item in (run.value or {}).items():
            found += instance_messages(walk.known, id_, item)
    if not found:
        return walk.appended()
    template = list(walk.known) == [None]
    if not template:
        places = {n.key: rank for rank, n in enumerate(walk.prepared.whole.nodes)} if walk.prepared.whole else {}
        for node, run in zip(walk.nodes, walk.runs, strict=True):
            found += [(places[node.key], written(node, p, v, date)) for p, v, date in run.written]
        return [*walk.provided, *(m for _, m in sorted(found, key=lambda pair: pair[0]))]
    return [*walk.provided, *(m for _, m in found)]


def failure_text(walk: Walk) -> str:
    """One line per failure, for the message of a failed workflow."""
    found = errors(walk)
    lines = [f"- {_where(e)}: [{e['code']}] {truncate(str(e['message']), 300)}" for e in found[:MAX_FAILURES]]
    more = [f"- … and {len(found) - MAX_FAILURES} more"] if len(found) > MAX_FAILURES else []
    skipped = walk.counts.get("skipped", 0)
    head = f"{len(found)} of {len(walk.nodes)} calls failed" + (f", {skipped} skipped" if skipped else "")
    if walk.prepared.whole is not None:
        head = f"{len(found)} calls failed in {len(dict.fromkeys(e.get('instance') for e in found))} instances"
    return "\n".join([head + ":", *lines, *more])


def _where(error: Mapping[str, Any]) -> str:
    return f"{error['call']} [{error['instance']}]" if "instance" in error else str(error["call"])


def agent_page(loop: Loop, phase: str, notes: list[str]) -> str:
    """The Markdown page of an agent: where it is, what it spent, and its Calls, those of the latest tick first."""
    spent = loop.spent
    cost = "" if spent.cost is None else f", {spent.cost:.4f} US dollars"
    tokens = f"{spent.inputTokens:,} tokens in ({spent.cachedTokens:,} cached), {spent.outputTokens:,} out"
    found = sorted(loop.current(), key=lambda c: -c.get("tick", 0))
    rows = fit_lines((row(str(c.get("tick", "")), *_cells(c)) for c in found), len(found), _STATUS)
    remarks = [text for c in found[:MAX_ROWS] if (text := _remark(c, str(c.get("tick", ""))))]
    parts = [
        f"**{phase}** — tick {loop.tick} of at most {loop.request.config.maxTicks}",
        f"{spent.requests} requests, {tokens}{cost}",
        _noted(notes),
        table(("tick", "", "call", "writes"), rows) if rows else "",
        "\n".join(fit_lines(remarks, len(remarks), _STATUS)),
    ]
    return "\n\n".join(part for part in parts if part)


def _noted(notes: list[str]) -> str:
    return "\n".join(f"- {code_span(note, MAX_NOTE)}" for note in notes[-5:])


def _cells(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """State, Call and where it writes. All else is too long for a table in half the width of a window."""
    state = item["state"]
    return f"{STATE_MARKS[state]}\u00a0{state}", _name(item), code_span(item.get("outputPath", ""))


def _name(item: Mapping[str, Any]) -> str:
    unit = f"{UNIT} " if item["tool"] == UNIT else ""
    return f"{unit}{code_span(item['id'])}" + (f" [{code_span(item['instance'])}]" if "instance" in item else "")


def _remark(item: Mapping[str, Any], tick: str = "") -> str | None:
    """Why a Call failed, or what it waits for."""
    if "error" not in item and "waitsFor" not in item:
        return None
    name = f"{STATE_MARKS[item['state']]} {_name(item)}" + (f" of tick {tick}" if tick else "")
    if "error" in item:
        return f"- {name}: {code_span('{code}: {message}'.format(**item['error']), MAX_NOTE)}"
    return f"- {name} waits for {code_span(format_choices(item['waitsFor']))}: send the signal `provide`"


def approvals_section(waits: Sequence[PendingApproval], records: Sequence[Mapping[str, Any]]) -> str:
    """What waits for a decision, with the JSON to send for each, and what was decided, the latest first."""
    parts = []
    if waits:
        parts.append("\n\n### Waits for a decision\n\n" + _HOW_TO_DECIDE)
        parts += fit_lines(map(_asked, waits), len(waits), _PENDING, MAX_WAITS)
    if records:
        parts.append("\n\n### Decisions\n")
        parts += fit_lines(map(_decided, reversed(records)), len(records), _STATUS, MAX_WAITS)
    return "\n".join(parts)


def _asked(wait: PendingApproval) -> str:
    """Which wait it is, and the JSON that approves or rejects it. A run below may have said anything."""
    asked = {k: v for k, v in wait.to_json().items() if k in ("workflowId", "call", "instance", "version")}
    about = "**the plan**" if wait.call is None else code_span(wait.call)
    about = f"the scopes of {about}" if wait.what == "scopes" else about
    where = code_span(wait.workflow_id) + (f" [{code_span(wait.instance)}]" if wait.instance else "")
    until = f", until {_moment(wait.deadline)}" if wait.deadline else ""
    version: Any = wait.version
    version = version if isinstance(version, int) else code_span(version)
    head = f"\n{about} of {where}, version {version}, since {_moment(wait.since)}{until}"
    both = ({"decision": "approve", **asked}, {"decision": "reject", "reason": "…", **asked})
    return "\n\n".join((head, *map(fence, both))) + "\n"


def _decided(item: Mapping[str, Any]) -> str:
    about = code_span(item["call"]) if "call" in item else "the plan"
    about += f" [{code_span(item['instance'])}]" if "instance" in item else ""
    why = f": {code_span(item['reason'], MAX_NOTE)}" if item.get("reason") else ""
    who = code_span(item.get("by", "")) or "somebody"
    return f"- {_moment(item['date'])} {who}: {item['decision']} {about} (version {item['version']}){why}"


def _moment(date: Any) -> str:
    """An ISO date in UTC, for people."""
    try:
        return f"{datetime.fromisoformat(date):%Y-%m-%d %H:%M:%S} UTC"
    except (TypeError, ValueError):
        return code_span(date)


class WebPage:
    """The Markdown page of a run that is being walked, kept up with what changed."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._table = len(walk.nodes) <= MAX_ROWS
        self._ranks: list[int] = []
        self._lines: dict[int, tuple[str, str | None]] = {}
        self._awaiting: dict[int, str] = {}
        for rank in sorted(range(len(walk.nodes)), key=lambda r: walk.nodes[r].index):
            self._take(rank)

    def page(self, phase: str, notes: list[str]) -> str:
        """The page as it is now."""
        walk = self._walk
        for rank in walk.changed:
            self._take(rank)
        walk.changed.clear()
        counts = ", ".join(f"{walk.counts[s]} {s}" for s in CALL_STATES if walk.counts.get(s))
        lines = [self._lines[rank] for rank in self._ranks]
        rows = fit_lines((line for line, _ in lines), len(lines), _STATUS)
        remarks = [remark for _, remark in lines if remark]
        parts = [
            f"**{phase}** — {counts or 'no calls'}",
            _noted(notes),
            table(("", "call", "writes"), rows) if rows else "",
            "\n".join(fit_lines(remarks, len(remarks), _STATUS)),
            *fit_lines(self._awaiting.values(), len(self._awaiting), _PENDING, MAX_WAITS),
        ]
        return "\n\n".join(part for part in parts if part)

    def _take(self, rank: int) -> None:
        """Take over what a Call has become."""
        run = self._walk.runs[rank]
        if run.state != "awaiting":
            self._awaiting.pop(rank, None)
        elif rank not in self._awaiting and run.resolved is not None:
            self._awaiting[rank] = self._call(rank, run.resolved)
        if rank not in self._lines:
            if not self._table and (run.state not in _FAILED or len(self._ranks) == MAX_ROWS):
                return
            self._ranks.append(rank)
        item = call_item(self._walk, rank)
        item.setdefault("outputPath", " || ".join(map(conjunction, self._walk.nodes[rank].outcomes)))
        self._lines[rank] = row(*_cells(item)), _remark(item)

    def _call(self, rank: int, call: Mapping[str, Any]) -> str:
        """What an awaiting Call would be called with: who decides about it has to know."""
        sizes = {key: len(json.dumps(value)) for key, value in call.items() if key != "_id"}
        shown = {k: call[k] if n <= MAX_VALUE else f"… ({n:,} characters of JSON)" for k, n in sizes.items()}
        return f"{_name(call_item(self._walk, rank))} would be called with\n\n{fence(shown)}"
