"""The page of a run in Temporal's Web UI: its Calls, the pending approvals, the decisions. Markdown. Pure.

Text from outside (tool names, messages) is shown as text, see ``markdown``. Of a plan with more Calls than
a table may have rows, the page has the counts and the failed Calls. ``approval_page`` adds what a plan that
waits as a whole would do.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import format_choices
from acts.language.references import conjunction
from acts.machines.call_report import call_item
from acts.machines.call_state import SETTLED
from acts.plan.planned_call import UNIT
from acts.tree.decision_signature import SIGN
from acts.views.markdown import MAX_ROWS, begin_json, code_span, fence, fit_lines, row, table
from acts.views.state_marks import CALL_STATES, STATE_MARKS, element_counts_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from acts.machines.loop import Loop
    from acts.machines.walk import Walk
    from acts.tree.decisions import PendingApproval

# Pending approvals with their JSON, and decisions
MAX_APPROVALS: Final = 20
# Notes, the latest ones
MAX_NOTES: Final = 5
# Characters of a note, of an error, of a reason
MAX_TEXT: Final = 300
# Characters of the parameters of a Call that waits, and of one of them: first the one limit, then the other
MAX_PARAMETERS: Final = 3_000
MAX_PARAMETER: Final = (1_000, 100)
# Hints of a Tool: as many as there are
_MAX_HINTS: Final = 4
_FAILED: Final = ("failed", "rejected")
_STATUS: Final = "ask the query `status`"
_PENDING: Final = "ask the query `pending`"
_HOW_TO_DECIDE: Final = (
    "To decide: *More Actions*, *Send an Update*, `decide`, and one of these as *Data*. "
    'You may add `"by"` and `"reason"`.'
)
_HOW_TO_SIGN: Final = "Only an approver decides, by a signature: `acts pending` lists the commands (`--key FILE`)."
_ADDRESS: Final = ("workflowId", "call", "instance", "version")


# -- the page of an agent ------------------------------------------------------------


def agent_page(
    loop: Loop, phase: str, notes: Sequence[str], pending: Sequence[PendingApproval] = (),
    decisions: Sequence[Mapping[str, Any]] = (),
) -> str:  # fmt: skip
    """The page of an agent: its phase, what it spent, its Calls (the latest tick first), approvals and decisions.

    ``pending`` are those of the whole tree below it, ``decisions`` the records of those that were made.
    """
    usage = loop.usage
    cost = "" if usage.cost is None else f", {usage.cost:.4f} US dollars"
    tokens = f"{usage.inputTokens:,} tokens in ({usage.cachedTokens:,} cached), {usage.outputTokens:,} out"
    items = sorted(loop.current_calls(), key=lambda item: -item.get("tick", 0))
    rows = fit_lines((row(str(item.get("tick", "")), *_cells(item)) for item in items), len(items), _STATUS)
    remarks = [remark for item in items[:MAX_ROWS] if (remark := _remark(item, str(item.get("tick", ""))))]
    return _join(
        f"**{phase}** — tick {loop.tick} of at most {loop.request.config.maxTicks}",
        f"{usage.requests} requests, {tokens}{cost}",
        _note_lines(notes),
        table(("tick", "", "call", "writes"), rows) if rows else "",
        "\n".join(fit_lines(remarks, len(remarks), _STATUS)),
    ) + approvals_section(pending, decisions)


# -- the page of a plan --------------------------------------------------------------


def plan_page(
    walk: Walk, phase: str, notes: Sequence[str], pending: Sequence[PendingApproval] = (),
    decisions: Sequence[Mapping[str, Any]] = (), in_queue: Collection[str] = (),
) -> str:  # fmt: skip
    """The page of a plan as it is walked; ``pending`` and ``decisions`` as in ``agent_page``.

    ``in_queue`` are the keys of Calls that no worker has taken.
    """
    listed = sorted(range(len(walk.nodes)), key=lambda rank: walk.nodes[rank].index)
    ranks = listed if len(listed) <= MAX_ROWS else [rank for rank in listed if walk.calls[rank].state in _FAILED]
    items = [_page_item(walk, rank, in_queue) for rank in ranks[:MAX_ROWS]]
    rows = fit_lines((row(*_cells(item)) for item in items), len(ranks), _STATUS)
    remarks = [remark for item in items if (remark := _remark(item))]
    remarks += [line for rank in ranks[:MAX_ROWS] for line in _result_lines(walk, rank)]
    counts = Counter(walk.counts)
    queued = sum(
        1 for key in in_queue if walk.rows.get(key, len(walk.nodes)) < len(walk.nodes)
    )  # elements are no Calls
    counts.update({"ready": queued, "running": -queued})
    awaiting = [rank for rank in listed if walk.calls[rank].stage == "awaiting"] if counts["awaiting"] else []
    return _join(
        f"**{phase}** — {', '.join(f'{counts[s]} {s}' for s in CALL_STATES if counts[s]) or 'no calls'}",
        _note_lines(notes),
        table(("", "call", "writes"), rows) if rows else "",
        "\n".join(fit_lines(remarks, len(remarks), _STATUS)),
        *fit_lines((_awaiting_section(walk, rank) for rank in awaiting), len(awaiting), _PENDING, MAX_APPROVALS),
    ) + approvals_section(pending, decisions)


def _page_item(walk: Walk, rank: int, in_queue: Collection[str]) -> dict[str, Any]:
    """The report on a Call, with the paths that it may still write."""
    item = call_item(walk, rank, in_queue)
    if walk.calls[rank].state not in SETTLED:
        item.setdefault("outputPath", " || ".join(map(conjunction, walk.nodes[rank].outcomes)))
    return item


def _awaiting_section(walk: Walk, rank: int) -> str:
    return _parameters_section(_name(call_item(walk, rank)), walk.calls[rank].resolved or {})


# -- Calls -----------------------------------------------------------------------------


def _cells(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """State, Call and where it writes. All else is too long for a table in half the width of a window."""
    state = item["state"]
    return f"{STATE_MARKS[state]}\u00a0{state}", _name(item), code_span(item.get("outputPath", ""))


def _name(item: Mapping[str, Any]) -> str:
    unit = f"{UNIT} " if item["tool"] == UNIT else ""
    name = f"{unit}{code_span(item['id'])}" + (f" [{code_span(item['instance'])}]" if "instance" in item else "")
    counts = element_counts_text(item.get("elements"))
    return f"{name} ({counts})" if counts else name


def _remark(item: Mapping[str, Any], tick: str = "") -> str | None:
    """Why a Call failed or was skipped, or what it waits for."""
    if not any(key in item for key in ("error", "waitsFor", "reason")):
        return None
    name = f"{STATE_MARKS[item['state']]} {_name(item)}" + (f" of tick {tick}" if tick else "")
    if "error" in item:
        return f"- {name}: {code_span('{code}: {message}'.format(**item['error']), MAX_TEXT)}"
    if "reason" in item:
        return f"- {name} was skipped: {code_span(item['reason'], MAX_TEXT)}"
    return f"- {name} waits for {code_span(format_choices(item['waitsFor']))}: send the signal `provide`"


def _result_lines(walk: Walk, rank: int) -> list[str]:
    """What a Call wrote, shortened: a line per path."""
    name = f"{STATE_MARKS['completed']} {_name(call_item(walk, rank))}" if walk.calls[rank].written else ""
    return [
        f"- {name}: {code_span(path)} = {code_span(begin_json(value, MAX_TEXT), MAX_TEXT)}"
        for path, value, _ in walk.calls[rank].written
    ]


def _note_lines(notes: Sequence[str]) -> str:
    return "\n".join(f"- {code_span(note, MAX_TEXT)}" for note in notes[-MAX_NOTES:])


def shorten_parameters(call: Mapping[str, Any], limit: int = MAX_PARAMETER[0]) -> dict[str, Any]:
    """A resolved Call for people: without its ``_id``, and the size of each value of more than ``limit`` characters."""
    sizes = {key: len(json.dumps(value)) for key, value in call.items() if key != "_id"}
    return {k: call[k] if n <= limit else f"… ({_length(call[k])}{n:,} characters of JSON)" for k, n in sizes.items()}


def _length(value: Any) -> str:
    return f"{len(value):,} elements, " if isinstance(value, list) else ""


def _parameters_section(name: str, call: Mapping[str, Any]) -> str:
    """What an awaiting Call would be called with: the person who decides has to know."""
    for limit in MAX_PARAMETER:
        text = fence(shorten_parameters(call, limit))
        if len(text) <= MAX_PARAMETERS:
            return f"{name} would be called with\n\n{text}"
    return f"{name} would be called with {len(call):,} parameters: {_PENDING}"


# -- approvals ---------------------------------------------------------------------------


def approvals_section(pending: Sequence[PendingApproval], decisions: Sequence[Mapping[str, Any]]) -> str:
    """The pending approvals, each with the JSON that decides it, and the records of decisions, the latest first."""
    parts = []
    if pending:
        parts.append("\n\n### Waits for a decision\n\n" + _HOW_TO_DECIDE)
        parts += fit_lines(map(_approval_lines, pending), len(pending), _PENDING, MAX_APPROVALS)
    if decisions:
        parts.append("\n\n### Decisions\n")
        parts += fit_lines(map(_decision_line, reversed(decisions)), len(decisions), _STATUS, MAX_APPROVALS)
    return "\n".join(parts)


def _approval_lines(approval: PendingApproval) -> str:
    """One pending approval, its parameters where it has them, and the JSON that approves or rejects it.

    A run below may have reported anything: nothing of it is trusted.
    """
    report = approval.to_json()
    address = {k: v for k, v in report.items() if k in _ADDRESS}
    call = "**the plan**" if approval.call is None else code_span(approval.call)
    subject = f"the scopes of {call}" if approval.what == "scopes" else call
    run = code_span(approval.workflow_id) + (f" [{code_span(approval.instance)}]" if approval.instance else "")
    until = f", until {_utc(approval.deadline)}" if approval.deadline else ""
    version: Any = approval.version
    version = version if isinstance(version, int) else code_span(version)
    count = report.get("elements")
    subject += f" for each of {count:,} elements" if isinstance(count, int) else ""
    hints = report.get("hints")
    subject += f" ({', '.join(map(code_span, hints[:_MAX_HINTS]))})" if isinstance(hints, list) and hints else ""
    parts = [f"\n{subject} of {run}, version {version}, since {_utc(approval.since)}{until}"]
    if isinstance(report.get("parameters"), dict):
        parts.append(_parameters_section(call, report["parameters"]))
    if SIGN in report:  # nobody can sign here
        return "\n\n".join([*parts, _HOW_TO_SIGN]) + "\n"
    parts.append(fence({"decision": "approve", **address}))
    parts.append(fence({"decision": "reject", "reason": "…", **address}))
    return "\n\n".join(parts) + "\n"


def _decision_line(record: Mapping[str, Any]) -> str:
    subject = code_span(record["call"]) if "call" in record else "the plan"
    subject += f" [{code_span(record['instance'])}]" if "instance" in record else ""
    why = f": {code_span(record['reason'], MAX_TEXT)}" if record.get("reason") else ""
    who = code_span(record.get("by", "")) or "somebody"
    signed = ", signed" if record.get("signed") else ""
    return f"- {_utc(record['date'])} {who}: {record['decision']} {subject} (version {record['version']}{signed}){why}"


def _utc(date: Any) -> str:
    """An ISO date in UTC, for people."""
    try:
        return f"{datetime.fromisoformat(date):%Y-%m-%d %H:%M:%S} UTC"
    except (TypeError, ValueError):
        return code_span(date)


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
