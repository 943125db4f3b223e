"""How many workflow tasks this process accepts at once, and which of them computes next.

One interpreter computes one thing at a time, and the server gives up a task after its timeout (10 s by default). The
SDK's own limit counts cheap and expensive tasks alike, and takes tasks in the order of their arrival: fifty replays
side by side would all be given up, and each step of a small plan would wait for as many tasks as a large batch beside
it has in flight.

* **Slots** (``TaskSlots``). Many *sticky* tasks (of a run in the cache) are accepted as long as each is done soon.
  Any other task may replay a long history: one at a time at first, one more after each that was quick. A task that
  only waits for local Activities is not counted.
* **Turns** (``Turns``). Of the trees of runs (a root and all below it), the one that has computed least lately goes
  first. The server's database writes in the order of arrival, so a busy tree has only a few answers at a time on their
  way there, and one while a quiet tree is at work. Without that, ten calls beside a batch took 11 times their time.

The promise: ten calls beside a large batch take at most three times their time alone (``docs/performance.md``).
"""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from temporalio.bridge import worker as sdk
from temporalio.converter import _extstore
from temporalio.worker import CustomSlotSupplier, SlotPermit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from temporalio.converter import DataConverter
    from temporalio.worker import SlotMarkUsedContext, SlotReleaseContext, SlotReserveContext

# -- slots ------------------------------------------------------------------------------------------

# Sticky tasks at once, at first and after one that took long: enough that the next one is there when one ends
MIN_STICKY: Final = 8
# … and at most: more than the Activities that a tree has in flight by default (100), each of which brings one
MAX_STICKY: Final = 128
# From its arrival until it has computed: a fifth of the server's timeout. Not until its slot is free: the SDK may keep
# that for the next task of the run
LATE_SECONDS: Final = 2.0
# Others at once: first tasks of new runs take some milliseconds, most of them for the way to the server and back
MAX_OTHERS: Final = 8
# Above this a task was a long replay: with eight at once, each would take eight times as long, near the server's 10 s
SLOW_SECONDS: Final = 0.5
# After a query's run was evicted: what the server holds for it arrives within moments, and the SDK's core (1.35) keeps
# one task of an evicted run, and drops what comes with it until it is timed out
SINGLY_SECONDS: Final = 5.0


class Permit(SlotPermit):
    """A slot of either kind; ``start`` is when a task began to use it."""

    __slots__ = ("is_sticky", "start")

    def __init__(self, *, is_sticky: bool) -> None:
        self.is_sticky = is_sticky
        self.start: float | None = None


class TaskSlots(CustomSlotSupplier):
    """Slots for workflow tasks. ``on_answer`` is called, in any thread, when the server has the answer to one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_use = {True: 0, False: 0}
        self._most = {True: MIN_STICKY, False: 1}
        self._begun = {True: 0, False: 0}
        self._waiting, self._singly_until = 0, 0.0
        self.on_answer: Callable[[], None] = lambda: None
        self._is_closed = False
        # Weak: a slot that the SDK asked for and no longer wants, as when it stops, is dropped and not released
        self._sticky_polls: WeakSet[Permit] = WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._change = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a slot."""
        self._loop = asyncio.get_running_loop()
        while (permit := self.try_reserve_slot(ctx)) is None:
            await self._change.wait()
        if ctx.is_sticky:
            self._sticky_polls.add(permit)
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> Permit | None:
        """A slot, if there is one."""
        kind = ctx.is_sticky
        with self._lock:
            if self._is_closed or self._in_use[kind] >= self._most[kind] + self._waiting:
                return None
            self._in_use[kind] += 1
        return Permit(is_sticky=kind)

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A task begins."""
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
        """Give no more slots: the worker stops."""
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

    def _wake_all(self) -> None:
        """Let those that wait look again, by way of the loop: whoever looked a moment ago in vain waits by then."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._announce_change)

    def _announce_change(self) -> None:
        change, self._change = self._change, asyncio.Event()
        change.set()


# -- turns ------------------------------------------------------------------------------------------

# Of CPU, lately: above this a tree is busy. A plan whose calls follow each other at once has about a third of it, a
# batch with a hundred calls in flight three times as much
BUSY_SECONDS: Final = 0.05
# What a tree has computed counts half after this time
HALF_LIFE_SECONDS: Final = 1.0
# A quiet tree is at work for so long after a task of it: longer than a call that does not wait for anything takes
AT_WORK_SECONDS: Final = 0.5
# Answers of a busy tree beyond what the way to the server holds, so that the server has the next one. With one, a batch
# is an eighth slower; with four it is no faster than with two, and a small plan beside it takes a third longer
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

    __slots__ = ("_then", "_value")

    def __init__(self) -> None:
        self._value = self._then = 0.0

    def add(self, value: float, now: float) -> None:
        """Add to it."""
        self._value, self._then = self.read(now) + value, now

    def read(self, now: float) -> float:
        """The sum now."""
        return float(self._value * 0.5 ** ((now - self._then) / HALF_LIFE_SECONDS))


class AnswerWindow:
    """How many answers may be on their way: what the way holds (their rate times the fastest of them), and two more."""

    def __init__(self) -> None:
        self._recent = Decaying()
        self._fastest = 0.0
        self._alone_since: float | None = None

    def send(self, now: float, unanswered: int) -> None:
        """An answer goes out; ``unanswered`` counts it."""
        self._recent.add(1, now)
        self._alone_since = now if unanswered == 1 else None

    def arrive(self, now: float, unanswered: int) -> None:
        """An answer has arrived; so many are still on their way."""
        if self._alone_since is not None and not unanswered:
            seconds = now - self._alone_since
            self._fastest = min(seconds, FORGET * self._fastest) if self._fastest else seconds
        self._alone_since = None

    def size(self, now: float) -> int:
        """How many answers may be on their way at once."""
        return SPARE_ANSWERS + int(math.log(2) * self._recent.read(now) / HALF_LIFE_SECONDS * self._fastest)


class Turns:
    """Which task is next. Threads share it; ``run`` is called with each task whose turn has come.

    ``count_tasks`` returns how many tasks the worker has: here, or with their answers on the way. ``on_wait`` is called
    when tasks wait: call ``wake`` after ``LONG_SECONDS``, since nothing else may happen.
    """

    def __init__(
        self, run: Callable[[Turn], None], count_tasks: Callable[[], int], on_wait: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._run, self._count_tasks, self._on_wait, self._clock = run, count_tasks, on_wait, clock
        self._is_waking = False
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Turn]] = {}
        self._running: set[Turn] = set()
        # CPU seconds that each tree has had lately
        self._loads: defaultdict[Hashable, Decaying] = defaultdict(Decaying)
        self._window = AnswerWindow()
        # The quiet tree that had a task last, and when
        self._quiet: tuple[Hashable, float] = None, float("-inf")
        # Tasks that wait or compute, of those that are counted
        self._here = 0

    def add(self, turn: Turn) -> None:
        """Queue a task; it may run at once."""
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
                self._window.send(now, self._count_tasks() - self._here)
            if len(self._loads) > MAX_TREES:
                for tree in [tree for tree, load in self._loads.items() if load.read(now) < _AT_REST_SECONDS]:
                    del self._loads[tree]
        self.advance()

    def release(self) -> None:
        """The server has an answer."""
        with self._lock:
            self._window.arrive(self._clock(), self._count_tasks() - self._here)
        self.advance()

    def wake(self) -> None:
        """Some tasks have waited for a while."""
        with self._lock:
            self._is_waking = False
        self.advance()

    def advance(self) -> None:
        """Run the next tasks, as many as may run now."""
        while (turn := self._take()) is not None:
            self._run(turn)
        with self._lock:
            must_wake = bool(self._waiting) and not self._is_waking
            self._is_waking |= must_wake
        if must_wake:
            self._on_wait()

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
        """False for the task of a busy tree while too many answers are on their way."""
        if not turn.may_wait or now - turn.arrival >= MAX_HOLD_SECONDS or not self._is_busy(turn.tree, now):
            return True
        quiet, since = self._quiet
        is_courteous = quiet != turn.tree and now - since <= AT_WORK_SECONDS
        return self._count_tasks() - self._here < (1 if is_courteous else self._window.size(now))

    def _is_busy(self, tree: Hashable, now: float) -> bool:
        return self._loads[tree].read(now) > BUSY_SECONDS


# -- visits to payloads -----------------------------------------------------------------------------

# The attribute of a codec that writes payloads as they are, and reads those as they are that hold none of these bytes
REFUSES: Final = "refuses"
# What the SDK knows the references to stored payloads by
_STORED: Final[tuple[bytes, ...]] = (
    _extstore._REFERENCE_ENCODING,  # noqa: SLF001 - no public way
    _extstore._REFERENCE_MESSAGE_TYPE,  # noqa: SLF001
    _extstore._REFERENCE_MARKER_KEY.encode(),  # noqa: SLF001
)


def leave_out_visits() -> None:
    """Pass the payloads of workflow tasks on where neither keys nor a storage are set; in this process, once.

    The SDK visits and copies each of them six times, to do nothing to it.
    """
    for name, must_visit in (("decode_activation", _has_marks), ("encode_completion", _changes_payloads)):
        visit = getattr(sdk, name, None)
        if visit is None:
            raise RuntimeError(f"this version of temporalio has no bridge.worker.{name}; 1.35 has it")
        if not hasattr(visit, "__wrapped__"):
            setattr(sdk, name, _visit_if(must_visit, visit))


def _visit_if(must_visit: Callable[[Any, DataConverter], bool], visit: Callable[..., Awaitable[Any]]) -> Any:
    @functools.wraps(visit)
    async def visit_if_needed(message: Any, data_converter: DataConverter, **more: Any) -> Any:
        if must_visit(message, data_converter):
            return await visit(message, data_converter, **more)
        return _extstore.StorageOperationMetrics()

    return visit_if_needed


def _changes_payloads(_completion: Any, converter: DataConverter) -> bool:
    codec = converter.payload_codec
    return converter.external_storage is not None or (codec is not None and not hasattr(codec, REFUSES))


def _has_marks(activation: Any, converter: DataConverter) -> bool:
    """True where a payload must be looked at: it is encrypted or stored elsewhere, or each of them is."""
    if _changes_payloads(activation, converter):
        return True
    data = activation.SerializeToString()
    return any(mark in data for mark in (*getattr(converter.payload_codec, REFUSES, ()), *_STORED))
