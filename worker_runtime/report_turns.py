"""Results of a large tree of runs wait a little in the worker, where a smaller tree is at work beside it.

A batch has a hundred Activities in flight. Where they are short, as many results stand before the server all the time,
and each step of a plan of ten calls waits behind all of them. With few results of one tree on their way at a time,
the server's queue is short: the same number gets through, and a small plan is done sooner.

* A tree that is alone in this worker is not held back.
* A tree is told by the first part of a run's id: the ids of runs below it begin with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.worker import Worker

# Results of one tree on their way at a time: as many as keep a server of a few cores busy
AT_ONCE: Final = 4
# A tree whose Activity began or ended longer ago is at rest: between two steps of a plan lie some milliseconds
RECENT_SECONDS: Final = 1.0


class ReportTurns(Interceptor):
    """Lets an Activity end when it is the turn of its tree. ``attach`` has to be called with the worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: OrderedDict[str, float] = OrderedDict()  # by tree, the latest at the end
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._trees: dict[bytes, str] = {}  # by task token

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wait before each Activity ends, except local ones: their results do not go to the server."""
        return _Inbound(next, self)

    def attach(self, worker: Worker) -> None:
        """Learn from the worker which results have reached the server: the SDK tells nobody."""
        bridge: Any = worker._bridge_worker  # noqa: SLF001 - no public way
        complete = bridge.complete_activity_task

        async def complete_and_pass_on(completion: Any) -> None:
            try:
                await complete(completion)
            finally:
                self.end(completion.task_token)

        bridge.complete_activity_task = complete_and_pass_on

    def note(self, tree: str) -> None:
        """A tree is at work."""
        now = self._clock()
        self._latest[tree] = now
        self._latest.move_to_end(tree)
        while now - next(iter(self._latest.values())) > RECENT_SECONDS:
            self._latest.popitem(last=False)

    async def begin(self, tree: str, token: bytes) -> None:
        """Wait until a result of this tree may go to the server."""
        self.note(tree)
        self._trees[token] = tree
        if self._may_go(tree):
            self._under_way[tree] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tree, deque()).append(turn)
        try:
            await asyncio.shield(turn)
        except asyncio.CancelledError:  # the work is done: its result goes to the server now, all the same
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            if not turn.done():
                with suppress(KeyError, ValueError):
                    self._waiting[tree].remove(turn)
                self._under_way[tree] += 1

    def end(self, token: bytes) -> None:
        """The server has a result."""
        tree = self._trees.pop(token, None)
        if tree is None:
            return
        self._under_way[tree] -= 1
        waiting = self._waiting.get(tree, ())
        while waiting and self._may_go(tree):
            turn = self._waiting[tree].popleft()
            self._under_way[tree] += 1
            turn.set_result(None)
        if not waiting:
            self._waiting.pop(tree, None)
            if not self._under_way[tree]:
                del self._under_way[tree]

    def _may_go(self, tree: str) -> bool:
        return self._under_way[tree] < AT_ONCE or not self._has_rival(tree)

    def _has_rival(self, tree: str) -> bool:
        latest = next((when for other, when in reversed(self._latest.items()) if other != tree), None)
        return latest is not None and self._clock() - latest <= RECENT_SECONDS


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, turns: ReportTurns) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._turns = turns

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.is_local or info.workflow_id is None:
            return await super().execute_activity(input)
        tree = info.workflow_id.partition("/")[0]
        self._turns.note(tree)
        try:
            return await super().execute_activity(input)
        finally:
            await self._turns.begin(tree, info.task_token)
