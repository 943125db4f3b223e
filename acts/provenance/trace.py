"""Where a value came from: who wrote it, what that Call had read, who wrote that, and so on.

Every Message that a Call wrote carries the Call, so the context of a run is enough.

* A Call read what precedes its own first Message: outputs are in plan order. A Message that was provided while the
  Call ran precedes it too; the context does not show that it came later.
* A global Call read global data; a Call of an instance, the view of that instance.
* A Call is read as a Message carries it: what cannot be parsed is left out.
* A value is ``outside`` when any part of it is text that no author of the Request wrote, but an Activity, a model, a
  delegate or a person; in doubt, too.
* The answer is bounded in depth and in number, nearest first. What a Call read is reported once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import ExpressionError, begin_json
from acts.language.references import (
    ELEMENT_KINDS,
    INDEX,
    ITEM,
    MARK,
    Expression,
    Literal,
    Operation,
    Path,
    TextTemplate,
    evaluate,
    operands,
    parse,
    parse_condition,
    parse_marked,
    paths,
    scan,
)
from acts.language.tools import META, Tool
from acts.language.values import ABSENT, Json, Names, list_index
from acts.plan.context_log import View, split_write, write_of
from acts.provenance.authors import DECISION, Author, Authors, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SCOPES: Final = "_scopes"
EACH: Final = "_each"
WHEN: Final = "_when"
# Paths of one Message within one value that are reported: nobody reads more
MAX_PATHS: Final = 4
# Characters of JSON of one value; the context itself has the rest
MAX_SHOWN: Final = 1000


@dataclass(frozen=True)
class Limits:
    """Bounds of an answer: levels of Calls, sources of one value, sources in all."""

    depth: int = 5
    each: int = 20
    all: int = 200


# -- the answer --------------------------------------------------------------------------------


@dataclass(slots=True)
class ValueTrace:
    """The value at a path as of some Message, and its sources.

    ``text`` is its JSON, or, if not ``whole``, the beginning of it; None is no value. ``more`` counts the
    sources left out. An alternative of ``||`` that was not needed is not ``used``.
    """

    path: Path
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
    """One expression of a Call, and what it yielded. ``at`` is its place in the ``parameter``, like ``order.items[0]``;
    ``parameter`` may be ``_scopes``.
    """

    parameter: str
    at: str
    text: str
    tree: Expression
    values: list[ValueTrace] = field(default_factory=list)

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
            "given": origin.is_literal or None, "allShown": origin.saw_all or None, "again": self.again or None,
            "cut": self.cut or None, "reads": [r.to_json() for r in self.reads] or None,
        }  # fmt: skip
        return {
            "message": self.message, "origin": origin.word, "outside": origin.outside,
            "wrote": list(map(str, self.wrote)), **{k: v for k, v in facts.items() if v is not None},
        }  # fmt: skip


# -- what a Call reads -------------------------------------------------------------------------


def find_references(call: Mapping[str, Json], tool: Tool | None) -> Iterator[ReferenceTrace]:
    """The expressions of a Call: those of its parameters, of ``_each`` and ``_when``, then its scopes."""
    each, when, scopes = (_meta(call, tool, key) for key in (EACH, WHEN, SCOPES))
    values = {key: value for key, value in call.items() if key not in META}
    for key, value in [*values.items(), *([] if isinstance(each, str) else [(EACH, each)])]:
        for at, text in scan(value, key):
            place = "".join(f"[{t}]" if isinstance(t, int) else f".{t}" for t in at).removeprefix(".")
            yield from _reference(key, place, text, parse_marked)
    if isinstance(each, str):
        yield from _reference(EACH, EACH, each, parse)
    if isinstance(when, str):
        yield from _reference(WHEN, WHEN, when, parse_condition)
    for scope in scopes if isinstance(scopes, list) else ():
        if isinstance(scope, str):
            yield from _reference(SCOPES, SCOPES, scope if scope.startswith(MARK) else MARK + scope, parse)


def _meta(call: Mapping[str, Json], tool: Tool | None, key: str) -> Json:
    return call.get(key, tool.consts.get(key) if tool is not None else None)


def _reference(key: str, at: str, text: str, parser: Callable[[str], Any]) -> Iterator[ReferenceTrace]:
    try:
        tree = parser(text)
    except ExpressionError:
        return
    if not isinstance(tree, Literal):
        yield ReferenceTrace(key, at, text, tree)


class ElementPaths:
    """Where the elements of a Call came from: one of them, or where ``index`` is None, all.

    ``read`` reads the context as the Call did. What an element of a literal list is made of, the references in the
    list tell.
    """

    def __init__(
        self, call: Mapping[str, Json], tool: Tool | None, index: int | None, read: Callable[[Path], Json]
    ) -> None:
        self._read = read
        self._own = () if index is None else (str(index),)
        each = _meta(call, tool, EACH)
        trees = _reference(EACH, EACH, each, parse) if isinstance(each, str) else ()
        lists = [path for reference in trees for path in _paths_used(reference.tree, read)]
        self._lists = None if each is None else [path for path in lists if read(path) not in (ABSENT, None)]

    def locate(self, path: Path) -> tuple[Path, ...]:
        """The paths of the context that a path of the Call leads to: itself, or where its element was."""
        if self._lists is None or path.kind not in ELEMENT_KINDS:
            return (path,)
        if path.kind == INDEX:
            return ()
        names = (*self._own, *path.names) if self._own else ()
        return tuple(Path(each.kind, (*each.names, *names)) for each in self._lists)

    def value(self, path: Path) -> Json:
        """What a path of the Call yields, as far as the context shows it."""
        return next((self._read(located) for located in self.locate(path)), ABSENT)


def _paths_used(tree: Expression, read: Callable[[Path], Json]) -> Iterator[Path]:
    """The paths that decide the value of an expression: none after the alternative that was taken."""
    if isinstance(tree, Path):
        yield tree
        return
    for term in operands(tree):
        yield from _paths_used(term, read)
        if isinstance(tree, Operation) and tree.sign == "||" and evaluate(term, read) not in (ABSENT, None):
            return


def _all_paths(tree: Expression) -> tuple[Path, ...]:
    parts = operands(tree) if isinstance(tree, TextTemplate) else (tree,)
    return tuple(dict.fromkeys(path for part in parts for path in paths(part)))


# -- the parts of a value by writer ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A value that one Message (``by``) wrote. ``item`` is its index in the list that the Message wrote."""

    value: Json
    by: int
    item: int | None = None


Written = tuple[Part, ...] | dict[str, "Written"]
"""A value by its writers: one part, or several of a list or a text; an object by property, where it has several."""


def apply_write(node: Written | None, names: Names, operation: str, value: Json, by: int) -> Written:
    """A value after one more effect (see ``split_write``); what does not fit it replaces it, as in ``apply_effect``."""
    if names:
        node = _properties(node)
        node[names[0]] = apply_write(node.get(names[0]), names[1:], operation, value, by)
        return node
    if operation == "ensure":
        is_object = isinstance(node, dict) or (node is not None and isinstance(node[0].value, dict))
        return node if node is not None and is_object else (Part({}, by),)
    value = [value] if operation == "push" else value
    grows = operation != "set" and isinstance(value, (list, str)) and isinstance(node, tuple)
    if grows and isinstance(node, tuple) and type(node[0].value) is type(value):
        return (*node, Part(value, by))
    return (Part(value, by),)


def _properties(node: Written | None) -> dict[str, Written]:
    if isinstance(node, dict):
        return node
    is_object = node is not None and isinstance(node[0].value, dict)
    return {name: (Part(part, node[0].by),) for name, part in node[0].value.items()} if node and is_object else {}


def part_of(node: Written | None, name: str) -> Written | None:
    """The value of a property, or of an item of a list."""
    if node is None or isinstance(node, dict) or isinstance(node[0].value, dict):
        return _properties(node).get(name)
    index = list_index(name) if isinstance(node[0].value, list) else None
    for piece in node:
        if index is None:
            break
        if index < len(piece.value):
            return (Part(piece.value[index], piece.by, item=index),)
        index -= len(piece.value)
    return None


def build_value(node: Written) -> Json:
    """The value itself."""
    if isinstance(node, dict):
        return {name: build_value(part) for name, part in node.items()}
    if len(node) == 1:
        return node[0].value
    values = [piece.value for piece in node]
    return "".join(values) if isinstance(values[0], str) else [item for value in values for item in value]


def writers_of(node: Written) -> dict[int, list[Names]]:
    """The Messages that wrote the value, oldest first, each with the paths inside the value that only it wrote.

    What was appended to a list is at the path of its first item.
    """
    places: dict[int, list[Names]] = {}
    if isinstance(node, dict):
        for name, part in node.items():
            for by, inner in writers_of(part).items():
                places.setdefault(by, []).extend((name, *names) for names in inner)
    elif len(node) == 1:
        places[node[0].by] = [()]
    else:
        at = 0
        for piece in [piece for piece in node if piece.value] or node[:1]:
            places.setdefault(piece.by, []).append((str(at),) if isinstance(piece.value, list) else ())
            at += len(piece.value)
    return dict(sorted(places.items())) if len(places) > 1 else {by: [()] for by in places}


class ProvenanceIndex:
    """The context of one run as a log in which the rank of a write is the index of its Message."""

    def __init__(self, record: RunRecord) -> None:
        self._authors = Authors(record)
        self._shared = View()
        self._own: dict[str, View] = {}
        for index, message in self._authors.by_index.items():
            if message.instance is not None:
                self._own.setdefault(message.instance, View(self._shared))
            write = write_of(message)
            if write is not None:
                self._view(message.instance).write(*write, index)
        self.end = len(record.messages)

    @property
    def instances(self) -> list[str]:
        """The ids of the instances."""
        return list(self._own)

    def _view(self, instance: str | None) -> View:
        return self._shared if instance is None else self._own.get(instance, self._shared)

    def why(
        self, path: Path, instance: str | None = None, upto: int | None = None, limits: Limits | None = None
    ) -> ValueTrace:
        """The trace of the value at a path, as of the first ``upto`` Messages (None: of all)."""
        return _Tracer(self, limits or Limits()).trace(path, instance, self.end if upto is None else upto)

    def value(self, path: Path, instance: str | None = None, upto: int | None = None) -> Json:
        """The whole value at a path, or ABSENT."""
        return self._view(instance).read(path, self.end if upto is None else upto)

    def near(self, path: Path, instance: str | None = None) -> list[Path]:
        """For a path without a value: the paths below its longest prefix with one."""
        names = [Path(kind) for kind in self._view(instance).kinds()]
        for depth in range(len(path.names)):
            here = Path(path.kind, path.names[:depth])
            value = self.value(here, instance)
            if value is ABSENT:
                break
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            names = [Path(here.kind, (*here.names, str(key))) for key in keys] or [here]
        return names

    def find(self, path: Path, instance: str | None, upto: int) -> Written | None:
        """The value at a path as of a point, by its writers, or None."""
        node: Written | None = None
        for index in self._view(instance).writers_of(path, upto):
            write = write_of(self._authors.by_index[index])
            for effect in split_write(write[0].names, write[1], write[2]) if write is not None else ():
                node = apply_write(node, *effect, index)
        for name in path.names:
            node = part_of(node, name)
        return node

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
        self._expanded: set[tuple[int, int | None]] = set()

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
        if node is None:
            return ValueTrace(path)
        text, writers = begin_json(build_value(node), MAX_SHOWN), writers_of(node)
        trace = ValueTrace(path, text[:MAX_SHOWN], len(text) <= MAX_SHOWN)
        trace.outside = any(self._index.author(index).outside for index in writers)
        for index, parts in list(writers.items())[: min(self._limits.each, self._left)]:
            wrote = [Path(path.kind, (*path.names, *names)) for names in parts[:MAX_PATHS]]
            element = self._element(path, index, instance, upto)
            trace.sources.append(Source(index, self._index.raw(index), self._index.author(index), wrote, element))
        self._left -= len(trace.sources)
        trace.more = len(writers) - len(trace.sources)
        return trace

    def _element(self, path: Path, message: int, instance: str | None, upto: int) -> int | None:
        """Which element of its Call a Message has the value at a path from; None: from several, or it is a failure."""
        author, raw = self._index.author(message), self._index.raw(message)
        if author.error is not None or _meta(author.call or {}, author.tool, EACH) is None:
            return None
        written = parse(str(raw.get("_outputPath")))
        depth = len(written.names) if isinstance(written, Path) else len(path.names)
        depth += raw.get("_outputMethod") == "push"  # the list of results is one item of the list
        if len(path.names) <= depth:
            return None
        node = self._index.find(Path(path.kind, path.names[: depth + 1]), instance, upto)
        return node[0].item if isinstance(node, tuple) and node[0].by == message else None

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
            self._expanded.add(key)
            source.reads = list(find_references(author.call, author.tool))
            for reference in source.reads:
                self._trace_reference(reference, source)
        return source.reads

    def _trace_reference(self, reference: ReferenceTrace, source: Source) -> None:
        author = source.origin
        upto, name = author.start, self._index.raw(author.start).get("_instance")
        instance = name if isinstance(name, str) else None
        elements = ElementPaths(
            author.call or {}, author.tool, source.element, lambda path: self._index.value(path, instance, upto)
        )
        used = set(_paths_used(reference.tree, elements.value))
        is_list = reference.at == EACH  # of one element, that part of the list is of interest
        located: dict[Path, bool] = {}
        for path in _all_paths(reference.tree):
            places = elements.locate(Path(ITEM)) if is_list and path in used else elements.locate(path)
            located |= {place: path in used or located.get(place, False) for place in places}
        reference.values = [
            self._trace_value(place, instance, upto) if is_used else ValueTrace(place, used=False)
            for place, is_used in located.items()
        ]
