"""How large a value of a run may be, and what it takes in history: 2 MiB without external storage, more with it.

Determinism: whether a run has storage is decided in its first workflow task, by the worker that has it, and recorded
as a patch marker. Every replay reads the marker, whatever its worker has. A run without storage records nothing, so
older histories replay as they are. A run that continues as new decides anew.

A worker without storage cannot decode the references of a run that has it: its workflow tasks fail, and wait for one
with storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from temporalio import workflow

from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, STORED_ABOVE_BYTES

if TYPE_CHECKING:
    from temporalio.common import RawValue

# The function by which the worker's interceptor says whether it has storage
HAS_STORAGE: Final = "acts_has_storage"
_PATCH: Final = "acts-external-storage"
# What a reference counts for, beside a part of its value. It has 400 bytes; so a slice of 128 KiB starts at most 16
# large values, which still fit a task (2 MiB) where a codec shrinks each to just below the threshold
REFERENCE_BYTES: Final = 8 * 1024
# … so that the values of one slice have at most 64 MiB: they are in memory at once
_VALUE_SHARE: Final = 512


def decide_storage() -> bool:
    """Whether this run has external storage. Called once, when the run is made, before anything else."""
    has_storage = workflow.extern_functions().get(HAS_STORAGE)
    if workflow.unsafe.is_replaying() or (has_storage is not None and has_storage()):
        return workflow.patched(_PATCH)
    return False


def uses_storage() -> bool:
    """What the present run has decided; False outside of runs."""
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
