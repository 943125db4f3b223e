"""How long a model that gives no answer is waited for, and what is known of a question's requests so far.

Waiting is done by Temporal, not by the worker: the activity fails with the time of its next attempt. So a wait takes no
slot of a worker, survives any of them, and the Web UI shows it beside the attempt that failed. An attempt that fails or
is killed loses its memory, so all of the log travels in the details of the heartbeats, which Temporal keeps for the
next attempt: no usage is lost, and an outage is measured from its beginning.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from acts.activities.models.interface import BatchItem, ModelError, ModelResponse
from acts.language.config import Usage

# A provider without capacity; the same request may succeed later. Code: the reason in a word or two
OUTAGES: Final = {
    "modelRateLimit": "too many requests",
    "modelOverloaded": "overloaded",
    "modelUnavailable": "unavailable",
}
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
# A pause is longer by up to this part, so that those who wait do not come back at once; and by up to so many seconds
JITTER: Final = 0.25
LEAST_JITTER_SECONDS: Final = 0.05
# Details of heartbeats stay small
_MAX_NOTES: Final = 10


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


def format_seconds(seconds: float) -> str:
    """A duration for people: ``40 s``, ``5 min``, ``1.5 h``."""
    if seconds < 100:  # noqa: PLR2004 - seconds up to about two minutes
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 3_600 else f"{seconds / 3_600:.3g} h"  # noqa: PLR2004 - an hour


@dataclass
class RequestLog:
    """``failures`` say why the models before the present one failed.

    ``outage_since`` is the Unix time at which the present model first failed for want of capacity. ``planned`` counts
    the retries that this activity asked for, ``broken`` those after an answer that broke off. ``answers`` counts
    unusable answers, ``cap`` is the cap that follows a truncated answer, in tokens. ``batch`` is where the request
    waits, ``waiting`` is for people.
    """

    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    outage_since: float | None = None
    planned: int = 0
    broken: int = 0
    answers: int = 0
    cap: int | None = None
    batch: BatchItem | None = None
    waiting: str = ""
    is_reported: bool = False

    @classmethod
    def resume(cls, details: Sequence[Any]) -> RequestLog:
        """The log of the attempts before, as their last heartbeat has it; an empty one without a heartbeat."""
        try:
            return _LOG.validate_python(details[0])
        except (IndexError, ValidationError):
            return cls()

    def to_details(self) -> dict[str, Any]:
        """The details of a heartbeat, without what is empty."""
        details: dict[str, Any] = _LOG.dump_python(self, mode="json", exclude_defaults=True)
        return details

    def add(self, result: ModelResponse | ModelError) -> None:
        """Count a request whose usage is known: it costs also without a usable answer."""
        if (tokens := result.tokens) is None:
            return
        usage: dict[str, Any] = {"requests": 1, "cost": result.cost, **asdict(tokens)}
        if isinstance(result, ModelResponse):
            self.note(*result.notes)
            usage["schemaForms"] = {result.form: 1} if result.form not in ("", "strict") else {}
        self.usage.add(usage)

    def note(self, *texts: str) -> None:
        """Add remarks for people; each once."""
        self.notes = list(dict.fromkeys((*self.notes, *texts)))[:_MAX_NOTES]

    def end_outage(self) -> None:
        self.outage_since, self.broken, self.waiting = None, 0, ""

    def fail_over(self, model: str, reason: str) -> None:
        self.failures.append(f"{model}: {reason}")
        self.note(f"{model} was given up for another model: {reason}")
        self.batch = None
        self.end_outage()

    def plan_retry(self, error: ModelError, patience: float) -> str | None:
        """Set the pause before the next attempt (``retryAfter``), or return why there is no next attempt."""
        if not error.retryable:
            return error.message
        if error.code not in OUTAGES:
            self.broken += 1
            error.retryAfter = min(FIRST_SECONDS * 2.0 ** (self.broken - 1), LONGEST_SECONDS)
            return f"{error.message} ({self.broken} times in a row)" if self.broken >= MAX_BREAKS else None
        self.outage_since = self.outage_since or time.time()
        elapsed, wish = time.time() - self.outage_since, error.retryAfter
        error.retryAfter = next_pause(elapsed, wish, patience, random.random())  # noqa: S311 - jitter
        if error.retryAfter is not None:
            return None
        spent = format_seconds(elapsed + (wish or 0.0))
        return f"{error.message} (it would be waited for {spent}, and patience is {format_seconds(patience)})"


_LOG: Final = TypeAdapter(RequestLog)
