"""What the engine's own activities share: heartbeats, results as Temporal records them, and signals to runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.language.strict_json import write_json
from acts.language.wire import MAX_PAYLOAD_BYTES, NOT_SERVED
from acts.tree.signal_records import TreeSignal
from acts.tree.wire_format import TYPE_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# A fifth of the heartbeat timeout that the workflows set (15 s)
HEARTBEAT_SECONDS: Final = 3.0


@contextlib.asynccontextmanager
async def heartbeat(details: Callable[[], Any]) -> AsyncIterator[None]:
    """Send heartbeats with what ``details`` returns at that time until the block ends.

    The worker itself sends them for all Activities, with the details that were sent last.
    """

    async def send() -> None:
        while True:
            activity.heartbeat(details())
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def encode_result(result: Any, refuse: Callable[[str], Exception]) -> RawValue:
    """The result as one payload.

    The SDK's own converter would sort the keys, which in a schema or a plan are in their author's order, and would
    write each letter outside of ASCII in six bytes. Raises what ``refuse`` makes of the size of one that
    is too large to be recorded; ValueError: it holds a string or a number that JSON cannot (a lone surrogate, NaN).
    """
    data = write_json(result)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise refuse(f"{len(data):,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded")
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


def miss(text: str) -> ApplicationError:
    """No attempt of the Tool: the run waits for a worker that can (``workflows/in_flight.py``)."""
    attempt = {"miss": {"attempt": activity.info().attempt}}
    return ApplicationError(text, attempt, type=NOT_SERVED, non_retryable=True)


async def send_record(record: TreeSignal, workflow_id: str, run_id: str | None = None) -> bool:
    """Send a signal to a run; False where that failed: what an activity reports is a hint."""
    metadata = {"encoding": b"json/plain", TYPE_KEY: type(record).__name__.encode()}
    payload = Payload(metadata=metadata, data=write_json(record.to_json()))
    run = activity.client().get_workflow_handle(workflow_id, run_id=run_id)
    try:
        await run.signal(record.signal_name(), RawValue(payload))
    except RPCError:
        return False
    return True
