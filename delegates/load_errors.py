"""How a definition that was not loaded is told of: an ApplicationError, its type saying why.

Whether another attempt is worth it follows from the type, in ``acts/language/wire.py``.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio.exceptions import ApplicationError

from acts.language.errors import truncate
from acts.language.wire import DELEGATE_TOO_LARGE, NON_RETRYABLE_TYPES

# Of a definition, as it is stored. Its result in history must stay below what one payload holds, 2 MiB
MAX_BYTES: Final = 1024 * 1024
# Room for a list of problems; Temporal itself would take far more
MAX_MESSAGE: Final = 4000
MAX_SHOWN: Final = 200


def failed(type_: str, message: str, *details: Any) -> ApplicationError:
    """The error to raise; ``type_`` is one of the ``DELEGATE_…`` types."""
    return ApplicationError(
        truncate(message, MAX_MESSAGE), *details, type=type_, non_retryable=type_ in NON_RETRYABLE_TYPES
    )


def shown(text: object) -> str:
    """What was found, on one line and not too long: control characters are escaped."""
    return truncate(repr(text), MAX_SHOWN)


def too_large(source: str, found: str) -> ApplicationError:
    """A definition has more bytes than are read."""
    text = f'the delegate "{source}" has {found} bytes; at most {MAX_BYTES:,} (1 MiB) are allowed'
    return failed(DELEGATE_TOO_LARGE, text)
