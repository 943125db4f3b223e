"""The append-only log of a plan's data, read as of a plan position.

Writes carry the rank of their Call. They arrive in any order; a read "as of rank r"
folds the messages that were there at the start and the writes of lower rank, in rank
order. It only looks at what overlaps its path:

* every written path keeps its effects sorted by rank, and so does every prefix of it
  for what was written below. ``merge`` and ``assign`` are stored as the ``set``s of
  their leaves, so that a reader of one leaf never meets the others;
* a fold starts at the latest ``set`` at or above the path, not at the beginning;
* a fold is remembered. A Call reads only when every overlapping writer before it has
  settled, so nothing can later slip in below what was remembered; where a fold took in
  more than the Call asked for (a list, to read one place of it), a write that does slip
  in makes it forgotten.

Ten thousand writes and ten thousand reads therefore cost time linear in their number.

Instances are layers: an instance's own effects are folded onto the global view as of
the same rank, so its own always win and nothing of another instance is reachable.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from acts.language.errors import CallError, Problem
from acts.language.references import Path
from acts.language.values import ABSENT, UNKNOWN, Json, Names, get, pointer, type_name
from acts.language.wire import WRONG_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acts.language.messages import Data

END: Final = 1 << 60
"""A rank after every Call."""
START: Final = 0
"""Reads as of this rank see what was there before the plan."""
_BEFORE: Final = -1

# What one write does at one path; rank and sequence together are unique
Effect = tuple[int, int, Names, str, Json]


# A point in the order of effects: those at or after it are still to be applied
Point = tuple[int, int]
_FIRST: Final[Point] = (_BEFORE - 1, 0)


@dataclass(slots=True)
class _Place:
    """What was written at one path, and strictly below it, each sorted by order."""

    sets: list[Effect] = field(default_factory=list)
    grows: list[Effect] = field(default_factory=list)
    ensures: list[Effect] = field(default_factory=list)
    below: list[Effect] = field(default_factory=list)


class View:
    """Effects over a base: the global view, or one instance's over the global one."""

    def __init__(self, under: View | None = None) -> None:
        self._under = under
        self._base: dict[str, Json] = {}
        self._places: dict[tuple[str, Names], _Place] = {}
        self._memo: dict[tuple[str, Names], tuple[int, Json, Json]] = {}
        self._count = 0
        self._kinds: dict[str, None] = {}

    # -- writing ---------------------------------------------------------------

    def write(self, path: Path, method: str, value: Json, rank: int) -> None:
        """Record a write whose ``conflict`` was None."""
        empty = self._under is None and self.shape(path, rank) in ("nothing", "null")
        if method in ("push", "concat") and empty:
            method, value = "set", [value] if method == "push" else value
        for names, operation, part in _effects(path.names, method, value):
            self._add(path.kind, names, operation, part, rank)

    def take(self, message: Data, owned: set[int]) -> CallError | None:
        """Take a message as one that stood before the plan; the reason if it cannot be.

        ``owned`` names the containers that earlier takes of the same fold made.
        """
        if message.payload is ABSENT:
            return None
        path, method, value = Path(message.kind), "root", message.payload
        if message.path is not None:
            path, method, value = message.path, message.method, get(message.payload, message.path.names)
            refused = self.conflict(path, method, value, START)
            if value is ABSENT or refused:
                return refused
        self._memo.clear()
        if self._under is not None:
            self.write(path, method, value, _BEFORE)
            return None
        self._kinds[path.kind] = None
        if method in ("push", "concat") and self.shape(path, START) in ("nothing", "null"):
            method, value = "set", [value] if method == "push" else value
        for names, operation, part in _effects(path.names, method, value):
            self._base[path.kind] = _put(self._base.get(path.kind, ABSENT), names, operation, part, owned)
        return None

    def _add(self, kind: str, names: Names, operation: str, value: Json, rank: int) -> None:
        self._kinds[kind] = None
        self._count += 1
        effect: Effect = (rank, self._count, names, operation, value)
        place = self._place(kind, names)
        own = {"set": place.sets, "ensure": place.ensures}.get(operation, place.grows)
        bisect.insort(own, effect, key=_order)
        for depth in range(len(names)):
            bisect.insort(self._place(kind, names[:depth]).below, effect, key=_order)
            known = self._memo.get((kind, names[:depth]))
            if known is not None and known[0] > rank:
                del self._memo[(kind, names[:depth])]

    def _place(self, kind: str, names: Names) -> _Place:
        place = self._places.get((kind, names))
        if place is None:
            place = self._places[(kind, names)] = _Place()
        return place

    # -- reading ---------------------------------------------------------------

    def kinds(self) -> tuple[str, ...]:
        """Every kind that holds something, in the order of appearance."""
        under = self._under.kinds() if self._under else ()
        return tuple(dict.fromkeys((*under, *self._kinds)))

    def initial_changes(self) -> Iterator[tuple[Path, bool]]:
        """The places that this view wrote itself, and what is above them.

        True where that can hide what the view under it holds below the place.
        """
        for (kind, names), place in self._places.items():
            path = Path(kind, names)
            replaced = bool(place.sets or place.grows)
            yield path, replaced or (self._under is not None and self._under.shape(path, START) == "list")

    def read(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank``, or ABSENT.

        ``settled`` promises that every overlapping write below ``rank`` is in; the
        fold is then remembered.
        """
        kind, names = path.kind, path.names
        base = self._read_base(path, rank, settled=settled)
        if not self._places:
            return base
        known = self._memo.get((kind, names))
        usable = known is not None and known[0] <= rank and known[2] is base
        point: Point = (known[0], 0) if known is not None and usable else _FIRST
        value = known[1] if known is not None and usable else base
        latest = self._latest_set(kind, names, point, rank)
        if latest is not None:
            point, value = _after(latest), get(latest[4], names[len(latest[2]) :])
        grown = self._grown_above(kind, names, point, rank)
        if grown is not None:
            # What is beside the path may still come: ``_add`` then forgets what is remembered here
            value = get(self.read(Path(kind, grown), rank, settled=settled), names[len(grown) :])
        else:
            swept = self._swept(kind, names, rank)
            if swept is not None and swept >= point:
                point, value = swept, ABSENT
            value = self._fold(kind, names, value, point, rank)
        if settled:
            self._memo[(kind, names)] = (rank, value, base)
        return value

    def _read_base(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        if self._under is not None:
            return self._under.read(path, rank, settled=settled)
        return get(self._base.get(path.kind, ABSENT), path.names)

    def _latest_set(self, kind: str, names: Names, point: Point, rank: int) -> Effect | None:
        """The latest ``set`` at or above ``names``, not before ``point`` and below ``rank``."""
        best: Effect | None = None
        for depth in range(len(names) + 1):
            place = self._places.get((kind, names[:depth]))
            found = _last(place.sets, rank) if place else None
            if found and _order(found) >= (_order(best) if best else point):
                best = found
        return best

    def _grown_above(self, kind: str, names: Names, point: Point, rank: int) -> Names | None:
        """The shallowest strict prefix whose list or string grew since ``point``: read there."""
        for depth in range(len(names)):
            place = self._places.get((kind, names[:depth]))
            last = _last(place.grows, rank) if place else None
            if last and _order(last) >= point:
                return names[:depth]
        return None

    def _swept(self, kind: str, names: Names, rank: int) -> Point | None:
        """When an object last took the place of a list or scalar above ``names``, and hid what it held."""
        found: Point | None = None
        for depth in range(len(names)):
            place = self._places.get((kind, names[:depth]))
            if place is None or not (place.ensures or place.below):
                continue
            above = Path(kind, names[:depth])
            latest = self._latest_set(kind, above.names, _FIRST, rank)
            before = get(latest[4], above.names[len(latest[2]) :]) if latest else self._read_base(above, rank)
            if before is None or before is ABSENT or before is UNKNOWN or isinstance(before, dict):
                continue
            start = _after(latest) if latest else _FIRST
            firsts = (_between(part, start, rank)[:1] for part in (place.ensures, place.below))
            point = min((_order(e) for part in firsts for e in part), default=None)
            if point is not None:
                found = max(found, point) if found else point
        return found

    def _fold(self, kind: str, names: Names, value: Json, point: Point, rank: int) -> Json:
        place = self._places.get((kind, names))
        if place is None:
            return value
        parts = [p for p in (place.grows, place.ensures, place.below) if p]
        found = [_between(p, point, rank) for p in parts]
        effects = sorted((e for p in found for e in p), key=_order) if len(found) > 1 else found[0] if found else ()
        owned: set[int] = set()
        for effect in effects:
            value = _put(value, effect[2][len(names) :], effect[3], effect[4], owned)
        return value

    # -- conflicts -------------------------------------------------------------

    def conflict(self, path: Path, method: str, value: Json, rank: int) -> CallError | None:
        """Why ``method`` cannot be applied at ``path`` as of ``rank``, or None."""
        for depth in range(len(path.names)):
            above = Path(path.kind, path.names[:depth])
            if self.shape(above, rank) == "list":
                return CallError(WRONG_KIND, f"{path} leads through {above}, which is a list")
        if method == "set":
            return None
        found = self.shape(path, rank)
        if found in ("nothing", "null", "unknown") or value is UNKNOWN:
            return None
        given = type_name(value)
        fits = {
            "push": found == "list",
            "concat": found == given and found in ("list", "string"),
            "merge": found == given and found in ("object", "list"),
            "assign": found == given == "object",
        }[method]
        if fits:
            return None
        return CallError(WRONG_KIND, f"{method} of {_a(given)} at {path}, which holds {_a(found)}")

    def shape(self, path: Path, rank: int) -> str:
        """The type of the value at ``path`` as of ``rank``: that of the latest effect there."""
        latest = self._latest_set(path.kind, path.names, _FIRST, rank)
        point: Point = _after(latest) if latest else _FIRST
        if latest is not None:
            found = type_name(get(latest[4], path.names[len(latest[2]) :]))
        elif self._under is not None:
            found = self._under.shape(path, rank)
        else:
            found = type_name(self._read_base(path, rank))
        if self._grown_above(path.kind, path.names, point, rank) is not None:
            return type_name(self.read(path, rank))
        swept = self._swept(path.kind, path.names, rank)
        if swept is not None and swept >= point:
            point, found = swept, "nothing"
        place = self._places.get((path.kind, path.names))
        if place is None or found == "unknown":
            return found
        last = [e for e in (_last(place.below, rank), _last(place.ensures, rank)) if e and _order(e) >= point]
        grown = _last(place.grows, rank)
        if last and max(map(_order, last)) >= (_order(grown) if grown else point):
            return "object"
        if grown and _order(grown) >= point:
            return {"push": "list"}.get(grown[3]) or type_name(grown[4])
        return found


class Log:
    """All layers of one context: the global one and one per instance."""

    def __init__(self, messages: Iterable[Data]) -> None:
        self.shared = View()
        self.own: dict[str, View] = {}
        self.problems: list[Problem] = []
        owned: set[int] = set()
        for message in messages:
            refused = self.layer(message.instance, create=True).take(message, owned)
            if refused:
                self.problems.append(
                    Problem("invalidMessage", refused.message, pointer("context", message.index, "_outputMethod"))
                )

    def layer(self, instance: str | None, *, create: bool = False) -> View:
        """The layer that an instance (None: a global Call) reads and writes."""
        if instance is None:
            return self.shared
        found = self.own.get(instance)
        if found is None:
            if not create:
                raise KeyError(instance)
            found = self.own[instance] = View(self.shared)
        return found

    def read(self, path: Path, rank: int, instance: str | None = None, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank`` in an instance's view, or ABSENT."""
        return self.layer(instance).read(path, rank, settled=settled)

    def has_initially(self, path: Path, instance: str | None = None) -> bool:
        """True when the context has a value at the path before the plan (null is one)."""
        return self.read(path, START, instance) is not ABSENT

    held = has_initially

    def view(self, kind: str, rank: int = END, instance: str | None = None) -> Json:
        """All of one kind, or ABSENT."""
        return self.read(Path(kind), rank, instance)


def _order(effect: Effect | Point) -> Point:
    return (effect[0], effect[1])


def _after(effect: Effect) -> Point:
    return (effect[0], effect[1] + 1)


def _last(effects: list[Effect], rank: int) -> Effect | None:
    """The last effect below ``rank``."""
    at = bisect.bisect_left(effects, (rank, 0), key=_order)
    return effects[at - 1] if at else None


def _between(effects: list[Effect], point: Point, rank: int) -> Sequence[Effect]:
    """The effects from ``point`` on, below ``rank``."""
    low = bisect.bisect_left(effects, point, key=_order)
    return effects[low : bisect.bisect_left(effects, (rank, 0), key=_order)]


def _effects(names: Names, method: str, value: Json) -> Iterator[tuple[Names, str, Json]]:
    """A write as single effects: ``set``, ``ensure`` (an object is there), ``push``, ``concat``."""
    if method in ("merge", "root", "assign") and isinstance(value, dict):
        if not value or method == "root":
            yield names, "ensure", None
        for key, part in value.items():
            yield from _effects((*names, key), "set" if method == "assign" else "root", part)
        return
    yield names, method if method in ("push", "concat") else "set", value


def _put(root: Json, names: Names, operation: str, value: Json, owned: set[int]) -> Json:
    """``root`` with one effect applied. Containers in ``owned`` are ours to change."""
    if not names:
        return _combine(root, operation, value, owned)
    root = node = _object(root, owned)
    if node is UNKNOWN:
        return UNKNOWN
    for name in names[:-1]:
        child = _object(node.get(name, ABSENT), owned)
        node[name] = child
        if child is UNKNOWN:
            return root
        node = child
    node[names[-1]] = _combine(node.get(names[-1], ABSENT), operation, value, owned)
    return root


def _object(value: Json, owned: set[int]) -> Json:
    """An object of ours with the same keys; anything else is replaced by an empty one."""
    if value is UNKNOWN or (isinstance(value, dict) and id(value) in owned):
        return value
    copy = dict(value) if isinstance(value, dict) else {}
    owned.add(id(copy))
    return copy


def _combine(old: Json, operation: str, value: Json, owned: set[int]) -> Json:
    if operation == "set":
        return value
    if old is UNKNOWN:
        return UNKNOWN
    if operation == "ensure":
        return old if isinstance(old, dict) else {}
    if operation == "push":
        if isinstance(old, list) and id(old) in owned:
            old.append(value)
            return old
        grown = [*old, value] if isinstance(old, list) else [value]
        owned.add(id(grown))
        return grown
    if value is UNKNOWN:
        return UNKNOWN
    same = (isinstance(old, list) and isinstance(value, list)) or (isinstance(old, str) and isinstance(value, str))
    return old + value if same else value


def _a(word: str) -> str:
    return word if word in ("null", "nothing") else f"an {word}" if word[0] in "aeiou" else f"a {word}"
