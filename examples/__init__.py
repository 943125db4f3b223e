"""Requests that run unchanged, and their Activities (see README.md)."""

from pathlib import Path
from typing import Final

# A worker that runs every example loads these: the value of ACTS_ACTIVITIES, joined with commas.
MODULES: Final = (
    "examples.weather.activities",
    "examples.payment.activities",
    "examples.fanout.activities",
    "examples.refund.activities",
    "examples.trip.activities",
    "examples.translation.activities",
    "examples.research.activities",
    "examples.recipient.activities",
    "examples.speaker.activities",
    "examples.music.activities",
    "examples.loan.activities",
    "examples.moderation.activities",
    "examples.patterns.activities",
)

# The folders of the delegates' definitions: the value of ACTS_DELEGATES, joined like PATH. Names are unique across
# folders, so no two examples may use the same name.
DELEGATES: Final = tuple(
    str(Path(__file__).parent / name / "delegates") for name in ("greetings", "speaker", "music", "loan")
)
