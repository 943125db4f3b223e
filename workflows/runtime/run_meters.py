"""What is counted of a run while it works: its Calls, the decisions that it waits for, the budget of its tree.

Laws of this file: nothing that it does becomes a command; it records nothing while history is replayed, but keeps what
it needs to measure what ends after it. Time is the workflow's own.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from temporalio import workflow

from acts.language.wire import CANCELLED, TIMEOUT
from acts.machines.events import CallCompleted, CallDetached, CallFailed, ChildEnded, Event
from acts.machines.run_commands import AskOutput, StartActivity, StartBackground, StartDelegate
from telemetry import metrics

if TYPE_CHECKING:
    from acts.machines.run_machine import RunMachine
    from acts.tree.decisions import PendingApproval

# From this part on a budget is nearly spent
LOW_SHARE: Final = 0.9
_CALLS: Final = (StartActivity, AskOutput, StartDelegate, StartBackground)
_OUTCOMES: Final = {CANCELLED: "cancelled", TIMEOUT: "timeout"}

Key = tuple[str, str | None, str | None]


class RunMeters:
    """The signs of one run. While metrics are off, each method costs one comparison."""

    def __init__(self, run: RunMachine) -> None:
        self._run = run
        self._meters = metrics.meters()
        self._started: dict[str, tuple[str, float]] = {}  # by a Call's key: its Tool, and when it was started
        self._waits: dict[Key, PendingApproval] = {}
        self._low: set[str] = set()

    def record_start(self, command: object) -> None:
        """A Call is started."""
        if self._meters is not None and isinstance(command, _CALLS):
            self._started[command.node.key] = command.node.tool.name, workflow.time()

    def record_event(self, event: Event) -> None:
        """A Call may have ended."""
        if self._meters is None or not isinstance(event, (CallCompleted, CallFailed, CallDetached, ChildEnded)):
            return
        started = self._started.pop(event.key, None)
        if started is None or workflow.unsafe.is_replaying():
            return
        tool, began = started
        self._meters.add(metrics.CALLS, tool=tool, outcome=_outcome(event))
        self._meters.record(metrics.CALL_SECONDS, max(0.0, workflow.time() - began), tool=tool)

    def update(self) -> None:
        """What waits for people, and what is left of the budget, may have changed."""
        if self._meters is None:
            return
        if self._waits or self._run.approvals.own_pending:
            self._update_waits(self._meters)
        self._update_budget(self._meters)

    def _update_waits(self, meters: metrics.Meters) -> None:
        before, self._waits = self._waits, {(w.what, w.call, w.instance): w for w in self._run.approvals.own_pending}
        if workflow.unsafe.is_replaying():
            return
        began, now = workflow.info().workflow_start_time.timestamp(), workflow.time()
        for key, wait in self._waits.items():
            # One that the run before this one had opened already was counted there
            if key not in before and _timestamp(wait.since) >= began:
                meters.add(metrics.APPROVALS_OPENED, what=wait.what)
        for key, wait in before.items():
            if key not in self._waits:
                meters.add(metrics.APPROVALS_CLOSED, what=wait.what)
                meters.record(metrics.APPROVAL_SECONDS, max(0.0, now - _timestamp(wait.since)), what=wait.what)

    def _update_budget(self, meters: metrics.Meters) -> None:
        for limit, share in used_shares(self._run).items():
            if share >= LOW_SHARE and limit not in self._low:
                self._low.add(limit)
                if not workflow.unsafe.is_replaying():
                    meters.add(metrics.BUDGET_LOW, limit=limit)
                    workflow.logger.warning("the budget of this run is nearly spent: %.0f %% of %s", 100 * share, limit)


def used_shares(run: RunMachine) -> dict[str, float]:
    """What a tree has used of its own budget, by limit; empty below its root, and where nothing limits it."""
    return {} if run.budget.ledger is None else run.budget.ledger.used_shares(run.own)


def _outcome(event: CallCompleted | CallFailed | CallDetached | ChildEnded) -> str:
    if isinstance(event, CallDetached):
        return "detached"
    error = None if isinstance(event, CallCompleted) else event.error
    return "completed" if error is None else _OUTCOMES.get(error.code, "failed")


def _timestamp(date: str) -> float:
    return datetime.fromisoformat(date).timestamp()
