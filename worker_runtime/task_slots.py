"""How many workflow tasks this process accepts at once: as many as its interpreter can finish in time.

One interpreter computes one thing at a time, and the server gives up a task that takes longer than its timeout (10 s by
default), so that its work is lost. Fifty replays side by side would all be given up, again and again; one after the
other, each is done in time. The SDK's own limit counts cheap and expensive tasks alike.

* A task of a run that is in the cache (*sticky*) takes milliseconds. As long as each is done soon, many are accepted:
  the server would hand them out in the order of their arrival, ``task_threads.py`` asks whose they are.
* Any other task may have to replay a long history. One at a time is accepted at first, one more after each that was
  quick, and one at a time again after each that was not.
* A task that only waits for local Activities needs no interpreter, and is not counted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from temporalio.worker import CustomSlotSupplier, SlotPermit

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.worker import SlotMarkUsedContext, SlotReleaseContext, SlotReserveContext

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
# After a run was evicted with a query: what waited at the server with it arrives within moments
SINGLY_SECONDS: Final = 5.0


class Permit(SlotPermit):
    """A slot of either kind; ``start`` is when a task began to use it."""

    __slots__ = ("is_sticky", "start")

    def __init__(self, *, is_sticky: bool) -> None:
        self.is_sticky = is_sticky
        self.start: float | None = None


class TaskSlots(CustomSlotSupplier):
    """Slots for workflow tasks. ``count_waiting`` returns how many tasks only wait for local Activities.

    ``on_answer`` is called, in any thread, when the server has the answer to one.
    """

    def __init__(self, count_waiting: Callable[[], int] = lambda: 0) -> None:
        self._count_waiting = count_waiting
        self._lock = threading.Lock()
        self._in_use = {True: 0, False: 0}
        self.on_answer: Callable[[], None] = lambda: None
        self._is_closed = False
        # Weak: a slot that the SDK asked for and no longer wants, as when it stops, is dropped and not released
        self._sticky_polls: WeakSet[Permit] = WeakSet()
        self._begun: set[Permit] = set()
        self._singly_until = 0.0
        self._max_others, self._max_sticky = 1, MIN_STICKY
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[bool, deque[asyncio.Future[None]]] = {True: deque(), False: deque()}

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a slot."""
        self._loop = loop = asyncio.get_running_loop()
        while not self._take(ctx.is_sticky):
            turn: asyncio.Future[None] = loop.create_future()
            self._queues[ctx.is_sticky].append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake(is_sticky=ctx.is_sticky)  # the turn was for us: pass it on
                raise
        permit = Permit(is_sticky=ctx.is_sticky)
        if permit.is_sticky:
            self._sticky_polls.add(permit)
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """A slot for a task that the server sends without a poll, if there is one."""
        return Permit(is_sticky=ctx.is_sticky) if self._take(ctx.is_sticky) else None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A task begins."""
        if isinstance(ctx.permit, Permit):
            ctx.permit.start = time.monotonic()
            self._sticky_polls.discard(ctx.permit)
            with self._lock:
                self._begun.add(ctx.permit)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """A task has ended, or a poll without one."""
        permit: Any = ctx.permit
        self._sticky_polls.discard(permit)
        with self._lock:
            self._in_use[permit.is_sticky] -= 1
            if permit.start is not None:
                self._begun.discard(permit)
                if not permit.is_sticky:
                    self._adjust_others(time.monotonic() - permit.start)
        self.wake_all()
        if permit.start is not None:
            self.on_answer()

    def _adjust_others(self, seconds: float) -> None:
        """Accept one more after a task that was quick, and one after one that was not."""
        must_take_one = seconds > SLOW_SECONDS or time.monotonic() < self._singly_until
        self._max_others = 1 if must_take_one else min(self._max_others + 1, MAX_OTHERS)

    def adjust_sticky(self, seconds: float) -> None:
        """A task of a cached run has computed, so long after it came: accept one more, or few where that was long."""
        with self._lock:
            self._max_sticky = MIN_STICKY if seconds > LATE_SECONDS else min(self._max_sticky + 1, MAX_STICKY)
        self.wake_all()

    def close(self) -> None:
        """Give no more slots: the worker stops."""
        with self._lock:
            self._is_closed = True

    @property
    def tasks(self) -> int:
        """How many tasks have come, and their answers have not arrived at the server."""
        return len(self._begun)

    @property
    def sticky_polls(self) -> int:
        """How many slots are held by polls of the sticky queue that have not brought a task."""
        return len(self._sticky_polls)

    def has_task_since(self, moment: float, *, is_new: bool) -> bool:
        """Whether what is asked now has a slot of before that (monotonic) time.

        True if no slot has come into use since. If one has, it is unknown: then true where a task that is not sticky
        is as old, for a run that ``is_new`` in the cache.
        """
        with self._lock:
            old = [permit for permit in self._begun if permit.start is not None and permit.start <= moment]
            if len(old) < len(self._begun):
                old = [permit for permit in old if is_new and not permit.is_sticky]
        return len(old) > self._count_waiting()

    def take_others_singly(self) -> None:
        """For a while, accept one task at a time that is not sticky."""
        with self._lock:
            self._singly_until, self._max_others = time.monotonic() + SINGLY_SECONDS, 1

    def wake_all(self) -> None:
        """Let those that wait look again; from any thread.

        Always by way of the loop: whoever looked a moment ago in vain has queued by then.
        """
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_both)

    def _take(self, is_sticky: bool) -> bool:  # noqa: FBT001 - the SDK's flag
        with self._lock:
            most = self._max_sticky if is_sticky else self._max_others
            if self._is_closed or self._in_use[is_sticky] >= most + self._count_waiting():
                return False
            self._in_use[is_sticky] += 1
            return True

    def _wake_both(self) -> None:
        self._wake(is_sticky=True)
        self._wake(is_sticky=False)

    def _wake(self, *, is_sticky: bool) -> None:
        queue = self._queues[is_sticky]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
