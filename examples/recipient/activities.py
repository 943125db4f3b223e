"""Sends messages to recipients in the Call's scope, and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, text TEXT NOT NULL
);
"""


def _ids(value: Any) -> Iterator[str]:
    """Every ``id`` in the data, at any depth."""
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        yield value["id"]
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _ids(child)


@activity.defn(name="sendMessage")
def send_message(call: Json, _tool: Json, context: list[Json]) -> Json:
    """Adds a row to the outbox. With scopes, the recipient must be in them: else ``not_in_scope``."""
    in_scope = sorted(set(_ids(context)))
    if context and call["recipientId"] not in in_scope:
        text = f"{call['recipientId']} is not in scope; there is: {', '.join(in_scope) or 'nobody'}"
        raise ApplicationError(text, type="not_in_scope", non_retryable=True)
    with database("recipient", _TABLES) as db:
        row = (call["_id"], call["recipientId"], call["message"])
        db.execute("INSERT INTO messages (call, recipient, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, recipient FROM messages WHERE call = ?"
        number, recipient = db.execute(query, (call["_id"],)).fetchone()
    return {"number": number, "recipientId": recipient}
