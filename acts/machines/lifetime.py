"""When a run continues as new, what its history still has room for, and when it must end.

A run can continue as new at a *quiet* moment, when nothing of it is in flight. The server terminates a run
above 51,200 events or 50 MiB, without a result, and takes 10,000 signals for it; it suggests a new run from
4,096 events or 4 MB on.

1. When a new run is due and everything in flight has just ended, starts are held back for an instant:
   a quiet moment that costs nothing.
2. Without one by ``DRAIN_EVENTS``, ``DRAIN_BYTES`` or ``DRAIN_SIGNALS``, starts are held until what is in
   flight has ended, but for ``DRAIN_SECONDS`` at most: one slow Call must not stop the others. The next try
   comes when the history has grown by as much again.
3. Near the limits (``LAST_…``), and for a start that would take the history there with the results that are
   expected of what is in flight, the run drains without a limit, and the next run makes the start.

Continue-as-new ends a cron: the new run has no cron schedule. So a run of a cron continues as new only near the
limits, when the server would end it, and the cron with it.

A state that does not fit one payload keeps the run where it is. It may then use its history up to
``END_EVENTS`` and ``END_BYTES``, tries again when that has grown by a part, and at last ends with what it has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

# A replay of a fan-out takes about 0.2 ms of CPU per event, so 1.2 s; of 15,000 events 3 s, and of a chain of as many
# 6 to 10 s, near the server's limit of 10 s for a task. The price: a third of 15,000 costs a plan of 10,000 Calls 16 %
# more CPU of the worker, since its state is written down and read more often
DRAIN_EVENTS: Final = 6_000
# Bytes cost a replay little beside events, while a batch that has to write down and read 15 MB of results in the middle
# answers nobody for seconds
DRAIN_BYTES: Final = 30_000_000
# The server lets one run receive 10,000
DRAIN_SIGNALS: Final = 6_000
DRAIN_SECONDS: Final = 20.0
LAST_EVENTS: Final = 40_000
LAST_BYTES: Final = 40_000_000
LAST_SIGNALS: Final = 9_000
# Below the server's limits by what may still come: the result of the run (1.5 MiB), two payloads of at most
# 2 MiB that are on their way, and 2,000 events of signals and of updates
END_EVENTS: Final = 49_000
END_BYTES: Final = 46_000_000
# A run whose state is too large tries again after 1,000 events or 5 MB: this part of the limits of a drain
_RETRY_SHARE: Final = 1 / 6
# Scheduled, started and completed, and the three events of a workflow task that nothing else shares
CALL_EVENTS: Final = 6
DRAIN_TIMER: Final = "drain before continue-as-new"


@dataclass(frozen=True, slots=True)
class HistorySize:
    """What the server counted when the current workflow task began, and whether it suggests a new run."""

    events: int
    bytes: int
    is_new_run_suggested: bool
    signals: int = 0  # that the run has received

    @property
    def load(self) -> float:
        return max(self.events / DRAIN_EVENTS, self.bytes / DRAIN_BYTES, self.signals / DRAIN_SIGNALS)

    @property
    def is_near_the_limit(self) -> bool:
        return self.events >= LAST_EVENTS or self.bytes >= LAST_BYTES or self.signals >= LAST_SIGNALS

    def full_text(self) -> str:
        return (
            f"the history of this run is full ({self.bytes:,} bytes in {self.events:,} events), and what it has is "
            "too large to be carried into a new run: set ACTS_STORAGE, or keep large data outside and pass references "
            "to it"
        )


@dataclass(slots=True)
class Lifetime:
    """The decisions about one run's end of life. The driver performs them. ``is_cron``: it has a cron schedule."""

    is_cron: bool = False
    _drain_from: float = 1.0
    _not_before: float = 0.0
    _is_draining: bool = False
    _is_full: bool = False
    _is_staying: bool = False

    def is_due(self, history: HistorySize) -> bool:
        if self._is_full or self._is_draining:
            return True
        load = history.load
        if load < self._not_before:
            return False
        return history.is_near_the_limit or (not self.is_cron and (history.is_new_run_suggested or load >= 1))

    def should_hold(self, history: HistorySize, in_flight: int, just_ended: int) -> bool:
        """True when all that was in flight has just ended: hold what would start next, and it is quiet."""
        return not self._is_draining and self.is_due(history) and in_flight <= just_ended

    def drain_seconds(self, history: HistorySize) -> float | None:
        """None: no drain begins now. Else hold all starts, for so long; 0 means until it is quiet."""
        is_last = self._is_full or history.is_near_the_limit
        if self._is_draining or not self.is_due(history) or not (is_last or history.load >= self._drain_from):
            return None
        self._is_draining = True
        self._drain_from = history.load + 1
        return 0.0 if is_last else DRAIN_SECONDS

    def end_drain(self) -> None:
        self._is_draining = False

    def has_room(self, history: HistorySize, new_bytes: int, in_flight: int) -> bool:
        """False when the history has no room for a start: the run is full, and the next one makes it.

        ``new_bytes`` is what the history grows by: what this task has sent, the start, and the results that are
        expected of it and of the ``in_flight`` others.
        """
        events, bytes_ = (END_EVENTS, END_BYTES) if self._is_staying else (LAST_EVENTS, LAST_BYTES)
        new_events = CALL_EVENTS * (in_flight + 1)
        self._is_full = history.events + new_events > events or history.bytes + new_bytes > bytes_
        return not self._is_full

    def stay(self, history: HistorySize) -> bool:
        """The state does not fit one payload: stay in this run. False when it has no room for that either."""
        if self._is_full and self._is_staying:
            return False
        self._not_before = history.load + _RETRY_SHARE
        self._is_staying, self._is_draining, self._is_full = True, False, False
        return True

    def must_end(self, history: HistorySize) -> bool:
        return history.events >= END_EVENTS or history.bytes >= END_BYTES


# Of a Call whose Tool has returned nothing yet: 2,000 Calls in flight stay below LAST_BYTES with it
UNSEEN_RESULT_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class ExpectedResults:
    """The bytes that what is in flight may still add to the history, learnt from what came back before.

    A *source* is what returns results alike: a Tool, or a type of child.
    """

    _in_flight: Counter[str] = field(default_factory=Counter)
    _past: dict[str, tuple[int, int]] = field(default_factory=dict)  # by source: results, and their bytes

    def of(self, source: str) -> int:
        """The bytes of a result of this source: twice the mean of those so far."""
        count, total = self._past.get(source, (2, UNSEEN_RESULT_BYTES))
        return 2 * total // count

    @property
    def total(self) -> int:
        return sum(count * self.of(source) for source, count in self._in_flight.items())

    @property
    def in_flight(self) -> int:
        return self._in_flight.total()

    def started(self, source: str) -> None:
        self._in_flight[source] += 1

    def ended(self, source: str, size: int | None) -> None:
        """One has ended with a result of so many bytes; None: without one."""
        self._in_flight[source] -= 1
        if size is not None:
            count, total = self._past.get(source, (0, 0))
            self._past[source] = (count + 1, total + size)
