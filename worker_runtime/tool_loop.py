"""Runs ``async def`` Tools in event loops of their own, so that one that blocks does not stop the worker.

The worker's own loop starts and ends workflow tasks, sends heartbeats and serves every run of this process. A Tool that
calls ``time.sleep`` or a blocking client there would stop all of them. Tools run beside it, in the loop of another
thread. When that loop does not come back for a second, the place is logged, and calls that have not begun yet, and new
ones, go to another loop. Calls that had begun in the blocked loop wait until it is free.

A Tool sees one loop for as long as nothing blocks, so clients that are bound to a loop may be shared.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput, Interceptor

from worker_runtime.thread_stacks import describe_place, find_frame, format_stack

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

# A loop that does not come back for so long is blocked: a busy one comes back many times in a second
BLOCKED_SECONDS: Final = 1.0
# Each blocked loop is one thread; with so many of them blocked, calls wait
MAX_LOOPS: Final = 16


class ToolCall:
    """One call of a Tool, until it begins in some loop; ``outcome`` is its result."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], tool: str, run: str) -> None:
        self.function, self.args, self.tool, self.run = function, args, tool, run
        self.context = contextvars.copy_context()
        self.outcome: Future[Any] = Future()
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin in this loop, unless the call has begun in another."""
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
        name = f"tool {self.tool} of run {self.run}"
        self._task = loop.create_task(self.function(*self.args), name=name, context=self.context)
        _calls[self._task] = self
        self._task.add_done_callback(self._end)
        if self._is_cancelled:
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel it, in whichever loop it runs; one that has not begun begins and is cancelled at once."""
        self._is_cancelled = True
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    @property
    def has_begun(self) -> bool:
        """True once a loop has taken it."""
        return self._has_begun

    def _end(self, task: asyncio.Task[Any]) -> None:
        _calls.pop(task, None)
        if task.cancelled():
            self.outcome.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


# The calls that run, by their tasks
_calls: Final[dict[asyncio.Task[Any], ToolCall]] = {}


class ToolLoop:
    """An event loop in a thread. ``latest`` is when it last came back to the loop's own code."""

    def __init__(self, number: int) -> None:
        self.loop = _new_loop()
        self.waiting: dict[ToolCall, None] = {}
        self.latest = time.monotonic()
        self.is_blocked = False
        self._beat_is_due = False
        self.thread = threading.Thread(target=self._run, name=f"tools-{number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # they leave the loop; the other calls in it must end
                logger.warning("a tool raised %s: it fails, and the worker goes on", type(error).__name__)
            else:
                return

    def submit(self, call: ToolCall) -> None:
        """Begin a call as soon as the loop is free."""
        self.waiting[call] = None
        self.loop.call_soon_threadsafe(self._begin, call)

    def _begin(self, call: ToolCall) -> None:
        self.waiting.pop(call, None)
        call.begin(self.loop)

    def beat(self) -> None:
        """Ask the loop for a sign of life."""
        if not self._beat_is_due:
            self._beat_is_due = True
            self.latest = time.monotonic()
            self.loop.call_soon_threadsafe(self._answer_beat)

    def _answer_beat(self) -> None:
        self._beat_is_due = False

    def blocked_seconds(self) -> float:
        """How long the last sign of life has been missing."""
        return time.monotonic() - self.latest if self._beat_is_due else 0.0

    def find_call(self) -> ToolCall | None:
        """The call that runs in this loop now, where it is no task that a Tool has made."""
        task = asyncio.current_task(self.loop)
        return None if task is None else _calls.get(task)

    def describe_task(self) -> str:
        """The call that runs in this loop now."""
        task = asyncio.current_task(self.loop)
        return "an unknown tool" if task is None else task.get_name()


class ToolLoops:
    """The loops of this process; ``look`` is called about twice per second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[ToolLoop] = []
        self.blocked_count = 0

    def submit(self, call: ToolCall) -> None:
        """Begin a call in the first loop that is free."""
        with self._lock:
            self._free_loop().submit(call)

    def _free_loop(self) -> ToolLoop:
        free = next((loop for loop in self._loops if not loop.is_blocked), None)
        if free is None and len(self._loops) < MAX_LOOPS:
            free = ToolLoop(len(self._loops) + 1)
            self._loops.append(free)
        return free or self._loops[-1]

    def look(self) -> None:
        """Find the loops that are blocked, and move what waits for them to others."""
        with self._lock:
            for loop in list(self._loops):
                self._judge(loop)

    def blocked_calls(self) -> list[tuple[ToolCall, float]]:
        """The calls that block a loop now, each with the seconds since the loop last came back."""
        with self._lock:
            blocked = [(loop.find_call(), loop.blocked_seconds()) for loop in self._loops if loop.is_blocked]
        return [(call, seconds) for call, seconds in blocked if call is not None]

    def _judge(self, loop: ToolLoop) -> None:
        seconds = loop.blocked_seconds()
        if seconds > BLOCKED_SECONDS and not loop.is_blocked:
            loop.is_blocked = True
            self.blocked_count += 1
            frame = find_frame(loop.thread.ident)
            logger.warning(
                "%s blocks the event loop of the async tools, at %s: other async tools that run now wait for it. Write "
                "it as a plain `def`, or await in it\n%s",
                loop.describe_task(), describe_place(frame), format_stack(frame),
            )  # fmt: skip
        if loop.is_blocked and seconds == 0.0:
            loop.is_blocked = False
            logger.warning("the event loop of thread %s is free again", loop.thread.name)
        if loop.is_blocked:
            for call in [call for call in list(loop.waiting) if not call.has_begun]:
                loop.waiting.pop(call, None)
                self._free_loop().submit(call)
        loop.beat()

    def close(self) -> None:
        """Stop the loops; a blocked one ends with the process."""
        for loop in self._loops:
            loop.loop.call_soon_threadsafe(loop.loop.stop)


class ToolLoopInterceptor(Interceptor):
    """Sends ``async def`` Tools to the loops; ``own`` are the engine's Activities, which stay in the worker's loop.

    ``wrap`` makes of a plain ``def`` Tool what runs in its place.
    """

    def __init__(
        self, loops: ToolLoops, own: Iterable[str], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        self._loops, self._own, self._wrap = loops, frozenset(own), wrap

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Choose the loop of each Activity."""
        return _ToolInbound(next, self._loops, self._own, self._wrap)


class _ToolInbound(ActivityInboundInterceptor):
    def __init__(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002 - as above
        loops: ToolLoops,
        own: frozenset[str],
        wrap: Callable[..., Any],
    ) -> None:
        super().__init__(next)
        self._loops, self._own, self._wrap = loops, own, wrap

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Heartbeats go through the worker's loop, whichever thread sends them."""
        super().init(_HeartbeatsToWorker(outbound))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        is_async = inspect.iscoroutinefunction(input.fn) or inspect.iscoroutinefunction(
            getattr(input.fn, "__call__", None)  # noqa: B004 - an activity may be an object with an async __call__
        )
        if is_async and info.activity_type not in self._own:
            function, run = input.fn, str(info.workflow_id)
            _share_events()

            async def run_beside(*args: Any) -> Any:
                call = ToolCall(function, args, info.activity_type, run)
                self._loops.submit(call)
                return await _wait_for(call)

            input.fn = run_beside
        elif not is_async:
            input.fn = _without_stop_iteration(self._wrap(input.fn))
        return await super().execute_activity(input)


def _without_stop_iteration(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which fails with RuntimeError in place of StopIteration, as a coroutine does.

    A future refuses StopIteration, so the call would wait until its timeout.
    """

    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except StopIteration as error:
            raise RuntimeError("the tool raised StopIteration: next() found nothing; give it a default") from error

    return run


async def _wait_for(call: ToolCall) -> Any:
    """The result of a call. A cancellation is passed on, and the call's own end is awaited."""
    outcome = asyncio.wrap_future(call.outcome)
    while True:
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if outcome.done():
                raise
            call.cancel()


class _HeartbeatsToWorker(ActivityOutboundInterceptor):
    def __init__(self, next: ActivityOutboundInterceptor) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._loop = asyncio.get_running_loop()

    def heartbeat(self, *details: Any) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            super().heartbeat(*details)
        else:
            self._loop.call_soon_threadsafe(super().heartbeat, *details)


class _SharedEvent:
    """An asyncio event of the worker's loop that can be awaited in any loop."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event, self._loop = event, asyncio.get_running_loop()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._event.wait(), self._loop))


def _share_events() -> None:
    """``activity.wait_for_cancelled`` and ``wait_for_worker_shutdown`` await events of the worker's loop."""
    context = activity._Context.current()  # noqa: SLF001 - no public way
    for holder in (context.cancelled_event, context.worker_shutdown_event):
        if isinstance(holder.async_event, asyncio.Event):
            holder.async_event = _SharedEvent(holder.async_event)  # type: ignore[assignment]


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
