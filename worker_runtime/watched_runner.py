"""The SDK's workflow runner, with each activation under the watches of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowRunner

from acts.language.wire import MAX_PAYLOAD_BYTES
from worker_runtime.early_events import EarlyEvents
from worker_runtime.task_threads import is_eviction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
    from temporalio.worker import WorkflowInstanceDetails

    from worker_runtime.memory_watch import MemoryWatch
    from worker_runtime.task_slots import TaskSlots
    from worker_runtime.workflow_watch import WorkflowWatch


class WatchedRunner(WorkflowRunner):
    """Runs workflows without a sandbox, each activation under the watch; ``memory`` learns what is cached.

    ``has_storage``: large values leave this worker as references. ``slots`` are those of its workflow tasks.
    """

    def __init__(
        self, watch: WorkflowWatch, memory: MemoryWatch, slots: TaskSlots, inner: WorkflowRunner | None = None, *,
        has_storage: bool = False,
    ) -> None:  # fmt: skip
        self._watch, self._memory, self._has_storage = watch, memory, has_storage
        self._slots = slots
        self._inner = inner or UnsandboxedWorkflowRunner()

    def prepare_workflow(self, defn: Any) -> None:
        """Prepare as the inner runner does."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance of the inner runner, under the watch."""
        inner = self._inner.create_instance(det)
        workflow_id = det.info.workflow_id
        early = EarlyEvents(self._slots)
        return WatchedInstance(self._watch, self._memory, inner, early, workflow_id, has_storage=self._has_storage)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Set them as the inner runner does."""
        self._inner.set_worker_level_failure_exception_types(types)


class WatchedInstance(WorkflowInstance):
    """A workflow of the inner runner. ``is_lost``: a thread that was left behind may still be inside."""

    def __init__(
        self, watch: WorkflowWatch, memory: MemoryWatch, inner: WorkflowInstance, early: EarlyEvents,
        workflow_id: str = "", *, has_storage: bool = False,
    ) -> None:  # fmt: skip
        self.inner, self._workflow_id, self._has_storage = inner, workflow_id, has_storage
        self.is_lost = False
        self.local_running = 0
        self._watch, self._memory, self._early = watch, memory, early
        # What the SDK asks for per payload goes straight to the inner instance
        self.get_serialization_context = inner.get_serialization_context  # type: ignore[method-assign]
        self.get_external_store_context = inner.get_external_store_context  # type: ignore[method-assign]
        self.get_info = inner.get_info  # type: ignore[method-assign]
        self.get_thread_id = inner.get_thread_id  # type: ignore[method-assign]

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run one activation under the watch."""
        self._memory.begin(act.run_id, self._workflow_id)
        must_evict = self._early.must_evict(act)
        try:
            completion = self._watch.activate(self, act)
            if not self._has_storage and completion.ByteSize() > MAX_PAYLOAD_BYTES:
                self._require_storage(completion)
            return completion
        finally:
            if is_eviction(act):
                self._memory.remove(act.run_id)
            else:
                self._memory.end(act.run_id, is_busy=bool(self.local_running))
            if must_evict:
                self._memory.evict(act.run_id)

    def _require_storage(self, completion: WorkflowActivationCompletion) -> None:
        """Fail the task of a run whose values were to be stored: the server would terminate the run for them."""
        if not getattr(getattr(self.inner, "_object", None), "uses_storage", False):
            return
        for command in completion.successful.commands:
            # A refused update returns what its sender sent; the server drops it, and nothing else
            if command.WhichOneof("variant") != "update_response" and command.ByteSize() > MAX_PAYLOAD_BYTES:
                raise RuntimeError(
                    f"this run has external storage, and sends {command.ByteSize():,} bytes; this worker has none: "
                    "set ACTS_STORAGE to what the other workers have"
                )

    # Replaced per instance; here because the base class is abstract
    def get_serialization_context(self, command_info: Any) -> Any:
        """As the inner instance."""

    def get_external_store_context(self, command_info: Any) -> Any:
        """As the inner instance."""

    def get_info(self) -> Any:
        """As the inner instance."""
