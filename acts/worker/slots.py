"""What this process accepts: slots for Activities and for workflow tasks, whose task is next, and each under the watch.

One interpreter computes one thing at a time, and the server gives up a task after its timeout (10 s by default). With
the SDK's own limit, which takes all tasks in the order of their arrival, fifty replays side by side would all be given
up, and each step of a small plan would wait for as many tasks as a large batch beside it has in flight.

* **Slots**: many *sticky* tasks (of a run in the cache) are accepted as long as each is done soon. Any other may replay
  a long history: one at a time at first, one more after each that was quick.
* **Turns**: of the trees of runs (a root and all below it), the one that has computed least lately goes first. The
  server's database writes in the order of arrival, so a busy tree has only a few answers at a time on their way there,
  and one while a quiet tree is at work. So ten calls beside a large batch take at most three times their time alone
  (``docs/sizing.md``), not 11 times.
* **Kept slots**: of the slots for Activities, some are for runs with few Calls in flight (``ActivitySlots``).
"""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time
from abc import ABC
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from temporalio.bridge import worker as sdk
from temporalio.converter import _extstore
from temporalio.converter._data_converter import _has_reference_marker
from temporalio.converter._data_converter import _is_reference_payload as _is_plain_reference
from temporalio.worker import CustomSlotSupplier, SlotPermit, UnsandboxedWorkflowRunner, WorkflowInstance
from temporalio.worker._command_aware_visitor import CommandAwarePayloadVisitor

from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.payloads.codec import UnknownKey
from acts.payloads.stores import StorageError, StorageUnavailable
from acts.telemetry.logs import current_call
from acts.worker.watch import Activated, MemoryWatch, WorkflowWatch, is_eviction
from acts.workflows.payloads import LOST, is_storing, lost_patch, lost_value

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
    from temporalio.converter import DataConverter
    from temporalio.worker import SlotMarkUsedContext, SlotReleaseContext, SlotReserveContext, WorkflowInstanceDetails

# Sticky tasks at once, at first and after one that took long; and at most: more than the Activities that a tree has in
# flight by default (100), each of which brings one
MIN_STICKY, MAX_STICKY = 8, 128
LATE_SECONDS: Final = 2.0  # from its arrival until it has computed: a fifth of the server's timeout
# Others at once: first tasks of new runs take some milliseconds, most of them for the way to the server and back
MAX_OTHERS: Final = 8
# Above this a task was a long replay: with eight at once, each would take eight times as long, near the server's 10 s
SLOW_SECONDS: Final = 0.5
# After a query's run was evicted: of what arrives for it within moments, the SDK's core (1.35) keeps one task only
SINGLY_SECONDS: Final = 5.0


@dataclass(eq=False)
class Permit(SlotPermit):
    """A slot of either kind; ``start`` is when a task began to use it."""

    is_sticky: bool
    start: float | None = None


# While memory is short: enough to go on, since what ends gives memory back
SHORT_TASKS: Final = {True: MIN_STICKY, False: 1}
SHORT_ACTIVITIES: Final = 4


class WaitingSlots(CustomSlotSupplier, ABC):
    """Slots of which one is waited for until there is one; ``memory`` says whether it is short."""

    def __init__(self, memory: MemoryWatch | None) -> None:
        self._lock = threading.Lock()
        self._memory = memory or MemoryWatch()
        self._memory.on_change.append(self._wake_all)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._change = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        self._loop = asyncio.get_running_loop()
        while (permit := self._try_poll(ctx)) is None:
            self._change.clear()
            await self._change.wait()
        return permit

    def _try_poll(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """A slot for a poll of the queue."""
        return self.try_reserve_slot(ctx)

    def _wake_all(self) -> None:
        """Let those that wait look again, by way of the loop: whoever looked a moment ago in vain waits by then."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._change.set)


class TaskSlots(WaitingSlots):
    """Slots for workflow tasks. ``on_answer`` is called, in any thread, when the server has the answer to one."""

    def __init__(self, memory: MemoryWatch | None = None) -> None:
        super().__init__(memory)
        self._in_use = {True: 0, False: 0}
        self._most = {True: MIN_STICKY, False: 1}
        self._begun = {True: 0, False: 0}
        self._waiting, self._singly_until = 0, 0.0
        self.on_answer: Callable[[], None] = lambda: None
        self._is_closed = False
        # Weak: a slot that the SDK asked for and no longer wants, as when it stops, is dropped and not released
        self._sticky_polls: WeakSet[Permit] = WeakSet()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        permit: Any = await super().reserve_slot(ctx)
        if ctx.is_sticky:
            self._sticky_polls.add(permit)
        return permit  # type: ignore[no-any-return]

    def try_reserve_slot(self, ctx: SlotReserveContext) -> Permit | None:
        kind = ctx.is_sticky
        with self._lock:
            most = min(self._most[kind], SHORT_TASKS[kind]) if self._memory.is_short else self._most[kind]
            if self._is_closed or self._in_use[kind] >= most + self._waiting:
                return None
            self._in_use[kind] += 1
        return Permit(is_sticky=kind)

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        if isinstance(ctx.permit, Permit):
            ctx.permit.start = time.monotonic()
            self._sticky_polls.discard(ctx.permit)
            with self._lock:
                self._begun[ctx.permit.is_sticky] += 1

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """A task has ended, or a poll without one."""
        permit: Any = ctx.permit
        self._sticky_polls.discard(permit)
        with self._lock:
            self._in_use[permit.is_sticky] -= 1
            if permit.start is not None:
                self._begun[permit.is_sticky] -= 1
                if not permit.is_sticky:
                    now = time.monotonic()
                    takes_one = now - permit.start > SLOW_SECONDS or now < self._singly_until
                    self._most[False] = 1 if takes_one else min(self._most[False] + 1, MAX_OTHERS)
        self._wake_all()
        if permit.start is not None:
            self.on_answer()

    def adjust_sticky(self, seconds: float) -> None:
        """A task of a cached run has computed, so long after it came: accept one more, or few where that was long."""
        with self._lock:
            self._most[True] = MIN_STICKY if seconds > LATE_SECONDS else min(self._most[True] + 1, MAX_STICKY)
        self._wake_all()

    def count_waiting(self, change: int) -> None:
        """So many more, or fewer, tasks only wait for local Activities: they need no interpreter meanwhile."""
        with self._lock:
            self._waiting += change
        self._wake_all()

    def take_others_singly(self) -> None:
        """For a while, accept one task at a time that is not sticky."""
        with self._lock:
            self._singly_until, self._most[False] = time.monotonic() + SINGLY_SECONDS, 1

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    @property
    def tasks(self) -> int:
        """How many tasks compute, or wait for it, or have answers on their way to the server."""
        return self._begun[True] + self._begun[False] - self._waiting

    @property
    def has_uncached(self) -> bool:
        """True while a task is here that came with the whole history of its run."""
        return self._begun[False] > 0

    @property
    def sticky_polls(self) -> int:
        """How many slots are held by polls of the sticky queue that have not brought a task."""
        return len(self._sticky_polls)


# Of the slots for Activities, one of so many is kept. A run with at most so many Calls in flight may have one
KEPT_PART: Final = 10
FEW_CALLS: Final = 10


class ActivitySlots(WaitingSlots):
    """Slots for Activities, of which a tenth is for Calls of runs with few in flight; few while memory is short.

    A set with more Calls in flight than the worker has slots takes each slot that comes free, and its Calls end
    together: a poll for work cannot tell whose Call it will bring, so a small plan would wait for the longest of them.
    But Calls that a workflow task of this worker starts need no poll. They may have a kept slot, if their run has few.
    """

    def __init__(self, count: int, memory: MemoryWatch | None = None) -> None:
        super().__init__(memory)
        self._count, self._polled = count, count - count // KEPT_PART
        self._in_use = self._used = self._promised = 0

    @property
    def free(self) -> int:
        """How many more Calls from the task queue could run now."""
        return max(0, self._polled - self._used)

    def allows_eager_start(self, *, has_few: bool) -> bool:
        """Whether a Call of a run, which has few in flight or not, may start here without the way through the queue."""
        with self._lock:
            is_busy = 2 * self._in_use >= self._polled
            self._promised = min(self._promised + has_few, self._count - self._polled) if is_busy else 0
            return has_few or not is_busy

    def _try_poll(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - of the SDK's interface
        return self._reserve(self._polled)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - as above
        """For what the server hands out with the answer to a workflow task of this worker."""
        return self._reserve(self._count if self._promised else self._polled)

    def _reserve(self, limit: int) -> Permit | None:
        with self._lock:
            if self._in_use >= (min(SHORT_ACTIVITIES, limit) if self._memory.is_short else limit):
                return None
            self._promised -= self._in_use >= self._polled
            self._in_use += 1
        return Permit(is_sticky=False)

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        if isinstance(ctx.permit, Permit):
            ctx.permit.start = time.monotonic()
            with self._lock:
                self._used += 1

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        permit: Any = ctx.permit
        with self._lock:
            self._in_use -= 1
            self._used -= permit.start is not None
        self._wake_all()


# Of CPU, lately: above this a tree is busy. A plan of one call after the other has a third of it, a batch with 100
# calls in flight three times as much
BUSY_SECONDS: Final = 0.05
HALF_LIFE_SECONDS: Final = 1.0  # what a tree has computed counts half after this time
# A quiet tree is at work for so long after a task of it: longer than a call that does not wait for anything takes
AT_WORK_SECONDS: Final = 0.5
# Answers of a busy tree beyond what the way to the server holds. With one, a batch is an eighth slower; with four no
# faster, and a small plan beside it takes a third longer
SPARE_ANSWERS: Final = 2
# The fastest time grows by this factor with each answer that is alone on its way: the way may have become longer
FORGET: Final = 1.05
# Trees to remember before those that are at rest are forgotten
MAX_TREES: Final = 1_000
_AT_REST_SECONDS: Final = 0.001
# A cached run's task takes milliseconds: this is long enough to tell a replay, and short beside a step of a plan
LONG_SECONDS: Final = 0.25
# A task waits for answers for so long at most: the server gives it up after ten seconds or more
MAX_HOLD_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class Turn:
    """A task that waits for its turn, or has it since ``start``.

    ``may_wait`` False: not for answers of its tree, since it is an eviction, for which a task may wait, or has one of
    the few slots for what is not in the cache. ``is_counted``: it has a slot, and computes to answer.
    """

    tree: Hashable
    task: Callable[[], None]
    may_wait: bool = True
    is_counted: bool = True
    arrival: float = 0.0
    start: float = 0.0


class Decaying:
    """A sum of which all that was added counts half after ``HALF_LIFE_SECONDS``."""

    _value = _then = 0.0

    def add(self, value: float, now: float) -> None:
        self._value, self._then = self.read(now) + value, now

    def read(self, now: float) -> float:
        return float(self._value * 0.5 ** ((now - self._then) / HALF_LIFE_SECONDS))


class Turns:
    """Which task is next. Threads share it; ``run`` is called with each task whose turn has come.

    ``count_tasks`` returns how many tasks the worker has: here, or with their answers on the way. Call ``advance`` some
    times per second: time alone may give a task its turn.
    """

    def __init__(
        self, run: Callable[[Turn], None], count_tasks: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._count_tasks, self._clock = run, count_tasks, clock
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Turn]] = {}
        self._running: set[Turn] = set()
        # CPU seconds that each tree has had lately
        self._loads: defaultdict[Hashable, Decaying] = defaultdict(Decaying)
        # Answers sent lately, the seconds of the fastest, and since when one is alone on its way
        self._sent = Decaying()
        self._fastest = 0.0
        self._alone_since: float | None = None
        # The quiet tree that had a task last, and when
        self._quiet: tuple[Hashable, float] = None, float("-inf")
        # Tasks that wait or compute, of those that are counted
        self._here = 0

    def add(self, turn: Turn) -> None:
        with self._lock:
            turn.arrival = self._clock()
            queue = self._waiting.setdefault(turn.tree, deque())
            (queue.append if turn.may_wait else queue.appendleft)(turn)
            self._here += turn.is_counted
            if turn.is_counted and not self._is_busy(turn.tree, turn.arrival):
                self._quiet = turn.tree, turn.arrival
        self.advance()

    def end(self, turn: Turn, computed: float) -> None:
        """A task has ended, after so many CPU seconds."""
        with self._lock:
            self._running.discard(turn)
            self._here -= turn.is_counted
            now = self._clock()
            self._loads[turn.tree].add(computed, now)
            if turn.is_counted:
                self._sent.add(1, now)
                self._alone_since = now if self._count_tasks() - self._here == 1 else None
            if len(self._loads) > MAX_TREES:
                for tree in [tree for tree, load in self._loads.items() if load.read(now) < _AT_REST_SECONDS]:
                    del self._loads[tree]
        self.advance()

    def release(self) -> None:
        with self._lock:
            if self._alone_since is not None and self._count_tasks() == self._here:
                seconds = self._clock() - self._alone_since
                self._fastest = min(seconds, FORGET * self._fastest) if self._fastest else seconds
            self._alone_since = None
        self.advance()

    def advance(self) -> None:
        while (turn := self._take()) is not None:
            self._run(turn)

    def _take(self) -> Turn | None:
        with self._lock:
            now = self._clock()
            if any(now - turn.start < LONG_SECONDS for turn in self._running):
                return None
            for tree in sorted(self._waiting, key=lambda tree: self._loads[tree].read(now)):
                queue = self._waiting[tree]
                if self._may_begin(queue[0], now):
                    turn = queue.popleft()
                    if not queue:
                        del self._waiting[tree]
                    turn.start = now
                    self._running.add(turn)
                    return turn
            return None

    def _may_begin(self, turn: Turn, now: float) -> bool:
        """False for the task of a busy tree while too many answers are on their way.

        As many may be as the way holds (their rate times the fastest of them), and two more.
        """
        if not turn.may_wait or now - turn.arrival >= MAX_HOLD_SECONDS or not self._is_busy(turn.tree, now):
            return True
        quiet, since = self._quiet
        is_courteous = quiet != turn.tree and now - since <= AT_WORK_SECONDS
        window = SPARE_ANSWERS + int(math.log(2) * self._sent.read(now) / HALF_LIFE_SECONDS * self._fastest)
        return self._count_tasks() - self._here < (1 if is_courteous else window)

    def _is_busy(self, tree: Hashable, now: float) -> bool:
        return self._loads[tree].read(now) > BUSY_SECONDS


# -- tasks under the watch --------------------------------------------------------------------------

QUERY_ID: Final = "legacy_query"  # of queries that the server sends without a workflow task


class WatchedRunner(UnsandboxedWorkflowRunner):
    """Runs each activation under the watch. ``has_storage``: large values leave this worker as references."""

    def __init__(
        self, watch: WorkflowWatch, memory: MemoryWatch, slots: TaskSlots, *, has_storage: bool = False
    ) -> None:
        self.watch, self.memory, self.slots, self.has_storage = watch, memory, slots, has_storage

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = WatchedInstance(self, super().create_instance(det), det.info.workflow_id)
        return instance  # type: ignore[no-any-return]


class WatchedInstance(Activated):
    """A workflow of the inner runner.

    A query that comes with the whole history brings events whose workflow task has not begun. The SDK's core (1.35)
    applies them too, so the run goes ahead of its task, and its commands reach the history in an order that no replay
    has. Such a run is evicted, and replayed with its next task.
    """

    def __init__(self, runner: WatchedRunner, inner: WorkflowInstance, workflow_id: str = "") -> None:
        super().__init__(inner)
        self._runner, self._workflow_id = runner, workflow_id
        self.local_running = 0
        self._task_start, self._events, self._live = (0, 0), 0, 0
        self._is_ahead = False

    def __getattr__(self, name: str) -> Any:
        """All else that the SDK calls goes straight to the inner instance."""
        return getattr(self.inner, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
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
        self.turns = Turns(self._start, lambda: slots.tasks)
        slots.on_answer = self.turns.release

    def submit(self, activate: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Run an activation in a thread when its turn comes; the future may be settled by the watch."""
        outcome: Future[Any] = Future()
        (act,) = args
        instance: WatchedInstance = activate.__self__.instance  # type: ignore[attr-defined]
        is_uncached = act.is_replaying or any(job.HasField("initialize_workflow") for job in act.jobs)
        is_work = not is_eviction(act)
        info = instance.inner.get_info()
        tree = info.workflow_id if info.root is None else info.root.workflow_id
        # A task that waits for local Activities is no task to the slots
        self.turns.add(
            Turn(
                tree, partial(_settle, outcome, instance, activate, act),
                may_wait=is_work and not is_uncached, is_counted=is_work and not instance.local_running,
            )
        )  # fmt: skip
        return outcome

    def _start(self, turn: Turn) -> None:
        super().submit(self._run, turn)

    def _run(self, turn: Turn) -> None:
        before = time.thread_time()
        try:
            turn.task()
        finally:
            self.turns.end(turn, time.thread_time() - before)
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


# The attribute of a codec that writes payloads as they are, and reads those as they are that hold none of these bytes
REFUSES: Final = "refuses"
# What the SDK knows the references to stored payloads by: where none of it is, nobody needs to look
_STORED: Final[tuple[bytes, ...]] = (
    _extstore._REFERENCE_ENCODING,  # noqa: SLF001 - no public way
    _extstore._REFERENCE_MESSAGE_TYPE,  # noqa: SLF001
    _extstore._REFERENCE_MARKER_KEY.encode(),  # noqa: SLF001
    LOST,
)


def visit_payloads_our_way() -> None:
    """Read references ourselves, and leave out visits that change nothing; in this process, once.

    The SDK visits and copies each payload of a workflow task six times, also where it does nothing to it. A reference
    that it cannot follow fails the task each time: whoever may signal could hold any run.
    """
    for name in ("decode_activation", "encode_completion"):
        visit = getattr(sdk, name, None)
        if visit is None:
            raise RuntimeError(f"this version of temporalio has no bridge.worker.{name}; 1.35 has it")
        if not hasattr(visit, "__wrapped__"):
            setattr(sdk, name, functools.wraps(visit)(partial(_visit, visit)))


async def _visit(visit: Callable[..., Awaitable[Any]], message: Any, converter: DataConverter, **more: Any) -> Any:
    """Visit the payloads of a task; where one cannot be read, the log lines of that have the ids of the run."""
    try:
        return await _visit_if_needed(visit, message, converter, **more)
    except Exception:
        starts = [job.initialize_workflow for job in getattr(message, "jobs", ())]
        contexts = [*starts, getattr(converter, "_ca_workflow_context", None)]  # the second of a run in the cache
        names = [context.workflow_id for context in contexts if context is not None and context.workflow_id]
        current_call.set({"run": names[0] if names else "unknown", "runId": message.run_id})
        raise


async def _visit_if_needed(
    visit: Callable[..., Awaitable[Any]], message: Any, data_converter: DataConverter, **more: Any
) -> Any:
    codec = data_converter.payload_codec
    refused = () if codec is None else getattr(codec, REFUSES, None)
    must_visit = refused is None
    if message.DESCRIPTOR.name == "WorkflowActivation":
        data = message.SerializeToString()
        if any(mark in data for mark in _STORED):
            await _follow_references(message, data_converter, **more)
            data = message.SerializeToString()
        must_visit = must_visit or any(mark in data for mark in refused or ())
    else:
        must_visit = must_visit or data_converter.external_storage is not None
    return await visit(message, data_converter, **more) if must_visit else _extstore.StorageOperationMetrics()


# What a reference raises that is none, or that leads nowhere; a storage of another program raises errors of its own
_UNREADABLE: Final = (StorageError, RuntimeError, ValueError, TypeError, LookupError, AttributeError)


async def _follow_references(
    act: WorkflowActivation, converter: DataConverter, *, decode_headers: bool, storage_concurrency_limit: int
) -> None:
    """Put what is stored, or that it is lost, in the place of each reference. Raises what a restored value would mend:
    a storage that is away, or has lost what the run has read before.
    """
    patches = {job.notify_has_patch.patch_id for job in act.jobs}
    starts = (payload for job in act.jobs for payload in job.initialize_workflow.arguments)
    if converter.external_storage is None and any(map(_is_reference, starts)):
        raise StorageUnavailable("the run was started with a stored value: set ACTS_STORAGE for this worker")

    async def follow(payload: Payload) -> Payload:
        if not _is_reference(payload):
            return payload
        lost = partial(lost_value, payload, act.history_length)
        if lost_patch(lost("")) in patches:
            return lost("it was lost before")
        try:
            [reference] = await converter._decode_reference_payload_sequence([payload])  # noqa: SLF001 - no public way
            [stored] = await converter._external_retrieve_payload_sequence([reference])  # noqa: SLF001
        except _UNREADABLE as error:
            is_unset = converter.external_storage is None
            waits = isinstance(error, StorageUnavailable | UnknownKey) or (is_unset and is_storing(act.run_id))
            if waits or act.is_replaying:
                raise
            return lost("this worker has no ACTS_STORAGE" if is_unset else str(error))
        return lost("it is a reference itself") if _is_reference(stored) else stored

    async def follow_all(payloads: Sequence[Payload]) -> list[Payload]:
        return [await follow(payload) for payload in payloads]

    visitor = CommandAwarePayloadVisitor(
        skip_search_attributes=True, skip_headers=not decode_headers, concurrency_limit=storage_concurrency_limit
    )
    await visitor.visit(sdk._Visitor(follow_all), act)  # noqa: SLF001


def _is_reference(payload: Payload) -> bool:
    """True by the metadata, whatever the value looks like; also for what poses as lost."""
    is_lost = payload.metadata.get("encoding") == LOST
    return is_lost or _is_plain_reference(payload) or _has_reference_marker(payload)
