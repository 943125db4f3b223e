"""What waits in the runs below the root, as their reports say, and the decisions that are on their way to them.

The root hides a wait while a decision that closes it is on its way, so that nobody decides it twice. The answer
to the decision removes the wait or shows it again. Answers and reports of one run arrive in the order in which
that run sent them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acts.machines.decision_index import DecisionIndex
from acts.machines.pending_reports import ReportedKey, reported_key
from acts.tree.decisions import PendingApproval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from acts.machines.early_decisions import ReceivedDecision
    from acts.tree.decisions import Decision
    from acts.tree.signal_records import PendingChanged

# The run that waits, and the key of the wait there
_Place = tuple[str, ReportedKey]


@dataclass(slots=True)
class _Run:
    """What waits in one run; ``hidden`` are waits with the decision on its way that closes each."""

    ancestors: tuple[str, ...]
    waits: dict[ReportedKey, PendingApproval] = field(default_factory=dict)
    hidden: dict[ReportedKey, str] = field(default_factory=dict)

    def visible(self) -> list[PendingApproval]:
        return [wait for key, wait in self.waits.items() if key not in self.hidden]


@dataclass(frozen=True, slots=True)
class _Forward:
    """A decision on its way; ``path`` is the run that waits, after its ancestors."""

    item: ReceivedDecision
    wait: PendingApproval
    path: tuple[str, ...]
    closes: bool


class PendingBelow:
    """Kept at the root only. ``own`` is its workflow id."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._runs: dict[str, _Run] = {}
        self._waits = DecisionIndex[_Place, PendingApproval]()  # those of all runs
        self._forwards: dict[str, _Forward] = {}
        self._next = 0

    # -- reports -----------------------------------------------------------------------------------

    def apply_report(self, record: PendingChanged) -> list[PendingApproval]:
        """Take a report; returns what opened.

        Raises:
            ValueError: it is no report of a run below this one.
        """
        opened = [PendingApproval.from_json(item) for item in record.opened]
        closed = [PendingApproval.from_json({"version": 0, "since": "", **item}) for item in record.closed]
        is_below = record.ancestors[:1] == (self._own,) and record.workflowId != self._own
        if not is_below or any(wait.workflow_id != record.workflowId for wait in opened):
            raise ValueError("a run reports its own waits, to its own root")
        if record.isComplete:
            self._drop_run(record.workflowId)
        for wait in closed:
            self._close(record.workflowId, reported_key(wait))
        for wait in opened:
            run = self._runs.setdefault(record.workflowId, _Run(record.ancestors))
            run.waits[reported_key(wait)] = wait
            self._waits.put((record.workflowId, reported_key(wait)), wait, wait.workflow_id, wait.call, wait.instance)
            run.hidden.pop(reported_key(wait), None)
        return opened

    def _close(self, workflow_id: str, key: ReportedKey) -> None:
        run = self._runs.get(workflow_id)
        if run is None:
            return
        run.waits.pop(key, None)
        run.hidden.pop(key, None)
        self._waits.pop((workflow_id, key))
        if not run.waits:
            del self._runs[workflow_id]

    def _drop_run(self, workflow_id: str) -> None:
        run = self._runs.pop(workflow_id, None)
        for key in run.waits if run is not None else ():
            self._waits.pop((workflow_id, key))

    def ancestors(self, workflow_id: str) -> tuple[str, ...]:
        """The runs above one that waits."""
        return self._runs[workflow_id].ancestors

    # -- what waits --------------------------------------------------------------------------------

    def visible(self, scope: str | None = None) -> list[PendingApproval]:
        """What waits below, or at and below the run ``scope``."""
        runs = [r for id_, r in self._runs.items() if scope is None or scope == id_ or scope in r.ancestors]
        return [wait for run in runs for wait in run.visible()]

    def iterate(self) -> Iterator[PendingApproval]:
        """What waits below, one by one."""
        return (wait for run in self._runs.values() for wait in run.visible())

    @property
    def count(self) -> int:
        """How much waits below."""
        return sum(len(run.waits) - len(run.hidden) for run in self._runs.values())

    def narrow(self, decision: Decision, scope: str | None = None) -> Iterator[PendingApproval]:
        """What waits below, or at and below the run ``scope``, as far as a decision may be about it."""
        for wait in self._waits.narrow(decision):
            id_, run = wait.workflow_id, self._runs[wait.workflow_id]
            if reported_key(wait) not in run.hidden and (scope in (None, id_) or scope in run.ancestors):
                yield wait

    @property
    def run_count(self) -> int:
        """In how many runs something waits."""
        return sum(len(run.waits) > len(run.hidden) for run in self._runs.values())

    def count_waiting(self, children: Iterable[str]) -> int:
        """In how many of these children, or below them, something waits."""
        busy = {id_: run for id_, run in self._runs.items() if len(run.waits) > len(run.hidden)}
        on_the_way = {*busy, *(above for run in busy.values() for above in run.ancestors)}
        return sum(child in on_the_way for child in children)

    # -- decisions on their way --------------------------------------------------------------------

    def add_forward(self, item: ReceivedDecision, wait: PendingApproval, *, closes: bool) -> str:
        """A decision goes to the run that waits; returns the id by which that run answers it."""
        run = self._runs[wait.workflow_id]
        self._next += 1
        id_ = str(self._next)
        if closes:
            run.hidden[reported_key(wait)] = id_
        self._forwards[id_] = _Forward(item, wait, (*run.ancestors, wait.workflow_id), closes)
        return id_

    def take_forward(self, id_: str, *, is_accepted: bool) -> ReceivedDecision | None:
        """The decision of this id, which was judged or did not arrive; None for one that is not on its way."""
        forward = self._forwards.pop(id_, None)
        if forward is None:
            return None
        workflow_id, key = forward.wait.workflow_id, reported_key(forward.wait)
        if forward.closes and is_accepted:
            self._close(workflow_id, key)
        elif workflow_id in self._runs and self._runs[workflow_id].hidden.get(key) == id_:
            del self._runs[workflow_id].hidden[key]
        return forward.item

    def forget(self, workflow_id: str) -> list[ReceivedDecision]:
        """A run has ended, and with it all runs below; returns the decisions that none of them will judge."""
        for id_, run in list(self._runs.items()):
            if workflow_id == id_ or workflow_id in run.ancestors:
                self._drop_run(id_)
        lost = [id_ for id_, forward in self._forwards.items() if workflow_id in forward.path]
        return [self._forwards.pop(id_).item for id_ in lost]
