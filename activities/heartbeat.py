"""A heartbeat beside the work of an activity: a dead worker is noticed long before the activity times out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# A fifth of the heartbeat timeout that the workflows set (15 s)
HEARTBEAT_SECONDS: Final = 3.0


@contextlib.asynccontextmanager
async def heartbeat(*details: Callable[[], Any]) -> AsyncIterator[None]:
    """Send heartbeats until the block ends; each carries what ``details`` return at that time."""

    async def send() -> None:
        while True:
            activity.heartbeat(*(detail() for detail in details))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
