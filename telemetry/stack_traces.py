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

# Whose code runs an Activity: the SDK's, and ours
_RUNNERS: Final = tuple(
    f"{folder}/" for folder in (Path(temporalio.worker.__file__).parent, Path(__file__).parents[1] / "worker_runtime")
)
# Frames at the beginning and at the end of a stack trace; six take about 1 KiB, and a failure may have two causes
_FIRST_FRAMES: Final = 2
_LAST_FRAMES: Final = 4


class ShortTraceConverter(DefaultFailureConverter):
    """The default failure converter, except for long stack traces."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode an exception and its causes; a failure that is passed on stays as it is."""
        super().to_failure(exception, payload_converter, failure)
        is_passed_on = getattr(exception, "failure", None) is not None
        if exception.__traceback__ is not None and not is_passed_on:
            failure.stack_trace = format_traceback(exception.__traceback__)


def format_traceback(trace: TracebackType) -> str:
    """A stack trace as the SDK writes it, from the Activity's own function on, and without its middle."""
    frames = list(traceback.extract_tb(trace))
    if not workflow.in_workflow():
        runners = [place for place, frame in enumerate(frames) if frame.filename.startswith(_RUNNERS)]
        own = frames[runners[-1] + 1 :] if runners else frames
        frames = own or frames
    omitted = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
    if omitted <= 0:
        return "\n".join(traceback.format_list(frames))
    first, last = frames[:_FIRST_FRAMES], frames[-_LAST_FRAMES:]
    return "\n".join([*traceback.format_list(first), f"  ... {omitted} more\n", *traceback.format_list(last)])
