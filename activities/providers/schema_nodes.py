"""The nodes of a bridged schema: the wire schema of each, and the way back from its value to the original form.

* A node never raises for an unexpected value: it returns it unchanged, so that the check against the original schema
  can say what is wrong.
* The way back is bounded (``WorkMeter``): no answer can make it search forever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from acts.language.strict_json import read_json
from acts.language.values import Json
from acts.language.work_meter import WorkMeter

OMITTED: Final = "(left out)"
"""On the wire, where every property is required, the value of an optional property that may itself be null."""

# A large Solution takes some 10,000 steps; unions of unions could take exponentially many
MAX_STEPS: Final = 400_000
# Characters of JSON text that are read in one step
_CHARACTERS_PER_STEP: Final = 100


def answer_budget() -> WorkMeter:
    """The steps of one answer, from the wire to the form of the original schema."""
    return WorkMeter("reading the answer", MAX_STEPS)


class Node(Protocol):
    """A part of a schema."""

    @property
    def wire(self) -> dict[str, Any]:
        """The schema that is sent."""
        ...

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        """The value in the form of the original schema."""
        ...

    def accepts(self, value: Json) -> bool:
        """False when the value cannot be one of this node."""
        ...


@dataclass(frozen=True, slots=True)
class Branch:
    """An alternative of a union: its node, and whether a value in the original form fits its original schema."""

    node: Node
    fits: Callable[[Json, WorkMeter], bool]


def fold_case(text: Json) -> Json:
    """Text without case and outer spaces, neither of which a provider's grammar promises to keep."""
    return text.strip().casefold() if isinstance(text, str) else text


def decode_text(value: Json) -> Json:
    """The value of JSON text; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except ValueError:
        return value


_IS_TYPE: Final[dict[str, Callable[[Json], bool]]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}


@dataclass(frozen=True, slots=True)
class LeafNode:
    """A value that is neither object nor list. ``choices`` are those of its enum or const."""

    wire: dict[str, Any]
    choices: tuple[Json, ...] = ()

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1 + len(self.choices) // 10)
        if not isinstance(value, str) or not self.choices or value in self.choices:
            return value
        similar = [c for c in self.choices if isinstance(c, str) and fold_case(c) == fold_case(value)]
        return similar[0] if len(similar) == 1 else value

    def accepts(self, value: Json) -> bool:
        return _IS_TYPE[self.wire["type"]](value)


@dataclass(frozen=True, slots=True)
class TextNode:
    """A value of a schema that the provider cannot express. ``is_encoded``: it travels as JSON text in a string."""

    wire: dict[str, Any]
    is_encoded: bool = True

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1 + (len(value) // _CHARACTERS_PER_STEP if isinstance(value, str) else 0))
        return decode_text(value) if self.is_encoded else value

    def accepts(self, value: Json) -> bool:  # noqa: ARG002 - a server that ignores the schema may send any value
        return True


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """A list of items of one schema."""

    wire: dict[str, Any]
    item: Node

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1)
        return [self.item.from_wire(v, steps) for v in value] if isinstance(value, list) else value

    def accepts(self, value: Json) -> bool:
        return isinstance(value, list)


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """An object with named properties.

    ``absent_if_null``: properties whose null means that they are absent. ``absent_if_omitted``: those whose
    ``OMITTED`` does. ``rest``: the property that holds all properties without a name, as JSON text. ``constants``:
    the properties that are one fixed text.
    """

    wire: dict[str, Any]
    properties: dict[str, Node]
    absent_if_null: frozenset[str] = frozenset()
    absent_if_omitted: frozenset[str] = frozenset()
    rest: str | None = None
    constants: dict[str, str] = field(default_factory=dict)

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1)
        if not isinstance(value, dict):
            return value
        out: dict[str, Json] = {}
        for key, item in value.items():
            node = self.properties.get(key)
            if node is None:
                if key != self.rest:
                    out[key] = item
            elif not self._is_absent(key, item):
                out[key] = node.from_wire(item, steps)
        if self.rest is not None and self.rest in value:
            rest = decode_text(value[self.rest])
            if isinstance(rest, dict):
                out.update({k: v for k, v in rest.items() if k not in self.properties})
            elif rest is not None:
                out[self.rest] = rest
        return out

    def _is_absent(self, key: str, item: Json) -> bool:
        return (item is None and key in self.absent_if_null) or (item == OMITTED and key in self.absent_if_omitted)

    def accepts(self, value: Json) -> bool:
        """A constant that is present must be equal: this tells the Calls of different Tools apart."""
        if not isinstance(value, dict):
            return False
        present = ((value[k], c) for k, c in self.constants.items() if isinstance(value.get(k), str))
        return all(fold_case(text) == fold_case(constant) for text, constant in present)


@dataclass(frozen=True, slots=True)
class RefNode:
    """A reference to a definition, which is looked up on use: a definition may refer to itself."""

    wire: dict[str, Any]
    name: str
    definitions: dict[str, Node]

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1)
        return self.definitions[self.name].from_wire(value, steps)

    def accepts(self, value: Json) -> bool:
        return self.definitions[self.name].accepts(value)


@dataclass(frozen=True, slots=True)
class UnionNode:
    """One of several alternatives: the first whose value in the original form fits its original schema."""

    wire: dict[str, Any]
    branches: tuple[Branch, ...]

    def from_wire(self, value: Json, steps: WorkMeter) -> Json:
        steps.spend(1 + len(self.branches))
        candidates = [b for b in self.branches if b.node.accepts(value)]
        if not candidates:
            return value
        if len(candidates) == 1:
            return candidates[0].node.from_wire(value, steps)
        if not isinstance(value, (dict, list)):
            # Cheap to read in every way; where all ways agree, no schema has to be compiled
            values = [b.node.from_wire(value, steps) for b in candidates]
            if all(type(v) is type(values[0]) and v == values[0] for v in values):
                return values[0]
        values = []
        for branch in candidates:
            values.append(branch.node.from_wire(value, steps))
            if branch.fits(values[-1], steps):
                return values[-1]
        return values[0]

    def accepts(self, value: Json) -> bool:
        return any(b.node.accepts(value) for b in self.branches)
