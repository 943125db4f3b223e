"""Signals to other runs, each run's in the order in which they were sent.

The server keeps no order among signals that one workflow task sends: a pause and the resume after it would reach a
child either way round. So the next is sent when the one before has arrived.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from temporalio import workflow
    from temporalio.common import RawValue

    Told = workflow.ChildWorkflowHandle[Any, Any] | workflow.ExternalWorkflowHandle[Any]


class Post:
    """One line for each run that something is sent to, for as long as somebody stands in it."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    async def send(self, handle: Told, signal: str, *args: RawValue) -> None:
        """Signal one run; returns when it has arrived, and raises when it cannot."""
        line, standing = self._lines.setdefault(handle.id, (asyncio.Lock(), []))
        standing.append(None)
        try:
            async with line:
                await handle.signal(signal, args=list(args))
        finally:
            standing.pop()
            if not standing:
                del self._lines[handle.id]
