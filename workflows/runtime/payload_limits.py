"""How large a value of a run may be, and what it takes in history: 2 MiB without external storage, more with it.

Determinism: whether a tree of runs has storage is decided in the first workflow task of its root, by the worker that
has that task, and recorded as a patch marker; the runs below inherit it. Every replay reads it, whatever its worker
has. A tree without storage records nothing, so older histories replay as they are.

A worker without storage cannot decode the references of a run that has it, and must not send its large values
(``worker_runtime/watched_runner.py``): its workflow tasks fail, and wait for a worker with storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from temporalio import workflow

from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, STORED_ABOVE_BYTES

if TYPE_CHECKING:
    from temporalio.common import RawValue

    from acts.tree.records import TreePosition

# The function by which the worker's interceptor says whether it has storage
HAS_STORAGE: Final = "acts_has_storage"
_PATCH: Final = "acts-external-storage"
# What a reference counts for, beside a part of its value. It has 400 bytes; so a slice of 128 KiB starts at most 16
# large values, which still fit a task (2 MiB) where a codec shrinks each to just below the threshold
REFERENCE_BYTES: Final = 8 * 1024
# … so that the values of one slice have at most 64 MiB: they are in memory at once
_VALUE_SHARE: Final = 512


def decide_storage() -> None:
    """Decide whether the tree of this root has external storage: once, before anything else."""
    has_storage = workflow.extern_functions().get(HAS_STORAGE)
    if workflow.unsafe.is_replaying() or (has_storage is not None and has_storage()):
        workflow.instance().uses_storage = workflow.patched(_PATCH)


def share_storage(position: TreePosition) -> TreePosition:
    """The place of a run with what its root has decided, and the run knows it."""
    if position.storesValues:
        workflow.instance().uses_storage = True
    return position.model_copy(update={"storesValues": True}) if uses_storage() else position


def uses_storage() -> bool:
    """True in a run whose tree has external storage."""
    return workflow.in_workflow() and getattr(workflow.instance(), "uses_storage", False)


def max_payload_bytes() -> int:
    """The largest value that the present run may send or return."""
    return MAX_STORED_BYTES if uses_storage() else MAX_PAYLOAD_BYTES


def payload_bytes(value: RawValue) -> int:
    """Bytes of a payload's data and metadata."""
    return len(value.payload.data) + sum(len(v) for v in value.payload.metadata.values())


def recorded_bytes(size: int) -> int:
    """What a payload of so many bytes takes in the history of the present run."""
    if size < STORED_ABOVE_BYTES or not uses_storage():
        return size
    return REFERENCE_BYTES + size // _VALUE_SHARE


def carried_bytes(value: RawValue) -> int:
    """What a payload takes in the message of its workflow task, at most: a codec may keep a large one from storage."""
    size = payload_bytes(value)
    return min(size, STORED_ABOVE_BYTES) if size > STORED_ABOVE_BYTES and uses_storage() else size


def too_large_hint() -> str:
    """What to do about a value that is too large."""
    if uses_storage():
        return "keep larger data outside and pass a reference to it"
    return "set ACTS_STORAGE for the worker and its clients, or keep large data outside and pass a reference to it"
