"""One mark for each state of a Call and of a run, and the counts of elements as text, for tables everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# The states of a Call, in the order in which counts list them
CALL_STATES: Final = (
    "running", "awaiting", "ready", "pending", "completed", "detached", "skipped", "failed", "rejected", "cancelled",
)  # fmt: skip
_COUNTS: Final = ("total", "completed", "failed", "running")
STATE_MARKS: Final[dict[str, str]] = {
    "running": "▶", "awaiting": "⏸", "ready": "·", "pending": "·", "completed": "✓", "detached": "↗", "skipped": "–",
    "failed": "✗", "rejected": "✗", "cancelled": "⊘",
    # of the Calls of an instance that has not ended and reports none of them
    "open": "▶",
    # of runs alone
    "planning": "▶", "paused": "⏸", "partial": "✗", "terminated": "✗", "timedOut": "✗", "continued": "↗",
}  # fmt: skip
UNKNOWN_MARK: Final = "?"


def element_counts_text(counts: Any) -> str:
    """``3 of 10 elements done, 1 failed, 2 running``, or nothing where a report has no such counts."""
    if not isinstance(counts, Mapping) or not all(isinstance(counts.get(k, 0), int) for k in _COUNTS):
        return ""
    more = [f"{counts[k]:,} {k}" for k in ("failed", "running") if counts.get(k)]
    return ", ".join([f"{counts.get('completed', 0):,} of {counts.get('total', 0):,} elements done", *more])
