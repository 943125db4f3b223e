"""A value checked with a schema, node by node: every look is counted, and a value in doubt is explained.

This is the slow and careful way: it explains, it knows unknown parts, and it ends. ``schemas`` asks it where the fast
library says no, cannot be asked, or could take too long. Depth and steps are counted, never time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import TooComplex, brief
from acts.language.schema_rules import build_rules
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from acts.language.schema_defects import Defects
    from acts.language.schema_graph import Node
    from acts.language.work_meter import WorkMeter

# Defects that are collected before they are sorted: five times as many as are reported
_CAP: Final = 100
# Nodes inside nodes: two for each level of a value that a ``$ref`` follows. Each takes up to three frames of Python's
# stack, which ends at 1,000
MAX_VISITS_DEEP: Final = 220
_TYPES: Final[dict[type, str]] = {dict: "object", list: "array", str: "string", int: "number", float: "number"}
_NOTHING: Final[Defects] = []


class Evaluation:
    """One check of one value. ``cap`` is how many defects are looked for.

    With ``remembers``, what was found at a node and a list or object is not looked for again: needed where a schema
    could look at one part again and again.
    """

    def __init__(self, root: Node, meter: WorkMeter, unknown: Container[int] = (), *, remembers: bool = False) -> None:
        self.meter = meter
        self.cap = _CAP
        self._root = root
        self._unknown = unknown  # ids of the lists and objects with unknown parts
        self._results: dict[tuple[int, int], tuple[int, Defects]] | None = {} if remembers else None

    def defects(self, value: Json) -> Defects:
        """What is wrong with the value: a whole before its parts, list items in their order, keys by name.

        Raises:
            TooComplex: the meter has run out.
        """
        return sorted(self.visit(self._root, value, 0), key=lambda defect: [(isinstance(k, str), k) for k in defect[0]])

    def visit(self, node: Node, value: Json, depth: int) -> Defects:
        """What one node finds wrong with a value; ``depth`` is how many nodes are around it."""
        self.meter.spend(1)
        if node.schema is True or (value is UNKNOWN and node.schema is not False):
            return _NOTHING
        if node.schema is False:
            return [((), f"nothing is allowed here, and there is {brief(value)}")]
        if depth > MAX_VISITS_DEEP:
            raise TooComplex(f"a value and its schema together nest deeper than {MAX_VISITS_DEEP} levels")
        key = (node.index, id(value))
        if self._results is not None and key in self._results:
            cap, known = self._results[key]
            if not known or cap >= self.cap:
                return known
        if node.rules is None:
            if node.expand is not None:
                node.expand(node)
            node.rules = build_rules(node)
        defects: Defects = _NOTHING
        for rule in node.rules[_TYPES.get(type(value), "unknown text" if value is UNKNOWN_TEXT else "other")]:
            found = rule(self, value, depth + 1)
            if found:
                defects = [*defects, *found]
                if len(defects) >= self.cap:
                    break
        if self._results is not None and isinstance(value, (dict, list)):
            self._results[key] = (self.cap, defects)
        return defects

    def is_valid(self, node: Node, value: Json, depth: int) -> bool:
        """True when a node finds nothing wrong; ends at the first defect."""
        cap, self.cap = self.cap, 1
        is_valid = not self.visit(node, value, depth)
        self.cap = cap
        return is_valid

    # -- values ----------------------------------------------------------------------

    def is_unknown(self, value: Json) -> bool:
        """True when a part of the value is not known."""
        return value is UNKNOWN_TEXT or value is UNKNOWN or id(value) in self._unknown

    def are_equal(self, one: Json, other: Json) -> bool:
        """True for equal JSON values; ends at the first difference."""
        self.meter.spend(1)
        if isinstance(one, dict):
            return (
                isinstance(other, dict)
                and len(one) == len(other)
                and all(key in other and self.are_equal(part, other[key]) for key, part in one.items())
            )
        if isinstance(one, list):
            same_length = isinstance(other, list) and len(one) == len(other)
            return same_length and all(self.are_equal(a, b) for a, b in zip(one, other, strict=True))
        return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)

    def key_of(self, value: Json) -> Any:
        """A hashable value that is equal for equal JSON values."""
        self.meter.spend(1)
        if isinstance(value, dict):
            return "object", frozenset((key, self.key_of(part)) for key, part in value.items())
        if isinstance(value, list):
            return "list", tuple(self.key_of(part) for part in value)
        return isinstance(value, bool), value

    # -- what the keywords of a node have looked at ------------------------------------

    def evaluated_keys(self, node: Node, value: dict[str, Json], depth: int, *, itself: bool = True) -> set[str]:
        """The keys of a value that a node has looked at, with the nodes in place that fit."""
        schema: Any = node.schema
        if not isinstance(schema, dict):
            return set()
        self.meter.spend(1 + len(value) // 10)
        if "additionalProperties" in schema or (itself and "unevaluatedProperties" in schema):
            return set(value)
        keys = {key for key in value if key in schema.get("properties", ())}
        for pattern in (node.patterns[text] for text in schema.get("patternProperties", ())):
            self.meter.spend(sum(pattern.steps(len(key)) for key in value))
            keys |= {key for key in value if pattern.matches(key)}
        for sub in self._fitting(node, value, depth):
            keys |= self.evaluated_keys(sub, value, depth + 1)
        return keys

    def evaluated_indexes(self, node: Node, value: list[Json], depth: int, *, itself: bool = True) -> set[int]:
        """The places of a list that a node has looked at, with the nodes in place that fit."""
        schema: Any = node.schema
        if not isinstance(schema, dict):
            return set()
        self.meter.spend(1 + len(value) // 10)
        if "items" in schema or (itself and "unevaluatedItems" in schema):
            return set(range(len(value)))
        indexes = set(range(min(len(value), len(schema.get("prefixItems", ())))))
        if "contains" in node.sub:
            indexes |= {i for i, part in enumerate(value) if self.is_valid(node.sub["contains"], part, depth)}
        for sub in self._fitting(node, value, depth):
            indexes |= self.evaluated_indexes(sub, value, depth + 1)
        return indexes

    def _fitting(self, node: Node, value: Json, depth: int) -> Iterator[Node]:
        """The nodes that a node leads to in place and that accept the value."""
        sub = node.sub
        for key in ("$ref", "$dynamicRef"):
            if key in sub:
                yield sub[key]
        for key in ("allOf", "anyOf", "oneOf"):
            yield from (part for part in sub.get(key, ()) if self.is_valid(part, value, depth))
        if "if" in sub:
            fits = self.is_valid(sub["if"], value, depth)
            if fits:
                yield sub["if"]
            branch = sub.get("then" if fits else "else")
            if branch is not None:
                yield branch
        for name, part in sub.get("dependentSchemas", {}).items():
            if isinstance(value, dict) and name in value:
                yield part
