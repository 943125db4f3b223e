"""Continue-as-new: when a plan hands over to a new run with a short history, and how it comes to a moment for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow

from workflows.extent import Extent
from workflows.parent import Parent
from workflows.payloads import MAX_PAYLOAD, pack, size

# Continue-as-new is free at a moment when nothing runs. Without such a moment we make
# one, well before the server terminates a run (at 51,200 events or 50 MB): new calls
# are held back until the running ones are done, but not longer than DRAIN_SECONDS.
DRAIN_EVENTS: Final = 15_000
DRAIN_BYTES: Final = 15_000_000
DRAIN_SECONDS: Final = 20.0
# Here the drain has no limit any more: the alternative is to be terminated
LAST_EVENTS: Final = 40_000
LAST_BYTES: Final = 40_000_000


class Renewing(Parent):
    """The part of ``Plan`` that is about its next run."""

    def __init__(self) -> None:
        super().__init__()
        self._approved = True
        self._extent = Extent()
        self._drain_after = DRAIN_EVENTS
        self._not_before = 0
        self._drain: asyncio.Task[None] | None = None

    def _kept(self) -> dict[str, Any]:
        """What the next run is handed."""
        raise NotImplementedError

    def _due(self) -> bool:
        """True when the history is long enough for a new run."""
        info = workflow.info()
        if info.get_current_history_length() < self._not_before:
            return False
        return info.is_continue_as_new_suggested() or info.get_current_history_length() >= self._drain_after

    def _hold(self) -> bool:
        """When all that runs has just ended, hold back what comes next: a free moment for a new run."""
        walk = self._now_walking
        if not self._approved or not self._due() or walk.draining or walk.cancelling:
            return False
        if walk.running > len(self._inbox):
            return False
        walk.drain(on=True)
        return True

    def _overgrown(self) -> bool:
        """True when a run that only waits has a long history all the same: of messages that changed nothing."""
        walk = self._now_walking
        return walk.quiet and not walk.cancelling and self._due() and workflow.all_handlers_finished()

    def _renew(self) -> None:
        """Continue as new, when it is time and nothing runs; else make such a moment."""
        walk = self._now_walking
        if walk.cancelling or not self._due() or not workflow.all_handlers_finished():
            return
        if walk.quiet:
            kept = self._kept()
            before = self._extent.at_end(size(pack(kept)))
            carried = pack({**kept, "before": before})
            if size(carried) <= MAX_PAYLOAD:
                workflow.continue_as_new(carried)
            self._not_before = workflow.info().get_current_history_length() + DRAIN_EVENTS // 3
            if walk.draining:
                self._drained(None)
            return  # too much to carry: go on here as long as the server lets us
        info = workflow.info()
        events, bytes_ = info.get_current_history_length(), info.get_current_history_size()
        if walk.draining or (events < self._drain_after and bytes_ < DRAIN_BYTES):
            return
        walk.drain(on=True)
        self._drain_after = events + DRAIN_EVENTS // 3
        if events < LAST_EVENTS and bytes_ < LAST_BYTES:
            drain = workflow.sleep(timedelta(seconds=DRAIN_SECONDS), summary="drain before continue-as-new")
            self._drain = asyncio.create_task(drain)
            self._drain.add_done_callback(self._drained)

    def _drained(self, _: asyncio.Task[None] | None) -> None:
        self._inbox.append(lambda walk, _now: walk.drain(on=False))
