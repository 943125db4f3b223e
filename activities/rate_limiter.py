"""How many requests a worker has in flight at one model: as many as the provider takes, learned from its refusals.

Theory of operation. As TCP does with its window: a 429 halves the number, once for all requests that were in flight at
that time, and each round of answers adds one. A failure that says how long to wait closes the model until then: nothing
is sent that would be refused. One limiter for each model, event loop and process.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from activities.patience import OUTAGES
from activities.providers.interface import ModelError
from telemetry import metrics

# Before the first refusal: more than the requests that one worker has slots for
START: Final = 1_000.0
# A request that waits longer than this for its turn is given back to Temporal: it holds a slot of the worker
MAX_QUEUE_SECONDS: Final = 300.0
# After this many seconds without a request, what was learned about an outage is old
_STALE_SECONDS: Final = 600.0
_RATE_LIMIT: Final = "modelRateLimit"


class NoTurn(Exception):
    """The request was not sent: others are in flight, and the provider takes no more."""


@dataclass
class RateLimiter:
    """Requests to one model. ``limit`` is the number that may be in flight."""

    limit: float = START
    model: str = ""
    in_flight: int = 0
    _closed_until: float = 0.0
    _closed_by: ModelError | None = None
    _lowered_at: float = 0.0
    _down_since: float | None = None
    _failed_at: float = 0.0
    _queue: deque[asyncio.Future[None]] = field(default_factory=deque)

    async def acquire(self) -> float:
        """Wait for a turn; returns its time, which ``release`` asks for.

        Raises:
            ModelError: the provider has asked for a pause, which is not over; nothing was sent.
            NoTurn: none came in time.
        """
        self._require_open()
        if self._queue or self.in_flight >= max(1, int(self.limit)):
            turn = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                async with asyncio.timeout(MAX_QUEUE_SECONDS):
                    await turn
            except TimeoutError:
                raise NoTurn from None
            finally:
                self._leave_queue(turn)
            self._require_open()
        self.in_flight += 1
        self._show()
        return time.monotonic()

    def _leave_queue(self, turn: asyncio.Future[None]) -> None:
        """Give back the place in the queue, or the turn; the request that goes on takes it at once."""
        if turn in self._queue:
            self._queue.remove(turn)
        elif not turn.cancelled():
            self.in_flight -= 1

    def _require_open(self) -> None:
        left = self._closed_until - time.monotonic()
        if left > 0 and self._closed_by is not None:
            old = self._closed_by
            raise ModelError(old.code, old.message, retryable=True, retryAfter=left, details={"unsent": True})

    def release(self, began: float, error: ModelError | None, *, is_answered: bool = True) -> None:
        """A request has ended: answered, with an error, or cancelled."""
        self.in_flight -= 1
        now = time.monotonic()
        if error is None and is_answered:
            self._down_since = None
            self.limit = min(self.limit + 1.0 / self.limit, START)
        elif error is not None and error.code in OUTAGES:
            is_old = self._down_since is None or now - self._failed_at > _STALE_SECONDS
            self._down_since, self._failed_at = now if is_old else self._down_since, now
            if error.code == _RATE_LIMIT and began >= self._lowered_at:
                self.limit, self._lowered_at = max(1.0, (self.in_flight + 1) / 2), now
            if error.retryAfter and error.retryable:
                self._closed_until = max(self._closed_until, now + error.retryAfter)
                self._closed_by = error
        self._admit()
        self._show()

    def _show(self) -> None:
        if (meters := metrics.meters()) is not None:
            meters.set(metrics.MODEL_LIMIT, max(1, int(self.limit)), model=self.model)
            meters.set(metrics.MODEL_IN_FLIGHT, self.in_flight, model=self.model)

    def _admit(self) -> None:
        """Wake as many as have room now; their turns count from here on."""
        while self._queue and self.in_flight < max(1, int(self.limit)):
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self.in_flight += 1

    @property
    def seconds_down(self) -> float:
        """How long the model has only failed, as far as this worker knows; 0 where the last failure is long ago."""
        now = time.monotonic()
        if self._down_since is None or now - self._failed_at > _STALE_SECONDS:
            return 0.0
        return now - self._down_since


_LIMITERS: Final[weakref.WeakKeyDictionary[Any, dict[str, RateLimiter]]] = weakref.WeakKeyDictionary()


def limiter_of(model: str) -> RateLimiter:
    """The limiter of ``provider:name`` in the running event loop."""
    limiters = _LIMITERS.setdefault(asyncio.get_running_loop(), {})
    return limiters.setdefault(model, RateLimiter(model=model))
