"""The threads of workflow tasks, and whose task computes next.

One interpreter computes one thing at a time, so tasks that are accepted together wait for each other here. In the order
of their arrival, each step of a small plan would wait for as many tasks as a large batch beside it has in flight. So
turns are given by *tree* (a root and all runs below it): the tree that has computed least goes first, as in the fair
queueing of networks. A tree that was idle starts level with the others: it gains nothing from the time before.

* ``TURNS`` tasks compute at a time; each task more would only slow the others down.
* A task that computes for longer than ``LONG_SECONDS`` (a replay) does not count, so it holds up nobody for longer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from worker_runtime.workflow_watch import WorkflowWatch

# The interpreter runs one; the second computes while the first is in a library that has released the interpreter
TURNS: Final = 2
# A cached run's task takes milliseconds: this is long enough to tell a replay, and short beside a step of a plan
LONG_SECONDS: Final = 0.25
# Charged for a turn when it begins, in seconds of CPU; what it took in fact is known when it ends
USUAL_SECONDS: Final = 0.002


@dataclass(slots=True, eq=False)
class Turn:
    """A task that waits for its turn, or has it since ``start``."""

    tree: Hashable
    task: Callable[[], None]
    start: float = 0.0


class FairTurns:
    """Which task is next. Threads share it; ``run`` is called with each task whose turn has come."""

    def __init__(self, run: Callable[[Turn], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Turn]] = {}
        self._running: set[Turn] = set()
        # CPU seconds that each tree has had, counted from the level at which it came; and the highest level of a turn
        self._served: dict[Hashable, float] = {}
        self._level = 0.0

    def add(self, turn: Turn) -> None:
        """Queue a task; it may run at once."""
        with self._lock:
            self._waiting.setdefault(turn.tree, deque()).append(turn)
            self._served.setdefault(turn.tree, self._level)
        self.advance()

    def end(self, turn: Turn, computed: float) -> None:
        """A task has ended, after so many CPU seconds."""
        with self._lock:
            self._running.discard(turn)
            if turn.tree in self._served:
                self._served[turn.tree] += computed - USUAL_SECONDS
                if turn.tree not in self._waiting and all(other.tree != turn.tree for other in self._running):
                    del self._served[turn.tree]
        self.advance()

    def advance(self) -> None:
        """Run the next tasks, as many as may run now."""
        while (turn := self._take()) is not None:
            self._run(turn)

    def _take(self) -> Turn | None:
        with self._lock:
            if not self._waiting:
                return None
            now = self._clock()
            if sum(now - turn.start < LONG_SECONDS for turn in self._running) >= TURNS:
                return None
            tree = min(self._waiting, key=self._served.__getitem__)
            queue = self._waiting[tree]
            turn = queue.popleft()
            if not queue:
                del self._waiting[tree]
            turn.start = now
            self._running.add(turn)
            self._level = max(self._level, self._served[tree])
            self._served[tree] += USUAL_SECONDS
            return turn


class TaskThreads(ThreadPoolExecutor):
    """The threads of workflow tasks. A result may come from the watch instead of from the thread."""

    def __init__(self, watch: WorkflowWatch, max_workers: int) -> None:
        super().__init__(max_workers, thread_name_prefix="workflow")
        self._watch = watch
        self._turns = FairTurns(self._start)
        watch.on_look = self._turns.advance  # tasks that turned out to be long let others run beside them

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` in a thread when its turn comes; the future may be settled by the watch."""
        outcome: Future[Any] = Future()
        self._turns.add(Turn(find_tree(fn), partial(self._watch.run_with_outcome, outcome, fn, *args, **kwargs)))
        return outcome

    def _start(self, turn: Turn) -> None:
        super().submit(self._run, turn)

    def _run(self, turn: Turn) -> None:
        before = time.thread_time()
        try:
            turn.task()
        finally:
            self._turns.end(turn, time.thread_time() - before)


def find_tree(activate: Callable[..., Any]) -> Hashable:
    """The id of the root of the run whose activation this is; None if the SDK calls something else."""
    instance = getattr(getattr(activate, "__self__", None), "instance", None)
    if instance is None:
        return None
    info = instance.get_info()
    return info.root.workflow_id if info.root is not None else info.workflow_id
