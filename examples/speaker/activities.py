"""An outbox, and the registered Tool that writes to it: the definition of the speaker only names it."""

from __future__ import annotations

from typing import Any, Final

from temporalio import activity

from examples.effects import Json, database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, body TEXT NOT NULL
);
"""

TOOLS: Final[dict[str, dict[str, Any]]] = {
    "deliver": {
        "type": "object",
        "description": "Puts a message into the outbox.",
        "properties": {
            "_activity": {"const": "deliver"},
            "_outputPath": {"const": "†state.receipt"},
            "_output": {
                "type": "object",
                "properties": {"number": {"type": "integer"}, "recipientId": {"type": "string"}},
                "required": ["number", "recipientId"],
            },
            "recipientId": {"type": "string"},
            "messageBody": {"type": "string"},
        },
        "required": ["recipientId", "messageBody"],
        "additionalProperties": False,
    }
}


@activity.defn(name="deliver")
def deliver(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Adds a row to the outbox; returns its number."""
    with database("speaker", _TABLES) as db:
        row = (call["_id"], call["recipientId"], call["messageBody"])
        db.execute("INSERT INTO outbox (call, recipient, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, recipient FROM outbox WHERE call = ?"
        number, recipient = db.execute(query, (call["_id"],)).fetchone()
    return {"number": number, "recipientId": recipient}
