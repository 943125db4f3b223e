"""The threads of workflow tasks, and whose task computes next.

One interpreter computes one thing at a time, so tasks that are accepted together wait for each other here. In the order
of their arrival, each step of a small plan would wait for as many tasks as a large batch beside it has in flight. Two
rules by *tree* (a root and all runs below it) prevent that:

* **Fair turns.** The tree that has computed least goes first, as in the fair queueing of networks. A tree that was idle
  starts level with the others: it gains nothing from the time before.
* **Courtesy.** A batch in full swing also fills the server, whose queues have no such order. While a quiet tree is at
  work, a busy one pauses after each of its tasks, in proportion to the work that the task sends to the server. Beside
  other busy trees, or alone, it never pauses.

One task computes at a time; a second would slow both down. A task that computes for longer than ``LONG_SECONDS`` (a
replay) does not count, so it holds up nobody for longer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from worker_runtime.tree_loads import TreeLoads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from worker_runtime.workflow_watch import WorkflowWatch

# A cached run's task takes milliseconds: this is long enough to tell a replay, and short beside a step of a plan
LONG_SECONDS: Final = 0.25
# Charged for a turn when it begins, in seconds of CPU; what it took in fact is known when it ends
USUAL_SECONDS: Final = 0.002
# Of a courteous tree, per command of its task: half of what a call costs a worker and a server on one machine
PAUSE_SECONDS: Final = 0.002
MAX_PAUSE_SECONDS: Final = 0.1


@dataclass(slots=True, eq=False)
class Turn:
    """A task that waits for its turn, or has it since ``start``. An eviction is no work of its tree."""

    tree: Hashable
    task: Callable[[], int]
    is_work: bool = True
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
        self._loads = TreeLoads()
        self._pauses: dict[Hashable, float] = {}

    def add(self, turn: Turn) -> None:
        """Queue a task; it may run at once."""
        with self._lock:
            self._waiting.setdefault(turn.tree, deque()).append(turn)
            self._served.setdefault(turn.tree, self._level)
            if turn.is_work:
                self._loads.arrive(turn.tree, self._clock())
        self.advance()

    def end(self, turn: Turn, computed: float, commands: int) -> float:
        """A task has ended, after so many CPU seconds; returns for how long its tree pauses.

        Call ``advance`` after the pause.
        """
        with self._lock:
            now, tree = self._clock(), turn.tree
            self._running.discard(turn)
            self._loads.add(tree, computed, now)
            self._served[tree] += computed - USUAL_SECONDS
            if tree not in self._waiting and all(other.tree != tree for other in self._running):
                del self._served[tree]
            pause = 0.0
            if commands and self._loads.is_courteous(tree, now):
                pause = min(commands * PAUSE_SECONDS, MAX_PAUSE_SECONDS)
                self._pauses[tree] = now + pause
        self.advance()
        return pause

    def advance(self) -> None:
        """Run the next tasks, as many as may run now."""
        while (turn := self._take()) is not None:
            self._run(turn)

    def _take(self) -> Turn | None:
        with self._lock:
            now = self._clock()
            if any(now - turn.start < LONG_SECONDS for turn in self._running):
                return None
            self._pauses = {tree: end for tree, end in self._pauses.items() if end > now}
            trees = [tree for tree in self._waiting if tree not in self._pauses]
            if not trees:
                return None
            tree = min(trees, key=self._served.__getitem__)
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
        run = partial(self._watch.run_with_outcome, outcome, fn, *args, **kwargs)
        self._turns.add(Turn(find_tree(fn), run, is_work=not (args and is_eviction(args[0]))))
        return outcome

    def _start(self, turn: Turn) -> None:
        super().submit(self._run, turn)

    def _run(self, turn: Turn) -> None:
        before, commands = time.thread_time(), 0
        try:
            commands = turn.task()
        finally:
            pause = self._turns.end(turn, time.thread_time() - before, commands)
        if pause:
            time.sleep(pause)
            self._turns.advance()


def is_eviction(act: Any) -> bool:
    """True for an activation that only removes a run from the cache."""
    jobs: Any = getattr(act, "jobs", ())
    return len(jobs) == 1 and bool(jobs[0].HasField("remove_from_cache"))


def find_tree(activate: Callable[..., Any]) -> Hashable:
    """The id of the root of the run whose activation this is; None if the SDK calls something else."""
    instance = getattr(getattr(activate, "__self__", None), "instance", None)
    if instance is None:
        return None
    info = instance.get_info()
    return str(info.root.workflow_id if info.root is not None else info.workflow_id)
