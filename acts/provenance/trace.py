"""Where a value came from: who wrote it, what that Call had read, who wrote that, and so on.

Every Message that a Call wrote carries the Call, so the context of a run tells all of this.

* A Call read what stands before its own first Message: outputs stand in plan order. What was
  provided while it ran stands before it as well; the log does not tell that it came late.
* A global Call read what is global; an instance's, what its view shows.
* ``outside`` is said of a value when any part of it is text that no author of the Request
  wrote, but an Activity, a model, a delegate or a person. In doubt it is said.
* The answer is bounded in depth and in number, nearest first; a Call that comes again is
  marked and not told again.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from acts.language.errors import ExpressionError
from acts.language.references import MARK, AnyOf, Expression, Path, evaluate, parse, paths, scan
from acts.language.tools import META
from acts.language.values import ABSENT, Json
from acts.provenance.message_authors import DECISION, Author, Authors, RunRecord
from acts.provenance.value_writers import ValueWriters, WrittenValue, shortened, value_of, writers

# Of the JSON of a value on the way: more of it is read in the context itself
MAX_SHOWN: Final = 1000


@dataclass(frozen=True)
class Limits:
    """How much is told: levels of Calls, sources of one value, sources in all."""

    depth: int = 5
    each: int = 20
    all: int = 200


@dataclass(slots=True)
class ValueTrace:
    """What stands at a path, as of the first ``upto`` Messages.

    ``text`` is its JSON, or where ``whole`` is False the beginning of it; None: nothing
    stands there. ``more`` is how many sources are left out. An alternative that was not
    needed is not ``used``.
    """

    path: Path
    instance: str | None
    upto: int
    text: str | None = None
    whole: bool = True
    outside: bool = False
    sources: list[Source] = field(default_factory=list)
    more: int = 0
    used: bool = True

    def to_json(self) -> dict[str, Any]:
        """``{path, value | shortened, outside, sources, more?}``, or ``{path, absent | unused: true}``."""
        out: dict[str, Any] = {"path": str(self.path)}
        if self.text is None:
            return {**out, "absent" if self.used else "unused": True}
        out |= {"value": json.loads(self.text)} if self.whole else {"shortened": self.text}
        out |= {"outside": self.outside, "sources": [s.to_json() for s in self.sources]}
        return {**out, "more": self.more} if self.more else out


@dataclass(slots=True)
class ReferenceTrace:
    """What a Call refers to: ``at`` is the place in its ``parameter``, like ``order.items[0]``, or ``_scopes``."""

    parameter: str
    at: str
    text: str
    values: list[ValueTrace]

    def to_json(self) -> dict[str, Any]:
        """``{at, expression, values}``."""
        return {"at": self.at, "expression": self.text, "values": [v.to_json() for v in self.values]}


@dataclass(slots=True)
class Source:
    """One Message that a value is made of. ``wrote`` are (the first) places of the value that are its own.

    ``again``: what its Call read is told at another place. ``cut``: that is deeper than what is told.
    """

    message: int
    raw: Mapping[str, Json]
    origin: Author
    wrote: list[Path]
    reads: list[ReferenceTrace] = field(default_factory=list)
    again: bool = False
    cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """``{message, origin, outside, wrote, id?, …, reads?}``; what is not known, or not so, is left out."""
        origin, raw = self.origin, self.raw
        decided = raw.get(str(raw["type"])) if origin.word == DECISION else None
        known = {
            "id": origin.id, "tool": origin.call and origin.call.get("_tool"), "tick": origin.tick,
            "date": raw.get("_date"), "outputPath": raw.get("_outputPath"), "method": raw.get("_outputMethod"),
            "instance": raw.get("_instance"), "plannedBy": origin.planned, "error": origin.error,
            "call": origin.call, "decision": decided,
        }  # fmt: skip
        marks = {"given": origin.given, "allShown": origin.all_shown, "again": self.again, "cut": self.cut}
        return {
            "message": self.message, "origin": origin.word, "outside": origin.outside,
            "wrote": list(map(str, self.wrote)),
            **{k: v for k, v in known.items() if v is not None}, **{k: True for k, on in marks.items() if on},
            **({"reads": [r.to_json() for r in self.reads]} if self.reads else {}),
        }  # fmt: skip


class ProvenanceIndex:
    """The context of one run, taken apart."""

    def __init__(self, told: RunRecord) -> None:
        self._origins = Authors(told)
        self._shared: list[int] = []
        self._own: dict[str, list[int]] = {}
        for index, message in self._origins.by_index.items():
            (self._shared if message.instance is None else self._own.setdefault(message.instance, [])).append(index)
        self._views: dict[tuple[str, int], ValueWriters] = {}
        self._global: ValueWriters | None = None
        self.end = len(told.messages)

    @property
    def instances(self) -> list[str]:
        """The ids of the instances."""
        return list(self._own)

    def why(
        self, path: Path, instance: str | None = None, upto: int | None = None, limits: Limits | None = None
    ) -> ValueTrace:
        """Where the value at a path came from, as of the first ``upto`` Messages (None: of all)."""
        return _Telling(self, limits or Limits()).why(path, instance, self.end if upto is None else upto)

    def value(self, path: Path, instance: str | None = None) -> Json:
        """The whole value at a path, or ABSENT."""
        node = self.find(path, instance, self.end)
        return ABSENT if node is None else value_of(node, self.end)

    def near(self, path: Path, instance: str | None = None) -> tuple[Path | None, list[Path], Path | None]:
        """For a path that leads nowhere: how far it does, what goes on from there, and which of these is most alike."""
        parts = self.view(instance, self.end)
        above: Path | None = None
        wrong, names = path.kind, {kind: Path(kind) for kind in parts.kinds(self.end)}
        for depth, name in enumerate(path.names):
            here = Path(path.kind, path.names[:depth])
            node = parts.find(here, self.end)
            if node is None:
                break
            value = value_of(node, self.end)
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            above, wrong, names = here, name, {str(k): Path(here.kind, (*here.names, str(k))) for k in keys}
        alike = get_close_matches(wrong, names, 1)
        return above, list(names.values()), names[alike[0]] if alike else None

    # -- views -------------------------------------------------------------------

    def view(self, instance: str | None, upto: int) -> ValueWriters:
        """The view to read in as of a point: for an instance, over the global Messages before it."""
        by_index = self._origins.by_index
        if instance is None:
            self._global = self._global or ValueWriters(by_index[i] for i in self._shared)
            return self._global
        below = bisect_left(self._shared, upto)
        if (instance, below) not in self._views:
            shared, own = self._shared[:below], self._own.get(instance, ())
            self._views[instance, below] = ValueWriters((by_index[i] for i in shared), [by_index[i] for i in own])
        return self._views[instance, below]

    def find(self, path: Path, instance: str | None, upto: int) -> WrittenValue | None:
        """What stands at a path as of a point, or None."""
        return self.view(instance, upto).find(path, upto)

    def origin(self, index: int) -> Author:
        """Who wrote a Message."""
        return self._origins.of(index)

    def raw(self, index: int) -> Mapping[str, Json]:
        """A Message as it stands in the context."""
        return self._origins.by_index[index].raw


class _Telling:
    """One answer, being put together."""

    def __init__(self, trail: ProvenanceIndex, limits: Limits) -> None:
        self._trail = trail
        self._limits = limits
        self._left = limits.all
        self._told: dict[int, None] = {}

    def why(self, path: Path, instance: str | None, upto: int) -> ValueTrace:
        """Level by level: what is near is told before what is far."""
        root = self._found(path, instance, upto)
        level, depth = [root], 1
        while level:
            sources = [source for value in level for source in value.sources]
            reads = [read for source in sources for read in self._expand(source, deep=depth >= self._limits.depth)]
            level, depth = [value for read in reads for value in read.values], depth + 1
        return root

    def _found(self, path: Path, instance: str | None, upto: int) -> ValueTrace:
        node = self._trail.find(path, instance, upto)
        found = ValueTrace(path, instance, upto)
        if node is None:
            return found
        found.text, found.whole = shortened(node, upto, MAX_SHOWN)
        made_of = writers(node, upto)
        found.outside = any(self._trail.origin(index).outside for index in made_of)
        for index, places in list(made_of.items())[: min(self._limits.each, self._left)]:
            wrote = [Path(path.kind, (*path.names, *names)) for names in places]
            found.sources.append(Source(index, self._trail.raw(index), self._trail.origin(index), wrote))
        self._left -= len(found.sources)
        found.more = len(made_of) - len(found.sources)
        return found

    def _expand(self, source: Source, *, deep: bool) -> list[ReferenceTrace]:
        """What the Call of a source read, unless that is told already or too deep."""
        origin = source.origin
        if origin.call is None:
            return []
        if origin.start in self._told:
            source.again = True
        elif deep or not self._left:
            source.cut = True
        else:
            self._told[origin.start] = None
            source.reads = [self._read(*reference, origin.start) for reference in _references(origin)]
        return source.reads

    def _read(self, parameter: str, at: str, text: str, upto: int) -> ReferenceTrace:
        tree = parse(text)
        instance = self._trail.raw(upto).get("_instance")
        where = instance if isinstance(instance, str) else None
        used = dict.fromkeys(_used(tree, lambda path: self._there(path, where, upto)))
        found = [
            self._found(path, where, upto) if path in used else ValueTrace(path, where, upto, used=False)
            for path in dict.fromkeys(paths(tree))
        ]
        return ReferenceTrace(parameter, at, text, found)

    def _there(self, path: Path, instance: str | None, upto: int) -> Json:
        node = self._trail.find(path, instance, upto)
        return ABSENT if node is None else node.value


def _references(origin: Author) -> Iterator[tuple[str, str, str]]:
    """The expressions of a Call, each after its parameter and place: those of its parameters, then its scopes."""
    call, tool = origin.call or {}, origin.tool
    for key, value in call.items():
        if key not in META:
            yield from ((key, _place(at), text) for at, text in scan(value, key) if _readable(text))
    scopes = call.get("_scopes", tool.consts.get("_scopes") if tool is not None else None)
    for scope in scopes if isinstance(scopes, list) else ():
        text = scope if not isinstance(scope, str) or scope.startswith(MARK) else MARK + scope
        if isinstance(text, str) and _readable(text):
            yield "_scopes", "_scopes", text


def _readable(text: str) -> bool:
    try:
        parse(text)
    except ExpressionError:
        return False
    return True


def _place(at: tuple[str | int, ...]) -> str:
    """``order.items[0]``"""
    return "".join(f"[{t}]" if isinstance(t, int) else f".{t}" for t in at).removeprefix(".")


def _used(tree: Expression, read: Any) -> Iterator[Path]:
    """The paths that decide what an expression yields: none after the alternative that was taken."""
    if isinstance(tree, Path):
        yield tree
        return
    for term in tree.terms:
        yield from _used(term, read)
        if isinstance(tree, AnyOf) and evaluate(term, read) not in (ABSENT, None):
            return
