"""One mark for each state of a Call and of a run, for tables and drawings everywhere."""

from __future__ import annotations

from typing import Final

# The states of a Call, in the order in which counts list them
CALL_STATES: Final = (
    "running", "awaiting", "ready", "pending", "completed", "detached", "skipped", "failed", "rejected", "cancelled",
)  # fmt: skip
STATE_MARKS: Final[dict[str, str]] = {
    "running": "▶", "awaiting": "⏸", "ready": "·", "pending": "·", "completed": "✓", "detached": "↗", "skipped": "–",
    "failed": "✗", "rejected": "✗", "cancelled": "⊘",
    # of the Calls of an instance that has not ended and reports none of them
    "open": "▶",
    # of runs alone
    "planning": "▶", "paused": "⏸", "partial": "✗", "terminated": "✗", "timedOut": "✗", "continued": "↗",
}  # fmt: skip
UNKNOWN_MARK: Final = "?"
