"""An outbox, and the tool that writes to it: the definition of the speaker only names it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, body TEXT NOT NULL
);
"""


class Delivery(BaseModel):
    number: int
    recipientId: str


@acts.tool(name="deliver", output_path="†state.receipt")
def deliver(
    recipient: Annotated[str, Field(alias="recipientId")],
    body: Annotated[str, Field(alias="messageBody")],
    *,
    call: acts.Call,
) -> Delivery:
    """Puts a message into the outbox."""
    with database("speaker", _TABLES) as db:
        row = (call.id, recipient, body)
        db.execute("INSERT INTO outbox (call, recipient, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, recipient FROM outbox WHERE call = ?"
        number, recipient = db.execute(query, (call.id,)).fetchone()
    return Delivery(number=number, recipientId=recipient)
