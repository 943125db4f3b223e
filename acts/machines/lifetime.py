"""When a run continues as new: a short history costs less to replay, and a long one is terminated.

A run can continue as new at a *quiet* moment, when nothing of it is in flight. The server's limits
are 51,200 events and 50 MB, and 10,000 signals; it suggests a new run from 4,096 events on.

1. When a new run is due and everything in flight has just ended, starts are held back for an instant:
   a quiet moment that costs nothing.
2. Without one by ``DRAIN_EVENTS``, ``DRAIN_BYTES`` or ``DRAIN_SIGNALS``, starts are held until what is in
   flight has ended, but for ``DRAIN_SECONDS`` at most: one slow Call must not stop the others. The next try
   comes later.
3. From ``LAST_EVENTS``, ``LAST_BYTES`` or ``LAST_SIGNALS`` on, the drain has no limit.

Continue-as-new ends a cron: the new run has no cron schedule. So a run of a cron continues as new only from
the last of these limits on, when the server would end it, and the cron with it.

A state that does not fit one payload keeps the run where it is until its history has grown by a third.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# A replay of a fan-out takes about 0.2 ms of CPU per event, so 1.2 s; of 15,000 events 3 s, and of a chain of as many
# 6 to 10 s, near the server's limit of 10 s for a task. The price: a third of 15,000 costs a plan of 10,000 Calls 16 %
# more CPU of the worker, since its state is written down and read more often
DRAIN_EVENTS: Final = 6_000
DRAIN_BYTES: Final = 15_000_000
DRAIN_SECONDS: Final = 20.0
LAST_EVENTS: Final = 40_000
LAST_BYTES: Final = 40_000_000
# Half, three quarters and nine tenths of the 10,000 signals that the server lets one run receive
MANY_SIGNALS: Final = 5_000
DRAIN_SIGNALS: Final = 7_500
LAST_SIGNALS: Final = 9_000
DRAIN_TIMER: Final = "drain before continue-as-new"


@dataclass(frozen=True, slots=True)
class HistorySize:
    """What the server counted when the current workflow task began, and whether it suggests a new run.

    ``signals`` are those that the run has received.
    """

    events: int
    bytes: int
    is_new_run_suggested: bool
    signals: int = 0

    @property
    def is_near_the_limit(self) -> bool:
        """True when the server will soon terminate the run, or refuse it signals."""
        return self.events >= LAST_EVENTS or self.bytes >= LAST_BYTES or self.signals >= LAST_SIGNALS


@dataclass(slots=True)
class Lifetime:
    """The decisions about one run's end of life. The driver performs them. ``is_cron``: it has a cron schedule."""

    is_cron: bool = False
    _drain_after: int = field(default_factory=lambda: DRAIN_EVENTS)
    _drain_after_bytes: int = field(default_factory=lambda: DRAIN_BYTES)
    _drain_after_signals: int = field(default_factory=lambda: DRAIN_SIGNALS)
    _not_before: int = 0
    _is_draining: bool = False

    def is_due(self, history: HistorySize) -> bool:
        """True when the history is long enough for a new run."""
        if history.events < self._not_before:
            return False
        if self.is_cron:
            return history.is_near_the_limit
        is_long = history.events >= self._drain_after or history.signals >= MANY_SIGNALS
        return history.is_new_run_suggested or is_long

    def should_hold(self, history: HistorySize, in_flight: int, just_ended: int) -> bool:
        """True when all that was in flight has just ended: hold what would start next, and it is quiet."""
        return not self._is_draining and self.is_due(history) and in_flight <= just_ended

    def drain_seconds(self, history: HistorySize) -> float | None:
        """None: no drain begins now. Else hold all starts, for so long; 0 means until it is quiet."""
        long = history.events >= self._drain_after or history.bytes >= self._drain_after_bytes
        long = long or history.signals >= self._drain_after_signals
        if self._is_draining or not long or not self.is_due(history):
            return None
        self._is_draining = True
        self._drain_after = history.events + DRAIN_EVENTS
        self._drain_after_bytes = history.bytes + DRAIN_BYTES // 3
        self._drain_after_signals = history.signals + (LAST_SIGNALS - DRAIN_SIGNALS) // 3
        return 0.0 if history.is_near_the_limit else DRAIN_SECONDS

    def end_drain(self) -> None:
        """Starts are released: the time is over, or the run stays."""
        self._is_draining = False

    def stay(self, history: HistorySize) -> None:
        """The state does not fit one payload: go on here as long as the server lets us."""
        self._not_before = history.events + DRAIN_EVENTS // 3
        self._is_draining = False
