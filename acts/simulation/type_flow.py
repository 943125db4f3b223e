"""Whether references fit the parameters that read them: who writes a path, and values of which types.

A problem is *certain* when no writer of the path, nor the context, can give a value that fits the
parameter, or any value at all: such a Call cannot run, whatever the Tools return. Of a value that
several writes build up only the type is known; of one with too many writers, nothing.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import Problem
from acts.language.output_methods import OUTPUT_METHODS
from acts.language.reference_uses import ELEMENT_KINDS, INDEX, contains_reference
from acts.language.references import AllOf, Expression, Path, TextTemplate, operands
from acts.language.schemas import with_null
from acts.language.values import ABSENT, Json, Names, pointer
from acts.plan.call_expressions import MAX_ELEMENTS
from acts.plan.context_log import START
from acts.simulation.schema_compatibility import (
    ANY,
    NOTHING,
    OPEN,
    UNDECLARED,
    Alternatives,
    Incompatibility,
    TypeAlternative,
    alternatives_at,
    exact_type,
    find_incompatibility,
    type_alternatives,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from acts.language.reference_uses import ReferenceUse
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

# Writers of one path that are followed, the nearest first; with more, the value may be
# anything. Following all of them would be quadratic in a plan that fills one place.
MAX_WRITERS: Final = 4

# The types that each method of writing can be applied to
_TARGETS: Final = {
    name: tuple(TypeAlternative(type_, {}) for type_ in (*method.extends, "null"))
    for name, method in OUTPUT_METHODS.items()
    if method.extends
}
_LIST: Final = (TypeAlternative("list", {}),)
# Elements of a list in the context whose types are compared
MAX_ITEMS: Final = 32
# What a failure writes to an error path
_FAILURE: Final[dict[str, Any]] = {
    "type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": True},
    "required": ["code", "message"],
}  # fmt: skip
_ANYTHING: Final = (ANY,)
_OBJECT: Final = (TypeAlternative("object", {}),)
_HINT: Final = "read another path, or change the _output of the one tool or the parameter of the other"


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
        types = {"found": self.incompatibility.produced, "expected": self.incompatibility.accepted}
        return {**self.problem.to_json(), "producer": self.producer, **types}


@dataclass(frozen=True, slots=True)
class _Producer:
    """A Call, or the context, and what it may put at the path that is read."""

    name: str
    types: Alternatives


def find_type_problems(prepared: ValidatedPlan) -> list[TypeProblem]:
    """Each parameter, and each path to add to, that a producer cannot or may not fit; in plan order."""
    flow = _TypeFlow(prepared)
    out: list[TypeProblem | None] = []
    for rank, node in enumerate(prepared.nodes):
        out += [flow.check_read(rank, read) for read in node.reads]
        out += [flow.check_target(rank, path) for path in node.writes] if node.method in _TARGETS else []
    return [problem for problem in out if problem is not None]


class _TypeFlow:
    """Follows references to the Calls that write their paths. Remembers types by Tool."""

    def __init__(self, prepared: ValidatedPlan) -> None:
        self.prepared = prepared
        self.log = prepared.initial_log
        self._parameter_types: dict[tuple[str, tuple[str | int, ...]], Alternatives] = {}
        self._output_types: dict[tuple[str, Names, str, bool, bool, bool], Alternatives] = {}
        # With the compared types: as long as they live, their ids are theirs
        self._derived: dict[tuple[Hashable, int], tuple[Json, Alternatives]] = {}
        self._results: dict[tuple[int, int], tuple[Alternatives, Alternatives, Incompatibility | None]] = {}

    def check_read(self, rank: int, read: ReferenceUse) -> TypeProblem | None:
        """Why the value of a reference may not fit its parameter, or cannot exist."""
        node = self.prepared.nodes[rank]
        if read is node.condition:
            return None  # of what is absent or of another type, it is false
        accepted = self._types_of_parameter(node, read.at)
        is_text = isinstance(read.tree, TextTemplate)  # whether a text fits is checked by the validation
        for tree in read.expressions:
            producers = self._producers(rank, tree)
            if accepted == (ANY,) or is_text:
                misfits = _absences(producers)
            else:
                misfits = [(p, m) for p in producers if (m := self._compare(p.types, accepted)) is not None]
            if misfits:
                return self._type_problem(rank, read, producers, misfits)
        return None

    def _type_problem(
        self, rank: int, read: ReferenceUse, producers: Sequence[_Producer],
        misfits: Sequence[tuple[_Producer, Incompatibility]],
    ) -> TypeProblem:  # fmt: skip
        node = self.prepared.nodes[rank]
        is_proof = len(misfits) == len(producers) and all(m.certain for _, m in misfits)
        # A list may be empty, and then nothing has to fit
        certain = is_proof and not read.is_of_element and not self._may_wait(producers)
        producer, misfit = next(((p, m) for p, m in misfits if m.certain), misfits[0])
        problem = Problem(
            "cannotFit" if certain else "mayNotFit", _message(read, producer.name, misfit, certain=certain),
            node.pointer + pointer(*read.at), node.id, _HINT, "error" if certain else "warning",
        )  # fmt: skip
        return TypeProblem(rank, producer.name, replace(misfit, certain=certain), problem)

    def check_target(self, rank: int, path: Path) -> TypeProblem | None:
        """Why a method may not be applied at a path. Never certain: the path may hold nothing yet."""
        node = self.prepared.nodes[rank]
        for producer in self._producers_of_path(rank, path):
            misfit = self._compare(producer.types, _TARGETS[node.method])
            if misfit is not None and misfit.certain:
                text = f"{node.method} at {path} needs {misfit.accepted}; {producer.name} may write {misfit.produced}"
                problem = Problem("mayNotFit", text, f"{node.pointer}/_outputMethod", node.id, severity="warning")
                return TypeProblem(rank, producer.name, replace(misfit, certain=False), problem)
        return None

    def _may_wait(self, producers: Sequence[_Producer]) -> bool:
        """True when the Call waits for somebody to provide the value that its producers do not write."""
        waits = self.prepared.request.config.missing == "wait"
        return waits and any(one.name == NOTHING for p in producers for one in p.types)

    def _derive(self, rule: Hashable, source: Any, derive: Callable[[Any], Alternatives]) -> Alternatives:
        """What a rule makes of types, or of a value: the same tuple each time, so that it is compared once."""
        key = (rule, id(source))
        if key not in self._derived:
            self._derived[key] = source, derive(source)
        return self._derived[key][1]

    def _without(self, producers: list[_Producer], names: tuple[str, ...]) -> list[_Producer]:
        """The producers without the types of these names; all as they are when nothing else is left."""
        useful: list[_Producer] = []
        for producer in producers:
            rest = producer.types
            if any(one.name in names for one in rest):
                rest = self._derive(("without", names), rest, lambda types: _leave_out(types, names))
            if rest:
                useful.append(producer if rest is producer.types else replace(producer, types=rest))
        return useful or producers

    def _compare(self, produced: Alternatives, accepted: Alternatives) -> Incompatibility | None:
        key = (id(produced), id(accepted))
        if key not in self._results:
            self._results[key] = (produced, accepted, find_incompatibility(produced, accepted))
        return self._results[key][2]

    def _types_of_parameter(self, node: PlannedCall, at: tuple[str | int, ...]) -> Alternatives:
        if at[0] == "_each":
            return _LIST if at == ("_each",) else (ANY,)
        key = (node.tool.name, at)
        if key not in self._parameter_types:
            schema = node.tool.parameters.schema
            types = alternatives_at(type_alternatives(schema, schema), tuple(str(t) for t in at))
            is_typed = bool(types) and not any(one.name in OPEN for one in types)
            self._parameter_types[key] = types if is_typed else (ANY,)
        return self._parameter_types[key]

    def _producers(self, rank: int, tree: Expression) -> list[_Producer]:
        """The producers of an expression's value."""
        if isinstance(tree, AllOf):
            return self._producers(rank, tree.terms[-1])
        if isinstance(tree, Path) and self.prepared.nodes[rank].is_each and tree.kind in ELEMENT_KINDS:
            return self._producers_of_element(rank, tree)
        if isinstance(tree, Path):
            return self._without(self._producers_of_path(rank, tree), (NOTHING, UNDECLARED))
        producers = [p for term in operands(tree) for p in self._producers(rank, term)]
        return self._without(producers, (NOTHING, UNDECLARED, "null"))

    def _producers_of_element(self, rank: int, path: Path) -> list[_Producer]:
        """The producers of what a path of an element yields: those of the list."""
        if path.kind == INDEX:
            return [_Producer("_each", alternatives_at((TypeAlternative("number", {}),), path.names))]
        return [
            replace(
                p, types=self._derive(("item", path.names), p.types, lambda types: _types_in_lists(types, path.names))
            )
            for p in self._producers_of_list(rank)
        ]

    def _producers_of_list(self, rank: int) -> list[_Producer]:
        """The producers of the list of a Call with ``_each``."""
        node = self.prepared.nodes[rank]
        each = node.call["_each"]
        if isinstance(each, list):
            return [_Producer("_each", (ANY if contains_reference(each) else exact_type(each),))]
        (use,) = (use for use in node.reads if use.at == ("_each",))
        return self._producers(rank, use.tree)

    def length_of_list(self, rank: int) -> tuple[int, int]:
        """The least and the greatest length of the list of a Call with ``_each``, as far as schemas say."""
        types = [one for producer in self._producers_of_list(rank) for one in producer.types]
        lengths = [length for one in types if (length := _length(one)) is not None] or [(0, MAX_ELEMENTS)]
        return min(low for low, _ in lengths), min(MAX_ELEMENTS, max(high for _, high in lengths))

    def _producers_of_path(self, rank: int, path: Path) -> list[_Producer]:
        node, chains = self.prepared.nodes[rank], self.prepared.graph.writers
        below = self._producer_below(rank, path, node.instance)
        out, one_write = [], below is None
        for chain in chains.above(path, node.instance, itself=True):
            count = bisect.bisect_left(chain.entries, rank)
            tail = path.names[len(chain.path.names) :]
            if count > MAX_WRITERS:
                out.append(_Producer("other calls", _ANYTHING))
            for writer in reversed(chain.entries[max(0, count - MAX_WRITERS) : count]):
                out.append(_Producer(self.prepared.nodes[writer].id, self._types_written(writer, chain.path, tail)))
                one_write = one_write and self.prepared.nodes[writer].method == "set"
        value = self.log.read(path, START, node.instance)
        if value is not ABSENT:
            types = self._derive("value", value, lambda value: (exact_type(value),)) if node.instance is None else None
            out.append(_Producer("the context", types or (exact_type(value),)))
        if not one_write:
            out = [_Producer(p.name, self._derive("contents", p.types, _without_contents)) for p in out]
        return out if below is None else [*out, below]

    def _producer_below(self, rank: int, path: Path, instance: str | None) -> _Producer | None:
        """A Call that writes strictly below a path, and so makes it an object."""
        for chain in self.prepared.graph.writers.at_or_below(path, instance):
            count = bisect.bisect_left(chain.entries, rank)
            for writer in reversed(chain.entries[max(0, count - MAX_WRITERS) : count]):
                if any(path.holds(w) and w != path for w in self.prepared.nodes[writer].writes):
                    return _Producer(self.prepared.nodes[writer].id, _OBJECT)
        return None

    def _types_written(self, writer: int, path: Path, tail: Names) -> Alternatives:
        """What a Call may put at ``tail`` below the ``path`` that it writes."""
        node = self.prepared.nodes[writer]
        outcomes = [i for i, outcome in enumerate(node.outcomes) if path in outcome]
        result, failure = any(i < node.result_outcome_count for i in outcomes), node.error in outcomes
        if writer in self.prepared.literal_outputs:
            return _after_method(alternatives_at((exact_type(node.call["_output"]),), tail), node.method, tail)
        key = (node.tool.name, tail, node.method, result, failure, node.is_each)
        if key not in self._output_types:
            schema = with_null(node.tool.output)
            results = type_alternatives(schema, schema)
            if node.is_each:
                results = (TypeAlternative("list", {"items": schema}, schema),)
            types = alternatives_at(results, tail) if result else ()
            types += alternatives_at(type_alternatives(_FAILURE, _FAILURE), tail) if failure else ()
            self._output_types[key] = _after_method(types, node.method, tail)
        return self._output_types[key]


def find_list_lengths(prepared: ValidatedPlan) -> dict[int, tuple[int, int]]:
    """The least and the greatest length of the list of each Call with ``_each``, by rank, as far as schemas say."""
    flow = _TypeFlow(prepared)
    return {rank: flow.length_of_list(rank) for rank, node in enumerate(prepared.nodes) if node.is_each}


def _types_in_lists(types: Alternatives, names: Names) -> Alternatives:
    return _bounded(inner for one in types for inner in _types_in_list(one, names))


def _types_in_list(one: TypeAlternative, names: Names) -> Iterator[TypeAlternative]:
    """The types at ``names`` inside the elements of a list."""
    if isinstance(one.exact, list):
        for item in one.exact[:MAX_ITEMS]:
            yield from alternatives_at((exact_type(item),), names)
    else:
        yield from alternatives_at((one,), ("0", *names))


def _bounded(types: Iterable[TypeAlternative]) -> Alternatives:
    listed = tuple(types)
    return listed if 0 < len(listed) <= MAX_ITEMS else (ANY,)


def _length(one: TypeAlternative) -> tuple[int, int] | None:
    """The least and the greatest length of a list; None of what is none."""
    if isinstance(one.exact, list):
        return len(one.exact), len(one.exact)
    if one.name not in ("list", ANY.name):
        return None
    schema = one.schema if isinstance(one.schema, dict) else {}
    low, high = schema.get("minItems", 0), schema.get("maxItems", MAX_ELEMENTS)
    return int(low), int(high)


def _after_method(types: Alternatives, method: str, tail: Names) -> Alternatives:
    """The types at a path after a write whose method may add to an earlier value."""
    if method == "set":
        return types
    if tail:
        return (ANY,)
    return (TypeAlternative("list", {}),) if OUTPUT_METHODS[method].adds_element else _without_contents(types)


def _without_contents(types: Alternatives) -> Alternatives:
    """The same types, with nothing known of what is inside."""
    return tuple(ANY if one.name in (NOTHING, UNDECLARED) else TypeAlternative(one.name, {}) for one in types)


def _leave_out(types: Alternatives, names: tuple[str, ...]) -> Alternatives:
    return tuple(one for one in types if one.name not in names)


def _absences(producers: Sequence[_Producer]) -> list[tuple[_Producer, Incompatibility]]:
    """The incompatibilities of an untyped parameter: all producers leave nothing at its path, or none is reported."""
    if not all(p.types and all(one.name == NOTHING for one in p.types) for p in producers):
        return []
    return [(p, Incompatibility(True, (), NOTHING, "a value")) for p in producers]


def _message(read: ReferenceUse, producer: str, misfit: Incompatibility, *, certain: bool) -> str:
    inner = f' at "{".".join(misfit.at)}"' if misfit.at else ""
    gives = f"{'gives' if certain else 'may give'} {misfit.produced}"
    if misfit.produced == UNDECLARED:
        gives = "does not declare it"
    name = ".".join(str(t) for t in read.at)
    return f'"{name}" takes {misfit.accepted}{inner}; {producer} {gives} at {read.text}'
