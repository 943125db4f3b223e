"""Masks secrets in the log lines of this process: in each message, its arguments, and its traceback.

Where payloads are encrypted, the SDK's lines about failures lose the failures' texts, too: those may hold any value,
and are in the history for all who have the keys. Errors that say all in their text lose their tracebacks: a storage
that is away for a minute would fill the log with thousands of lines.

Laws of this file: it knows no Tool and no file of secrets. It learns the secrets of a Call before the Call begins, and
keeps them. Only the lines of Python's ``logging`` pass here; what a Tool prints itself does not.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from acts.language.secret_masks import SecretMasks

# Changed secrets of a year; the oldest are given up
MAX_SECRETS: Final = 1_000

# The SDK's loggers, and causes of a failure that are described
_SDK: Final = "temporalio"
_MAX_CAUSES: Final = 10

# The secrets of the Call that runs in this context: its process is told of them
call_secrets: ContextVar[tuple[str, ...]] = ContextVar("call_secrets", default=())


class LogGuard:
    """The masks of a process, applied to each record that any logger makes.

    ``hides_failures``: of failures that the SDK logs, only types and places are left.
    ``without_traceback``: errors of these types, and what they caused, are logged by their texts alone.
    """

    def __init__(
        self, *, hides_failures: bool = False, without_traceback: tuple[type[BaseException], ...] = ()
    ) -> None:
        self.hides_failures, self._without_traceback = hides_failures, without_traceback
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        self._masks = SecretMasks(())

    def announce(self, secrets: Iterable[str]) -> None:
        """From now on these are masked."""
        own = tuple(secrets)
        call_secrets.set(own)
        new = [secret for secret in own if secret not in self._secrets]
        if not new:
            return
        with self._lock:
            self._secrets |= dict.fromkeys(new)
            for oldest in list(self._secrets)[:-MAX_SECRETS]:
                del self._secrets[oldest]
            self._masks = SecretMasks(self._secrets)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """A block in which the records of every logger of this process are masked."""
        make = logging.getLogRecordFactory()

        def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
            return self.mask(make(*args, **kwargs))

        logging.setLogRecordFactory(make_masked)
        try:
            yield
        finally:
            logging.setLogRecordFactory(make)

    def mask_line(self, line: str) -> str:
        """A whole line as it is written: fields beside the message may hold a secret, too."""
        masks = self._masks
        return masks.mask_text(line) if masks.is_in_text(line) else line

    def mask(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record with masks; one without a secret as it is."""
        masks = self._masks
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit are the handler's to report
            return record
        if masks.is_in_text(text):
            record.msg, record.args = masks.mask_text(text), ()
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return record
        cause = next((e for e in _causes(error) if isinstance(e, self._without_traceback)), None)
        if cause is not None:
            text = f"{type(cause).__name__}: {cause}"
            record.exc_info, record.exc_text = None, masks.mask_text(text) if masks.is_in_text(text) else text
        elif self.hides_failures and record.name.startswith(_SDK):
            record.exc_info, record.exc_text = None, _bare_traceback(error)
        else:
            trace = "".join(traceback.format_exception(error)).rstrip("\n")
            if masks.is_in_text(trace):
                record.exc_info, record.exc_text = None, masks.mask_text(trace)
        return record


def _bare_traceback(error: BaseException | None) -> str:
    """Types and places of a failure and its causes, the first cause first, without their texts."""
    parts: list[str] = []
    for cause in _causes(error):
        name = getattr(cause, "type", None) or type(cause).__name__
        parts.append(f"{''.join(traceback.format_tb(cause.__traceback__))}{name} (its text is in the history)")
    return "\n".join(reversed(parts))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, at most ``_MAX_CAUSES``."""
    for _ in range(_MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
