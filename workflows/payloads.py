"""JSON in and out of Temporal payloads, with the sizes known before anything is sent.

A payload above 2 MB cannot be recorded: a workflow that tries retries its task for
ever, and one that sends more than 4 MB of them in one task is terminated. So we
encode ourselves, look at the size, and refuse or trim in time.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.language.errors import CallError, InvalidRequest, Problem, truncate
from acts.language.wire import NOT_JSON, RESULT_TOO_LARGE

# The server refuses a single payload above 2 MiB (limit.blobSize.error); the rest is
# room for what wraps it
MAX_PAYLOAD: Final = 2 * 1024 * 1024 - 64 * 1024
# All commands of one workflow task travel in one gRPC message of at most 4 MiB
MAX_TASK_BYTES: Final = 2 * 1024 * 1024
# The result of one local activity; eight of them fit into a task beside the above
MAX_LOCAL_RESULT: Final = 192 * 1024
# A result that is larger loses its bulkiest parts (they can still be queried)
MAX_RESULT: Final = 1536 * 1024

# Of a batch: above this, the instances' own runs tell what each came to
MAX_BATCH_RESULT: Final = 1024 * 1024

# Errors that a trimmed result still names
MAX_ERRORS: Final = 500

_JSON: Final = {"encoding": b"json/plain"}
# What a run hands to its successor. A workflow takes one argument (the SDK forgets the
# types of arguments when their number differs), so the metadata tells it from a Request.
_PACKED: Final = {"encoding": b"binary/plain", "acts": b"carried"}
# What an agent hands to the plan of a tick: JSON that a person can read in the Web UI
_HANDED: Final = {"encoding": b"json/plain", "acts": b"handed"}
NOTHING: Final = RawValue(Payload())


def dump(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode(value: Any) -> RawValue:
    """A value as one JSON payload.

    Raises:
        CallError: it is too large to be recorded.
    """
    data = dump(value)
    if len(data) > MAX_PAYLOAD:
        raise CallError(
            RESULT_TOO_LARGE,
            f"{len(data):,} bytes of JSON are more than the {MAX_PAYLOAD:,} that one payload may hold: "
            "keep large data outside and pass a reference to it",
        )
    return raw(data)


def raw(data: bytes) -> RawValue:
    """JSON bytes as a payload."""
    return RawValue(Payload(metadata=_JSON, data=data))


def decode(value: RawValue) -> Any:
    """The JSON of a payload that some Activity, in some language, returned.

    Raises:
        CallError: it is not JSON.
    """
    payload = value.payload
    if not payload.metadata and not payload.data:
        return None  # some SDKs return nothing at all for nothing
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding == "binary/null":
        return None
    if encoding not in ("json/plain", "json/protobuf"):
        raise CallError(NOT_JSON, f"the result is {encoding or 'without an encoding'}, not JSON")
    try:
        return json.loads(payload.data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CallError(NOT_JSON, f"the result is not JSON: {truncate(str(error), 200)}") from error


def decode_request(value: RawValue) -> Any:
    """The JSON of a Request.

    Raises:
        InvalidRequest: it is not JSON, or nothing was given.
    """
    hint = "start it with one argument: {config, context, schema}"
    if not value.payload.metadata:
        raise InvalidRequest([Problem("invalidJson", "the workflow was started without a Request", hint=hint)])
    try:
        return decode(value)
    except CallError as error:
        text = error.message.replace("the result", "the Request")
        raise InvalidRequest(
            [Problem("invalidJson", text, hint="start it with one argument: {config, context, schema}")]
        ) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def pack(value: Any) -> RawValue:
    """A value for the next run of ourselves: compressed, since a large plan and its results must fit."""
    return RawValue(Payload(metadata=_PACKED, data=zlib.compress(dump(value), 6)))


def unpack(value: RawValue) -> Any:
    """What ``pack`` packed; None for anything else."""
    if dict(value.payload.metadata) != _PACKED:
        return None
    return json.loads(zlib.decompress(value.payload.data))


def fitted(value: Any) -> RawValue:
    """JSON that a person can read, or packed where that is too large: much of a large result is alike.

    Raises:
        CallError: it is too large even so.
    """
    try:
        return encode(value)
    except CallError:
        packed = pack(value)
        if size(packed) > MAX_PAYLOAD:
            raise
        return packed


def detail(value: Any) -> Any:
    """What a failure's detail holds, as ``fitted`` or anybody wrote it."""
    return json.loads(zlib.decompress(value)) if isinstance(value, bytes) else value


def hand(value: Any) -> RawValue:
    """A plan for a child of ours, with what goes with it.

    Raises:
        CallError: it is too large to be recorded.
    """
    return RawValue(Payload(metadata=_HANDED, data=encode(value).payload.data))


def handed(value: RawValue) -> Any:
    """What ``hand`` made; None for anything else."""
    return json.loads(value.payload.data) if dict(value.payload.metadata) == _HANDED else None


def size(value: RawValue) -> int:
    """Bytes of a payload's data."""
    return len(value.payload.data)


def trimmed(result: dict[str, Any], how: str) -> dict[str, Any]:
    """A result that fits into one payload: the bulkiest parts go first, and it says so."""
    out = dict(result)
    omitted: dict[str, int] = {}
    if "instances" in out and len(dump(out)) > MAX_BATCH_RESULT:
        for key, kept in (
            ("instances", {i: {"status": item["status"]} for i, item in out["instances"].items()}),
            ("context", [m for m in out["context"] if "_instance" not in m]),
        ):
            omitted[key] = len(dump(out[key]))
            out[key] = kept
            out["omitted"] = {"bytes": omitted, "how": f"{how}; each instance's child has its own result"}
    for key, empty in (("context", []), ("calls", []), ("state", {}), ("errors", None)):
        if len(dump(out)) <= MAX_RESULT:
            break
        omitted[key] = len(dump(out[key]))
        out[key] = brief(out[key]) if empty is None else empty
        out["omitted"] = {"bytes": omitted, "how": how}
    return out


def brief(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Errors without their details, the first of very many."""
    kept = ({k: v for k, v in e.items() if k != "details"} for e in errors[:MAX_ERRORS])
    return [{**e, "message": truncate(str(e.get("message", "")))} for e in kept]
