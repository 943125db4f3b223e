"""Where a value came from: who wrote it, what that Call had read, who wrote that, and so on.

Every Message that a Call wrote carries the Call, so the context of a run is enough.

* A Call read what precedes its own first Message: outputs are in plan order. A Message that was
  provided while the Call ran precedes it too; the context does not show that it came later.
* A global Call read global data; a Call of an instance, the view of that instance.
* A value is ``outside`` when any part of it is text that no author of the Request wrote, but an
  Activity, a model, a delegate or a person; in doubt, too.
* The answer is bounded in depth and in number, nearest first. What a Call read is reported once.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acts.language.errors import find_similar
from acts.language.expression_parser import parse
from acts.language.references import Path
from acts.language.values import ABSENT, Json
from acts.provenance.call_references import EACH, CallReference, ElementPaths, all_paths, find_references, paths_used
from acts.provenance.message_authors import DECISION, Author, Authors, RunRecord
from acts.provenance.value_writers import ValueWriters, WrittenValue, build_value, encode_beginning, find_writers

# Characters of JSON of one value; the context itself has the rest
MAX_SHOWN: Final = 1000


@dataclass(frozen=True)
class Limits:
    """Bounds of an answer: levels of Calls, sources of one value, sources in all."""

    depth: int = 5
    each: int = 20
    all: int = 200


@dataclass(slots=True)
class ValueTrace:
    """The value at a path as of the first ``upto`` Messages, and its sources.

    ``text`` is its JSON, or, if not ``whole``, the beginning of it; None is no value. ``more`` counts the
    sources left out. An alternative of ``||`` that was not needed is not ``used``.
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
    """One reference of a Call: ``at`` is its place in the ``parameter``, like ``order.items[0]``, or ``_scopes``."""

    parameter: str
    at: str
    text: str
    values: list[ValueTrace]

    def to_json(self) -> dict[str, Any]:
        """``{at, expression, values}``."""
        return {"at": self.at, "expression": self.text, "values": [v.to_json() for v in self.values]}


@dataclass(slots=True)
class Source:
    """One Message that wrote a part of a value. ``wrote`` are the first paths that only it wrote.

    ``element`` is the index of the one element of a Call with ``_each`` that the value is from, where it is from one.
    ``again``: what its Call read is reported elsewhere. ``cut``: it lies beyond the limits.
    """

    message: int
    raw: Mapping[str, Json]
    origin: Author
    wrote: list[Path]
    element: int | None = None
    reads: list[ReferenceTrace] = field(default_factory=list)
    again: bool = False
    cut: bool = False

    @property
    def id(self) -> str | None:
        """The id of its Call, or of the element."""
        own = self.origin.id
        return own if own is None or self.element is None else f"{own}[{self.element}]"

    def to_json(self) -> dict[str, Any]:
        """``{message, origin, outside, wrote, id?, …, reads?}``; facts that are unknown or false are left out."""
        origin, raw = self.origin, self.raw
        facts = {
            "id": self.id, "tool": origin.call and origin.call.get("_tool"), "tick": origin.tick,
            "date": raw.get("_date"), "outputPath": raw.get("_outputPath"), "method": raw.get("_outputMethod"),
            "instance": raw.get("_instance"), "plannedBy": origin.planned, "error": origin.error,
            "call": origin.call, "decision": raw.get(str(raw["type"])) if origin.word == DECISION else None,
        }  # fmt: skip
        marks = {"given": origin.is_literal, "allShown": origin.saw_all, "again": self.again, "cut": self.cut}
        return {
            "message": self.message, "origin": origin.word, "outside": origin.outside,
            "wrote": list(map(str, self.wrote)),
            **{k: v for k, v in facts.items() if v is not None}, **{k: True for k, on in marks.items() if on},
            **({"reads": [r.to_json() for r in self.reads]} if self.reads else {}),
        }  # fmt: skip


class ProvenanceIndex:
    """The context of one run, by writer."""

    def __init__(self, record: RunRecord) -> None:
        self._authors = Authors(record)
        self._shared: list[int] = []
        self._own: dict[str, list[int]] = {}
        for index, message in self._authors.by_index.items():
            (self._shared if message.instance is None else self._own.setdefault(message.instance, [])).append(index)
        self._views: dict[tuple[str, int], ValueWriters] = {}
        self._global: ValueWriters | None = None
        self.end = len(record.messages)

    @property
    def instances(self) -> list[str]:
        """The ids of the instances."""
        return list(self._own)

    def why(
        self, path: Path, instance: str | None = None, upto: int | None = None, limits: Limits | None = None
    ) -> ValueTrace:
        """The trace of the value at a path, as of the first ``upto`` Messages (None: of all)."""
        return _Tracer(self, limits or Limits()).trace(path, instance, self.end if upto is None else upto)

    def value(self, path: Path, instance: str | None = None) -> Json:
        """The whole value at a path, or ABSENT."""
        node = self.find(path, instance, self.end)
        return ABSENT if node is None else build_value(node, self.end)

    def near(self, path: Path, instance: str | None = None) -> tuple[Path | None, list[Path], Path | None]:
        """For a path without a value: its longest prefix with one, the paths below that, and the most similar one."""
        view = self.view(instance, self.end)
        prefix: Path | None = None
        wrong, names = path.kind, {kind: Path(kind) for kind in view.kinds(self.end)}
        for depth, name in enumerate(path.names):
            here = Path(path.kind, path.names[:depth])
            node = view.find(here, self.end)
            if node is None:
                break
            value = build_value(node, self.end)
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            prefix, wrong, names = here, name, {str(k): Path(here.kind, (*here.names, str(k))) for k in keys}
        similar = find_similar(wrong, names)
        return prefix, list(names.values()), None if similar is None else names[similar]

    def view(self, instance: str | None, upto: int) -> ValueWriters:
        """The view to read in as of a point: for an instance, over the global Messages before it."""
        by_index = self._authors.by_index
        if instance is None:
            self._global = self._global or ValueWriters(by_index[i] for i in self._shared)
            return self._global
        below = bisect_left(self._shared, upto)
        if (instance, below) not in self._views:
            shared, own = self._shared[:below], self._own.get(instance, ())
            self._views[instance, below] = ValueWriters((by_index[i] for i in shared), [by_index[i] for i in own])
        return self._views[instance, below]

    def find(self, path: Path, instance: str | None, upto: int) -> WrittenValue | None:
        """The value at a path as of a point, with its writers, or None."""
        return self.view(instance, upto).find(path, upto)

    def author(self, index: int) -> Author:
        """The author of a Message."""
        return self._authors.find(index)

    def raw(self, index: int) -> Mapping[str, Json]:
        """A Message as it is in the context."""
        return self._authors.by_index[index].raw


class _Tracer:
    """Builds one answer, level by level: what is near comes before what is far."""

    def __init__(self, index: ProvenanceIndex, limits: Limits) -> None:
        self._index = index
        self._limits = limits
        self._left = limits.all
        self._expanded: dict[tuple[int, int | None], None] = {}

    def trace(self, path: Path, instance: str | None, upto: int) -> ValueTrace:
        root = self._trace_value(path, instance, upto)
        level, depth = [root], 1
        while level:
            sources = [source for value in level for source in value.sources]
            reads = [read for source in sources for read in self._expand(source, deep=depth >= self._limits.depth)]
            level, depth = [value for read in reads for value in read.values], depth + 1
        return root

    def _trace_value(self, path: Path, instance: str | None, upto: int) -> ValueTrace:
        node = self._index.find(path, instance, upto)
        trace = ValueTrace(path, instance, upto)
        if node is None:
            return trace
        trace.text, trace.whole = encode_beginning(node, upto, MAX_SHOWN)
        writers = find_writers(node, upto)
        trace.outside = any(self._index.author(index).outside for index in writers)
        for index, parts in list(writers.items())[: min(self._limits.each, self._left)]:
            wrote = [Path(path.kind, (*path.names, *names)) for names in parts]
            author, raw = self._index.author(index), self._index.raw(index)
            element = self._element(path, index, instance, upto)
            trace.sources.append(Source(index, raw, author, wrote, element))
        self._left -= len(trace.sources)
        trace.more = len(writers) - len(trace.sources)
        return trace

    def _element(self, path: Path, message: int, instance: str | None, upto: int) -> int | None:
        """Which element of its Call a Message has the value at a path from; None: from several, or it is a failure."""
        author, raw = self._index.author(message), self._index.raw(message)
        call, tool = author.call or {}, author.tool
        if author.error is not None or not (EACH in call or (tool is not None and EACH in tool.consts)):
            return None
        written = parse(str(raw.get("_outputPath")))
        depth = len(written.names) if isinstance(written, Path) else len(path.names)
        depth += raw.get("_outputMethod") == "push"  # the list of results is one item of the list
        if len(path.names) <= depth:
            return None
        node = self._index.find(Path(path.kind, path.names[: depth + 1]), instance, upto)
        return None if node is None or node.by != message else node.item

    def _expand(self, source: Source, *, deep: bool) -> list[ReferenceTrace]:
        """What the Call of a source read, unless that is reported already or beyond the limits."""
        author = source.origin
        if author.call is None:
            return []
        key = (author.start, source.element)
        if key in self._expanded:
            source.again = True
        elif deep or not self._left:
            source.cut = True
        else:
            self._expanded[key] = None
            references = find_references(author.call, author.tool)
            source.reads = [self._trace_reference(reference, source) for reference in references]
        return source.reads

    def _trace_reference(self, reference: CallReference, source: Source) -> ReferenceTrace:
        author = source.origin
        upto, name = author.start, self._index.raw(author.start).get("_instance")
        instance = name if isinstance(name, str) else None
        elements = ElementPaths(
            author.call or {}, author.tool, source.element, lambda path: self._read(path, instance, upto)
        )
        used = dict.fromkeys(paths_used(reference.tree, elements.value))
        is_list = reference.at == EACH  # of one element, that part of the list is of interest
        located: dict[Path, bool] = {}
        for path in all_paths(reference.tree):
            places = elements.locate_list() if is_list and path in used else elements.locate(path)
            located |= {place: path in used or located.get(place, False) for place in places}
        values = [
            self._trace_value(place, instance, upto) if is_used else ValueTrace(place, instance, upto, used=False)
            for place, is_used in located.items()
        ]
        return ReferenceTrace(reference.parameter, reference.at, reference.text, values)

    def _read(self, path: Path, instance: str | None, upto: int) -> Json:
        node = self._index.find(path, instance, upto)
        return ABSENT if node is None else node.value
