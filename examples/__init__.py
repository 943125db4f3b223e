"""Requests to run as they are, and the Activities behind them (README.md says how)."""

from pathlib import Path
from typing import Final

# What a worker loads to run every example: ACTS_ACTIVITIES takes these, joined with commas.
MODULES: Final = (
    "examples.linear.activities",
    "examples.weather.activities",
    "examples.payment.activities",
    "examples.fanout.activities",
    "examples.wait.activities",
    "examples.foreign.activities",
    "examples.refund.activities",
    "examples.trip.activities",
    "examples.translation.activities",
    "examples.research.activities",
    "examples.recipient.activities",
    "examples.login.activities",
    "examples.speaker.activities",
    "examples.music.activities",
    "examples.loan.activities",
    "examples.moderation.activities",
)

# And where the definitions of its delegates are: ACTS_DELEGATES takes these, joined like PATH. A name stands for
# one definition, whichever folder it is in, so no two examples may use the same.
DELEGATES: Final = tuple(
    str(Path(__file__).parent / name / "delegates") for name in ("summary", "greetings", "speaker", "music", "loan")
)
