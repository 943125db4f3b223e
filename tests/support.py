"""Helpers that many tests share; no fixtures (those are in conftest.py) and no tests."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

# A workflow task that is lost on its way to a busy worker is given again after 15 s
PATIENCE = timedelta(seconds=40)
FIRST_PAUSE_SECONDS = 0.002  # most things are true at once or within a few milliseconds
LONGEST_PAUSE_SECONDS = 0.1  # after that, looking more often only takes time from what is awaited


async def assert_eventually(predicate: Callable[[], Awaitable[T]], *, within: timedelta = PATIENCE, why: str = "") -> T:
    """Waits until the predicate gives something true, and returns it.

    A predicate may also assert: an AssertionError counts as "not yet", and is what the test fails with when the
    time is up. Any other error is a failure at once.
    """
    deadline = time.monotonic() + within.total_seconds()
    pause = FIRST_PAUSE_SECONDS
    while True:
        failure: AssertionError | None = None
        try:
            value = await predicate()
            if value:
                return value
        except AssertionError as error:
            failure = error
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            if failure is not None:
                raise failure
            msg = f"not true within {within.total_seconds():g} s: {why or predicate}; last seen: {value!r}"
            raise AssertionError(msg)
        await asyncio.sleep(min(pause, remaining))
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
