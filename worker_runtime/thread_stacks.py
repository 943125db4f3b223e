"""Where a thread stands: one line that names its place in the code, and its whole stack for a log.

A sample is taken from another thread and may be a moment old. It needs the interpreter lock, so it is impossible while
C code holds it; for that case ``faulthandler`` writes the stacks when the supervisor ends the process.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

# Frames of these are the way to the code that matters: Python's own library, and what is installed
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_ROOT: Final = Path(__file__).resolve().parents[1]
# Our own code, which an image has among the installed packages
_OWN: Final = tuple(f"{_ROOT / room}/" for room in ("acts", "workflows", "activities", "delegates"))
# Deeper stacks are cut at their outer end; the place of interest is the inner one
MAX_FRAMES: Final = 40


def find_frame(thread_id: int | None) -> FrameType | None:
    """The innermost frame of a thread; None when it has ended."""
    return None if thread_id is None else sys._current_frames().get(thread_id)  # noqa: SLF001 - documented by CPython


def describe_place(frame: FrameType | None) -> str:
    """``file:line in function`` of the innermost frame that is no library's; of the innermost where all are."""
    if frame is None:
        return "an unknown place"
    place = frame
    while _is_library(place) and place.f_back is not None:
        place = place.f_back
    if _is_library(place):
        place = frame
    return f"{_short_path(place.f_code.co_filename)}:{place.f_lineno} in {place.f_code.co_qualname}"


def format_stack(frame: FrameType | None) -> str:
    """The stack as a traceback shows it, innermost frame last."""
    if frame is None:
        return "  (the thread has ended)\n"
    return "".join(traceback.format_stack(frame)[-MAX_FRAMES:])


def _is_library(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return not name.startswith(_OWN) and name.startswith((*_LIBRARIES, f"{_ROOT / 'worker_runtime'}/", "<frozen"))


def _short_path(name: str) -> str:
    path = Path(name)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else name
