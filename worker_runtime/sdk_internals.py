"""What the SDK has no public way for. Each names the version that it was written for when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.converter import DataConverter


def lift_deadlock_timeout(worker: Any) -> None:
    """Switch the SDK's own detector off, and leave workflow tasks in threads.

    ``debug_mode`` also switches it off, but runs the tasks in the event loop: a long one would stop all activities
    and heartbeats of the worker. There is no public setting for the timeout alone.
    """
    inner = getattr(worker, "_workflow_worker", None)
    if inner is None or not hasattr(inner, "_deadlock_timeout_seconds"):
        raise RuntimeError(
            "this version of temporalio keeps the timeout of its deadlock detector elsewhere; 1.35 has it as "
            "_WorkflowWorker._deadlock_timeout_seconds"
        )
    inner._deadlock_timeout_seconds = None  # noqa: SLF001 - no public way


def replace_activity_converter(worker: Any, replace: Callable[[DataConverter], DataConverter]) -> None:
    """Give Activities another data converter than workflow tasks: the two can wait for storage for different times."""
    inner = getattr(worker, "_activity_worker", None)
    if inner is None or not hasattr(inner, "_data_converter"):
        raise RuntimeError(
            "this version of temporalio keeps the converter of activities elsewhere; 1.35 has it as "
            "_ActivityWorker._data_converter"
        )
    inner._data_converter = replace(inner._data_converter)  # noqa: SLF001 - no public way


def find_eviction(worker: Any) -> Callable[[str], None]:
    """What asks the SDK to give up a cached workflow, by run id; from any thread."""
    evict: Callable[[str], None] | None = getattr(
        getattr(worker, "_bridge_worker", None), "request_workflow_eviction", None
    )
    if evict is None:
        raise RuntimeError(
            "this version of temporalio requests evictions in another way; 1.35 has "
            "Worker._bridge_worker.request_workflow_eviction"
        )
    return evict
