"""How many bytes the local activities of a run may return in one workflow task, and what becomes of the rest.

Each outcome of a local activity is a marker in the message that ends its workflow task, and the server
terminates a run whose message is above 4 MiB. Both sides of the limit are here:

* ``LocalLane``, in the workflow: how many Calls run locally. It decides by what history has, so every replay
  decides alike.
* ``LocalOutcomes``, in the worker that runs the activities: how many bytes they return. An outcome that does not
  fit is kept in memory, and its activity fails with ``LOCAL_DEFERRED``. The run then starts an ordinary activity
  with the same id, which returns the kept outcome. Where it is lost (another worker, or this one was restarted),
  the Activity runs again, as after a crash.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

# Outcomes of one workflow task, in bytes. A task that begins may inherit as much from the one before it (what was
# returned after that had been sent), so twice this much, and MAX_SLICE_BYTES of commands, stay below 4 MiB
MAX_LOCAL_BYTES: Final = 1024 * 1024
# A marker without its result: ids, names and times
MARKER_BYTES: Final = 512
# What a running local activity is expected to add, so that at most 1,024 run at a time
EXPECTED_BYTES: Final = 2 * MARKER_BYTES
# Kept outcomes of all runs; the oldest is dropped, and its Activity runs again
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
# Runs whose bytes are counted; one is forgotten when so many others have returned something since
MAX_RUNS: Final = 10_000


class LocalLane:
    """The local activities of one run: how many run, and how many bytes history has of them since a task began."""

    def __init__(self) -> None:
        self._running = 0
        self._recorded = 0

    @property
    def bytes(self) -> int:
        """What the message of this workflow task must have room for."""
        return self._recorded + self._running * EXPECTED_BYTES

    def has_room(self) -> bool:
        """True when one more may run locally; else it runs as an ordinary activity, whose result ends the task."""
        return self.bytes + EXPECTED_BYTES <= MAX_LOCAL_BYTES

    def start(self) -> None:
        """One has started."""
        self._running += 1

    def end(self, size: int) -> None:
        """One has ended with an outcome of so many bytes."""
        self._running -= 1
        self._recorded += size + MARKER_BYTES

    def begin_task(self) -> None:
        """Something came that only a new workflow task brings: what was recorded has been sent."""
        self._recorded = 0


@dataclass(frozen=True, slots=True)
class KeptOutcome:
    """What a local activity returned, or raised."""

    value: Any
    error: BaseException | None
    size: int


class LocalOutcomes:
    """What the local activities of this process have returned. Workflows and activities use it from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: OrderedDict[str, tuple[int, int]] = OrderedDict()  # by run id: its task, and the bytes in it
        self._outcomes: OrderedDict[tuple[str, str], KeptOutcome] = OrderedDict()
        self._kept_bytes = 0

    def begin_task(self, run_id: str, task: int) -> None:
        """The run starts a local activity in this workflow task (any number that tells tasks apart)."""
        with self._lock:
            if self._tasks.get(run_id, (None, 0))[0] != task:
                self._tasks[run_id] = (task, 0)
            self._tasks.move_to_end(run_id)
            if len(self._tasks) > MAX_RUNS:
                self._tasks.popitem(last=False)

    def admit(self, run_id: str, size: int) -> bool:
        """True when an outcome of so many bytes fits into the task of its run; it then counts."""
        with self._lock:
            task, total = self._tasks.get(run_id, (-1, 0))
            total += size + MARKER_BYTES
            if total > MAX_LOCAL_BYTES:
                return False
            self._tasks[run_id] = (task, total)
            return True

    def keep(self, run_id: str, activity_id: str, outcome: KeptOutcome) -> None:
        """Keep an outcome for the ordinary activity of this id."""
        with self._lock:
            self._outcomes[run_id, activity_id] = outcome
            self._kept_bytes += outcome.size
            while self._kept_bytes > MAX_KEPT_BYTES and self._outcomes:
                self._kept_bytes -= self._outcomes.popitem(last=False)[1].size

    def take(self, run_id: str, activity_id: str) -> KeptOutcome | None:
        """The kept outcome of this id, once."""
        with self._lock:
            outcome = self._outcomes.pop((run_id, activity_id), None)
            self._kept_bytes -= 0 if outcome is None else outcome.size
            return outcome
