"""Quotes and books a room, and welcomes its guest. Nothing here knows that the plan waits for input in between."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database, own_file, write_atomically

_CENTS_PER_NIGHT: Final = {"garden": 72_00, "attic": 58_00, "tower": 110_00}

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS bookings (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, guest TEXT NOT NULL, people INTEGER NOT NULL,
    room TEXT NOT NULL, nights INTEGER NOT NULL, cents INTEGER NOT NULL
);
"""
Nights = Annotated[int, Field(ge=1)]


class Quote(BaseModel):
    room: str
    nights: Nights
    cents: int = Field(ge=0)


class Guest(BaseModel):
    name: str = Field(min_length=1)
    people: int = Field(ge=1, le=4)


class Booking(BaseModel):
    number: int
    guest: str
    room: str
    nights: int


class Card(BaseModel):
    file: str


@acts.tool(name="quoteRoom", read_only=True, failures=["no_such_room"])
def quote_room(room: str, nights: Nights) -> Quote:
    """The price of a room."""
    if room not in _CENTS_PER_NIGHT:
        raise acts.Failure("no_such_room", f'no room "{room}"; there is: {", ".join(_CENTS_PER_NIGHT)}')
    return Quote(room=room, nights=nights, cents=nights * _CENTS_PER_NIGHT[room])


@acts.tool(name="bookRoom")
def book_room(quote: Quote, guest: Guest, *, call: acts.Call) -> Booking:
    """Books the room; the Call's id keeps a second attempt from booking it again."""
    row = (call.id, guest.name, guest.people, quote.room, quote.nights, quote.cents)
    with database("wait", _TABLES) as db:
        db.execute(
            "INSERT INTO bookings (call, guest, people, room, nights, cents) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            row,
        )
        (number,) = db.execute("SELECT number FROM bookings WHERE call = ?", (call.id,)).fetchone()
    return Booking(number=number, guest=guest.name, room=quote.room, nights=quote.nights)


@acts.tool(name="writeWelcome")
def write_welcome(booking: Booking, *, call: acts.Call) -> Card:
    """Writes a card for the room to the Call's own file."""
    nights = f"{booking.nights} night{'s' * (booking.nights != 1)}"
    text = f"Welcome, {booking.guest}!\nThe {booking.room} room is yours for {nights} (no. {booking.number}).\n"
    return Card(file=write_atomically(own_file("wait", "welcome", call), text))
