"""Log lines of the worker and its Tools: readable ones with time and level, or JSON, with the ids of run and Call.

Laws of this file:
- standard ``logging``, set up once per process; a Tool logs with any logger and gets the ids of its Call;
- no parameter, result or prompt: libraries that write requests or tasks at DEBUG are kept at WARNING;
- a failure that a Tool declares (an ``ApplicationError``) is one line; an unexpected exception keeps its traceback.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from telemetry.call_identity import current_call, identify

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from telemetry.telemetry_settings import TelemetrySettings

# What they write below WARNING holds tasks, requests or responses, or is a line for each request
CAPPED: Final = (
    "temporalio", "openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "requests",
    "botocore", "boto3", "google", "mcp", "asyncio", "opentelemetry",
)  # fmt: skip
# … but for what Tools and workflows themselves write with the SDK's loggers. At DEBUG the SDK writes the details of
# heartbeats there
OWN_OF_SDK: Final = ("temporalio.activity", "temporalio.workflow")
# The SDK's core, in Rust
CORE: Final = "temporalio.core"
# Characters of a message and of a field of the core: some of them quote what they could not send
MAX_MESSAGE: Final = 8_000
MAX_FIELD: Final = 300

_COLOURS: Final = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}
# Names of the SDK's details of an Activity or a run -> ours
_SDK_FIELDS: Final = {"workflow_id": "run", "workflow_run_id": "runId", "run_id": "runId"}
_redactors: Final[list[Callable[[str], str]]] = []


def add_redactor(redact: Callable[[str], str]) -> None:
    """Pass every line through ``redact`` before it is written; for values that no log may have."""
    _redactors.append(redact)


def configure_logs(settings: TelemetrySettings, stream: TextIO | None = None) -> logging.Handler:
    """Write the records of this process to ``stream`` (standard error); replaces what was set up before."""
    from temporalio import activity, workflow

    stream = sys.stderr if stream is None else stream
    level = getattr(logging, settings.log_level.upper())
    handler = logging.StreamHandler(stream)
    is_json = settings.log_format == "json"
    handler.setFormatter(JsonLines() if is_json else TextLines(has_colours=_is_terminal(stream)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in CAPPED:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in OWN_OF_SDK:
        logging.getLogger(name).setLevel(max(level, logging.INFO))
    # The ids are fields of the record
    activity.logger.activity_info_on_message = workflow.logger.workflow_info_on_message = False
    logging.captureWarnings(capture=True)
    return handler


def announce(line: str, settings: TelemetrySettings, level: int = logging.INFO) -> None:
    """Tell the operator something, whatever level is set: a line on standard output, of the form of the others."""
    if settings.log_format == "json":
        record = logging.LogRecord("worker", level, __file__, 0, line, (), None)
        sys.stdout.write(JsonLines().format(record) + "\n")
    else:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _is_terminal(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and stream.isatty()


def read_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The ids of the run and the Call that a record is about, where they are known."""
    call = current_call.get()
    if call is not None:
        return call.to_fields()
    from temporalio import activity

    if activity.in_activity():
        return identify(activity.info()).to_fields()
    fields: dict[str, Any] = {}
    for details in (getattr(record, "temporal_activity", None), getattr(record, "temporal_workflow", None)):
        if isinstance(details, dict):
            fields |= {ours: details[theirs] for theirs, ours in _SDK_FIELDS.items() if details.get(theirs)}
    core = getattr(record, "temporal_log", None)
    if core is not None:
        fields |= {k: _short(v) for k, v in core.fields.items() if isinstance(v, str | int | float | bool)}
    return fields


def _short(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= MAX_FIELD else f"{value[:MAX_FIELD]}…"


def is_declared(error: BaseException | None) -> bool:
    """True for a failure that a Tool, or the engine, raised on purpose; False for an exception that became one."""
    from temporalio.exceptions import ApplicationError

    if not isinstance(error, ApplicationError):
        return False
    cause = error.__cause__
    return cause is None or error.type != type(cause).__name__


def read_message(record: logging.LogRecord) -> tuple[str, BaseException | None, bool]:
    """What a record says, its exception, and whether its traceback is written."""
    message = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if getattr(record, "__temporal_error_identifier", "") == "ActivityFailure" and error is not None:
        name = getattr(error, "type", None) or type(error).__name__
        message = f"the attempt failed: {name}: {getattr(error, 'message', None) or error}"
    return message[:MAX_MESSAGE], error, error is not None and not is_declared(error)


def _redacted(line: str) -> str:
    for redact in _redactors:
        line = redact(line)
    return line


class TextLines(logging.Formatter):
    """``2026-01-31T12:00:00.123Z WARNING message  run=order-1 call=2:refund tool=refund``; UTC."""

    def __init__(self, *, has_colours: bool = False) -> None:
        super().__init__()
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a traceback follows."""
        message, _, has_traceback = read_message(record)
        fields = "".join(f" {name}={_quoted(value)}" for name, value in read_fields(record).items())
        level = f"{record.levelname:<7}"
        if self._has_colours and record.levelno in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelno]}m{level}\x1b[0m"
        line = f"{_time(record)} {level} {message}{' ' if fields else ''}{fields}"
        if has_traceback and record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        elif record.exc_text and not record.exc_info:  # masked before it came here
            line += "\n" + record.exc_text
        return _redacted(line)


class JsonLines(logging.Formatter):
    """One object per line: ``time`` (UTC), ``level``, ``logger``, ``message``, the ids, and ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        message, error, has_traceback = read_message(record)
        out = {
            "time": _time(record), "level": record.levelname.lower(), "logger": record.name, "message": message,
            **read_fields(record),
        }  # fmt: skip
        if error is not None:
            out["error"] = {"type": getattr(error, "type", None) or type(error).__name__}
            if has_traceback and record.exc_info:
                out["error"]["stack"] = self.formatException(record.exc_info)
        elif record.exc_text:
            out["error"] = {"stack": record.exc_text}
        return _redacted(json.dumps(out, ensure_ascii=False, default=str))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c in '"=' for c in text) else text
