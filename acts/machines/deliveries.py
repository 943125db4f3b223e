"""What became of the messages of a run: each machine learns whether its own arrived.

Laws of this file: a message is named by the key that its machine gave it (``SendRecord.key``), whose first part says
what it is. One without a key is nobody's concern. A message is lost when the run that it was for has ended, or takes
no more signals; what follows from that is decided by the machine that sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.machines.approval_effects import Note, StartTimer
from acts.machines.approvals import RESEND_TIMER, Approvals
from acts.machines.permits import PERMITS, Permits
from acts.machines.resync import ENDED
from acts.machines.run_commands import RestartChild

if TYPE_CHECKING:
    from acts.machines.budget import BudgetMachine
    from acts.machines.events import RecordDelivered, RecordLost
    from acts.machines.resync import ResetRecovery


class Deliveries:
    """The machines of one run that send messages."""

    def __init__(
        self, approvals: Approvals, budget: BudgetMachine, permits: Permits, recovery: ResetRecovery
    ) -> None:  # fmt: skip
        self._approvals, self._budget, self._permits, self._recovery = approvals, budget, permits, recovery

    def delivered(self, event: RecordDelivered) -> list[Any]:
        """A message has arrived."""
        kind, _, rest = event.key.partition("/")
        if kind == ENDED:
            return [RestartChild(rest)]
        if event.key.startswith(PERMITS):
            self._permits.on_delivered(event.key)
        elif event.key == "pending":
            self._approvals.reports.confirm()
        elif event.key == "report":
            self._budget.report_delivered()
        return []

    def lost(self, event: RecordLost, *, is_over: bool) -> list[Any]:
        """A message did not arrive. ``is_over``: this run has ended, and only what it holds for others matters."""
        kind, _, rest = event.key.partition("/")
        if kind == "decision":
            return list(self._approvals.undeliverable(rest))
        if kind in ("resync", ENDED):
            return self._recovery.on_lost(rest) if kind == "resync" else [RestartChild(rest)]
        if kind == "grant":
            return list(self._budget.release(rest))
        if event.key.startswith(PERMITS):
            self._permits.on_lost(event.key)
            return []
        if is_over:
            return []
        if kind == "pending":
            return self._report_lost(event.reason)
        if kind == "report":
            self._budget.report_delivered()
        elif kind == "budget":
            return list(self._budget.root_is_gone(int(rest)))
        return []

    def _report_lost(self, reason: str) -> list[Any]:
        """A report of pending approvals did not arrive: the root is gone, or took too many signals."""
        root = self._approvals.position.ancestors[0]
        note = Note(f"the root {root} could not be told what waits here: {reason}")
        seconds = self._approvals.reports.take_back()
        return [note] if seconds is None else [note, StartTimer(RESEND_TIMER, seconds, RESEND_TIMER)]
