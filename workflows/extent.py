"""How long a run's history has become, as far as the run itself can tell.

What the server counted is known as of the start of the workflow task that runs now. What
that task adds is added here: its completion, the end of the run with its result, the records
of local activities. How exact that is:

* events are exact, save where the last word of a person ends the run: the acceptance and the
  answer of an update, and a timer that is cancelled, are then missing (three events);
* bytes lack what came in while the task before was running, which the server has not counted
  by then: of each such result some 180 bytes and the result itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from temporalio import workflow

from workflows.payloads import MAX_RESULT, dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# The task is completed, and then the run is; or it continues as new
_END_EVENTS: Final = 2
_END_BYTES: Final = 150
# The key ``forecast`` of a result, which is made of these figures
_FORECAST_BYTES: Final = 420


class Extent:
    """The history of a run, and of those before it (continue-as-new)."""

    def __init__(self, before: Sequence[int] = (0, 0)) -> None:
        self._before = before
        self._task = -1
        self.events, self.bytes = 0, 0

    def record(self, bytes_: int, events: int = 0) -> None:
        """This workflow task records so much, beside what the server has counted."""
        now = workflow.info().get_current_history_length()
        if now != self._task:
            self._task, self.events, self.bytes = now, 0, 0
        self.bytes += bytes_
        self.events += events

    def at_end(self, last: int) -> list[int]:
        """Events and bytes of all runs, when this one ends now with a result of ``last`` bytes."""
        self.record(0)
        info = workflow.info()
        events = info.get_current_history_length() + self.events + _END_EVENTS
        bytes_ = info.get_current_history_size() + self.bytes + last + _END_BYTES
        return [self._before[0] + events, self._before[1] + bytes_]

    def figures(self, result: Mapping[str, Any]) -> dict[str, int]:
        """``{events, bytes}`` of a run that ends with this result, and the key ``forecast`` in it."""
        events, bytes_ = self.at_end(min(len(dump(result)), MAX_RESULT) + _FORECAST_BYTES)
        return {"events": events, "bytes": bytes_}
