"""Logs events. The user is not a parameter: it comes from the Call's scopes."""

from __future__ import annotations

from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, scoped_value

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, event TEXT NOT NULL, user TEXT NOT NULL
);
"""


@activity.defn(name="logEvent")
def log_event(call: Json, _tool: Json, context: list[Json]) -> Json:
    """Adds a row: the event from the Call, the user from the scoped state (``no_user`` without one).

    ``fields`` of the result are the names of everything in the scoped state.
    """
    state = scoped_value(context, "state") or {}
    if "userId" not in state:
        raise ApplicationError("the scopes show no userId", type="no_user", non_retryable=True)
    with database("login", _TABLES) as db:
        row = (call["_id"], call["eventName"], state["userId"])
        db.execute("INSERT INTO events (call, event, user) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        query = "SELECT number, event, user FROM events WHERE call = ?"
        number, event, user = db.execute(query, (call["_id"],)).fetchone()
    return {"number": number, "event": event, "userId": user, "fields": sorted(state)}
