"""How much work a schema can make of one part of a value: measured before it is used, by counting paths in its graph.

Theory of operation. A value is checked by looking at its parts with nodes. A node leads in place to others for the
same part (``allOf``, ``$ref`` …) and further to nodes for the parts below. So the looks at one part are at most the
number of paths in the graph that lead to it: with ``f(d, n)`` for those from node n to a part d levels down,

    f(0, n) = own(n) + sum of f(0, m)             over the nodes m in place
    f(d, n) = sum of f(d, m) in place + those of f(d - 1, c) for the nodes c that can meet at one part below

``Load.looks`` is the largest f of any node. Doubling (30 ``$defs`` whose ``allOf`` names the next one twice) shows
as 2 to the 30th in f(0), and is refused; a schema that doubles per level of the value shows in f(d), has no load, and
is checked step by step. ``Load.characters`` counts in the same way the positions of patterns for one character.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import TooComplex
from acts.language.schema_graph import Node, SchemaError, nodes_of
from acts.language.values import MAX_DEPTH, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.language.schema_graph import SchemaGraph
    from acts.language.work_meter import WorkMeter

# Subschemas that one value is checked with, ``$ref`` and ``allOf`` written out. Ten times what any use has
MAX_EXPANSION: Final = 10_000
# Nodes that follow each other in place (``$ref`` to ``$ref`` …): each takes a few frames of the stack
MAX_CHAIN: Final = 40
# Above this a load says nothing: the number of steps decides
_UNBOUNDED: Final = 1_000_000
# Nodes times levels that are counted, at 1 µs each: a schema of 2,000 that refers to itself, to the last level
_MAX_COUNTS: Final = 200_000
# Looks that one keyword is worth, as measured in jsonschema-rs: ``multipleOf`` computes with fractions, of up to 600
# digits
_MULTIPLE_OF: Final = 2_000
_FRACTION: Final = 5
_LARGEST_WORD: Final = 2**63


@dataclass(frozen=True, slots=True)
class Load:
    """The looks at one part of a value, and the positions of patterns that one character is compared with."""

    looks: int
    characters: int


def measure_load(graph: SchemaGraph, meter: WorkMeter) -> Load | None:
    """The load of a schema; None where it grows with the depth of the value, or cannot be bounded.

    Raises:
        SchemaError: it refers to itself in place, so that no check would end.
        TooComplex: one value is checked with more than MAX_EXPANSION subschemas.
    """
    order = _order_in_place(graph)
    looks = _count_paths(order, _own_looks, meter)
    if looks is None or any("uniqueItems" in n.schema for n in order if isinstance(n.schema, dict)):
        return None
    has_patterns = any(node.patterns for node in order)
    characters = _count_paths(order, _own_positions, meter) if has_patterns else 0
    return None if characters is None else Load(looks, characters)


def _order_in_place(graph: SchemaGraph) -> list[Node]:
    """All nodes, each after those that it leads to in place."""
    order: list[Node] = []
    height: dict[int, int] = {}  # by index: the longest chain in place from there; 0 while it is being followed
    for start in graph.nodes:
        stack = [start] if start.index not in height else []
        while stack:
            node = stack[-1]
            if height.get(node.index, 0):  # led to twice, and done since
                stack.pop()
            elif node.index in height:
                stack.pop()
                height[node.index] = 1 + max((height[child.index] for child in node.in_place()), default=0)
                if height[node.index] > MAX_CHAIN:
                    text = f"more than {MAX_CHAIN} subschemas follow each other for one value ($ref, allOf …)"
                    raise TooComplex(text)
                order.append(node)
            else:
                height[node.index] = 0
                for child in node.in_place():
                    if height.get(child.index, 1) == 0:
                        raise SchemaError("a schema refers to itself for the same value, by $ref, allOf or their like")
                    if child.index not in height:
                        stack.append(child)
    return order


def _count_paths(order: Sequence[Node], own: Callable[[Node], int], meter: WorkMeter) -> int | None:
    """The largest f of any node, see the top of the file; None where it is unbounded."""
    in_place = [[child.index for child in node.in_place()] for node in order]
    below = [_parts_below(node) for node in order]
    now = [0] * len(order)
    for node, inner in zip(order, in_place, strict=True):
        factor = 2 if "unevaluatedProperties" in node.sub or "unevaluatedItems" in node.sub else 1
        now[node.index] = own(node) + factor * sum(now[i] for i in inner)
        if len(inner) and now[node.index] > MAX_EXPANSION and own is _own_looks:
            _refuse_expansion(order, in_place)
    largest = max(now, default=0)
    for levels in range(MAX_DEPTH):
        if (levels + 1) * len(order) > _MAX_COUNTS:
            return None
        meter.spend(1 + len(order) // 2)
        before, now = now, [0] * len(order)
        for node, inner, parts in zip(order, in_place, below, strict=True):
            factor = 2 if "unevaluatedProperties" in node.sub or "unevaluatedItems" in node.sub else 1
            now[node.index] = factor * sum(now[i] for i in inner) + (_most_below(parts, before) if parts else 0)
        largest = max(largest, *now)
        if largest > _UNBOUNDED:
            return None
        if now == before or not any(now):
            break
    return largest


def _refuse_expansion(order: Sequence[Node], in_place: Sequence[Sequence[int]]) -> None:
    """Raise TooComplex when one value is checked with too many subschemas, each counted as one."""
    count = [0] * len(order)
    for node, inner in zip(order, in_place, strict=True):
        count[node.index] = 1 + sum(count[i] for i in inner)
        if count[node.index] > MAX_EXPANSION:
            written = f"{count[node.index]:,}" if count[node.index] < _UNBOUNDED else "millions of"
            text = f"one value is checked with {written} subschemas, $ref and allOf written out"
            raise TooComplex(f"{text}; at most {MAX_EXPANSION:,} are allowed")


_Parts = tuple[list[int], list[int], list[int], list[int]]


def _parts_below(node: Node) -> _Parts | None:
    """The nodes for the parts of a value: of which one applies, and of which all do; for objects, then for lists."""
    sub = node.sub

    def indexes(*keys: str) -> list[int]:
        return [child.index for key in keys if key in sub for child in nodes_of(sub[key])]

    one_of = indexes("properties", "additionalProperties")
    all_of = indexes("patternProperties", "propertyNames", "unevaluatedProperties")
    one_item, all_items = indexes("prefixItems", "items"), indexes("contains", "unevaluatedItems")
    return (one_of, all_of, one_item, all_items) if one_of or all_of or one_item or all_items else None


def _most_below(parts: _Parts, counts: Sequence[int]) -> int:
    one_of, all_of, one_item, all_items = parts
    in_object = max((counts[i] for i in one_of), default=0) + sum(counts[i] for i in all_of)
    in_list = max((counts[i] for i in one_item), default=0) + sum(counts[i] for i in all_items)
    return max(in_object, in_list)


# -- what one node costs ---------------------------------------------------------


def _own_looks(node: Node) -> int:
    """The looks at a value with one node, without those of the nodes that it leads to."""
    schema = node.schema
    if not isinstance(schema, dict):
        return 1
    looks = 1 + len(node.sub.get("properties", ())) + len(schema.get("required", ()))
    looks += len(node.sub.get("patternProperties", ()))
    for key in ("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "dependentRequired"):
        if key in schema:
            looks += _looks_of(schema[key])
    return looks + (_MULTIPLE_OF if "multipleOf" in schema else 0)


def _looks_of(value: Json) -> int:
    """What a comparison with a value costs: its parts, fractions and long numbers counted for more."""
    stack: list[Any] = [value]
    looks = 0
    while stack and looks < _UNBOUNDED:
        part = stack.pop()
        if isinstance(part, (dict, list)):
            looks += 1
            stack.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, int):
            looks += 1 if abs(part) < _LARGEST_WORD else part.bit_length()
        else:
            looks += _FRACTION if isinstance(part, float) else 1 + len(part or "") // 100 if part is not None else 1
    return looks


def _own_positions(node: Node) -> int:
    """The positions of patterns that one character of a value, or of its keys, is compared with."""
    names = node.sub.get("propertyNames")
    own = sum(pattern.positions for pattern in node.patterns.values())
    return own + (sum(p.positions for p in names.patterns.values()) if isinstance(names, Node) else 0)
