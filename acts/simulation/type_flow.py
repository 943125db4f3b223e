"""What a reference may be served with: the Calls that write what it names, and the context.

A misfit is *certain* when, from none of these places, any value could fit the parameter:
such a Call cannot run, whatever the Tools return. Where a value is put together from
several writes only its type is known, and where it has too many writers nothing is.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import Problem
from acts.language.references import AllOf, Expression, Path
from acts.language.schemas import with_null
from acts.language.values import ABSENT, Names, pointer
from acts.plan.context_log import START
from acts.simulation.schema_compatibility import (
    ANY,
    OPEN,
    UNDECLARED,
    Incompatibility,
    Kinds,
    TypeAlternative,
    exact,
    find_incompatibility,
    inside,
    kinds,
)

if TYPE_CHECKING:
    from acts.language.references import ReferenceUse
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

# Writers of one place that are looked at, the nearest first; with more, the value may be
# anything. Looking at all of them would be quadratic in a plan that fills one place.
MAX_WRITERS: Final = 4

# What the methods of writing can be applied to
_ADDS_TO: Final = {
    method: tuple(TypeAlternative(name, {}) for name in (*names, "null"))
    for method, names in {
        "push": ("list",), "concat": ("list", "string"), "merge": ("object", "list"), "assign": ("object",),
    }.items()
}  # fmt: skip
# What a failure writes to an error path
_FAILURE: Final[dict[str, Any]] = {
    "type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": True},
    "required": ["code", "message"],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """A producer and a consumer that do not go together; ``rank`` is the consumer's."""

    rank: int
    producer: str
    incompatibility: Incompatibility
    problem: Problem

    @property
    def certain(self) -> bool:
        """True when the consumer cannot run."""
        return self.incompatibility.certain

    def to_json(self) -> dict[str, Any]:
        """The problem, with the producer and both types."""
        types = {"found": self.incompatibility.found, "expected": self.incompatibility.expected}
        return {**self.problem.to_json(), "producer": self.producer, **types}


@dataclass(frozen=True, slots=True)
class _Source:
    producer: str
    kinds: Kinds


def find_type_problems(prepared: ValidatedPlan) -> list[TypeProblem]:
    """Each parameter, and each place to be added to, that an output cannot or may not fit; in plan order."""
    reader = _Reader(prepared)
    out: list[TypeProblem | None] = []
    for rank, node in enumerate(prepared.nodes):
        out += [reader.check(rank, read) for read in node.reads]
        out += [reader.place(rank, path) for path in node.writes] if node.method in _ADDS_TO else []
    return [m for m in out if m is not None]


class _Reader:
    """Follows references to the Calls that write what they name. Remembers by Tool."""

    def __init__(self, prepared: ValidatedPlan) -> None:
        self.prepared = prepared
        self.log = prepared.start
        self._wanted: dict[tuple[str, tuple[str | int, ...]], Kinds] = {}
        self._given: dict[tuple[str, Names, str, bool, bool], Kinds] = {}
        self._verdicts: dict[tuple[int, int], tuple[Kinds, Kinds, Incompatibility | None]] = {}

    def check(self, rank: int, read: ReferenceUse) -> TypeProblem | None:
        """Why what a parameter refers to may not fit it."""
        node = self.prepared.nodes[rank]
        wanted = self._parameter(node, read.at)
        if wanted == (ANY,):
            return None
        sources = self._sources(rank, read.tree)
        found = [(s, c) for s in sources if (c := self._verdict(s.kinds, wanted)) is not None]
        if not found:
            return None
        certain = len(found) == len(sources) and all(c.certain for _, c in found)
        source, why = next(((s, c) for s, c in found if c.certain), found[0])
        problem = Problem(
            "cannotFit" if certain else "mayNotFit", _text(read, source.producer, why, certain=certain),
            node.pointer + pointer(*read.at), node.id,
            "read another path, or change the _output of the one tool or the parameter of the other",
            "error" if certain else "warning",
        )  # fmt: skip
        return TypeProblem(rank, source.producer, replace(why, certain=certain), problem)

    def place(self, rank: int, path: Path) -> TypeProblem | None:
        """Why a method may not be applied at a path. Never certain: what stands there may not be written."""
        node = self.prepared.nodes[rank]
        wanted = _ADDS_TO[node.method]
        for source in self._path(rank, path):
            why = self._verdict(source.kinds, wanted)
            if why is not None and why.certain:
                text = f"{node.method} at {path} needs {why.expected}; {source.producer} may have put {why.found} there"
                problem = Problem("mayNotFit", text, f"{node.pointer}/_outputMethod", node.id, severity="warning")
                return TypeProblem(rank, source.producer, replace(why, certain=False), problem)
        return None

    def _verdict(self, given: Kinds, wanted: Kinds) -> Incompatibility | None:
        key = (id(given), id(wanted))
        if key not in self._verdicts:
            self._verdicts[key] = (
                given,
                wanted,
                find_incompatibility(given, wanted),
            )  # kept alive, so that an id stays one
        return self._verdicts[key][2]

    def _parameter(self, node: PlannedCall, at: tuple[str | int, ...]) -> Kinds:
        key = (node.tool.name, at)
        if key not in self._wanted:
            schema = node.tool.parameters.schema
            found = inside(kinds(schema, schema), tuple(str(t) for t in at))
            says = bool(found) and not any(k.name in OPEN for k in found)
            self._wanted[key] = found if says else (ANY,)
        return self._wanted[key]

    def _sources(self, rank: int, tree: Expression) -> list[_Source]:
        """Where the value of an expression may come from."""
        if isinstance(tree, AllOf):
            return self._sources(rank, tree.terms[-1])
        if isinstance(tree, Path):
            return _without(self._path(rank, tree), ("nothing", "undeclared"))
        found = [s for term in tree.terms for s in self._sources(rank, term)]
        return _without(found, ("nothing", "undeclared", "null"))

    def _path(self, rank: int, path: Path) -> list[_Source]:
        node, chains = self.prepared.nodes[rank], self.prepared.graph.chains
        below = self._below(rank, path, node.instance)
        out, whole = [], below is None
        for chain in chains.above(path, node.instance, itself=True):
            count = bisect.bisect_left(chain.entries, rank)
            tail = path.names[len(chain.path.names) :]
            if count > MAX_WRITERS:
                out.append(_Source("other calls", (ANY,)))
            for writer in reversed(chain.entries[max(0, count - MAX_WRITERS) : count]):
                out.append(_Source(self.prepared.nodes[writer].id, self._written(writer, chain.path, tail)))
                whole = whole and self.prepared.nodes[writer].method == "set"
        held = self.log.read(path, START, node.instance)
        if held is not ABSENT:
            out.append(_Source("the context", (exact(held),)))
        if not whole:  # put together from several writes: only the type is known
            out = [replace(s, kinds=_types(s.kinds)) for s in out]
        return out if below is None else [*out, below]

    def _below(self, rank: int, path: Path, instance: str | None) -> _Source | None:
        """A Call that writes strictly below a path: an object is there."""
        for chain in self.prepared.graph.chains.at_or_below(path, instance):
            count = bisect.bisect_left(chain.entries, rank)
            for writer in reversed(chain.entries[max(0, count - MAX_WRITERS) : count]):
                if any(path.holds(w) and w != path for w in self.prepared.nodes[writer].writes):
                    return _Source(self.prepared.nodes[writer].id, (TypeAlternative("object", {}),))
        return None

    def _written(self, writer: int, path: Path, tail: Names) -> Kinds:
        """What a Call may have put at the end of ``path`` and ``tail``."""
        node = self.prepared.nodes[writer]
        outcomes = [i for i, outcome in enumerate(node.outcomes) if path in outcome]
        result, failure = any(i < node.result_outcome_count for i in outcomes), node.error in outcomes
        if writer in self.prepared.given:
            return _grown(inside((exact(node.call["_output"]),), tail), node.method, tail)
        key = (node.tool.name, tail, node.method, result, failure)
        if key not in self._given:
            schema = with_null(node.tool.output)
            found = inside(kinds(schema, schema), tail) if result else ()
            found += inside(kinds(_FAILURE, _FAILURE), tail) if failure else ()
            self._given[key] = _grown(found, node.method, tail)
        return self._given[key]


def _grown(found: Kinds, method: str, tail: Names) -> Kinds:
    """What stands there after a write that adds to what was there before."""
    if method == "set":
        return found
    if tail:
        return (ANY,)
    return (TypeAlternative("list", {}),) if method == "push" else _types(found)


def _types(found: Kinds) -> Kinds:
    """The same without what is known of their inside."""
    return tuple(ANY if k.name in ("nothing", "undeclared") else TypeAlternative(k.name, {}) for k in found)


def _without(sources: list[_Source], names: tuple[str, ...]) -> list[_Source]:
    """Sources without kinds that another source would stand in for, where there is one."""
    useful = [
        s if not any(k.name in names for k in s.kinds) else replace(s, kinds=kept)
        for s in sources
        if (kept := tuple(k for k in s.kinds if k.name not in names))
    ]
    return useful or sources


def _text(read: ReferenceUse, producer: str, why: Incompatibility, *, certain: bool) -> str:
    inner = f' at "{".".join(why.at)}"' if why.at else ""
    gives = f"{'gives' if certain else 'may give'} {why.found}" if why.found != UNDECLARED else "does not declare it"
    name = ".".join(str(t) for t in read.at)
    return f'"{name}" takes {why.expected}{inner}; {producer} {gives} at {read.text}'
