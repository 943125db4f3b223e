"""The timers that a run's machine starts, by name. Each that fires is one event; one that is cancelled is none.

The machine decides what a timer is for. One name has one timer at a time.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from temporalio import workflow

from acts.machines.events import TimerFired
from acts.simulation.billable_actions import TIMER

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.machines.approval_effects import CancelTimer, StartTimer
    from acts.simulation.billable_actions import ActionCount


class Timers:
    """The timers of one run; ``emit`` takes the event of each that fires."""

    def __init__(self, actions: ActionCount, emit: Callable[[TimerFired], None]) -> None:
        self._actions, self._emit = actions, emit
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, command: StartTimer) -> None:
        """Start a timer."""
        self._actions.record(TIMER)
        sleep = workflow.sleep(timedelta(seconds=command.seconds), summary=command.summary)
        timer = self._tasks[command.name] = asyncio.create_task(sleep)
        timer.add_done_callback(partial(self._ended, command.name))

    def cancel(self, command: CancelTimer) -> None:
        """Cancel a timer, unless it has fired."""
        timer = self._tasks.pop(command.name, None)
        if timer is not None and not timer.done():
            timer.cancel()

    def forget(self, name: str) -> None:
        """Drop a timer whose event is being handled."""
        self._tasks.pop(name, None)

    def _ended(self, name: str, timer: asyncio.Task[None]) -> None:
        if not timer.cancelled():
            self._emit(TimerFired(name))
