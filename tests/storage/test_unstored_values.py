"""A worker without storage fails the task in which a run would send a large value, before the server ends the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from worker_runtime.early_events import EarlyEvents
from worker_runtime.memory_watch import MemoryWatch
from worker_runtime.task_slots import TaskSlots
from worker_runtime.watched_runner import WatchedInstance

LARGE = Payload(data=b"x" * 3_000_000)


def activate(completion: WorkflowActivationCompletion, *, uses_storage: bool, has_storage: bool) -> Any:
    """What a task of a run comes to that ends with this completion."""
    inner: Any = SimpleNamespace(_object=SimpleNamespace(uses_storage=uses_storage))
    for name in ("get_serialization_context", "get_external_store_context", "get_info", "get_thread_id"):
        setattr(inner, name, None)
    watch: Any = SimpleNamespace(activate=lambda _instance, _act: completion)
    early = EarlyEvents(TaskSlots())
    return WatchedInstance(watch, MemoryWatch(0), inner, early, has_storage=has_storage).activate(WorkflowActivation())


def scheduling(*payloads: Payload) -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion()
    completion.successful.commands.add().schedule_activity.arguments.extend(payloads)
    return completion


def test_a_large_value_of_a_run_with_storage_fails_the_task_of_a_worker_without() -> None:
    completion = scheduling(LARGE)
    with pytest.raises(RuntimeError, match="set ACTS_STORAGE to what the other workers have"):
        activate(completion, uses_storage=True, has_storage=False)
    assert activate(completion, uses_storage=True, has_storage=True) is completion
    assert activate(completion, uses_storage=False, has_storage=False) is completion, "it is measured where it is made"


def test_many_small_values_and_a_refused_update_pass() -> None:
    completion = scheduling(Payload(data=b"x"))
    completion.successful.commands.add().update_response.completed.CopyFrom(LARGE)
    for _ in range(30):
        completion.successful.commands.add().schedule_activity.arguments.add().data = b"x" * 100_000
    assert activate(completion, uses_storage=True, has_storage=False) is completion
