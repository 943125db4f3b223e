"""A schema as a graph of nodes with its references followed; what cannot be followed, and what is too large.

A node is one subschema. Keywords that apply subschemas to the same value (``allOf``, ``$ref`` …) lead to other nodes
*in place*, the others (``properties``, ``items`` …) to nodes for the parts of a value. How a value is checked is not
known here (``schema_rules``), nor how long that takes (``schema_load``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import jsonschema_rs

from acts.language.errors import TooComplex, brief, truncate
from acts.language.patterns import Pattern, PatternError, compile_pattern
from acts.language.schema_forms import LISTED, MAPPED, NESTED
from acts.language.values import Json, Place, get, pointer, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acts.language.work_meter import WorkMeter

# Subschemas of one schema: the largest that people or generators write have some thousands. A node takes 2 kB
MAX_SUBSCHEMAS: Final = 20_000
# Bytes of the patterns of one schema, as the engine compiles them: two thousand plain ones
MAX_PATTERN_BYTES: Final = 32 * 1024 * 1024
# Levels of JSON in a schema, as in a Request
_MAX_LEVELS: Final = 100

IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref", "$dynamicRef")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_NESTED: Final = frozenset(NESTED)
_LISTED: Final = frozenset(LISTED)
_MAPPED: Final = frozenset(MAPPED)


class SchemaError(ValueError):
    """A schema that cannot be used, and why."""


class Node:
    """One subschema. ``sub`` has the nodes of each keyword that leads to some: one, a list, or a map.

    ``rules`` are the checks of ``schema_rules``, by the type of a value; None until they are needed. ``expand`` makes
    ``sub`` and ``patterns`` then, where they are not made yet.
    """

    __slots__ = ("base", "expand", "index", "patterns", "rules", "schema", "sub")

    def __init__(
        self, index: int, schema: dict[str, Any] | bool, base: dict[str, Any],  # noqa: FBT001
        expand: Callable[[Node], None] | None = None,
    ) -> None:  # fmt: skip
        self.expand = expand
        self.index = index
        self.schema = schema
        self.base = base
        self.sub: dict[str, Any] = {}
        self.patterns: dict[str, Pattern] = {}
        self.rules: Any = None

    def in_place(self) -> Iterator[Node]:
        """The nodes that the same value is checked with."""
        for key in IN_PLACE:
            if key in self.sub:
                yield from nodes_of(self.sub[key])


def nodes_of(sub: Any) -> Iterator[Node]:
    """The nodes of one keyword."""
    if isinstance(sub, Node):
        yield sub
    else:
        yield from sub.values() if isinstance(sub, dict) else sub


class SchemaGraph:
    """The nodes of one schema: ``root`` first. ``pattern_bytes`` are those of its compiled patterns.

    Raises:
        SchemaError: it is no JSON Schema, leads out of itself, or has a pattern that cannot be used.
        TooComplex: it breaks a limit.
    """

    def __init__(self, schema: Json, meter: WorkMeter) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaError(f"a schema is an object, not {type_name(schema)}")
        self.nodes: list[Node] = []
        self.pattern_bytes = 0
        self._meter = meter
        self._by_id: dict[int, Node] = {}
        self._places: dict[int, Place] = {}
        self._anchors: dict[int, dict[str, dict[str, Any]]] = {}
        _refuse_invalid(schema)
        self.root = self._node(schema, schema if isinstance(schema, dict) else {}, ())
        self._complete()

    def find_property(self, names: tuple[str, ...]) -> Node:
        """The node of a property of properties, which ``properties`` or ``additionalProperties`` declare."""
        node = self.root
        for name in names:
            declared = node.sub.get("properties", {}).get(name)
            node = node.sub["additionalProperties"] if declared is None else declared
        return node

    def _complete(self) -> None:
        """Follow everything from the root on: parts first, so that what only a ``$ref`` leads to is known as such."""
        done = 0
        references: list[tuple[Node, str]] = []
        while True:
            while done < len(self.nodes):
                node = self.nodes[done]
                done += 1
                if isinstance(node.schema, dict):
                    self._add_parts(node, node.schema)
                    references += [(node, key) for key in _REFERENCES if key in node.schema]
            if not references:
                return
            for node, key in references:
                node.sub[key] = self._target(node, key)
            references = []

    def _node(self, schema: Json, base: dict[str, Any], place: Place) -> Node:
        """The node of a subschema, new or not. An object with an ``$id`` is the base of the references inside it."""
        known = self._by_id.get(id(schema)) if isinstance(schema, dict) else None
        if known is not None:
            return known
        if len(self.nodes) >= MAX_SUBSCHEMAS:
            raise TooComplex(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas")
        self._meter.spend(2)
        if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
            base = schema
        node = Node(len(self.nodes), schema, base)
        self.nodes.append(node)
        self._by_id[id(schema)] = node
        self._places[node.index] = place
        return node

    def _add_parts(self, node: Node, schema: dict[str, Any]) -> None:
        place = self._places[node.index]
        if len(place) > 2 * _MAX_LEVELS:
            raise TooComplex(f"the schema is nested deeper than {_MAX_LEVELS} levels")
        for key, argument in schema.items():
            if key in _NESTED:
                node.sub[key] = self._node(argument, node.base, (*place, key))
            elif key in _LISTED:
                node.sub[key] = [self._node(part, node.base, (*place, key, i)) for i, part in enumerate(argument)]
            elif key in _MAPPED:
                node.sub[key] = {k: self._node(part, node.base, (*place, key, k)) for k, part in argument.items()}
            if key == "patternProperties":
                for text in argument:
                    self._add_pattern(node, text, (*place, key))
            elif key == "pattern":
                self._add_pattern(node, argument, (*place, key))

    def _add_pattern(self, node: Node, text: str, place: Place) -> None:
        try:
            pattern = compile_pattern(text)
        except PatternError as error:
            self._meter.spend(error.steps)
            reason = f"{pointer(*place)}: {error}"
            raise TooComplex(reason) if error.is_too_large else SchemaError(reason) from error
        self._meter.spend(pattern.compile_steps)
        node.patterns[text] = pattern
        self.pattern_bytes += pattern.size
        if self.pattern_bytes > MAX_PATTERN_BYTES:
            text = f"the patterns of the schema take more than {MAX_PATTERN_BYTES:,} bytes when they are compiled"
            raise TooComplex(text)

    # -- references ----------------------------------------------------------------

    def _target(self, node: Node, key: str) -> Node:
        """The node that a reference leads to."""
        schema: Any = node.schema
        reference = schema[key]
        if not reference.startswith("#"):
            raise SchemaError(f'{key} {brief(reference)} leads out of the schema; only "#…" is followed')
        fragment = unquote(reference[1:])
        if fragment.startswith("/") or not fragment:
            target, base = self._follow(node.base, fragment)
        else:
            target, base = self._anchor(node.base, fragment), node.base
        if not isinstance(target, (dict, bool)):
            raise SchemaError(f"{key} {brief(reference)} leads to no schema")
        if isinstance(target, dict) and id(target) not in self._by_id:
            self._meter.spend(_count_parts(target, self._meter.limit))
            _refuse_invalid(target)  # at a place that the metaschema does not look at
        return self._node(target, base, (reference,))

    def _follow(self, base: dict[str, Any], fragment: str) -> tuple[Json, dict[str, Any]]:
        """The value at a JSON pointer, and the base of the references inside it."""
        value: Json = base
        for token in fragment.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdecimal() and len(name) <= 6 and int(name) < len(value):  # noqa: PLR2004 - digits
                value = value[int(name)]
            else:
                return None, base
            self._meter.spend(1)
            if isinstance(value, dict) and isinstance(value.get("$id"), str):
                base = value
        return value, base

    def _anchor(self, base: dict[str, Any], name: str) -> Json:
        """The subschema that has a name by ``$anchor`` or ``$dynamicAnchor``."""
        if id(base) not in self._anchors:
            self._anchors[id(base)] = {
                node.schema[key]: node.schema
                for node in self.nodes
                if node.base is base and isinstance(node.schema, dict)
                for key in ("$anchor", "$dynamicAnchor")
                if isinstance(node.schema.get(key), str)
            }
        return self._anchors[id(base)].get(name)


def _refuse_invalid(schema: dict[str, Any] | bool) -> None:  # noqa: FBT001
    """Raise SchemaError for what the metaschema does not allow."""
    if isinstance(schema, dict) and "$schema" in schema:  # read as 2020-12, whatever it says
        schema = {k: v for k, v in schema.items() if k != "$schema"}
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        place = error.instance_path
        reason = truncate(error.message, 200)
        if place[-1:] == ["type"]:
            reason = f"{brief(get(schema, tuple(map(str, place))))} is no type; known: {', '.join(_TYPES)}"
        raise SchemaError(f"{pointer(*place) or 'the schema'}: {reason}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(truncate(str(error).split("\n", 1)[0], 200)) from error


def _count_parts(value: Json, limit: int) -> int:
    """How many parts a value has, counted no further than ``limit``."""
    stack, count = [value], 0
    while stack and count <= limit:
        part = stack.pop()
        count += 1
        if isinstance(part, (dict, list)):
            stack.extend(part.values() if isinstance(part, dict) else part)
    return count
