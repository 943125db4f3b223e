"""A worker without storage fails the task in which a run would send a large value, before the server ends the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from acts.worker.slots import TaskSlots, WatchedInstance, WatchedRunner
from acts.worker.watch import MemoryWatch

LARGE = Payload(data=b"x" * 3_000_000)


def activate(completion: WorkflowActivationCompletion, *, uses_storage: bool, has_storage: bool) -> Any:
    """What a task of a run comes to that ends with this completion."""
    inner: Any = SimpleNamespace(_object=SimpleNamespace(uses_storage=uses_storage))
    watch: Any = SimpleNamespace(activate=lambda _instance, _act: completion)
    runner = WatchedRunner(watch, MemoryWatch(0), TaskSlots(), has_storage=has_storage)
    return WatchedInstance(runner, inner).activate(WorkflowActivation())


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
