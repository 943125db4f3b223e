"""The reports by which a run below the root keeps the root's list of pending approvals up to date.

A report names what opened and what closed since the last. One report is on its way at a time. One that does
not arrive changes nothing, so the next holds its changes too. What closed because of a decision that the root
forwarded is not reported: the answer to that decision says so. A wait that was edited before its first report
stands in it twice, as it opened and as it is now: a decision that came early is about the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.tree.decisions import INNER, PendingApproval
from acts.tree.records import TreePosition
from acts.tree.signal_records import PendingChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Changes in one report: some hundred bytes each; at most 5 kB, of ids and texts at the limit of their length
MAX_CHANGES: Final = 200
# Seconds after which a report that did not reach the root is sent again; later only with the next change
RESEND_SECONDS: Final = (5.0, 60.0, 600.0)

_NAMES: Final = ("workflowId", "what", "call", "instance", INNER)

# What tells a wait from the others of its run, as the root sees them: what, call, instance, inner instance
ReportedKey = tuple[str, str | None, str | None, Any]


def reported_key(wait: PendingApproval) -> ReportedKey:
    """The key of a wait at the root."""
    return (wait.what, wait.call, wait.instance, wait.about.get(INNER))


class PendingReports:
    """What the root knows of this run's waits. Set ``has_changes`` to ask for a report."""

    def __init__(self, own: str, position: TreePosition) -> None:
        self.has_changes = False
        self._own, self._position = own, position
        self._sent: dict[ReportedKey, PendingApproval] = {}  # what the root knows once everything has arrived
        self._arrived: dict[ReportedKey, PendingApproval] = {}  # what it knows for certain
        self._as_opened: dict[ReportedKey, PendingApproval] = {}  # until the root knows it
        self._on_the_way: tuple[dict[ReportedKey, PendingApproval], dict[ReportedKey, PendingApproval]] | None = None
        self._resends = 0
        self._is_complete = self._complete_on_the_way = False

    def as_reported(self, wait: PendingApproval) -> PendingApproval:
        """A wait as the root sees it: the instance is the one that this run works for there."""
        return wait.inside(self._position.instance)

    def add(self, wait: PendingApproval) -> None:
        """This waits from now on."""
        wait, self.has_changes = self.as_reported(wait), True
        if self._sent.get(reported_key(wait)) != wait:  # else it waited before continue-as-new, too
            self._as_opened[reported_key(wait)] = wait

    def drop(self, wait: PendingApproval) -> None:
        """The root learns by another message that this does not wait any more."""
        key = reported_key(self.as_reported(wait))
        for known in (self._sent, self._arrived, *((self._on_the_way[0],) if self._on_the_way else ())):
            known.pop(key, None)

    def restart(self) -> None:
        """The root may know something else than it was sent: the next report says all that waits."""
        self._sent.clear()
        self._arrived.clear()
        self._is_complete = self.has_changes = True

    def next_report(self, waits: Iterable[PendingApproval]) -> PendingChanged | None:
        """The report that is due, given what waits now; None while one is on its way or nothing has changed."""
        if self._position.is_root or self._on_the_way is not None or not self.has_changes:
            return None
        current = {reported_key(w): w for w in map(self.as_reported, waits)}
        opened = [(key, w) for key, w in current.items() if self._sent.get(key) != w][:MAX_CHANGES]
        closed = [(key, w) for key, w in self._sent.items() if key not in current][:MAX_CHANGES]
        if not (opened or closed or self._is_complete):
            self.has_changes = False
            return None
        self._is_complete, self._complete_on_the_way = False, self._is_complete
        self._on_the_way = (dict(opened), dict(closed))
        for key, _ in closed:
            del self._sent[key]
        self._sent |= opened
        self._as_opened = {key: w for key, w in self._as_opened.items() if key in current}
        versions = [v for key, w in opened for v in self._versions(key, w)]
        return PendingChanged(
            workflowId=self._own, ancestors=self._position.ancestors, opened=tuple(w.to_json() for w in versions),
            closed=tuple({k: v for k, v in w.to_json().items() if k in _NAMES} for _, w in closed),
            isComplete=self._complete_on_the_way,
        )  # fmt: skip

    def _versions(self, key: ReportedKey, wait: PendingApproval) -> list[PendingApproval]:
        """A wait as the root has to learn of it: as it opened, and as it is now."""
        opened = self._as_opened.get(key, wait)
        return [wait] if opened == wait else [opened, wait]

    def confirm(self) -> None:
        """The report on its way has arrived."""
        opened, closed = self._on_the_way or ({}, {})
        for key in closed:
            self._arrived.pop(key, None)
        for key in opened:
            self._as_opened.pop(key, None)
        self._arrived |= opened
        self._on_the_way, self._resends = None, 0

    def take_back(self) -> float | None:
        """The report on its way did not arrive: the seconds after which to send it again, None for not by itself."""
        opened, closed = self._on_the_way or ({}, {})
        for key in opened:
            self._sent.pop(key, None)
        self._sent |= closed
        self._is_complete |= self._complete_on_the_way
        self._on_the_way, self.has_changes = None, False
        if self._resends == len(RESEND_SECONDS):
            return None
        self._resends += 1
        return RESEND_SECONDS[self._resends - 1]

    def snapshot(self) -> list[dict[str, Any]]:
        """What the root knows, while no report is on its way."""
        return [wait.to_json() for wait in self._arrived.values()]

    def restore(self, data: Iterable[Mapping[str, Any]]) -> None:
        """Take over a snapshot; the first report says what differs from it."""
        self._arrived = {reported_key(w): w for w in map(PendingApproval.from_json, data)}
        self._sent = dict(self._arrived)
        self.has_changes = True
