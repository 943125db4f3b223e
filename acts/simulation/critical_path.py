"""The depth of each Call in a plan: which Calls may run side by side, and the longest chain of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acts.plan.graph import Graph


class Depths:
    """The depth of each Call, by rank. Linear in the Calls: it keeps a running maximum per chain.

    ``level[r]`` counts from 0, ``before[r]`` is the deepest Call that r waits for, and ``sure[r]`` says that
    no branching Call lies before r, and no condition decides whether r runs.
    """

    def __init__(self, graph: Graph) -> None:
        self.level: list[int] = []
        self.before: list[int | None] = []
        self.sure: list[bool] = []
        progress: dict[int, tuple[int, int | None, bool]] = {}  # by chain: entries read, the deepest, all sure
        for rank in range(len(graph.order)):
            deepest: int | None = None
            sure = graph.order[rank].condition is None
            for chain, count in graph.waits[rank]:
                at, top, all_sure = progress.get(id(chain), (0, None, True))
                for entry in chain.entries[at:count]:
                    all_sure = all_sure and self.sure[entry] and len(graph.order[entry].outcomes) < 2  # noqa: PLR2004
                    if top is None or self.level[entry] > self.level[top]:
                        top = entry
                progress[id(chain)] = (max(at, count), top, all_sure)
                sure = sure and all_sure
                if top is not None and (deepest is None or self.level[top] > self.level[deepest]):
                    deepest = top
            self.level.append(0 if deepest is None else self.level[deepest] + 1)
            self.before.append(deepest)
            self.sure.append(sure)

    def waves(self) -> list[list[int]]:
        """The ranks of the Calls that may run side by side, wave after wave."""
        out: list[list[int]] = [[] for _ in range(max(self.level, default=-1) + 1)]
        for rank, level in enumerate(self.level):
            out[level].append(rank)
        return out

    def critical_path(self) -> list[int]:
        """The ranks of the longest chain of Calls that wait for each other."""
        at = max(range(len(self.level)), key=self.level.__getitem__, default=None)
        out: list[int] = []
        while at is not None:
            out.append(at)
            at = self.before[at]
        return out[::-1]
