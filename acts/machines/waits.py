"""What waits for people in a run and below it, and the reports by which the root of a tree knows of it.

Laws of this file: nothing here judges a decision or knows the time (``approvals`` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import EDIT
from acts.tree.decisions import Decision, PendingApproval, WaitKey, is_for, match_decision
from acts.tree.records import TreePosition
from acts.tree.signal_records import PendingChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Changes in one report: some hundred bytes each; at most 5 kB, of ids and texts at the limit of their length
MAX_CHANGES: Final = 200
# Seconds after which a report that did not reach the root is sent again; the last for each further time
RESEND_SECONDS: Final = (5.0, 60.0, 600.0)

_Group = dict[WaitKey, PendingApproval]


class WaitIndex:
    """Pending approvals by key, in the order in which they were added, and by run, Call and instance.

    Ten thousand decisions about ten thousand Calls may come in one workflow task, so a decision is compared only with
    what has the names that it gives.
    """

    def __init__(self) -> None:
        self.by_key: _Group = {}
        self.by_run: dict[str, _Group] = {}
        self._by_call: dict[str | None, _Group] = {}
        self._by_instance: dict[str | None, _Group] = {}

    def put(self, wait: PendingApproval) -> None:
        """Add a wait, or replace the one of the same key."""
        self.by_key[wait.key] = wait
        for groups, name in self._groups_of(wait):
            groups.setdefault(name, {})[wait.key] = wait

    def pop(self, key: WaitKey) -> PendingApproval | None:
        """Remove a wait and return it."""
        wait = self.by_key.pop(key, None)
        for groups, name in () if wait is None else self._groups_of(wait):
            del groups[name][key]
            if not groups[name]:
                del groups[name]
        return wait

    def _groups_of(self, wait: PendingApproval) -> tuple[tuple[dict[Any, _Group], str | None], ...]:
        return (self.by_run, wait.workflow_id), (self._by_call, wait.call), (self._by_instance, wait.instance)

    def narrow(self, decision: Decision) -> Iterable[PendingApproval]:
        """The waits that a decision may be about: all that match it are among them."""
        choices: list[list[_Group]] = [[self.by_key]]
        if decision.workflow_id is not None:
            choices.append([self.by_run.get(decision.workflow_id, {})])
        elif decision.instance is not None:  # beside the id of a run, the instance need not be that of the wait
            choices.append([self._by_instance.get(decision.instance, {})])
        if decision.call is not None:
            plans = [self._by_call.get(None, {})] if decision.decision == EDIT else []  # an edit of one Call of a plan
            choices.append([self._by_call.get(decision.call, {}), *plans])
        best = min(choices, key=lambda groups: sum(map(len, groups)))
        return chain.from_iterable(group.values() for group in best)


class TreeWaits:
    """What waits in the run ``own`` and, at the root, in all runs below it; and what has waited so far."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._open = WaitIndex()
        self._past = WaitIndex()
        self._unseen: dict[WaitKey, None] = {}  # opened in this workflow task
        self._ancestors: dict[str, tuple[str, ...]] = {}  # of the runs below

    @property
    def own(self) -> list[PendingApproval]:
        """What waits in this very run."""
        return list(self._open.by_run.get(self._own, {}).values())

    @property
    def all(self) -> list[PendingApproval]:
        """What waits here and below."""
        return [*self.own, *(wait for wait in self._open.by_key.values() if wait.workflow_id != self._own)]

    def get_own(self, what: str, call: str | None, instance: str | None) -> PendingApproval | None:
        """A wait of this run."""
        return self._open.by_key.get((self._own, what, call, instance, None))

    def narrow(self, decision: Decision, scope: str | None = None) -> Iterator[PendingApproval]:
        """What waits at and below the run ``scope`` (None: this one), as far as a decision may be about it."""
        return (wait for wait in self._open.narrow(decision) if self.is_in_scope(wait.workflow_id, scope))

    def match(self, decision: Decision, scope: str | None) -> PendingApproval:
        """The one that a decision is about. Raises as ``match_decision``."""
        in_scope = (wait for wait in self._open.by_key.values() if self.is_in_scope(wait.workflow_id, scope))
        return match_decision(self.narrow(decision, scope), decision, in_scope)

    def is_in_scope(self, workflow_id: str, scope: str | None) -> bool:
        """True for a run at or below the run ``scope``."""
        return scope in (None, self._own, workflow_id) or scope in self.path(workflow_id)

    def path(self, workflow_id: str) -> tuple[str, ...]:
        """The runs above one that waits, and itself."""
        return (*self._ancestors.get(workflow_id, ()), workflow_id)

    def count_runs_below(self, children: Iterable[str]) -> int:
        """In how many of these children, or below them, something waits."""
        busy = {above for run in self._open.by_run if run != self._own for above in self.path(run)}
        return sum(child in busy for child in children)

    @property
    def is_waiting_below(self) -> bool:
        """True while something waits in a run below."""
        return any(run != self._own for run in self._open.by_run)

    # -- changes -------------------------------------------------------------------------------------

    def put(self, wait: PendingApproval) -> None:
        """A wait of this run opens, or is another one now."""
        self._open.put(wait)

    def hide_until_seen(self, wait: PendingApproval) -> None:
        """Nobody can have seen this wait before the task ends."""
        self._unseen[wait.key] = None

    def close(self, key: WaitKey) -> None:
        """This does not wait any more."""
        wait = self._open.pop(key)
        if wait is not None:
            self._past.put(wait)

    def apply_report(self, record: PendingChanged) -> None:
        """Take a report of a run below.

        Raises:
            ValueError: it is about other runs.
        """
        is_below = record.ancestors[:1] == (self._own,) and record.workflowId != self._own
        ids = {*(wait.workflow_id for wait in record.opened), *(key[0] for key in record.closed)}
        if not is_below or ids - {record.workflowId}:
            raise ValueError("a run reports its own waits, to its own root")
        self._ancestors[record.workflowId] = record.ancestors
        if record.isComplete:
            self._drop_run(record.workflowId)
        for key in record.closed:
            self.close(key)
        for wait in record.opened:
            self._open.put(wait)
            self.remember(wait)

    def _drop_run(self, workflow_id: str) -> None:
        for key in list(self._open.by_run.get(workflow_id, ())):
            self.close(key)

    def forget(self, workflow_id: str) -> None:
        """A run has ended, and with it all runs below."""
        for run in list(self._open.by_run):
            if workflow_id in self.path(run):
                self._drop_run(run)

    # -- what has waited -------------------------------------------------------------------------------

    def remember(self, wait: PendingApproval) -> None:
        """This has waited: a decision about it that comes later is late, not early."""
        self._past.put(wait)

    def has_waited(self, decision: Decision, scope: str | None) -> bool:
        """True when a decision may be about something that has waited before."""
        meant = decision.model_copy(update={"calls": None})  # a plan has its Calls
        past = self._past.narrow(decision)
        return any(is_for(wait, meant) and self.is_in_scope(wait.workflow_id, scope) for wait in past)

    def is_unseen(self, wait: PendingApproval) -> bool:
        """True for what opened in this task."""
        return wait.key in self._unseen

    def end_task(self) -> None:
        """From now on people see what has opened."""
        for wait in map(self._open.by_key.get, self._unseen):
            if wait is not None:
                self.remember(wait)
        self._unseen.clear()

    def snapshot(self) -> list[list[Any]]:
        """What has waited: the key of each, and the runs above it."""
        return [[list(key), list(self._ancestors.get(key[0], ()))] for key in self._past.by_key]

    def restore(self, data: Iterable[Iterable[Any]]) -> None:
        """Take over a snapshot."""
        for (workflow_id, what, call, instance, inner), ancestors in data:
            names = {"call": call, "instance": instance, "inner": inner}
            self.remember(PendingApproval(workflow_id=workflow_id, what=what, version=0, since="", **names))
            if ancestors:
                self._ancestors[workflow_id] = tuple(ancestors)


@dataclass(frozen=True, slots=True)
class _Report:
    """A report on its way: what opened, the keys of what closed, and whether it says all that waits."""

    opened: _Group
    closed: tuple[WaitKey, ...]
    is_complete: bool


class PendingReports:
    """What the root knows of the waits of a run below it. Set ``has_changes`` to ask for a report.

    A report names what opened and what closed since the last. One report is on its way at a time. One that does
    not arrive changes nothing, so the next holds its changes too. What closed because of a decision that the root
    forwarded is not reported: the answer to that decision says so. A report names what was edited before the root
    heard of it: a decision that came early was about something else.
    """

    def __init__(self, own: str, position: TreePosition) -> None:
        self.has_changes = False
        self._own, self._position = own, position
        self._arrived: _Group = {}
        self._edited: dict[WaitKey, None] = {}
        self._on_the_way: _Report | None = None
        self._is_complete = False
        self._resends = 0

    def as_reported(self, wait: PendingApproval) -> PendingApproval:
        """A wait as the root sees it: the instance is the one that this run works for there."""
        return wait.inside(self._position.instance)

    def mark_edited(self, wait: PendingApproval) -> None:
        """A wait is another one now."""
        key = self.as_reported(wait).key
        if key not in self._arrived:
            self._edited[key] = None

    def drop(self, wait: PendingApproval) -> None:
        """The root learns by another message that this does not wait any more."""
        key = self.as_reported(wait).key
        self._arrived.pop(key, None)
        if self._on_the_way is not None:
            self._on_the_way.opened.pop(key, None)

    def restart(self) -> None:
        """The root may know something else than it was sent: the next report says all that waits."""
        self._is_complete = self.has_changes = True

    def next_report(self, waits: Iterable[PendingApproval]) -> PendingChanged | None:
        """The report that is due, given what waits now; None while one is on its way or nothing has changed."""
        if self._position.is_root or self._on_the_way is not None or not self.has_changes:
            return None
        current = {w.key: w for w in map(self.as_reported, waits)}
        before = {} if self._is_complete else self._arrived
        self._edited = {key: None for key in self._edited if key in current and key not in self._arrived}
        opened = [(key, w) for key, w in current.items() if before.get(key) != w][:MAX_CHANGES]
        closed = tuple([key for key in before if key not in current][:MAX_CHANGES])
        if not (opened or closed or self._is_complete):
            self.has_changes = False
            return None
        report = self._on_the_way = _Report(dict(opened), closed, self._is_complete)
        self._is_complete = False
        return PendingChanged(
            workflowId=self._own, ancestors=self._position.ancestors, opened=tuple(report.opened.values()),
            closed=closed, isComplete=report.is_complete, edited=tuple(k for k in report.opened if k in self._edited),
        )  # fmt: skip

    def confirm(self) -> None:
        """The report on its way has arrived."""
        report, self._on_the_way, self._resends = self._on_the_way, None, 0
        if report is not None:
            before = {} if report.is_complete else self._arrived
            self._arrived = {key: w for key, w in before.items() if key not in report.closed} | report.opened

    def take_back(self) -> float:
        """The report on its way did not arrive: the seconds after which to send it again."""
        report, self._on_the_way, self.has_changes = self._on_the_way, None, False
        self._is_complete |= report is not None and report.is_complete
        self._resends += 1
        return RESEND_SECONDS[min(self._resends, len(RESEND_SECONDS)) - 1]

    def snapshot(self) -> list[dict[str, Any]]:
        """What the root knows, while no report is on its way."""
        return [wait.to_json() for wait in self._arrived.values()]

    def restore(self, data: Iterable[Mapping[str, Any]]) -> None:
        """Take over a snapshot; the first report says what differs from it."""
        waits = map(PendingApproval.model_validate, data)
        self._arrived = {wait.key: wait for wait in waits}
        self.has_changes = True
