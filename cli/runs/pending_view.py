"""What waits for a person, and what people decided: asked for, and told with the command to type.

Laws of this file:
- what people wrote is text: shown clean, on one line, and never obeyed;
- a command that is shown names exactly one wait, and the version that is shown with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.wire import PENDING
from acts.tree.decisions import APPROVE, EDIT, REJECT, Decision, PendingApproval, match_decision
from cli.console import clean, console
from cli.runs.pending_parameters import EDITABLE, call_lines
from cli.runs.queries import ask

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

_SHOWN: Final = 20  # of many waits or decisions; `acts pending --json` and `acts show --json` have all of them
_WORDS: Final = {APPROVE: "approved", REJECT: "rejected", EDIT: "edited"}
MAX_REASON: Final = 300
MAX_VALUE: Final = 2_000  # characters of one parameter; the page that it is read from has 1,000


async def waits_of(handle: WorkflowHandle[Any, Any]) -> list[PendingApproval] | None:
    """What waits in a run and below it, or None when nobody tells."""
    return read_waits(await ask(handle, PENDING))


def read_waits(found: Any) -> list[PendingApproval] | None:
    """The answer of the query ``pending``; None for anything else."""
    return [PendingApproval.from_json(item) for item in found] if isinstance(found, list) else None


def command(word: str, run: str, wait: PendingApproval, waits: Sequence[PendingApproval]) -> str:
    """The command that decides about this one of the waits of a run."""
    parts = ["acts", word, run]
    told: dict[str, str | None] = {"call": wait.call, "instance": None, "workflow-id": None}
    named = Decision(APPROVE, call=wait.call)
    if _several(waits, named):
        told["workflow-id"] = wait.workflow_id
        if _several(waits, Decision(APPROVE, call=wait.call, workflow_id=wait.workflow_id)):
            told["instance"] = wait.instance
    for name, value in told.items():
        parts += [] if value is None else [f"--{name}", value]
    if word != EDIT:
        parts += ["--version", str(wait.version)]
    text = " ".join(shlex.quote(clean(p)) for p in parts)
    return text + (' --reason "…"' if word == REJECT else "")


def _several(waits: Sequence[PendingApproval], decision: Decision) -> bool:
    try:
        match_decision(waits, decision)
    except DecisionRefused:
        return True
    return False


def wait_lines(run: str, waits: Sequence[PendingApproval], only: Sequence[PendingApproval] | None = None) -> list[str]:
    """What waits in a run (of that, ``only`` these), each with the commands that decide it."""
    out = []
    asked = waits if only is None else only
    for wait in asked[:_SHOWN]:
        until = f", until {wait.deadline}" if wait.deadline else ""
        verb = "wait" if wait.what == "scopes" else "waits"
        out.append(clean(f"? {wait} (version {wait.version}) {verb} for a decision since {wait.since}{until}"))
        if wait.call is not None:
            told = call_lines(wait, MAX_VALUE)
            head = "would be called with" if told else "its run does not tell what it would be called with"
            out += [f"    {head}", *(f"      {row}" for row in told)]
        words = (APPROVE, REJECT, EDIT) if wait.about.get(EDITABLE, True) else (APPROVE, REJECT)
        out += [f"    {command(word, run, wait, waits)}" for word in words]
    if len(asked) > _SHOWN:
        out.append(f"… and {len(asked) - _SHOWN} more: acts pending")
    if any(w.what == "plan" for w in asked[:_SHOWN]):
        name = shlex.quote(clean(run))
        out.append(f"  acts graph {name} draws the plan, acts diff {name} shows what was changed in it")
    return out


def decision_line(record: Mapping[str, Any]) -> str:
    """``2026-01-01T10:00:00.000Z  Ada rejected 2:pay (version 1): not this one``"""
    tick = f"tick {record['tick']}  " if record.get("tick") else ""
    word = str(record.get("decision"))
    about = str(record.get("call") or "the plan") + (f" [{record['instance']}]" if record.get("instance") else "")
    why = f": {clean(record['reason'], MAX_REASON)}" if record.get("reason") else ""
    who = clean(record.get("by") or "somebody", 100)
    told = f"{who} {_WORDS.get(word, word)} {about} (version {record.get('version')})"
    return clean(f"{record.get('date')}  {tick}{told}") + why


def print_decisions(records: Any) -> None:
    """Who decided what, when and why, on stdout."""
    listed = [r for r in records if isinstance(r, dict)] if isinstance(records, list) else []
    if not listed:
        return
    screen = console()
    screen.print("\ndecisions", style="bold")
    if len(listed) > _SHOWN:
        screen.print(f"  … {len(listed) - _SHOWN} earlier ones; --json lists all", style="dim")
    for record in listed[-_SHOWN:]:
        screen.print(f"  {decision_line(record)}", style="red" if record.get("decision") == REJECT else None)


def verdict(result: Mapping[str, Any]) -> str:
    """Of a rejected run, who rejected it and why: ``rejected by Ada: too expensive``."""
    listed = [r for r in result.get("decisions") or () if isinstance(r, dict) and r.get("decision") == REJECT]
    if result.get("status") != "rejected" or not listed:
        return ""
    about = f" ({clean(listed[-1]['call'], 100)})" if listed[-1].get("call") else ""
    who, why = listed[-1].get("by") or "somebody", listed[-1].get("reason") or "no reason was given"
    return f"rejected by {clean(who, 100)}{about}: {clean(why, MAX_REASON)}"
