"""Quotes and books a room, and welcomes its guest. Nothing here knows that the plan waits for input in between."""

from __future__ import annotations

from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, own_file, write_atomically

_CENTS_PER_NIGHT: Final = {"garden": 72_00, "attic": 58_00, "tower": 110_00}

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS bookings (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, guest TEXT NOT NULL, people INTEGER NOT NULL,
    room TEXT NOT NULL, nights INTEGER NOT NULL, cents INTEGER NOT NULL
);
"""


@activity.defn(name="quoteRoom")
def quote_room(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Returns ``{room, nights, cents}``; an unknown room is ``no_such_room``."""
    room, nights = call["room"], call["nights"]
    if room not in _CENTS_PER_NIGHT:
        rooms = ", ".join(_CENTS_PER_NIGHT)
        raise ApplicationError(f'no room "{room}"; there is: {rooms}', type="no_such_room", non_retryable=True)
    return {"room": room, "nights": nights, "cents": nights * _CENTS_PER_NIGHT[room]}


@activity.defn(name="bookRoom")
def book_room(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Books the room; the Call's ``_id`` keeps a second attempt from booking it again."""
    guest, quote = call["guest"], call["quote"]
    row = (call["_id"], guest["name"], guest["people"], quote["room"], quote["nights"], quote["cents"])
    with database("wait", _TABLES) as db:
        db.execute(
            "INSERT INTO bookings (call, guest, people, room, nights, cents) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            row,
        )
        (number,) = db.execute("SELECT number FROM bookings WHERE call = ?", (call["_id"],)).fetchone()
    return {"number": number, "guest": guest["name"], "room": quote["room"], "nights": quote["nights"]}


@activity.defn(name="writeWelcome")
def write_welcome(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes a card for the room to the Call's own file."""
    booking = call["booking"]
    nights = f"{booking['nights']} night{'s' * (booking['nights'] != 1)}"
    text = (
        f"Welcome, {booking['guest']}!\nThe {booking['room']} room is yours for {nights} (no. {booking['number']}).\n"
    )
    return {"file": write_atomically(own_file("wait", "welcome", call), text)}
