"""JSON and records in and out of Temporal payloads, with their sizes known before anything is sent.

A payload above 2 MiB cannot be recorded: a workflow that tries retries its task forever. One that sends more than 4
MiB in one task is terminated. So this file encodes, looks at the size, and refuses. With external storage large
payloads are recorded as references, and larger ones fit.

*Records* travel as readable JSON with their type in the payload's metadata, which tells them from a Request: a
workflow takes one argument. What a run carries into the next, and what the children of a batch are started with, is
compressed.

*Storage.* Whether a tree of runs has external storage is decided in the first workflow task of its root, by the worker
that has that task, and recorded as a patch marker; the runs below inherit it. Every replay reads it, whatever its
worker has. A worker without storage cannot decode the references of a run that has it, and must not send its large
values (``acts/worker/slots.py``): its workflow tasks fail, and wait for a worker with storage.

What is *lost* is refused where it is decoded, and a patch marker records that: a replay refuses it again, also when it
has been restored.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.language import wire
from acts.language.errors import CallError, InvalidRequest, Problem, truncate
from acts.language.strict_json import MAX_UNPACKED, SharedSizes, read_json, unpack, write_json
from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, NOT_JSON, RESULT_TOO_LARGE, STORED_ABOVE_BYTES
from acts.tree.records import InstanceInput, PlanInput, TreePosition
from acts.tree.wire_format import TYPE_KEY, RecordError, VersionedRecord

# The function by which the worker's interceptor says whether it has storage
HAS_STORAGE: Final = "acts_has_storage"
_PATCH: Final = "acts-external-storage"
# The encoding of what takes the place of a lost value, and the key that has its patch
LOST: Final = b"binary/acts-lost"
_LOST_PATCH: Final = "patch"
_runs: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()  # by run id
# What a reference counts for, beside a part of its value. It has 400 bytes; so a slice of 128 KiB starts at most 16
# large values, which still fit a task (2 MiB) where a codec shrinks each to just below the threshold
REFERENCE_BYTES: Final = 8 * 1024
# … so that the values of one slice have at most 64 MiB: they are in memory at once
_VALUE_SHARE: Final = 512


def decide_storage() -> None:
    """Decide whether the tree of this root has external storage: once, before anything else."""
    has_storage = workflow.extern_functions().get(HAS_STORAGE)
    if workflow.unsafe.is_replaying() or (has_storage is not None and has_storage()):
        _set_storage(has_storage=workflow.patched(_PATCH))


def share_storage(position: TreePosition) -> TreePosition:
    """The place of a run with what its root has decided, and the run knows it."""
    if position.storesValues:
        _set_storage(has_storage=True)
    return position.model_copy(update={"storesValues": True}) if uses_storage() else position


def _set_storage(*, has_storage: bool) -> None:
    workflow.instance().uses_storage = has_storage
    _runs[workflow.info().run_id] = workflow.instance()


def is_storing(run_id: str) -> bool:
    """True for a run in this worker's cache whose tree has external storage."""
    return getattr(_runs.get(run_id), "uses_storage", False)


def uses_storage() -> bool:
    """True in a run whose tree has external storage."""
    return workflow.in_workflow() and getattr(workflow.instance(), "uses_storage", False)


def max_payload_bytes() -> int:
    """The largest value that the present run may send or return."""
    return MAX_STORED_BYTES if uses_storage() else MAX_PAYLOAD_BYTES


def payload_bytes(value: RawValue) -> int:
    return value.payload.ByteSize()


def recorded_bytes(size: int) -> int:
    """What a payload of so many bytes takes in the history of the present run."""
    return size if size < STORED_ABOVE_BYTES or not uses_storage() else REFERENCE_BYTES + size // _VALUE_SHARE


def too_large_hint() -> str:
    """What to do about a value that is too large."""
    advice = "keep large data outside and pass a reference to it"
    return advice if uses_storage() else f"set ACTS_STORAGE for the worker and its clients, or {advice}"


# All commands of one workflow task travel in one gRPC message of at most 4 MiB; one command alone has at most 2 MiB
MAX_TASK_BYTES: Final = 2 * 1024 * 1024
# Outcomes of local Activities in one workflow task. A task that begins may inherit as much from the one before it (what
# was returned after that had been sent), so twice this much, and a slice of starts, stay below 4 MiB
MAX_LOCAL_BYTES: Final = 1024 * 1024
# A marker without its result: ids, names and times
MARKER_BYTES: Final = 512
# What a running local activity is expected to add, so that at most 1,024 run at a time
EXPECTED_BYTES: Final = 2 * MARKER_BYTES


class TaskRoom:
    """What the current workflow task of one run carries, in bytes: starts, signals, outcomes of local Activities."""

    def __init__(self) -> None:
        self._task = -1
        self.starts = self.signals = self.local_running = self.local_bytes = 0

    def count_commands(self) -> int:
        """The bytes of starts and signals so far."""
        task = workflow.info().get_current_history_length()
        if task != self._task:
            self._task, self.starts, self.signals = task, 0, 0
        return self.starts + self.signals

    def begin_task(self, _: object = None) -> None:
        """Something came that only a new task brings: what local Activities returned before it has been sent."""
        self.local_bytes = 0

    @property
    def local(self) -> int:
        """What the task must have room for beside commands."""
        return self.local_bytes + self.local_running * EXPECTED_BYTES

    @property
    def takes_local(self) -> bool:
        """True when one more Activity may be local; else it is an ordinary one, whose result ends the task."""
        return self.local + EXPECTED_BYTES <= MAX_LOCAL_BYTES


_JSON: Final = {"encoding": b"json/plain"}
_COMPRESSED: Final = b"binary/plain"
# What is compressed at all: more JSON, mostly one value in a thousand places, is not even written
MAX_COMPRESSED_FROM: Final = 64 * 1024 * 1024
# With external storage it may be larger, at the level of zlib that is three times as fast and leaves a fifth more
_FAST: Final = 1
_DENSE: Final = 6
# How much is compressed before its size is looked at
_CHUNK: Final = 1024 * 1024
NOTHING: Final = RawValue(Payload())
R = TypeVar("R", bound=VersionedRecord)


def raw(data: bytes) -> RawValue:
    return RawValue(Payload(metadata=_JSON, data=data))


def encode(value: Any) -> RawValue:
    """A value as one JSON payload; CallError where it is too large to be recorded."""
    return raw(_within_limit(write_json(value)))


def _within_limit(data: bytes) -> bytes:
    if len(data) > STORED_ABOVE_BYTES and len(data) > max_payload_bytes():
        raise _too_large(len(data))
    return data


def _too_large(size: int) -> CallError:
    text = f"{size:,} bytes of JSON are more than the {max_payload_bytes():,} that one payload may hold"
    return CallError(RESULT_TOO_LARGE, f"{text}: {too_large_hint()}")


def decode(value: RawValue) -> Any:
    """The JSON of a payload that an Activity, in any language, returned; CallError where it is none."""
    require_found(value)
    payload = value.payload
    if not payload.metadata and not payload.data:
        return None  # some SDKs return nothing at all for nothing
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding == "binary/null":
        return None
    if encoding not in ("json/plain", "json/protobuf"):
        raise CallError(NOT_JSON, f"the result is {encoding or 'without an encoding'}, not JSON")
    try:
        return read_json(payload.data)
    except (ValueError, RecursionError) as error:
        raise CallError(NOT_JSON, f"the result is not JSON: {truncate(str(error), 200)}") from error


def lost_value(reference: Payload, task: int, reason: str) -> Payload:
    """What takes the place of a reference to a value that cannot be had; ``task`` tells workflow tasks apart."""
    patch = f"acts-lost-{task}-{hashlib.sha256(reference.SerializeToString(deterministic=True)).hexdigest()[:8]}"
    text = f"a stored value cannot be read: {truncate(reason, 300)}"
    return Payload(metadata={"encoding": LOST, _LOST_PATCH: patch.encode()}, data=text.encode())


def lost_patch(payload: Payload) -> str:
    return payload.metadata[_LOST_PATCH].decode()


def require_found(value: RawValue) -> None:
    """Raise CallError, and record it, where the value was lost."""
    payload = value.payload
    if payload.metadata.get("encoding") != LOST:
        return
    if workflow.in_workflow() and not workflow.unsafe.is_read_only():
        workflow.patched(lost_patch(payload))
    raise CallError(wire.VALUE_LOST, payload.data.decode(errors="replace"))


def decode_or_none(value: RawValue) -> Any:
    """The JSON of a payload; None when it is none."""
    try:
        return decode(value)
    except CallError:
        return None


def decode_request(value: RawValue) -> Any:
    """The JSON of the Request that a person started a run with. Raises InvalidRequest: it is none, or too large to be
    carried over.
    """
    hint = "start it with one argument: {config, context, schema}"
    if not value.payload.metadata:
        raise InvalidRequest([Problem("invalidJson", "the workflow was started without a Request", hint=hint)])
    if payload_bytes(value) > max_payload_bytes():
        text = f"the Request has {payload_bytes(value):,} bytes; at most {max_payload_bytes():,} can be recorded"
        raise InvalidRequest([Problem("limitExceeded", text, hint=too_large_hint())])
    try:
        return decode(value)
    except CallError as error:
        text = error.message.replace("the result", "the Request")
        raise InvalidRequest([Problem("invalidJson", text, hint=hint)]) from error


def _packed(data: bytes, encoding: bytes, record: VersionedRecord | None = None) -> RawValue:
    type_ = {} if record is None else {TYPE_KEY: type(record).__name__.encode()}
    return RawValue(Payload(metadata={"encoding": encoding, **type_}, data=data))


def encode_record(record: VersionedRecord) -> RawValue:
    """A record as JSON, its type in the metadata; CallError where it is too large to be recorded."""
    data, encoding = write_json(record.to_json()), b"json/plain"
    # The history of a batch has one of them for each child; what undoes 10,000 elements is a plan of 2.4 MB
    is_long = isinstance(record, PlanInput) and record.undoes and len(data) > STORED_ABOVE_BYTES
    if isinstance(record, InstanceInput) or is_long:
        data, encoding = zlib.compress(data), _COMPRESSED
    return _packed(_within_limit(data), encoding, record)


def encode_state(state: VersionedRecord) -> RawValue | None:
    """What a run carries into the next, compressed: a large plan and its results must fit. None if they do not."""
    content = state.to_json()
    if SharedSizes().size(content) > (MAX_UNPACKED if uses_storage() else MAX_COMPRESSED_FROM):
        return None
    return _compress(content, state)


def _compress(value: Any, record: VersionedRecord | None = None) -> RawValue | None:
    """JSON compressed; None as soon as it is clear that it does not fit one payload."""
    data = write_json(value)
    limit, level = max_payload_bytes(), _FAST if len(data) > MAX_COMPRESSED_FROM // 4 and uses_storage() else _DENSE
    compressor, out, size = zlib.compressobj(level), list[bytes](), 0
    if len(data) > MAX_UNPACKED:
        return None
    for start in range(0, len(data), _CHUNK):
        out.append(compressor.compress(data[start : start + _CHUNK]))
        size += len(out[-1])
        if size > limit:
            return None
    out.append(compressor.flush())
    packed = b"".join(out)
    return _packed(packed, _COMPRESSED, record) if len(packed) <= limit else None


def record_type(value: RawValue) -> str:
    """The name of the record that a payload holds, or nothing; CallError where it was lost."""
    require_found(value)
    return value.payload.metadata.get(TYPE_KEY, b"").decode(errors="replace")


def is_from_run() -> bool:
    """Whether another run has started this one, or continued as it."""
    info = workflow.info()
    return info.parent is not None or info.continued_run_id is not None


def decode_record(value: RawValue, type_: type[R]) -> R:
    """The record that a run is started with; RecordError where it holds another, or none, or comes from no run."""
    if record_type(value) and not is_from_run():
        raise RecordError(f"a {record_type(value)} comes from a run of the engine: start a run with a Request")
    return _decode_record(value, type_)


def _decode_record(value: RawValue, type_: type[R]) -> R:
    if record_type(value) != type_.__name__:
        raise RecordError(f"not a {type_.__name__}: {record_type(value) or 'no record of the engine'}")
    try:
        return type_.from_json(decode_own(value))
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"not a {type_.__name__}: {truncate(repr(error), 200)}") from None


def decode_own(value: RawValue) -> Any:
    """The JSON that a run of ours encoded, compressed or not; CallError where it was lost."""
    require_found(value)
    data = value.payload.data
    return read_json(unpack(data) if value.payload.metadata.get("encoding") == _COMPRESSED else data)


def find_token(start: RawValue) -> str | None:
    """The token of the tree in what a run was started with, whatever record that is; None if there is none."""
    try:
        content = decode_own(start)
        position = content.get("position") or content["input"]["position"]  # of a plan that continues as new
        token = position["token"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return token if isinstance(token, str) else None


def decode_signal(value: RawValue, type_: type[R]) -> R:
    """The record that a signal holds, or RecordError. Anybody may send one: nothing compressed is unpacked."""
    if value.payload.metadata.get("encoding") == _COMPRESSED:
        raise RecordError(f"not a {type_.__name__}: a signal is not compressed")
    return _decode_record(value, type_)


def encode_or_compress(value: Any) -> RawValue:
    """JSON that a person can read, or compressed where that is too large; CallError where even that is."""
    size = SharedSizes().size(value)
    if size > MAX_COMPRESSED_FROM:
        raise _too_large(size)
    try:
        return encode(value)
    except CallError:
        if (packed := _compress(value)) is None:
            raise
        return packed
