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
from worker_runtime.payload_visits import VISITS
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
    ``cached``, a first task, a query or a replay, since most of them have one of the few slots for such tasks.

    ``is_local`` says whether its run waits for local Activities: then ``count_tasks`` leaves it out until the turn
    ends, and it has no answer. ``is_lost`` says whether another gave its result: its thread may never end.
    """

    tree: Hashable
    task: Callable[[], None]
    is_work: bool = True
    is_cached: bool = True
    is_local: Callable[[], bool] = lambda: False
    is_lost: Callable[[], bool] = lambda: False
    is_counted: bool = False
    arrival: float = 0.0
    start: float = 0.0

    @property
    def waits_for_answers(self) -> bool:
        """False for what runs at once even where its tree is busy."""
        return self.is_work and self.is_cached


class TreeQueue:
    """The turns of a tree that wait, in the order of their arrival; what waits for no answers goes first.

    But not for ever: after ``MAX_HOLD_SECONDS`` the others are their equals.
    """

    __slots__ = ("_at_once", "_others")

    def __init__(self) -> None:
        self._at_once: deque[Turn] = deque()
        self._others: deque[Turn] = deque()

    def __bool__(self) -> bool:
        return bool(self._at_once or self._others)

    def add(self, turn: Turn) -> None:
        """Queue a turn."""
        (self._others if turn.waits_for_answers else self._at_once).append(turn)

    def take(self, now: float, may_begin: Callable[[], bool]) -> Turn | None:
        """The next turn; ``may_begin`` says whether one that waits for answers may begin before its time."""
        first = self._others[0] if self._others else None
        is_due = first is not None and now - first.arrival >= MAX_HOLD_SECONDS
        if self._at_once and not (is_due and first is not None and first.arrival <= self._at_once[0].arrival):
            return self._at_once.popleft()
        return self._others.popleft() if first is not None and (is_due or may_begin()) else None


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
        self._waiting: dict[Hashable, TreeQueue] = {}
        self._running: set[Turn] = set()
        # CPU seconds that each tree has had, counted from the level at which it came; and the highest level of a turn
        self._served: dict[Hashable, float] = {}
        self._level = 0.0
        self._loads = TreeLoads()
        self._window = AnswerWindow()
        # Tasks that wait or compute, of those that are counted
        self._here = 0
        self._is_waking = False

    def add(self, turn: Turn) -> None:
        """Queue a task; it may run at once."""
        with self._lock:
            turn.arrival = self._clock()
            turn.is_counted = turn.is_work and not turn.is_local()
            self._waiting.setdefault(turn.tree, TreeQueue()).add(turn)
            self._served.setdefault(turn.tree, self._level)
            self._here += turn.is_counted
            if turn.is_work:
                self._loads.arrive(turn.tree, turn.arrival)
        self.advance()

    def end(self, turn: Turn, computed: float) -> None:
        """A task has ended, after so many CPU seconds."""
        with self._lock:
            if turn in self._running:
                now = self._clock()
                self._leave(turn, computed, now)
                if turn.is_work and not turn.is_local():
                    self._window.send(now, self._count_unanswered())
        self.advance()

    def look(self) -> None:
        """Forget turns whose threads were left behind, and let others run beside those that turned out to be long."""
        with self._lock:
            now = self._clock()
            for turn in [t for t in self._running if now - t.start >= LONG_SECONDS and t.is_lost()]:
                self._leave(turn, 0.0, now)
        self.advance()

    def _leave(self, turn: Turn, computed: float, now: float) -> None:
        tree = turn.tree
        self._running.discard(turn)
        self._here -= turn.is_counted
        self._loads.add(tree, computed, now)
        self._served[tree] += computed - USUAL_SECONDS
        if tree not in self._waiting and all(other.tree != tree for other in self._running):
            del self._served[tree]

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
            must_wake = bool(self._waiting) and not self._is_waking and not self._is_computing(self._clock())
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
            if self._is_computing(now):
                return None
            for tree in sorted(self._waiting, key=self._served.__getitem__):
                queue = self._waiting[tree]
                turn = queue.take(now, partial(self._may_begin, tree, now))
                if turn is not None:
                    break
            else:
                return None
            if not queue:
                del self._waiting[tree]
            turn.start = now
            self._running.add(turn)
            self._level = max(self._level, self._served[tree])
            self._served[tree] += USUAL_SECONDS
            return turn

    def _is_computing(self, now: float) -> bool:
        """True while a task computes that is not known to be long."""
        return any(now - turn.start < LONG_SECONDS for turn in self._running)

    def _may_begin(self, tree: Hashable, now: float) -> bool:
        """False for a busy tree while too many answers are on their way."""
        if not self._loads.is_busy(tree, now):
            return True
        unanswered = self._count_unanswered()
        if unanswered < COURTEOUS_ANSWERS:
            return True
        return unanswered < self._window.size(now) and not self._loads.is_courteous(tree, now)

    def _count_unanswered(self) -> int:
        return self._count_tasks() - self._here


class TaskThreads(ThreadPoolExecutor):
    """The threads of workflow tasks. A result may come from the watch instead of from the thread."""

    def __init__(self, watch: WorkflowWatch, slots: TaskSlots, max_workers: int) -> None:
        super().__init__(max_workers, thread_name_prefix="workflow")
        self._watch, self._slots = watch, slots
        self._turns = FairTurns(self._start, self._count_tasks, self._on_hold)
        slots.on_answer, VISITS.on_begin = self._turns.release, self._turns.advance
        watch.on_look = self._turns.look

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` in a thread when its turn comes; the future may be settled by the watch."""
        outcome: Future[Any] = Future()
        run = partial(self._watch.run_with_outcome, outcome, fn, *args, **kwargs)
        act, instance = args[0] if args else None, find_instance(fn)
        self._turns.add(Turn(
            find_tree(fn), run, is_work=not is_eviction(act), is_cached=not is_start_or_replay(act),
            is_local=lambda: bool(getattr(instance, "local_running", 0)), is_lost=outcome.done,
        ))  # fmt: skip
        return outcome

    def _count_tasks(self) -> int:
        """Neither those that wait for local Activities, nor those whose payloads are on their way to or from a storage.

        One that is both is left out twice, for so long.
        """
        return self._slots.tasks - self._watch.count_waiting() - VISITS.count

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
    """True for the first activation of a run in this process, for those of its past, and for queries."""
    jobs: Any = getattr(act, "jobs", ())
    return bool(getattr(act, "is_replaying", False) or any(job.HasField("initialize_workflow") for job in jobs))


def find_instance(activate: Callable[..., Any]) -> Any:
    """The run whose activation this is; None if the SDK calls something else."""
    return getattr(getattr(activate, "__self__", None), "instance", None)


def find_tree(activate: Callable[..., Any]) -> Hashable:
    """The id of the root of the run whose activation this is; None if the SDK calls something else."""
    instance = find_instance(activate)
    if instance is None:
        return None
    info = instance.get_info()
    return str(info.root.workflow_id if info.root is not None else info.workflow_id)
