"""Helpers that many tests share; no fixtures (those are in conftest.py) and no tests."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

# A workflow task that is lost on its way to a busy worker is given again after 15 s
PATIENCE = timedelta(seconds=180)
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
    """A port of 127.0.0.1 that nothing uses, and that nothing gets by chance before a program of the test binds it.

    The system hands out ports of its own range only, to connections too; this one is below. Not by ``random``, which
    Hypothesis seeds alike in all processes.
    """
    while True:
        port = secrets.choice(range(10_000, _first_port_of_the_system()))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _first_port_of_the_system() -> int:
    try:
        first = int(_PORT_RANGE.read_text().split()[0])
    except OSError:
        first = 32_768  # as Linux has it; macOS begins at 49,152
    return first if first > 11_000 else 32_768
