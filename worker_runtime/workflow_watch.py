"""Watches the workflow tasks of this process: one that does not end is logged, stopped, and ends its own run only.

The SDK has a detector of its own: it fails every task that computes for two seconds, and the server begins the task
again, for ever. A plan of ten thousand Calls takes longer on a busy machine. This watch replaces it, and tells a slow
machine from a stuck task by what the task's *thread* has computed, not by the wall clock.

Theory of operation. The server gives up a workflow task after its timeout (10 s by default), so a task that has
*computed* for that long can never be recorded. Its thread gets an exception, which stops any loop of Python code. A
thread that waits (a lock, a sleep, a socket) cannot be stopped from outside: it is left behind, and the SDK receives
the task's end in its place. Either way,

* the first time, the task fails, and the server begins it again: the cause may be gone;
* the second time, the run fails with an error that names the place and says what to do: with this task, or, where
  the server has given it up meanwhile, with the next one, before it computes anything;
* during a replay a run cannot fail (its history says that it went on), so the task fails each time, and from the
  second time on without computing anything: the run is *set aside* until a corrected worker replays it.

C code that holds the interpreter lock stops this watch as well, and the whole process with it. Then the watchdog's
process ends it (``watchdog.py``), and the next worker on the machine counts what the run did (``set_aside``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from temporalio.exceptions import ApplicationError

from acts.language.wire import TASK_STUCK
from worker_runtime.thread_control import clear_exception, count_thread_seconds, raise_in_thread
from worker_runtime.thread_stacks import describe_place, find_frame, format_stack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
    from temporalio.workflow import Info

    from worker_runtime.watchdog import TaskBoard
    from worker_runtime.watched_runner import WatchedInstance

logger = logging.getLogger(__name__)

# Parts of the task's timeout. A task that computes for half of it is reported: it still may end in time
REPORT_SHARE: Final = 0.5
# A task that computes for nearly all of it is lost in any case; the rest is for the answer
COMPUTE_SHARE: Final = 0.8
# A thread that neither computes nor ends waits for something; three timeouts are more than any paging or throttling
WAIT_SHARE: Final = 3.0
# How long a thread may take to leave its loop after the exception, before it is left behind
UNWIND_SECONDS: Final = 2.0
# Below this much computing between two looks (a second), a thread waits
IDLE_SECONDS: Final = 0.005
# The first may be chance; a run that fails is lost, so it takes a second time
ATTEMPTS: Final = 2
# More runs than can be stuck in one process before it is renewed
MAX_OFFENDERS: Final = 1_000


class StopTask(BaseException):
    """Raised in the thread of a workflow task that computes for too long."""


@dataclass(slots=True, eq=False)
class RunningTask:
    """One activation, from its start to its end. ``lock`` guards ``is_active``, ``is_stopped`` and the exception."""

    instance: WatchedInstance
    info: Info
    thread_id: int
    outcome: Future[Any] | None
    is_replaying: bool
    is_query: bool
    is_eviction: bool
    started: float
    computed_before: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_active: bool = True
    is_stopped: bool = False
    is_reported: bool = False
    stop_time: float = 0.0
    place: str = ""
    computed: float = 0.0
    idle_since: float | None = None


class WorkflowWatch:
    """The tasks that run now, and the runs that were stuck. ``look`` is called about once per second."""

    def __init__(self, board: TaskBoard | None = None) -> None:
        self._board = board
        self.count = 0
        self.slow_count = 0
        self.lost_threads = 0
        self.on_wait: Callable[[], None] = lambda: None
        self.on_look: Callable[[], None] = lambda: None
        self._waiting = 0
        self._running: dict[int, RunningTask] = {}
        self._offences: Counter[str] = Counter()
        self._replay_offences: Counter[str] = Counter()
        self._places: dict[str, str] = {}
        self._local = threading.local()

    def set_aside(self, ended: Mapping[str, int]) -> None:
        """Count the runs that have ended earlier worker processes; by run id, followed by " replay" for a replay."""
        for key, count in ended.items():
            run_id, _, replay = key.partition(" ")
            (self._replay_offences if replay else self._offences)[run_id] = count
            self._places[run_id] = "C code that did not release the interpreter lock and so ended the worker"

    # -- in the threads of workflow tasks ----------------------------------------------------------

    def activate(self, instance: WatchedInstance, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation. Raises what ends the run or the task where it was stuck."""
        info = instance.get_info()
        kinds = [job.WhichOneof("variant") for job in act.jobs]
        is_eviction = kinds == ["remove_from_cache"]
        if instance.is_lost and is_eviction:
            completion = _empty_completion()  # its thread may still be inside: nothing can be torn down
            self._count_local(instance, act, completion, is_eviction=True)
            return completion
        task = RunningTask(
            instance, info, threading.get_ident(), getattr(self._local, "outcome", None), act.is_replaying,
            bool(kinds) and all(kind == "query_workflow" for kind in kinds), is_eviction,
            time.monotonic(), time.thread_time(),
        )  # fmt: skip
        if not is_eviction and self._is_hopeless(task):
            raise self._verdict(task)
        return self._watched(task, instance, act)

    def _is_hopeless(self, task: RunningTask) -> bool:
        """True for a task that was stuck twice, in a replay or after it."""
        if not self._offences and not self._replay_offences:
            return False
        if self._replay_offences[task.info.run_id] >= ATTEMPTS:
            return True
        is_live = not task.is_replaying and not task.is_query
        return is_live and self._offences[task.info.run_id] >= ATTEMPTS

    def _watched(
        self, task: RunningTask, instance: WatchedInstance, act: WorkflowActivation
    ) -> WorkflowActivationCompletion:
        completion = None
        self._running[task.thread_id] = task
        if self._board is not None:
            is_harmless = task.is_query or task.is_eviction
            self._board.begin(
                _name(task.info), "" if is_harmless else task.info.run_id + (" replay" if task.is_replaying else "")
            )
        try:
            try:
                completion = instance.inner.activate(act)
            finally:
                self._end(task)
        except StopTask:
            self._end(task)  # the exception may have come in the midst of it
        if task.is_stopped:
            if task.is_eviction:
                return _empty_completion()
            raise self._verdict(task)
        assert completion is not None  # noqa: S101 - only a stopped task has none
        self._count_local(instance, act, completion, is_eviction=task.is_eviction)
        return completion

    def _count_local(
        self, instance: WatchedInstance, act: WorkflowActivation, completion: WorkflowActivationCompletion,
        *, is_eviction: bool,
    ) -> None:  # fmt: skip
        """Count the tasks that wait for local Activities: they hold a slot, and need no interpreter meanwhile."""
        before = instance.local_running
        if is_eviction:
            instance.local_running = 0
        else:
            instance.local_running += sum(c.HasField("schedule_local_activity") for c in completion.successful.commands)
            if before:
                ended = sum(j.HasField("resolve_activity") and j.resolve_activity.is_local for j in act.jobs)
                instance.local_running = max(0, instance.local_running - ended)
        change = bool(instance.local_running) - bool(before)
        if change:
            with _counting:
                self._waiting += change
        if change > 0:
            self.on_wait()

    def count_waiting(self) -> int:
        """How many tasks wait for local Activities now."""
        return self._waiting

    def _end(self, task: RunningTask) -> None:
        if self._board is not None:
            self._board.end()
        with task.lock:
            task.is_active = False
            if task.is_stopped:
                clear_exception(task.thread_id)
        if not task.instance.is_lost:
            self._running.pop(task.thread_id, None)

    def run_with_outcome(self, outcome: Future[Any], function: Callable[..., Any], *args: Any) -> None:
        """Run a function of the SDK in this thread; its result goes to ``outcome``, unless that has one already."""
        self._local.outcome = outcome
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - what it is, the SDK decides
            _settle(outcome, error=error)
        else:
            _settle(outcome, result=result)
        finally:
            self._local.outcome = None

    # -- in the watching thread --------------------------------------------------------------------

    def look(self, now: float | None = None) -> None:
        """Judge every task that runs."""
        self.on_look()
        now = time.monotonic() if now is None else now
        for task in list(self._running.values()):
            if now - task.started > 1:
                with task.lock:
                    if task.is_active:
                        self._judge(task, now)

    def _judge(self, task: RunningTask, now: float) -> None:
        before, task.computed = (
            task.computed,
            count_thread_seconds(task.thread_id, task.started, now) - task.computed_before,
        )
        limit = task.info.task_timeout.total_seconds() or 10.0
        if task.computed - before > IDLE_SECONDS:
            task.idle_since = None
        elif task.idle_since is None:
            task.idle_since = now
        if task.is_stopped:
            if now - task.stop_time > UNWIND_SECONDS:
                self._leave_behind(task)
        elif task.computed > limit * COMPUTE_SHARE:
            self._stop(task, now, f"computed for {task.computed:.0f} s")
        elif task.idle_since is not None and now - task.idle_since > limit * WAIT_SHARE:
            self._stop(task, now, f"has waited for {now - task.idle_since:.0f} s without computing")
        elif not task.is_reported and now - task.started > limit * REPORT_SHARE:
            task.is_reported = True
            self.slow_count += 1
            frame = find_frame(task.thread_id)
            logger.warning(
                "a workflow task has run for %.0f s (%.1f s of CPU): %s, at %s",
                now - task.started, task.computed, _name(task.info), describe_place(frame),
            )  # fmt: skip

    def _stop(self, task: RunningTask, now: float, why: str) -> None:
        """Raise the exception in the thread; the task's lock is held, so the thread cannot leave the task meanwhile."""
        frame: FrameType | None = find_frame(task.thread_id)
        task.place, task.stop_time, task.is_stopped = describe_place(frame), now, True
        self.count += 1
        offences = self._replay_offences if task.is_replaying else self._offences
        if not task.is_query and not task.is_eviction and len(offences) < MAX_OFFENDERS:
            offences[task.info.run_id] += 1
            self._places[task.info.run_id] = task.place
        logger.error(
            "a workflow task is stuck and is stopped: it %s; %s, at %s; stuck tasks of this process so far: %d\n%s",
            why, _name(task.info), task.place, self.count, format_stack(frame),
        )  # fmt: skip
        raise_in_thread(task.thread_id, StopTask)

    def _leave_behind(self, task: RunningTask) -> None:
        """Let the SDK go on without this thread, which waits where no exception reaches it."""
        task.is_active, task.instance.is_lost = False, True
        self._running.pop(task.thread_id, None)
        self.lost_threads += 1
        logger.error(
            "the thread of the stuck task of %s does not end, and is left behind (%d so far)",
            _name(task.info), self.lost_threads,
        )  # fmt: skip
        if task.outcome is not None:
            if task.is_eviction:
                _settle(task.outcome, result=_empty_completion())
            else:
                _settle(task.outcome, error=self._verdict(task))

    def _verdict(self, task: RunningTask) -> Exception:
        """What the SDK is to do: an ApplicationError that is not retryable fails the run, all else the task."""
        place = self._places.get(task.info.run_id, task.place)
        text = f"a workflow task of this run did not end: it was stopped at {place}"
        if self._replay_offences[task.info.run_id] >= ATTEMPTS:
            return RuntimeError(
                f"{text}. The run is set aside: its history cannot be replayed. Its next tasks fail at once, until a "
                "worker with corrected code is started"
            )
        if task.is_query or task.is_replaying or self._offences[task.info.run_id] < ATTEMPTS:
            return RuntimeError(text)
        return ApplicationError(
            f"{text}, twice. The run was ended, so that it does not stop others. Activities that have ended keep "
            "their effects. A smaller plan, smaller values, or a simpler schema may avoid it; please report this "
            "place with the plan",
            type=TASK_STUCK, non_retryable=True,
        )  # fmt: skip


def _settle(outcome: Future[Any], *, result: Any = None, error: BaseException | None = None) -> None:
    """Give a future its result, unless it has one: the watch and the thread may end a task at the same time."""
    with _settling:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)


_settling: Final = threading.Lock()
_counting: Final = threading.Lock()


def _empty_completion() -> WorkflowActivationCompletion:
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

    completion = WorkflowActivationCompletion()
    completion.successful.SetInParent()
    return completion


def _name(info: Info) -> str:
    return f"workflow {info.workflow_type} {info.workflow_id!r}, run {info.run_id}"
