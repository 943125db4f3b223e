"""How long a model that gives no answer is waited for, and when another one is asked instead.

Waiting is done by Temporal, not by the worker: the activity fails with the time of its next attempt. So a wait takes no
slot of a worker, survives any of them, and the Web UI shows it beside the attempt that failed. A provider that says how
long to wait is sent nothing by this worker until then.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from acts.activities.models.interface import ModelError

# A provider without capacity; the same request may succeed later. Code: the reason in a word or two
OUTAGES: Final = {
    "modelRateLimit": "too many requests", "modelOverloaded": "overloaded", "modelUnavailable": "unavailable"
}  # fmt: skip
# Answers that broke off. Each attempt is paid for, so there are few
BREAKS: Final = {"modelTimeout": "no answer in time", "modelCut": "the answer broke off"}
MAX_BREAKS: Final = 6
# Another model may do better: this one refuses, is gone, or may not be used
FAIL_OVER: Final = (
    "modelRefused", "modelUnknown", "modelForbidden", "modelUnauthorized", "modelNoKey", "modelOutOfMoney",
    "modelRequestTooLarge", "modelContextFull", "noPrice", *OUTAGES, *BREAKS,
)  # fmt: skip

# Seconds before the second attempt, where the provider names none
FIRST_SECONDS: Final = 2.0
# The longest pause that is not the provider's word: after an outage of hours, work begins again within a minute
LONGEST_SECONDS: Final = 60.0
# A pause is at least this part of the time that the model has failed already: an outage lasts so much longer for us
PART_OF_OUTAGE: Final = 1 / 8
# A pause is longer by up to this part, so that those who wait do not come back at once
JITTER: Final = 0.25
# … and by at least up to this many seconds
LEAST_JITTER_SECONDS: Final = 0.05

# By model: the end of the pause that its provider asked for, and the error that said so
_pauses: Final[dict[str, tuple[float, ModelError]]] = {}


def next_pause(elapsed: float, retry_after: float | None, patience: float, random: float) -> float | None:
    """The seconds until the next attempt; None: patience is spent.

    ``elapsed`` are the seconds since the first failure. ``retry_after`` is the provider's word, and ``random`` is
    between 0 and 1. A provider that asks for more than is left is not waited for.
    """
    left = patience - elapsed
    if left <= 0 or (retry_after or 0.0) > left:
        return None
    pause = max(FIRST_SECONDS if retry_after is None else retry_after, min(elapsed * PART_OF_OUTAGE, LONGEST_SECONDS))
    return min(pause + random * max(pause * JITTER, LEAST_JITTER_SECONDS), left)


def break_pause(breaks: int) -> float:
    """The seconds until the next attempt after so many answers in a row that broke off."""
    return min(FIRST_SECONDS * 2.0 ** (breaks - 1), LONGEST_SECONDS)


def note_pause(model: str, error: ModelError) -> None:
    """Remember the pause that a provider asks for."""
    if error.code in OUTAGES and error.retryable and error.retryAfter:
        _pauses[model] = time.monotonic() + error.retryAfter, error


def require_open(model: str) -> None:
    """Raise the ModelError of a provider whose pause is not over; nothing is sent."""
    until, error = _pauses.get(model, (0.0, None))
    left = until - time.monotonic()
    if error is not None and left > 0:
        raise replace(error, retryAfter=left, tokens=None, cost=None, text="", details={})


def format_seconds(seconds: float) -> str:
    """A duration for people: ``40 s``, ``5 min``, ``1.5 h``."""
    if seconds < 100:  # noqa: PLR2004 - seconds up to about two minutes
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 3_600 else f"{seconds / 3_600:.3g} h"  # noqa: PLR2004 - an hour
