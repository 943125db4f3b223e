"""Which task queues of a run's Tools have no worker: shown to people, never failed, and asked again until it heals.

A misspelt queue, or one whose workers are down, makes Calls wait forever without an error, since a backlog is
no failure. So a run asks the server about the queues of its Tools other than its own: once when it starts, then
while something is in flight, after ``FIRST_SECONDS`` and twice as long each time. Nothing is asked per Call.

The children of a batch and the plan of a tick do not ask: the run that looked up their Tools does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from acts.language.errors import format_choices
from acts.language.tools import Tool
from acts.machines.commands import CheckQueues, StartTimer

QUEUE_TIMER: Final = "ask which task queues have workers"
# Lines about Calls that workers without their Activity took; more of them would hide the other notes
MAX_LINES: Final = 3
# Most runs are over by then, and cost no second check
FIRST_SECONDS: Final = 30.0
# A run that waits for weeks for a worker asks 24 times a day: 200 events, where a history may have 51,200
LAST_SECONDS: Final = 3600.0


class QueueWatch:
    """The task queues of one run."""

    def __init__(self) -> None:
        self.queues: tuple[str, ...] = ()
        self._unserved: tuple[str, ...] = ()  # had no worker when the server was last asked
        self._queue_of: dict[str, str] = {}
        self._misses: dict[str, str] = {}
        self._seconds = FIRST_SECONDS
        self._last_check = ""
        self._has_timer = False

    @property
    def waiting_calls(self) -> set[str]:
        """The keys of Calls in a queue without a worker, and of those that workers without their Activity took."""
        return {key for key, queue in self._queue_of.items() if queue in self._unserved} | self._misses.keys()

    def begin(self) -> list[Any]:
        """The run begins: the first check, unless it is over already."""
        return [] if self._last_check else self._check()

    def _check(self) -> list[Any]:
        return [CheckQueues(self.queues)] if self.queues else []

    def record_check(self, has_workers: Mapping[str, bool], now: str) -> None:
        """The server's answer; a queue that it leaves out stays as it was."""
        before = self._unserved
        self._unserved = tuple(q for q in self.queues if not has_workers.get(q, q not in before))
        self._last_check = now
        if self._unserved != before:
            self._seconds = FIRST_SECONDS

    def record_start(self, key: str, queue: str | None) -> None:
        """A Call was scheduled in a queue."""
        if queue is not None and queue in self.queues:
            self._queue_of[key] = queue

    def record_miss(self, key: str, note: str | None) -> None:
        """Workers without its Activity took a Call, and it waits for others; None: it does so no longer."""
        self._misses.pop(key, None)
        if note is not None:
            self._misses[key] = note

    def record_end(self, key: str) -> None:
        """A Call has ended."""
        self._queue_of.pop(key, None)
        self._misses.pop(key, None)

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
        if self._unserved:
            names = format_choices(f'"{queue}"' for queue in self._unserved)
            what = "the task queue" if len(self._unserved) == 1 else "the task queues"
            text = f"no worker polls {what} {names}: calls wait there until one does"
            lines.append(f"{text} (last asked at {self._last_check})")
        return lines


def foreign_queues(tools: Iterable[Tool]) -> tuple[str, ...]:
    """The task queues that Tools with an Activity name, in their order."""
    names = (tool.options.taskQueue for tool in tools if tool.activity and not tool.options.local)
    return tuple(dict.fromkeys(name for name in names if name is not None))
