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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import Problem
from acts.language.references import Path, alternatives
from acts.language.values import Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from acts.plan.planned_call import PlannedCall, ReferenceUse

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
    """A plan in plan order. ``waits[r]`` is what the Call of rank r waits for.

    ``ahead`` are the positions (``Node.index``) of Calls with an expression that the
    forward rule applies to.
    """

    order: tuple[PlannedCall, ...]
    waits: tuple[tuple[Wait, ...], ...]
    chains: WriterIndex
    ahead: frozenset[int] = frozenset()

    def dependencies(self, rank: int) -> tuple[int, ...]:
        """The ranks that the Call of ``rank`` depends on, ascending."""
        found: dict[int, None] = {}
        for chain, count in self.waits[rank]:
            found.update(dict.fromkeys(chain.entries[:count]))
        return tuple(sorted(found))


def build_graph(nodes: Sequence[PlannedCall], held: Callable[[Path, str | None], bool]) -> tuple[Graph, list[Problem]]:
    """Plan order and waits. ``held(path, instance)`` tells what the context has at the start.

    A cycle is reported as a problem; the graph then holds the Calls outside of it.
    """
    graph, ahead = _as_listed(nodes, held)
    if not ahead:
        return graph, []
    order, problems = _plan_order(nodes, ahead)
    chains = WriterIndex()
    waits: list[tuple[Wait, ...]] = []
    for rank, node in enumerate(order):
        waits.append(chains.waits(paths_read(node), node.instance))
        chains.add(node, rank)
    return Graph(tuple(order), tuple(waits), chains, frozenset(nodes[i].index for i in ahead)), problems


def paths_read(node: PlannedCall) -> tuple[Path, ...]:
    """Every path a Call reads: its parameters' and its scopes'."""
    return tuple(p for read in node.reads for p in read.paths) + node.scopes


def _as_listed(
    nodes: Sequence[PlannedCall], held: Callable[[Path, str | None], bool]
) -> tuple[Graph, dict[int, list[ReferenceUse]]]:
    """The graph in the order listed, and by position the expressions that look ahead.

    These are the expressions that nothing held or listed before can satisfy. An
    alternative (a conjunction of paths) counts as there when each of its paths is
    held by the context or overlapped by a write listed before.
    """
    chains = WriterIndex()
    waits: list[tuple[Wait, ...]] = []
    ahead: dict[int, list[ReferenceUse]] = {}
    for position, node in enumerate(nodes):
        waits.append(chains.waits(paths_read(node), node.instance))
        for read in node.reads:
            if not any(_there(chains, held, option, node) for option in alternatives(read.tree)):
                ahead.setdefault(position, []).append(read)
        chains.add(node, position)
    return Graph(tuple(nodes), tuple(waits), chains), ahead


def _there(
    chains: WriterIndex, held: Callable[[Path, str | None], bool], option: Sequence[Path], node: PlannedCall
) -> bool:
    return all(chains.written(path, node.instance) or held(path, node.instance) for path in option)


def _plan_order(
    nodes: Sequence[PlannedCall], ahead: dict[int, list[ReferenceUse]]
) -> tuple[list[PlannedCall], list[Problem]]:
    """Take again and again the lowest-listed Call whose edges are all satisfied."""
    full = WriterIndex()
    waits: list[list[Wait]] = []
    for position, node in enumerate(nodes):
        waits.append(list(full.waits(paths_read(node), node.instance)))
        full.add(node, position)
    edges = _Edges(len(nodes))
    for position, node in enumerate(nodes):
        for read in ahead.get(position, ()):
            for path in read.paths:
                for chain in full.overlapping(path, node.instance):
                    waits[position].append((chain, len(chain.entries)))
        for chain, count in waits[position]:
            edges.wait(position, chain, count)
    taken = edges.run()
    if len(taken) == len(nodes):
        return [nodes[i] for i in taken], []
    return [nodes[i] for i in taken], _cycles(nodes, edges)


class _Edges:
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


def _cycles(nodes: Sequence[PlannedCall], edges: _Edges) -> list[Problem]:
    """Every cycle among the Calls that were never taken: one edge out of each suffices."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    for position, done in enumerate(edges.done):
        blocked = None if done else edges.blocker(position)
        if blocked is not None:
            graph.add_edge(position, blocked[0], path=blocked[1])
    out = []
    for cycle in sorted(nx.simple_cycles(graph), key=min):
        steps = [(a, b, graph.edges[a, b]["path"]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        text = "; ".join(f"{nodes[a].id} reads {path}, written by {nodes[b].id}" for a, b, path in steps[:10])
        first = nodes[min(cycle)]
        out.append(
            Problem("cycle", f"calls wait for each other: {text}", first.pointer, first.id,
                    "one of them must read something that is there before, or be listed after its writer")
        )  # fmt: skip
    return out
