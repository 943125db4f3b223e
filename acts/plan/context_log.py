"""The append-only log of a plan's data, read as of a position in the plan.

Theory of operation
-------------------
Each write carries the rank of its Call. Writes arrive in any order. A read *as of rank r* is the fold of the initial
messages and of all writes below rank r, in rank order. It looks only at what overlaps its path:

* A write is one effect or several: ``set``, ``ensure`` (make it an object), ``push``, ``concat``.
* Every written path keeps its effects sorted by rank, and every prefix of the path keeps them too. The paths of a
  kind are a tree, so each operation costs time linear in the names of its path. ``merge`` and ``assign`` are stored
  as a ``set`` of each leaf, so that a reader of one leaf never looks at the others.
* A fold starts at the latest ``set`` at or above the path, not at the beginning.
* A fold is cached. A Call reads only when every overlapping writer before it has settled, so no later write can
  change what was cached. A fold of more than the Call reads (a list, for one item of it) may still change: a write
  below its rank drops it from the cache.
* No write leads through a list (``find_conflict``), and an ``ensure`` that replaces one is a ``set`` to ``{}``. So what
  is below a path belongs to an object.

Each instance has a view of its own: its effects are folded onto the global view as of the same rank. Its own always
win, and nothing of another instance is reachable.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language import values
from acts.language.errors import CallError, Problem
from acts.language.messages import DATA_TYPES, GROWING_METHODS, OUTPUT_METHODS, Data
from acts.language.references import Expression, Path, evaluate
from acts.language.tools import is_server_tool
from acts.language.values import ABSENT, MAX_DEPTH, UNKNOWN, Json, Names, get, pointer, type_name, with_article
from acts.language.wire import NOT_JSON, OUTSIDE_OUTPUT, WRONG_KIND

if TYPE_CHECKING:
    from acts.plan.calls import PlannedCall

Writes = tuple[tuple[Path, Json], ...]

Effect = tuple[int, int, Names, str, Json]
"""What one write does at one path: rank, sequence number, names, operation, value.

The first two order the effects of a view, and no two effects have the same: bisection compares whole tuples.
"""

Point = tuple[int, int]
"""A point in the order of effects: those at or after it are not applied yet."""

MESSAGE_RANK: Final = -1  # of the messages before the plan
FIRST: Final[Point] = (-2, 0)  # before these
START: Final = 0  # a read as of this rank sees the context before the plan
END: Final = 1 << 60  # after every Call
# Types of values that an object below them replaces
_HAS_NO_KEYS: Final = ("list", "string", "number", "boolean")


def split_write(names: Names, method: str, value: Json) -> Iterator[tuple[Names, str, Json]]:
    """A write as single effects: ``set``, ``ensure`` (make it an object), ``push``, ``concat``."""
    if method in ("merge", "root", "assign") and isinstance(value, dict):
        if not value or method == "root":
            yield names, "ensure", None
        for key, part in value.items():
            yield from split_write((*names, key), "set" if method == "assign" else "root", part)
        return
    grows = method == "push" or (method == "concat" and type_name(value) in (*OUTPUT_METHODS[method], "unknown"))
    yield names, method if grows else "set", value


def apply_effect(root: Json, names: Names, operation: str, value: Json, owned: dict[int, Json]) -> Json:
    """``root`` with one effect applied. The containers in ``owned``, by id, may be changed in place."""
    if not names:
        return _combine(root, operation, value, owned)
    root = node = _own_object(root, owned)
    if node is UNKNOWN:
        return UNKNOWN
    for name in names[:-1]:
        child = _own_object(node.get(name, ABSENT), owned)
        node[name] = child
        if child is UNKNOWN:
            return root
        node = child
    node[names[-1]] = _combine(node.get(names[-1], ABSENT), operation, value, owned)
    return root


def _own_object(value: Json, owned: dict[int, Json]) -> Json:
    """A copy of an object that may be changed in place; empty for anything but an object."""
    if value is UNKNOWN or (isinstance(value, dict) and id(value) in owned):
        return value
    copy = dict(value) if isinstance(value, dict) else {}
    owned[id(copy)] = copy
    return copy


def _combine(old: Json, operation: str, value: Json, owned: dict[int, Json]) -> Json:
    if operation == "set":
        return value
    if old is UNKNOWN:
        return UNKNOWN
    if operation == "ensure":
        return old if isinstance(old, dict) else {}
    if operation == "push":
        old, value = old if isinstance(old, list) else [], [value]
    if isinstance(old, list) and isinstance(value, list):
        if id(old) not in owned:
            old = old.copy()
            owned[id(old)] = old
        old.extend(value)
        return old
    return old + value if isinstance(old, str) and isinstance(value, str) else value


@dataclass(slots=True)
class PathEffects:
    """The effects of one path: each ``set`` of it, and all ``others``, those below it included; both sorted by rank."""

    depth: int
    sets: list[Effect] = field(default_factory=list)
    others: list[Effect] = field(default_factory=list)
    children: dict[str, PathEffects] | None = None
    cached: tuple[int, Json, Json] | None = None

    def growth(self, point: Point, rank: int) -> Effect | None:
        """The last effect by which the value here grew, from ``point`` on and below ``rank``."""
        last = last_before(self.others, rank)
        is_growth = last is not None and last >= point and last[3] in GROWING_METHODS and len(last[2]) == self.depth
        return last if is_growth else None

    def forget_folds(self) -> None:
        self.cached = None
        for child in (self.children or {}).values():
            child.forget_folds()


Trail = list[PathEffects]
"""The effects at a path and at all above it, the kind first: as many as there are."""


def find_latest_set(trail: Trail, point: Point, rank: int) -> Effect | None:
    """The latest ``set`` of a trail, not before ``point`` and below ``rank``."""
    latest: Effect | None = None
    for effects in trail:
        last = last_before(effects.sets, rank)
        if last is not None and last >= (latest or point):
            latest = last
    return latest


def find_growing(above: Trail, point: Point, rank: int) -> int | None:
    """The depth of the first list or string that grew since ``point``: it must be read as a whole."""
    for effects in above:
        if effects.growth(point, rank) is not None:
            return effects.depth
    return None


def last_before(effects: Sequence[Effect], rank: int) -> Effect | None:
    at = bisect.bisect_left(effects, (rank, 0)) if effects else 0
    return effects[at - 1] if at else None


def write_of(message: Data) -> tuple[Path, str, Json] | None:
    """What a message writes: path, method, value; None when it has nothing at its path."""
    if message.payload is ABSENT:
        return None
    if message.path is None:
        return Path(message.kind), "root", message.payload
    value = get(message.payload, message.path.names)
    return None if value is ABSENT else (message.path, message.method, value)


class View:
    """The global view of a context, or that of one instance over the global one (``shared``)."""

    def __init__(self, shared: View | None = None) -> None:
        self._shared = shared
        self._base: dict[str, Json] = {}
        # The containers of the base, by id, that messages created and nobody has read
        self._owned: dict[int, Json] = {}
        self._effects: dict[str, PathEffects] = {}
        self.effect_count = 0  # folded into the base, or kept
        self._kinds: dict[str, None] = {}
        self._has_folds = False
        # Of the global view: each kind, and its first name, to which a Call has written, in any instance
        self.written: set[tuple[str, ...]] = set()

    def write(self, path: Path, method: str, value: Json, rank: int) -> None:
        """Record a write for which ``find_conflict`` returned None."""
        kind, is_global = path.kind, self._shared is None
        if is_global and method in GROWING_METHODS and self.type_at(path, max(rank, START)) in ("nothing", "null"):
            method, value = "set", [value] if method == "push" else value  # there is nothing that can grow
        self._kinds[kind] = None
        for names, operation, part in split_write(path.names, method, value):
            self.effect_count += 1
            if is_global and rank == MESSAGE_RANK:
                base = self._base.get(kind, ABSENT)
                self._base[kind] = apply_effect(base, names, operation, part, self._owned)
            else:
                self._insert(kind, names, operation, part, rank)

    def _insert(self, kind: str, names: Names, operation: str, value: Json, rank: int) -> None:
        if rank > MESSAGE_RANK:
            (self._shared or self).written.add((kind, *names[:1]))
        if operation == "ensure":
            type_ = (self._own_type if self._shared else self.type_at)(Path(kind, names), max(rank, START))
            operation, value = ("set", {}) if type_ in _HAS_NO_KEYS else (operation, value)
        effect: Effect = (rank, self.effect_count, names, operation, value)
        effects = self._effects.setdefault(kind, PathEffects(0))
        for name in names:
            bisect.insort(effects.others, effect)
            if effects.cached is not None and effects.cached[0] > rank:
                effects.cached = None
            if effects.children is None:
                effects.children = {}
            if name not in effects.children:
                effects.children[name] = PathEffects(effects.depth + 1)
            effects = effects.children[name]
        bisect.insort(effects.sets if operation == "set" else effects.others, effect)

    def fold_message(self, message: Data) -> CallError | None:
        write = write_of(message)
        if message.path is not None and message.payload is not ABSENT:
            value = ABSENT if write is None else write[2]
            conflict = self.find_conflict(message.path, message.method, value, START)
            if conflict:
                return conflict
        if write is None:
            return None
        if self._shared is not None:
            for effects in self._effects.values() if self._has_folds else ():
                effects.forget_folds()
            self._has_folds = False
        self.write(*write, MESSAGE_RANK)
        return None

    def _trail(self, path: Path) -> Trail:
        effects = self._effects.get(path.kind)
        trail: Trail = []
        for name in path.names:
            if effects is None:
                return trail
            trail.append(effects)
            effects = None if effects.children is None else effects.children.get(name)
        return trail if effects is None else [*trail, effects]

    def kinds(self) -> tuple[str, ...]:
        shared = self._shared.kinds() if self._shared else ()
        return tuple(dict.fromkeys((*shared, *self._kinds)))

    def read(self, path: Path, rank: int, *, settled: bool = False) -> Json:
        """The value at ``path`` as of ``rank``, or ABSENT; ``settled``: every overlapping write below has arrived."""
        trail, depth = self._trail(path), len(path.names)
        if self._shared is None:
            self._owned = {}
            base = get(self._base.get(path.kind, ABSENT), path.names)
        else:
            is_hidden = self._hides_base(path, trail, rank)
            base = ABSENT if is_hidden else self._shared.read(path, rank, settled=settled)
        if not trail:
            return base
        here = trail[depth] if len(trail) > depth else None
        point, value = FIRST, base
        if here is not None and here.cached is not None and here.cached[0] <= rank and here.cached[2] is base:
            point, value = (here.cached[0], 0), here.cached[1]
        latest = find_latest_set(trail, point, rank)
        if latest is not None:
            point, value = (latest[0], latest[1] + 1), get(latest[4], path.names[len(latest[2]) :])
        growing = find_growing(trail[:depth], point, rank)
        if growing is not None:
            # Writes beside the path may still arrive: ``_add`` then drops what is cached here
            value = get(self.read(Path(path.kind, path.names[:growing]), rank, settled=settled), path.names[growing:])
        elif here is not None:
            owned: dict[int, Json] = {}
            begin, end = bisect.bisect_left(here.others, point), bisect.bisect_left(here.others, (rank, 0))
            for effect in here.others[begin:end]:
                value = apply_effect(value, effect[2][depth:], effect[3], effect[4], owned)
        if settled and here is not None:
            self._has_folds = True
            here.cached = (rank, value, base)
        return value

    def writers_of(self, path: Path, rank: int) -> list[int]:
        """The ranks whose writes make up the value at ``path`` as of ``rank``, in the order in which they apply."""
        trail, depth = self._trail(path), len(path.names)
        latest = find_latest_set(trail, FIRST, rank)
        point = (latest[0], latest[1] + 1) if latest is not None else FIRST
        growing = find_growing(trail[:depth], point, rank)
        if growing is not None:
            return self.writers_of(Path(path.kind, path.names[:growing]), rank)
        ranks: dict[int, None] = {}
        if latest is not None:
            ranks[latest[0]] = None
        elif self._shared is not None and not self._hides_base(path, trail, rank):
            ranks.update(dict.fromkeys(self._shared.writers_of(path, rank)))
        if len(trail) > depth:
            own = trail[depth].others[bisect.bisect_left(trail[depth].others, point) :]
            ranks.update(dict.fromkeys(effect[0] for effect in own if effect[0] < rank))
        return list(ranks)

    def _hides_base(self, path: Path, trail: Trail, rank: int) -> bool:
        """True when an own object above the path replaces a global list or scalar, and so what is in it."""
        shared = self._shared
        return shared is not None and any(
            last_before(effects.others, rank) is not None
            and effects.growth(FIRST, rank) is None
            and shared.type_at(Path(path.kind, path.names[: effects.depth]), rank) in _HAS_NO_KEYS
            for effects in trail[: len(path.names)]
        )

    def find_conflict(self, path: Path, method: str, value: Json, rank: int) -> CallError | None:
        """Why ``method`` cannot be applied at ``path`` as of ``rank``, or None."""
        for depth in range(self._count_objects_above(path, rank), len(path.names)):
            above = Path(path.kind, path.names[:depth])
            if self.type_at(above, rank) == "list":
                return CallError(WRONG_KIND, f"{path} leads through {above}, which is a list")
        if method == "set" or value is UNKNOWN:
            return None
        old, new = self.type_at(path, rank), type_name(value)
        is_addable = old in OUTPUT_METHODS[method] and (method == "push" or old == new)
        if is_addable or old in ("nothing", "null", "unknown"):
            return None
        return CallError(WRONG_KIND, f"{method} of {with_article(new)} at {path}, which holds {with_article(old)}")

    def _count_objects_above(self, path: Path, rank: int) -> int:
        """How many places above a path, from the kind on, are objects since writes below them are all there is."""
        trail = self._trail(path)[: len(path.names)]
        for depth, effects in enumerate(trail):
            last = last_before(effects.others, rank)
            is_growth = last is not None and last[3] in GROWING_METHODS and len(last[2]) == depth
            if effects.sets or last is None or is_growth:
                return depth
        return len(trail)

    def type_at(self, path: Path, rank: int) -> str:
        """The type name of the value at ``path`` as of ``rank``, mostly without a fold: that of its latest effect."""
        own = self._own_type(path, rank)
        if own is not None:
            return own
        if self._shared is None:
            return type_name(get(self._base.get(path.kind, ABSENT), path.names))
        is_hidden = self._hides_base(path, self._trail(path), rank)
        return "nothing" if is_hidden else self._shared.type_at(path, rank)

    def _own_type(self, path: Path, rank: int) -> str | None:
        """The type name that the effects of this view give to the value; None when none of them decides it."""
        trail, depth = self._trail(path), len(path.names)
        latest = find_latest_set(trail, FIRST, rank)
        point = (latest[0], latest[1] + 1) if latest is not None else FIRST
        if find_growing(trail[:depth], point, rank) is not None:
            return type_name(self.read(path, rank))
        last = last_before(trail[depth].others, rank) if len(trail) > depth else None
        if last is not None and last >= point:
            growth = trail[depth].growth(point, rank)
            if growth is None:
                return "object"
            return "list" if growth[3] == "push" else type_name(growth[4])
        return None if latest is None else type_name(get(latest[4], path.names[len(latest[2]) :]))


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
        for message in messages:
            instance = message.instance
            is_first = instance in self._not_folded or instance not in self.own
            if instance is not None and (is_checked or message.path is None) and is_first:
                self.own.setdefault(instance, View(self.shared))
                self._not_folded.setdefault(instance, []).append(message)
                continue
            conflict = self.fold(message)
            if conflict:
                place = pointer("context", message.index, "_outputMethod")
                self.problems.append(Problem("invalidMessage", conflict.message, place))

    def fold(self, message: Data) -> CallError | None:
        """Add a message to the context before the plan, or return why it cannot be applied."""
        if message.instance is not None:
            self.own.setdefault(message.instance, View(self.shared))
        return self.view_of(message.instance).fold_message(message)

    def meets_writes(self, message: Data) -> bool:
        """True when a Call may have written at a path that the message changes, or above or below it."""
        written, kind = self.shared.written, message.kind
        if (kind,) in written or not isinstance(message.payload, dict) or not message.payload:
            return any(root[0] == kind for root in written)
        return any((kind, name) in written for name in message.payload)

    def view_of(self, instance: str | None) -> View:
        """The view that Calls of an instance (None: global Calls) read and write; raises KeyError without one."""
        if instance is None:
            return self.shared
        view = self.own[instance]
        for message in self._not_folded.pop(instance, ()):
            if (folded := write_of(message)) is not None:
                view.write(*folded, MESSAGE_RANK)
        if (write := self._postponed.pop(instance, None)) is not None:
            write(instance)
        return view

    def postpone(self, instance: str, write: Callable[[str], None]) -> None:
        """Call ``write`` with the instance when somebody asks for its view: a batch never asks for most of them."""
        if instance in self._postponed:
            self.view_of(instance)
        self._postponed[instance] = write

    def read(self, path: Path, rank: int, instance: str | None = None, *, settled: bool = False) -> Json:
        return self.view_of(instance).read(path, rank, settled=settled)

    def has_initially(self, path: Path, instance: str | None = None) -> bool:
        return self.read(path, START, instance) is not ABSENT

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind after every Call: ``{}`` when there is none."""
        state = self.read(Path("state"), END, instance)
        return {} if state is ABSENT else state

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        return evaluate(tree, lambda path: self.read(path, END, instance))


def place_result(call: PlannedCall, value: Json, chosen: int | None = None) -> tuple[int, Writes]:
    """The outcome that the result of a Call takes, and what it writes there.

    ``chosen`` is the index of the outcome that a model chose. An Activity chooses by returning a Message; what a tool
    of an MCP server returns is a value. Raises CallError for no JSON, or a Message that does not fit one outcome.
    """
    refuse_defects(call, value)
    if not call.result_outcome_count:
        return 0, ()  # only a failure is written
    if chosen is not None or not call.runs_activity or is_server_tool(call.tool.schema) or not is_message(value):
        return chosen or 0, tuple((path, value) for path in call.outcomes[chosen or 0])
    return _place_message(call, value)


def refuse_defects(call: PlannedCall, value: Json, *, levels: int = 0) -> None:
    """Raise CallError for a result that cannot be stored, with ``levels`` of nesting put around it."""
    # A write is stored inside a message of the context of a Request, and nested under its path
    deepest = max((len(p.names) for o in call.outcomes for p in o), default=0)
    reason = values.defect(value, MAX_DEPTH - 3 - deepest - levels)
    if reason:
        at = f" at {reason[0]}" if reason[0] else ""
        raise CallError(NOT_JSON, f"the result cannot be stored: {reason[1]}{at}")


def is_message(value: Json) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in DATA_TYPES or kind not in value:
        return False
    return set(value) <= {"type", kind, "kind", "schema", "description"}


def _place_message(call: PlannedCall, message: dict[str, Any]) -> tuple[int, Writes]:
    """The outcome that a Message chooses by its payload, and the parts of it that are written.

    Of several outcomes with a path that the Message holds, it means the one of which it holds every path, and of those
    the one with most paths. Where that leaves none or several, it means the one that covers all of the Message.
    """
    kind, payload = message.get("kind", message["type"]), message[message["type"]]
    leaves = list(_leaves(payload, ()))
    outcomes, offer = call.result_outcomes, " || ".join(call.outcome_texts)
    parts = {p: get(payload, p.names) if p.kind == kind else ABSENT for outcome in outcomes for p in outcome}

    def find_uncovered(index: int) -> Names | None:
        prefixes = [path.names for path in outcomes[index] if path.kind == kind]
        return next((leaf for leaf in leaves if not any(leaf[: len(p)] == p for p in prefixes)), None)

    chosen = [i for i, paths in enumerate(outcomes) if any(parts[p] is not ABSENT for p in paths)]
    if len(chosen) > 1:
        complete = [i for i in chosen if all(parts[p] is not ABSENT for p in outcomes[i])]
        most = max((len(outcomes[i]) for i in complete), default=0)
        chosen = [i for i in complete if len(outcomes[i]) == most] or chosen
        covering = [i for i in chosen if find_uncovered(i) is None]
        chosen = covering if len(covering) == 1 else chosen
    if len(chosen) > 1:
        text = f"the returned message writes at {len(chosen)} alternatives of {offer}; exactly one is allowed"
        raise CallError(OUTSIDE_OUTPUT, text)
    if not chosen:
        raise CallError(OUTSIDE_OUTPUT, f"the returned message has nothing at {offer}")
    if (leaf := find_uncovered(chosen[0])) is not None:
        raise CallError(OUTSIDE_OUTPUT, f"the returned message also writes {Path(kind, leaf)}, outside {offer}")
    outcome = outcomes[chosen[0]]
    first = next(parts[path] for path in outcome if parts[path] is not ABSENT)
    return chosen[0], tuple((path, first if parts[path] is ABSENT else parts[path]) for path in outcome)


def _leaves(value: Json, at: Names) -> Iterator[Names]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*at, key))
    else:
        yield at


def appended_message(call: PlannedCall, path: Path, value: Json, date: str) -> dict[str, Any]:
    """The Message that one write of a Call appends to the context, provenance included."""
    return build_message(call.planned, call.method, path, value, date, call.instance)


def build_message(
    planned: Json, method: str, path: Path, value: Json, date: str, instance: str | None = None
) -> dict[str, Any]:
    """The Message that a write appends, from the planned JSON of its Call and the write itself."""
    type_ = "state" if path.kind == "state" else "data"
    message = {
        "type": type_, "kind": path.kind, type_: values.nest(path.names, value), "_call": planned, "_date": date,
        "_outputPath": str(path), "_outputMethod": method,
    }  # fmt: skip
    return message if instance is None else {**message, "_instance": instance}
