"""Logs events. The user is not a parameter: it comes from the Call's scopes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database, scoped_value

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, event TEXT NOT NULL, user TEXT NOT NULL
);
"""


class Logged(BaseModel):
    """``fields`` are the names of everything in the scoped state."""

    number: int
    event: str
    userId: str
    fields: list[str]


# A Call chooses one of these scopes
_SCOPES: Final = {"type": "array", "items": {"enum": ["state", "†state.userId"]}}


@acts.tool(name="logEvent", failures={"no_user": "the scopes show no userId"}, meta={"_scopes": _SCOPES})
def log_event(
    event: Annotated[str, Field(alias="eventName", min_length=1)], *, call: acts.Call, context: list[Any]
) -> Logged:
    """Counts an event of the current user."""
    state = scoped_value(context, "state") or {}
    if "userId" not in state:
        raise acts.Failure("no_user", "the scopes show no userId")
    with database("login", _TABLES) as db:
        row = (call.id, event, state["userId"])
        db.execute("INSERT INTO events (call, event, user) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, event, user FROM events WHERE call = ?"
        number, event, user = db.execute(query, (call.id,)).fetchone()
    return Logged(number=number, event=event, userId=user, fields=sorted(state))
