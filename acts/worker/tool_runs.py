"""Where Tools run: ``async def`` in event loops beside the worker's own, ``def`` in the worker's threads.

The worker's own loop starts and ends workflow tasks, sends heartbeats and serves every run of this process. A Tool that
calls ``time.sleep`` or a blocking client there would stop all of them. So Tools run in the loop of another thread. When
that loop does not come back for a second, the place is logged, and new calls go to another loop. A Tool sees one loop
for as long as nothing blocks, so clients that are bound to a loop may be shared.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ExecuteActivityInput

from acts.telemetry.failures import text_of
from acts.worker.interceptors import CLEANUP_SECONDS, ENDS, is_async, is_worker_stopping
from acts.worker.watch import describe_place, find_frame, format_stack

logger = logging.getLogger(__name__)

# A loop that does not come back for so long is blocked: a busy one comes back many times in a second
BLOCKED_SECONDS: Final = 1.0
MAX_LOOPS: Final = 16  # each blocked loop is one thread; with so many of them blocked, calls wait


class ToolCall:
    """One call of a Tool in a loop; ``outcome`` is its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], name: str) -> None:
        self.outcome: Future[Any] = Future()
        self._loop, self._work, self._name = loop, work, name
        loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._task.cancel()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work, name=self._name)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self.outcome.set_result(task.result())
        else:
            self.outcome.set_exception(error)


class ToolLoop:
    """An event loop in a thread. ``beat_at`` is when it was asked for a sign of life, until it answers."""

    def __init__(self, number: int) -> None:
        self.loop = new_event_loop()
        self.is_blocked = False
        self.beat_at: float | None = None
        self.thread = threading.Thread(target=self.loop.run_forever, name=f"tools-{number}", daemon=True)
        self.thread.start()


class ToolLoops:
    """The loops of this process; ``look`` is called some times per second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[ToolLoop] = []
        self.blocked_count = 0

    def submit(self, work: Coroutine[Any, Any, Any], name: str) -> ToolCall:
        """Begin a call in the first loop that is free; ``name`` is its name in the log."""
        with self._lock:
            loop = next((loop for loop in self._loops if not loop.is_blocked), None)
            if loop is None and len(self._loops) < MAX_LOOPS:
                self._loops.append(ToolLoop(len(self._loops) + 1))
            loop = loop or self._loops[-1]
        return ToolCall(loop.loop, _guard_loop(work), name)

    def look(self) -> None:
        for loop in list(self._loops):
            was_blocked, since = loop.is_blocked, loop.beat_at
            seconds = 0.0 if since is None else time.monotonic() - since
            loop.is_blocked = seconds > BLOCKED_SECONDS or (was_blocked and seconds > 0)
            if loop.is_blocked and not was_blocked:
                self.blocked_count += 1
                frame, task = find_frame(loop.thread.ident), asyncio.current_task(loop.loop)
                logger.warning(
                    "%s blocks the event loop of the async tools, at %s: other async tools that run now wait for it. "
                    "Write it as a plain `def`, or await in it\n%s",
                    "an unknown tool" if task is None else task.get_name(), describe_place(frame), format_stack(frame),
                )  # fmt: skip
            elif was_blocked and not loop.is_blocked:
                logger.warning("the event loop of thread %s is free again", loop.thread.name)
            if since is None:  # ask for a sign of life
                loop.beat_at = time.monotonic()
                loop.loop.call_soon_threadsafe(setattr, loop, "beat_at", None)

    async def run(
        self, own: Iterable[str], call: ExecuteActivityInput, proceed: Callable[[ExecuteActivityInput], Awaitable[Any]]
    ) -> Any:
        """A step around Activities: run an ``async def`` Tool in a loop. The engine's ``own`` stay in the worker's."""
        info = activity.info()
        if info.activity_type not in own and is_async(call.fn):
            function, name = call.fn, f"tool {info.activity_type} of run {info.workflow_id}"
            # ``activity.wait_for_cancelled`` and ``wait_for_worker_shutdown`` await events of the worker's loop
            context = activity._Context.current()  # noqa: SLF001 - no public way
            for holder in (context.cancelled_event, context.worker_shutdown_event):
                if isinstance(holder.async_event, asyncio.Event):
                    holder.async_event = _SharedEvent(holder.async_event)  # type: ignore[assignment]

            async def run_beside(*args: Any) -> Any:
                return await _wait_for(self.submit(function(*args), name))

            call.fn = run_beside
        return await proceed(call)

    def close(self) -> None:
        """Stop the loops; a blocked one ends with the process."""
        for loop in self._loops:
            loop.loop.call_soon_threadsafe(loop.loop.stop)


async def _guard_loop(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except ENDS as error:
        if isinstance(error, GeneratorExit) and not error.args:  # the loop ends
            raise
        raise ApplicationError(text_of(error), type=type(error).__name__) from error


async def _wait_for(call: ToolCall) -> Any:
    """The result of a call. A cancellation is passed on, and the call's own end is awaited; not for long by a worker
    that stops.
    """
    outcome = asyncio.wrap_future(call.outcome)
    while True:
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if outcome.done():
                raise
            call.cancel()
            if is_worker_stopping() and not (await asyncio.wait((outcome,), timeout=CLEANUP_SECONDS))[0]:
                raise


class _SharedEvent:
    """An asyncio event of the worker's loop that can be awaited in any loop."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event, self._loop = event, asyncio.get_running_loop()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._event.wait(), self._loop))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop if it is installed, which saves about 5 % of the wall time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
