"""Problems of the validator as blocks that lead back to the lines of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem
from cli.command_errors import MessageBlock
from cli.text.plan_files import Source


def blocks(problems: Iterable[Problem], source: Source | None) -> list[MessageBlock]:
    """Each problem as a block: errors first, then in the order of the file; capped."""
    listed = sorted(problems, key=lambda p: (not p.fatal, _line(p, source)))
    shown = [_block(p, source) for p in listed[:MAX_PROBLEMS_REPORTED]]
    if len(listed) > len(shown):
        shown.append(MessageBlock(f"… and {len(listed) - len(shown)} more problems", severity="note"))
    return shown


def from_json(items: Sequence[dict[str, Any]]) -> list[Problem]:
    """Problems as a failed run carries them."""
    keys = ("code", "message", "pointer", "call", "hint", "severity", "instance")
    return [Problem(**{"code": "unknown", "message": "", **{k: i[k] for k in keys if k in i}}) for i in items]


def _line(problem: Problem, source: Source | None) -> int:
    place = source.place(problem.pointer) if source is not None else None
    return place.line if place is not None else 0


def _block(problem: Problem, source: Source | None) -> MessageBlock:
    facts = []
    if source is not None and (row := source.excerpt(problem.pointer)):
        facts.append(("line", row))
    for label, text in (
        ("call", problem.call),
        ("instance", problem.instance),
        ("at", problem.pointer),
        ("hint", problem.hint),
    ):
        if text:
            facts.append((label, text))
    where = source.where(problem.pointer) if source is not None else ""
    return MessageBlock(f"{problem.message} [{problem.code}]", where, facts, problem.severity)
