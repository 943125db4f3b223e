"""Flights and hotels from two lists, bookings in a database. The Tools are registered here (``TOOLS``)."""

from __future__ import annotations

import csv
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS bookings (call TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, cents INTEGER);
"""


def _tool(description: str, activity_name: str, path: str, **output: Json) -> dict[str, Any]:
    """The schema of a Tool with a destination and a fixed output path."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "_activity": {"const": activity_name},
            "_outputPath": {"const": path},
            "_output": {"type": "object", "properties": output, "required": list(output)},
            "destination": {"type": "string"},
        },
        "required": ["destination"],
        "additionalProperties": False,
    }


_TEXT: Final = {"type": "string"}
_CENTS: Final = {"type": "integer"}
_PETS: Final = {"type": "boolean"}

TOOLS: Final[dict[str, dict[str, Any]]] = {
    "bookFlight": _tool(
        "Books the cheapest flight to a city.", "bookFlight", "†state.flight", number=_TEXT, cents=_CENTS
    ),
    "bookHotel": _tool(
        "Books the cheapest hotel of a city.", "bookHotel", "†state.hotel", name=_TEXT, cents=_CENTS, pets=_PETS
    ),
    "findPetFriendlyHotel": _tool(
        "Finds and books the cheapest hotel of a city that takes pets.", "findPetFriendlyHotel", "†state.hotel",
        name=_TEXT, cents=_CENTS, pets=_PETS,
    ),
}  # fmt: skip


@activity.defn(name="bookFlight")
def book_flight(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Books the cheapest flight, once."""
    flight = _cheapest(_in_city("flights.csv", call["destination"]), "no_flight", f"to {call['destination']}")
    return {"number": flight["number"], "cents": _book(call, "flight", flight["number"], flight)}


@activity.defn(name="bookHotel")
def book_hotel(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Books the cheapest hotel, once."""
    return _book_hotel(call, _in_city("hotels.csv", call["destination"]), f"in {call['destination']}")


@activity.defn(name="findPetFriendlyHotel")
def find_pet_friendly_hotel(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Books the cheapest hotel that takes pets, once."""
    hotels = [row for row in _in_city("hotels.csv", call["destination"]) if row["pets"] == "yes"]
    return _book_hotel(call, hotels, f"in {call['destination']} takes pets")


def _book_hotel(call: Json, hotels: list[dict[str, str]], what: str) -> Json:
    hotel = _cheapest(hotels, "no_hotel", what)
    return {
        "name": hotel["name"], "cents": _book(call, "hotel", hotel["name"], hotel), "pets": hotel["pets"] == "yes"
    }  # fmt: skip


def _in_city(name: str, city: str) -> list[dict[str, str]]:
    with example_file("trip", name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["city"] == city]


def _cheapest(rows: list[dict[str, str]], code: str, what: str) -> dict[str, str]:
    if not rows:
        raise ApplicationError(f"{code.replace('_', ' ')} {what}", type=code, non_retryable=True)
    return min(rows, key=lambda row: int(row["cents"]))


def _book(call: Json, kind: str, name: str, row: dict[str, str]) -> int:
    """Book under this Call's id; returns the price. A second attempt finds the booking."""
    with database("trip", _TABLES) as db:
        booking = (call["_id"], kind, name, int(row["cents"]))
        db.execute("INSERT INTO bookings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", booking)
        (cents,) = db.execute("SELECT cents FROM bookings WHERE call = ?", (call["_id"],)).fetchone()
    return int(cents)
