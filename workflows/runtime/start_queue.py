"""What is to start, in slices: a workflow task carries so much, a history has room for so much.

*A slice* is what one workflow task starts. The server keeps the events of a run in a cache of 512 KiB by
default, and reads them anew from its database for whatever does not fit, once or twice for every Call that was
scheduled with them. A fan-out of 2,000 in one task costs twenty times as much per Call as one in slices.

A task ends when the workflow waits for something that is not there. What brings the next one is the first
result of the slice, or a timer of a millisecond: without it, slow Calls would hold back those behind them.

Where the history has no room, the queue stops; the driver hands what is left back to the machine. Where memory has
none, it waits for the results of Activities that hold it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from acts.language.errors import CallError
from acts.language.wire import CANCELLED
from acts.machines.events import CallFailed, ChildEnded
from acts.machines.run_commands import (
    AskOutput,
    StartActivity,
    StartBackground,
    StartBatch,
    StartDelegate,
    StartInstances,
    StartPlanRun,
)
from workflows.runtime.child_tasks import child_name
from workflows.runtime.payloads import MAX_TASK_BYTES

if TYPE_CHECKING:
    from acts.machines.events import Event
    from acts.machines.lifetime import HistorySize, Lifetime
    from acts.machines.run_commands import RunCommand
    from workflows.runtime.children import Children
    from workflows.runtime.prepared_start import Start, StartCommand
    from workflows.runtime.task_room import TaskRoom
    from workflows.runtime.tasks_in_flight import TasksInFlight

# Large arguments of Activities that are in memory at a time, beside one that is larger: a quarter of a small worker
MAX_HELD_BYTES: Final = 256 * 1024 * 1024
# A quarter of the server's cache of events, which holds what is started and what has just ended, of all runs
MAX_SLICE_BYTES: Final = 128 * 1024
_CHILDREN: Final = (StartDelegate, StartInstances, StartPlanRun, StartBatch)


class StartQueue:
    """The starts of one run that wait for a workflow task. ``takes_back``: the run can start them in the next run."""

    def __init__(
        self, tasks: TasksInFlight, children: Children, lifetime: Lifetime, room: TaskRoom, *, takes_back: bool
    ) -> None:
        self._tasks, self._children, self._lifetime, self._takes_back = tasks, children, lifetime, takes_back
        self._room = room
        self._waiting: deque[StartCommand] = deque()
        self._head: Start | None = None
        self._task, self._task_bytes = -1, 0
        self.is_out_of_room = self._waits_for_results = False

    @property
    def needs_task(self) -> bool:
        """True when another workflow task would start more."""
        return bool(self._waiting) and not self._waits_for_results

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, command: StartCommand) -> None:
        """Start this in its turn. A signal for a child that waits here reaches it once it is there."""
        if isinstance(command, _CHILDREN):
            self._children.expect(*child_name(command))
        self._waiting.append(command)

    def has_new_task(self, history: HistorySize) -> bool:
        """True when something waits, and a workflow task has begun that has started nothing."""
        return bool(self._waiting) and history.events != self._task

    def send(self, history: HistorySize) -> None:
        """Start what this workflow task and the history have room for."""
        if history.events != self._task:
            self._task, self._task_bytes = history.events, 0
        self._waits_for_results = False
        while self._waiting:
            start = self._head = self._head or self._tasks.prepare(self._waiting[0])
            if start is not None:
                if start.held and self._tasks.held_bytes and self._tasks.held_bytes + start.held > MAX_HELD_BYTES:
                    self._waits_for_results = True
                    return
                if not self._fits_task(start):
                    return
                if not self._fits_history(start, history):
                    self.is_out_of_room = True
                    return
                start.send()
                self._task_bytes += start.size
                self._room.add(start.size)
            self._waiting.popleft()
            self._head = None

    def take_all(self) -> list[StartCommand]:
        """Empty the queue: nothing of it has started."""
        commands = list(self._waiting)
        for command in commands:
            if isinstance(command, _CHILDREN):
                self._children.forget(*child_name(command))
        self._waiting.clear()
        self._head, self.is_out_of_room = None, False
        return commands

    def _fits_task(self, start: Start) -> bool:
        """True when this task can carry it: a slice, or one of any size, beside the outcomes of local activities."""
        if start.is_local:
            return self._task_bytes <= MAX_SLICE_BYTES
        local = self._tasks.local.bytes + self._room.used - self._task_bytes  # and signals to other runs
        is_slice = self._task_bytes == 0 or self._task_bytes + start.size <= MAX_SLICE_BYTES
        return is_slice and (local == 0 or local + self._task_bytes + start.size <= MAX_TASK_BYTES)

    def _fits_history(self, start: Start, history: HistorySize) -> bool:
        # Its share of the budget would be lost with a delegate in the background
        is_lost = isinstance(command := self._waiting[0], StartBackground) and command.input.delegate is not None
        if not self._takes_back or is_lost:
            return True
        expected = self._tasks.expected
        new_bytes = self._task_bytes + start.size + expected.total + expected.of(start.source)
        return self._lifetime.has_room(history, new_bytes, expected.in_flight)


def void_start(command: RunCommand) -> list[Event]:
    """How what a cancelled run does not start any more has ended."""
    error = CallError(CANCELLED, "the call was cancelled before it was started")
    if isinstance(command, (StartDelegate, StartInstances)):
        return [ChildEnded(command.node.key, None, error)]
    if isinstance(command, StartBatch):
        return [ChildEnded(command.name, None, error)]
    if isinstance(command, (StartActivity, AskOutput, StartBackground)):
        return [CallFailed(command.node.key, error)]
    return []
