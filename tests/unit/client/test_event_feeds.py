"""A feed: what it keeps, whom it drops, and what it costs nobody."""

from __future__ import annotations

import socket
import threading

import pytest

from acts.client.event_feeds import MAX_KEPT, MAX_WORDS, WatchRefused, _Feed
from acts.views.run_events import EventFilter, RunEvent, words_event
from acts.worker import event_server
from acts.worker.event_server import _Sender

ALL = EventFilter()


def new_feed() -> _Feed:
    return _Feed(None, lambda event: f"{event.offset or event.data['delta']} ".encode())  # type: ignore[arg-type]


def numbered(first: int, count: int) -> list[RunEvent]:
    return [RunEvent("provided", "run", f"{n}") for n in range(first, first + count)]


async def test_who_falls_too_far_behind_loses_the_place_and_who_keeps_up_gets_all() -> None:
    feed, got, place = new_feed(), b"", 0
    for first in range(0, 3 * MAX_KEPT, MAX_KEPT // 2):
        feed.pass_on(numbered(first, MAX_KEPT // 2))
        part, place = feed.take(place, ALL)
        got += part
    assert got.split() == [b"%d" % n for n in range(3 * MAX_KEPT)]
    with pytest.raises(WatchRefused, match="from its last offset"):
        feed.take(0, ALL)
    assert feed.find_place("") is feed.find_place("7") is None
    late = feed.find_place(f"{3 * MAX_KEPT - 3}")
    assert late is not None
    assert feed.take(late, ALL) == (f"{3 * MAX_KEPT - 2} {3 * MAX_KEPT - 1} ".encode(), place)
    assert len(feed._items) == len(feed._places) <= MAX_KEPT


async def test_words_are_dropped_first_and_events_that_follow_are_there() -> None:
    feed = new_feed()
    feed.pass_on(numbered(0, 2))
    for n in range(MAX_WORDS + 5):
        feed.pass_on([words_event("run", "tick-1", "m", [f"w{n}"])])
    feed.pass_on(numbered(2, 1))
    words = feed.take(0, ALL)[0].split()
    assert words[:3] == [b"0", b"1", b"w5"]
    assert words[-2:] == [f"w{MAX_WORDS + 4}".encode(), b"2"]
    assert feed.take(0, EventFilter(types=frozenset({"provided"})))[0].split() == [b"0", b"1", b"2"]


async def test_what_watchers_at_one_place_take_is_made_once() -> None:
    feed = new_feed()
    feed.pass_on(numbered(0, 10))
    first, again = feed.take(0, ALL), feed.take(0, ALL)
    assert first[0] is again[0]
    assert feed.take(1, ALL)[0] == first[0].removeprefix(b"0 ")


def test_a_reader_that_reads_nothing_is_dropped_and_the_others_get_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_server, "SEND_SECONDS", 0.2)
    sender = _Sender()
    pairs = [socket.socketpair() for _ in range(2)]
    content = b"x" * 10_000_000  # more than a socket holds

    class Whole:
        def take(self) -> tuple[bytes, bool]:
            return content, True

    def serve(near: socket.socket) -> None:
        sender.serve(near, Whole())  # type: ignore[arg-type]
        near.close()

    threads = [threading.Thread(target=serve, args=[near]) for near, _ in pairs]
    for thread in threads:
        thread.start()
    for _, far in pairs[1:]:
        received = 0
        while part := far.recv(1 << 20):
            received += len(part)
        assert received == len(content)
    for thread in threads:
        thread.join()
    for _, far in pairs:
        far.close()
