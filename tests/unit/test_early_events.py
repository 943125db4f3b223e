"""Which queries come after events whose workflow task has not started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from worker_runtime.early_events import QUERY_ID, EarlyEvents
from worker_runtime.task_slots import TaskSlots


def activation(events: int, start: int, *, is_replaying: bool = False, query: str = "") -> WorkflowActivation:
    """One of a task that started at ``start``, with so many events in the history."""
    act = WorkflowActivation(history_length=events, is_replaying=is_replaying)
    act.timestamp.seconds = start
    job: Any = act.jobs.add()
    if query:
        job.query_workflow.query_id = query
    else:
        job.signal_workflow.signal_name = "approve"
    return act


REPLAYED = activation(3, 10, is_replaying=True)
TASK = activation(8, 20)
EARLY = activation(6, 10)
QUERY = activation(8, 20, query=QUERY_ID)


@pytest.mark.parametrize(
    ("activations", "is_early"),
    [
        ([REPLAYED, TASK], False),
        ([REPLAYED], False),
        ([REPLAYED, EARLY], True),
        ([REPLAYED, EARLY, TASK], True),
        ([REPLAYED, activation(3, 10)], False),  # a local Activity has ended
        ([REPLAYED, activation(8, 10, is_replaying=True)], False),
    ],
)
def test_events_at_the_time_of_a_task_before_them_are_early(
    activations: list[WorkflowActivation], *, is_early: bool
) -> None:
    early = EarlyEvents(TaskSlots())
    assert not any(early.must_evict(act) for act in activations)
    assert early.must_evict(QUERY) is is_early


def test_a_query_in_the_slot_of_the_activation_before_it_came_with_its_events() -> None:
    slots = TaskSlots()
    permit: Any = slots.try_reserve_slot(SimpleNamespace(is_sticky=False))  # type: ignore[arg-type]
    slot: Any = SimpleNamespace(permit=permit, slot_info=None)
    slots.mark_slot_used(slot)
    early = EarlyEvents(slots)
    assert not early.must_evict(REPLAYED)
    assert not early.must_evict(QUERY), "nothing but the past has run"
    assert not early.must_evict(TASK)
    assert not early.must_evict(activation(8, 20, query="of a task")), "the task brought it"
    assert early.must_evict(QUERY)
    slots.release_slot(slot)
    assert not early.must_evict(QUERY), "the task was over"
