"""Room in a workflow task: all that one task sends travels in one gRPC message of at most 4 MiB.

A run whose task sends more is terminated. So whoever adds a large command waits here for its turn: the task is
ended by a timer, and the next one has room again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import workflow

from acts.simulation.billable_actions import TIMER
from workflows.runtime.payloads import MAX_TASK_BYTES

if TYPE_CHECKING:
    from acts.simulation.billable_actions import ActionCount


class TaskRoom:
    """The bytes of the commands of the current task of one run; who waits for room is served in order."""

    def __init__(self, actions: ActionCount) -> None:
        self._actions = actions
        self._task_events, self._task_bytes = -1, 0
        self._turn = asyncio.Lock()

    @property
    def used(self) -> int:
        """The bytes that the current task carries so far."""
        self.add(0)
        return self._task_bytes

    async def make(self, size: int) -> None:
        """Return when a command of ``size`` bytes fits into the current task."""
        async with self._turn:
            used = self.used
            if used and used + size > MAX_TASK_BYTES:
                await workflow.sleep(timedelta(milliseconds=1), summary="large inputs go in several tasks")
                self._actions.record(TIMER)
            self.add(size)

    def add(self, size: int) -> None:
        """Count a command of ``size`` bytes that the current task carries."""
        events = workflow.info().get_current_history_length()
        if events != self._task_events:
            self._task_events, self._task_bytes = events, 0
        self._task_bytes += size
