"""The plan as a graph: plan order, and what each Call waits for.

A Call depends on every earlier writer (in plan order) whose path overlaps one of its
reads. Written out as edges that is quadratic (ten thousand readers of ``†state`` after
ten thousand writers), so edges are not stored. Instead every written path has two
*chains*, lists of its writers in plan order: those that write exactly there, and
those that write there or below. "All writers of P before rank r" is then "the first k
entries of a few chains", and a chain only has to remember how many of its first
entries have settled. Build and walk are linear in the number of Calls.

A *rank* is a Call's place in plan order; an *index* its place in the list.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import Problem
from acts.language.references import Path, alternatives
from acts.language.values import Names

if TYPE_CHECKING:
    from acts.language.references import ReferenceUse
    from acts.plan.planned_call import PlannedCall

Key = tuple[str | None, str, Names]


@dataclass(slots=True)
class WriterChain:
    """Writers of one place, as ranks (or indexes) in ascending order."""

    path: Path
    entries: list[int] = field(default_factory=list)

    def add(self, entry: int) -> None:
        """Append, once per Call."""
        if not self.entries or self.entries[-1] != entry:
            self.entries.append(entry)


Wait = tuple[WriterChain, int]
"""The first ``int`` entries of a chain must have settled."""


class WriterIndex:
    """All chains of a plan. Writers are added in ascending order."""

    def __init__(self) -> None:
        self.exact: dict[Key, WriterChain] = {}
        self.below: dict[Key, WriterChain] = {}

    def add(self, node: PlannedCall, entry: int) -> None:
        """Register what a Call may write."""
        for path in node.writes:
            self.add_path(path, node.instance, entry)

    def add_path(self, path: Path, instance: str | None, entry: int) -> None:
        """Register one path of a Call."""
        self._at(self.exact, instance, path.kind, path.names).add(entry)
        for depth in range(len(path.names) + 1):
            self._at(self.below, instance, path.kind, path.names[:depth]).add(entry)

    @staticmethod
    def _at(table: dict[Key, WriterChain], space: str | None, kind: str, names: Names) -> WriterChain:
        key = (space, kind, names)
        chain = table.get(key)
        if chain is None:
            chain = table[key] = WriterChain(Path(kind, names))
        return chain

    def above(self, path: Path, instance: str | None, *, itself: bool = False) -> Iterator[WriterChain]:
        """The chains of writers strictly above a path (or at it too), as ``instance`` sees them."""
        for space in (None,) if instance is None else (None, instance):
            for depth in range(len(path.names) + itself):
                chain = self.exact.get((space, path.kind, path.names[:depth]))
                if chain is not None:
                    yield chain

    def at_or_below(self, path: Path, instance: str | None) -> Iterator[WriterChain]:
        """The chains of writers at a path and below it."""
        for space in (None,) if instance is None else (None, instance):
            chain = self.below.get((space, path.kind, path.names))
            if chain is not None:
                yield chain

    def overlapping(self, path: Path, instance: str | None) -> Iterator[WriterChain]:
        """The chains that together hold every writer that overlaps a path."""
        yield from self.above(path, instance)
        yield from self.at_or_below(path, instance)

    def written(self, path: Path, instance: str | None) -> bool:
        """True when a writer registered so far overlaps the path."""
        return next(self.overlapping(path, instance), None) is not None

    def waits(self, paths: Sequence[Path], instance: str | None) -> tuple[Wait, ...]:
        """A wait for everything registered so far that overlaps one of ``paths``."""
        out: dict[int, Wait] = {}
        for path in paths:
            for chain in self.overlapping(path, instance):
                out[id(chain)] = (chain, len(chain.entries))
        return tuple(out.values())


@dataclass(frozen=True)
class Graph:
    """A plan in plan order. ``waits[rank]`` is what the Call of that rank waits for."""

    order: tuple[PlannedCall, ...]
    waits: tuple[tuple[Wait, ...], ...]
    writers: WriterIndex

    @property
    def chains(self) -> WriterIndex:
        """The old name of ``writers``."""
        return self.writers

    def dependencies(self, rank: int) -> tuple[int, ...]:
        """The ranks that the Call of ``rank`` depends on, ascending."""
        ranks: dict[int, None] = {}
        for chain, count in self.waits[rank]:
            ranks.update(dict.fromkeys(chain.entries[:count]))
        return tuple(sorted(ranks))


@dataclass(frozen=True, slots=True)
class OpenRead:
    """An expression that no Call listed before its own satisfies: the context must, or a later Call.

    ``options`` are its alternatives, each without the paths that Calls listed before may write.
    """

    position: int
    use: ReferenceUse
    options: tuple[tuple[Path, ...], ...]

    def is_satisfied(self, has: Callable[[Path], bool]) -> bool:
        """True when ``has`` is true of every path of one alternative."""
        return any(all(has(path) for path in option) for option in self.options)


class PlanListing:
    """The Calls of a plan in the order listed: what they write, wait for and leave open."""

    def __init__(self, calls: Sequence[PlannedCall]) -> None:
        self.calls = tuple(calls)
        self.writers = WriterIndex()
        self.waits: list[tuple[Wait, ...]] = []
        self.open_reads: list[OpenRead] = []
        for position, call in enumerate(calls):
            self.waits.append(self.writers.waits(paths_read(call), call.instance))
            for use in call.reads:
                options = self._unwritten(use, call.instance)
                if options:
                    self.open_reads.append(OpenRead(position, use, options))
            self.writers.add(call, position)

    def _unwritten(self, use: ReferenceUse, instance: str | None) -> tuple[tuple[Path, ...], ...]:
        """The alternatives without what is written so far; none when one is written altogether."""
        options = []
        for option in alternatives(use.tree):
            unwritten = tuple(p for p in option if not self.writers.written(p, instance))
            if not unwritten:
                return ()
            options.append(unwritten)
        return tuple(options)

    def is_written_by_another(self, path: Path, position: int) -> bool:
        """True when a Call other than the one at ``position`` may write what it reads at ``path``."""
        chains = self.writers.overlapping(path, self.calls[position].instance)
        return any(len(chain.entries) > 1 or chain.entries[0] != position for chain in chains)

    def later_waits(self, read: OpenRead) -> list[Wait]:
        """What a read waits for by the forward rule; empty when no Call listed later writes it."""
        instance = self.calls[read.position].instance
        chains = [chain for path in read.use.paths for chain in self.writers.overlapping(path, instance)]
        return [(chain, len(chain.entries)) for chain in chains if chain.entries[-1] > read.position]


Has = Callable[[Path, str | None], bool]
"""Tells whether the context holds a path before the plan, as an instance (None: a global Call) sees it."""


def build_graph(calls: Sequence[PlannedCall], has: Has) -> tuple[Graph, list[Problem]]:
    """Plan order and waits.

    A cycle is reported as a problem; the graph then holds the Calls outside of it.
    """
    listing = PlanListing(calls)
    return order_calls(listing, unsatisfied_reads(listing, has))


def unsatisfied_reads(listing: PlanListing, has: Has) -> list[OpenRead]:
    """The open reads that the context does not satisfy: the forward rule applies to them."""

    def is_unsatisfied(read: OpenRead) -> bool:
        instance = listing.calls[read.position].instance
        return not read.is_satisfied(lambda path: has(path, instance))

    return [read for read in listing.open_reads if is_unsatisfied(read)]


def order_calls(listing: PlanListing, unsatisfied: Sequence[OpenRead]) -> tuple[Graph, list[Problem]]:
    """The graph of a listing whose context leaves ``unsatisfied`` to Calls listed later (the forward rule)."""
    forward: dict[int, list[Wait]] = {}
    for read in unsatisfied:
        waits = listing.later_waits(read)
        if waits:
            forward.setdefault(read.position, []).extend(waits)
    if not forward:
        return Graph(listing.calls, tuple(listing.waits), listing.writers), []
    order, problems = _plan_order(listing, forward)
    writers = WriterIndex()
    ordered_waits: list[tuple[Wait, ...]] = []
    for rank, call in enumerate(order):
        ordered_waits.append(writers.waits(paths_read(call), call.instance))
        writers.add(call, rank)
    return Graph(tuple(order), tuple(ordered_waits), writers), problems


def paths_read(call: PlannedCall) -> tuple[Path, ...]:
    """Every path a Call reads: its parameters' and its scopes'."""
    return tuple(path for use in call.reads for path in use.paths) + call.scopes


def _plan_order(listing: PlanListing, forward: Mapping[int, Sequence[Wait]]) -> tuple[list[PlannedCall], list[Problem]]:
    """Take again and again the lowest-listed Call whose edges are all satisfied."""
    sorter = _KahnOverChains(len(listing.calls))
    for position, waits in enumerate(listing.waits):
        for chain, count in (*waits, *forward.get(position, ())):
            sorter.wait(position, chain, count)
    positions = sorter.run()
    problems = _cycles(listing.calls, sorter) if len(positions) < len(listing.calls) else []
    return [listing.calls[i] for i in positions], problems


class _KahnOverChains:
    """Kahn's algorithm over chains: a Call waits for a prefix of each, itself left out."""

    def __init__(self, count: int) -> None:
        self.open = [0] * count
        self.done = [False] * count
        self.members: dict[int, list[WriterChain]] = {}
        self.mirrors: dict[int, WriterChain] = {}
        self.settled: dict[int, int] = {}
        self.waiters: dict[int, dict[int, list[int]]] = {}
        self.waits: list[list[Wait]] = [[] for _ in range(count)]

    def wait(self, position: int, chain: WriterChain, count: int) -> None:
        """``position`` waits for the first ``count`` entries of ``chain`` but itself."""
        at = bisect.bisect_left(chain.entries, position, 0, count)
        if at < count and chain.entries[at] == position:  # what follows itself is a prefix from the other end
            self._wait(position, chain, at)
            self._wait(position, self._mirror(chain), len(chain.entries) - at - 1)
        else:
            self._wait(position, chain, count)

    def _wait(self, position: int, chain: WriterChain, count: int) -> None:
        if count:
            self._join(chain)
            self.open[position] += 1
            self.waits[position].append((chain, count))
            self.waiters[id(chain)].setdefault(count, []).append(position)

    def _mirror(self, chain: WriterChain) -> WriterChain:
        if id(chain) not in self.mirrors:
            self.mirrors[id(chain)] = WriterChain(chain.path, chain.entries[::-1])
        return self.mirrors[id(chain)]

    def _join(self, chain: WriterChain) -> None:
        if id(chain) not in self.waiters:
            self.waiters[id(chain)] = {}
            self.settled[id(chain)] = 0
            for entry in chain.entries:
                self.members.setdefault(entry, []).append(chain)

    def run(self) -> list[int]:
        """The positions in the order in which they are taken."""
        heap = [i for i, n in enumerate(self.open) if n == 0]
        taken = []
        while heap:
            position = heapq.heappop(heap)
            taken.append(position)
            self.done[position] = True
            for chain in self.members.get(position, ()):
                for free in self._advance(chain):
                    heapq.heappush(heap, free)
        return taken

    def _advance(self, chain: WriterChain) -> Iterator[int]:
        at = self.settled[id(chain)]
        while at < len(chain.entries) and self.done[chain.entries[at]]:
            at += 1
            for position in self.waiters[id(chain)].pop(at, ()):
                self.open[position] -= 1
                if self.open[position] == 0:
                    yield position
        self.settled[id(chain)] = at

    def blocker(self, position: int) -> tuple[int, Path] | None:
        """One Call that ``position`` still waits for, and the path between them."""
        for chain, count in self.waits[position]:
            for entry in chain.entries[self.settled[id(chain)] : count]:
                if not self.done[entry]:
                    return entry, chain.path
        return None


def _cycles(calls: Sequence[PlannedCall], sorter: _KahnOverChains) -> list[Problem]:
    """Every cycle among the Calls that were never taken: one edge out of each suffices."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    for position, done in enumerate(sorter.done):
        blocked = None if done else sorter.blocker(position)
        if blocked is not None:
            graph.add_edge(position, blocked[0], path=blocked[1])
    out = []
    for cycle in sorted(nx.simple_cycles(graph), key=min):
        steps = [(a, b, graph.edges[a, b]["path"]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        text = "; ".join(f"{calls[a].id} reads {path}, written by {calls[b].id}" for a, b, path in steps[:10])
        first = calls[min(cycle)]
        out.append(
            Problem("cycle", f"calls wait for each other: {text}", first.pointer, first.id,
                    "one of them must read something that is there before, or be listed after its writer")
        )  # fmt: skip
    return out
