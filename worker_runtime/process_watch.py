"""One thread that looks at everything that may get stuck, and one that ends the process when a stop takes too long."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

logger = logging.getLogger(__name__)

# A blocked loop is found within a second and a half
LOOK_SECONDS: Final = 0.5


class ProcessWatch:
    """Calls each of ``looks`` twice per second, in a thread of its own, until the block ends."""

    def __init__(self, looks: Sequence[Callable[[], None]]) -> None:
        self._looks = looks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for look in self._looks:
                try:
                    look()
                except Exception:
                    logger.exception("the watch of this process failed; it goes on")


# ``faulthandler`` has one timer; a stop is its last use
_timer_lock: Final = threading.Lock()
_is_stopping = threading.Event()


def postpone_end(seconds: float) -> None:
    """End the process unless this is called again within so many seconds, or it stops; needs no interpreter lock."""
    with _timer_lock:
        if not _is_stopping.is_set():
            faulthandler.dump_traceback_later(seconds, exit=True)


def limit_stop(seconds: float) -> None:
    """End the process after so many seconds, whatever its threads do; called once, when a stop is requested.

    Threads of Tools cannot be stopped, and the interpreter waits for them at its end. ``faulthandler`` needs no
    interpreter lock, so it ends the process even while C code holds it; it comes a little later than the timer, which
    ends it without the stacks of all threads.
    """
    with _timer_lock:
        _is_stopping.set()
        faulthandler.dump_traceback_later(seconds + 1, exit=True)
    timer = threading.Timer(seconds, _end, (seconds,))
    timer.daemon = True
    timer.start()


def _end(seconds: float) -> None:
    sys.stderr.write(f"acts worker: ended after {seconds:g} s with work still running; it is retried elsewhere\n")
    sys.stderr.flush()
    os._exit(1)
