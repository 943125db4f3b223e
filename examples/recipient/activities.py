"""Sends messages to recipients in the Call's scope, and to nobody else. A model says whom a message is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, recipient TEXT NOT NULL, text TEXT NOT NULL
);
"""
# Open: the author of the Call chooses from the two
_SCOPES: Final = {"_scopes": {"type": "array", "items": {"enum": ["state", "input"]}}}


class Welcome(BaseModel):
    recipientId: str
    message: str


class Sent(BaseModel):
    number: int
    recipientId: str


@acts.tool(name="addressWelcome", latent=True, meta=_SCOPES)
def address_welcome() -> Welcome:
    """Whom a welcome message is for, and what it says."""
    raise NotImplementedError


@acts.tool(name="sendMessage", meta=_SCOPES, failures={"not_in_scope": "the scopes do not show the recipient"})
def send_message(
    recipient: Annotated[str, Field(alias="recipientId")], message: str, *, call: acts.Call, context: list[Any]
) -> Sent:
    """Sends a message to a user."""
    in_scope = sorted(set(_ids(context)))
    if context and recipient not in in_scope:
        text = f"{recipient} is not in scope; there is: {', '.join(in_scope) or 'nobody'}"
        raise acts.Failure("not_in_scope", text)
    with database("recipient", _TABLES) as db:
        row = (call.id, recipient, message)
        db.execute("INSERT INTO messages (call, recipient, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, recipient FROM messages WHERE call = ?"
        number, recipient = db.execute(query, (call.id,)).fetchone()
    return Sent(number=number, recipientId=recipient)


def _ids(value: Any) -> Iterator[str]:
    """Every ``id`` in the data, at any depth."""
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        yield value["id"]
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _ids(child)
