"""Problems of the validator as messages that name the lines of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem
from cli.command_errors import MessageBlock, message
from cli.text.source_text import SourceText


def problem_blocks(problems: Iterable[Problem], source: SourceText | None) -> list[MessageBlock]:
    """A message per problem: errors first, then in the order of the file; capped."""
    ordered = sorted(problems, key=lambda p: (not p.fatal, _line(p, source)))
    blocks = [_format_problem(p, source) for p in ordered[:MAX_PROBLEMS_REPORTED]]
    if len(ordered) > len(blocks):
        blocks.append(message(f"… and {len(ordered) - len(blocks)} more problems", severity="note"))
    return blocks


def problems_from_json(items: Sequence[dict[str, Any]]) -> list[Problem]:
    """The problems of an InvalidRequest failure."""
    keys = ("code", "message", "pointer", "call", "hint", "severity", "instance")
    return [Problem(**{"code": "unknown", "message": "", **{k: i[k] for k in keys if k in i}}) for i in items]


def _line(problem: Problem, source: SourceText | None) -> int:
    position = source.position(problem.pointer) if source is not None else None
    return position.line if position is not None else 0


def _format_problem(problem: Problem, source: SourceText | None) -> MessageBlock:
    line = source.excerpt(problem.pointer) if source is not None else ""
    labels = ("line", "call", "instance", "at", "hint")
    texts = (line, problem.call, problem.instance, problem.pointer, problem.hint)
    facts = [(label, text) for label, text in zip(labels, texts, strict=True) if text]
    where = source.where(problem.pointer) if source is not None else ""
    return MessageBlock(f"{problem.message} [{problem.code}]", where, facts, problem.severity)
