"""How much each tree of runs has computed lately in this process, and who should give way to whom."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

# In which half of what a tree has computed is forgotten
HALF_LIFE_SECONDS: Final = 1.0
# Of CPU, lately: above this a tree is busy. A plan whose calls follow each other at once has about a third of it, a
# batch with a hundred calls in flight three times as much
BUSY_SECONDS: Final = 0.05
# A quiet tree is at work for so long after a task of it: longer than a call that does not wait for anything takes
AT_WORK_SECONDS: Final = 0.5
# Trees to remember before those that are at rest are forgotten
MAX_TREES: Final = 1_000
_AT_REST_SECONDS: Final = 0.001


class TreeLoads:
    """The CPU seconds that each tree has had lately. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._loads: dict[Hashable, tuple[float, float]] = {}
        # When a task of a tree came last; the latest is at the end
        self._arrivals: OrderedDict[Hashable, float] = OrderedDict()

    def arrive(self, tree: Hashable, now: float) -> None:
        """A task of a tree has come."""
        self._arrivals[tree] = now
        self._arrivals.move_to_end(tree)
        if len(self._arrivals) > MAX_TREES:
            self._arrivals.popitem(last=False)

    def add(self, tree: Hashable, computed: float, now: float) -> None:
        """A task of a tree has computed for so long."""
        self._loads[tree] = self._load(tree, now) + computed, now
        if len(self._loads) > MAX_TREES:
            self._loads = {t: load for t, load in self._loads.items() if self._load(t, now) > _AT_REST_SECONDS}

    def is_courteous(self, tree: Hashable, now: float) -> bool:
        """True for a busy tree while a quiet one is at work."""
        if not self.is_busy(tree, now):
            return False
        for other, arrival in reversed(self._arrivals.items()):
            if now - arrival >= AT_WORK_SECONDS:
                return False
            if other != tree and not self.is_busy(other, now):
                return True
        return False

    def is_busy(self, tree: Hashable, now: float) -> bool:
        """True for a tree that has computed much lately."""
        return self._load(tree, now) > BUSY_SECONDS

    def _load(self, tree: Hashable, now: float) -> float:
        load, then = self._loads.get(tree, (0.0, now))
        return float(load * 0.5 ** ((now - then) / HALF_LIFE_SECONDS))
