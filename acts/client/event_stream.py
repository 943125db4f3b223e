"""The events of a run and of its tree, read from their histories: once, or as they come.

``stream_events`` is for one reader; many of one process share a reading of each run (``event_feeds.py``). It costs the
run nothing: no query, no signal, no update; the server is asked for histories alone, by long polls of who follows.

*The order of a tree.* Its histories grow side by side, and are joined by the times of their events. So an event is
passed on once each open run has been read up to a moment after it, no child before it is about to start, and no
decision before it has no answer: an ended tree then yields the same order as one that was followed.

*Resets and continue-as-new.* A run is read with the runs that it continues. Of one that was reset, what came before the
reset is read once; a follower is told ``runReset`` and gets what comes instead of the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHistoryEventAsyncIterator
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from acts.client.server import RPC
from acts.payloads.codec import ENCODING, AesGcmCodec, LockedCodec
from acts.views.run_events import (
    EventFilter,
    HistoryView,
    RunEvent,
    RunPlace,
    is_reference,
    missing_offset,
    offset_micros,
)

LONG_POLL: Final = timedelta(seconds=30)  # the server answers one after 20 s, with nothing
# Between two looks at a run that is busy: what happens meanwhile comes in one page, and a person notices no less
PACE_SECONDS: Final = 0.25
BUSY_EVENTS: Final = 100  # after so many at once, the pause is twice as long: what is sent to all costs by the time
PACE_FACTOR: Final = 2  # of the time that a look at a large tree takes: a third of the time, it is being read …
MAX_PACE_SECONDS: Final = 2.0  # … and it is never older than this
FULL_PAGE: Final = 200  # events: the server sends at most 256, and no part of what one task has recorded
MAX_LOOKS: Final = 16  # histories that are read at a time
MAX_POLLS: Final = 64  # runs whose news are waited for; where more are open, all are looked at …
LOOK_SECONDS: Final = 2.0  # … so often
# The runs below a root that has ended are cancelled by the server; one without a worker stays
LINGER_SECONDS: Final = 10.0
_CONTINUED: Final = 1  # by the workflow itself: CONTINUE_AS_NEW_INITIATOR_WORKFLOW
_GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
_LATER: Final = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_FOREVER: Final = 1 << 63
_SLACK: Final = 10_000_000  # µs between the clocks of the server's parts, and what is read late …
_SKEW: Final = 60_000_000  # … and between its clocks and ours
_RUN_ENDS: Final = ("workflow_execution_completed_event_attributes", "workflow_execution_failed_event_attributes")


async def stream_events(
    client: Client, workflow_id: str, *, run_id: str | None = None, after: str = "", follow: bool = False,
    wanted: EventFilter | None = None,
) -> AsyncIterator[RunEvent]:  # fmt: skip
    """The events of a run and of all runs below it, in their order; ``after`` an offset, or from the beginning.

    ``follow``: until they have ended, else until now. ``run_id`` None: the latest run of the id, with those that it
    continues. Raises EventsRefused: the offset is malformed, or names no event of this run; RPCError: there is no such
    run, or the server does not answer.
    """
    wanted, micros, tree = wanted or EventFilter(), offset_micros(after) if after else 0, HistoryTree(client)
    is_found = not after
    async with contextlib.aclosing(tree.read(workflow_id, run_id, follow=follow)) as batches:
        async for batch in batches:
            for event in batch:
                if is_found and wanted.admits(event):
                    yield event
                elif not is_found:
                    is_found = event.offset == after
                    if event.order[0] > micros:
                        raise missing_offset(after)
            if not is_found and tree.is_read:
                raise missing_offset(after)


@dataclass(eq=False)
class _History:
    """One history that is being read. ``polling`` is the request for its next page that is on its way."""

    view: HistoryView
    pages: WorkflowHistoryEventAsyncIterator
    polling: asyncio.Task[None] | None = None
    is_open: bool = True

    def poll(self) -> asyncio.Task[None]:
        if self.polling is None:
            self.polling = asyncio.create_task(self.pages.fetch_next_page())
            self.polling.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # or asyncio calls it lost
        return self.polling


class HistoryTree:
    """Reads the histories of a run and of all runs below it.

    ``is_read``: all that there was has been passed on. ``runs`` are the workflow ids.
    """

    def __init__(self, client: Client) -> None:
        self.is_read, self.runs = False, set[str]()
        self._client, self._codec = client, client.data_converter.payload_codec
        self._has_own_codec = isinstance(self._codec, AesGcmCodec | LockedCodec)
        self._looks = asyncio.Semaphore(MAX_LOOKS)
        self._histories: dict[str, _History] = {}  # by run id
        self._chains: dict[str, str] = {}  # the runs that continue others, where these cannot know it: after a reset
        self._buffer: list[RunEvent] = []
        self._newest = 0

    async def read(
        self, workflow_id: str, run_id: str | None = None, *, follow: bool = False
    ) -> AsyncGenerator[list[RunEvent]]:
        """Batches of events; an empty one where nothing new may be passed on yet."""
        run_id = run_id or (await self._describe(workflow_id)).run_id
        self._open(HistoryView(RunPlace(workflow_id, await self._find_first(workflow_id, run_id))))
        read_before, looks, alone = 0, 0, 0
        try:
            while True:
                began, looks = time.monotonic(), looks + 1
                # A history that was alone all the time has been read as it came
                is_whole = alone == len(self._histories) or await self._look()
                batch = self._take(_FOREVER if is_whole else read_before)
                self.is_read, read_before = self.is_read or is_whole or looks > 1, self._newest
                pace = PACE_SECONDS * (2 if len(batch) > BUSY_EVENTS else 1)
                pause = min(max(pace, PACE_FACTOR * (time.monotonic() - began)), MAX_PACE_SECONDS)
                yield batch
                if not (self._buffer or self._open_histories()) or (self.is_read and not follow):
                    return
                alone = len(self._histories) if len(self._open_histories()) == 1 and not self._buffer else 0
                if follow and not self._buffer and not await self._wait():
                    return
                await asyncio.sleep(pause if follow else 0.0)
        finally:
            for history in self._histories.values():
                if history.polling is not None:
                    history.polling.cancel()

    def _open_histories(self) -> list[_History]:
        return [history for history in self._histories.values() if history.is_open]

    def _open(self, view: HistoryView) -> _History:
        place = view.place
        handle = self._client.get_workflow_handle(place.workflow_id, run_id=place.run_id)
        pages = handle.fetch_history_events(wait_new_event=True, skip_archival=True, rpc_timeout=LONG_POLL)
        history = self._histories[place.run_id] = _History(view, pages)
        self.runs.add(place.workflow_id)
        return history

    def _take(self, until: int) -> list[RunEvent]:
        """The events up to this time that no event which is still to be read may come before, in order."""
        now = max(self._newest - _SLACK, time.time_ns() // 1000 - _SKEW)
        views = (history.view for history in self._open_histories())
        until = min(until, *(view.held_from(now, _FOREVER) - 1 for view in views), _FOREVER)
        events = sorted((e for e in self._buffer if e.order[0] <= until), key=lambda event: event.order)
        self._buffer = [event for event in self._buffer if event.order[0] > until]
        return events

    # -- reading --------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Read each open history as far as it goes now; True where no other can have grown meanwhile."""
        current: set[_History] = set()
        while new := [history for history in self._open_histories() if history not in current]:
            current.update(new)
            await asyncio.gather(*map(self._catch_up, new))
        return len(current) <= 1 or not self._open_histories()

    async def _catch_up(self, history: _History) -> None:
        place = history.view.place
        async with self._looks:
            try:
                info = await self._describe(place.workflow_id, place.run_id)
            except RPCError as error:
                if error.status not in _GONE:
                    raise
                history.is_open = False  # a child whose history is deleted
                return
            while history.is_open and history.view.last_id < info.history_length:
                await self._read_page(history)

    async def _read_page(self, history: _History) -> bool:
        """Read the next page, or wait for it; True where more is there already."""
        await asyncio.wait([history.poll()])
        task, history.polling, view = history.poll(), None, history.view
        try:
            task.result()
        except RPCError as error:
            if error.status not in _LATER:
                raise
            return False
        page = history.pages.current_page or ()
        for event in page:
            if event.event_id > view.last_id:
                if view.wants(event):
                    await self._decode(event)
                self._buffer += view.read(event)
        self._newest = max(self._newest, view.micros)
        for place in view.children:
            if place.run_id not in self._histories:
                self._open(HistoryView(place))
        view.children.clear()
        if view.ended:
            history.is_open = False
            await self._open_next(view)
        return history.is_open and len(page) >= FULL_PAGE

    async def _decode(self, event: HistoryEvent) -> None:
        """Decrypt the payloads of an event, and fetch the result of a run from external storage: it has all ends."""
        # To look for it in the bytes takes a microsecond, to look at each payload thirty
        if self._codec is not None and not (self._has_own_codec and ENCODING not in event.SerializeToString()):
            payloads = list(_payloads_of(event))
            for payload, plain in zip(payloads, await self._codec.decode(payloads), strict=True):
                payload.CopyFrom(plain)
        if event.WhichOneof("attributes") in _RUN_ENDS and self._client.data_converter.external_storage is not None:
            for payload in filter(is_reference, _payloads_of(event)):
                [value] = await self._client.data_converter.decode([payload], [RawValue])
                payload.CopyFrom(value.payload)

    async def _wait(self) -> bool:
        """Wait until some history has grown; False where the root has ended, and none below it grows for a while."""
        while True:
            open_, newest = self._open_histories(), self._newest
            has_root = any(history.view.place.depth == 0 for history in open_)
            limit = LOOK_SECONDS if len(open_) > MAX_POLLS else None if has_root else LINGER_SECONDS
            polled = {history.poll(): history for history in open_[:MAX_POLLS]}
            done, _ = await asyncio.wait(polled, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                while await self._read_page(polled[task]):
                    pass
            if self._newest > newest or len(self._open_histories()) != len(open_):
                return True
            if limit is not None:
                return has_root

    # -- runs of one id -------------------------------------------------------------------------------

    async def _describe(self, id_: str, run_id: str | None = None) -> WorkflowExecutionDescription:
        return await self._client.get_workflow_handle(id_, run_id=run_id).describe(rpc_timeout=RPC)

    async def _find_first(self, id_: str, run_id: str, *, to_reset: bool = False) -> str:
        """The first run of those that continue one another up to this one, as far as the server still has them.

        ``to_reset``: or the latest that was reset.
        """
        while True:
            handle = self._client.get_workflow_handle(id_, run_id=run_id)
            try:
                first = await anext(aiter(handle.fetch_history_events(page_size=1, rpc_timeout=RPC)))
            except RPCError as error:
                if error.status not in _GONE or run_id not in self._chains:
                    raise
                return self._chains[run_id]
            start = first.workflow_execution_started_event_attributes
            before = start.continued_execution_run_id if start.initiator == _CONTINUED else ""
            if not before or (to_reset and start.original_execution_run_id != run_id):
                return run_id
            self._chains[before], run_id = run_id, before

    async def _open_next(self, view: HistoryView) -> None:
        """Open the run that goes on where this one has ended: it was continued, or reset."""
        id_, run_id = view.place.workflow_id, view.place.run_id
        if view.next_run_id:
            view.next_run_id = self._chains.get(run_id, view.next_run_id)
            self._open(view.next())
        elif view.ended == "terminated":
            latest, own = await self._describe(id_), await self._describe(id_, run_id)
            is_same_chain = latest.raw_info.first_run_id == own.raw_info.first_run_id
            if is_same_chain and latest.run_id not in self._histories:
                new = await self._find_first(id_, latest.run_id, to_reset=True)
                self._open(HistoryView(replace(view.place, run_id=new, link=view.place.link + 1, reset_of=run_id)))


def _payloads_of(message: Message) -> Iterator[Payload]:
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        is_map = descriptor.message_type.GetOptions().map_entry
        parts = value.values() if is_map else [value] if isinstance(value, Message) else value
        for part in parts:
            if isinstance(part, Payload):
                yield part
            elif isinstance(part, Message):
                yield from _payloads_of(part)
