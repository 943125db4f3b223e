"""The results of our activities as Temporal records them: JSON bytes, encoded once and measured before they are sent.

The SDK's own converter would sort the keys, which in a schema or a plan are in their author's order, and would write
each letter outside of ASCII in six bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

# The server refuses a payload above 2 MiB; the rest is room for what wraps it
MAX_RESULT_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024


class ResultTooLarge(Exception):
    """A result has ``size`` bytes, more than ``MAX_RESULT_BYTES``."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


def encode_result(result: dict[str, Any]) -> RawValue:
    """The result as one payload.

    Raises:
        ResultTooLarge: it cannot be recorded.
        ValueError: it holds a string or a number that JSON cannot (a lone surrogate, NaN).
    """
    data = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(data) > MAX_RESULT_BYTES:
        raise ResultTooLarge(len(data))
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
