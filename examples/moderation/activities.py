"""Moderates a forum: screens comments by a word list, and publishes, removes or queues each."""

from __future__ import annotations

import csv
import re
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outcomes (
    call TEXT PRIMARY KEY, outcome TEXT NOT NULL CHECK (outcome IN ('published', 'removed', 'queued')),
    text TEXT NOT NULL
);
"""
# A decoder writes it in place of bytes that are not text
_DAMAGE: Final = "\N{REPLACEMENT CHARACTER}"
_OUTCOMES: Final = {"allow": "published", "reject": "removed", "review": "queued"}

_TEXT: Final = {"type": "string"}
_COMMENT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": _TEXT, "why": _TEXT},
    "required": ["text", "why"],
}
_OUTCOME: Final[dict[str, Any]] = {"enum": list(_OUTCOMES.values())}


def _tool(name: str, description: str, path: str, output: Json, **parameters: Json) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {
            "_activity": {"const": name}, "_outputPath": {"const": path}, "_output": output,
            **parameters,
        },
        "required": list(parameters),
        "additionalProperties": False,
    }  # fmt: skip


TOOLS: Final[dict[str, dict[str, Any]]] = {
    "screenComment": _tool(
        "screenComment", "Sorts a comment by the list of words.", "†state.clean || †state.rude || †state.doubtful",
        _COMMENT, text=_TEXT,
    ),
    "publishComment": _tool("publishComment", "Publishes a comment.", "†state.outcome", _OUTCOME, comment=_COMMENT),
    "removeComment": _tool("removeComment", "Removes a comment.", "†state.outcome", _OUTCOME, comment=_COMMENT),
    "applyVerdict": _tool(
        "applyVerdict", "Does what a verdict says: publishes, removes, or queues for a person.", "†state.outcome",
        _OUTCOME, comment=_COMMENT, verdict={"enum": list(_OUTCOMES)},
    ),
}  # fmt: skip


@activity.defn(name="screenComment")
def screen_comment(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Returns a Message at ``clean``, ``rude`` or ``doubtful``. A damaged text fails with ``unreadable``."""
    text = call["text"]
    if _DAMAGE in text:
        raise ApplicationError("the comment's text is damaged", type="unreadable", non_retryable=True)
    with example_file("moderation", "rules.csv").open(encoding="utf-8", newline="") as file:
        rules = {row["word"]: row["finding"] for row in csv.DictReader(file)}
    matches = [word for word in re.findall(r"\w+", text.casefold()) if word in rules]
    worst = next((w for w in matches if rules[w] == "rude"), matches[0] if matches else "")
    finding = rules.get(worst, "clean")
    why = f'the word "{worst}"' if worst else "no word of the list"
    return {"type": "state", "state": {finding: {"text": text, "why": why}}}


@activity.defn(name="publishComment")
def publish_comment(call: Json, _tool: Json, _context: list[Json]) -> str:
    """Publishes the comment."""
    return _record_outcome(call, "published")


@activity.defn(name="removeComment")
def remove_comment(call: Json, _tool: Json, _context: list[Json]) -> str:
    """Removes the comment."""
    return _record_outcome(call, "removed")


@activity.defn(name="applyVerdict")
def apply_verdict(call: Json, _tool: Json, _context: list[Json]) -> str:
    """Publishes, removes or queues the comment, as the verdict says."""
    return _record_outcome(call, _OUTCOMES[call["verdict"]])


def _record_outcome(call: Json, outcome: str) -> str:
    with database("moderation", _TABLES) as db:
        row = (call["_id"], outcome, call["comment"]["text"])
        db.execute("INSERT INTO outcomes VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
    return outcome
