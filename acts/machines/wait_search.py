"""Which of all that waits, in a run and below it, a decision is about.

Laws of this file: it finds and changes nothing. A decision is compared only with what has the names that it gives.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from acts.tree.decisions import list_waits, match_decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.machines.approval_keys import Key
    from acts.machines.decision_index import DecisionIndex
    from acts.machines.pending_below import PendingBelow
    from acts.tree.decisions import Decision, PendingApproval


class WaitSearch:
    """``waits`` are those of the run ``own``, ``below`` those of the runs below it."""

    def __init__(self, own: str, waits: DecisionIndex[Key, PendingApproval], below: PendingBelow) -> None:
        self._own, self._waits, self._below = own, waits, below

    def narrow(self, decision: Decision, scope: str | None) -> Iterable[PendingApproval]:
        """What waits at and below the run ``scope`` (None: this one), as far as a decision may be about it."""
        if scope not in (None, self._own):
            return self._below.narrow(decision, scope)
        return chain(self._waits.narrow(decision), self._below.narrow(decision))

    def match(self, decision: Decision, scope: str | None) -> PendingApproval:
        """The one that a decision is about. Raises as ``match_decision``."""
        return match_decision(self.narrow(decision, scope), decision, lambda: self._list(scope))

    def _list(self, scope: str | None) -> str:
        if scope not in (None, self._own):
            return list_waits(self._below.visible(scope))
        first = chain(self._waits.values(), self._below.iterate())
        return list_waits(first, len(self._waits) + self._below.count)
