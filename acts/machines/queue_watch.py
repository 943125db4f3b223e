"""Which task queues of a run's Tools have no worker: shown to people, never failed, and asked again until it heals.

A misspelt queue, or one whose workers are down, makes Calls wait for ever without an error, since a backlog is
no failure. So a run asks the server about the queues of its Tools other than its own: once when it starts, then
while something is in flight, after ``FIRST_SECONDS`` and twice as long each time. Nothing is asked per Call.

The children of a batch and the plan of a tick do not ask: the run that looked up their Tools does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acts.language.errors import format_choices
from acts.language.tools import Tool
from acts.machines.approval_effects import StartTimer

QUEUE_TIMER: Final = "ask which task queues have workers"
# Lines about Calls that workers without their Activity took; more of them would hide the other notes
MAX_LINES: Final = 3
# Most runs are over by then, and cost no second check
FIRST_SECONDS: Final = 30.0
# A run that waits for weeks for a worker asks 24 times a day: 200 events, where a history may have 51,200
LAST_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CheckQueues:
    """Ask the server who polls these task queues; the answer is a ``QueuesChecked``."""

    queues: tuple[str, ...]


class QueueWatch:
    """The task queues of one run. ``unserved_queues`` had no worker when the server was last asked.

    ``waiting_calls`` are the keys of Calls that no worker can have taken yet: they were in such a queue all the time,
    or workers took them that do not have their Activity.
    """

    def __init__(self) -> None:
        self.queues: tuple[str, ...] = ()
        self.unserved_queues: frozenset[str] = frozenset()
        self.waiting_calls: set[str] = set()
        self._queue_of: dict[str, str] = {}
        self._misses: dict[str, str] = {}
        self._seconds = FIRST_SECONDS
        self._last_check = ""
        self._has_timer = False

    def begin(self) -> list[Any]:
        """The run begins: the first check, unless it is over already."""
        return [] if self._last_check else self._check()

    def _check(self) -> list[Any]:
        return [CheckQueues(self.queues)] if self.queues else []

    def record_check(self, has_workers: Mapping[str, bool], now: str) -> list[str]:
        """The server's answer; a queue that it leaves out stays as it was.

        Returns the keys of Calls that look different now.
        """
        before, is_first = self.unserved_queues, not self._last_check
        self.unserved_queues = frozenset(q for q in self.queues if not has_workers.get(q, q not in before))
        self._last_check = now
        if self.unserved_queues != before:
            self._seconds = FIRST_SECONDS
        # Later than the first time, a worker that is gone by now may have taken what is in the queue
        candidates = self._queue_of if is_first else self.waiting_calls
        waiting = {key for key in candidates if self._queue_of.get(key) in self.unserved_queues}
        waiting.update(self._misses)
        changed = sorted(waiting ^ self.waiting_calls)
        self.waiting_calls.symmetric_difference_update(changed)
        return changed

    def record_start(self, key: str, queue: str | None) -> None:
        """A Call was scheduled in a queue."""
        if queue in self.queues:
            self._queue_of[key] = queue
            if queue in self.unserved_queues:
                self.waiting_calls.add(key)

    def record_miss(self, key: str, note: str | None) -> None:
        """Workers without its Activity took a Call, and it waits for others; None: it does so no longer."""
        if note is None:
            self._misses.pop(key, None)
            self.waiting_calls.discard(key)
        else:
            self._misses[key] = note
            self.waiting_calls.add(key)

    def record_end(self, key: str) -> None:
        """A Call has ended. A worker took it, but may be gone again: only a check shows that the queue has one."""
        self._queue_of.pop(key, None)
        self._misses.pop(key, None)
        self.waiting_calls.discard(key)

    def flush(self, *, is_busy: bool) -> list[Any]:
        """While something is in flight, another check is due some time."""
        if not self.queues or self._has_timer or not is_busy:
            return []
        self._has_timer = True
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LAST_SECONDS)
        return [StartTimer(QUEUE_TIMER, seconds, QUEUE_TIMER)]

    def on_timer(self, *, is_busy: bool) -> list[Any]:
        """The time is up: ask, unless nothing is in flight that could wait."""
        self._has_timer = False
        return self._check() if is_busy else []

    @property
    def notes(self) -> list[str]:
        """Lines for ``status`` and the page, while a queue has no worker, or none that has an Activity."""
        lines = list(dict.fromkeys(self._misses.values()))[:MAX_LINES]
        if not self.unserved_queues:
            return lines
        names = format_choices(f'"{queue}"' for queue in self.unserved_queues)
        one = len(self.unserved_queues) == 1
        what = "the task queue" if one else "the task queues"
        text = f"no worker polls {what} {names}: calls wait there until one does"
        return [*lines, f"{text} (last asked at {self._last_check})"]


def foreign_queues(tools: Iterable[Tool]) -> tuple[str, ...]:
    """The task queues that Tools with an Activity name, in their order."""
    names = (tool.options.taskQueue for tool in tools if tool.activity and not tool.options.local)
    return tuple(dict.fromkeys(name for name in names if name is not None))
