"""A heartbeat beside the work: a worker that is gone is noticed long before its Activity's time is over."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# The workflows' heartbeat timeout (15 s) is five of these
HEARTBEAT_SECONDS: Final = 3.0


@contextlib.asynccontextmanager
async def heartbeat(*details: Callable[[], Any]) -> AsyncIterator[None]:
    """Say regularly that this Activity goes on; ``details`` are asked each time for what to say with it."""

    async def beat() -> None:
        while True:
            activity.heartbeat(*(detail() for detail in details))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
