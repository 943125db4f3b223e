"""Temporal Cloud's billable actions: what counts as one, and the count of a run.

Source: Temporal Cloud pricing, "what counts as an action" (docs.temporal.io/cloud/actions). The
forecast and the count use one table, so that they can be compared.

Not counted, because no workflow can see them: queries (people and the prompts of models make
them), heartbeats, refused updates, and the retries of an activity. They come on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKFLOW: Final = "workflow"
CHILD_WORKFLOW: Final = "childWorkflow"
CONTINUE_AS_NEW: Final = "continueAsNew"
ACTIVITY: Final = "activity"
LOCAL_ACTIVITIES: Final = "localActivities"
TIMER: Final = "timer"
SIGNAL: Final = "signal"
UPDATE: Final = "update"
SEARCH_UPDATE: Final = "searchAttributes"

# Actions of one event of each kind. A child takes two, one to record the intent and one for the start. All local
# activities of one workflow task take one together. A signal counts once, in the run that receives it.
ACTIONS: Final[Mapping[str, int]] = {
    WORKFLOW: 1, CHILD_WORKFLOW: 2, CONTINUE_AS_NEW: 1, ACTIVITY: 1, LOCAL_ACTIVITIES: 1, TIMER: 1, SIGNAL: 1,
    UPDATE: 1, SEARCH_UPDATE: 1,
}  # fmt: skip


@dataclass(slots=True)
class ActionCount:
    """The actions of a run so far, and of the children that reported theirs.

    Each run counts its own start: ``WORKFLOW`` at a root, ``CHILD_WORKFLOW`` below one. So its parent adds
    what the child reports, and records ``CHILD_WORKFLOW`` itself for a child that reports nothing.
    """

    events: dict[str, int] = field(default_factory=dict)
    _task: int | None = None

    @property
    def total(self) -> int:
        """The number of actions."""
        return sum(ACTIONS[kind] * n for kind, n in self.events.items())

    def record(self, kind: str, n: int = 1) -> None:
        """Count ``n`` events of a kind, one of ``ACTIONS``."""
        if kind not in ACTIONS:
            raise ValueError(f"no kind of action: {kind!r}; known: {', '.join(ACTIONS)}")
        self.events[kind] = self.events.get(kind, 0) + n

    def record_local_activity(self, task: int) -> None:
        """Count a local activity that ended in this workflow task (any number that tells tasks apart)."""
        if task != self._task:
            self._task = task
            self.record(LOCAL_ACTIVITIES)

    def add(self, events: Mapping[str, int] | None) -> None:
        """Add the ``to_json`` of a child, or of the run before this one; None is a child that reported nothing."""
        for kind, n in ({CHILD_WORKFLOW: 1} if events is None else events).items():
            self.record(kind, n)

    def to_json(self) -> dict[str, int]:
        """``{kind: number of events}``."""
        return dict(self.events)
