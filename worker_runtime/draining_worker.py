"""A worker that uses up its sticky polls before it stops: the SDK drops the workflow tasks that they bring later.

Theory of operation. The SDK's core (1.35) keeps one poller for the task queue and one for the sticky queue, whose
tasks are of the runs in this worker's cache. When it stops, it ends its work on workflow tasks as soon as either poller
has no poll left, or no run has work in hand; what the server gives the other polls at that moment is dropped. Such a
task waits for its timeout, 10 s by default. A stop under load drops one on average, with any setting of the server.

So first, no new polls begin (``TaskSlots.close``). Tasks of a busy worker use up the sticky polls that are out; for the
rest, this worker asks an idle run in its cache a query that no run knows. Each takes one poll, and leaves no trace in
the history. Then the worker stops as ever. A poll of the task queue itself cannot be used up this way, since another
worker may take what is put there.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.worker import Worker

if TYPE_CHECKING:
    from worker_runtime.memory_watch import MemoryWatch
    from worker_runtime.task_slots import TaskSlots

QUERY: Final = "acts_last_poll"
# It takes 5 to 30 ms, of a busy worker up to 100. What has not arrived by then must not delay the stop
DRAIN_SECONDS: Final = 1.0
# A query for a run that has become busy waits for the run's next task; then another run is asked
ROUND_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.003


class DrainingWorker(Worker):
    """``slots`` counts the polls of this worker, ``memory`` knows the runs in its cache."""

    def __init__(self, *args: Any, slots: TaskSlots, memory: MemoryWatch, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._slots, self._memory = slots, memory

    async def shutdown(self) -> None:
        """Use up the sticky polls, then stop."""
        self._slots.close()
        if self.is_running:
            await self._drain()
        await super().shutdown()

    async def _drain(self) -> None:
        queries: list[asyncio.Task[Any]] = []
        now = time.monotonic()
        end, next_round = now + DRAIN_SECONDS, now
        while self._slots.sticky_polls and self._memory.cached_runs and (now := time.monotonic()) < end:
            if now >= next_round:
                next_round = now + ROUND_SECONDS
                queries += self._ask_idle_run(self._slots.sticky_polls)
            await asyncio.sleep(LOOK_SECONDS)
        for query in queries:
            query.cancel()
        await asyncio.gather(*queries, return_exceptions=True)

    def _ask_idle_run(self, times: int) -> list[asyncio.Task[Any]]:
        idle = self._memory.find_idle()
        if idle is None:
            return []
        handle = self.client.get_workflow_handle(idle.workflow_id, run_id=idle.run_id)
        limit = timedelta(seconds=DRAIN_SECONDS)
        return [asyncio.create_task(handle.query(QUERY, rpc_timeout=limit)) for _ in range(times)]
