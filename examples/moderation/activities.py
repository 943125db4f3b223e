"""Moderates a forum: screens comments by a word list, and publishes, removes or queues each."""

from __future__ import annotations

import csv
import re
from typing import Any, Final, Literal

from pydantic import BaseModel

import acts
from examples.effects import database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outcomes (
    call TEXT PRIMARY KEY, outcome TEXT NOT NULL CHECK (outcome IN ('published', 'removed', 'queued')),
    text TEXT NOT NULL
);
"""
# A decoder writes it in place of bytes that are not text
_DAMAGE: Final = "\N{REPLACEMENT CHARACTER}"

Verdict = Literal["allow", "reject", "review"]
Outcome = Literal["published", "removed", "queued"]
_OUTCOMES: Final[dict[Verdict, Outcome]] = {"allow": "published", "reject": "removed", "review": "queued"}


class Comment(BaseModel):
    text: str
    why: str


@acts.tool(
    name="screenComment", read_only=True, failures={"unreadable": "the text is damaged"}, output=Comment,
    output_path="†state.clean || †state.rude || †state.doubtful",
)  # fmt: skip
def screen_comment(text: str) -> dict[str, Any]:
    """Sorts a comment by the list of words."""
    if _DAMAGE in text:
        raise acts.Failure("unreadable", "the comment's text is damaged")
    with example_file("moderation", "rules.csv").open(encoding="utf-8", newline="") as file:
        rules = {row["word"]: row["finding"] for row in csv.DictReader(file)}
    matches = [word for word in re.findall(r"\w+", text.casefold()) if word in rules]
    worst = next((w for w in matches if rules[w] == "rude"), matches[0] if matches else "")
    why = f'the word "{worst}"' if worst else "no word of the list"
    # A Message that holds one of the outcomes chooses it
    return {"type": "state", "state": {rules.get(worst, "clean"): {"text": text, "why": why}}}


@acts.tool(name="publishComment", output_path="†state.outcome")
def publish_comment(comment: Comment, *, call: acts.Call) -> Outcome:
    """Publishes a comment."""
    return _record_outcome(call, comment, "published")


@acts.tool(name="removeComment", output_path="†state.outcome")
def remove_comment(comment: Comment, *, call: acts.Call) -> Outcome:
    """Removes a comment."""
    return _record_outcome(call, comment, "removed")


@acts.tool(name="applyVerdict", output_path="†state.outcome")
def apply_verdict(comment: Comment, verdict: Verdict, *, call: acts.Call) -> Outcome:
    """Does what a verdict says: publishes, removes, or queues for a person."""
    return _record_outcome(call, comment, _OUTCOMES[verdict])


def _record_outcome(call: acts.Call, comment: Comment, outcome: Outcome) -> Outcome:
    with database("moderation", _TABLES) as db:
        db.execute("INSERT INTO outcomes VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (call.id, outcome, comment.text))
    return outcome
