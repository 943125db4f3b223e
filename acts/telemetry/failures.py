"""How exceptions travel: bounded in depth and size, with short stack traces, so that the server keeps them.

Laws of this file: it knows exceptions and the protobuf of a failure, and no codec. What is left out is named in what
remains.

* A failure with 93 causes (protobuf reads a hundred nested messages) could be recorded and not read again, so its run
  stood still for good. One of 4 MiB never reaches the server, and the Call waits until its timeout.
* Of an attempt that is tried again, the server keeps 4 KiB, which the frames of the SDK and of the interceptors nearly
  fill. A stack trace begins at the Activity itself, without its middle; the worker's log has all of it.
* What a workflow of ours fails with says what happened in its message, and has neither stack trace nor cause: places in
  the engine's code add nothing. An ``EngineError``, a fault of ours, has.
* The SDK decodes a failure's details before workflow code runs. Those that cannot be decoded would fail the workflow
  task or the run; they are dropped, and the failure keeps its type and message.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import temporalio.worker
from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError, FailureError

from acts.language.errors import truncate
from acts.language.wire import ENGINE_ERROR, LOCAL_DEFERRED

# Failures in one: the first, what caused it, and the origin. Chains of libraries have two or three
MAX_LEVELS: Final = 8
# Characters of a message: what the error of a Call keeps
MAX_MESSAGE: Final = 10_000
MAX_TYPE: Final = 1_000
# Details of a failure, as payloads: the error of a Call keeps 64 KiB; the rest is the framing
MAX_DETAILS_BYTES: Final = 65 * 1024
# Whose code runs an Activity: the SDK's, and ours
_ACTS: Final = Path(__file__).parents[1]
_RUNNERS: Final = (
    f"{Path(temporalio.worker.__file__).parent}/", f"{_ACTS / 'worker'}/", str(_ACTS / "client" / "typed_tools.py"),
)  # fmt: skip
# Frames at the beginning and at the end of a stack trace; six take about 1 KiB, and a failure may have two causes
_FIRST_FRAMES, _LAST_FRAMES = 2, 4
# Characters of a frame: place and source line; a line of generated code may have thousands
_MAX_FRAME: Final = 400


class EngineFailureConverter(DefaultFailureConverter):
    """The default failure converter, with the rules above."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode an exception and its causes; a failure that is passed on keeps its stack traces."""
        if workflow.in_workflow():
            error = exception
            if isinstance(error, ApplicationError) and error.type != ENGINE_ERROR:  # a copy: the SDK logs the original
                is_final = error.non_retryable
                error = ApplicationError(error.message, *error.details, type=error.type, non_retryable=is_final)
            super().to_failure(error, payload_converter, failure)
            if error.__traceback__ is not None and getattr(error, "failure", None) is None:
                failure.stack_trace = format_traceback(error.__traceback__)
            return
        level, (chain, omitted) = failure, chain_of(exception)
        for place, link in enumerate(chain):
            level = level.cause if place else level
            if getattr(link, "failure", None) is not None:  # it has its own causes
                level.CopyFrom(link.failure)  # type: ignore[attr-defined]
                break
            self._encode_one(link, payload_converter, level)
        if omitted and link is chain[-1]:
            level.stack_trace = f"  ... {omitted} causes in between\n{level.stack_trace}"
        bound(failure)

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # noqa: BLE001 - undecodable details of a foreign SDK must not end the run
            bare = without_details(failure)
            for level in levels_of(bare):
                level.ClearField("encoded_attributes")
            return super().from_failure(bare, payload_converter)

    def _encode_one(self, error: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        alone = detach(error)
        try:
            super().to_failure(alone, payload_converter, failure)
        except Exception as fault:  # noqa: BLE001 - details may be of any class
            failure.Clear()
            text = f"{alone.message}; its details cannot be sent: {truncate(text_of(fault), 200)}"
            is_final = getattr(alone, "non_retryable", False)
            stated = ApplicationError(text, type=getattr(alone, "type", None), non_retryable=is_final)
            super().to_failure(stated, payload_converter, failure)
        # Deferred outcomes travel in one message with many others
        if error.__traceback__ is not None and getattr(error, "type", None) != LOCAL_DEFERRED:
            failure.stack_trace = _readable(format_traceback(error.__traceback__))


def text_of(error: BaseException) -> str:
    """The text of an exception; that of a group names its members. Never empty, always valid UTF-8."""
    try:
        text = error.message if isinstance(error, FailureError) else str(error)
    except Exception as fault:  # noqa: BLE001 - what a Tool raises may be of any class
        text = f"its text cannot be read: __str__ raises {type(fault).__name__}"
    if isinstance(error, BaseExceptionGroup):
        members = [f"{type(one).__name__}: {text_of(one)}" for one in error.exceptions[:3]]
        text += ": " + "; ".join(members) + ("; …" if error.exceptions[3:] else "")
    return _readable(text) or type(error).__name__


def _readable(text: str) -> str:
    # Protobuf refuses surrogates
    return text.encode("utf-8", "backslashreplace").decode()


def chain_of(error: BaseException) -> tuple[list[BaseException], int]:
    """The exception and its causes as the SDK finds them, the origin last; and how many before that are left out."""
    chain: dict[int, BaseException] = {}
    link: BaseException | None = error
    while link is not None and id(link) not in chain:  # a cause may have itself as its cause
        chain[id(link)] = link
        shows_context = isinstance(link, FailureError) and not link.__suppress_context__
        link = link.__cause__ or (link.__context__ if shows_context else None)
    links = list(chain.values())
    if len(links) <= MAX_LEVELS:
        return links, 0
    return [*links[: MAX_LEVELS - 1], links[-1]], len(links) - MAX_LEVELS


def detach(error: BaseException) -> FailureError:
    """A copy of the exception as a failure without its causes and its place, with text that can be sent."""
    if not isinstance(error, FailureError):
        return ApplicationError(text_of(error), type=_readable(type(error).__name__))
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy._message = text_of(error)  # noqa: SLF001 - each class has arguments of its own
    if isinstance(copy, ApplicationError) and copy._type:  # noqa: SLF001 - as above
        copy._type = _readable(copy._type)  # noqa: SLF001 - as above
    return copy


def levels_of(failure: Failure) -> list[Failure]:
    levels = [failure]
    while levels[-1].HasField("cause"):
        levels.append(levels[-1].cause)
    return levels


def without_details(failure: Failure) -> Failure:
    """A copy to read the texts of: details may be those of another SDK, or no JSON."""
    bare = type(failure)()
    bare.CopyFrom(failure)
    for level in levels_of(bare):
        for kind, field in (
            ("application_failure_info", "details"),
            ("canceled_failure_info", "details"),
            ("timeout_failure_info", "last_heartbeat_details"),
        ):
            if level.HasField(kind):  # type: ignore[arg-type]
                getattr(level, kind).ClearField(field)
    return bare


def bound(failure: Failure) -> None:
    """Cut what would not reach the server, or could not be read again."""
    levels = levels_of(failure)
    if len(levels) > MAX_LEVELS:
        levels[MAX_LEVELS - 1].ClearField("cause")
    for level in levels[:MAX_LEVELS]:
        text = level.message
        if level.HasField("application_failure_info"):
            info = level.application_failure_info
            info.type = truncate(info.type, MAX_TYPE)
            if (size := info.details.ByteSize()) > MAX_DETAILS_BYTES:
                info.ClearField("details")
                text = f"{truncate(text, MAX_MESSAGE - 100)}; its details of {size:,} bytes are left out"
        level.message = truncate(text, MAX_MESSAGE)


def format_error(error: BaseException, *, is_brief: bool = False) -> str:
    """A traceback as Python writes it, with the frames of each exception from the Activity's own function on.

    ``is_brief``: without the frames of libraries, and of a cause that has no others without any.
    """
    report = traceback.TracebackException.from_exception(error)
    parts = [report]
    while parts:
        part = parts.pop()
        frames = _own_frames(part.stack)
        own = [f for f in frames if not (is_brief and _LIBRARY.search(f.filename))]
        part.stack = traceback.StackSummary.from_list(own or (frames if part is report else []))
        parts += filter(None, (part.__cause__, part.__context__, *(part.exceptions or ())))
    return "".join(report.format()).rstrip("\n")


def _own_frames(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    after = [place for place, frame in enumerate(frames, start=1) if frame.filename.startswith(_RUNNERS)]
    return frames[after[-1] :] if after and after[-1] < len(frames) else frames


_FRAME: Final = re.compile(r'^ *File "([^"\n]+)", line (\d+)', re.MULTILINE)
_LIBRARY: Final = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python[\d.]*)[/\\]", re.IGNORECASE)


def find_place(stack_trace: str) -> str | None:
    """``tools.py:12``, with the folder: the last frame of a stack trace in Python that is of no library."""
    frames = _FRAME.findall(stack_trace)
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    return ":".join(own[-1]) if own else None


def format_traceback(trace: TracebackType) -> str:
    """A stack trace as the SDK writes it, from the Activity's own function on, and without its middle."""
    frames = list(traceback.extract_tb(trace))
    if not workflow.in_workflow():
        frames = _own_frames(frames)
    lines = [truncate(traceback.format_list([frame])[0].rstrip(), _MAX_FRAME) + "\n" for frame in frames]
    omitted = len(lines) - _FIRST_FRAMES - _LAST_FRAMES
    if omitted > 0:
        lines[_FIRST_FRAMES:-_LAST_FRAMES] = [f"  ... {omitted} more\n"]
    return "\n".join(lines)


def connection_problem(error: BaseException) -> str:
    """Why no server is reached, as the SDK's core knows it, without the Rust around it: ``Connection refused``."""
    text = str(error).removeprefix("Failed client connect: ")
    quoted: list[str] = re.findall(r'\b(?:message|error): "([^"]+)"', text)
    if quoted:
        return quoted[-1]
    is_rust = re.search(r"\w::\w|Error\(", text) is not None
    return "the connection failed; check the address and the TLS settings" if is_rust else text
