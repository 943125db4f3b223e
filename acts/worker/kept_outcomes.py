"""Outcomes of Activities, kept for a while: a finished result outlives the absence of the server.

The SDK's core (1.35) gives up to report an Activity that has ended after nine tries in eight to ten seconds. The server
then waits for a heartbeat, and has the Activity begin again: a Tool would run, and a model be asked, a second time. Who
runs it never learns which reports got through. So the worker keeps what is final, and

* reports it again, by the Activity's id, as soon as the server answers again (``report_lost``): what has arrived before
  is refused. Where another worker has another attempt by then, it holds it back for a moment (``hold``), and learns by
  a heartbeat that it is over;
* returns it to a later attempt that reaches this worker (``take``), as when the server's disk was full.

Nothing is written down: what a worker that is killed had not reported runs again, under the same ``_id``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from temporalio import activity
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

if TYPE_CHECKING:
    from datetime import datetime

    from temporalio.activity import Info
    from temporalio.client import Client

logger = logging.getLogger(__name__)

# What an Activity returned, or raised
Outcome = RawValue | Exception | None

# More than a worker has in hand while the server is away (500 by default), and ends until the next attempts have come
MAX_OUTCOMES: Final = 5_000
MAX_BYTES: Final = 64 * 1024 * 1024
KEPT_SECONDS: Final = 1_800.0  # longer than it takes to start a server again
# An Activity of our workers begins again a second after its server has found that heartbeats are missing
LOOK_SECONDS: Final = 0.25
# After the server has come back, other attempts wait for so long, since this or another worker may report what they are
# to repeat: of 100 that had ended meanwhile, the last is reported after two seconds
HOLD_SECONDS: Final = 3.0
MIN_HOLD_SECONDS: Final = 1.5  # one heartbeat goes out per second
AWAY_SECONDS: Final = 3.0  # what is shorter, the SDK's own tries outlast
REPORT_SECONDS: Final = 10.0  # one try of the SDK: a busy server may be killed in the midst of it
REPORTS: Final = 16  # at once: a server that has just come back has more to do


@dataclass(frozen=True, slots=True)
class Kept:
    """``attempt`` 0: of a local Activity, whose outcome the ordinary Activity of the same id returns."""

    outcome: Outcome
    size: int
    attempt: int = 0
    scheduled: datetime | None = None
    workflow_id: str = ""
    ended: float = field(default_factory=time.monotonic)


class KeptOutcomes:
    """By run id and activity id, the oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._bytes = 0
        # When the server last answered; when it came back
        self._answered_at, self._back_at = time.monotonic(), float("-inf")

    def keep(self, run_id: str, activity_id: str, outcome: Kept) -> None:
        """Keep an outcome, and drop the oldest where they are too many or too large."""
        with self._lock:
            older = self._outcomes.pop((run_id, activity_id), None)
            self._outcomes[run_id, activity_id] = outcome
            self._bytes += outcome.size - (older.size if older else 0)
            while self._bytes > MAX_BYTES or len(self._outcomes) > MAX_OUTCOMES:
                self._bytes -= self._outcomes.popitem(last=False)[1].size

    def take(self, run_id: str, activity_id: str, attempt: int = 1, scheduled: datetime | None = None) -> Kept | None:
        """The outcome of an earlier attempt of the same Activity. One that was reset counts its attempts anew."""
        with self._lock:
            outcome = self._outcomes.get((run_id, activity_id))
        if outcome is None or attempt <= outcome.attempt or time.monotonic() - outcome.ended > KEPT_SECONDS:
            return None
        return outcome if outcome.scheduled in (None, scheduled) else None

    def forget(self) -> None:
        """Drop all: memory is short."""
        with self._lock:
            self._outcomes.clear()
            self._bytes = 0

    async def hold(self, info: Info) -> None:
        """Where the server came back a moment ago, hold another attempt back; it is cancelled if it is over."""
        now = time.monotonic()
        back = now if now - self._answered_at > AWAY_SECONDS else self._back_at
        if info.attempt == 1 or not info.heartbeat_timeout or now > back + HOLD_SECONDS:
            return
        until = max(back + HOLD_SECONDS, now + MIN_HOLD_SECONDS)
        while time.monotonic() < until:
            activity.heartbeat(*info.heartbeat_details)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LOOK_SECONDS)
            if activity.is_cancelled():  # the SDK cancels no task of a Tool in a thread
                details = activity.cancellation_details()
                if details is None or not details.not_found:
                    raise asyncio.CancelledError
                text = "this attempt is over: another one has ended meanwhile"
                raise ApplicationError(text, category=ApplicationErrorCategory.BENIGN)

    async def report_lost(self, client: Client) -> None:
        """Whenever the server has been away, report what ended meanwhile; until the task is cancelled."""
        self._answered_at = time.monotonic()  # a worker begins only where the server answers
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await _answers(client):
                since, self._answered_at = self._answered_at, time.monotonic()
                if self._answered_at - since > AWAY_SECONDS:
                    self._back_at = self._answered_at
                    await self._report_since(client, since - REPORT_SECONDS)
                    self._answered_at = self._back_at = time.monotonic()

    async def _report_since(self, client: Client, since: float) -> None:
        """The newest first: most of the oldest have arrived."""
        with self._lock:
            lost = [(key, kept) for key, kept in reversed(self._outcomes.items())
                    if kept.attempt and kept.ended >= since]  # fmt: skip
        room = asyncio.Semaphore(REPORTS)

        async def report(run_id: str, activity_id: str, outcome: Kept) -> bool:
            async with room:
                return await _report(client, run_id, activity_id, outcome)

        arrived = sum(await asyncio.gather(*(report(*key, kept) for key, kept in lost)))
        text = "the server was away; of %d calls that ended meanwhile or shortly before, %d are reported now"
        logger.warning(text, len(lost), arrived)


async def _answers(client: Client) -> bool:
    try:
        await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=timedelta(seconds=1))
    except RPCError as error:
        return error.status not in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
    return True


async def _report(client: Client, run_id: str, activity_id: str, outcome: Kept) -> bool:
    """True where the server did not have it. By id: its token ends with its attempt, which may have timed out."""
    handle = client.get_async_activity_handle(workflow_id=outcome.workflow_id, run_id=run_id, activity_id=activity_id)
    try:
        if isinstance(outcome.outcome, Exception):
            await handle.fail(outcome.outcome)
        else:
            await handle.complete(outcome.outcome)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            logger.warning("run %s, call %s: its report fails: %s", outcome.workflow_id, activity_id, error.message)
        return False
    logger.warning(
        "run %s, call %s: what attempt %d came to %.0f s ago is reported now: the server was away",
        outcome.workflow_id, activity_id, outcome.attempt, time.monotonic() - outcome.ended,
    )  # fmt: skip
    return True
