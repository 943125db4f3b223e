"""Bounds of a failure that an Activity reports: how deep, how large, and how much of it the server keeps in a retry.

Laws of this file: it knows exceptions and the protobuf of a failure, no converter and no codec. What is left out is
named in what remains.

* Protobuf decoders stop at a hundred nested messages: a failure with 93 causes could be recorded and not read again, so
  its run stood still for good. One of 4 MiB never reaches the server, and the Call waits until its timeout.
* Of an attempt that is tried again, the server keeps a failure of at most 4 KiB. Of a larger one it keeps a part of the
  message, and nothing where that is encrypted.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError

from acts.language.errors import truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from temporalio.api.failure.v1 import Failure

# Failures in one: the first, what caused it, and the origin. Chains of libraries have two or three
MAX_LEVELS: Final = 8
# Characters of a message: what the error of a Call keeps
MAX_MESSAGE: Final = 10_000
MAX_TYPE: Final = 1_000
# Details of a failure, as payloads: the error of a Call keeps 64 KiB, and larger ones would only fill the history. The
# rest is the framing
MAX_DETAILS_BYTES: Final = 65 * 1024
# What the server keeps of a failure that is tried again
RETRIED_BYTES: Final = 4096
# Of each failure in a chain, encrypted: twice what the codec adds, and the framing (64 bytes)
_LEVEL_BYTES: Final = 320
_CAUSE_MESSAGE: Final = 300
# Members of an exception group that its text names
_MAX_MEMBERS: Final = 3


def text_of(error: BaseException) -> str:
    """The text of an exception; that of a group names its members. Never empty, always valid UTF-8."""
    try:
        text = error.message if isinstance(error, FailureError) else str(error)
    except Exception as fault:  # noqa: BLE001 - what a Tool raises may be of any class
        text = f"its text cannot be read: __str__ raises {type(fault).__name__}"
    if isinstance(error, BaseExceptionGroup):
        members = list(islice(_members(error), _MAX_MEMBERS + 1))
        text += ": " + "; ".join(f"{type(one).__name__}: {text_of(one)}" for one in members[:_MAX_MEMBERS])
        text += "; …" if len(members) > _MAX_MEMBERS else ""
    return readable(text) or type(error).__name__


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    left = list(group.exceptions)
    while left:
        one = left.pop(0)
        if isinstance(one, BaseExceptionGroup):
            left = [*one.exceptions, *left]
        else:
            yield one


def readable(text: str) -> str:
    """The text without surrogates, which protobuf refuses."""
    return text.encode("utf-8", "backslashreplace").decode()


def chain_of(error: BaseException) -> tuple[list[BaseException], int]:
    """The exception and its causes as the SDK finds them, the origin last; and how many before that are left out."""
    chain: list[BaseException] = []
    ids: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in ids:  # a cause may have itself as its cause
        ids.add(id(link))
        chain.append(link)
        shows_context = isinstance(link, FailureError) and not link.__suppress_context__
        link = link.__cause__ or (link.__context__ if shows_context else None)
    if len(chain) <= MAX_LEVELS:
        return chain, 0
    return [*chain[: MAX_LEVELS - 1], chain[-1]], len(chain) - MAX_LEVELS


def detach(error: BaseException) -> FailureError:
    """A copy of the exception as a failure without its causes, with text that can be sent."""
    if isinstance(error, FailureError):
        copy = type(error).__new__(type(error))
        copy.__dict__.update(error.__dict__)
        copy._message = text_of(error)  # noqa: SLF001 - each class has arguments of its own
        if isinstance(copy, ApplicationError) and copy._type:  # noqa: SLF001 - as above
            copy._type = readable(copy._type)  # noqa: SLF001 - as above
    else:
        copy = ApplicationError(text_of(error), type=readable(type(error).__name__))
    copy.__traceback__ = error.__traceback__
    return copy


def levels_of(failure: Failure) -> list[Failure]:
    """The failure and its causes."""
    levels = [failure]
    while levels[-1].HasField("cause"):
        levels.append(levels[-1].cause)
    return levels


def without_details(failure: Failure) -> Failure:
    """A copy to read the texts of: details may be those of another SDK, or no JSON."""
    bare = type(failure)()
    bare.CopyFrom(failure)
    for level in levels_of(bare):
        if level.HasField("application_failure_info"):
            level.application_failure_info.ClearField("details")
        if level.HasField("canceled_failure_info"):
            level.canceled_failure_info.ClearField("details")
        if level.HasField("timeout_failure_info"):
            level.timeout_failure_info.ClearField("last_heartbeat_details")
    return bare


def bound(failure: Failure) -> None:
    """Cut what would not reach the server, or could not be read again."""
    levels = levels_of(failure)
    if len(levels) > MAX_LEVELS:
        levels[MAX_LEVELS - 1].ClearField("cause")
    for level in levels[:MAX_LEVELS]:
        info = level.application_failure_info if level.HasField("application_failure_info") else None
        text = level.message
        if info is not None and (size := info.details.ByteSize()) > MAX_DETAILS_BYTES:
            info.ClearField("details")
            text = f"{truncate(text, MAX_MESSAGE - 100)}; its details of {size:,} bytes are left out"
        level.message = truncate(text, MAX_MESSAGE)
        if info is not None and len(info.type) > MAX_TYPE:
            info.type = truncate(info.type, MAX_TYPE)


def fit_retry(failure: Failure) -> None:
    """Cut a failure that is tried again to what the server keeps: causes first, then details, the message at last."""
    first, *causes = levels_of(failure)
    for level in [*causes, first]:
        if _size(failure) <= RETRIED_BYTES:
            return
        level.stack_trace = ""
    for level in causes:
        level.message = truncate(level.message, _CAUSE_MESSAGE)
    if _size(failure) > RETRIED_BYTES:
        failure.ClearField("cause")
    if _size(failure) > RETRIED_BYTES and failure.HasField("application_failure_info"):
        info = failure.application_failure_info
        info.ClearField("details")
        info.type = truncate(info.type, _CAUSE_MESSAGE)
    while _size(failure) > RETRIED_BYTES:
        failure.message = truncate(failure.message, len(failure.message) * 3 // 4)


def _size(failure: Failure) -> int:
    """About how many bytes the failure has on its way, also where it is encrypted: then its texts are JSON."""
    levels = levels_of(failure)
    texts = sum(len(json.dumps(text)) for level in levels for text in (level.message, level.stack_trace))
    infos = [level.application_failure_info for level in levels if level.HasField("application_failure_info")]
    return texts + sum(info.ByteSize() for info in infos) + _LEVEL_BYTES * len(levels)


def is_tried_again(failure: Failure) -> bool:
    """True in an Activity of the server's that has attempts left for this failure."""
    if not activity.in_activity() or activity.info().is_local:
        return False
    policy, info = activity.info().retry_policy, failure.application_failure_info
    if info.non_retryable or policy is None:
        return False
    is_last = 0 < policy.maximum_attempts <= activity.info().attempt
    return not is_last and info.type not in (policy.non_retryable_error_types or ())
