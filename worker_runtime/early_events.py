"""Notices that a query made a run go ahead of its workflow task, so that the run is evicted before that task comes.

Theory of operation. A query for an idle run goes to the worker that caches it. Where that worker is gone, the server
hands the query to another one a second later, with the whole history: by then signals may have come, whose workflow
task has not started, or is on its way. The SDK's core (1.35) hands these to the workflow before it asks the query, as
no replay, and keeps the commands for the next task. That task then brings what else has come, such as an update. On a
replay, all of it arrives in one activation, in which the commands come in another order: the history does not replay,
and the run hangs at its next worker.

Two signs of it. Each activation has the time at which its workflow task started: one that goes further in the history
at the same time is of no task. And the query has the slot in which the activation before it ran; a query that comes
after a task has a slot of its own. A slot does not say whose it is, so a run may be evicted for nothing, which costs a
replay; and while other tasks have come since, only a run that is new in the cache is looked at.

An eviction loses all but one of the tasks of the run that the SDK has in hand, until they time out. So for a while
after one, the worker takes tasks from the task queue one by one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_activation import WorkflowActivation

    from worker_runtime.task_slots import TaskSlots

# Of queries that the server sends without a workflow task
QUERY_ID: Final = "legacy_query"


class EarlyEvents:
    """The activations of one run in the cache."""

    __slots__ = ("_are_applied", "_events", "_first_events", "_latest", "_slots", "_task_start")

    def __init__(self, slots: TaskSlots) -> None:
        self._slots = slots
        self._task_start, self._events = (0, 0), 0
        self._first_events, self._latest = 0, 0.0
        self._are_applied = False

    def must_evict(self, act: WorkflowActivation) -> bool:
        """True for a query before which the run went ahead of its task. Call it before each activation."""
        if any(job.HasField("query_workflow") for job in act.jobs):
            is_alone = any(job.query_workflow.query_id == QUERY_ID for job in act.jobs)
            must_evict = is_alone and (self._are_applied or self._has_slot_of_latest())
            if must_evict:
                self._slots.take_others_singly()
            return must_evict
        task_start = (act.timestamp.seconds, act.timestamp.nanos)
        if not act.is_replaying:
            self._latest = time.monotonic()
            self._first_events = self._first_events or act.history_length
            if task_start == self._task_start and act.history_length > self._events:
                self._are_applied = True
        self._task_start, self._events = task_start, act.history_length
        return False

    def _has_slot_of_latest(self) -> bool:
        is_new = self._first_events == self._events
        return bool(self._latest) and self._slots.has_task_since(self._latest, is_new=is_new)
