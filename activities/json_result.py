"""The results of our activities as Temporal records them: JSON bytes, encoded once and measured before they are sent.

The SDK's own converter would sort the keys, which in a schema or a plan are in their author's order, and would write
each letter outside of ASCII in six bytes.
"""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.language.strict_json import write_json
from acts.language.wire import MAX_PAYLOAD_BYTES


class ResultTooLarge(Exception):
    """A result has ``size`` bytes, more than can be recorded."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


def encode_result(result: dict[str, Any], limit: int = MAX_PAYLOAD_BYTES) -> RawValue:
    """The result as one payload of at most ``limit`` bytes.

    Raises:
        ResultTooLarge: it cannot be recorded.
        ValueError: it holds a string or a number that JSON cannot (a lone surrogate, NaN).
    """
    data = write_json(result)
    if len(data) > limit:
        raise ResultTooLarge(len(data))
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
