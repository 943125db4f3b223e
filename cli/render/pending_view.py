"""Pending approvals and decisions as text, with the commands that decide.

Laws of this file:
- text of people is only text: clean, on one line, never interpreted;
- a command that is shown names exactly one approval, and the version that is shown with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acts.language.errors import DecisionRefused, truncate
from acts.language.tools import META
from acts.language.wire import APPROVE, EDIT, REJECT
from acts.tree.decision_signature import SIGN
from acts.tree.decisions import Decision, PendingApproval, match_decision
from acts.views.state_marks import STATE_MARKS
from cli.console import clean, compact_json, console
from cli.runs.progress import EDITABLE, WITH

MAX_SHOWN: Final = 20  # approvals or decisions; `acts pending --json` and `acts show --json` list all
MAX_REASON: Final = 300
MAX_HINTS: Final = 4  # as many as there are
MAX_VALUE: Final = 2_000  # characters of one parameter
# Meta-properties that say what would be called, and with what
_SHOWN_META: Final = ("_scopes", "_each")
_PAST: Final = {APPROVE: "approved", REJECT: "rejected", EDIT: "edited"}


def decision_command(word: str, run: str, approval: PendingApproval, approvals: Sequence[PendingApproval]) -> str:
    """The command that decides this one of a run's approvals; it has only the options that are needed."""
    parts = ["acts", word, run, *([] if approval.call is None else ["--call", approval.call])]
    if not _matches_one(approvals, Decision(APPROVE, call=approval.call)):
        parts += ["--workflow-id", approval.workflow_id]
        same_run = Decision(APPROVE, call=approval.call, workflow_id=approval.workflow_id)
        if approval.instance is not None and not _matches_one(approvals, same_run):
            parts += ["--instance", approval.instance]
    if word != EDIT:
        parts += ["--version", str(approval.version)]
    signed = " --key FILE" if SIGN in approval.about else ""
    return " ".join(shlex.quote(clean(p)) for p in parts) + signed + (' --reason "…"' if word == REJECT else "")


def _matches_one(approvals: Sequence[PendingApproval], decision: Decision) -> bool:
    try:
        match_decision(approvals, decision)
    except DecisionRefused:
        return False
    return True


def approval_lines(
    run: str, approvals: Sequence[PendingApproval], only: Sequence[PendingApproval] | None = None
) -> list[str]:
    """A run's approvals (or ``only`` these of them), each with its parameters and the commands that decide it."""
    lines: list[str] = []
    listed = approvals if only is None else only
    for approval in listed[:MAX_SHOWN]:
        until = f", until {approval.deadline}" if approval.deadline else ""
        verb = "wait" if approval.what == "scopes" else "waits"
        count = approval.about.get("elements")
        subject = f"{approval} for each of {count:,} elements" if isinstance(count, int) else str(approval)
        hints = hints_text(approval)
        text = f"{subject}{hints} (version {approval.version}) {verb} for a decision since {approval.since}{until}"
        lines.append(clean(f"{STATE_MARKS['awaiting']} {text}"))
        if approval.call is not None:
            rows = parameter_lines(approval, MAX_VALUE)
            lines.append(
                "    would be called with" if rows else "    its parameters are unknown: its run does not answer"
            )
            lines += [f"      {row}" for row in rows]
        words = (APPROVE, REJECT, EDIT) if approval.about.get(EDITABLE, True) else (APPROVE, REJECT)
        lines += [f"    {decision_command(word, run, approval, approvals)}" for word in words]
    if len(listed) > MAX_SHOWN:
        lines.append(f"… and {len(listed) - MAX_SHOWN} more: acts pending")
    if any(a.what == "plan" for a in listed[:MAX_SHOWN]):
        name = shlex.quote(clean(run))
        lines.append(f"  acts graph {name} draws the plan, acts diff {name} shows its changes")
    return lines


def hints_text(approval: PendingApproval) -> str:
    """The hints of a pending Call's Tool: `` (destructive)``"""
    hints = approval.about.get("hints")
    return f" ({', '.join(clean(hint, 30) for hint in hints[:MAX_HINTS])})" if isinstance(hints, list) and hints else ""


def parameter_lines(approval: PendingApproval, limit: int) -> list[str]:
    """The parameters, list and scopes of a pending Call, a line each of at most ``limit`` characters of JSON."""
    call = approval.about.get(WITH)
    if approval.call is None or not isinstance(call, Mapping):
        return []
    parameters = {k: v for k, v in call.items() if k not in META or k in _SHOWN_META}
    rows = [f"{clean(k, 60)}  {clean(truncate(compact_json(v), limit))}" for k, v in parameters.items()]
    return rows or ["no parameters"]


def decision_line(record: Mapping[str, Any]) -> str:
    """``2026-01-01T10:00:00.000Z  Ada rejected 2:pay (version 1): not this one``"""
    tick = f"tick {record['tick']}  " if record.get("tick") else ""
    word = str(record.get("decision"))
    what = str(record.get("call") or "the plan") + (f" [{record['instance']}]" if record.get("instance") else "")
    reason = f": {clean(record['reason'], MAX_REASON)}" if record.get("reason") else ""
    by = clean(record.get("by") or "somebody", 100)
    text = f"{record.get('date')}  {tick}{by} {_PAST.get(word, word)} {what} (version {record.get('version')})"
    signed = record.get("signed")
    proof = f", signed with {signed.get('key')}" if isinstance(signed, dict) else ""
    return clean(text + proof) + reason


def print_decisions(records: Any) -> None:
    """Print who decided what, when and why."""
    listed = [r for r in records if isinstance(r, dict)] if isinstance(records, list) else []
    if not listed:
        return
    screen = console()
    screen.print("\ndecisions", style="bold")
    if len(listed) > MAX_SHOWN:
        screen.print(f"  … {len(listed) - MAX_SHOWN} earlier ones; --json lists all", style="dim")
    for record in listed[-MAX_SHOWN:]:
        screen.print(f"  {decision_line(record)}", style="red" if record.get("decision") == REJECT else None)


def rejection_text(result: Mapping[str, Any]) -> str:
    """Who rejected a rejected run, and why: ``rejected by Ada: too expensive``."""
    records = [r for r in result.get("decisions") or () if isinstance(r, dict) and r.get("decision") == REJECT]
    if result.get("status") != "rejected" or not records:
        return ""
    last = records[-1]
    what = f" ({clean(last['call'], 100)})" if last.get("call") else ""
    by, reason = last.get("by") or "somebody", last.get("reason") or "no reason was given"
    return f"rejected by {clean(by, 100)}{what}: {clean(reason, MAX_REASON)}"
