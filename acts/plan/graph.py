"""The plan as a graph: plan order, and what each Call waits for.

Theory of operation
-------------------
A Call depends on every earlier writer (in plan order) whose path overlaps one of its reads. As
edges that is quadratic (ten thousand readers of ``†state`` after ten thousand writers), so edges
are not stored. Instead every written path has two *chains*, lists of writers in plan order: those
that write exactly there, and those that write there or below. "All writers of P before rank r" is
then "the first k entries of a few chains", and a chain only records how many of its first entries
have settled. Building and walking are linear in the number of Calls.

A *position* is the index of a Call in the list of Calls, a *rank* its index in plan order. What
becomes of the Calls is not known here.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import Problem
from acts.language.references import Expression, Path, is_provided, paths
from acts.language.values import Names

if TYPE_CHECKING:
    from acts.language.reference_uses import ReferenceUse
    from acts.plan.planned_call import PlannedCall

Key = tuple[str | None, str, Names]


@dataclass(slots=True)
class WriterChain:
    """The writers of one path, as ranks (or positions) in ascending order."""

    path: Path
    entries: list[int] = field(default_factory=list)

    def add(self, entry: int) -> None:
        """Append a writer, once per Call."""
        if not self.entries or self.entries[-1] != entry:
            self.entries.append(entry)


Wait = tuple[WriterChain, int]
"""The first ``int`` entries of a chain must have settled."""


class WriterIndex:
    """The chains of all written paths of a plan. Writers are added in ascending order."""

    def __init__(self) -> None:
        self.exact: dict[Key, WriterChain] = {}
        self.below: dict[Key, WriterChain] = {}

    def add(self, call: PlannedCall, entry: int) -> None:
        """Register a Call as a writer of each path that it may write."""
        for path in call.writes:
            self.add_path(path, call.instance, entry)

    def add_path(self, path: Path, instance: str | None, entry: int) -> None:
        """Register a writer of one path."""
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
        """The chains of the writers strictly above a path (with ``itself``: or at it) that ``instance`` sees."""
        for space in (None,) if instance is None else (None, instance):
            for depth in range(len(path.names) + itself):
                chain = self.exact.get((space, path.kind, path.names[:depth]))
                if chain is not None:
                    yield chain

    def at_or_below(self, path: Path, instance: str | None) -> Iterator[WriterChain]:
        """The chains of the writers at a path or below it that ``instance`` sees."""
        for space in (None,) if instance is None else (None, instance):
            chain = self.below.get((space, path.kind, path.names))
            if chain is not None:
                yield chain

    def overlapping(self, path: Path, instance: str | None) -> Iterator[WriterChain]:
        """The chains that together hold every writer overlapping a path."""
        yield from self.above(path, instance)
        yield from self.at_or_below(path, instance)

    def has_writer(self, path: Path, instance: str | None) -> bool:
        """True when a writer registered so far overlaps the path."""
        return next(self.overlapping(path, instance), None) is not None

    def waits(self, paths: Sequence[Path], instance: str | None) -> tuple[Wait, ...]:
        """The waits for every writer registered so far that overlaps one of ``paths``."""
        waits: dict[int, Wait] = {}
        for path in paths:
            for chain in self.overlapping(path, instance):
                waits[id(chain)] = (chain, len(chain.entries))
        return tuple(waits.values())


@dataclass(frozen=True)
class Graph:
    """A plan in plan order. ``waits[rank]`` is what the Call of that rank waits for."""

    order: tuple[PlannedCall, ...]
    waits: tuple[tuple[Wait, ...], ...]
    writers: WriterIndex

    def dependencies(self, rank: int) -> tuple[int, ...]:
        """The ranks that the Call of ``rank`` depends on, ascending."""
        ranks: dict[int, None] = {}
        for chain, count in self.waits[rank]:
            ranks.update(dict.fromkeys(chain.entries[:count]))
        return tuple(sorted(ranks))


@dataclass(frozen=True, slots=True)
class OpenRead:
    """An expression that no Call listed before its own satisfies: the context must, or a later Call.

    ``unwritten`` are its paths that no Call listed before may write. A template has one for each of its
    expressions.
    """

    position: int
    use: ReferenceUse
    tree: Expression
    unwritten: frozenset[Path]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the expression that lead into the context."""
        return tuple(path for path in paths(self.tree) if path in self.use.paths)

    def is_satisfied(self, has: Callable[[Path], bool]) -> bool:
        """True when ``has`` is true of every path of one alternative."""
        return is_provided(self.tree, lambda path: path not in self.unwritten or has(path))


def _is_nothing(_: Path) -> bool:
    return False


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
                unwritten = frozenset(p for p in use.paths if not self.writers.has_writer(p, call.instance))
                if unwritten:
                    reads = (OpenRead(position, use, tree, unwritten) for tree in use.expressions)
                    self.open_reads += (read for read in reads if not read.is_satisfied(_is_nothing))
            self.writers.add(call, position)

    def is_written_by_another(self, path: Path, position: int) -> bool:
        """True when a Call other than the one at ``position`` may write what it reads at ``path``."""
        chains = self.writers.overlapping(path, self.calls[position].instance)
        return any(len(chain.entries) > 1 or chain.entries[0] != position for chain in chains)

    def later_waits(self, read: OpenRead) -> list[Wait]:
        """What a read waits for by the forward rule; empty when no Call listed later writes it."""
        instance = self.calls[read.position].instance
        chains = [chain for path in read.paths for chain in self.writers.overlapping(path, instance)]
        return [(chain, len(chain.entries)) for chain in chains if chain.entries[-1] > read.position]


Has = Callable[[Path, str | None], bool]
"""Tells whether a path has a value before the plan, as an instance (None: a global Call) sees it."""


def build_graph(calls: Sequence[PlannedCall], has: Has) -> tuple[Graph, list[Problem]]:
    """The graph of a plan, and its cycles as problems: the graph then lacks the Calls of the cycle."""
    listing = PlanListing(calls)
    return order_calls(listing, unsatisfied_reads(listing, has))


def unsatisfied_reads(listing: PlanListing, has: Has) -> list[OpenRead]:
    """The open reads that the context does not satisfy: the forward rule applies to them."""

    def is_unsatisfied(read: OpenRead) -> bool:
        instance = listing.calls[read.position].instance
        return not read.is_satisfied(lambda path: has(path, instance))

    return [read for read in listing.open_reads if is_unsatisfied(read)]


def order_calls(listing: PlanListing, unsatisfied: Sequence[OpenRead]) -> tuple[Graph, list[Problem]]:
    """The graph and the cycles of a listing, where the forward rule applies to ``unsatisfied`` reads."""
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
    """Plan order: always the first-listed Call whose waits are over. Cycles are reported as problems."""
    sorter = _KahnOverChains(len(listing.calls))
    for position, waits in enumerate(listing.waits):
        for chain, count in (*waits, *forward.get(position, ())):
            sorter.wait(position, chain, count)
    positions = sorter.sort()
    problems = _cycles(listing.calls, sorter) if len(positions) < len(listing.calls) else []
    return [listing.calls[i] for i in positions], problems


class _KahnOverChains:
    """Kahn's topological sort, with waits for prefixes of chains in place of edges.

    Ready Calls are ordered by position. Chains are identified by ``id``.
    """

    def __init__(self, count: int) -> None:
        self.waits: list[list[Wait]] = [[] for _ in range(count)]
        self.is_ordered = [False] * count
        self._open_waits = [0] * count  # by position: how many waits are not over
        self._chains_of: dict[int, list[WriterChain]] = {}  # by position: the chains that the Call is in
        self._reversed: dict[int, WriterChain] = {}
        self._ordered_prefix: dict[int, int] = {}  # by chain: how many of its first entries are ordered
        self._waiters: dict[int, dict[int, list[int]]] = {}  # by chain and prefix length: who waits for it

    def wait(self, position: int, chain: WriterChain, count: int) -> None:
        """Make ``position`` wait for the first ``count`` entries of ``chain``, itself left out."""
        at = bisect.bisect_left(chain.entries, position, 0, count)
        if at < count and chain.entries[at] == position:  # the entries after it are a prefix of the reversed chain
            self._wait(position, chain, at)
            self._wait(position, self._reverse(chain), len(chain.entries) - at - 1)
        else:
            self._wait(position, chain, count)

    def _wait(self, position: int, chain: WriterChain, count: int) -> None:
        if count:
            self._register(chain)
            self._open_waits[position] += 1
            self.waits[position].append((chain, count))
            self._waiters[id(chain)].setdefault(count, []).append(position)

    def _reverse(self, chain: WriterChain) -> WriterChain:
        if id(chain) not in self._reversed:
            self._reversed[id(chain)] = WriterChain(chain.path, chain.entries[::-1])
        return self._reversed[id(chain)]

    def _register(self, chain: WriterChain) -> None:
        if id(chain) not in self._waiters:
            self._waiters[id(chain)] = {}
            self._ordered_prefix[id(chain)] = 0
            for entry in chain.entries:
                self._chains_of.setdefault(entry, []).append(chain)

    def sort(self) -> list[int]:
        """The positions in plan order; those in a cycle, or behind one, are left out."""
        ready = [position for position, waits in enumerate(self._open_waits) if waits == 0]
        order = []
        while ready:
            position = heapq.heappop(ready)
            order.append(position)
            self.is_ordered[position] = True
            for chain in self._chains_of.get(position, ()):
                for waiter in self._advance(chain):
                    heapq.heappush(ready, waiter)
        return order

    def _advance(self, chain: WriterChain) -> Iterator[int]:
        """Extend the ordered prefix of a chain; yields the positions that become ready."""
        count = self._ordered_prefix[id(chain)]
        while count < len(chain.entries) and self.is_ordered[chain.entries[count]]:
            count += 1
            for position in self._waiters[id(chain)].pop(count, ()):
                self._open_waits[position] -= 1
                if self._open_waits[position] == 0:
                    yield position
        self._ordered_prefix[id(chain)] = count

    def find_blocker(self, position: int) -> tuple[int, Path] | None:
        """A Call that ``position`` still waits for, and the path that it writes."""
        for chain, count in self.waits[position]:
            for entry in chain.entries[self._ordered_prefix[id(chain)] : count]:
                if not self.is_ordered[entry]:
                    return entry, chain.path
        return None


def _cycles(calls: Sequence[PlannedCall], sorter: _KahnOverChains) -> list[Problem]:
    """The cycles among the Calls without an order. One edge out of each Call is enough to find them."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    for position, is_ordered in enumerate(sorter.is_ordered):
        blocker = None if is_ordered else sorter.find_blocker(position)
        if blocker is not None:
            graph.add_edge(position, blocker[0], path=blocker[1])
    problems = []
    hint = "one of them must read something that is there before, or be listed after its writer"
    for cycle in sorted(nx.simple_cycles(graph), key=min):
        steps = [(a, b, graph.edges[a, b]["path"]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        text = "; ".join(f"{calls[a].id} reads {path}, written by {calls[b].id}" for a, b, path in steps[:10])
        first = calls[min(cycle)]
        problems.append(Problem("cycle", f"calls wait for each other: {text}", first.pointer, first.id, hint))
    return problems
