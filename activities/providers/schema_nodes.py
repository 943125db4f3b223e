"""The parts of a bridged schema: what is sent for each, and how its value is undone.

* A part never raises for an odd value: what it does not know, it hands back as it is,
  so that the check against the original schema can say what is wrong.
* Undoing is bounded (``Fuel``): no answer can make it search for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from acts.language.values import Json

LEFT_OUT: Final = "(left out)"
"""Stands on the wire, where every property must be given, for an optional one that may itself be null."""

# Undoing a large Solution takes some 10,000 steps; unions of unions could take exponentially many
MAX_STEPS: Final = 1_000_000


class SpentError(Exception):
    """Undoing took too many steps."""


@dataclass(slots=True)
class Fuel:
    """The steps that are left."""

    left: int = MAX_STEPS

    def burn(self) -> None:
        """One step."""
        self.left -= 1
        if self.left < 0:
            raise SpentError


class Part(Protocol):
    """A piece of a schema. ``wire`` is what is sent for it."""

    @property
    def wire(self) -> dict[str, Any]: ...

    def undo(self, value: Json, fuel: Fuel) -> Json:
        """The value in the form of the original schema."""
        ...

    def takes(self, value: Json) -> bool:
        """False when the value cannot be meant for this part."""
        ...

    def branches(self) -> Iterator[Branch]:
        """The alternatives it consists of; itself when it is no union."""
        ...


@dataclass(frozen=True, slots=True)
class Branch:
    """An alternative: its part, and whether an undone value fits its original schema."""

    part: Part
    fits: Callable[[Json], bool]


def folded(text: Json) -> Json:
    """Text without its case: what a grammar does not promise to keep."""
    return text.strip().casefold() if isinstance(text, str) else text


def decoded(value: Json) -> Json:
    """What JSON text says, or the value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return value


def _no_constant(name: str) -> Json:
    raise ValueError(name)


_KINDS: Final[dict[str, Callable[[Json], bool]]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without parts. ``choices`` are those of its enum or const."""

    wire: dict[str, Any]
    choices: tuple[Json, ...] = ()

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        if not isinstance(value, str) or not self.choices or value in self.choices:
            return value
        alike = [c for c in self.choices if isinstance(c, str) and folded(c) == folded(value)]
        return alike[0] if len(alike) == 1 else value

    def takes(self, value: Json) -> bool:
        return _KINDS[self.wire["type"]](value)

    def branches(self) -> Iterator[Branch]:
        yield Branch(self, lambda _: True)


@dataclass(frozen=True, slots=True)
class Text:
    """A value as JSON text, because its schema cannot be told. ``plain``: not encoded, only unknown."""

    wire: dict[str, Any]
    plain: bool = False

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        return value if self.plain else decoded(value)

    def takes(self, value: Json) -> bool:  # noqa: ARG002 - a server that ignores the schema may send it bare
        return True

    def branches(self) -> Iterator[Branch]:
        yield Branch(self, lambda _: True)


@dataclass(frozen=True, slots=True)
class Array:
    """A list of one kind of item."""

    wire: dict[str, Any]
    item: Part

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        return [self.item.undo(v, fuel) for v in value] if isinstance(value, list) else value

    def takes(self, value: Json) -> bool:
        return isinstance(value, list)

    def branches(self) -> Iterator[Branch]:
        yield Branch(self, lambda _: True)


@dataclass(frozen=True, slots=True)
class Object:
    """An object with named properties.

    ``absent``: properties for which null means that they were left out. ``more``: the
    property that holds, as JSON text, those without a name.
    """

    wire: dict[str, Any]
    parts: dict[str, Part]
    absent: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    more: str | None = None
    consts: dict[str, str] = field(default_factory=dict)

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        if not isinstance(value, dict):
            return value
        out: dict[str, Json] = {}
        for key, item in value.items():
            part = self.parts.get(key)
            if part is None:
                if key != self.more:
                    out[key] = item
            elif not self._left_out(key, item):
                out[key] = part.undo(item, fuel)
        if self.more is not None and self.more in value:
            rest = decoded(value[self.more])
            if isinstance(rest, dict):
                out.update({k: v for k, v in rest.items() if k not in self.parts})
            elif rest is not None:
                out[self.more] = rest
        return out

    def _left_out(self, key: str, item: Json) -> bool:
        return (item is None and key in self.absent) or (item == LEFT_OUT and key in self.optional)

    def takes(self, value: Json) -> bool:
        """A constant text that is there must be ours: this is how Calls are told apart."""
        if not isinstance(value, dict):
            return False
        return all(folded(value[k]) == folded(c) for k, c in self.consts.items() if isinstance(value.get(k), str))

    def branches(self) -> Iterator[Branch]:
        yield Branch(self, lambda _: True)


@dataclass(frozen=True, slots=True)
class Ref:
    """What a definition says; looked up when needed, as it may refer to itself."""

    wire: dict[str, Any]
    name: str
    known: dict[str, Part]

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        return self.known[self.name].undo(value, fuel)

    def takes(self, value: Json) -> bool:
        return self.known[self.name].takes(value)

    def branches(self) -> Iterator[Branch]:
        yield Branch(self, lambda _: True)


@dataclass(frozen=True, slots=True)
class Union:
    """One of several. The first whose undone value fits its original schema is the one that was meant."""

    wire: dict[str, Any]
    options: tuple[Branch, ...]

    def undo(self, value: Json, fuel: Fuel) -> Json:
        fuel.burn()
        fitting = [b for b in self.options if b.part.takes(value)]
        if not fitting:
            return value
        if len(fitting) == 1:
            return fitting[0].part.undo(value, fuel)
        undone: list[Json] = []
        if not isinstance(value, (dict, list)):
            # Cheap to undo in every way; where all ways agree, nothing need be compiled and checked
            undone = [b.part.undo(value, fuel) for b in fitting]
            if all(type(u) is type(undone[0]) and u == undone[0] for u in undone):
                return undone[0]
            undone = []
        for branch in fitting:
            undone.append(branch.part.undo(value, fuel))
            if branch.fits(undone[-1]):
                return undone[-1]
        return undone[0]

    def takes(self, value: Json) -> bool:
        return any(b.part.takes(value) for b in self.options)

    def branches(self) -> Iterator[Branch]:
        yield from self.options
