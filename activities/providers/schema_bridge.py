"""Any JSON Schema as a provider takes it, and its answers back in the form of the original.

What is sent (``Wire.schema``):

* every object is closed; types are spelled out; ``oneOf`` and lists of types are ``anyOf``;
* what a strict schema cannot say is JSON text in a string: any value, open maps, lists of
  anything, ``prefixItems``, an ``allOf`` that does not merge, and for Anthropic whatever
  refers to itself. Open properties beside named ones are one such string;
* for OpenAI every property is required: null stands for one that was left out, and
  ``LEFT_OUT`` does where null is a value of its own;
* for Anthropic inline objects become definitions: its limits on unions and optional
  properties count what is reached without following a ``$ref`` (seen by others, not live);
* definitions keep their names and order, and only those that are used are sent: the
  same schema gives the same bytes, which providers cache.

``Wire.undo`` is exact for every answer that fits the wire schema, with two exceptions: the
very text ``LEFT_OUT`` at an optional property that also takes null is read as an absent
property; and of alternatives that differ only in that a property is JSON text in one and a
plain string in the other, the first that fits is taken. An answer that does not fit
comes back as near as can be, and never as an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from activities.providers.provider_keywords import (
    NOTES,
    Provider,
    compact,
    kinds_of,
    limits,
    merged,
    of_kind,
    shortened,
    told,
)
from activities.providers.ref_normalizer import DEFS, cyclic, needed, normal, without
from activities.providers.schema_nodes import (
    LEFT_OUT,
    Array,
    Branch,
    Fuel,
    Leaf,
    Object,
    Part,
    Ref,
    SpentError,
    Text,
    Union,
    decoded,
)
from acts.language.schemas import subschemas, with_null
from acts.language.values import Json

# Schemas of runs in flight: each is asked with again and again
_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Wire:
    """``schema`` is what is sent; ``undo`` brings an answer back to the form of the original schema."""

    schema: dict[str, Any]
    undo: Callable[[Json], Json]


def to_wire(schema: Json, provider: Provider) -> Wire:
    """A schema for ``anthropic``, ``openai``, or ``plain`` (shown to the model, enforced by nobody).

    It must be a valid one (``acts.language.schemas.schema_defect``). What is no object schema is
    sent as an object with ``value``.
    """
    return _wire(compact(schema), provider)


@lru_cache(maxsize=_KEPT)
def _wire(text: str, provider: Provider) -> Wire:
    bridge = _Bridge(with_null(decoded(text)), provider)
    part, wrapped = bridge.whole()

    def undo(value: Json) -> Json:
        try:
            found = part.undo(value, Fuel())
        except (SpentError, RecursionError):
            return value
        return found["value"] if wrapped and isinstance(found, dict) and set(found) == {"value"} else found

    return Wire(bridge.schema(part), undo)


class _Bridge:
    """One schema on its way. ``known`` are the definitions in use, by name."""

    def __init__(self, root: Json, provider: Provider) -> None:
        self.provider = provider
        self.root, self.defs = normal(root)
        self.known: dict[str, Part] = {}
        self._cyclic = cyclic(self.defs)

    def whole(self) -> tuple[Part, bool]:
        """The root's part, and whether it had to be wrapped in an object."""
        if self.provider == "plain":
            return self.part(self.root), False
        found = self.part(self.root, body=True)
        if isinstance(found, Object):
            return found, False
        holder = {"type": "object", "properties": {"value": self.root}, "required": ["value"]}
        return self.part(holder, body=True), True

    def schema(self, part: Part) -> dict[str, Any]:
        """The wire schema of the root, with the definitions it uses."""
        if self.provider == "plain":
            return self.root if isinstance(self.root, dict) else {}
        used: dict[str, Any] = {}
        pending = [part.wire]
        while pending:
            for inner in subschemas(pending.pop()):
                name = str(inner.get("$ref", "")).removeprefix(DEFS)
                if name in self.known and name not in used:
                    used[name] = self.known[name].wire
                    pending.append(used[name])
        order = [*(n for n in self.defs if n in used), *(n for n in used if n not in self.defs)]
        return {**part.wire, "$defs": {n: used[n] for n in order}} if used else part.wire

    # -- parts -----------------------------------------------------------------

    def part(self, schema: Json, *, body: bool = False) -> Part:
        """The part of a schema; ``body``: it is the root or a definition, and stands where it is."""
        if not isinstance(schema, dict):
            return self.text(schema)
        flat = self._flat(schema)
        if flat is None or "prefixItems" in flat:
            return self.text(schema)
        if "$ref" in flat:
            return self.reference(flat)
        for key in ("anyOf", "oneOf"):
            if key in flat:
                return self.union(flat, key)
        kinds = kinds_of(flat)
        if kinds is None:
            return self.text(schema)
        if len(kinds) > 1:
            options = [of_kind(flat, k) for k in kinds]
            notes = {k: v for k, v in flat.items() if k in NOTES}
            return self.any_of(notes, [{k: v for k, v in o.items() if k not in NOTES} for o in options], schema)
        if kinds[0] == "object":
            found = self.object(flat)
            return found if body or not isinstance(found, Object) else self.moved(found)
        return self.array(flat) if kinds[0] == "array" else self.leaf(of_kind(flat, kinds[0]))

    def _flat(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """The schema without ``allOf`` and without siblings of a ``$ref``; None where they do not merge."""
        parts = [{k: v for k, v in schema.items() if k not in ("allOf", "$ref")}]
        listed = schema.get("allOf", [])
        others: list[Json] = [*(listed if isinstance(listed, list) else [True])]
        if "$ref" in schema:
            if not others and set(parts[0]) <= NOTES:
                return schema
            others.insert(0, {"$ref": schema["$ref"]})
        out: dict[str, Any] | None = parts[0]
        for other in others:
            inner = self._inlined(other)
            out = merged(out, inner) if inner is not None and out is not None else None
        return out

    def _inlined(self, schema: Json) -> dict[str, Any] | None:
        """A branch of ``allOf`` without its references, or None where it has no end."""
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            return None
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(DEFS)
            target = self.defs.get(name)
            if name in self._cyclic or not isinstance(target, dict):
                return None
            inner = self._flat({**target, "allOf": [*target.get("allOf", []), without(schema, "$ref")]})
            return self._inlined(inner) if inner is not None and "$ref" in inner else inner
        return self._flat(schema)

    def text(self, schema: Json) -> Part:
        """A value as JSON text."""
        if self.provider == "plain":
            return Text({}, plain=True)
        about = f"JSON text of a value that fits this JSON Schema: {compact(schema)}"
        anything = not isinstance(schema, dict) or not set(schema) - NOTES
        note = "JSON text of any value" if anything else shortened(about)
        own = schema.get("description") if isinstance(schema, dict) else None
        return Text({"type": "string", "description": f"{own} ({note})" if isinstance(own, str) and anything else note})

    def reference(self, schema: dict[str, Any]) -> Part:
        """What a definition says."""
        name, seen = schema["$ref"].removeprefix(DEFS), set[str]()
        while isinstance(self.defs.get(name), dict) and set(self.defs[name]) - NOTES == {"$ref"} and name not in seen:
            seen.add(name)
            name = self.defs[name]["$ref"].removeprefix(DEFS)
        if name in seen or name not in self.defs or not isinstance(self.defs[name], dict):
            return self.text(self.defs.get(name, {}) if name not in seen else {})
        if self.provider == "anthropic" and name in self._cyclic:
            return self.text(self.defs[name])
        if name not in self.known:
            self.known[name] = Text({})  # taken: it may refer to itself
            self.known[name] = self.part(self.defs[name], body=True)
        return Ref({"$ref": DEFS + name}, name, self.known)

    def moved(self, found: Object) -> Part:
        """An inline object as a definition, where that keeps a provider's count of unions low."""
        inner = [p for p in found.parts.values() if isinstance(p, Union)]
        if self.provider != "anthropic" or not (inner or len(found.wire["required"]) < len(found.parts)):
            return found
        name = next(n for n in (f"object_{i}" for i in range(1, len(self.known) + 2)) if self._free(n))
        self.known[name] = found
        return Ref({"$ref": DEFS + name}, name, self.known)

    def _free(self, name: str) -> bool:
        return name not in self.known and name not in self.defs

    def leaf(self, schema: dict[str, Any]) -> Part:
        """A value without parts."""
        kind = schema["type"]
        kept: dict[str, Any] = {"type": kind}
        choices: tuple[Json, ...] = ()
        if "const" in schema:
            choices = (schema["const"],)
            kept["const"] = schema["const"]
        elif isinstance(schema.get("enum"), list):
            choices = tuple(schema["enum"])
            kept["enum"] = schema["enum"]
        kept.update(limits(schema, kind, self.provider))
        return Leaf({**kept, **told(schema, kept)}, choices)

    def array(self, schema: dict[str, Any]) -> Part:
        """A list; of anything: JSON text."""
        items = schema.get("items", True)
        if "enum" in schema or "const" in schema or (items in (True, {}) and schema.get("maxItems") != 0):
            return self.text(schema)
        item = self.part(items if isinstance(items, dict) else {"type": "null"})
        kept = limits(schema, "array", self.provider)
        return Array({"type": "array", **told(schema, kept), "items": item.wire, **kept}, item)

    def object(self, schema: dict[str, Any]) -> Part:
        """An object of named properties; of none: JSON text."""
        listed, named = schema.get("required"), schema.get("properties")
        required = [k for k in (listed if isinstance(listed, list) else []) if isinstance(k, str)]
        properties: dict[str, Json] = dict(named) if isinstance(named, dict) else {}
        properties = {k: v for k, v in properties.items() if v is not False}
        properties.update({k: True for k in required if k not in properties})
        rest = schema.get("additionalProperties", None if properties else True)
        open_ = bool(schema.get("patternProperties")) or (rest is not None and rest is not False)
        if "enum" in schema or "const" in schema or (open_ and not properties):
            return self.text(schema)
        order = sorted(properties, key=lambda k: k != "_tool")
        return self._object(schema, {k: properties[k] for k in order}, required, rest if open_ else False)

    def _object(self, schema: dict[str, Any], properties: dict[str, Json], required: list[str], rest: Json) -> Part:
        parts = {k: self.part(v) for k, v in properties.items()}
        wires = {k: p.wire for k, p in parts.items()}
        absent, optional = set[str](), set[str]()
        for key, part in parts.items():
            encoded = isinstance(part, Text) and not part.plain
            nullable = self.fits(properties[key])(None)
            if key in required:
                # Null may be said plainly where it cannot mean that the property was left out
                wires[key] = _with(wires[key], _NULL) if encoded and nullable else wires[key]
                continue
            if not nullable or (encoded and self.provider == "openai"):
                absent.add(key)
            if self.provider == "openai":
                marked = nullable and not encoded
                optional |= {key} if marked else set()
                wires[key] = _with(wires[key], _LEFT_OUT if marked else _NULL)
        more = None
        if rest is not False and self.provider != "plain":
            more = next(n for n in ("_more", "_more_", "_more__", "_more___") if n not in parts)
            wires[more] = self.text({"type": "object", "additionalProperties": rest}).wire
            wires[more] = _with(wires[more], _NULL) if self.provider == "openai" else wires[more]
        needed = list(wires) if self.provider == "openai" else [k for k in wires if k in required]
        notes = {"type": "object", **told(schema, {})}
        wire = {**notes, "properties": wires, "required": needed, "additionalProperties": False}
        consts = {
            k: p.choices[0]
            for k, p in parts.items()
            if isinstance(p, Leaf) and len(p.choices) == 1 and isinstance(p.choices[0], str)
        }
        return Object(wire, parts, frozenset(absent), frozenset(optional), more, consts)

    # -- unions ----------------------------------------------------------------

    def union(self, schema: dict[str, Any], key: str) -> Part:
        """``anyOf`` and ``oneOf``; what stands beside them belongs to each alternative."""
        notes = {k: v for k, v in schema.items() if k in NOTES}
        base = {k: v for k, v in schema.items() if k not in notes and k != key}
        listed = schema[key]
        if not isinstance(listed, list) or not listed or {"anyOf", "oneOf"} & set(base):
            return self.text(schema)
        options: list[Json] = [o for o in listed if o is not False]
        if base:
            inlined = [self._inlined(o) for o in options]
            options = [merged(base, o) if o is not None else None for o in inlined]
        if any(o is None or o is True or o == {} for o in options):
            return self.text(schema)
        return self.any_of(notes, options, schema)

    def any_of(self, notes: dict[str, Any], options: list[Json], whole: Json) -> Part:
        """A union of schemas; JSON text where its alternatives could not be told apart."""
        found: list[Branch] = []
        wires: list[dict[str, Any]] = []
        for option in options:
            part = self.part(option)
            inner = isinstance(part, Union) and "description" not in part.wire
            found += part.branches() if inner else [Branch(part, self.fits(option))]
            wires += [w for w in (part.wire["anyOf"] if inner else [part.wire]) if w not in wires]
        if self.provider != "plain" and self._collide([b.part for b in found]):
            return self.text(whole)
        if len(found) == 1 and not notes:
            return found[0].part
        return Union({**told(notes, {}), "anyOf": wires}, tuple(found))

    def _collide(self, parts: list[Part]) -> bool:
        """True when JSON text and a plain string could be taken for each other."""
        real = [self.known[p.name] if isinstance(p, Ref) else p for p in parts]
        if not any(isinstance(p, Text) and p.wire for p in real):
            return False
        strings = [p for p in real if isinstance(p, Leaf) and p.wire["type"] == "string"]
        return not all(_never_json(p) for p in strings) or sum(isinstance(p, Text) for p in real) > 1

    def fits(self, schema: Json) -> Callable[[Json], bool]:
        """The check of a part of the original schema, compiled when it is first needed."""
        compiled: list[Any] = []

        def check(value: Json) -> bool:
            if not compiled:
                whole = {**schema, "$defs": needed(schema, self.defs)} if isinstance(schema, dict) else schema
                compiled.append(_compiled(whole))
            try:
                return compiled[0] is None or bool(compiled[0].is_valid(value))
            except (ValueError, TypeError, OverflowError, RecursionError):
                return False

        return check


_NULL: Final = {"type": "null"}
_LEFT_OUT: Final = {"type": "string", "const": LEFT_OUT, "description": "leaves this property out"}


def _never_json(leaf: Leaf) -> bool:
    """True for strings that cannot be mistaken for JSON text: references, and choices that are none."""
    if leaf.choices:
        return all(decoded(c) is c for c in leaf.choices)
    return str(leaf.wire.get("pattern", "")).startswith("^†")


def _with(wire: dict[str, Any], option: dict[str, Any]) -> dict[str, Any]:
    """A wire schema with one more alternative."""
    if "anyOf" not in wire:
        return {"anyOf": [wire, option]}
    return wire if option in wire["anyOf"] else {**wire, "anyOf": [*wire["anyOf"], option]}


def _compiled(schema: Json) -> Any:
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ValidationError):
        return None


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")
