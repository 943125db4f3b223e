"""What the model activity tells runs while it works: the Calls of an answer, and waits for a model.

A report is a hint. The activity's result holds the whole answer, and is what counts; a report that is late or lost
costs time and nothing else.

* Calls are reported to their agent while the model still writes, so that they can start. A report is a signal, which
  costs a few events. So the first one waits a moment for the rest of a short answer, the next ones while one is on its
  way, and a long answer is reported in parts that grow with it.
* A wait is reported to the run and to the root of its tree: people see it in ``status`` and in the Web UI. Short waits
  are not reported, and of the requests of a run that wait at the same time one worker reports one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import Any, Final, Self

from temporalio import activity

from acts.activities.engine_activities import send_record
from acts.language.strict_json import json_size
from acts.language.wire import MAX_PAYLOAD_BYTES, MODEL_WAIT, STREAMED_CALLS
from acts.telemetry import metrics
from acts.tree.records import ModelQuestion
from acts.tree.signal_records import ModelWait, StreamedCalls

# An answer that ends within this time starts its Calls with it: no report is needed
PATIENCE_SECONDS: Final = 0.2
# A part has at least one Call for so many that were reported before
_CALLS_PER_REPORTED: Final = 16
# Seconds of a wait that somebody who looks would wonder about
LEAST_SECONDS: Final = 5.0
# Runs whose last report is remembered
_MAX_RUNS: Final = 1_000


class CallStream:
    """The reports of one attempt at an answer, as an async context around the request to the model.

    ``token`` is the token of the agent's tree.
    """

    def __init__(self, agent_id: str, run_id: str, tick: int, attempt: int, token: str) -> None:
        self._agent = agent_id, run_id
        self._source: dict[str, Any] = {"tick": tick, "attempt": attempt, "token": token}
        self._calls: list[Any] = []
        self._reported = 0
        self._over, self._changed = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_reported(self) -> bool:
        """True when Calls may have started: the answer cannot be given up for another one."""
        return self._reported > 0

    def add(self, index: int, call: Any) -> None:
        """A Call is complete. One that begins anew (a second request in one attempt) replaces what is unreported."""
        if index == 0 and not self.has_reported:
            self._calls.clear()
        if index != len(self._calls):
            self._over.set()  # another answer than the one that was reported
        self._calls.append(call)
        self._changed.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._report_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the report that is on its way: none may come after the answer."""
        self._over.set()
        self._changed.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _report_all(self) -> None:
        while not self._over.is_set():
            await self._changed.wait()
            self._changed.clear()
            if not self.has_reported:  # a short answer may end within this time
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), PATIENCE_SECONDS)
            unreported = len(self._calls) - self._reported
            if unreported > self._reported // _CALLS_PER_REPORTED and not self._over.is_set():
                calls = tuple(self._calls[self._reported :])
                record = StreamedCalls(**self._source, first=self._reported, calls=calls)
                is_sent = json_size(record.to_json()) <= MAX_PAYLOAD_BYTES
                if is_sent:
                    self._reported += len(calls)  # also if the signal fails: it may have arrived
                    is_sent = await send_record(STREAMED_CALLS, record, *self._agent)
                if not is_sent:
                    self._over.set()


# -- waits ---------------------------------------------------------------------------

_reported_until: Final[dict[tuple[str, str], float]] = {}


async def report_wait(question: ModelQuestion, model: str, reason: str, seconds: float) -> bool:
    """Report that the next attempt is in so many seconds; True where a report was made for it."""
    now, key = time.time(), (activity.info().workflow_run_id or "", model)
    if (meters := metrics.meters()) is not None:
        meters.add(metrics.MODEL_WAITS, model=model, reason=reason)
        meters.record(metrics.MODEL_WAIT_SECONDS, seconds, model=model)
    if seconds < LEAST_SECONDS:
        return False
    if _reported_until.get(key, 0.0) < now + seconds / 2:
        _reported_until[key] = now + seconds
        if len(_reported_until) > _MAX_RUNS:
            del _reported_until[next(iter(_reported_until))]
        until = datetime.fromtimestamp(now + seconds, UTC).isoformat(timespec="seconds")
        await send_wait(question, round(seconds, 1), model=model, reason=reason, nextTry=until)
    return True


async def send_wait(question: ModelQuestion, seconds: float = 0, **fields: Any) -> None:
    """Tell the run and the root of its tree of a wait, or (no seconds) the root that it is over."""
    info = activity.info()
    record = ModelWait(workflowId=info.workflow_id or "", token=question.token, seconds=seconds, **fields)
    if record.seconds:
        await send_record(MODEL_WAIT, record, record.workflowId, info.workflow_run_id)
    if question.root:
        await send_record(MODEL_WAIT, record, question.root)
