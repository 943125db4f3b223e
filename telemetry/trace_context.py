"""Which span a run, or a Call of it, belongs to: ids and headers, without OpenTelemetry's SDK. Pure.

The span of a run has an id that follows from the run's own, so that every worker that works on the run, and each
replay, names it alike, long before its end, when it is written. A run that was started with the header of the
SDK's tracing interceptors (the same in every language) belongs to that trace; any other begins a trace whose id
follows from the root's first run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

# The header of the SDKs' own interceptors; its value is a W3C carrier
HEADER: Final = "_tracer-data"
TRACE_PARENT: Final = "traceparent"
ROOT: Final = "acts-root"
INSTANCE: Final = "acts-instance"
_PATTERN: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class SpanRef:
    """One span: 32 and 16 hex digits, and whether its trace is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def trace_parent(self) -> str:
        """The span as the W3C header ``traceparent`` names it."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The span of a run, when it ends. Times are Unix times in nanoseconds; ``error`` is a type, or None."""

    name: str
    own: SpanRef
    parent: SpanRef | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    links: tuple[SpanRef, ...] = ()
    error: str | None = None
    message: str = ""


def parse_trace_parent(text: Any) -> SpanRef | None:
    """The span that a ``traceparent`` names; None for any other text."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return SpanRef(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


def own_trace_id(first_run_id: str) -> str:
    """The id of the trace of a tree that nobody's span started."""
    return _digits(f"trace {first_run_id}", 32)


def run_span_id(run_id: str) -> str:
    """The id of the span of a run."""
    return _digits(f"span {run_id}", 16)


def _digits(text: str, count: int) -> str:
    digits = hashlib.sha256(text.encode()).hexdigest()[:count]
    return digits if int(digits, 16) else "1".rjust(count, "0")


def read_header(headers: Mapping[str, Payload]) -> dict[str, str]:
    """The carrier in the headers of a run or an Activity; empty where there is none that can be read."""
    payload = headers.get(HEADER)
    if payload is None:
        return {}
    try:
        carrier = PayloadConverter.default.from_payloads([payload])[0]
    except Exception:  # noqa: BLE001 - a header of another program: a trace is not worth a failure
        return {}
    return {k: v for k, v in carrier.items() if isinstance(v, str)} if isinstance(carrier, dict) else {}


def write_header(carrier: Mapping[str, str]) -> Payload:
    """A carrier as the value of the header."""
    return PayloadConverter.default.to_payloads([dict(carrier)])[0]
