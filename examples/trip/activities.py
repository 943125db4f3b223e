"""Flights and hotels from two lists, bookings in a database."""

from __future__ import annotations

import csv
from typing import Final

from pydantic import BaseModel

import acts
from examples.effects import database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS bookings (call TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, cents INTEGER);
"""


class Flight(BaseModel):
    number: str
    cents: int


class Hotel(BaseModel):
    name: str
    cents: int
    pets: bool


@acts.tool(name="bookFlight", output_path="†state.flight", failures=["no_flight"])
def book_flight(destination: str, *, call: acts.Call) -> Flight:
    """Books the cheapest flight to a city."""
    flight = _cheapest(_in_city("flights.csv", destination), "no_flight", f"to {destination}")
    return Flight(number=flight["number"], cents=_book(call, "flight", flight["number"], flight))


@acts.tool(name="bookHotel", output_path="†state.hotel", failures=["no_hotel"])
def book_hotel(destination: str, *, call: acts.Call) -> Hotel:
    """Books the cheapest hotel of a city."""
    return _book_hotel(call, _in_city("hotels.csv", destination), f"in {destination}")


@acts.tool(name="findPetFriendlyHotel", output_path="†state.hotel", failures=["no_hotel"])
def find_pet_friendly_hotel(destination: str, *, call: acts.Call) -> Hotel:
    """Finds and books the cheapest hotel of a city that takes pets."""
    hotels = [row for row in _in_city("hotels.csv", destination) if row["pets"] == "yes"]
    return _book_hotel(call, hotels, f"in {destination} takes pets")


def _book_hotel(call: acts.Call, hotels: list[dict[str, str]], what: str) -> Hotel:
    hotel = _cheapest(hotels, "no_hotel", what)
    cents = _book(call, "hotel", hotel["name"], hotel)
    return Hotel(name=hotel["name"], cents=cents, pets=hotel["pets"] == "yes")


def _in_city(name: str, city: str) -> list[dict[str, str]]:
    with example_file("trip", name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["city"] == city]


def _cheapest(rows: list[dict[str, str]], code: str, what: str) -> dict[str, str]:
    if not rows:
        raise acts.Failure(code, f"{code.replace('_', ' ')} {what}")
    return min(rows, key=lambda row: int(row["cents"]))


def _book(call: acts.Call, kind: str, name: str, row: dict[str, str]) -> int:
    """Book under this Call's id; returns the price. A second attempt finds the booking."""
    with database("trip", _TABLES) as db:
        booking = (call.id, kind, name, int(row["cents"]))
        db.execute("INSERT INTO bookings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", booking)
        (cents,) = db.execute("SELECT cents FROM bookings WHERE call = ?", (call.id,)).fetchone()
    return int(cents)
