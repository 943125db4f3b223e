"""The feeds of a process: each run that is watched is read once, for any number of watchers.

A feed holds the events of one run, and the words of its models as they come, in memory. Nothing is queued for a
watcher: it has a place in the feed, and takes what is behind it when it can. So one that stops reading costs nothing,
and loses its place when the feed has dropped what stands there; then it reads on from its last offset, as anybody does.

All but ``Watch.take`` runs in the event loop of the feeds; that may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from temporalio.client import Client

from acts.client.event_stream import HistoryTree
from acts.language.errors import ActsError
from acts.views.run_events import EventFilter, RunEvent, missing_offset, offset_micros, words_event

Translate = Callable[[RunEvent], bytes]

MAX_WATCHERS: Final = 1_000  # of a process
# Events that a feed holds: 5,000 Calls, at 1 to 5 kB each. Beyond, who comes late reads the histories for itself
MAX_KEPT: Final = 20_000
MAX_WORDS: Final = 2_000  # pieces of text that a feed holds: those of the answers that are being written
FLUSH_SECONDS: Final = 0.1  # words come many times a second, and are passed on so often


class WatchRefused(ActsError):
    """A watcher that is too slow, or one too many; says what to do."""


class _Feed:
    """One run that is being read. ``base`` is the place of the first event that it still has."""

    def __init__(self, tree: HistoryTree, translate: Translate) -> None:
        self.tree, self.base, self.is_over = tree, 0, False
        self.error: Exception | None = None
        self.ready, self.wakes = asyncio.Event(), set[Callable[[], None]]()
        self._translate, self._lock = translate, threading.Lock()
        self._items: list[tuple[RunEvent, bytes] | None] = []
        self._places: dict[str, int] = {}  # by offset
        self._word_places: deque[int] = deque()
        self._words: dict[tuple[str, str, str], list[str]] = {}  # by run, key and message; not passed on yet
        self._last_page: tuple[tuple[int, int, EventFilter] | None, bytes] = None, b""
        self.task: asyncio.Task[None] | None = None

    async def read(self, workflow_id: str) -> None:
        try:
            async with aclosing(self.tree.read(workflow_id, follow=True)) as batches:
                async for batch in batches:
                    self.pass_on(batch)
                    if self.tree.is_read:
                        self.ready.set()
        except Exception as error:  # noqa: BLE001 - each watcher is told
            self.error = error
        finally:
            self.is_over = True
            self.ready.set()
            self.pass_on(())

    def find_place(self, offset: str) -> int | None:
        """The place behind the event of an offset, or the first one; None where the feed has dropped it."""
        place = self._places.get(offset, -2) + 1 if offset else 0
        return place if place >= self.base else None

    def take(self, place: int, wanted: EventFilter) -> tuple[bytes, int]:
        """What is behind a place, and the place behind that; mostly the same for all watchers, so it is made once.

        Raises WatchRefused: the feed has dropped it.
        """
        with self._lock:
            end = self.base + len(self._items)
            if place < self.base:
                raise WatchRefused("this reader has been too slow, and the feed went on: read from its last offset")
            if self._last_page[0] != (place, end, wanted):
                items = filter(None, self._items[place - self.base :])
                content = b"".join(frame for event, frame in items if wanted.admits(event))
                self._last_page = (place, end, wanted), content
            return self._last_page[1], end

    def add_words(self, run: str, key: str, message: str, text: str) -> None:
        if not self._words:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.pass_on, ())
        self._words.setdefault((run, key, message), []).append(text)

    def pass_on(self, events: Sequence[RunEvent]) -> None:
        """Let watchers have the words that have come, then these events."""
        words, self._words = self._words, {}
        texts = [words_event(run, key, message, pieces) for (run, key, message), pieces in words.items()]
        with self._lock:
            for event in (*texts, *events):
                place = self.base + len(self._items)
                if event.offset:
                    self._places[event.offset] = place
                else:
                    self._word_places.append(place)
                self._items.append((event, self._translate(event)))
            while len(self._word_places) > MAX_WORDS:
                self._forget(self._word_places.popleft())
            while len(self._items) > MAX_KEPT:
                self._drop(MAX_KEPT // 4)
        for wake in tuple(self.wakes):
            wake()

    def _forget(self, place: int) -> None:
        if place >= self.base:
            self._items[place - self.base] = None

    def _drop(self, count: int) -> None:
        for item in self._items[:count]:
            if item is not None:
                self._places.pop(item[0].offset, None)
        del self._items[:count]
        self.base += count


class Watch:
    """One watcher's place in a feed; ``close`` gives it up."""

    def __init__(self, feeds: EventFeeds, feed: _Feed, wake: Callable[[], None], wanted: EventFilter) -> None:
        self._feeds, self._wake, self._wanted, self._place = feeds, wake, wanted, 0
        self._enter(feed)

    def take(self) -> tuple[bytes, bool]:
        """What was made of the wanted events since the last time, and True where none follow.

        Raises WatchRefused: this watcher has been too slow; or what ended the feed before its run.
        """
        is_over = self._feed.is_over
        content, self._place = self._feed.take(self._place, self._wanted)
        if is_over and not content and self._feed.error is not None:
            raise self._feed.error
        return content, is_over

    async def _begin(self, after: str, read_alone: Callable[[], _Feed]) -> None:
        await self._feed.ready.wait()
        if self._feed.base and self._feed.find_place(after) is None:  # it has dropped what this one wants
            self.close()
            self._enter(read_alone())
            await self._feed.ready.wait()
        if self._feed.error is not None:
            raise self._feed.error
        if (place := self._feed.find_place(after)) is None:
            raise missing_offset(after)
        self._place = place

    def _enter(self, feed: _Feed) -> None:
        self._feed = feed
        self._feeds.watchers += 1
        feed.wakes.add(self._wake)

    def close(self) -> None:
        if self._wake in self._feed.wakes:
            self._feed.wakes.discard(self._wake)
            self._feeds.leave(self._feed)


class EventFeeds:
    """The feeds of one client. ``begin_stream`` makes, for each feed, what makes bytes of each of its events."""

    def __init__(self, client: Client, begin_stream: Callable[[], Translate]) -> None:
        self._client, self._begin_stream, self.watchers = client, begin_stream, 0
        self._feeds: dict[str, _Feed] = {}  # by the workflow id

    async def open(
        self, workflow_id: str, wake: Callable[[], None], *, after: str = "", wanted: EventFilter | None = None
    ) -> Watch:
        """A watcher of a run, behind the event of an offset; ``wake`` is called, in the loop, when there is more.

        Raises EventsRefused: it is no offset of this run; WatchRefused: there are too many; RPCError: as of the server.
        """
        if after:
            offset_micros(after)
        if self.watchers >= MAX_WATCHERS:
            raise WatchRefused(f"{MAX_WATCHERS:,} watch already: ask another worker, or read histories (`acts events`)")
        if workflow_id not in self._feeds:
            self._feeds[workflow_id] = self._begin(workflow_id)
        watch = Watch(self, self._feeds[workflow_id], wake, wanted or EventFilter())
        try:
            await watch._begin(after, lambda: self._begin(workflow_id))  # noqa: SLF001 - a part of this
        except BaseException:
            watch.close()
            raise
        return watch

    def add_words(self, run: str, key: str, message: str, text: str) -> None:
        """Words of the model that a run asks, for those who watch it; "" ends a message."""
        for workflow_id, feed in self._feeds.items():
            if run in feed.tree.runs or run.startswith(f"{workflow_id}/"):
                feed.add_words(run, key, message, text)

    def leave(self, feed: _Feed) -> None:
        """A watcher has left; a feed without any ends."""
        self.watchers -= 1
        if not feed.wakes and feed.task is not None:
            feed.task.cancel()
            self._feeds = {key: other for key, other in self._feeds.items() if other is not feed}

    def close(self) -> None:
        for feed in self._feeds.values():
            if feed.task is not None:
                feed.task.cancel()

    def _begin(self, workflow_id: str) -> _Feed:
        feed = _Feed(HistoryTree(self._client), self._begin_stream())
        feed.task = asyncio.create_task(feed.read(workflow_id))
        return feed
