"""The threads of workflow tasks, and whose task computes next.

One interpreter computes one thing at a time, so tasks that are accepted together wait for each other here. In the order
of their arrival, each step of a small plan would wait for as many tasks as a large batch beside it has in flight. Two
rules by *tree* (a root and all runs below it) prevent that:

* **Fair turns.** The tree that has computed least goes first, as in the fair queueing of networks. A tree that was idle
  starts level with the others: it gains nothing from the time before.
* **Courtesy.** A batch in full swing would also fill the server, whose lines have no such order. So a busy tree has
  only a few answers on their way to it (``answer_window.py``), and one while a quiet tree is at work.

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

from worker_runtime.answer_window import COURTEOUS_ANSWERS, AnswerWindow
from worker_runtime.tree_loads import TreeLoads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from worker_runtime.task_slots import TaskSlots
    from worker_runtime.workflow_watch import WorkflowWatch

# A cached run's task takes milliseconds: this is long enough to tell a replay, and short beside a step of a plan
LONG_SECONDS: Final = 0.25
# Charged for a turn when it begins, in seconds of CPU; what it took in fact is known when it ends
USUAL_SECONDS: Final = 0.002
# A task waits for answers for so long at most: the server gives it up after ten seconds or more
MAX_HOLD_SECONDS: Final = 1.0
WAKE_SECONDS: Final = 0.1


@dataclass(slots=True, eq=False)
class Turn:
    """A task that waits for its turn, or has it since ``start``.

    An eviction is no work of its tree. It waits for no answers, since a task may wait for it; nor does what is not
    ``cached``, a first task or a replay, since it has one of the few slots for such tasks.
    """

    tree: Hashable
    task: Callable[[], None]
    is_work: bool = True
    is_cached: bool = True
    arrival: float = 0.0
    start: float = 0.0

    @property
    def waits_for_answers(self) -> bool:
        """False for what runs at once even where its tree is busy."""
        return self.is_work and self.is_cached


class FairTurns:
    """Which task is next. Threads share it; ``run`` is called with each task whose turn has come.

    ``count_tasks`` returns how many tasks the worker has: here, or with their answers on the way. ``on_hold`` is called
    when tasks wait for answers: call ``wake`` soon, since no answer may come.
    """

    def __init__(
        self, run: Callable[[Turn], None], count_tasks: Callable[[], int], on_hold: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._run, self._count_tasks, self._on_hold, self._clock = run, count_tasks, on_hold, clock
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Turn]] = {}
        self._running: set[Turn] = set()
        # CPU seconds that each tree has had, counted from the level at which it came; and the highest level of a turn
        self._served: dict[Hashable, float] = {}
        self._level = 0.0
        self._loads = TreeLoads()
        self._window = AnswerWindow()
        # Tasks that wait or compute
        self._here = 0
        self._is_waking = False

    def add(self, turn: Turn) -> None:
        """Queue a task; it may run at once."""
        with self._lock:
            turn.arrival = self._clock()
            queue = self._waiting.setdefault(turn.tree, deque())
            if turn.waits_for_answers:
                queue.append(turn)
            else:
                queue.appendleft(turn)
            self._served.setdefault(turn.tree, self._level)
            if turn.is_work:
                self._here += 1
                self._loads.arrive(turn.tree, turn.arrival)
        self.advance()

    def end(self, turn: Turn, computed: float) -> None:
        """A task has ended, after so many CPU seconds."""
        with self._lock:
            now, tree = self._clock(), turn.tree
            self._running.discard(turn)
            self._loads.add(tree, computed, now)
            self._served[tree] += computed - USUAL_SECONDS
            if tree not in self._waiting and all(other.tree != tree for other in self._running):
                del self._served[tree]
            if turn.is_work:
                self._here -= 1
                self._window.send(now, self._count_unanswered())
        self.advance()

    def release(self) -> None:
        """The server has an answer."""
        with self._lock:
            self._window.arrive(self._clock(), self._count_unanswered())
        self.advance()

    def advance(self) -> None:
        """Run the next tasks, as many as may run now."""
        while (turn := self._take()) is not None:
            self._run(turn)
        with self._lock:
            must_wake = bool(self._waiting) and not self._running and not self._is_waking
            self._is_waking |= must_wake
        if must_wake:
            self._on_hold()

    def wake(self) -> None:
        """Some tasks have waited for answers for long."""
        with self._lock:
            self._is_waking = False
        self.advance()

    def _take(self) -> Turn | None:
        with self._lock:
            now = self._clock()
            if any(now - turn.start < LONG_SECONDS for turn in self._running):
                return None
            trees = [tree for tree in self._waiting if self._may_begin(tree, now)]
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

    def _may_begin(self, tree: Hashable, now: float) -> bool:
        """False for a busy tree while too many answers are on their way."""
        turn = self._waiting[tree][0]
        if not (turn.waits_for_answers and self._loads.is_busy(tree, now) and now - turn.arrival < MAX_HOLD_SECONDS):
            return True
        most = COURTEOUS_ANSWERS if self._loads.is_courteous(tree, now) else self._window.size(now)
        return self._count_unanswered() < most

    def _count_unanswered(self) -> int:
        return self._count_tasks() - self._here


class TaskThreads(ThreadPoolExecutor):
    """The threads of workflow tasks. A result may come from the watch instead of from the thread."""

    def __init__(self, watch: WorkflowWatch, slots: TaskSlots, max_workers: int) -> None:
        super().__init__(max_workers, thread_name_prefix="workflow")
        self._watch, self._slots = watch, slots
        self._turns = FairTurns(self._start, lambda: slots.tasks - watch.count_waiting(), self._on_hold)
        slots.on_answer = self._turns.release
        watch.on_look = self._turns.advance  # tasks that turned out to be long let others run beside them

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` in a thread when its turn comes; the future may be settled by the watch."""
        outcome: Future[Any] = Future()
        run = partial(self._watch.run_with_outcome, outcome, fn, *args, **kwargs)
        act = args[0] if args else None
        self._turns.add(Turn(find_tree(fn), run, is_work=not is_eviction(act), is_cached=not is_start_or_replay(act)))
        return outcome

    def _start(self, turn: Turn) -> None:
        super().submit(self._run, turn)

    def _on_hold(self) -> None:
        super().submit(self._wake)

    def _wake(self) -> None:
        time.sleep(WAKE_SECONDS)
        self._turns.wake()

    def _run(self, turn: Turn) -> None:
        before = time.thread_time()
        try:
            turn.task()
        finally:
            self._turns.end(turn, time.thread_time() - before)
            if turn.waits_for_answers:
                self._slots.adjust_sticky(time.monotonic() - turn.arrival)


def is_eviction(act: Any) -> bool:
    """True for an activation that only removes a run from the cache."""
    jobs: Any = getattr(act, "jobs", ())
    return len(jobs) == 1 and bool(jobs[0].HasField("remove_from_cache"))


def is_start_or_replay(act: Any) -> bool:
    """True for the first activation of a run in this process, and for those of its past."""
    jobs: Any = getattr(act, "jobs", ())
    return bool(getattr(act, "is_replaying", False) or any(job.HasField("initialize_workflow") for job in jobs))


def find_tree(activate: Callable[..., Any]) -> Hashable:
    """The id of the root of the run whose activation this is; None if the SDK calls something else."""
    instance = getattr(getattr(activate, "__self__", None), "instance", None)
    if instance is None:
        return None
    info = instance.get_info()
    return str(info.root.workflow_id if info.root is not None else info.workflow_id)
