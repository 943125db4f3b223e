"""Watches the workflow tasks of this process: one that does not end is logged, stopped, and ends its own run only.

The SDK has a detector of its own: it fails every task that computes for two seconds, and the server begins the task
again, forever. A plan of ten thousand Calls takes longer on a busy machine. This watch replaces it, and tells a slow
machine from a stuck task by what the task's *thread* has computed, not by the wall clock.

Theory of operation. The server gives up a workflow task after its timeout (10 s by default), so a task that has
*computed* for that long can never be recorded. Its thread gets an exception, which stops any loop of Python code. A
thread that waits (a lock, a sleep, a socket) cannot be stopped from outside: it is left behind, and the SDK receives
the task's end in its place. Either way the task fails the first time, and the server begins it again: the cause may be
gone. The second time, the run fails with an error that names the place and says what to do: with this task or, where
the server has given it up meanwhile, with the next one, before it computes anything. In a replay a run cannot fail
(its history says that it went on): there its task fails each time, and the server waits longer after each.

C code that holds the interpreter lock stops this watch as well, and the whole process with it. Then the watchdog's
process ends it (``watchdog.py``), and the next worker on the machine counts what the run did.

The worker's own runner (``WatchedRunner``) and executor (``TaskThreads``) put each activation under the watch.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import sysconfig
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance

from acts.language.wire import MAX_PAYLOAD_BYTES, TASK_STUCK
from acts.worker.slots import LONG_SECONDS, TaskSlots, Turn, Turns

if TYPE_CHECKING:
    from types import FrameType

    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.worker import WorkflowInstanceDetails
    from temporalio.workflow import Info

    from acts.worker.memory import MemoryWatch
    from acts.worker.watchdog import TaskBoard

logger = logging.getLogger(__name__)

# Frames of these are the way to the code that matters: Python's own library, what is installed, and this room. Our own
# code counts, which an image has among the installed packages
_LIBRARIES: Final = ("<frozen", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_ROOT: Final = Path(__file__).resolve().parents[1]
# Deeper stacks are cut at their outer end; the place of interest is the inner one
MAX_FRAMES: Final = 40


def find_frame(thread_id: int | None) -> FrameType | None:
    """The innermost frame of a thread; None when it has ended."""
    return None if thread_id is None else sys._current_frames().get(thread_id)  # noqa: SLF001 - documented by CPython


def describe_place(frame: FrameType | None) -> str:
    """``file:line in function`` of the innermost frame that is no library's; of the innermost where all are."""
    place = frame
    while place is not None and _is_library(Path(place.f_code.co_filename)):
        place = place.f_back
    place = place or frame
    if place is None:
        return "an unknown place"
    path = Path(place.f_code.co_filename)
    short = path.relative_to(_ROOT.parent) if path.is_relative_to(_ROOT) else path
    return f"{short}:{place.f_lineno} in {place.f_code.co_qualname}"


def _is_library(path: Path) -> bool:
    if path.is_relative_to(_ROOT):
        return path.parent == Path(__file__).resolve().parent
    return str(path).startswith(_LIBRARIES)


def format_stack(frame: FrameType | None) -> str:
    """The stack as a traceback shows it, innermost frame last."""
    return "  (the thread has ended)\n" if frame is None else "".join(traceback.format_stack(frame)[-MAX_FRAMES:])


def count_thread_seconds(thread_id: int, started: float, now: float) -> float:
    """CPU seconds of a thread that runs; wall seconds since ``started`` where the system does not count them."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return now - started
    return time.clock_gettime(time.pthread_getcpuclockid(thread_id))


def raise_in_thread(thread_id: int, exception: type[BaseException] | None) -> None:
    """Raise an exception in a thread as soon as it runs Python code; None takes back one that waits for that."""
    error = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), error)


# == the watch ========================================================================================
# Parts of the task's timeout. A task that has run for half of it is reported: it still may end in time
REPORT_SHARE: Final = 0.5
# A task that computes for nearly all of it is lost in any case; the rest is for the answer
COMPUTE_SHARE: Final = 0.8
# After three timeouts, a thread that has computed for less than a tenth of the time waits for something that does not
# come: no paging or throttling takes so long
WAIT_SHARE: Final = 3.0
IDLE_SHARE: Final = 0.1
# How long a thread may take to leave its loop after the exception, before it is left behind
UNWIND_SECONDS: Final = 2.0
# The first may be chance; a run that fails is lost, so it takes a second time
ATTEMPTS: Final = 2
# More runs than can be stuck in one process before it is renewed
MAX_OFFENDERS: Final = 1_000


class StopTask(BaseException):
    """Raised in the thread of a workflow task that computes for too long."""


@dataclass(slots=True, eq=False)
class RunningTask:
    """One activation, from its start to its end. ``lock`` guards ``is_active``, ``is_stopped`` and the exception.

    ``is_live``: its run can fail by it; it is no replay, query or eviction.
    """

    instance: WatchedInstance
    info: Info
    is_live: bool
    is_eviction: bool
    thread_id: int = field(default_factory=threading.get_ident)
    started: float = field(default_factory=time.monotonic)
    computed_before: float = field(default_factory=time.thread_time)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_active: bool = True
    is_stopped: bool = False
    is_reported: bool = False
    stop_time: float = 0.0


class WorkflowWatch:
    """The tasks that run now, and the runs that were stuck. ``look`` is called about twice per second."""

    def __init__(self, board: TaskBoard) -> None:
        self._board = board
        self.count = 0
        self.slow_count = 0
        self.lost_threads = 0
        self._running: dict[int, RunningTask] = {}
        self._offences: Counter[str] = Counter()
        self._places: dict[str, str] = {}

    def count_earlier(self, ended: dict[str, int]) -> None:
        """Count the runs that have ended earlier worker processes, by run id."""
        self._offences.update(ended)
        self._places |= dict.fromkeys(ended, "C code that did not release the interpreter lock and so ended the worker")

    # -- in the threads of workflow tasks ----------------------------------------------------------

    def activate(self, instance: WatchedInstance, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation. Raises what ends the run or the task where it was stuck."""
        is_query = all(job.HasField("query_workflow") for job in act.jobs)
        is_live = not (act.is_replaying or is_query or is_eviction(act))
        task = RunningTask(instance, instance.get_info(), is_live, is_eviction(act))
        if task.is_eviction and instance.is_lost:
            return _empty_completion()  # its thread may still be inside: nothing can be torn down
        if is_live and self._offences[task.info.run_id] >= ATTEMPTS:
            raise self._verdict(task)
        completion = self._run(task, act)
        if completion is not None:
            return completion
        if task.is_eviction:
            return _empty_completion()
        raise self._verdict(task)

    def _run(self, task: RunningTask, act: WorkflowActivation) -> WorkflowActivationCompletion | None:
        """The completion; None for a task that was stopped."""
        self._running[task.thread_id] = task
        self._board.begin(_name(task.info), task.info.run_id if task.is_live else "")
        try:
            try:
                completion = task.instance.inner.activate(act)
            finally:
                self._end(task)
        except StopTask:
            self._end(task)  # the exception may have come in the midst of it
        return None if task.is_stopped else completion

    def _end(self, task: RunningTask) -> None:
        self._board.end()
        with task.lock:
            task.is_active = False
            if task.is_stopped:
                raise_in_thread(task.thread_id, None)
        if not task.instance.is_lost:
            self._running.pop(task.thread_id, None)

    # -- in the watching thread --------------------------------------------------------------------

    def look(self) -> None:
        """Judge every task that runs."""
        now = time.monotonic()
        for task in list(self._running.values()):
            if now - task.started > 1:
                with task.lock:
                    if task.is_active:
                        self._judge(task, now)

    def _judge(self, task: RunningTask, now: float) -> None:
        limit, elapsed = task.info.task_timeout.total_seconds() or 10.0, now - task.started
        computed = count_thread_seconds(task.thread_id, task.started, now) - task.computed_before
        if task.is_stopped:
            if now - task.stop_time > UNWIND_SECONDS:
                self._leave_behind(task)
        elif computed > limit * COMPUTE_SHARE or (elapsed > limit * WAIT_SHARE and computed < elapsed * IDLE_SHARE):
            self._stop(task, now, f"has run for {elapsed:.0f} s ({computed:.1f} s of CPU)")
        elif not task.is_reported and elapsed > limit * REPORT_SHARE:
            task.is_reported = True
            self.slow_count += 1
            text = "a workflow task has run for %.0f s (%.1f s of CPU): %s, at %s"
            logger.warning(text, elapsed, computed, _name(task.info), describe_place(find_frame(task.thread_id)))

    def _stop(self, task: RunningTask, now: float, why: str) -> None:
        """Raise the exception in the thread; the task's lock is held, so the thread cannot leave the task meanwhile."""
        frame, run_id = find_frame(task.thread_id), task.info.run_id
        task.stop_time, task.is_stopped = now, True
        self.count += 1
        self._places[run_id] = place = describe_place(frame)
        if task.is_live and len(self._offences) < MAX_OFFENDERS:
            self._offences[run_id] += 1
        logger.error(
            "a workflow task is stuck and is stopped: it %s; %s, at %s; stuck tasks of this process so far: %d\n%s",
            why, _name(task.info), place, self.count, format_stack(frame),
        )  # fmt: skip
        raise_in_thread(task.thread_id, StopTask)

    def _leave_behind(self, task: RunningTask) -> None:
        """Let the SDK go on without this thread, which waits where no exception reaches it."""
        task.is_active, task.instance.is_lost = False, True
        self._running.pop(task.thread_id, None)
        self.lost_threads += 1
        text = "the thread of the stuck task of %s does not end, and is left behind (%d so far)"
        logger.error(text, _name(task.info), self.lost_threads)
        with suppress(InvalidStateError):  # the thread may end at the same time
            if task.is_eviction:
                task.instance.outcome.set_result(_empty_completion())
            else:
                task.instance.outcome.set_exception(self._verdict(task))

    def _verdict(self, task: RunningTask) -> Exception:
        """What the SDK is to do: an ApplicationError that is not retryable fails the run, all else the task."""
        run_id = task.info.run_id
        text = f"a workflow task of this run did not end: it was stopped at {self._places.get(run_id)}"
        if not task.is_live or self._offences[run_id] < ATTEMPTS:
            return RuntimeError(text)
        return ApplicationError(
            f"{text}, twice. The run was ended, so that it does not stop others. Activities that have ended keep "
            "their effects. A smaller plan, smaller values, or a simpler schema may avoid it; please report this "
            "place with the plan",
            type=TASK_STUCK, non_retryable=True,
        )  # fmt: skip


def _empty_completion() -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion()
    completion.successful.SetInParent()
    return completion


def _name(info: Info) -> str:
    return f"workflow {info.workflow_type} {info.workflow_id!r}, run {info.run_id}"


# == workflows under the watch ==========================================================================
# Of queries that the server sends without a workflow task
QUERY_ID: Final = "legacy_query"


class WatchedRunner(UnsandboxedWorkflowRunner):
    """Runs workflows without a sandbox, each activation under the watch; ``memory`` learns what is cached.

    ``has_storage``: large values leave this worker as references. ``slots`` are those of its workflow tasks.
    """

    def __init__(
        self, watch: WorkflowWatch, memory: MemoryWatch, slots: TaskSlots, *, has_storage: bool = False
    ) -> None:
        self.watch, self.memory, self.slots, self.has_storage = watch, memory, slots, has_storage

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance under the watch."""
        instance: Any = WatchedInstance(self, super().create_instance(det), det.info.workflow_id)
        return instance  # type: ignore[no-any-return]


class WatchedInstance:
    """A workflow of the inner runner. ``outcome`` is that of its current activation.

    ``is_lost``: a thread that was left behind may still be inside.

    A query that comes with the whole history brings events whose workflow task has not begun. The SDK's core (1.35)
    applies them too, so the run goes ahead of its task, and its commands reach the history in an order that no replay
    has. Such a run is evicted, and replayed with its next task.
    """

    def __init__(self, runner: WatchedRunner, inner: WorkflowInstance, workflow_id: str = "") -> None:
        self.inner, self._runner, self._workflow_id = inner, runner, workflow_id
        self.outcome: Future[Any] = Future()
        self.is_lost = False
        self.local_running = 0
        self._task_start, self._events, self._live = (0, 0), 0, 0
        self._is_ahead = False

    def __getattr__(self, name: str) -> Any:
        """All else that the SDK calls goes straight to the inner instance."""
        method = getattr(self.inner, name)
        setattr(self, name, method)
        return method

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation under the watch."""
        memory = self._runner.memory
        memory.begin(act.run_id, self._workflow_id)
        must_evict = self._must_evict(act)
        try:
            completion = self._runner.watch.activate(self, act)
            self._count_local(act, completion)
            if not self._runner.has_storage and completion.ByteSize() > MAX_PAYLOAD_BYTES:
                self._require_storage(completion)
            return completion
        finally:
            if is_eviction(act):
                memory.remove(act.run_id)
            else:
                memory.end(act.run_id, is_busy=bool(self.local_running))
            if must_evict:
                self._runner.slots.take_others_singly()
                memory.evict(act.run_id)

    def _must_evict(self, act: WorkflowActivation) -> bool:
        """True for a query before which the run may have gone ahead of its task. Call it before each activation."""
        if any(job.HasField("query_workflow") for job in act.jobs):
            is_alone = any(job.query_workflow.query_id == QUERY_ID for job in act.jobs)
            return is_alone and (self._is_ahead or (self._live == 1 and self._runner.slots.has_uncached))
        task_start = (act.timestamp.seconds, act.timestamp.nanos)
        if not act.is_replaying:
            self._live += 1
            self._is_ahead |= task_start == self._task_start and act.history_length > self._events
        self._task_start, self._events = task_start, act.history_length
        return False

    def _count_local(self, act: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        """Count the tasks that wait for local Activities: they hold a slot, and need no interpreter meanwhile."""
        before = self.local_running
        started = sum(c.HasField("schedule_local_activity") for c in completion.successful.commands)
        ended = sum(j.resolve_activity.is_local for j in act.jobs if j.HasField("resolve_activity")) if before else 0
        self.local_running = 0 if is_eviction(act) else max(0, before + started - ended)
        if bool(self.local_running) != bool(before):
            self._runner.slots.count_waiting(1 if self.local_running else -1)

    def _require_storage(self, completion: WorkflowActivationCompletion) -> None:
        """Fail the task of a run whose values were to be stored: the server would terminate the run for them."""
        if not getattr(getattr(self.inner, "_object", None), "uses_storage", False):
            return
        for command in completion.successful.commands:
            # A refused update returns what its sender sent; the server drops it, and nothing else
            if command.WhichOneof("variant") != "update_response" and command.ByteSize() > MAX_PAYLOAD_BYTES:
                raise RuntimeError(
                    f"this run has external storage, and sends {command.ByteSize():,} bytes; this worker has none: "
                    "set ACTS_STORAGE to what the other workers have"
                )


class TaskThreads(ThreadPoolExecutor):
    """The threads of workflow tasks. A result may come from the watch instead of from the thread."""

    def __init__(self, slots: TaskSlots, max_workers: int) -> None:
        super().__init__(max_workers, thread_name_prefix="workflow")
        self._slots = slots
        self._turns = Turns(self._start, lambda: slots.tasks, self._wake_later)
        slots.on_answer = self._turns.release

    def submit(self, activate: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Run an activation in a thread when its turn comes; the future may be settled by the watch."""
        outcome: Future[Any] = Future()
        (act,) = args
        instance: WatchedInstance = activate.__self__.instance  # type: ignore[attr-defined]
        is_uncached = act.is_replaying or any(job.HasField("initialize_workflow") for job in act.jobs)
        is_work = not is_eviction(act)
        # A task that waits for local Activities is no task to the slots
        self._turns.add(
            Turn(
                find_tree(instance.get_info()), partial(_settle, outcome, instance, activate, act),
                may_wait=is_work and not is_uncached, is_counted=is_work and not instance.local_running,
            )
        )  # fmt: skip
        return outcome

    def _start(self, turn: Turn) -> None:
        super().submit(self._run, turn)

    def _wake_later(self) -> None:
        timer = threading.Timer(LONG_SECONDS, self._turns.wake)
        timer.daemon = True
        timer.start()

    def _run(self, turn: Turn) -> None:
        before = time.thread_time()
        try:
            turn.task()
        finally:
            self._turns.end(turn, time.thread_time() - before)
            if turn.may_wait:
                self._slots.adjust_sticky(time.monotonic() - turn.arrival)


def _settle(outcome: Future[Any], instance: WatchedInstance, activate: Callable[..., Any], act: Any) -> None:
    """Run an activation; its result goes to ``outcome``, unless the watch has given it one."""
    instance.outcome = outcome
    try:
        settle = partial(outcome.set_result, activate(act))
    except BaseException as error:  # noqa: BLE001 - what it is, the SDK decides
        settle = partial(outcome.set_exception, error)
    with suppress(InvalidStateError):
        settle()


def is_eviction(act: WorkflowActivation) -> bool:
    """True for an activation that only removes a run from the cache."""
    return len(act.jobs) == 1 and act.jobs[0].HasField("remove_from_cache")


def find_tree(info: Info) -> Hashable:
    """The id of the root of a run."""
    return str(info.root.workflow_id if info.root is not None else info.workflow_id)


# A blocked loop is found within a second and a half
LOOK_SECONDS: Final = 0.5


@contextmanager
def keep_looking(looks: Sequence[Callable[[], None]]) -> Iterator[None]:
    """A block in which a thread calls each of ``looks`` twice per second."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(LOOK_SECONDS):
            for look in looks:
                try:
                    look()
                except Exception:
                    logger.exception("the watch of this process failed; it goes on")

    threading.Thread(target=run, name="watch", daemon=True).start()
    try:
        yield
    finally:
        stop.set()
