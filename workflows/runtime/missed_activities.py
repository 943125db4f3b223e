"""Activities that a worker took but does not have: another worker of the queue may have them.

A worker that lacks a secret (``activities/secret_interceptor.py``) or the key of the payloads counts as one, too.

While workers of several versions poll one queue, as in every rolling deploy, any of them may take any Call. Such a
*miss* is no attempt of the Tool: the Activity is scheduled again, with the attempts that are left, until a worker that
has it takes it. Where none comes, the Call fails with ``NotServed`` and names the workers that took it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from acts.language.errors import CallError, truncate
from acts.language.wire import NOT_SERVED, UNKNOWN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.language.config import Options

# How long a Call waits for a worker that has its Activity, unless ``queueTimeout`` says otherwise: while the queue is
# polled by a version that has not taken it yet, as long as a rolling deploy takes …
DEPLOY_SECONDS: Final = 300.0
# … and where all versions that poll have (or the server cannot tell), as long as a worker takes to start
START_SECONDS: Final = 10.0
# Between two tries. One costs eleven events; there are 10 in the first 8 s, so that of two equally many versions the
# right one is missed in a thousandth of the cases, and 70 in DEPLOY_SECONDS
FIRST_PAUSE_SECONDS: Final = 0.1
PAUSE_FACTOR: Final = 1.5
LONGEST_PAUSE_SECONDS: Final = 5.0
# What the SDKs for Python and TypeScript, Go, and Java say of an activity that they do not have
_NOT_REGISTERED: Final = re.compile(
    r"is not registered on this worker|unable to find activityType|is not registered with a worker", re.IGNORECASE
)
_HINT: Final = "start a worker that has it and reset the run to before this call, or use a tool that the workers have"

# The worker that walks the plan would take the next attempt itself, eagerly: it does not have the Activity
must_go_through_queue: ContextVar[bool] = ContextVar("must_go_through_queue", default=False)


@dataclass(frozen=True, slots=True)
class Miss:
    """A worker did not have the Activity. ``attempt`` numbers the attempt, from 1; those before it were real.

    ``polling`` are the versions of the workers on the queue; empty: unknown.
    """

    reason: str
    attempt: int
    version: str = ""
    polling: tuple[str, ...] = ()


def miss_of(error: BaseException | None, options: Options) -> Miss | None:
    """The miss that a failure of an activity is, or None."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error  # a local one has no such envelope
    if not isinstance(cause, ApplicationError):
        return None
    if cause.type == NOT_SERVED and len(cause.details) == 1 and isinstance(cause.details[0], dict):
        detail = cause.details[0].get("miss")
        if isinstance(detail, dict):
            return Miss(cause.message, detail["attempt"], detail["version"], tuple(detail["polling"]))
    origin = cause.__cause__
    if isinstance(origin, ApplicationError) and origin.type == UNKNOWN_KEY:  # its payloads could not be decrypted
        return Miss(origin.message, options.retry.maxAttempts, polling=("workers with the key",))
    if _NOT_REGISTERED.search(cause.message):  # it had all its attempts, and what they came to is not known
        return Miss(cause.message, options.retry.maxAttempts)
    return None


@dataclass
class MissedActivity:
    """One Activity that was missed. ``start`` schedules it with so many attempts; ``show`` takes the note, or None."""

    start: Callable[[int], workflow.ActivityHandle[Any]]
    options: Options
    show: Callable[[str | None], None]
    _reasons: dict[str, str] = field(default_factory=dict)

    async def run(self, miss: Miss) -> Any:
        """The Activity's result, from a worker that has it.

        Raises:
            ActivityError: it failed there. CallError: no worker has it.
        """
        began, left, pause = workflow.now(), self.options.retry.maxAttempts, 0.0
        try:
            while True:
                left = max(1, left - miss.attempt + 1)
                self._reasons[miss.version] = miss.reason
                reasons = truncate("; ".join(self._reasons.values()), 1_000)
                if (workflow.now() - began).total_seconds() >= self._limit(miss):
                    raise CallError(NOT_SERVED, f"no worker that has its activity took it: {reasons}; {_HINT}")
                if pause:
                    self.show(f"workers that do not have its activity took a call, and it waits for others: {reasons}")
                    await workflow.sleep(timedelta(seconds=pause), summary="wait for a worker that has the activity")
                pause = min(PAUSE_FACTOR * pause, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
                try:
                    return await self._start(left)
                except ActivityError as error:
                    again = miss_of(error, self.options)
                    if again is None:
                        raise
                    miss = again
        finally:
            self.show(None)

    def _start(self, attempts: int) -> workflow.ActivityHandle[Any]:
        token = must_go_through_queue.set(True)
        try:
            return self.start(attempts)
        finally:
            must_go_through_queue.reset(token)

    def _limit(self, miss: Miss) -> float:
        if self.options.queueTimeout is not None:
            return self.options.queueTimeout
        return START_SECONDS if self._reasons.keys() >= set(miss.polling) else DEPLOY_SECONDS
