"""How long a model that gives no answer is waited for, and when another one is asked instead. Pure: time comes in.

Waiting is done by Temporal, not by the worker: the activity fails with the time of its next attempt. So a wait takes no
slot of a worker, survives any of them, and the Web UI shows it beside the attempt that failed.
"""

from __future__ import annotations

from typing import Final

from activities.providers.interface import ModelError

# A provider without capacity; the same request may succeed later
OUTAGES: Final = ("modelRateLimit", "modelOverloaded", "modelUnavailable")
# Answers that broke off. Each attempt is paid for, so there are few
BREAKS: Final = ("modelTimeout", "modelCut")
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
# A pause is this part of the time that the model has failed already: an outage lasts at most so much longer for us
PART_OF_OUTAGE: Final = 1 / 8
# A pause is longer by up to this part, so that those who wait do not come back at once
JITTER: Final = 0.25
# … and by at least up to this many seconds
LEAST_JITTER_SECONDS: Final = 0.05
# A provider that keeps asking for no pause is believed so many times
TRUSTED_TRIES: Final = 5


def next_pause(elapsed: float, tries: int, retry_after: float | None, patience: float, random: float) -> float | None:
    """The seconds until the next attempt; None: patience is spent.

    ``elapsed`` are the seconds since the first of ``tries`` failures. ``retry_after`` is the provider's word, and
    ``random`` is between 0 and 1. A provider that asks for more than is left is not waited for.
    """
    left = patience - elapsed
    if left <= 0 or (retry_after is not None and retry_after > left):
        return None
    own = min(max(elapsed * PART_OF_OUTAGE, FIRST_SECONDS), LONGEST_SECONDS)
    pause = own if retry_after is None else retry_after
    if retry_after is not None and tries > TRUSTED_TRIES:
        pause = max(retry_after, own)
    pause += random * max(pause * JITTER, LEAST_JITTER_SECONDS)
    return min(pause, left)


def break_pause(breaks: int) -> float:
    """The seconds until the next attempt after so many answers in a row that broke off."""
    return min(FIRST_SECONDS * 2.0 ** (breaks - 1), LONGEST_SECONDS)


def reason_of(error: ModelError) -> str:
    """Why a model is waited for, in a word or two."""
    words = {
        "modelRateLimit": "too many requests", "modelOverloaded": "overloaded", "modelUnavailable": "unavailable",
        "modelTimeout": "no answer in time", "modelCut": "the answer broke off",
    }  # fmt: skip
    return words.get(error.code, error.code)


def format_seconds(seconds: float) -> str:
    """A duration for people: ``40 s``, ``5 min``, ``1.5 h``."""
    if seconds < 100:  # noqa: PLR2004 - seconds up to about two minutes
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 3_600 else f"{seconds / 3_600:.3g} h"  # noqa: PLR2004 - an hour
