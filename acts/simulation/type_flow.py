"""Whether references fit the parameters that read them: who writes a path, and values of which types.

Only JSON types, the shape of objects and lists, and known values (``const``, ``enum``) count. Whatever is not
understood (a keyword, a depth, too many alternatives or writers) counts as fitting.

A problem is *certain* when no writer of the path, nor the context, can give a value that fits the parameter, or any
value at all: such a Call cannot run, whatever the Tools return.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from acts.language.errors import Problem, did_you_mean, find_similar, format_choices, truncate
from acts.language.references import (
    CHOICE,
    COMPARISONS,
    ELEMENT_KINDS,
    ITEM,
    Expression,
    Literal,
    Operation,
    Path,
    Projection,
    ReferenceUse,
    TextTemplate,
    joins_conditions,
    operands,
)
from acts.language.schemas import follow, with_null
from acts.language.values import ABSENT, LENGTH, UNKNOWN, Json, Names, get, list_index, pointer, type_name
from acts.plan.calls import PlannedCall
from acts.plan.context_log import START
from acts.plan.graph import WriterChain
from acts.plan.validate import ValidatedPlan

# Alternatives of one value, levels of nesting: beyond them, "fits"
MAX_ALTERNATIVES: Final = 32
MAX_LEVELS: Final = 16
# Writers of one path that are followed, the nearest first: all of them would be quadratic
MAX_WRITERS: Final = 4

_NAMES: Final = {"integer": "number", "array": "list"}  # a number may be whole
# Keywords that may declare properties elsewhere than in ``properties``
_ELSEWHERE: Final = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties",
    "unevaluatedProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class TypeAlternative:
    """One way a value may be.

    ``name`` is a JSON type, or ``any``, ``nothing`` (no value can be there) or
    ``undeclared`` (an open object may hold it, and its schema does not say so).
    """

    name: str
    schema: Json = None
    root: Json = None
    exact: Json = ABSENT

    def fits(self, other: TypeAlternative) -> bool:
        """True when a value that is this may be the other. What is inside is not compared."""
        return self.name == other.name and (ABSENT in (other.exact, self.exact) or other.exact == self.exact)


Alternatives = tuple[TypeAlternative, ...]
NOTHING: Final = "nothing"
UNDECLARED: Final = "undeclared"
ANY: Final = TypeAlternative("any")
# What else a value may be whose schema has properties and no type: there is nothing inside
NO_OBJECT: Final = TypeAlternative("any")
_NOTHING: Final = TypeAlternative(NOTHING)
# The alternatives that say nothing of a value's type
OPEN: Final = ("any", NOTHING, UNDECLARED)


def exact_type(value: Json) -> TypeAlternative:
    """The alternative of a value: that of its type, unless it cannot be known."""
    return ANY if value is UNKNOWN else TypeAlternative(type_name(value), {}, None, value)


def type_alternatives(schema: Json, root: Json, depth: int = 0) -> Alternatives:
    """Every way a value of this schema may be."""
    if not isinstance(schema, dict) or depth > MAX_LEVELS:
        return (ANY,)
    if "const" in schema:
        return (exact_type(schema["const"]),)
    if isinstance(schema.get("enum"), list):
        return _limit(map(exact_type, schema["enum"]))
    if "type" in schema:
        names: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return tuple(TypeAlternative(n, schema, root) for n in dict.fromkeys(_NAMES.get(n, n) for n in names))
    if isinstance(schema.get("$ref"), str):
        return type_alternatives(follow(root, schema["$ref"]), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _limit(one for part in schema[key] for one in type_alternatives(part, root, depth + 1))
    if "properties" in schema:
        return TypeAlternative("object", schema, root), NO_OBJECT
    every = (type_alternatives(part, root, depth + 1) for part in schema.get("allOf") or ())
    return next((types for types in every if ANY not in types), (ANY,))


def alternatives_at(types: Alternatives, names: Names) -> Alternatives:
    """Every way the value at ``names`` inside a value may be."""
    for name in names:
        types = _limit(inner for one in types for inner in _at_name(one, name))
    return types


def _limit(types: Iterable[TypeAlternative]) -> Alternatives:
    listed = tuple(islice(types, MAX_ALTERNATIVES + 1))
    return listed if 0 < len(listed) <= MAX_ALTERNATIVES else (ANY,)


def _at_name(one: TypeAlternative, name: str) -> Alternatives:
    if one.name in OPEN:
        return () if one is NO_OBJECT else (one,)
    if one.exact is not ABSENT:
        value = get(one.exact, (name,))
        return (_NOTHING,) if value is ABSENT else (exact_type(value),)
    if one.name == "list" and list_index(name) is not None:
        return (ANY,) if "prefixItems" in one.schema else type_alternatives(one.schema.get("items", True), one.root)
    if one.name != "object":
        return (TypeAlternative("number", {}) if one.name == "list" and name == LENGTH else _NOTHING,)
    declared, extra = one.schema.get("properties") or {}, one.schema.get("additionalProperties", True)
    if name in declared:
        return type_alternatives(declared[name], one.root)
    if isinstance(extra, dict) and "patternProperties" not in one.schema:
        return type_alternatives(extra, one.root)
    if extra is False and "patternProperties" not in one.schema:
        return (_NOTHING,)
    return (TypeAlternative(UNDECLARED),) if declared and not any(k in one.schema for k in _ELSEWHERE) else (ANY,)


class Incompatibility(NamedTuple):
    """Why a value may not fit, or (``certain``) never does: the types that it may have, and those that are accepted."""

    certain: bool
    produced: str
    accepted: str


def find_incompatibility(produced: Alternatives, accepted: Alternatives) -> Incompatibility | None:
    """Why a value that is one of ``produced`` may be none of ``accepted``, or None."""
    if any(other.name in OPEN for other in accepted):
        return None
    misfits = [one for one in produced if one.name != "any" and not any(map(one.fits, accepted))]
    if not misfits:
        return None
    clear = [one for one in misfits if one.name != UNDECLARED]
    if len(clear) == len(produced):
        return Incompatibility(True, _describe(produced), _describe(accepted))
    return Incompatibility(False, _describe((clear or misfits)[:1]), _describe(accepted))


def _describe(types: Sequence[TypeAlternative]) -> str:
    """``string or null``; known values as JSON."""
    words = (
        truncate(json.dumps(one.exact, ensure_ascii=False), 40)
        if one.exact is not ABSENT and one.name in ("string", "number", "boolean")
        else one.name
        for one in types
    )
    return truncate(" or ".join(dict.fromkeys(words)), 200)


# What a failure writes to an error path
_FAILURE: Final[dict[str, Any]] = {
    "type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": True},
}  # fmt: skip
CANNOT_FIT: Final = "cannotFit"
_HINT: Final = "read another path, or change the _output of the one tool or the parameter of the other"


class TypeProblem(NamedTuple):
    """A producer and a consumer, of this ``rank``, that do not go together; an error if the consumer cannot run.

    ``types`` are ``{producer, found?, expected?}``.
    """

    rank: int
    problem: Problem
    types: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {**self.problem.to_json(), **self.types}


# A Call, or the context, and what it may put at the path that is read
_Producer = tuple[str, Alternatives]


def find_type_problems(prepared: ValidatedPlan) -> list[TypeProblem]:
    """At most one for each reference of a plan, in plan order."""
    reads = [(rank, read) for rank, node in enumerate(prepared.nodes) for read in node.reads]
    problems = (_find_undeclared(prepared, rank, read) or _find_misfit(prepared, rank, read) for rank, read in reads)
    return [problem for problem in problems if problem is not None]


def _find_undeclared(prepared: ValidatedPlan, rank: int, read: ReferenceUse) -> TypeProblem | None:
    """A path of a reference that the ``_output`` of each of its writers does not have."""
    node = prepared.nodes[rank]
    for path in _paths_to_first(read.tree):
        source = _element_path(prepared, node, path) if node.is_each and path.kind in ELEMENT_KINDS else path
        producers = [] if source is None else _producers_of_path(prepared, rank, source)
        names = {one.name for _, types in producers for one in types}
        # That nothing can be there at all is an error of its own, but in a condition
        is_certain = names == {NOTHING} and all(isinstance(tree, Path) for tree in read.expressions)
        is_certain = is_certain and read is not node.condition
        if source is None or not names or is_certain or not names <= {NOTHING, UNDECLARED}:
            continue
        producer, text = producers[0][0], f"{path} is not in the _output of {producers[0][0]}"
        hint = _declared_hint(prepared, rank, source, path)
        place = node.pointer + pointer(*read.at)
        problem = Problem("undeclaredPath", text, place, node.id, hint, "warning")
        return TypeProblem(rank, problem, {"producer": producer})
    return None


def _paths_to_first(tree: Expression) -> Iterator[Path]:
    """The paths of an expression, those through a list to its first element."""
    if isinstance(tree, (Path, Projection)):
        yield tree if isinstance(tree, Path) else tree.of_first
    for part in () if isinstance(tree, Projection) else operands(tree):
        yield from _paths_to_first(part)


def _element_path(prepared: ValidatedPlan, node: PlannedCall, path: Path) -> Path | None:
    """Where the first element is that ``†item`` stands for, if a Call writes the list; None: it is not known."""
    each = next((use.tree for use in node.reads if use.at == ("_each",)), None)
    if path.kind != ITEM or not isinstance(each, Path) or prepared.initial_log.has_initially(each, node.instance):
        return None
    return Path(each.kind, (*each.names, "0", *path.names))


def _declared_hint(prepared: ValidatedPlan, rank: int, source: Path, path: Path) -> str:
    """What a writer of ``source``, which a Call reads as ``path``, declares there, with the most similar name."""
    hidden = len(source.names) - len(path.names)
    for chain, writer in _writers_above(prepared, rank, source):
        types = _types_written(prepared, writer, chain.path, ())
        for depth in range(len(chain.path.names), len(source.names)):
            name, rest = source.names[depth], source.names[depth + 1 :]
            inner = alternatives_at(types, (name,))
            if any(one.name not in (NOTHING, UNDECLARED) for one in inner):
                types = inner
                continue
            at = Path(path.kind, source.names[hidden:depth])
            if any(one.name == "list" for one in types):
                first = Path(path.kind, (*at.names, "0", name, *rest))
                return f'{at} is a list: "{first}" is of its first element'
            objects = [(one.schema or {}).get("properties") if one.exact is ABSENT else one.exact for one in types]
            declared = dict.fromkeys(key for part in objects if isinstance(part, dict) for key in part)
            near, listed = find_similar(name, declared), f"{at} has: {format_choices(declared)}"
            return listed if near is None else f"{did_you_mean(f'{Path(at.kind, (*at.names, near, *rest))}')} {listed}"
    return _HINT


def _find_misfit(prepared: ValidatedPlan, rank: int, read: ReferenceUse) -> TypeProblem | None:
    """Why the value of a reference may not fit its parameter, or cannot exist."""
    node = prepared.nodes[rank]
    if read is node.condition:
        return None  # of what is absent or of another type, it is false
    is_text = isinstance(read.tree, TextTemplate)  # whether a text fits is checked by the validation
    accepted = (ANY,) if is_text else _types_of_parameter(node, read.at)
    for tree in read.expressions:
        producers = _producers(prepared, rank, tree)
        misfits = [(name, m) for name, types in producers if (m := find_incompatibility(types, accepted)) is not None]
        if accepted == (ANY,) and all(one.name == NOTHING for _, types in producers for one in types):
            misfits = [(name, Incompatibility(True, NOTHING, "a value")) for name, _ in producers]
        if misfits:
            is_proof = len(misfits) == len(producers) and all(m.certain for _, m in misfits)
            # Somebody may provide the value that its producers do not write
            may_wait = prepared.request.config.missing == "wait"
            may_wait = may_wait and any(one.name == NOTHING for _, types in producers for one in types)
            certain = is_proof and not may_wait
            producer, misfit = next((pair for pair in misfits if pair[1].certain), misfits[0])
            gives = f"{'gives' if certain else 'may give'} {misfit.produced}"
            hint = _HINT
            if misfit.produced == NOTHING and isinstance(tree, Path):
                hint = _declared_hint(prepared, rank, tree, tree)
            text = f'"{".".join(map(str, read.at))}" takes {misfit.accepted}; {producer} {gives} at {read.text}'
            code, severity = (CANNOT_FIT, "error") if certain else ("mayNotFit", "warning")
            problem = Problem(code, text, node.pointer + pointer(*read.at), node.id, hint, severity)
            types = {"producer": producer, "found": misfit.produced, "expected": misfit.accepted}
            return TypeProblem(rank, problem, types)
    return None


def _types_of_parameter(node: PlannedCall, at: tuple[str | int, ...]) -> Alternatives:
    if at[0] == "_each":
        return (TypeAlternative("list", {}),) if at in (("_each",), ("_each", "of")) else (ANY,)
    schema = node.tool.parameters.schema
    types = type_alternatives(schema, schema)
    if any(one.name == "any" for one in types):  # a Call is an object
        types = (TypeAlternative("object", schema, schema),)
    types = alternatives_at(types, tuple(map(str, at)))
    return (ANY,) if any(one.name in OPEN for one in types) else types


def _producers(prepared: ValidatedPlan, rank: int, tree: Expression) -> list[_Producer]:
    """The producers of an expression's value, as far as they may give one."""
    if isinstance(tree, Operation) and tree.sign == "&&":
        own = [("the expression", (TypeAlternative("boolean", {}),))] if joins_conditions(tree) else []
        return own + _producers(prepared, rank, tree.terms[-1])
    if isinstance(tree, (Literal, Projection)) or (isinstance(tree, Operation) and tree.sign in ("!", *COMPARISONS)):
        return [("the expression", (_made_type(tree),))]
    if not isinstance(tree, Path):
        terms = tree.terms[1:] if isinstance(tree, Operation) and tree.sign == CHOICE else operands(tree)
        producers = [p for term in terms for p in _producers(prepared, rank, term)]
        dropped: tuple[str, ...] = (NOTHING, UNDECLARED, "null")
    elif prepared.nodes[rank].is_each and tree.kind in ELEMENT_KINDS:
        return [("_each", (ANY,))]
    else:
        producers, dropped = _producers_of_path(prepared, rank, tree), (NOTHING, UNDECLARED)
    rest = [(name, tuple(one for one in types if one.name not in dropped)) for name, types in producers]
    return [(name, types) for name, types in rest if types] or producers


def _made_type(tree: Literal | Projection | Operation) -> TypeAlternative:
    """The type of what an expression makes itself."""
    if isinstance(tree, Literal):
        return exact_type(tree.value)
    if isinstance(tree, Projection):
        return TypeAlternative("list", {}) if tree.makes_list else ANY
    return TypeAlternative("boolean", {})


def _producers_of_path(prepared: ValidatedPlan, rank: int, path: Path) -> list[_Producer]:
    """The producers of the value at a path; of one that several writes build up, nothing is known."""
    nodes, instance = prepared.nodes, prepared.nodes[rank].instance
    writers = prepared.graph.writers
    out: list[_Producer] = []
    for chain, writer in _writers_above(prepared, rank, path):
        tail = path.names[len(chain.path.names) :]
        out.append((nodes[writer].id, _types_written(prepared, writer, chain.path, tail)))
    if any(bisect.bisect_left(c.entries, rank) > MAX_WRITERS for c in writers.above(path, instance, itself=True)):
        out.append(("other calls", (ANY,)))
    for chain in writers.at_or_below(path, instance):
        before = chain.entries[: min(bisect.bisect_left(chain.entries, rank), MAX_WRITERS + 1)]
        written = [p for writer in before for p in nodes[writer].writes if path.holds(p) and p != path]
        if written or len(before) > MAX_WRITERS:
            out.append(("calls that write below it", (ANY,)))
    value = prepared.initial_log.read(path, START, instance)
    if value is not ABSENT:
        out.append(("the context", (exact_type(value),)))
    return out


def _writers_above(prepared: ValidatedPlan, rank: int, path: Path) -> Iterator[tuple[WriterChain, int]]:
    """The nearest writers of a path, or above it, before the Call of a rank."""
    for chain in prepared.graph.writers.above(path, prepared.nodes[rank].instance, itself=True):
        count = bisect.bisect_left(chain.entries, rank)
        for writer in chain.entries[max(0, count - MAX_WRITERS) : count][::-1]:
            yield chain, writer


def _types_written(prepared: ValidatedPlan, writer: int, path: Path, tail: Names) -> Alternatives:
    """What a Call may put at ``tail`` below the ``path`` that it writes."""
    node = prepared.nodes[writer]
    if node.method != "set":
        return (ANY,)
    if writer in prepared.literal_outputs:
        return alternatives_at((exact_type(node.call["_output"]),), tail)
    types: Alternatives = ()
    outcomes = [i for i, outcome in enumerate(node.outcomes) if path in outcome]
    if any(i < node.result_outcome_count for i in outcomes):
        schema = with_null(node.tool.output)
        of_list = (TypeAlternative("list", {"items": schema}, schema),)
        types = alternatives_at(of_list if node.is_each else type_alternatives(schema, schema), tail)
    if node.error in outcomes:
        types += alternatives_at(type_alternatives(_FAILURE, _FAILURE), tail)
    return types
