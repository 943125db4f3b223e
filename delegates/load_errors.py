"""Errors of loading a definition: ApplicationErrors whose type is the reason.

``acts/language/wire.py`` lists the types, and which of them are retryable.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio.exceptions import ApplicationError

from acts.language.errors import truncate
from acts.language.wire import DELEGATE_TOO_LARGE, NON_RETRYABLE_TYPES

# Bytes of a definition as it is stored. Its result in history must stay below the 2 MiB of a payload
MAX_BYTES: Final = 1024 * 1024
# Characters of a message, room for a list of problems; Temporal itself would take far more
MAX_MESSAGE: Final = 4000
# Characters of a quoted value
MAX_QUOTE: Final = 200


def load_error(type_: str, message: str, *details: Any) -> ApplicationError:
    """The error to raise; ``type_`` is one of the ``DELEGATE_…`` types."""
    return ApplicationError(
        truncate(message, MAX_MESSAGE), *details, type=type_, non_retryable=type_ in NON_RETRYABLE_TYPES
    )


def quote(text: object) -> str:
    """A value for a message: on one line, shortened, with control characters escaped."""
    return truncate(repr(text), MAX_QUOTE)


def too_large(source: str, size: str) -> ApplicationError:
    """The error of a definition of ``size`` bytes, more than are read."""
    text = f'the delegate "{source}" has {size} bytes; at most {MAX_BYTES:,} (1 MiB) are allowed'
    return load_error(DELEGATE_TOO_LARGE, text)
