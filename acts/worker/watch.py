"""Watches this process from a thread: workflow tasks that do not end, and its memory.

**Tasks.** The server gives up a workflow task after its timeout (10 s by default), so one whose *thread* has computed
for that long can never be recorded. The thread gets an exception, which stops any loop of Python code. A thread that
waits (a lock, a sleep, a socket) cannot be stopped from outside: it is left behind, and the SDK receives the task's end
in its place. The first time the task fails, and the server begins it again: the cause may be gone. The second time, the
run fails with an error that names the place: with this task or, where the server has given it up meanwhile, with the
next one, before it computes anything. In a replay a run cannot fail (its history says that it went on): its task does,
each time. C code that holds the interpreter lock stops this watch as well, and is left to ``watchdog.py``.

**Memory.** The SDK bounds its cache by the number of workflows only. One that waits for a person takes about 85 kB, one
in mid-plan tens of megabytes. So above a mark those that have been idle longest are evicted: the next task of each
replays its history. One that has ended is garbage with cycles in it, so the watch also collects as workflows end.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.exceptions import ApplicationError

from acts.language.wire import TASK_STUCK

if TYPE_CHECKING:
    from types import FrameType

    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.worker import WorkflowInstance
    from temporalio.workflow import Info

    from acts.worker.watchdog import TaskBoard

logger = logging.getLogger(__name__)
# A blocked loop is found within a second and a half, and a task that waits has its turn in time
LOOK_SECONDS: Final = 0.25


@contextmanager
def keep_looking(looks: Sequence[Callable[[], None]]) -> Iterator[None]:
    """A block in which a thread calls each of ``looks`` four times per second."""
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


# == places of threads ================================================================================
# Frames of these, and of this room, are the way to the code that matters. Our own may be among the installed packages
_LIBRARIES: Final = ("<frozen", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_ROOT: Final = Path(__file__).resolve().parents[1]
MAX_FRAMES: Final = 40  # deeper stacks are cut at their outer end; the place of interest is the inner one


def find_frame(thread_id: int | None) -> FrameType | None:
    return None if thread_id is None else sys._current_frames().get(thread_id)  # noqa: SLF001 - documented by CPython


def describe_place(frame: FrameType | None) -> str:
    """``file:line in function`` of the innermost frame that is no library's; of the innermost where all are."""
    place = frame
    while place is not None:
        path = Path(place.f_code.co_filename)
        is_own = path.is_relative_to(_ROOT)
        if path.parent != Path(__file__).resolve().parent if is_own else not str(path).startswith(_LIBRARIES):
            break
        place = place.f_back
    place = place or frame
    if place is None:
        return "an unknown place"
    path = Path(place.f_code.co_filename)
    short = path.relative_to(_ROOT.parent) if path.is_relative_to(_ROOT) else path
    return f"{short}:{place.f_lineno} in {place.f_code.co_qualname}"


def format_stack(frame: FrameType | None) -> str:
    return "  (the thread has ended)\n" if frame is None else "".join(traceback.format_stack(frame)[-MAX_FRAMES:])


def raise_in_thread(thread_id: int, exception: type[BaseException] | None) -> None:
    """Raise an exception in a thread as soon as it runs Python code; None takes back one that waits for that."""
    error = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), error)


# == workflow tasks ===================================================================================
# Parts of the task's timeout. A task that has run for half of it is reported: it still may end in time
REPORT_SHARE: Final = 0.5
# A task that computes for nearly all of it is lost in any case; the rest is for the answer
COMPUTE_SHARE: Final = 0.8
# After three timeouts, a thread that has computed for less than a tenth of the time waits for what does not come
WAIT_SHARE: Final = 3.0
IDLE_SHARE: Final = 0.1
# How long a thread may take to leave its loop after the exception, before it is left behind
UNWIND_SECONDS: Final = 2.0
ATTEMPTS: Final = 2  # the first may be chance; a run that fails is lost, so it takes a second time
MAX_OFFENDERS: Final = 1_000  # more runs than can be stuck in one process before it is renewed


class StopTask(BaseException):
    """Raised in the thread of a workflow task that computes for too long."""


@dataclass(eq=False)
class Activated:
    """A workflow of the SDK, and the outcome of its activation.

    ``is_lost``: a thread that was left behind may still be inside.
    """

    inner: WorkflowInstance
    outcome: Future[Any] = field(default_factory=Future)
    is_lost: bool = False


@dataclass(slots=True, eq=False)
class RunningTask:
    """One activation, from its start to its end. ``lock`` guards ``is_active``, ``is_stopped`` and the exception.

    ``is_live``: its run can fail by it; it is no replay, query or eviction.
    """

    instance: Activated
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

    @property
    def name(self) -> str:
        return f"workflow {self.info.workflow_type} {self.info.workflow_id!r}, run {self.info.run_id}"


class WorkflowWatch:
    """The tasks that run now, and the runs that were stuck. ``look`` is called some times per second."""

    def __init__(self, board: TaskBoard) -> None:
        self._board = board
        self.count = self.slow_count = self.lost_threads = 0
        self._running: dict[int, RunningTask] = {}
        self._offences: Counter[str] = Counter()
        self._places: dict[str, str] = {}

    def count_earlier(self, ended: dict[str, int]) -> None:
        """Count the runs that have ended earlier worker processes, by run id."""
        self._offences.update(ended)
        self._places |= dict.fromkeys(ended, "C code that did not release the interpreter lock and so ended the worker")

    # -- in the threads of workflow tasks

    def activate(self, instance: Activated, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation. Raises what ends the run or the task where it was stuck."""
        is_query = all(job.HasField("query_workflow") for job in act.jobs)
        is_live = not (act.is_replaying or is_query or is_eviction(act))
        task = RunningTask(instance, instance.inner.get_info(), is_live, is_eviction(act))
        if task.is_eviction and instance.is_lost:
            return _empty_completion()  # its thread may still be inside: nothing can be torn down
        if is_live and self._offences[task.info.run_id] >= ATTEMPTS:
            raise self._verdict(task)
        self._running[task.thread_id] = task
        self._board.begin(task.name, task.info.run_id if is_live else "")
        try:
            try:
                completion = instance.inner.activate(act)
            finally:
                self._end(task)
        except StopTask:
            self._end(task)  # the exception may have come in the midst of it
        if not task.is_stopped:
            return completion
        if task.is_eviction:
            return _empty_completion()
        raise self._verdict(task)

    def _end(self, task: RunningTask) -> None:
        self._board.end()
        with task.lock:
            task.is_active = False
            if task.is_stopped:
                raise_in_thread(task.thread_id, None)
        if not task.instance.is_lost:
            self._running.pop(task.thread_id, None)

    # -- in the watching thread

    def look(self) -> None:
        now = time.monotonic()
        for task in list(self._running.values()):
            if now - task.started > 1:
                with task.lock:
                    if task.is_active:
                        self._judge(task, now)

    def _judge(self, task: RunningTask, now: float) -> None:
        limit, elapsed = task.info.task_timeout.total_seconds() or 10.0, now - task.started
        computed = elapsed
        if hasattr(time, "pthread_getcpuclockid"):  # not on macOS
            computed = time.clock_gettime(time.pthread_getcpuclockid(task.thread_id)) - task.computed_before
        if task.is_stopped:
            if now - task.stop_time > UNWIND_SECONDS:
                self._leave_behind(task)
        elif computed > limit * COMPUTE_SHARE or (elapsed > limit * WAIT_SHARE and computed < elapsed * IDLE_SHARE):
            self._stop(task, now, f"has run for {elapsed:.0f} s ({computed:.1f} s of CPU)")
        elif not task.is_reported and elapsed > limit * REPORT_SHARE:
            task.is_reported = True
            self.slow_count += 1
            text = "a workflow task has run for %.0f s (%.1f s of CPU): %s, at %s"
            logger.warning(text, elapsed, computed, task.name, describe_place(find_frame(task.thread_id)))

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
            why, task.name, place, self.count, format_stack(frame),
        )  # fmt: skip
        raise_in_thread(task.thread_id, StopTask)

    def _leave_behind(self, task: RunningTask) -> None:
        """Let the SDK go on without this thread, which waits where no exception reaches it."""
        task.is_active, task.instance.is_lost = False, True
        self._running.pop(task.thread_id, None)
        self.lost_threads += 1
        text = "the thread of the stuck task of %s does not end, and is left behind (%d so far)"
        logger.error(text, task.name, self.lost_threads)
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
        text += (
            ", twice. The run was ended, so that it does not stop others. Activities that have ended keep their effects"
            ". A smaller plan, smaller values, or a simpler schema may avoid it; please report this place with the plan"
        )
        return ApplicationError(text, type=TASK_STUCK, non_retryable=True)


def is_eviction(act: WorkflowActivation) -> bool:
    return len(act.jobs) == 1 and act.jobs[0].HasField("remove_from_cache")


def _empty_completion() -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion()
    completion.successful.SetInParent()
    return completion


# == memory ===========================================================================================
# Of the limit: the rest is for what comes between two looks, such as the results of many Activities
HIGH_SHARE: Final = 0.8
# Of the idle workflows, at each round: small steps, since a run that is evicted costs a replay
EVICTED_SHARE: Final = 0.25
ROUND_SECONDS: Final = 0.5  # between two rounds: the SDK evicts asynchronously
IDLE_SECONDS: Final = 1.0  # a workflow that computed a moment ago will do so again
# Growth, and workflows that have ended, since the last collection from which on another is worth the pause: up to half
# a second beside a batch of 20,000 instances
COLLECTED_BYTES: Final = 48 * 1024 * 1024
COLLECTED_RUNS: Final = 10


@dataclass(slots=True)
class CachedRun:
    """A workflow in the SDK's cache. ``is_busy``: it computes, or waits for a local Activity."""

    last_use: float
    run_id: str
    workflow_id: str = ""
    is_busy: bool = True


def measure_memory() -> int:
    """What this process takes, in bytes; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def read_container_limit() -> int:
    """What the container may take, in bytes, as Linux says; 0 without a limit."""
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError):
            text = Path("/sys/fs/cgroup", file).read_text("ascii").strip()
            # "max", or a number near 2**63, stands for no limit
            return int(text) if text.isdigit() and int(text) < 1 << 60 else 0
    return 0


class MemoryWatch:
    """The workflows in the cache. ``limit_bytes`` 0: no limit. ``evict`` asks the SDK to give one up, by run id.

    ``is_short``: the process takes too much. ``on_change`` is called when that ends, or begins.
    """

    def __init__(self, limit_bytes: int = 0, measure: Callable[[], int] = measure_memory) -> None:
        self._mark = int(limit_bytes * HIGH_SHARE)
        self._measure = measure
        self.runs: dict[str, CachedRun] = {}
        self._next_round = 0.0
        self._ended = self._size_collected = self.evictions = 0
        self.evict: Callable[[str], None] = lambda _run_id: None
        self.is_short = False
        self.on_change: list[Callable[[], None]] = []

    def begin(self, run_id: str, workflow_id: str = "") -> None:
        self.runs[run_id] = CachedRun(time.monotonic(), run_id, workflow_id)

    def end(self, run_id: str, *, is_busy: bool) -> None:
        """It has computed; ``is_busy``: its task goes on, with a local Activity."""
        run = self.runs.get(run_id)
        if run is not None:
            run.last_use, run.is_busy = time.monotonic(), is_busy

    def remove(self, run_id: str) -> None:
        self.runs.pop(run_id, None)
        self._ended += 1

    def find_idle(self) -> list[CachedRun]:
        """The workflows that do nothing, the longest idle first."""
        return sorted((run for run in list(self.runs.values()) if not run.is_busy), key=lambda run: run.last_use)

    def look(self, now: float | None = None) -> None:
        """Collect garbage, and evict some workflows where the process takes too much; called some times per second."""
        now = time.monotonic() if now is None else now
        if self._ended >= COLLECTED_RUNS and self._measure() >= self._size_collected + COLLECTED_BYTES:
            _release_memory()
            self._ended, self._size_collected = 0, self._measure()
        size = self._measure() if self._mark else 0
        if self.is_short != (size > self._mark):
            self.is_short = not self.is_short
            for tell in self.on_change:
                tell()
        if not self.is_short or now < self._next_round:
            return
        self._next_round = now + ROUND_SECONDS
        idle = [run for run in self.find_idle() if now - run.last_use > IDLE_SECONDS]
        if not idle:
            return
        chosen = idle[: max(1, int(len(idle) * EVICTED_SHARE))]
        logger.warning(
            "this worker takes %d MB, above its mark of %d MB: it gives up %d of %d cached workflows",
            size >> 20, self._mark >> 20, len(chosen), len(self.runs),
        )  # fmt: skip
        self.evictions += len(chosen)
        for run in chosen:
            self.evict(run.run_id)
        _release_memory()


def _release_memory() -> None:
    """Collect what earlier evictions left in cycles, and give free memory back to the system."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError):  # musl gives it back by itself
            ctypes.CDLL(None).malloc_trim(0)
