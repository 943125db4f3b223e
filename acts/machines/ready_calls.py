"""What is ready to start, in plan order: Calls, and the elements of Calls with ``_each`` one by one.

Laws of this file: whatever may start first is first asked for (``Walk.may_start``); what may not holds those behind
it. An element that cannot start fails without taking anybody's place.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from acts.machines import elements
from acts.machines.commands import Command, CountElements, StartCall
from acts.machines.readiness import scoped_messages

if TYPE_CHECKING:
    from acts.machines.elements import Elements
    from acts.machines.walk import Walk


class ReadyCalls:
    """The ranks of the Calls of one walk that are ready, or whose elements are."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._ranks: list[int] = []
        self._lists: dict[int, Elements] = {}

    @property
    def count(self) -> int:
        """How many Calls and elements are ready."""
        return len(self._ranks) + sum(own.unstarted - 1 for own in self._lists.values())

    def add(self, rank: int) -> None:
        """A Call is ready, or the next of its elements."""
        own = self._walk.calls[rank].elements if self._is_spread(rank) else None
        if own is None:
            heapq.heappush(self._ranks, rank)
        elif own.unstarted and rank not in self._lists:
            self._lists[rank] = own
            heapq.heappush(self._ranks, rank)

    def clear(self, *, but_elements: bool = False) -> None:
        """No Call starts any more; ``but_elements``: those of a Call that has started do."""
        rest: list[int] = []
        if but_elements:
            rest = sorted(rank for rank in self._ranks if self._walk.calls[rank].stage == "collecting")
        self._ranks, self._lists = rest, {rank: own for rank, own in self._lists.items() if rank in rest}

    def start(self, now: str) -> list[Command]:
        """Start what may start now."""
        out: list[Command] = []
        while self._ranks and not self._walk.holds_starts:
            rank = self._ranks[0]
            if not self._is_spread(rank):
                if not self._walk.has_room(self._walk.nodes[rank]):
                    break
                heapq.heappop(self._ranks)
                out.append(self._start_call(rank))
            elif self._walk.calls[rank].stage == "ready":
                self._take_first()
                out += self._spread(rank)
            else:
                node = elements.find_next(self._walk, rank, now)
                if node is not None and not self._walk.has_room(node):
                    break
                self._take_first()
                out += [] if node is None else [elements.start_next(self._walk, rank)]
                if self._walk.calls[rank].stage == "collecting":
                    self.add(rank)
        return out

    def _is_spread(self, rank: int) -> bool:
        """True for a Call that is started element by element."""
        return self._walk.nodes[rank].is_each and not self._walk.dry

    def _take_first(self) -> None:
        self._lists.pop(heapq.heappop(self._ranks), None)

    def _start_call(self, rank: int) -> StartCall:
        walk = self._walk
        walk.states.move(rank, "started")
        context = [] if walk.dry else scoped_messages(walk.context, rank)  # a dry run starts nothing, and keeps all
        return StartCall(rank, walk.nodes[rank], walk.calls[rank].resolved or {}, context)

    def _spread(self, rank: int) -> list[Command]:
        """A Call starts element by element from now on, if the budget need not be asked first."""
        call = self._walk.calls[rank]
        self._walk.states.move(rank, "spread")
        call.resolved = None
        more = 0 if call.elements is None else call.elements.total - 1
        if self._walk.counts_elements and more:
            return [CountElements(rank, self._walk.nodes[rank], more)]
        self.add(rank)
        return []
