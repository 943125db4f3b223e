"""The append-only log of a plan's data, read as of a position in the plan.

Theory of operation
-------------------
Each write carries the rank of its Call. Writes arrive in any order. A read *as of rank r* is the
fold of the initial messages and of all writes below rank r, in rank order. It looks only at what
overlaps its path:

* Every written path keeps its effects sorted by rank, and every prefix of the path keeps them too.
  ``merge`` and ``assign`` are stored as a ``set`` of each leaf, so that a reader of one leaf never
  looks at the others.
* A fold starts at the latest ``set`` at or above the path, not at the beginning.
* A fold is cached. A Call reads only when every overlapping writer before it has settled, so no
  later write can change what was cached. A fold of more than the Call reads (a list, for one item
  of it) may still change: a write below its rank drops it from the cache.

Ten thousand writes and ten thousand reads therefore take time linear in their number.

Each instance has a view of its own: its effects are folded onto the global view as of the same
rank. Its own always win, and nothing of another instance is reachable.

Who may read or write, and when, is not decided here.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from acts.language.errors import CallError, Problem
from acts.language.output_methods import GROWING_METHODS, OUTPUT_METHODS
from acts.language.references import Path
from acts.language.values import ABSENT, UNKNOWN, Json, Names, get, pointer, type_name, with_article
from acts.language.wire import WRONG_KIND
from acts.plan.effects import apply_effect, split_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acts.language.messages import Data

END: Final = 1 << 60
"""A rank after every Call."""
START: Final = 0
"""A read as of this rank sees the context before the plan."""
_BEFORE: Final = -1
"""The rank of the initial messages."""

Effect = tuple[int, int, Names, str, Json]
"""What one write does at one path: rank, sequence number, names, operation, value.

The first two order the effects of a view, and no two effects have the same: bisection compares whole tuples.
"""

Point = tuple[int, int]
"""A point in the order of effects: those at or after it are not applied yet."""
_FIRST: Final[Point] = (_BEFORE - 1, 0)


@dataclass(slots=True)
class _PathEffects:
    """The effects at one path, by operation, and those strictly below it; each list is sorted."""

    sets: list[Effect] = field(default_factory=list)
    grows: list[Effect] = field(default_factory=list)
    ensures: list[Effect] = field(default_factory=list)
    below: list[Effect] = field(default_factory=list)


class View:
    """The global view of a context, or that of one instance over the global one (``shared``)."""

    def __init__(self, shared: View | None = None) -> None:
        self._shared = shared
        self._base: dict[str, Json] = {}
        self._effects: dict[tuple[str, Names], _PathEffects] = {}
        self._cache: dict[tuple[str, Names], tuple[int, Json, Json]] = {}
        self._count = 0
        self._kinds: dict[str, None] = {}

    # -- writing ---------------------------------------------------------------

    def write(self, path: Path, method: str, value: Json, rank: int) -> None:
        """Record a write for which ``find_conflict`` returned None."""
        if self._shared is None:
            method, value = self._without_growth(path, method, value, rank)
        for names, operation, part in split_write(path.names, method, value):
            self._add(path.kind, names, operation, part, rank)

    def _without_growth(self, path: Path, method: str, value: Json, rank: int) -> tuple[str, Json]:
        """The write as a ``set``, where a method that grows a value finds nothing to grow."""
        if method in GROWING_METHODS and self.type_at(path, rank) in ("nothing", "null"):
            return "set", [value] if OUTPUT_METHODS[method].adds_element else value
        return method, value

    def fold_message(self, message: Data, owned: set[int]) -> CallError | None:
        """Add a message to the context before the plan, or return why it cannot be applied.

        ``owned`` holds the ids of the containers that earlier messages of the same fold created.
        """
        if message.payload is ABSENT:
            return None
        path, method, value = Path(message.kind), "root", message.payload
        if message.path is not None:
            path, method, value = message.path, message.method, get(message.payload, message.path.names)
            conflict = self.find_conflict(path, method, value, START)
            if value is ABSENT or conflict:
                return conflict
        self._cache.clear()
        if self._shared is not None:
            self.write(path, method, value, _BEFORE)
            return None
        self._kinds[path.kind] = None
        method, value = self._without_growth(path, method, value, START)
        for names, operation, part in split_write(path.names, method, value):
            self._base[path.kind] = apply_effect(self._base.get(path.kind, ABSENT), names, operation, part, owned)
        return None

    def fold_checked(self, message: Data) -> None:
        """Add a message of an instance for which ``fold_message`` returned None, whatever was written since."""
        if message.payload is ABSENT:
            return
        if message.path is None:
            self.write(Path(message.kind), "root", message.payload, _BEFORE)
        else:
            self.write(message.path, message.method, get(message.payload, message.path.names), _BEFORE)

    def _add(self, kind: str, names: Names, operation: str, value: Json, rank: int) -> None:
        self._kinds[kind] = None
        self._count += 1
        effect: Effect = (rank, self._count, names, operation, value)
        effects = self._effects_at(kind, names)
        siblings = {"set": effects.sets, "ensure": effects.ensures}.get(operation, effects.grows)
        bisect.insort(siblings, effect)
        for depth in range(len(names)):
            bisect.insort(self._effects_at(kind, names[:depth]).below, effect)
            cached = self._cache.get((kind, names[:depth]))
            if cached is not None and cached[0] > rank:
                del self._cache[(kind, names[:depth])]

    def _effects_at(self, kind: str, names: Names) -> _PathEffects:
        effects = self._effects.get((kind, names))
        if effects is None:
            effects = self._effects[(kind, names)] = _PathEffects()
        return effects

    # -- reading ---------------------------------------------------------------

    def kinds(self) -> tuple[str, ...]:
        """Every kind with a value, in the order of their first messages."""
        shared = self._shared.kinds() if self._shared else ()
        return tuple(dict.fromkeys((*shared, *self._kinds)))

    def own_changes(self) -> Iterator[tuple[Path, bool]]:
        """The paths that this view's own effects change; True where that can hide the shared values below."""
        for (kind, names), effects in self._effects.items():
            path = Path(kind, names)
            replaces = bool(effects.sets or effects.grows)
            yield path, replaces or (self._shared is not None and self._shared.type_at(path, START) == "list")

    def read(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank``, or ABSENT.

        ``settled`` promises that every overlapping write below ``rank`` has arrived: the fold is
        then cached.
        """
        kind, names = path.kind, path.names
        base = self._read_base(path, rank, settled=settled)
        if not self._effects:
            return base
        point, value = _FIRST, base
        cached = self._cache.get((kind, names))
        if cached is not None and cached[0] <= rank and cached[2] is base:
            point, value = (cached[0], 0), cached[1]
        latest = self._latest_set(kind, names, point, rank)
        if latest is not None:
            point, value = _after(latest), get(latest[4], names[len(latest[2]) :])
        growing = self._growing_above(kind, names, point, rank)
        if growing is not None:
            # Writes beside the path may still arrive: ``_add`` then drops what is cached here
            value = get(self.read(Path(kind, growing), rank, settled=settled), names[len(growing) :])
        else:
            hidden = self._hidden_at(kind, names, rank)
            if hidden is not None and hidden >= point:
                point, value = hidden, ABSENT
            value = self._fold(kind, names, value, point, rank)
        if settled:
            self._cache[(kind, names)] = (rank, value, base)
        return value

    def _read_base(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        if self._shared is not None:
            return self._shared.read(path, rank, settled=settled)
        return get(self._base.get(path.kind, ABSENT), path.names)

    def _latest_set(self, kind: str, names: Names, point: Point, rank: int) -> Effect | None:
        """The latest ``set`` at or above ``names``, not before ``point`` and below ``rank``."""
        latest: Effect | None = None
        for depth in range(len(names) + 1):
            effects = self._effects.get((kind, names[:depth]))
            last = _last(effects.sets, rank) if effects is not None else None
            if last is not None and last >= (latest or point):
                latest = last
        return latest

    def _growing_above(self, kind: str, names: Names, point: Point, rank: int) -> Names | None:
        """The shallowest strict prefix whose list or string grew since ``point``: it must be read as a whole."""
        for depth in range(len(names)):
            effects = self._effects.get((kind, names[:depth]))
            last = _last(effects.grows, rank) if effects is not None else None
            if last is not None and last >= point:
                return names[:depth]
        return None

    def _hidden_at(self, kind: str, names: Names, rank: int) -> Point | None:
        """The point at which an object last replaced a list or scalar above ``names``, and hid its parts."""
        latest_point: Point | None = None
        for depth in range(len(names)):
            effects = self._effects.get((kind, names[:depth]))
            if effects is None or not (effects.ensures or effects.below):
                continue
            above = Path(kind, names[:depth])
            latest = self._latest_set(kind, above.names, _FIRST, rank)
            before = get(latest[4], above.names[len(latest[2]) :]) if latest else self._read_base(above, rank)
            if before is None or before is ABSENT or before is UNKNOWN or isinstance(before, dict):
                continue
            start = _after(latest) if latest else _FIRST
            firsts = (_between(part, start, rank)[:1] for part in (effects.ensures, effects.below))
            point = min((e[:2] for part in firsts for e in part), default=None)
            if point is not None:
                latest_point = max(latest_point, point) if latest_point else point
        return latest_point

    def _fold(self, kind: str, names: Names, value: Json, point: Point, rank: int) -> Json:
        """``value`` with the effects at ``names`` and below it applied, from ``point`` on and below ``rank``."""
        here = self._effects.get((kind, names))
        if here is None:
            return value
        parts = [_between(part, point, rank) for part in (here.grows, here.ensures, here.below) if part]
        effects = sorted(chain.from_iterable(parts)) if len(parts) > 1 else chain.from_iterable(parts)
        owned: set[int] = set()
        for effect in effects:
            value = apply_effect(value, effect[2][len(names) :], effect[3], effect[4], owned)
        return value

    # -- conflicts -------------------------------------------------------------

    def find_conflict(self, path: Path, method: str, value: Json, rank: int) -> CallError | None:
        """Why ``method`` cannot be applied at ``path`` as of ``rank``, or None."""
        for depth in range(len(path.names)):
            names = path.names[:depth]
            if self._may_be_list(path.kind, names) and self.type_at(above := Path(path.kind, names), rank) == "list":
                return CallError(WRONG_KIND, f"{path} leads through {above}, which is a list")
        if method == "set":
            return None
        old = self.type_at(path, rank)
        if old in ("nothing", "null", "unknown") or value is UNKNOWN:
            return None
        new = type_name(value)
        if OUTPUT_METHODS[method].fits(old, new):
            return None
        return CallError(WRONG_KIND, f"{method} of {with_article(new)} at {path}, which holds {with_article(old)}")

    def _may_be_list(self, kind: str, names: Names) -> bool:
        """False where no list was ever put at ``names``: true of nearly every path, and quickly known."""
        for depth in range(len(names) + 1):
            effects = self._effects.get((kind, names[:depth]))
            if effects is not None and (effects.sets or effects.grows):
                return True
        if self._shared is not None:
            return self._shared._may_be_list(kind, names)  # noqa: SLF001 - a view like this one
        return isinstance(get(self._base.get(kind, ABSENT), names), list)

    def type_at(self, path: Path, rank: int) -> str:
        """The type name of the value at ``path`` as of ``rank``, mostly without a fold: that of its latest effect."""
        latest = self._latest_set(path.kind, path.names, _FIRST, rank)
        point: Point = _after(latest) if latest else _FIRST
        if latest is not None:
            type_ = type_name(get(latest[4], path.names[len(latest[2]) :]))
        elif self._shared is not None:
            type_ = self._shared.type_at(path, rank)
        else:
            type_ = type_name(self._read_base(path, rank))
        if self._growing_above(path.kind, path.names, point, rank) is not None:
            return type_name(self.read(path, rank))
        hidden = self._hidden_at(path.kind, path.names, rank)
        if hidden is not None and hidden >= point:
            point, type_ = hidden, "nothing"
        effects = self._effects.get((path.kind, path.names))
        if effects is None or type_ == "unknown":
            return type_
        last = [e for e in (_last(effects.below, rank), _last(effects.ensures, rank)) if e and e >= point]
        growth = _last(effects.grows, rank)
        if last and max(last) >= (growth or point):
            return "object"
        if growth and growth >= point:
            return "list" if OUTPUT_METHODS[growth[3]].adds_element else type_name(growth[4])
        return type_


class Log:
    """The data of one context: the global view (``shared``) and one view per instance (``own``).

    ``problems`` holds the initial messages that could not be applied. Where ``is_checked`` says that there are none,
    the messages of an instance are folded when somebody asks for its view: a batch never asks for most of them.
    """

    def __init__(self, messages: Iterable[Data], *, is_checked: bool = False) -> None:
        self.shared = View()
        self.own: dict[str, View] = {}
        self.problems: list[Problem] = []
        self._not_folded: dict[str, list[Data]] = {}
        owned: set[int] = set()
        for message in messages:
            if is_checked and message.instance is not None:
                self._not_folded.setdefault(message.instance, []).append(message)
                continue
            conflict = self.view_of(message.instance, create=True).fold_message(message, owned)
            if conflict:
                place = pointer("context", message.index, "_outputMethod")
                self.problems.append(Problem("invalidMessage", conflict.message, place))
        self.own.update((instance, View(self.shared)) for instance in self._not_folded)

    def view_of(self, instance: str | None, *, create: bool = False) -> View:
        """The view that the Calls of an instance (None: global Calls) read and write.

        Raises:
            KeyError: the instance has no view, and ``create`` is False.
        """
        if instance is None:
            return self.shared
        if create and instance not in self.own:
            self.own[instance] = View(self.shared)
        view = self.own[instance]
        for message in self._not_folded.pop(instance, ()):
            view.fold_checked(message)
        return view

    def read(self, path: Path, rank: int, instance: str | None = None, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank`` in an instance's view, or ABSENT."""
        return self.view_of(instance).read(path, rank, settled=settled)

    def has_initially(self, path: Path, instance: str | None = None) -> bool:
        """True when the context has a value at the path before the plan (null is one)."""
        return self.read(path, START, instance) is not ABSENT

    def read_kind(self, kind: str, rank: int = END, instance: str | None = None) -> Json:
        """The value of a whole kind as of ``rank``, or ABSENT."""
        return self.read(Path(kind), rank, instance)


def _after(effect: Effect) -> Point:
    return (effect[0], effect[1] + 1)


def _last(effects: list[Effect], rank: int) -> Effect | None:
    """The last effect below ``rank``."""
    at = bisect.bisect_left(effects, (rank, 0)) if effects else 0
    return effects[at - 1] if at else None


def _between(effects: list[Effect], point: Point, rank: int) -> Sequence[Effect]:
    """The effects from ``point`` on, below ``rank``."""
    low = bisect.bisect_left(effects, point)
    return effects[low : bisect.bisect_left(effects, (rank, 0))]
