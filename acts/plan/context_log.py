"""The append-only log of a plan's data, read as of a position in the plan.

Theory of operation
-------------------
Each write carries the rank of its Call. Writes arrive in any order. A read *as of rank r* is the
fold of the initial messages and of all writes below rank r, in rank order. It looks only at what
overlaps its path:

* Every written path keeps its effects sorted by rank, and every prefix of the path keeps them too. The
  paths of a kind are a tree, so each operation costs time linear in the names of its path.
  ``merge`` and ``assign`` are stored as a ``set`` of each leaf, so that a reader of one leaf never
  looks at the others.
* A fold starts at the latest ``set`` at or above the path, not at the beginning.
* A fold is cached. A Call reads only when every overlapping writer before it has settled, so no
  later write can change what was cached. A fold of more than the Call reads (a list, for one item
  of it) may still change: a write below its rank drops it from the cache.

Each instance has a view of its own: its effects are folded onto the global view as of the same
rank. Its own always win, and nothing of another instance is reachable.

Who may read or write, and when, is not decided here.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from acts.language.errors import CallError, Problem
from acts.language.output_methods import GROWING_METHODS, OUTPUT_METHODS
from acts.language.references import Path
from acts.language.values import ABSENT, UNKNOWN, Json, Names, get, pointer, shape, type_name, with_article
from acts.language.wire import WRONG_KIND
from acts.plan.effects import apply_effect, split_write
from acts.plan.path_effects import (
    FIRST,
    MESSAGE_RANK,
    Effect,
    PathEffects,
    Point,
    Trail,
    find_growth,
    find_hiding_point,
    find_latest_set,
    fold,
    last_before,
    later,
    point_after,
    type_after,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from acts.language.messages import Data

END: Final = 1 << 60
"""A rank after every Call."""
START: Final = 0
"""A read as of this rank sees the context before the plan."""


class View:
    """The global view of a context, or that of one instance over the global one (``shared``)."""

    def __init__(self, shared: View | None = None) -> None:
        self._shared = shared
        self._base: dict[str, Json] = {}
        self._effects: dict[str, PathEffects] = {}
        self.effect_count = 0  # folded into the base, or kept
        self._kinds: dict[str, None] = {}
        self._has_folds = False
        # Of the global view: Calls of instances have written; somebody has read the base
        self.instances_have_written = self.was_read = False

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

    def fold_message(self, message: Data, owned: dict[int, Json]) -> CallError | None:
        """Add a message to the context before the plan, or return why it cannot be applied.

        ``owned`` holds the containers, by id, that earlier messages created and nobody has read.
        """
        if message.payload is ABSENT:
            return None
        path, method, value = Path(message.kind), "root", message.payload
        if message.path is not None:
            path, method, value = message.path, message.method, get(message.payload, message.path.names)
            conflict = self.find_conflict(path, method, value, START)
            if value is ABSENT or conflict:
                return conflict
        self._forget_folds()
        if self._shared is not None:
            self.write(path, method, value, MESSAGE_RANK)
            return None
        self._kinds[path.kind] = None
        method, value = self._without_growth(path, method, value, START)
        for names, operation, part in split_write(path.names, method, value):
            self.effect_count += 1
            self._base[path.kind] = apply_effect(self._base.get(path.kind, ABSENT), names, operation, part, owned)
        return None

    def fold_checked(self, message: Data) -> None:
        """Add a message of an instance for which ``fold_message`` returned None, whatever was written since."""
        if message.payload is ABSENT:
            return
        if message.path is None:
            self.write(Path(message.kind), "root", message.payload, MESSAGE_RANK)
        elif (value := get(message.payload, message.path.names)) is not ABSENT:
            self.write(message.path, message.method, value, MESSAGE_RANK)

    def has_met(self, message: Data) -> bool:
        """True when a Call has written at a path that a message of this view changes, or above or below it."""
        path, method, value = Path(message.kind), "root", message.payload
        if message.path is not None:
            path, method, value = message.path, message.method, get(message.payload, message.path.names)
        if value is ABSENT or path.kind not in self._effects:
            return False
        for names, operation, _ in split_write(path.names, method, value):
            is_object = operation == "ensure" and self.type_at(Path(path.kind, names), START) == "object"
            if not is_object and self._has_met_at(path.kind, names):
                return True
        return False

    def _has_met_at(self, kind: str, names: Names) -> bool:
        effects = self._effects.get(kind)
        for name in names:
            if effects is None or effects.has_own_of_calls():
                return effects is not None
            effects = (effects.children or {}).get(name)
        return effects is not None and effects.has_any_of_calls()

    def _add(self, kind: str, names: Names, operation: str, value: Json, rank: int) -> None:
        self._kinds[kind] = None
        self.effect_count += 1
        if self._shared is not None and rank > MESSAGE_RANK:
            self._shared.instances_have_written = True
        effect: Effect = (rank, self.effect_count, names, operation, value)
        effects = self._effects.get(kind)
        if effects is None:
            effects = self._effects[kind] = PathEffects()
        for name in names:
            effects.add_below(effect)
            if effects.cached is not None and effects.cached[0] > rank:
                effects.cached = None
            effects = effects.child(name)
        effects.add(operation, effect)

    def _forget_folds(self) -> None:
        if self._has_folds:
            for _, effects in self._all_effects():
                effects.cached = None
        self._has_folds = False

    def _all_effects(self) -> Iterator[tuple[Path, PathEffects]]:
        for kind, effects in self._effects.items():
            yield from effects.changes(Path(kind))

    def _trail(self, kind: str, names: Names) -> Trail:
        effects = self._effects.get(kind)
        trail: Trail = []
        for name in names:
            if effects is None:
                return trail
            trail.append(effects)
            effects = None if effects.children is None else effects.children.get(name)
        return trail if effects is None else [*trail, effects]

    # -- reading ---------------------------------------------------------------

    def kinds(self) -> tuple[str, ...]:
        """Every kind with a value, in the order of their first messages."""
        shared = self._shared.kinds() if self._shared else ()
        return tuple(dict.fromkeys((*shared, *self._kinds)))

    def own_changes(self) -> Iterator[tuple[Path, bool]]:
        """The paths that this view's own effects change; True where that can hide the shared values below."""
        for path, effects in self._all_effects():
            replaces = bool(effects.sets or effects.grows)
            yield path, replaces or (self._shared is not None and self._shared.type_at(path, START) == "list")

    def read(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank``, or ABSENT.

        ``settled`` promises that every overlapping write below ``rank`` has arrived: the fold is
        then cached.
        """
        kind, names = path.kind, path.names
        base = self._read_base(path, rank, settled=settled)
        trail = self._trail(kind, names)
        if not trail:
            return base
        here = trail[-1] if len(trail) > len(names) else None
        point, value = FIRST, base
        cached = here.cached if here is not None else None
        if cached is not None and cached[0] <= rank and cached[2] is base:
            point, value = (cached[0], 0), cached[1]
        latest = find_latest_set(trail, point, rank)
        if latest is not None:
            point, value = point_after(latest), get(latest[4], names[len(latest[2]) :])
        growing = find_growth(trail[: len(names)], point, rank)
        if growing is not None:
            # Writes beside the path may still arrive: ``_add`` then drops what is cached here
            value = get(self.read(Path(kind, names[:growing]), rank, settled=settled), names[growing:])
        else:
            hidden = self._hidden_at(kind, names, trail, rank)
            if hidden is not None and hidden >= point:
                point, value = hidden, ABSENT
            value = fold(here, len(names), value, point, rank)
        if settled and here is not None:
            self._has_folds = True
            here.cached = (rank, value, base)
        return value

    def _read_base(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        if self._shared is not None:
            return self._shared.read(path, rank, settled=settled)
        self.was_read = True
        return get(self._base.get(path.kind, ABSENT), path.names)

    def _types_of_base(self, kind: str, names: Names, rank: int) -> list[str]:
        """The type name of the value without this view's effects, at the kind and after each of the names."""
        if self._shared is not None:
            return list(self._shared._types(kind, names, rank))  # noqa: SLF001 - a view like this one
        value = self._base.get(kind, ABSENT)
        types = [type_name(value)]
        for name in names:
            value = get(value, (name,))
            types.append(type_name(value))
        return types

    def _levels(self, kind: str, names: Names, trail: Trail, rank: int) -> Iterator[tuple[Effect | None, str]]:
        """The latest ``set`` at or above the kind and each of the names, and the type of what it put there.

        Without one, the type is that of the base.
        """
        base: list[str] = []
        latest, value = None, ABSENT
        for depth in range(len(names) + 1):
            last = last_before(trail[depth].sets, rank) if depth < len(trail) else None
            if last is not None and (latest is None or last >= latest):
                latest, value = last, last[4]
            elif latest is not None:
                value = get(value, names[depth - 1 : depth])
            else:
                base = base or self._types_of_base(kind, names, rank)
            yield latest, type_name(value) if latest is not None else base[depth]

    def _hidden_at(self, kind: str, names: Names, trail: Trail, rank: int) -> Point | None:
        """The point at which an object last replaced a list or scalar above ``names``, and hid its parts."""
        above = trail[: len(names)]
        if not any(effects.ensures or effects.below for effects in above) or self._has_only_parts(kind, names):
            return None
        hidden: Point | None = None
        for effects, (latest, type_) in zip(above, self._levels(kind, names, trail, rank), strict=False):
            hidden = later(hidden, find_hiding_point(effects, latest, type_, rank))
        return hidden

    def _has_only_parts(self, kind: str, names: Names) -> bool:
        """True when all above ``names`` has been written in parts only, at any rank: there are objects, or nothing."""
        if kind in self._base or (self._shared is not None and not self._shared._has_only_parts(kind, names)):  # noqa: SLF001 - a view like this one
            return False
        return not any(effects.sets or effects.grows for effects in self._trail(kind, names)[: len(names)])

    # -- conflicts -------------------------------------------------------------

    def find_conflict(self, path: Path, method: str, value: Json, rank: int) -> CallError | None:
        """Why ``method`` cannot be applied at ``path`` as of ``rank``, or None."""
        if not self._has_only_parts(path.kind, path.names):
            for depth, type_ in enumerate(islice(self._types(path.kind, path.names, rank), len(path.names))):
                if type_ == "list":
                    above = Path(path.kind, path.names[:depth])
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

    def type_at(self, path: Path, rank: int) -> str:
        """The type name of the value at ``path`` as of ``rank``, mostly without a fold: that of its latest effect."""
        *_, type_ = self._types(path.kind, path.names, rank)
        return type_

    def _types(self, kind: str, names: Names, rank: int) -> Iterator[str]:
        """The type names of the kind and after each of the names; each costs the same, unless something grew above."""
        trail = self._trail(kind, names)
        grown: Point | None = None
        hidden: Point | None = None
        for depth, (latest, type_) in enumerate(self._levels(kind, names, trail, rank)):
            effects = trail[depth] if depth < len(trail) else None
            point = point_after(latest) if latest else FIRST
            if grown is not None and grown >= point:
                yield type_name(self.read(Path(kind, names[:depth]), rank))
            elif hidden is not None and hidden >= point:
                yield type_after(effects, "nothing", hidden, rank)
            else:
                yield type_after(effects, type_, point, rank)
            if effects is not None:
                growth = last_before(effects.grows, rank)
                grown = later(grown, growth[:2] if growth is not None else None)
                hidden = later(hidden, find_hiding_point(effects, latest, type_, rank))


class Log:
    """The data of one context: the global view (``shared``) and one view per instance (``own``).

    ``problems`` holds the initial messages that could not be applied. A message of an instance that cannot be one of
    them, because it has no path or ``is_checked`` says so, is folded when somebody asks for the view of the instance:
    a batch never asks for most of them.
    """

    def __init__(self, messages: Iterable[Data], *, is_checked: bool = False) -> None:
        self.shared = View()
        self.own: dict[str, View] = {}
        self.problems: list[Problem] = []
        self._not_folded: dict[str, list[Data]] = {}
        self._postponed: dict[str, Callable[[str], None]] = {}
        self._owned: dict[int, Json] = {}
        for message in messages:
            instance = message.instance
            is_first = instance in self._not_folded or instance not in self.own
            if instance is not None and (is_checked or message.path is None) and is_first:
                self.own.setdefault(instance, View(self.shared))
                self._not_folded.setdefault(instance, []).append(message)
                continue
            conflict = self.view_of(instance, create=True).fold_message(message, self._owned)
            if conflict:
                place = pointer("context", message.index, "_outputMethod")
                self.problems.append(Problem("invalidMessage", conflict.message, place))

    def fold_late(self, message: Data) -> tuple[bool, CallError | None]:
        """Add a message that nothing that Calls wrote meets: whether that is so, and why it cannot be applied."""
        view = self.view_of(message.instance)
        in_the_way = view.has_met(message) or (message.instance is None and view.instances_have_written)
        return (False, None) if in_the_way else (True, self.fold(message))

    def fold(self, message: Data) -> CallError | None:
        """Add a message to the context before the plan, or return why it cannot be applied."""
        if self.shared.was_read:
            self._owned, self.shared.was_read = {}, False
        return self.view_of(message.instance, create=True).fold_message(message, self._owned)

    def unfolded_shape(self, instance: str) -> Hashable:
        """Equal for instances that have values at the same paths before the plan; None once the view was asked for."""
        if instance not in self._not_folded:
            return None
        return tuple([(m.kind, m.path, m.method, shape(m.payload)) for m in self._not_folded[instance]])

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
        if (write := self._postponed.pop(instance, None)) is not None:
            write(instance)
        return view

    def postpone(self, instance: str, write: Callable[[str], None]) -> None:
        """Call ``write`` with the instance when somebody asks for its view: a batch never asks for most of them."""
        if instance in self._postponed:
            self.view_of(instance)
        self._postponed[instance] = write

    def read(self, path: Path, rank: int, instance: str | None = None, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank`` in an instance's view, or ABSENT."""
        return self.view_of(instance).read(path, rank, settled=settled)

    def has_initially(self, path: Path, instance: str | None = None) -> bool:
        """True when the context has a value at the path before the plan (null is one)."""
        return self.read(path, START, instance) is not ABSENT

    def read_kind(self, kind: str, rank: int = END, instance: str | None = None) -> Json:
        """The value of a whole kind as of ``rank``, or ABSENT."""
        return self.read(Path(kind), rank, instance)
