"""Signals to other runs, each run's in the order in which they were sent.

The server keeps no order among signals that one workflow task sends: a pause and the resume after it could
reach a child either way round. So the next is sent when the one before has arrived. Large ones go in several
tasks: a message of 2 MB for a thousand children must not end the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from workflows.runtime.payload_limits import carried_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio import workflow
    from temporalio.common import RawValue

    from workflows.runtime.task_room import TaskRoom

    Target = workflow.ChildWorkflowHandle[Any, Any] | workflow.ExternalWorkflowHandle[Any]
    Outcome = Callable[[BaseException | None], None]
    Message = tuple[Target, str, tuple[RawValue, ...], Outcome]


class Outbox:
    """One line for each run that something is on its way to. ``sent`` counts signals, for the bill."""

    def __init__(self, room: TaskRoom) -> None:
        self.sent = 0
        self._room = room
        self._lines: dict[str, deque[Message]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def is_empty(self) -> bool:
        """True when everything has arrived."""
        return not self._lines

    def send(self, target: Target, signal: str, args: tuple[RawValue, ...], outcome: Outcome) -> None:
        """Signal one run. ``outcome`` is called with None when the signal has arrived, else with the error."""
        self.sent += 1
        line = self._lines.get(target.id)
        if line is None:
            line = self._lines[target.id] = deque()
            self._tasks[target.id] = asyncio.create_task(self._deliver(target.id))
        line.append((target, signal, args, outcome))

    async def _deliver(self, id_: str) -> None:
        line = self._lines[id_]
        while line:
            target, signal, args, outcome = line.popleft()
            await self._room.make(sum(map(carried_bytes, args)))
            try:
                await target.signal(signal, args=list(args))
            except Exception as error:  # noqa: BLE001 - whoever sent it decides what it means
                outcome(error)
            else:
                outcome(None)
        del self._lines[id_], self._tasks[id_]
