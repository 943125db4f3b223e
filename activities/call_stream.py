"""Reports the Calls of an answer to its agent while the model still writes it, so that they can start.

Laws of this file: a report is a hint. The activity's result holds the whole answer, and is what counts; a report
that is late or lost costs time and nothing else. It does not know what a Call means.

A report is a signal, which costs a few events. So the first one waits a moment for the rest of a short answer, the
next ones while one is on its way, and a long answer is reported in parts that grow with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.service import RPCError

from acts.language.strict_json import write_json
from acts.language.wire import MAX_PAYLOAD_BYTES, STREAMED_CALLS
from acts.tree.instance_payload import TYPE_KEY
from acts.tree.signal_records import StreamedCalls

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

# An answer that ends within this time starts its Calls with it: no report is needed
PATIENCE_SECONDS: Final = 0.2
# A part has at least one Call for so many that were reported before
_CALLS_PER_REPORTED: Final = 16


class CallStream:
    """The reports of one attempt at an answer, as an async context around the request to the model.

    ``token`` is that of the agent's tree.
    """

    def __init__(self, agent: WorkflowHandle[Any, Any], tick: int, attempt: int, token: str) -> None:
        self._agent, self._tick, self._attempt, self._token = agent, tick, attempt, token
        self._calls: list[Any] = []
        self._reported = 0
        self._is_over = False
        self._changed = asyncio.Event()
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
            self._is_over = True  # another answer than the one that was reported
        self._calls.append(call)
        self._changed.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._report_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the report that is on its way: none may come after the answer."""
        self._is_over = True
        self._changed.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _report_all(self) -> None:
        while not self._is_over:
            await self._changed.wait()
            self._changed.clear()
            if not self.has_reported:
                await self._wait_for_the_end()
            unreported = len(self._calls) - self._reported
            if unreported > self._reported // _CALLS_PER_REPORTED and self._may_report:
                await self._report()

    @property
    def _may_report(self) -> bool:
        return not self._is_over

    async def _wait_for_the_end(self) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not self._is_over:
                    await self._changed.wait()
                    self._changed.clear()

    async def _report(self) -> None:
        first, calls = self._reported, tuple(self._calls[self._reported :])
        record = StreamedCalls(tick=self._tick, attempt=self._attempt, first=first, calls=calls, token=self._token)
        data = write_json(record.to_json())
        if len(data) > MAX_PAYLOAD_BYTES:
            self._is_over = True
            return
        self._reported += len(calls)  # also if the signal fails: it may have arrived
        metadata = {"encoding": b"json/plain", TYPE_KEY: StreamedCalls.__name__.encode()}
        try:
            await self._agent.signal(STREAMED_CALLS, RawValue(Payload(metadata=metadata, data=data)))
        except RPCError:
            self._is_over = True
