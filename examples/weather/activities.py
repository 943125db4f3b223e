"""Asks a weather service over HTTP, which selects the branch; then plans an outing and writes an invitation."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, Field

import acts
from examples.effects import database, own_file, write_atomically
from examples.weather import server

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outings (call TEXT PRIMARY KEY, kind TEXT NOT NULL, city TEXT NOT NULL, people INTEGER);
"""
_REQUEST_SECONDS: Final = 5.0  # half of an attempt's timeout, so that the tool reports the cause itself
_WARM_CELSIUS: Final = 28


class Weather(BaseModel):
    city: str
    sky: Literal["clear", "rain"]
    celsius: float


class Outing(BaseModel):
    city: str
    what: str
    bring: list[str]


class Invitation(BaseModel):
    file: str
    text: str


# The service may be slow or down: five attempts of ten seconds each. An unknown city stays unknown
@acts.tool(
    name="askWeather", read_only=True, timeout="10s", retry={"maxAttempts": 5, "initialInterval": "200ms"},
    output=Weather, failures={"weather_away": "the service is down", "unknown_city": "it has no weather for it"},
)  # fmt: skip
def ask_weather(city: str) -> dict[str, Any]:
    """Asks for the weather of a city."""
    host, port = server.address()
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=_REQUEST_SECONDS)) as connection:
            connection.request("GET", "/weather?" + urlencode({"city": city}))
            response = connection.getresponse()
            answer: Any = json.load(response)
    except (OSError, http.client.HTTPException) as error:
        raise acts.Failure("weather_away", f"the weather service does not answer: {error}", retry=True) from error
    if response.status == HTTPStatus.NOT_FOUND:
        raise acts.Failure("unknown_city", f'no weather for "{city}"; known: {", ".join(answer["known"])}')
    if response.status != HTTPStatus.OK:
        raise acts.Failure("weather_away", f"the weather service answers {response.status}", retry=True)
    # A Message that holds one of two outcomes selects the branch
    return {"type": "state", "state": {"rainy" if answer["sky"] == "rain" else "sunny": answer}}


@acts.tool(name="planPicnic")
def plan_picnic(weather: Weather, *, call: acts.Call) -> Outing:
    """Plans a picnic in the park; on a hot day with more to drink."""
    with database("weather", _TABLES) as db:
        row = (call.id, "picnic", weather.city, None)
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    bring = ["a blanket", "bread and cheese"] + ["two bottles of water"] * (weather.celsius >= _WARM_CELSIUS)
    return Outing(city=weather.city, what="a picnic in the park", bring=bring)


@acts.tool(name="bookMuseum")
def book_museum(weather: Weather, people: Annotated[int, Field(ge=1)], *, call: acts.Call) -> Outing:
    """Books tickets for everyone, once: a second attempt finds the booking of this Call's id."""
    with database("weather", _TABLES) as db:
        row = (call.id, "museum", weather.city, people)
        db.execute("INSERT INTO outings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
    return Outing(city=weather.city, what=f"the museum, with {people} tickets", bring=["an umbrella"])


@acts.tool(name="writeInvitation")
def write_invitation(outing: Outing, *, call: acts.Call) -> Invitation:
    """Writes the invitation to the Call's own file."""
    text = f"Come to {outing.city} for {outing.what}. Please bring {', '.join(outing.bring)}.\n"
    return Invitation(file=write_atomically(own_file("weather", "invitation", call), text), text=text.strip())
