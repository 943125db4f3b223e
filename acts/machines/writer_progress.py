"""How far the writers of a plan have settled, and which Calls wait for them.

Laws of this file: it keeps counts and indexes over the plan's writer chains (see ``graph``), and it
decides nothing. It reads the stage of a Call and never changes one. Every method costs time in
proportion to the chains of one Call, not to the number of their writers.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acts.machines.call_state import SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acts.language.references import Path
    from acts.language.values import Names
    from acts.machines.call_state import CallState
    from acts.plan.graph import Graph, WriterChain


@dataclass(slots=True)
class _ChainProgress:
    """How many of a chain's first entries have settled, and which ranks wait for more of them.

    ``incomplete`` is the position of the first settled entry that did not complete.
    """

    chain: WriterChain
    settled: int = 0
    incomplete: int | None = None
    waiters: dict[int, list[int]] | None = None


class WriterProgress:
    """The waits of one walk. ``calls`` are the states of its Calls, by rank."""

    def __init__(self, graph: Graph, calls: Sequence[CallState]) -> None:
        self._graph = graph
        self._calls = calls
        self._open_waits = [0] * len(calls)
        self._chains: dict[int, _ChainProgress] = {}
        self._chains_of: list[list[_ChainProgress]] = [[] for _ in calls]
        self._unwritten = _UnwrittenPaths()
        self._not_indexed: list[int] = []
        for table in (graph.writers.exact, graph.writers.below):
            for chain in table.values():
                progress = self._chains[id(chain)] = _ChainProgress(chain)
                for rank in chain.entries:
                    self._chains_of[rank].append(progress)
        for _ in self._advance(self._chains.values()):
            pass  # no Call waits yet
        for rank, call in enumerate(calls):
            if call.stage == "completed":
                self.record_writes(rank)
            elif call.stage == "pending":
                for chain, count in graph.waits[rank]:
                    self._wait(rank, chain, count)

    def is_waiting(self, rank: int) -> bool:
        """True while a writer that a Call waits for has not settled."""
        return self._open_waits[rank] > 0

    def await_earlier_writers(self, rank: int, chains: Iterable[WriterChain]) -> None:
        """Let a Call wait for the writers of these chains that precede it in plan order."""
        for chain in chains:
            self._wait(rank, chain, bisect.bisect_left(chain.entries, rank))

    def _wait(self, rank: int, chain: WriterChain, count: int) -> None:
        progress = self._chains[id(chain)]
        if progress.settled < count:
            if progress.waiters is None:  # few chains have any: ten thousand empty dicts would cost time
                progress.waiters = {}
            progress.waiters.setdefault(count, []).append(rank)
            self._open_waits[rank] += 1

    def release_waiters(self, rank: int) -> Iterator[int]:
        """The Calls whose last wait ends because the Call of ``rank`` settled.

        A Call may settle between two of them: the chains advance over it then, too.
        """
        return self._advance(self._chains_of[rank])

    def _advance(self, chains: Iterable[_ChainProgress]) -> Iterator[int]:
        for progress in chains:
            entries = progress.chain.entries
            while progress.settled < len(entries):
                stage = self._calls[entries[progress.settled]].stage
                if stage not in SETTLED:
                    break
                if stage != "completed" and progress.incomplete is None:
                    progress.incomplete = progress.settled
                progress.settled += 1
                for waiter in progress.waiters.pop(progress.settled, ()) if progress.waiters else ():
                    self._open_waits[waiter] -= 1
                    if not self._open_waits[waiter]:
                        yield waiter

    def record_writes(self, rank: int) -> None:
        """Note that a Call completed: it may not have written every path that it could have."""
        if len(self._graph.order[rank].outcomes) > 1 or not self._calls[rank].written:
            self._not_indexed.append(rank)

    def _index_unwritten(self) -> None:
        for rank in self._not_indexed:
            node = self._graph.order[rank]
            paths = [path for path, _, _ in self._calls[rank].written]
            for path in node.writes:
                if path not in paths:
                    self._unwritten.add(path, node.instance, rank)
        self._not_indexed.clear()

    def dependency_did_not_write(self, rank: int, paths: Iterable[Path]) -> bool:
        """True when a dependency of a Call did not complete, or took another outcome than one with these paths."""
        for chain, count in self._graph.waits[rank]:
            incomplete = self._chains[id(chain)].incomplete
            if incomplete is not None and incomplete < count:
                return True
        self._index_unwritten()
        instance = self._graph.order[rank].instance
        return any(self._unwritten.overlap(path, instance, rank) for path in paths)


class _UnwrittenPaths:
    """Paths of outcomes that were not taken, each with the lowest rank that could have written it."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str | None, str, Names], int] = {}
        self._below: dict[tuple[str | None, str, Names], int] = {}

    def add(self, path: Path, instance: str | None, rank: int) -> None:
        exact = (instance, path.kind, path.names)
        self._exact[exact] = min(rank, self._exact.get(exact, rank))
        for depth in range(len(path.names) + 1):
            key = (instance, path.kind, path.names[:depth])
            self._below[key] = min(rank, self._below.get(key, rank))

    def overlap(self, path: Path, instance: str | None, rank: int) -> bool:
        """True when a Call before ``rank`` could have written above, at or below ``path``, as ``instance`` sees it."""
        for space in (None,) if instance is None else (None, instance):
            if self._below.get((space, path.kind, path.names), rank) < rank:
                return True
            for depth in range(len(path.names)):
                if self._exact.get((space, path.kind, path.names[:depth]), rank) < rank:
                    return True
        return False
