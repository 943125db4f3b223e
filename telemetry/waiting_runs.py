"""How many runs wait for people, and for how long, as the server knows, which outlives every worker.

A run that waits for days is in no worker's memory, so no worker can count it by itself. Once a minute each worker with
metrics lists the roots that wait (one request), and queries a few of them for the age of their decisions.

Laws of this file: bounded work in each round; a failure is tried again in the next; without our search attributes in
the namespace there is nothing to ask.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.service import RPCError

from acts.language.wire import PENDING
from telemetry import metrics

if TYPE_CHECKING:
    from temporalio.client import Client

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 60.0
QUERY: Final = "ActsWaiting > 0 AND ExecutionStatus = 'Running'"
# Ids that one round reads: the number of waiting runs is counted beyond it
MAX_LISTED: Final = 1_000
# A query makes some worker load the run; the oldest runs come first
MAX_ASKED: Final = 20
# After this long the answer may be about a decision that was made meanwhile, while another is waited for
ASK_AGAIN_SECONDS: Final = 600.0
_QUERY_SECONDS: Final = 5

Key = tuple[str, str]


class WaitingRuns:
    """The roots that wait, and since when, as far as they have answered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._since: dict[Key, tuple[float | None, float]] = {}  # Unix times: since when, and of the query

    async def run(self) -> None:
        """Look once a minute, until cancelled."""
        while True:
            try:
                await self.look()
            except RPCError as error:
                logger.debug("the runs that wait cannot be listed: %s", error.message)
            await asyncio.sleep(ROUND_SECONDS)

    async def look(self) -> None:
        """Count the runs that wait, and record the age of the oldest decision that is pending."""
        meters = metrics.meters()
        if meters is None:
            return
        count = (await self._client.count_workflows(QUERY)).count
        runs = self._client.list_workflows(QUERY, limit=MAX_LISTED)
        listed: list[Key] = [(run.id, run.run_id) async for run in runs] if count else []
        self._since = {key: self._since[key] for key in listed if key in self._since}
        now = time.time()
        due = [k for k in reversed(listed) if k not in self._since or now - self._since[k][1] > ASK_AGAIN_SECONDS]
        asked = due[:MAX_ASKED]
        # Side by side: runs whose workers are gone answer none, and each would hold up the round
        answers = await asyncio.gather(*map(self._ask, asked))
        self._since |= {key: (since, now) for key, since in zip(asked, answers, strict=True)}
        oldest = min((since for since, _ in self._since.values() if since is not None), default=now)
        meters.set(metrics.RUNS_WAITING, count)
        meters.set(metrics.OLDEST_WAIT, max(0.0, now - oldest))

    async def _ask(self, key: Key) -> float | None:
        """Since when the oldest decision of a run has been waited for, as a Unix time; None: it does not say."""
        handle = self._client.get_workflow_handle(key[0], run_id=key[1])
        try:
            waits: Any = await handle.query(PENDING, rpc_timeout=timedelta(seconds=_QUERY_SECONDS))
            dates = [datetime.fromisoformat(wait["since"]) for wait in waits]
        except Exception as error:  # noqa: BLE001 - a run that does not answer, or ended: the next round sees
            logger.debug("run %s does not say since when it waits: %s", key[0], type(error).__name__)
            return None
        return min((date.astimezone(UTC).timestamp() for date in dates), default=None)
