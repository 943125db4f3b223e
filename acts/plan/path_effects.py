"""The effects of writes at the paths of a kind, as a tree, and what they say of one path as of a rank.

Laws of this file: it knows effects and their order. What is below them (the messages before the plan, the view of
all instances) and which folds may be cached is for the context log to say.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from acts.language.output_methods import OUTPUT_METHODS
from acts.language.references import Path
from acts.language.values import Json, Names, type_name
from acts.plan.effects import apply_effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Effect = tuple[int, int, Names, str, Json]
"""What one write does at one path: rank, sequence number, names, operation, value.

The first two order the effects of a view, and no two effects have the same: bisection compares whole tuples.
"""

MESSAGE_RANK: Final = -1
"""The rank of the messages before the plan."""

Point = tuple[int, int]
"""A point in the order of effects: those at or after it are not applied yet."""
FIRST: Final[Point] = (-2, 0)
"""Before the initial messages, whose rank is -1."""


@dataclass(slots=True)
class PathEffects:
    """The effects at one path, by operation, and those strictly below it; each list is sorted.

    ``children`` are the paths one name longer. ``cached`` is a fold: its rank, its value and the base that it is of.
    """

    sets: Sequence[Effect] = ()
    grows: Sequence[Effect] = ()
    ensures: Sequence[Effect] = ()
    below: Sequence[Effect] = ()
    children: dict[str, PathEffects] | None = None
    cached: tuple[int, Json, Json] | None = None

    def child(self, name: str) -> PathEffects:
        """The path one name longer, made where there is none yet."""
        if self.children is None:
            self.children = {}
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = PathEffects()
        return child

    def add(self, operation: str, effect: Effect) -> None:
        """Put an effect of this path in its place."""
        if operation == "set":
            self.sets = _with_effect(self.sets, effect)
        elif operation == "ensure":
            self.ensures = _with_effect(self.ensures, effect)
        else:
            self.grows = _with_effect(self.grows, effect)

    def add_below(self, effect: Effect) -> None:
        """Put an effect of a path below this one in its place."""
        self.below = _with_effect(self.below, effect)

    def has_own_of_calls(self) -> bool:
        """True when a Call has written at this very path: the effects of messages have ranks before those of Calls."""
        return any(part and part[-1][0] > MESSAGE_RANK for part in (self.sets, self.grows, self.ensures))

    def has_any_of_calls(self) -> bool:
        """True when a Call has written at this path or below it."""
        return self.has_own_of_calls() or bool(self.below and self.below[-1][0] > MESSAGE_RANK)

    def changes(self, path: Path) -> Iterator[tuple[Path, PathEffects]]:
        """This path and all below it."""
        yield path, self
        for name, child in (self.children or {}).items():
            yield from child.changes(Path(path.kind, (*path.names, name)))


def _with_effect(effects: Sequence[Effect], effect: Effect) -> Sequence[Effect]:
    """The same list with one effect more; a new one for the first: most paths have effects of one operation."""
    if not isinstance(effects, list):
        return [effect]
    bisect.insort(effects, effect)
    return effects


Trail = list[PathEffects]
"""The effects at a path and at all above it, the kind first: as many as there are."""

# Types of values whose parts no object below them hides
_TAKES_PARTS: Final = ("null", "nothing", "unknown", "object")


def find_latest_set(trail: Trail, point: Point, rank: int) -> Effect | None:
    """The latest ``set`` of a trail, not before ``point`` and below ``rank``."""
    latest: Effect | None = None
    for effects in trail:
        last = last_before(effects.sets, rank)
        if last is not None and last >= (latest or point):
            latest = last
    return latest


def find_growth(above: Trail, point: Point, rank: int) -> int | None:
    """The depth of the first list or string that grew since ``point``: it must be read as a whole."""
    for depth, effects in enumerate(above):
        last = last_before(effects.grows, rank)
        if last is not None and last >= point:
            return depth
    return None


def find_hiding_point(effects: PathEffects, latest: Effect | None, type_: str, rank: int) -> Point | None:
    """The point since ``latest`` at which an object replaced what is here and of this type."""
    if type_ in _TAKES_PARTS or not (effects.ensures or effects.below):
        return None
    start = point_after(latest) if latest else FIRST
    firsts = (_between(part, start, rank)[:1] for part in (effects.ensures, effects.below))
    return min((e[:2] for part in firsts for e in part), default=None)


def later(one: Point | None, other: Point | None) -> Point | None:
    """The later of two points."""
    return one if other is None else other if one is None else max(one, other)


def type_after(effects: PathEffects | None, type_: str, point: Point, rank: int) -> str:
    """The type of what is here, after the effects since ``point`` that are not ``set``."""
    if effects is None or type_ == "unknown":
        return type_
    last = [e for e in (last_before(effects.below, rank), last_before(effects.ensures, rank)) if e and e >= point]
    growth = last_before(effects.grows, rank)
    if last and max(last) >= (growth or point):
        return "object"
    if growth and growth >= point:
        return "list" if OUTPUT_METHODS[growth[3]].adds_element else type_name(growth[4])
    return type_


def fold(here: PathEffects | None, depth: int, value: Json, point: Point, rank: int) -> Json:
    """``value`` with the effects at a path of so many names and below it applied: from ``point`` on, below ``rank``."""
    if here is None:
        return value
    parts = [_between(part, point, rank) for part in (here.grows, here.ensures, here.below) if part]
    effects = sorted(chain.from_iterable(parts)) if len(parts) > 1 else chain.from_iterable(parts)
    owned: dict[int, Json] = {}
    for effect in effects:
        value = apply_effect(value, effect[2][depth:], effect[3], effect[4], owned)
    return value


def point_after(effect: Effect) -> Point:
    """The point right after an effect."""
    return (effect[0], effect[1] + 1)


def last_before(effects: Sequence[Effect], rank: int) -> Effect | None:
    """The last effect below ``rank``."""
    at = bisect.bisect_left(effects, (rank, 0)) if effects else 0
    return effects[at - 1] if at else None


def _between(effects: Sequence[Effect], point: Point, rank: int) -> Sequence[Effect]:
    """The effects from ``point`` on, below ``rank``."""
    low = bisect.bisect_left(effects, point)
    return effects[low : bisect.bisect_left(effects, (rank, 0))]
