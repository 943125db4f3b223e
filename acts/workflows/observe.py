"""What can be seen of a run from outside: what is counted, and search attributes.

* What is counted: Calls, decisions that are waited for, and the budget of the tree. None of it becomes a command. It
  records nothing while history is replayed, but keeps what it needs to measure what ends after it.
* A root writes the search attributes, one event for each change of its phase. A run that has ``ActsRoot`` writes them:
  a root gives it to itself when the namespace has the attributes, a child is started with it, and continue-as-new
  keeps it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from acts.language.wire import CANCELLED, SEARCH_ATTRIBUTES, TIMEOUT
from acts.machines.commands import AskOutput, StartBackground, StartCall, StartChild
from acts.machines.events import CallDetached, CallEnded, ChildEnded, Event
from acts.machines.run_machine import RunMachine
from acts.plan.calls import UNIT
from acts.telemetry import metrics
from acts.tree import search_attributes as names
from acts.tree.decisions import PendingApproval
from acts.views.run_views import RunView
from acts.workflows.children import ROOT
from acts.workflows.engine_calls import ask_or_none

# From this part on a budget is nearly spent
LOW_SHARE: Final = 0.9
_CALLS: Final = (StartCall, AskOutput, StartChild, StartBackground)
_ENDS: Final = (CallEnded, CallDetached, ChildEnded)
_OUTCOMES: Final = {CANCELLED: "cancelled", TIMEOUT: "timeout"}
PHASE: Final = SearchAttributeKey.for_keyword(names.PHASE)
WAITING: Final = SearchAttributeKey.for_int(names.WAITING)
_KEYS: Final[dict[str, SearchAttributeKey[Any]]] = {
    names.PHASE: PHASE, names.WAITING: WAITING, names.TOOLS: SearchAttributeKey.for_keyword_list(names.TOOLS),
    names.MODEL: SearchAttributeKey.for_keyword(names.MODEL), names.COST: SearchAttributeKey.for_float(names.COST),
    names.ROOT: ROOT,
}  # fmt: skip


def used_shares(run: RunMachine) -> dict[str, float]:
    """What a tree has used of its own budget, by limit; empty below its root, and where nothing limits it."""
    return {} if run.budget.ledger is None else run.budget.ledger.used_shares(run.own)


class RunIndex:
    """The signs of one run. While metrics are off, counting costs one comparison."""

    def __init__(self, run: RunMachine, view: RunView) -> None:
        self._run, self._view = run, view
        self._meters = metrics.meters()
        self._started: dict[str, tuple[str, float]] = {}  # by a Call's key: its Tool, and when it was started
        self._waits: dict[tuple[str, str | None, str | None], PendingApproval] = {}
        self._low: set[str] = set()
        attributes = workflow.info().typed_search_attributes
        self._is_indexed = run.position.is_root and attributes.get(ROOT) is not None
        self._last = attributes.get(PHASE), bool(attributes.get(WAITING))

    async def begin(self, *, is_first_run: bool) -> None:
        """Ask the server, once, whether the namespace has the attributes."""
        if not self._is_indexed and is_first_run and self._run.position.is_root:
            label = "whether the namespace has our search attributes"
            self._is_indexed = bool(await ask_or_none(SEARCH_ATTRIBUTES, None, label))

    def record_start(self, command: object) -> None:
        """A Call is started."""
        node = command.node if self._meters is not None and isinstance(command, _CALLS) else None
        if node is not None and node.kind != UNIT:
            self._started[node.key] = node.tool.name, workflow.time()

    def record_event(self, event: Event) -> None:
        """A Call may have ended."""
        if self._meters is None or not isinstance(event, _ENDS):
            return
        started = self._started.pop(event.key, None)
        if started is None or workflow.unsafe.is_replaying():
            return
        outcome = "detached" if isinstance(event, CallDetached) else "completed"
        if not isinstance(event, CallDetached) and event.error is not None:
            outcome = _OUTCOMES.get(event.error.code, "failed")
        tool, began = started
        self._meters.add(metrics.CALLS, tool=tool, outcome=outcome)
        self._meters.record(metrics.CALL_SECONDS, max(0.0, workflow.time() - began), tool=tool)

    def update(self) -> None:
        """Write the attributes if the phase, or whether anything waits, has changed; count what else has."""
        if self._meters is not None:
            if self._waits or self._run.approvals.waits.own:
                self._update_waits(self._meters)
            self._update_budget(self._meters)
        if not self._is_indexed:
            return
        current = self._run.phase, bool(self._run.approvals.pending)
        if current == self._last:
            return
        self._last = current
        info = workflow.info()
        held = info.typed_search_attributes
        values = {names.ROOT: held.get(ROOT) or info.workflow_id, **self._view.search_values()}
        changes = [_KEYS[k].value_set(v) for k, v in values.items() if v is not None and held.get(_KEYS[k]) != v]
        workflow.upsert_search_attributes(changes)

    def _update_waits(self, meters: metrics.Meters) -> None:
        before, self._waits = self._waits, {(w.what, w.call, w.instance): w for w in self._run.approvals.waits.own}
        if workflow.unsafe.is_replaying():
            return
        began, now = workflow.info().workflow_start_time.timestamp(), workflow.time()
        for key, wait in self._waits.items():
            # One that the run before this one had opened already was counted there
            if key not in before and datetime.fromisoformat(wait.since).timestamp() >= began:
                meters.add(metrics.APPROVALS_OPENED, what=wait.what)
        for key, wait in before.items():
            if key not in self._waits:
                seconds = now - datetime.fromisoformat(wait.since).timestamp()
                meters.add(metrics.APPROVALS_CLOSED, what=wait.what)
                meters.record(metrics.APPROVAL_SECONDS, max(0.0, seconds), what=wait.what)

    def _update_budget(self, meters: metrics.Meters) -> None:
        for limit, share in used_shares(self._run).items():
            if share >= LOW_SHARE and limit not in self._low:
                self._low.add(limit)
                if not workflow.unsafe.is_replaying():
                    meters.add(metrics.BUDGET_LOW, limit=limit)
                    workflow.logger.warning("the budget of this run is nearly spent: %.0f %% of %s", 100 * share, limit)
