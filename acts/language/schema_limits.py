"""Which JSON Schemas may be used, and how much work each makes: everything here happens before a value is checked.

A schema becomes a graph: a node is one subschema. Keywords that apply to the same value (``allOf``, ``$ref`` …) lead to
other nodes *in place*, the others (``properties``, ``items`` …) to nodes for the parts of a value.

The looks of a validator at a part of a value are at most the number of paths in the graph that lead to it:

    f(0, n) = own(n) + sum of f(0, m)             over the nodes m in place
    f(d, n) = sum of f(d, m) in place + those of f(d - 1, c) for the nodes c that can meet at one part below

``Load.looks[d]`` is f(d, root). A schema that doubles for one value is refused; one that doubles per level of a value
is usable, and refuses the values that are too deep for it. Patterns run in Rust's ``regex``, in linear time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final
from urllib.parse import unquote

import jsonschema_rs

from acts.language.errors import TooComplex, brief, truncate
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, MAX_DEPTH, Json, Place, get, pointer, type_name

# Subschemas of one schema: the largest that people or generators write have some thousands. A node takes 2 kB
MAX_SUBSCHEMAS: Final = 20_000
# Subschemas that one value is checked with, ``$ref`` and ``allOf`` written out. Ten times what any use has
MAX_EXPANSION: Final = 10_000
# Nodes that follow each other in place (``$ref`` to ``$ref`` …): the validator recurses through them
MAX_CHAIN: Final = 40
# Bytes of the compiled patterns of one schema: two thousand plain ones
MAX_PATTERN_BYTES: Final = 32 * 1024 * 1024
# Looks at one value, at 20 to 100 ns each, and steps of patterns, at 8 ns: about half a second
MAX_LOOKS: Final = 8_000_000
MAX_PATTERN_STEPS: Final = 40_000_000
# Bytes that one compiled pattern may take, tried in this order: ``[a-z]+``, ``[a-z]{2,40}``, ``\p{L}+``, ``.{0,4000}``
_PATTERN_SIZES: Final = (1024, 16 * 1024, 64 * 1024, 512 * 1024, 4 * 1024 * 1024)
# Bytes of a compiled pattern that a character may meet in one step
_BYTES_PER_STEP: Final = 512
# Bytes of the automaton that the engine builds while it matches; beyond them it goes on more slowly
_AUTOMATON_BYTES: Final = 1024 * 1024
# Above this a number of looks says nothing: no value could be checked
_UNBOUNDED: Final = 10**9
# Nodes times levels that are counted, at 1 µs each
_MAX_COUNTS: Final = 200_000
# Looks at each part that nobody needs to count
_LIGHT: Final = 16
# Bytes of ``enum`` and its like that are compared in one look
_BYTES_PER_LOOK: Final = 40
# Looks that ``multipleOf`` is worth, as measured: it computes with fractions of up to 600 digits
_MULTIPLE_OF: Final = 500
_LARGEST_WORD: Final = 2**63

PATTERN_OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZES[-1], dfa_size_limit=_AUTOMATON_BYTES)

# Keywords whose argument is a schema, a list of schemas, or a map of names to schemas
NESTED: Final = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPPED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_PLACE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "propertyNames"}
)
# One of these looks at a part of a value; of the other keywords each does
_ONE_OF_PARTS: Final = frozenset({"properties", "additionalProperties", "prefixItems", "items"})
_COMPARED: Final = (
    "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "required", "dependentRequired",
)  # fmt: skip


class SchemaError(ValueError):
    """A schema that cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Load:
    """The looks at one part of a value, by its depth, and the steps of patterns for one character there.

    The last number counts for all deeper levels. ``parts`` are the subschemas; ``bytes`` those of compiled patterns.
    """

    looks: tuple[int, ...] = (1,)
    pattern_steps: tuple[int, ...] = (0,)
    parts: int = 0
    bytes: int = 0
    has_unique_items: bool = False
    has_alternatives: bool = False

    @property
    def is_light(self) -> bool:
        """True when a value of any size may be checked: 2 MiB of the smallest parts take a third of a second."""
        is_cheap = self.looks[0] <= MAX_EXPANSION and max(self.looks[1:], default=0) <= _LIGHT
        return is_cheap and not any(self.pattern_steps) and not self.has_unique_items

    def count_looks(self, value: Json) -> int:
        """Return the looks at a value, at most.

        Raises:
            TooComplex: it may take over half a second to check.
        """
        looks = pattern_steps = long_numbers = depth = 0
        level = [value]
        while level:
            looks += len(level) * max(1, self.looks[min(depth, len(self.looks) - 1)])
            of_character = self.pattern_steps[min(depth, len(self.pattern_steps) - 1)]
            below: list[Json] = []
            for part in level:
                if isinstance(part, (dict, list)):
                    below.extend(part.values() if isinstance(part, dict) else part)
                    if of_character and isinstance(part, dict):
                        pattern_steps += of_character * sum(map(len, part))
                elif isinstance(part, str):
                    pattern_steps += of_character * len(part)
                elif isinstance(part, int):
                    long_numbers += abs(part) >= _LARGEST_WORD
            # The library compares each pair of long numbers in a list whose items must be unique
            _refuse_work(looks + self.has_unique_items * long_numbers**2, pattern_steps)
            level, depth = below, depth + 1
        return looks


def _refuse_work(looks: int, pattern_steps: int) -> None:
    if looks > MAX_LOOKS:
        text = f"checking the value with its schema takes more than the {MAX_LOOKS:,} steps allowed"
        raise TooComplex(f"{text}: it has too many parts, or its schema too many alternatives for each")
    if pattern_steps > MAX_PATTERN_STEPS:
        text = f"checking the texts with their patterns takes more than the {MAX_PATTERN_STEPS:,} steps allowed"
        raise TooComplex(f"{text}: shorten the texts, or the repetitions of the patterns")


def measure_schema(schema: Json) -> Load:
    """Return the load of a schema.

    Raises:
        SchemaError: it is no JSON Schema, leads out of itself, refers to itself in place, or has a bad pattern.
        TooComplex: it breaks a limit.
    """
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(f"a schema is an object, not {type_name(schema)}")
    _refuse_invalid(schema)
    nodes = _Graph(schema).nodes
    order = _order_nodes(nodes)
    keywords = {key for node in nodes if isinstance(node.schema, dict) for key in node.schema}
    return Load(
        _count_paths(order, [_own_looks(node) for node in order]),
        _count_paths(order, [-(-node.pattern_bytes // _BYTES_PER_STEP) for node in order]),
        len(nodes),
        sum(node.pattern_bytes for node in nodes),
        "uniqueItems" in keywords,
        not keywords.isdisjoint({"anyOf", "oneOf"}),
    )


@dataclass(slots=True, eq=False)
class _Node:
    """A subschema, the nodes it leads to in place, and those for the parts of a value."""

    index: int
    schema: Json
    in_place: list[_Node] = field(default_factory=list)
    one_of_parts: list[_Node] = field(default_factory=list)
    all_of_parts: list[_Node] = field(default_factory=list)
    pattern_bytes: int = 0


class _Graph:
    """The nodes of one schema."""

    def __init__(self, schema: Json) -> None:
        self.nodes: list[_Node] = []
        self._schema = schema
        self._by_id: dict[int, _Node] = {}
        self._pattern_bytes = 0
        self._node(schema, ())
        for node in self.nodes:  # it grows: a reference may lead to where no keyword does
            if isinstance(node.schema, dict) and "$ref" in node.schema:
                node.in_place.append(self._target(node.schema["$ref"]))

    def _node(self, schema: Json, place: Place) -> _Node:
        """Return the node of a subschema, new or not."""
        if id(schema) in self._by_id:
            return self._by_id[id(schema)]
        if len(self.nodes) >= MAX_SUBSCHEMAS:
            raise TooComplex(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas")
        node = self._by_id[id(schema)] = _Node(len(self.nodes), schema)
        self.nodes.append(node)
        for key, argument in schema.items() if isinstance(schema, dict) else ():
            nodes = [self._node(part, (*place, *at)) for at, part in parts_of_keyword(key, argument)]
            if key in _IN_PLACE:
                node.in_place += nodes
            elif key in _ONE_OF_PARTS:
                node.one_of_parts += nodes
            elif key not in ("$defs", "definitions"):
                node.all_of_parts += nodes
            for text in [argument] if key == "pattern" else argument if key == "patternProperties" else ():
                self._add_pattern(node, text, (*place, key))
        return node

    def _add_pattern(self, node: _Node, text: str, place: Place) -> None:
        size = measure_pattern(text)
        if size is None:
            raise SchemaError(
                f"{pointer(*place)}: the pattern {truncate(text, 80)!r} is not one that is checked in bounded time: a "
                "regular expression of ECMA-262 without look-around and back-references, and at most "
                f"{_PATTERN_SIZES[-1]:,} bytes when it is compiled; maxLength bounds a length"
            )
        node.pattern_bytes += size
        self._pattern_bytes += size
        if self._pattern_bytes > MAX_PATTERN_BYTES:
            raise TooComplex(f"the patterns of the schema take more than {MAX_PATTERN_BYTES:,} bytes when compiled")

    def _target(self, reference: str) -> _Node:
        """Return the node that a ``$ref`` leads to."""
        if not reference.startswith("#"):
            raise SchemaError(f'$ref {brief(reference)} leads out of the schema; only "#…" is followed')
        target = find_part(self._schema, reference)
        if not isinstance(target, (dict, bool)):
            raise SchemaError(f"$ref {brief(reference)} leads to no schema")
        if id(target) not in self._by_id:
            _refuse_invalid(target)  # at a place that the metaschema does not look at
        return self._node(target, (reference,))


def parts_of_keyword(key: str, argument: Json) -> Iterator[tuple[Place, Json]]:
    """Yield the schemas that are the argument of a keyword, each with its place, such as ``("allOf", 0)``."""
    if key in NESTED:
        yield (key,), argument
    elif key in LISTED and isinstance(argument, list):
        yield from (((key, i), part) for i, part in enumerate(argument))
    elif key in MAPPED and isinstance(argument, dict):
        yield from (((key, name), part) for name, part in argument.items())


def find_part(root: Json, ref: str) -> Json:
    """Return the part of a schema that a reference ``#/…`` leads to; ABSENT where it leads nowhere."""
    before, *tokens = unquote(ref.removeprefix("#")).split("/")
    return ABSENT if before else get(root, tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))


def _refuse_invalid(schema: Json) -> None:
    """Raise SchemaError for what the metaschema does not allow."""
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        place = error.instance_path
        reason = truncate(error.message, 200)
        if place[-1:] == ["type"]:
            types = "array, boolean, integer, null, number, object, string"
            reason = f"{brief(get(schema, tuple(map(str, place))))} is no type; known: {types}"
        raise SchemaError(f"{pointer(*place) or 'the schema'}: {reason}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(truncate(str(error).split("\n", 1)[0], 200)) from error


@lru_cache(maxsize=512)
def measure_pattern(text: str) -> int | None:
    """Return about the bytes of a compiled pattern; None when the engine does not take it."""
    return next((size for size in _PATTERN_SIZES if _compiles(text, size)), None)


def _compiles(text: str, size: int) -> bool:
    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_AUTOMATON_BYTES)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text}, pattern_options=options)
    except ValueError:
        return False
    return True


# -- the load ----------------------------------------------------------------------


def _order_nodes(nodes: Sequence[_Node]) -> list[_Node]:
    """Return the nodes, each after those that it leads to in place.

    Raises:
        SchemaError: a node leads to itself.
        TooComplex: too many follow each other, or one leads to too many.
    """
    try:
        order = list(TopologicalSorter({node: node.in_place for node in nodes}).static_order())
    except CycleError as error:
        text = "a schema refers to itself for the same value, by $ref, allOf or their like"
        raise SchemaError(text) from error
    heights, expansions = [0] * len(nodes), [0] * len(nodes)
    for node in order:
        heights[node.index] = 1 + max((heights[child.index] for child in node.in_place), default=0)
        expansions[node.index] = 1 + sum(expansions[child.index] for child in node.in_place)
        if heights[node.index] > MAX_CHAIN:
            raise TooComplex(f"more than {MAX_CHAIN} subschemas follow each other for one value ($ref, allOf …)")
        if expansions[node.index] > MAX_EXPANSION:
            text = f"one value is checked with {expansions[node.index]:,} subschemas, $ref and allOf written out"
            raise TooComplex(f"{text}; at most {MAX_EXPANSION:,} are allowed")
    return order


def _count_paths(order: Sequence[_Node], own: Sequence[int]) -> tuple[int, ...]:
    """Return f(d, root) for each depth d, see the top of the file; the last one counts for all deeper levels."""
    if not any(own):
        return (0,)
    counts: list[int] = []
    before: list[int] = []
    for _ in range(min(MAX_DEPTH, max(8, _MAX_COUNTS // len(order)))):
        now = [0] * len(order)
        for node, own_looks in zip(order, own, strict=True):
            below = own_looks
            if before:
                below = max((before[child.index] for child in node.one_of_parts), default=0)
                below += sum(before[child.index] for child in node.all_of_parts)
            # What is not evaluated by the nodes in place is found by evaluating them once more
            is_twice = isinstance(node.schema, dict) and any(key.startswith("unevaluated") for key in node.schema)
            inner = (1 + is_twice) * sum(now[child.index] for child in node.in_place)
            now[node.index] = min(_UNBOUNDED, inner + below)
        counts.append(now[0])
        if not any(now) or now == before or now[0] >= _UNBOUNDED:
            return tuple(counts)
        before = now
    return (*counts, _UNBOUNDED)


def _own_looks(node: _Node) -> int:
    """Return the looks at a value with one node, without those of the nodes that it leads to."""
    schema = node.schema if isinstance(node.schema, dict) else {}
    compared = sum(json_size(schema[key]) for key in _COMPARED if key in schema) // _BYTES_PER_LOOK
    parts = len(node.one_of_parts) + len(node.all_of_parts)
    return 1 + parts + compared + (_MULTIPLE_OF if "multipleOf" in schema else 0)
