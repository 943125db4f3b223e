"""Ask the weather over HTTP; its answer chooses the way. Then an outing, and an invitation to it."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, own_file, write_whole
from examples.weather import server

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outings (call TEXT PRIMARY KEY, kind TEXT NOT NULL, city TEXT NOT NULL, people INTEGER);
"""
_REQUEST_SECONDS: Final = 5.0  # half of an attempt's timeout in the plan, so that the reason is heard of
_WARM_CELSIUS: Final = 28


@activity.defn(name="askWeather")
def ask_weather(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """A Message with either ``state.sunny`` or ``state.rainy``: the one it holds is the way taken.

    A service that is away may come back: that failure is retried. A city it does not know stays
    unknown: ``unknown_city`` is not.
    """
    host, port = server.address()
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=_REQUEST_SECONDS)) as connection:
            connection.request("GET", "/weather?" + urlencode({"city": call["city"]}))
            response = connection.getresponse()
            answer: Any = json.load(response)
    except (OSError, http.client.HTTPException) as error:
        raise ApplicationError(f"the weather service does not answer: {error}", type="weather_away") from error
    if response.status == HTTPStatus.NOT_FOUND:
        known = ", ".join(answer["known"])
        text = f'no weather for "{call["city"]}"; known: {known}'
        raise ApplicationError(text, type="unknown_city", non_retryable=True)
    if response.status != HTTPStatus.OK:
        raise ApplicationError(f"the weather service answers {response.status}", type="weather_away")
    return {"type": "state", "state": {"rainy" if answer["sky"] == "rain" else "sunny": answer}}


@activity.defn(name="planPicnic")
def plan_picnic(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """A picnic in the park; on a hot day with something more to drink."""
    weather = call["weather"]
    with database("weather", _TABLES) as db:
        row = (call["_id"], "picnic", weather["city"], None)
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    bring = ["a blanket", "bread and cheese"] + ["two bottles of water"] * (weather["celsius"] >= _WARM_CELSIUS)
    return {"city": weather["city"], "what": "a picnic in the park", "bring": bring}


@activity.defn(name="bookMuseum")
def book_museum(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Tickets for everyone, booked once: another attempt finds the booking of this Call's id."""
    city = call["weather"]["city"]
    with database("weather", _TABLES) as db:
        row = (call["_id"], "museum", city, call["people"])
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    return {"city": city, "what": f"the museum, with {call['people']} tickets", "bring": ["an umbrella"]}


@activity.defn(name="writeInvitation")
def write_invitation(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """The invitation, in a file of this Call's own."""
    outing = call["outing"]
    text = f"Come to {outing['city']} for {outing['what']}. Please bring {', '.join(outing['bring'])}.\n"
    return {"file": write_whole(own_file("weather", "invitation", call), text), "text": text.strip()}
