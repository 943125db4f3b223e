"""Asks a weather service over HTTP, which selects the branch; then plans an outing and writes an invitation."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, own_file, write_atomically
from examples.weather import server

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outings (call TEXT PRIMARY KEY, kind TEXT NOT NULL, city TEXT NOT NULL, people INTEGER);
"""
_REQUEST_SECONDS: Final = 5.0  # half of an attempt's timeout in the plan, so that the Activity reports the cause itself
_WARM_CELSIUS: Final = 28


@activity.defn(name="askWeather")
def ask_weather(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Returns a Message with either ``state.sunny`` or ``state.rainy``, which selects the branch.

    A service that is down may come back: ``weather_away`` is retried. An unknown city stays unknown:
    ``unknown_city`` is not.
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
        cities = ", ".join(answer["known"])
        text = f'no weather for "{call["city"]}"; known: {cities}'
        raise ApplicationError(text, type="unknown_city", non_retryable=True)
    if response.status != HTTPStatus.OK:
        raise ApplicationError(f"the weather service answers {response.status}", type="weather_away")
    return {"type": "state", "state": {"rainy" if answer["sky"] == "rain" else "sunny": answer}}


@activity.defn(name="planPicnic")
def plan_picnic(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Plans a picnic in the park; on a hot day with more to drink."""
    weather = call["weather"]
    with database("weather", _TABLES) as db:
        row = (call["_id"], "picnic", weather["city"], None)
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    bring = ["a blanket", "bread and cheese"] + ["two bottles of water"] * (weather["celsius"] >= _WARM_CELSIUS)
    return {"city": weather["city"], "what": "a picnic in the park", "bring": bring}


@activity.defn(name="bookMuseum")
def book_museum(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Books tickets for everyone, once: a second attempt finds the booking of this Call's id."""
    city = call["weather"]["city"]
    with database("weather", _TABLES) as db:
        row = (call["_id"], "museum", city, call["people"])
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    return {"city": city, "what": f"the museum, with {call['people']} tickets", "bring": ["an umbrella"]}


@activity.defn(name="writeInvitation")
def write_invitation(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes the invitation to the Call's own file."""
    outing = call["outing"]
    text = f"Come to {outing['city']} for {outing['what']}. Please bring {', '.join(outing['bring'])}.\n"
    return {"file": write_atomically(own_file("weather", "invitation", call), text), "text": text.strip()}
