"""Translates any JSON Schema to a provider's dialect, and its answers back to the form of the original.

Theory of operation. A schema becomes a tree of nodes (``schema_nodes.py``); each node knows the schema that is sent for
it and the way back. On the wire (``Wire.schema``):

* every object is closed; types are spelled out; ``oneOf`` and lists of types are ``anyOf``;
* whatever a strict schema cannot express is JSON text in a string: any value, open maps, lists of anything,
  ``prefixItems``, an ``allOf`` that does not merge, and for Anthropic whatever refers to itself. Open properties beside
  named ones are one such string;
* the objects of a union begin with the property that distinguishes them; for OpenAI, a union without one is JSON text;
* for OpenAI every property is required: null stands for an absent one, and ``OMITTED`` does where null is a value;
* for Anthropic inline objects become definitions: its limits on unions and optional properties count what is reached
  without following a ``$ref`` (reported by others, not tried live);
* definitions keep their names and order, and only those in use are sent: the same schema gives the same bytes, which
  providers cache.

``Wire.from_wire`` is exact for every answer that fits the wire schema, with two exceptions: the very text ``OMITTED``
at an optional property that also takes null is read as an absent property; and of alternatives that differ only in that
a property is JSON text in one and a plain string in the other, the first that fits is taken. An answer that does not
fit comes back as near as possible, and never as an exception.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from activities.providers.provider_keywords import (
    ANNOTATIONS,
    Dialect,
    compact_json,
    describe_schema,
    description_with_limits,
    merge_schemas,
    restrict_to_type,
    supported_limits,
    types_of,
)
from activities.providers.ref_normalizer import (
    DEFS,
    normalize_refs,
    recursive_definitions,
)
from activities.providers.schema_flattener import SchemaFlattener
from activities.providers.schema_nodes import (
    OMITTED,
    ArrayNode,
    Branch,
    LeafNode,
    Node,
    ObjectNode,
    RefNode,
    TextNode,
    UnionNode,
    answer_budget,
    decode_text,
    fold_case,
)
from activities.providers.shared_schemas import share_repeated
from activities.providers.union_order import order_alternatives, share_first_property
from acts.language.byte_cache import ByteCache
from acts.language.compiled_schema import judge_schema
from acts.language.errors import TooComplex
from acts.language.part_checks import PartChecks
from acts.language.schemas import subschemas, with_null
from acts.language.values import Json
from acts.language.work_meter import WorkMeter
from acts.planner.answer_schema import properties_of, required_of

# Bytes of the schemas that are kept: those of runs in flight, each used by request after request. One takes some thirty
# times its text, measured
_CACHED_BYTES: Final = 32 * 1024 * 1024
_TEXT_FACTOR: Final = 30


@dataclass(frozen=True, slots=True)
class Wire:
    """``schema`` is what is sent; ``from_wire`` brings an answer back to the form of the original schema."""

    schema: dict[str, Any]
    from_wire: Callable[[Json], Json]


def to_wire(schema: Json, dialect: Dialect) -> Wire:
    """A valid schema (``acts.language.schemas.schema_defect``) in a dialect.

    A schema of anything but an object is sent as an object with the one property ``value``.

    Raises:
        TooComplex: the schema has too many parts: no answer could be checked with it.
    """
    text = compact_json(schema)
    size = len(text) * _TEXT_FACTOR
    return _wires.get_or_build(
        (hashlib.sha256(text.encode()).digest(), dialect), lambda: (_to_wire(text, dialect), size)
    )


_wires: Final[ByteCache[Wire]] = ByteCache(_CACHED_BYTES)


def _to_wire(text: str, dialect: Dialect) -> Wire:
    schema = decode_text(text)
    verdict = judge_schema(schema)
    if verdict.is_too_complex and verdict.reason is not None:
        raise TooComplex(verdict.reason)
    bridge = _Bridge(with_null(schema), dialect)
    root, is_wrapped = bridge.build_root()

    def from_wire(value: Json) -> Json:
        try:
            out = root.from_wire(value, answer_budget())
        except (TooComplex, RecursionError):
            return value
        return out["value"] if is_wrapped and isinstance(out, dict) and set(out) == {"value"} else out

    return Wire(bridge.wire_schema(root), from_wire)


class _Bridge:
    """One schema in translation. ``nodes`` are those of the definitions in use, by name."""

    def __init__(self, root: Json, dialect: Dialect) -> None:
        self.dialect = dialect
        self.root, self.definitions = normalize_refs(root)
        self.nodes: dict[str, Node] = {}
        if dialect != "unenforced":
            order_alternatives(self.root, self.definitions)
        self._recursive = recursive_definitions(self.definitions)
        self._checks = PartChecks(self.definitions)
        self._flattener = SchemaFlattener(self.definitions, self._recursive)

    def build_root(self) -> tuple[Node, bool]:
        """The root's node, and whether it had to be wrapped in an object."""
        if self.dialect == "unenforced":
            return self.build(self.root), False
        node = self.build(self.root, is_definition=True)
        if isinstance(node, ObjectNode):
            return node, False
        wrapper = {"type": "object", "properties": {"value": self.root}, "required": ["value"]}
        return self.build(wrapper, is_definition=True), True

    def wire_schema(self, root: Node) -> dict[str, Any]:
        """The wire schema of the root, with the definitions it uses."""
        if self.dialect == "unenforced":
            return self.root if isinstance(self.root, dict) else {}
        wires: dict[str, Any] = {}
        pending = [root.wire]
        while pending:
            for part in subschemas(pending.pop()):
                name = str(part.get("$ref", "")).removeprefix(DEFS)
                if name in self.nodes and name not in wires:
                    wires[name] = self.nodes[name].wire
                    pending.append(wires[name])
        order = [*(n for n in self.definitions if n in wires), *(n for n in wires if n not in self.definitions)]
        return share_repeated({**root.wire, "$defs": {n: wires[n] for n in order}}) if wires else root.wire

    # -- nodes -----------------------------------------------------------------

    def build(self, schema: Json, *, is_definition: bool = False) -> Node:
        """The node of a schema; ``is_definition``: it is the root or a definition, and an object stays inline."""
        flat = self._flattener.flatten(schema) if isinstance(schema, dict) else None
        if flat is None or "prefixItems" in flat:
            return self._text_node(schema)
        if "$ref" in flat:
            return self._ref_node(flat)
        for key in ("anyOf", "oneOf"):
            if key in flat:
                return self._union_node(flat, key)
        types = types_of(flat)
        if types is None:
            return self._text_node(schema)
        if len(types) > 1:
            options = [restrict_to_type(flat, t) for t in types]
            notes = {k: v for k, v in flat.items() if k in ANNOTATIONS}
            bare = [{k: v for k, v in o.items() if k not in ANNOTATIONS} for o in options]
            return self._union_of(notes, bare, schema)
        if types[0] == "object":
            node = self._object_node(flat)
            return node if is_definition or not isinstance(node, ObjectNode) else self._hoist_object(node)
        return self._array_node(flat) if types[0] == "array" else self._leaf_node(restrict_to_type(flat, types[0]))

    def _text_node(self, schema: Json) -> Node:
        if self.dialect == "unenforced":
            return TextNode({}, is_encoded=False)
        if isinstance(schema, dict) and set(schema) - ANNOTATIONS:
            return TextNode({"type": "string", "description": describe_schema(schema)})
        text, note = schema.get("description") if isinstance(schema, dict) else None, "JSON text of any value"
        return TextNode({"type": "string", "description": f"{text} ({note})" if isinstance(text, str) else note})

    def _ref_node(self, schema: dict[str, Any]) -> Node:
        """A reference to a definition, past definitions that are themselves only references."""
        name, visited = schema["$ref"].removeprefix(DEFS), set[str]()
        while name not in visited and set(self._definition(name)) - ANNOTATIONS == {"$ref"}:
            visited.add(name)
            name = self._definition(name)["$ref"].removeprefix(DEFS)
        if name in visited:
            return self._text_node({})
        if not isinstance(self.definitions.get(name), dict):
            return self._text_node(self.definitions.get(name, {}))
        if self.dialect == "anthropic" and name in self._recursive:
            return self._text_node(self.definitions[name])
        if name not in self.nodes:
            self.nodes[name] = TextNode({})  # reserves the name: the definition may refer to itself
            self.nodes[name] = self.build(self.definitions[name], is_definition=True)
        return RefNode({"$ref": DEFS + name}, name, self.nodes)

    def _definition(self, name: str) -> dict[str, Any]:
        schema = self.definitions.get(name)
        return schema if isinstance(schema, dict) else {}

    def _hoist_object(self, node: ObjectNode) -> Node:
        """An inline object as a definition, where that keeps a provider's count of unions low."""
        has_union = any(isinstance(n, UnionNode) for n in node.properties.values())
        has_optional = len(node.wire["required"]) < len(node.properties)
        if self.dialect != "anthropic" or not (has_union or has_optional):
            return node
        candidates = (f"object_{i}" for i in range(1, len(self.nodes) + len(self.definitions) + 2))
        name = next(n for n in candidates if n not in self.nodes and n not in self.definitions)
        self.nodes[name] = node
        return RefNode({"$ref": DEFS + name}, name, self.nodes)

    def _leaf_node(self, schema: dict[str, Any]) -> Node:
        wire: dict[str, Any] = {"type": schema["type"]}
        choices: tuple[Json, ...] = ()
        if "const" in schema:
            choices = (schema["const"],)
            wire["const"] = schema["const"]
        elif isinstance(schema.get("enum"), list):
            choices = tuple(schema["enum"])
            wire["enum"] = schema["enum"]
        wire.update(supported_limits(schema, schema["type"], self.dialect))
        return LeafNode({**wire, **description_with_limits(schema, wire)}, choices)

    def _array_node(self, schema: dict[str, Any]) -> Node:
        """A list; JSON text where its items may be anything."""
        items = schema.get("items", True)
        if "enum" in schema or "const" in schema or (items in (True, {}) and schema.get("maxItems") != 0):
            return self._text_node(schema)
        item = self.build(items if isinstance(items, dict) else {"type": "null"})
        limits = supported_limits(schema, "array", self.dialect)
        notes = description_with_limits(schema, limits)
        return ArrayNode({"type": "array", **notes, "items": item.wire, **limits}, item)

    def _object_node(self, schema: dict[str, Any]) -> Node:
        """An object of named properties; JSON text where it has none."""
        required = [k for k in required_of(schema) if isinstance(k, str)]
        properties = {k: v for k, v in properties_of(schema).items() if v is not False}
        properties.update({k: True for k in required if k not in properties})
        rest = schema.get("additionalProperties", None if properties else True)
        is_open = bool(schema.get("patternProperties")) or (rest is not None and rest is not False)
        if "enum" in schema or "const" in schema or (is_open and not properties):
            return self._text_node(schema)
        order = sorted(properties, key=lambda k: k != "_tool")
        properties = {k: properties[k] for k in order}
        return self._object_of(schema, properties, frozenset(required), rest if is_open else False)

    def _object_of(
        self, schema: dict[str, Any], properties: dict[str, Json], required: frozenset[str], rest: Json
    ) -> Node:
        nodes = {k: self.build(v) for k, v in properties.items()}
        wires = {k: n.wire for k, n in nodes.items()}
        absent_if_null, absent_if_omitted = set[str](), set[str]()
        is_openai = self.dialect == "openai"
        for key, node in nodes.items():
            is_encoded = isinstance(node, TextNode) and node.is_encoded
            is_nullable = self._checks.fits(properties[key], None, WorkMeter("checking null"))
            if key in required:
                # Plain null is allowed where it cannot mean that the property is absent
                wires[key] = _with_option(wires[key], _NULL) if is_encoded and is_nullable else wires[key]
                continue
            if not is_nullable or (is_encoded and is_openai):
                absent_if_null.add(key)
            elif is_openai:
                absent_if_omitted.add(key)
            if is_openai:
                wires[key] = _with_option(wires[key], _OMITTED if key in absent_if_omitted else _NULL)
        rest_key = None
        if rest is not False and self.dialect != "unenforced":
            rest_key = next(n for n in ("_more", "_more_", "_more__", "_more___") if n not in nodes)
            wires[rest_key] = self._text_node({"type": "object", "additionalProperties": rest}).wire
            wires[rest_key] = _with_option(wires[rest_key], _NULL) if is_openai else wires[rest_key]
        wire = {
            "type": "object",
            **description_with_limits(schema, {}),
            "properties": wires,
            "required": [k for k in wires if is_openai or k in required],
            "additionalProperties": False,
        }
        leaves = {k: n.choices for k, n in nodes.items() if isinstance(n, LeafNode) and n.choices}
        constants = {k: frozenset(map(fold_case, c)) for k, c in leaves.items() if _are_constant(k, c)}
        return ObjectNode(wire, nodes, frozenset(absent_if_null), frozenset(absent_if_omitted), rest_key, constants)

    # -- unions ----------------------------------------------------------------

    def _union_node(self, schema: dict[str, Any], key: str) -> Node:
        """``anyOf`` or ``oneOf``; the keywords beside it are merged into each alternative."""
        notes = {k: v for k, v in schema.items() if k in ANNOTATIONS}
        base = {k: v for k, v in schema.items() if k not in notes and k != key}
        if not isinstance(schema[key], list) or not schema[key] or {"anyOf", "oneOf"} & set(base):
            return self._text_node(schema)
        options: list[Json] = [o for o in schema[key] if o is not False]
        if base:
            flat = map(self._flattener.inline, options)
            options = [merge_schemas(base, o) if o is not None else None for o in flat]
        if any(o is None or o is True or o == {} for o in options):
            return self._text_node(schema)
        return self._union_of(notes, options, schema)

    def _union_of(self, notes: dict[str, Any], options: list[Json], schema: Json) -> Node:
        """A union of the options of ``schema``; JSON text where they could not be told apart."""
        branches: list[Branch] = []
        wires: dict[str, dict[str, Any]] = {}  # by their text: thousands of alternatives are not compared pairwise
        for option in options:
            node = self.build(option)
            if isinstance(node, UnionNode) and "description" not in node.wire:
                branches += node.branches
                for wire in node.wire["anyOf"]:
                    wires.setdefault(json.dumps(wire), wire)
            else:
                branches.append(Branch(node, self._validator(option)))
                wires.setdefault(json.dumps(node.wire), node.wire)
        if self.dialect != "unenforced" and self._is_ambiguous([b.node for b in branches]):
            return self._text_node(schema)
        if len(branches) == 1 and not notes:
            return branches[0].node
        return UnionNode({**description_with_limits(notes, {}), "anyOf": [*wires.values()]}, tuple(branches))

    def _is_ambiguous(self, nodes: list[Node]) -> bool:
        """True when JSON text and a plain string, or for OpenAI two objects, could be mistaken for each other."""
        targets = [self.nodes[n.name] if isinstance(n, RefNode) else n for n in nodes]
        if self.dialect == "openai" and share_first_property(targets):
            return True
        if not any(isinstance(n, TextNode) and n.wire for n in targets):
            return False
        strings = [n for n in targets if isinstance(n, LeafNode) and n.wire["type"] == "string"]
        return not all(map(_is_never_json, strings)) or sum(isinstance(n, TextNode) for n in targets) > 1

    def _validator(self, schema: Json) -> Callable[[Json, WorkMeter], bool]:
        """The check of a value against a part of the original schema."""
        return lambda value, meter: self._checks.fits(schema, value, meter)


_NULL: Final = {"type": "null"}
_OMITTED: Final = {"type": "string", "const": OMITTED, "description": "leaves this property out"}


def _are_constant(key: str, choices: tuple[Json, ...]) -> bool:
    """True for one fixed text, and for the names of the Tools of a Call."""
    return (len(choices) == 1 or key == "_tool") and all(isinstance(c, str) for c in choices)


def _is_never_json(leaf: LeafNode) -> bool:
    """True for strings that cannot be mistaken for JSON text: references, and choices that are not JSON."""
    if leaf.choices:
        return all(decode_text(c) is c for c in leaf.choices)
    return str(leaf.wire.get("pattern", "")).startswith("^†")


def _with_option(wire: dict[str, Any], option: dict[str, Any]) -> dict[str, Any]:
    """A wire schema with one more alternative."""
    if "anyOf" not in wire:
        return {"anyOf": [wire, option]}
    return wire if option in wire["anyOf"] else {**wire, "anyOf": [*wire["anyOf"], option]}
