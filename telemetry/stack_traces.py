"""Stack traces of failures: short, so that the server keeps the failures.

Of an attempt that is tried again, the server keeps a failure of at most 4 KiB: in place of a larger one, the Web UI
says ``Failure exceeds size limit``. The frames of the SDK and of the interceptors alone come close to it. A stack trace
therefore begins at the Activity itself, and its middle is left out; the worker's log has all of it.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import temporalio.worker
from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from acts.language.errors import truncate
from telemetry.bounded_failures import bound, chain_of, detach, fit_retry, is_tried_again, readable, text_of

# Whose code runs an Activity: the SDK's, and ours
_RUNNERS: Final = tuple(
    f"{folder}/" for folder in (Path(temporalio.worker.__file__).parent, Path(__file__).parents[1] / "worker_runtime")
)
# Frames at the beginning and at the end of a stack trace; six take about 1 KiB, and a failure may have two causes
_FIRST_FRAMES: Final = 2
_LAST_FRAMES: Final = 4
# Characters of a frame: place and source line; a line of generated code may have thousands
_MAX_FRAME: Final = 400


class ShortTraceConverter(DefaultFailureConverter):
    """The default failure converter, except for long stack traces, and for what an Activity's failure may hold."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode an exception and its causes; a failure that is passed on keeps its stack traces."""
        if workflow.in_workflow():
            super().to_failure(exception, payload_converter, failure)
            if exception.__traceback__ is not None and getattr(exception, "failure", None) is None:
                failure.stack_trace = format_traceback(exception.__traceback__)
            return
        level, (chain, omitted) = failure, chain_of(exception)
        for place, error in enumerate(chain):
            level = level.cause if place else level
            self._encode_one(error, payload_converter, level)
            if omitted and place == len(chain) - 1:
                level.stack_trace = f"  ... {omitted} causes in between\n{level.stack_trace}"
            if getattr(error, "failure", None) is not None:  # it has its own causes
                break
        bound(failure)
        if is_tried_again(failure):
            fit_retry(failure)

    def _encode_one(self, error: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        passed_on = getattr(error, "failure", None)
        if passed_on is not None:
            failure.CopyFrom(passed_on)
            return
        alone = detach(error)
        try:
            super().to_failure(alone, payload_converter, failure)
        except Exception as fault:  # noqa: BLE001 - details may be of any class
            failure.Clear()
            text = f"{alone.message}; its details cannot be sent: {truncate(text_of(fault), 200)}"
            type_, is_final = getattr(error, "type", None), getattr(error, "non_retryable", False)
            stated = ApplicationError(text, type=type_ and readable(type_), non_retryable=is_final)
            super().to_failure(stated, payload_converter, failure)
        if error.__traceback__ is not None:
            failure.stack_trace = readable(format_traceback(error.__traceback__))


def format_traceback(trace: TracebackType) -> str:
    """A stack trace as the SDK writes it, from the Activity's own function on, and without its middle."""
    frames = list(traceback.extract_tb(trace))
    if not workflow.in_workflow():
        runners = [place for place, frame in enumerate(frames) if frame.filename.startswith(_RUNNERS)]
        own = frames[runners[-1] + 1 :] if runners else frames
        frames = own or frames
    omitted = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
    if omitted <= 0:
        return "\n".join(_format(frames))
    first, last = frames[:_FIRST_FRAMES], frames[-_LAST_FRAMES:]
    return "\n".join([*_format(first), f"  ... {omitted} more\n", *_format(last)])


def _format(frames: list[traceback.FrameSummary]) -> list[str]:
    return [truncate(text.rstrip(), _MAX_FRAME) + "\n" for text in traceback.format_list(frames)]
