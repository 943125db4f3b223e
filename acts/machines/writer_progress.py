"""How far the writers of a plan have settled, which Calls wait for them, and which wait for data.

Laws of this file: it keeps counts and indexes over the plan's writer chains (see ``graph``), and it
decides nothing. It reads the stage of a Call and never changes one. Every method costs time in
proportion to the chains of one Call, not to the number of their writers.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acts.machines.call_state import SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acts.language.messages import Data
    from acts.language.references import Path
    from acts.machines.call_state import CallState
    from acts.plan.graph import Graph, WriterChain


@dataclass(slots=True)
class _ChainProgress:
    """How many of a chain's first entries have settled, and which ranks wait for more of them.

    The first ``completed`` of them all completed; ``first_unwritten`` is the rank of the first one that completed and
    did not write here. ``holds_below``: the chain has the writers of what is below its path.
    """

    chain: WriterChain
    holds_below: bool
    settled: int = 0
    completed: int = 0
    first_unwritten: float = math.inf
    waiters: dict[int, list[int]] | None = None


class WriterProgress:
    """The waits of one walk. ``calls`` are the states of its Calls, by rank."""

    def __init__(self, graph: Graph, calls: Sequence[CallState]) -> None:
        self._graph = graph
        self._calls = calls
        self._open_waits = [0] * len(calls)
        self._chains: dict[int, _ChainProgress] = {}
        self._chains_of: list[list[_ChainProgress]] = [[] for _ in calls]
        for table in (graph.writers.exact, graph.writers.below):
            for chain in table.values():
                progress = self._chains[id(chain)] = _ChainProgress(chain, table is graph.writers.below)
                for rank in chain.entries:
                    self._chains_of[rank].append(progress)
        for _ in self._advance(self._chains.values()):
            pass  # no Call waits yet
        for rank, call in enumerate(calls):
            if call.stage == "pending":
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
                call = self._calls[entries[progress.settled]]
                if call.stage not in SETTLED:
                    break
                if (
                    call.stage == "completed"
                    and progress.first_unwritten > call.rank
                    and _leaves_unwritten(call, progress)
                ):
                    progress.first_unwritten = call.rank
                progress.completed += call.stage == "completed" and progress.completed == progress.settled
                progress.settled += 1
                for waiter in progress.waiters.pop(progress.settled, ()) if progress.waiters else ():
                    self._open_waits[waiter] -= 1
                    if not self._open_waits[waiter]:
                        yield waiter

    def dependency_did_not_write(self, rank: int, paths: Iterable[Path]) -> bool:
        """True when a dependency of a Call did not complete, or took another outcome than one with these paths."""
        if any(count > self._chains[id(chain)].completed for chain, count in self._graph.waits[rank]):
            return True
        instance = self._graph.order[rank].instance
        chains = (chain for path in paths for chain in self._graph.writers.overlapping(path, instance))
        return any(self._chains[id(chain)].first_unwritten < rank for chain in chains)


def _leaves_unwritten(call: CallState, progress: _ChainProgress) -> bool:
    """True for a Call that completed without writing a path of a chain that it could have written."""
    if len(call.values) == len(call.node.writes):
        return False
    written = {path for path, _ in call.writes}
    at = progress.chain.path
    could = (path for path in call.node.writes if path not in written)
    return any(path == at or (progress.holds_below and at.holds(path)) for path in could)


class WaitingCalls:
    """The ranks of Calls that wait for data, by kind and first name of the paths that they read.

    A message concerns only those that read what it changes.
    """

    def __init__(self, waiting: Iterable[CallState]) -> None:
        self._readers: dict[tuple[str, str | None], list[int]] = {}
        for call in waiting:
            self.add(call)

    def add(self, call: CallState) -> None:
        """A Call waits."""
        for path in (path for use in call.node.reads for path in use.paths):
            self._readers.setdefault((path.kind, path.names[0] if path.names else None), []).append(call.rank)

    def take_readers(self, message: Data) -> list[int]:
        """The Calls that read what a message changes, in plan order; those that wait on are added again."""
        names: Iterable[str | None] = [name for kind, name in self._readers if kind == message.kind]
        if message.path is not None and message.path.names:
            names = (None, *message.path.names[:1])
        elif message.path is None and isinstance(message.payload, dict):
            names = (None, *message.payload)
        return sorted({rank for name in names for rank in self._readers.pop((message.kind, name), ())})
