"""Log lines of the worker and its Tools: readable ones with time and level, or JSON, with the ids of run and Call.

Laws of this file: standard ``logging``, set up once per process. No parameter, result or prompt: libraries that write
requests or tasks at DEBUG are kept at WARNING. A failure that a Tool declares (an ``ApplicationError``) is one line, of
the level INFO; so is an attempt that is followed by another. Any other exception keeps its traceback, an attempt's
without the frames of libraries. No secret (``LogGuard``), in what Tools print neither.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import visible
from acts.language.secret_masks import SecretMasks
from acts.language.wire import ENGINE_CODES, INSTANCE, MODEL
from acts.telemetry.failures import find_place, format_error

if TYPE_CHECKING:
    from typing import TextIO

    from temporalio.activity import Info

PLANNER: Final = "planner"  # the model Activity of a tick asks for no Tool
# The ids of the Call that runs
current_call: Final[ContextVar[dict[str, Any] | None]] = ContextVar("acts_call", default=None)


def identify(info: Info, args: Sequence[Any] = ()) -> dict[str, Any]:
    """The known ids of the Call of an Activity, by their names in a log line: ``call`` is its key in the plan."""
    is_model = info.activity_type == MODEL
    first = args[0] if args and isinstance(args[0], dict) else {}
    call = first.get("call") if is_model else first
    tool = (first.get("tool") or PLANNER) if is_model else first.get("_tool")
    instance = call.get("_instance") if isinstance(call, dict) else None
    if not isinstance(instance, str):
        is_instance = info.workflow_type == INSTANCE and info.workflow_id
        instance = str(info.workflow_id).rpartition("/")[2] if is_instance else None
    is_call = isinstance(tool, str) and tool
    fields = {
        "run": info.workflow_id, "runId": info.workflow_run_id, "call": info.activity_id if is_call else None,
        "instance": instance, "tool": tool if is_call else None, "attempt": info.attempt if info.attempt > 1 else None,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


MAX_SECRETS: Final = 1_000  # the oldest are given up
_MAX_CAUSES: Final = 10  # of a failure
_line_masks: Final[list[Callable[[str], str]]] = []


class LogGuard:
    """The masks of a process, applied to each record that any logger makes, and to all that Python code prints: the
    hooks for exceptions of threads, of the main program and of finalizers write there, too.

    ``hides_failures``: of failures that the SDK logs, only types and places are left. Where payloads are encrypted,
    their texts may hold any value.
    """

    def __init__(self, *, hides_failures: bool = False) -> None:
        self.hides_failures = hides_failures
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        self._masks = SecretMasks(())

    def announce(self, secrets: Iterable[str]) -> None:
        """From now on these are masked; call it before the Call that has them begins."""
        new = [secret for secret in secrets if secret not in self._secrets]
        if new:
            with self._lock:
                self._secrets = dict.fromkeys([*self._secrets, *new][-MAX_SECRETS:])
                self._masks = SecretMasks(self._secrets)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """A block in which records of loggers, standard output and standard error of this process are masked."""
        make = logging.getLogRecordFactory()
        logging.setLogRecordFactory(lambda *args, **options: self._mask_record(make(*args, **options)))
        _line_masks.append(self._mask_text)
        streams = {name: getattr(sys, name) for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
        try:
            for name, stream in streams.items():
                setattr(sys, name, stream and MaskedStream(stream, self._mask_text))
            yield
        finally:
            for name, stream in streams.items():
                setattr(sys, name, stream)
            _line_masks.remove(self._mask_text)
            logging.setLogRecordFactory(make)

    def _mask_text(self, text: str) -> str:
        return self._masks.mask_text(text)

    def _mask_record(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit are the handler's to report
            return record
        if (masked := self._mask_text(text)) != text:
            record.msg, record.args = masked, ()
        record.stack_info = record.stack_info and self._mask_text(record.stack_info)
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return record
        trace = format_error(error, is_brief=_is_attempt(record))
        is_hidden = self.hides_failures and record.name.startswith("temporalio")
        if (masked := self._mask_text(_bare_traceback(error) if is_hidden else trace)) != trace:
            record.exc_info, record.exc_text = None, masked
        return record


class MaskedStream:
    """A text stream of a process, and the bytes below it, with masks in what is written."""

    def __init__(self, stream: Any, mask: Callable[[str], str]) -> None:
        self._stream, self._mask = stream, mask

    def write(self, text: Any) -> int:
        """Write text, or the bytes of text."""
        is_text = isinstance(text, str)
        plain = text if is_text else bytes(text).decode("utf-8", "surrogateescape")
        masked = self._mask(plain)
        self._stream.write(masked if is_text else masked.encode("utf-8", "surrogateescape"))
        return len(text)

    @property
    def buffer(self) -> Any:
        return MaskedStream(self._stream.buffer, self._mask)

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_PUBLIC: Final = "acts.payloads."  # whose errors name keys and places, and no value


def _bare_traceback(error: BaseException) -> str:
    """Types and places of a failure and its causes, the first cause first, without their texts."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < _MAX_CAUSES:
        trace = "".join(traceback.format_tb(cause.__traceback__))
        is_public = type(cause).__module__.startswith(_PUBLIC)
        parts.append(f"{trace}{_type_of(cause)}{f': {cause}' if is_public else ' (its text is in the history)'}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(reversed(parts))


def _type_of(error: BaseException) -> str:
    return getattr(error, "type", None) or type(error).__name__


# What they write below WARNING holds tasks, requests or responses
CAPPED: Final = (
    "temporalio", "openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "requests",
    "botocore", "boto3", "google", "mcp", "asyncio", "opentelemetry",
)  # fmt: skip
# … but for what Tools and workflows write with the SDK's loggers. At DEBUG, it writes the details of heartbeats there
OWN_OF_SDK: Final = ("temporalio.activity", "temporalio.workflow")
CORE: Final = "temporalio.core"  # in Rust
# Characters of a message, and of a field of the core: some quote what they could not send
MAX_MESSAGE, MAX_FIELD = 8_000, 300
_SDK_FIELDS: Final = {"workflow_id": "run", "workflow_run_id": "runId", "run_id": "runId"}


def configure_logs(level: str, form: str = "text", stream: TextIO | None = None) -> None:
    """Write the records of this process to ``stream`` (standard error), as ``text`` or ``json``."""
    from temporalio import activity, workflow

    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(Lines(is_json=form == "json"))
    handler.addFilter(lower_declared)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for names, lowest in ((CAPPED, logging.WARNING), (OWN_OF_SDK, logging.INFO)):
        for name in names:
            logging.getLogger(name).setLevel(max(root.level, lowest))
    # The ids are fields of the record
    activity.logger.activity_info_on_message = workflow.logger.workflow_info_on_message = False
    logging.captureWarnings(capture=True)


def announce(line: str, form: str, level: int = logging.INFO) -> None:
    """Tell the operator something, whatever level is set: a line on standard output, of the form of the others."""
    if form == "json":
        line = Lines(is_json=True).format(logging.LogRecord("worker", level, __file__, 0, line, (), None))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def read_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The ids of the run and the Call that a record is about, where they are known."""
    call = current_call.get()
    if call is not None:
        return call
    from temporalio import activity

    if activity.in_activity():
        return identify(activity.info())
    details = getattr(record, "temporal_workflow", None) or {}
    fields = {ours: details[theirs] for theirs, ours in _SDK_FIELDS.items() if details.get(theirs)}
    core = getattr(record, "temporal_log", None)
    if core is not None:
        values = {name: value for name, value in core.fields.items() if isinstance(value, str | int | float | bool)}
        fields |= {_SDK_FIELDS.get(n, n): v[:MAX_FIELD] if isinstance(v, str) else v for n, v in values.items()}
    return fields


def _is_attempt(record: logging.LogRecord) -> bool:
    return getattr(record, "__temporal_error_identifier", "") == "ActivityFailure"


def _is_declared(error: BaseException) -> bool:
    """True for what a Tool or the engine raised on purpose: no exception that became a failure."""
    from temporalio.exceptions import ApplicationError

    return isinstance(error, ApplicationError) and error.type != type(error.__cause__).__name__


def _is_retried(error: BaseException) -> bool:
    """True for the failure of an attempt in this Activity that another attempt follows."""
    from temporalio import activity

    policy = activity.info().retry_policy if activity.in_activity() else None
    if policy is None or getattr(error, "non_retryable", False):
        return False
    is_last = 0 < policy.maximum_attempts <= activity.info().attempt
    return not is_last and _type_of(error) not in (policy.non_retryable_error_types or ())


def lower_declared(record: logging.LogRecord) -> bool:
    """Make a failure that a Tool declares INFO: its plan deals with it. False where that is not to be written."""
    error = record.exc_info[1] if record.exc_info else None
    is_own = error is not None and _is_attempt(record) and _is_declared(error) and _type_of(error) not in ENGINE_CODES
    if not is_own or read_fields(record).get("tool", PLANNER) == PLANNER:
        return True
    record.levelno, record.levelname = logging.INFO, "INFO"
    return logging.getLogger().level <= logging.INFO


class Lines(logging.Formatter):
    """One line per record, a traceback below it; or one object in JSON. Times are UTC.

    ``2026-01-31T12:00:00.123Z WARNING message  run=order-1 call=2:refund tool=refund``, or ``time``, ``level``,
    ``logger``, ``message``, the ids, and ``error``.
    """

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        message, stack = record.getMessage(), record.exc_text  # set where it was masked before it came here
        if error is not None:
            is_attempt = _is_attempt(record)
            is_retried = is_attempt and _is_retried(error)
            stack = None if is_retried or _is_declared(error) else stack or format_error(error, is_brief=is_attempt)
            if is_attempt:
                place = find_place(format_error(error)) if is_retried and not _is_declared(error) else None
                message = f"the attempt failed: {_type_of(error)}: {getattr(error, 'message', None) or error}"
                message += f" (at {place})" if place else ""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message, fields = message[:MAX_MESSAGE], read_fields(record)
        if self._is_json:
            out = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": message, **fields}
            details = {"type": None if error is None else _type_of(error), "stack": stack}
            if any(details.values()):
                out["error"] = {name: value for name, value in details.items() if value}
            line = json.dumps(out, ensure_ascii=False, default=str)
        else:
            words = "".join(f" {name}={_quote(str(value))}" for name, value in fields.items())
            line = f"{time} {record.levelname:<7} {message}{' ' if words else ''}{words}"
            line += f"\n{stack}" if stack else ""
        for mask in _line_masks:
            line = mask(line)
        return visible(line, "\n\t")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c in '"=' for c in text) else text
