"""The plan as a graph: plan order, and what each Call waits for.

Theory of operation
-------------------
A Call depends on every earlier writer (in plan order) whose path overlaps one of its reads. As edges that is quadratic
(ten thousand readers of ``†state`` after ten thousand writers), so edges are not stored. Instead every written path has
two *chains*, lists of writers in plan order: those that write exactly there, and those that write there or below. "All
writers of P before rank r" is then "the first k entries of a few chains", and a chain only records how many of its
first entries have settled. Building and walking are linear in the number of Calls.

A *position* is the index of a Call in the list of Calls, a *rank* its index in plan order.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from acts.language.errors import Problem
from acts.language.references import ELEMENT_KINDS, Expression, Path, is_provided, paths
from acts.language.values import Names

if TYPE_CHECKING:
    from acts.language.references import ReferenceUse
    from acts.plan.calls import PlannedCall

Key = tuple[str | None, str, Names]
Has = Callable[[Path, str | None], bool]
"""Tells whether a path has a value before the plan, as an instance (None: a global Call) sees it."""
_Prefix = tuple[int, int]
"""The id of a chain, and how many of its first entries."""


@dataclass(slots=True)
class WriterChain:
    """The writers of one path, as ranks (or positions) in ascending order."""

    path: Path
    entries: list[int] = field(default_factory=list)


Wait = tuple[WriterChain, int]
"""The first ``int`` entries of a chain must have settled."""

T = TypeVar("T")


class ChainFold(Generic[T]):
    """A fold over the first entries of chains. Each chain is read once, as long as the counts asked for only grow."""

    def __init__(self, start: T, step: Callable[[T, int], T]) -> None:
        self._start, self._step = start, step
        self._progress: dict[int, tuple[int, T]] = {}  # by chain: entries read, and what they fold to

    def at(self, chain: WriterChain, count: int) -> T:
        position, value = self._progress.get(id(chain), (0, self._start))
        if position < count:
            for entry in chain.entries[position:count]:
                value = self._step(value, entry)
            self._progress[id(chain)] = count, value
        return value


class WriterIndex:
    """The chains of all written paths of a plan. Writers are added in ascending order."""

    def __init__(self) -> None:
        self.exact: dict[Key, WriterChain] = {}
        self.below: dict[Key, WriterChain] = {}

    def add(self, call: PlannedCall, entry: int, paths_: Iterable[Path] | None = None) -> None:
        """Register a Call as a writer of each path that it may write, or of these."""
        for path in call.writes if paths_ is None else paths_:
            above = [(self.below, path.names[:depth]) for depth in range(len(path.names) + 1)]
            for table, names in ((self.exact, path.names), *above):
                key = (call.instance, path.kind, names)
                if (chain := table.get(key)) is None:
                    chain = table[key] = WriterChain(Path(path.kind, names))
                if not chain.entries or chain.entries[-1] != entry:  # once per Call
                    chain.entries.append(entry)

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

    def overlapping(self, path: Path, instance: str | None) -> list[WriterChain]:
        """The chains that together hold every writer overlapping a path."""
        return [*self.above(path, instance), *self.at_or_below(path, instance)]

    def hiding(self, path: Path, instance: str | None, before: int) -> Iterator[Wait]:
        """The instance's writes beside a path, before a global one above both: they hide a list written there."""
        for depth in range(0 if instance is None else len(path.names)):
            place = path.kind, path.names[:depth]
            shared, own = self.exact.get((None, *place)), self.below.get((instance, *place))
            if shared is not None and own is not None and (last := bisect.bisect_left(shared.entries, before)):
                yield own, bisect.bisect_left(own.entries, shared.entries[last - 1])


@dataclass(frozen=True)
class Graph:
    """A plan in plan order. ``waits[rank]`` is what the Call of that rank waits for."""

    order: tuple[PlannedCall, ...]
    waits: tuple[tuple[Wait, ...], ...]
    writers: WriterIndex


@dataclass(frozen=True, slots=True)
class OpenRead:
    """An expression that no Call listed before its own satisfies: the context must, or a later Call.

    ``unwritten`` are its paths that no Call listed before may write. A template has one for each of its expressions.
    """

    position: int
    use: ReferenceUse
    tree: Expression
    unwritten: frozenset[Path]

    @property
    def paths(self) -> tuple[Path, ...]:
        elements = ELEMENT_KINDS if self.use.is_of_element else ()
        return tuple(path for path in paths(self.tree) if path.kind not in elements)

    def is_satisfied(self, has: Callable[[Path], bool]) -> bool:
        return is_provided(self.tree, lambda path: path not in self.unwritten or has(path))


class PlanListing:
    """The Calls of a plan in the order listed: what they write, wait for and leave open."""

    def __init__(self, calls: Sequence[PlannedCall]) -> None:
        self.calls = tuple(calls)
        self.writers = WriterIndex()
        self.waits: list[tuple[Wait, ...]] = []
        self.open_reads: list[OpenRead] = []
        for position, call in enumerate(calls):
            waits: dict[int, Wait] = {}
            paths_unwritten: list[Path] = []
            for path in paths_read(call):
                chains = self.writers.overlapping(path, call.instance)
                waits |= {id(chain): (chain, len(chain.entries)) for chain in chains}
                paths_unwritten += () if chains else (path,)
            self.waits.append(tuple(waits.values()))
            unwritten = frozenset(paths_unwritten)
            for use in call.reads if unwritten else ():
                reads = (OpenRead(position, use, tree, unwritten) for tree in use.expressions)
                self.open_reads += (read for read in reads if not read.is_satisfied(lambda _: False))
            self.writers.add(call, position)

    def to_graph(self) -> Graph:
        """The graph of Calls that are listed in plan order."""
        waits = []
        for rank, call in enumerate(self.calls):
            hiding = (wait for path in paths_read(call) for wait in self.writers.hiding(path, call.instance, rank))
            waits.append((*self.waits[rank], *hiding))
        return Graph(self.calls, tuple(waits), self.writers)

    def is_written_by_another(self, path: Path, position: int) -> bool:
        """True when a Call other than the one at ``position`` may write what it reads at ``path``."""
        chains = self.writers.overlapping(path, self.calls[position].instance)
        return any(len(chain.entries) > 1 or chain.entries[0] != position for chain in chains)

    def later_waits(self, read: OpenRead) -> list[Wait]:
        """What a read waits for by the forward rule; empty when no Call listed later writes it."""
        instance = self.calls[read.position].instance
        chains = [chain for path in read.paths for chain in self.writers.overlapping(path, instance)]
        return [(chain, len(chain.entries)) for chain in chains if chain.entries[-1] > read.position]


def build_graph(calls: Sequence[PlannedCall], has: Has) -> tuple[Graph, list[Problem]]:
    """The graph of a plan, and a cycle as a problem: the graph then lacks the Calls of the cycle."""
    listing = PlanListing(calls)
    return order_calls(listing, unsatisfied_reads(listing, has))


def unsatisfied_reads(listing: PlanListing, has: Has) -> list[OpenRead]:
    """The open reads that the context does not satisfy: the forward rule applies to them."""

    def is_satisfied(read: OpenRead) -> bool:
        return read.is_satisfied(lambda path: has(path, listing.calls[read.position].instance))

    return [read for read in listing.open_reads if not is_satisfied(read)]


def order_calls(listing: PlanListing, unsatisfied: Sequence[OpenRead]) -> tuple[Graph, list[Problem]]:
    """The graph and the cycles of a listing, where the forward rule applies to ``unsatisfied`` reads."""
    forward: dict[int, list[Wait]] = {}
    for read in unsatisfied:
        waits = listing.later_waits(read)
        if waits:
            forward.setdefault(read.position, []).extend(waits)
    if not forward:
        return listing.to_graph(), []
    sorter, problems = _prepare_sorter(listing, forward)
    order: list[PlannedCall] = []
    ready: list[int] = []
    while (nodes := sorter.get_ready()) or ready:
        for node in nodes:
            if isinstance(node, int):
                heapq.heappush(ready, node)
            else:
                sorter.done(node)
        if not nodes:  # always the first-listed Call whose waits are over
            position = heapq.heappop(ready)
            order.append(listing.calls[position])
            sorter.done(position)
    return PlanListing(order).to_graph(), problems


def paths_read(call: PlannedCall) -> tuple[Path, ...]:
    """Every path a Call reads, once each: its parameters' and its scopes'."""
    return tuple(dict.fromkeys([*[path for use in call.reads for path in use.paths], *call.scopes]))


def _prepare_sorter(
    listing: PlanListing, forward: Mapping[int, Sequence[Wait]]
) -> tuple[TopologicalSorter[int | _Prefix], list[Problem]]:
    """What sorts the Calls by their waits; and a cycle, as a problem.

    What is sorted are positions and prefixes of chains: a prefix of n entries follows the one of n - 1.
    """
    calls = listing.calls
    sorter: TopologicalSorter[int | _Prefix] = TopologicalSorter()
    chains: dict[int, WriterChain] = {}
    reversed_chains: dict[int, WriterChain] = {}
    for position, waits in enumerate(listing.waits):
        sorter.add(position)
        for chain, count in (*waits, *forward.get(position, ())):
            at = bisect.bisect_left(chain.entries, position, 0, count)
            parts = [(chain, count)]
            if at < count and chain.entries[at] == position:  # all but itself: the rest begins the reversed chain
                backwards = reversed_chains.setdefault(id(chain), WriterChain(chain.path, chain.entries[::-1]))
                parts = [(chain, at), (backwards, len(chain.entries) - at - 1)]
            for part, length in parts:
                chains[id(part)] = part
                sorter.add(position, (id(part), length))
    for id_, chain in chains.items():
        for count, entry in enumerate(chain.entries):
            sorter.add((id_, count + 1), entry, (id_, count))
    problems = []
    try:
        sorter.prepare()
    except CycleError as error:  # what is in no cycle, nor behind one, can be sorted all the same
        problems.append(_cycle_problem(calls, error.args[1][1:], {id_: chain.path for id_, chain in chains.items()}))
    return sorter, problems


def _cycle_problem(calls: Sequence[PlannedCall], cycle: list[int | _Prefix], chains: Mapping[int, Path]) -> Problem:
    first = cycle.index(min(node for node in cycle if isinstance(node, int)))
    steps: list[str] = []
    reader, path = calls[cast("int", cycle[first])], Path("")
    for node in reversed([*cycle[first:], *cycle[:first]]):  # from the reader to what it waits for
        if isinstance(node, int):
            steps.append(f"{reader.id} reads {path}, written by {calls[node].id}")
            reader = calls[node]
        else:
            path = chains[node[0]]
    text = f"calls wait for each other: {'; '.join(steps[:10])}"
    hint = "one of them must read something that is there before, or be listed after its writer"
    return Problem("cycle", text, reader.pointer, reader.id, hint)
