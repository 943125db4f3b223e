"""Requests to run as they are, and the Activities behind them (README.md says how)."""

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
)
