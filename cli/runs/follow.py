"""Waiting for a run while its progress is shown.

Laws of this file:
- the end of a run is awaited, never polled; progress is polled, less often while nothing changes;
- a query without an answer (no worker, or the moment between two runs of a chain) is no failure: the view keeps the
  last known progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from cli.runs.progress import ParameterCache, read_progress
from cli.runs.run_outcome import Outcome, wait_for_outcome
from cli.runs.run_reader import RunReader

# A query costs the worker a look at the run. Four per second look live; an unchanged run is polled once per second.
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0


class ProgressView(Protocol):
    """Where progress is shown."""

    def show(self, status: Mapping[str, Any]) -> None:
        """Show the progress as ``read_progress`` returns it."""

    def show_silence(self, seconds: float, obstacle: str) -> None:
        """No worker has answered for so long; ``obstacle`` is what keeps it from that, where it is known."""


async def follow(run: RunReader, view: ProgressView) -> Outcome:
    """The outcome of a run; its progress goes to the view."""
    ending = asyncio.ensure_future(wait_for_outcome(run.handle))
    try:
        await _poll_progress(run, view, ending)
        outcome = await ending
        if isinstance(outcome.result, dict):
            view.show({**outcome.result, "phase": outcome.status})  # what happened since the last query
        return outcome
    finally:
        ending.cancel()


async def _poll_progress(run: RunReader, view: ProgressView, ending: asyncio.Future[Outcome]) -> None:
    last: Any = None
    cache: ParameterCache = {}
    answered = time.monotonic()
    pause = FIRST_PAUSE_SECONDS
    while not ending.done():
        reader = run.fresh()
        query = asyncio.ensure_future(read_progress(reader, cache))
        either: list[asyncio.Future[Any]] = [ending, query]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not query.done():
            query.cancel()
            return
        progress = query.result()
        if progress is None:
            view.show_silence(time.monotonic() - answered, await reader.obstacle())
        else:
            answered = time.monotonic()
            view.show(progress)
        pause = FIRST_PAUSE_SECONDS if progress != last else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        last = progress
        await asyncio.wait({ending}, timeout=pause)
