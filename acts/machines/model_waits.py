"""Which runs wait for a model at present, for ``status`` and the page in the Web UI. A hint: nothing depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.language.errors import truncate
from acts.machines.events import CallCompleted, CallFailed, ChildEnded, ModelAnswered, ModelFailed

if TYPE_CHECKING:
    from acts.machines.events import Event
    from acts.tree.signal_records import ModelWait

# Runs that are kept, and those of them that are shown
_MAX_RUNS: Final = 100
_MAX_SHOWN: Final = 3
# Characters of what a record says
_MAX_TEXT: Final = 120


class ModelWaits:
    """The waits of a run, and at a root of those below it, by their workflow ids."""

    def __init__(self) -> None:
        self._by_run: dict[str, ModelWait] = {}

    def record(self, wait: ModelWait) -> None:
        """A run waits, or does so no more."""
        self._by_run.pop(wait.workflowId, None)
        if wait.seconds > 0 and len(self._by_run) < _MAX_RUNS:
            self._by_run[wait.workflowId] = wait

    def record_end(self, event: Event, own: str) -> None:
        """A request of the run has ended, or a run below it."""
        if not self._by_run:
            return
        is_call = isinstance(event, (CallCompleted, CallFailed)) and event.usage is not None
        if isinstance(event, (ModelAnswered, ModelFailed)) or is_call:
            self._by_run.pop(own, None)
        elif isinstance(event, ChildEnded):
            for run in [run for run in self._by_run if run != own and event.key in run]:
                del self._by_run[run]

    def notes(self, own: str) -> list[str]:
        """A line for each wait, like ``waiting for the model: overloaded, next try in 40 s (12:40:07 UTC)``."""
        out = []
        for run, wait in list(self._by_run.items())[:_MAX_SHOWN]:
            who = "" if run == own else f"{truncate(run.removeprefix(own + '/'), _MAX_TEXT)}: "
            model, reason = truncate(wait.model, _MAX_TEXT), truncate(wait.reason, _MAX_TEXT)
            when = f"next try in {round(wait.seconds)} s ({wait.nextTry[11:19]} UTC)"
            out.append(f"{who}waiting for the model: {reason}, {when}, {model}")
        rest = len(self._by_run) - _MAX_SHOWN
        return [*out, f"{rest} more runs wait for the model"] if rest > 0 else out
