"""Where a value came from: who wrote it, what that Call had read, who wrote that, and so on. Pure.

Every Message that a Call wrote carries the Call as planned, so the context of a run is enough. The rest is derived from
the run's record: the Tools say how a Call was answered; the plan messages and the list of Calls say which Call it was,
and in which tick. An ambiguous fact is None.

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from acts.language import references, wire
from acts.language.errors import ExpressionError, begin_json
from acts.language.messages import Data, ErrorMessage, Message, PlanMessage, read_request
from acts.language.references import Expression, Literal, Path, ReferenceUse, evaluate, parse, paths
from acts.language.tools import Tool
from acts.language.values import ABSENT, Json, Names, get, list_index
from acts.language.values import UNKNOWN as UNDECIDED
from acts.plan.calls import CallReader
from acts.plan.context_log import View, write_of
from acts.tree.decisions import DECISION_KEYS

SCOPES: Final = "_scopes"
EACH: Final = "_each"
MAX_PATHS: Final = 4  # paths of one Message within one value that are reported: nobody reads more
MAX_SHOWN: Final = 1000  # characters of JSON of one value; the context itself has the rest


REQUEST: Final = "request"
PROVIDED: Final = "provided"
DECISION: Final = "decision"
ACTIVITY: Final = "activity"
MODEL: Final = "model"
DELEGATE: Final = "delegate"
ANSWER: Final = "answer"
ENGINE: Final = "engine"
UNKNOWN: Final = "unknown"
PERSON: Final = "person"  # of a Call that is not in the plan as the model, or the Request, had it

_BEHIND: Final = {"activity": ACTIVITY, "latent": MODEL, "delegate": DELEGATE, "person": ANSWER}
_PLANNER: Final = {PERSON: DECISION, MODEL: MODEL, REQUEST: REQUEST}

Trace = dict[str, Any]
"""Where a value came from, as JSON. Facts that are unknown or false are left out.

* Of a value: ``{path, value | shortened, outside, sources, more?}``, or ``{path, absent: true}``, or ``{path, unused:
  true}`` for an alternative of ``||`` that was not needed; ``more`` sources are left out.
* Of a source, which is a Message that wrote a part of the value: ``{message, origin, outside, id?, tool?, activity?,
  delegate?, tick?, date?, …, call?, plannedBy?, error?, given?, allShown?, wrote, reads? | again? | cut?}``. ``wrote``
  has the first paths that only it wrote; ``given``: the plan contained the result; ``allShown``: a model saw all data
  as of the plan's start; ``again``: what its Call read is reported elsewhere; ``cut``: it lies beyond the limits.
* Of an expression that its Call read: ``{parameter, at, expression, values}``.
"""

# An agent's plan that did not run is followed by an error without a Call, with one of these codes
_NOT_RUN: Final = (wire.REJECTED, wire.RESULT_TOO_LARGE)


# -- the author of a Message ---------------------------------------------------------------------


@dataclass(frozen=True)
class RunRecord:
    """The data of a run that provenance needs; ``calls`` and ``decisions`` are in the form of the query ``status``."""

    messages: Sequence[Json]  # its context
    tools: Mapping[str, Tool]
    request: Sequence[Json] | None  # the context that it was started with; None: unknown
    calls: Sequence[Mapping[str, Any]] = ()
    decisions: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Author:
    facts: Trace  # what the answer says of it
    start: int  # the index of the first Message of the same Call
    tool: Tool | None = None

    @property
    def call(self) -> dict[str, Json] | None:
        return self.facts.get("call")


class Authors:
    def __init__(self, record: RunRecord) -> None:
        messages = read_request({"context": list(record.messages)}).context
        self.by_index: dict[int, Data] = {m.index: m for m in messages if isinstance(m, Data)}
        self._record = record
        self._length = None if record.request is None else len(record.request)
        self._authors: dict[int, Author] = {}
        # Of each Message of a Call: the latest plan message before it, the Call as text, and the first Message
        self._writes: dict[int, tuple[int | None, str, int]] = {}
        self._positions: dict[int, dict[str, list[int]]] = {}  # by plan message and text of a Call
        self._read_messages(messages)
        # The tick of each plan message that an agent has run. The list of Calls may lack the oldest ticks
        after = {m.index: n for m, n in pairwise(messages)}
        plans = [plan for plan in self._positions if plan >= (self._length or 0) and not _is_not_run(after.get(plan))]
        ticks = sorted({c["tick"] for c in record.calls if isinstance(c.get("tick"), int)})
        self._ticks = dict(zip(reversed(plans), reversed(ticks), strict=False))
        self._items: dict[tuple[Any, Any], dict[str, Mapping[str, Any]]] = {}  # by tick and instance, then by id
        for item in record.calls:
            self._items.setdefault((item.get("tick"), item.get("instance")), {})[str(item.get("id"))] = item

    def _read_messages(self, messages: Iterable[Message]) -> None:
        plan: int | None = None
        last: tuple[Any, ...] = ()
        written: list[Json] = []
        for message in messages:
            if isinstance(message, PlanMessage):
                plan = message.index
                positions = self._positions[plan] = {}
                for position, call in enumerate(message.calls):
                    positions.setdefault(_key_text(call), []).append(position)
            if not isinstance(message, Data) or not isinstance(message.raw.get("_call"), dict):
                last = ()
                continue
            # A conjunction writes several Messages
            key = (plan, message.instance, _key_text(message.raw["_call"]), message.raw.get("_date"))
            path = message.raw.get("_outputPath")
            if key != last or path in written:
                last, written, start = key, [], message.index
            written.append(path)
            self._writes[message.index] = (plan, key[2], start)

    def find(self, index: int) -> Author:
        if index not in self._authors:
            self._authors[index] = self._find(self.by_index[index])
        return self._authors[index]

    def _find(self, message: Data) -> Author:
        in_request = self._length is not None and message.index < self._length
        call = message.raw.get("_call")
        if isinstance(call, dict):
            tool = self._record.tools.get(str(call.get("_tool")))
            if not in_request:
                return self._find_call(message, call, tool)
            # The Request says that a Call of an earlier run wrote it
            return self._author(message, REQUEST, tool=tool, call=call, id=self._id(message, None))
        if in_request:
            return self._author(message, REQUEST, outside=False)
        # The engine's record of a decision; anybody may provide a message that only looks like one
        is_decision = message.kind == DECISION and any(
            message.payload == {k: v for k, v in record.items() if k in DECISION_KEYS}
            and message.instance in (None, record.get("instance"))
            for record in self._record.decisions
        )
        if self._length is None or not is_decision:
            return self._author(message, UNKNOWN if self._length is None else PROVIDED)
        return self._author(message, DECISION, decision=message.payload)

    def _author(
        self, message: Data, origin: str, *, outside: bool = True, tool: Tool | None = None, **facts: Any
    ) -> Author:
        raw, call = message.raw, facts.get("call")
        facts = {
            "id": None, "tool": None if call is None else call.get("_tool"), "tick": None, "date": raw.get("_date"),
            "outputPath": raw.get("_outputPath"), "method": raw.get("_outputMethod"), "instance": raw.get("_instance"),
            **facts,
        }  # fmt: skip
        author = {"message": message.index, "origin": origin, "outside": outside, "wrote": []}
        author |= {key: fact for key, fact in facts.items() if fact is not None}
        start = self._writes[message.index][2] if message.index in self._writes else message.index
        return Author(author, start, tool)

    def _find_call(self, message: Data, call: dict[str, Json], tool: Tool | None) -> Author:
        value = message.payload if message.path is None else get(message.payload, message.path.names)
        delegate = _meta(call, tool, "_delegate")
        behind = UNKNOWN if tool is None else _BEHIND[tool.call_kind(delegate)]
        plan, text, _ = self._writes[message.index]
        planned: str | None = None
        if self._length is not None and plan is not None:
            planned = PERSON if text not in self._positions[plan] else MODEL if plan >= self._length else REQUEST
        tick = None if plan is None else self._ticks.get(plan)
        items = self._items.get((tick, message.instance))
        id_ = self._id(message, items)
        failure = (items or {}).get(str(id_), {}).get("error")
        error = str(failure.get("code")) if isinstance(failure, dict) and failure == value else None
        is_literal = behind == MODEL and error is None and "_output" in call and call["_output"] == value
        origin = ENGINE if error in wire.ENGINE_CODES else _PLANNER.get(str(planned), UNKNOWN) if is_literal else behind
        saw_all = behind == MODEL and error is None and not is_literal and _meta(call, tool, SCOPES) is None
        return self._author(
            message, origin, outside=origin != REQUEST, tool=tool, id=id_, tick=tick, plannedBy=planned, error=error,
            activity=tool.activity if tool is not None and behind == ACTIVITY else None,
            delegate=delegate if behind == DELEGATE else None, call=call, given=is_literal or None,
            allShown=saw_all or None,
        )  # fmt: skip

    def _id(self, message: Data, items: Mapping[str, Mapping[str, Any]] | None) -> str | None:
        """``<position>:<tool>``, or None when it may be one of several Calls."""
        plan, text, _ = self._writes[message.index]
        name = str(message.raw["_call"].get("_tool"))
        positions = [] if plan is None else self._positions[plan].get(text, [])
        ids = [f"{position + 1}:{name}" for position in positions]
        if items is not None:  # no plan message of an agent has an edited Call, but the list of its Calls does
            ids = [i for i in ids or items if i in items and _has_written(items[i], name, str(message.path))]
        return ids[0] if len(ids) == 1 else None


def _is_not_run(after: Message | None) -> bool:
    """True when the Message after a plan reports that the plan did not run."""
    data = after.data if isinstance(after, ErrorMessage) else None
    error = data.get("error") if isinstance(data, dict) and data.get("call") is None else None
    return isinstance(error, dict) and error.get("code") in _NOT_RUN


def _has_written(item: Mapping[str, Any], tool: str, path: str) -> bool:
    """True when an item of the list of Calls is of this Tool and wrote this path."""
    text = item.get("outputPath")
    with suppress(ExpressionError):
        return item.get("tool") == tool and isinstance(text, str) and path in map(str, paths(parse(text)))
    return False


def _key_text(call: Json) -> str:
    return json.dumps(call, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Limits:
    """Bounds of an answer: levels of Calls, sources of one value, sources in all."""

    depth: int = 5
    each: int = 20
    all: int = 200


def find_references(call: dict[str, Json], tool: Tool | None) -> Iterator[ReferenceUse]:
    """The expressions of a Call: those of its parameters, of ``_each`` and ``_when``, then its scopes."""
    tools = {} if tool is None else {tool.name: tool}
    planned = CallReader(tools, [str(call.get("_instance"))], ()).read(call, 0)
    if planned is not None:
        yield from (use for use in planned.reads if not isinstance(use.tree, Literal))
        yield from (ReferenceUse.of((SCOPES,), str(path), path) for path in planned.scopes)


def _meta(call: Mapping[str, Json], tool: Tool | None, key: str) -> Json:
    return call.get(key, tool.consts.get(key) if tool is not None else None)


def _paths_used(tree: Expression, read: Callable[[Path], Json]) -> Iterator[Path]:
    """The paths that decide the value of an expression: none after the alternative that was taken."""
    if isinstance(tree, Path):
        yield tree
        return
    terms = references.operands(tree)
    if isinstance(tree, references.Operation) and tree.sign == references.CHOICE:
        chosen = references.choose(tree, read)
        terms = tree.terms if chosen is UNDECIDED else (tree.terms[0], chosen)
    for term in terms:
        yield from _paths_used(term, read)
        is_any = isinstance(tree, references.Operation) and tree.sign == "||"
        value = evaluate(term, read) if is_any else None
        if value not in (ABSENT, None, UNDECIDED) and not (value is False and references.joins_conditions(tree)):
            return


class ProvenanceIndex:
    """The context of one run as a log in which the rank of a write is the index of its Message."""

    def __init__(self, record: RunRecord) -> None:
        self.authors = Authors(record)
        self._shared = View()
        self._own: dict[str, View] = {}
        for index, message in self.authors.by_index.items():
            if message.instance is not None:
                self._own.setdefault(message.instance, View(self._shared))
            write = write_of(message)
            if write is not None:
                self._view(message.instance).write(*write, index)
        self.end = len(record.messages)

    @property
    def instances(self) -> list[str]:
        return list(self._own)

    def _view(self, instance: str | None) -> View:
        return self._shared if instance is None else self._own.get(instance, self._shared)

    def why(
        self, path: Path, instance: str | None = None, upto: int | None = None, limits: Limits | None = None
    ) -> Trace:
        """The trace of the value at a path, as of the first ``upto`` Messages (None: of all).

        What is near comes before what is far.
        """
        self._limits = limits or Limits()
        self._left, self._expanded = self._limits.all, set[tuple[int, int | None]]()
        self._queue = deque[tuple[Trace, Author, int | None, int]]()
        root = self._trace_value(path, instance, self.end if upto is None else upto, 1)
        while self._queue:
            self._expand(*self._queue.popleft())
        return root

    def value(self, path: Path, instance: str | None = None, upto: int | None = None) -> Json:
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

    def writers(self, path: Path, instance: str | None, upto: int) -> dict[int, list[Names]]:
        """The Messages that wrote the value at a path, oldest first, each with the paths inside it that only it wrote.

        What was appended to a list is at the path of its first item. Empty where there is no value.
        """
        if self.value(path, instance, upto) is ABSENT:
            return {}
        if (item := self._find_item(path, instance, upto)) is not None:
            return {item[0]: [()]}
        places = self._places(path, instance, upto)
        return dict(sorted(places.items())) if len(places) > 1 else {by: [()] for by in places}

    def _places(self, path: Path, instance: str | None, upto: int) -> dict[int, list[Names]]:
        by_whom, value = self._view(instance).writers_of(path, upto), self.value(path, instance, upto)
        places: dict[int, list[Names]] = {}
        if isinstance(value, dict) and len(by_whom) > 1:
            for name in value:
                for by, inner in self._places(Path(path.kind, (*path.names, name)), instance, upto).items():
                    places.setdefault(by, []).extend((name, *names) for names in inner)
        elif len(by_whom) > 1:
            pieces = ((by, start) for by, start, end in self._pieces(path, instance, upto) if end > start)
            places = {by: [(str(start),) if isinstance(value, list) else ()] for by, start in pieces}
        return places or {by_whom[0]: [()]}

    def _pieces(self, path: Path, instance: str | None, upto: int) -> Iterator[tuple[int, int, int]]:
        """What each Message wrote of a list or a text: the Message, and from where to where."""
        end = 0
        for by in self._view(instance).writers_of(path, upto):
            at, method, value = write_of(self.authors.by_index[by]) or (path, "set", None)
            part = [value] if method == "push" and at == path else get(value, path.names[len(at.names) :])
            start, end = end, end + (len(part) if isinstance(part, (list, str)) else 0)
            yield by, start, end

    def _find_item(self, path: Path, instance: str | None, upto: int) -> tuple[int, int | None] | None:
        """The Message that wrote a part of a list, and which item it is in the list that the Message wrote."""
        for depth, name in enumerate(path.names):
            above = Path(path.kind, path.names[:depth])
            if isinstance(self.value(above, instance, upto), list):
                if list_index(name) is None:  # its length is from all of it
                    return None
                is_last = depth + 1 == len(path.names)
                for by, start, end in self._pieces(above, instance, upto):
                    if int(name) < end:
                        return by, int(name) - start if is_last else list_index(path.names[-1])
        return None

    def _trace_value(self, path: Path, instance: str | None, upto: int, depth: int) -> Trace:
        writers, value = self.writers(path, instance, upto), self.value(path, instance, upto)
        if not writers:
            return {"path": str(path), "absent": True}
        text = begin_json(value, MAX_SHOWN)
        sources = [
            self._trace_source(path, index, parts, self._element(path, index, instance, upto), depth)
            for index, parts in list(writers.items())[: min(self._limits.each, self._left)]
        ]
        self._left -= len(sources)
        more = len(writers) - len(sources)
        return {
            "path": str(path),
            **({"value": value} if len(text) <= MAX_SHOWN else {"shortened": text[:MAX_SHOWN]}),
            "outside": any(self.authors.find(index).facts["outside"] for index in writers),
            "sources": sources,
            **({"more": more} if more else {}),
        }

    def _trace_source(self, path: Path, index: int, parts: list[Names], element: int | None, depth: int) -> Trace:
        author = self.authors.find(index)
        source = {**author.facts, "wrote": [str(Path(path.kind, (*path.names, *names))) for names in parts[:MAX_PATHS]]}
        if element is not None and "id" in source:
            source["id"] += f"[{element}]"
        self._queue.append((source, author, element, depth))
        return source

    def _element(self, path: Path, message: int, instance: str | None, upto: int) -> int | None:
        """Which element of its Call a Message has the value at a path from; None: from several, or it is a failure."""
        author, written = self.authors.find(message), self.authors.by_index[message]
        if "error" in author.facts or _meta(author.call or {}, author.tool, EACH) is None:
            return None
        depth = len((written.path or path).names)
        depth += written.method == "push"  # the list of results is one item of the list
        if len(path.names) <= depth:
            return None
        item = self._find_item(Path(path.kind, path.names[: depth + 1]), instance, upto)
        return item[1] if item is not None and item[0] == message else None

    def _expand(self, source: Trace, author: Author, element: int | None, depth: int) -> None:
        """Add what the Call of a source read, unless that is reported already or beyond the limits."""
        if author.call is None:
            return
        key = (author.start, element)
        if key in self._expanded:
            source["again"] = True
        elif depth >= self._limits.depth or not self._left:
            source["cut"] = True
        else:
            self._expanded.add(key)
            reads = []
            for use in find_references(author.call, author.tool):
                at = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in use.at)[1:]
                values = self._values(use.tree, author, element, depth + 1, is_list=at == EACH)
                reads.append({"parameter": use.at[0], "at": at, "expression": use.text, "values": values})
            source |= {"reads": reads} if reads else {}

    def _values(
        self, tree: Expression, author: Author, element: int | None, depth: int, *, is_list: bool
    ) -> list[Trace]:
        """What an expression of a Call yielded, and what it would have; ``is_list``: it is the whole ``_each``."""
        upto, name = author.start, self.authors.by_index[author.start].raw.get("_instance")
        instance, each = name if isinstance(name, str) else None, _meta(author.call or {}, author.tool, EACH)
        if isinstance(each, dict):  # of a group, all of the list is named
            each, element = each.get("of"), None

        def read(path: Path) -> Json:
            return self.value(path, instance, upto)

        lists: list[Path] = []  # where the elements are from; what a literal list is made of, its references tell
        if isinstance(each, str):
            with suppress(ExpressionError):
                lists = [p for p in _paths_used(parse(each), read) if read(p) not in (ABSENT, None)]

        def locate(path: Path) -> list[Path]:
            """Where in the context a path of the Call leads: to itself, or to where its element, or all, was."""
            if each is None or path.kind not in references.ELEMENT_KINDS:
                return [path]
            names = () if element is None else (str(element), *path.names)
            return [] if path.kind == references.INDEX else [Path(p.kind, (*p.names, *names)) for p in lists]

        def read_element(path: Path) -> Json:
            if each is None or path.kind not in references.ELEMENT_KINDS:
                return read(path)
            if element is None:  # of all elements, each decides for itself
                return UNDECIDED
            return element if path == Path(references.INDEX) else next(map(read, locate(path)), ABSENT)

        used = set(_paths_used(tree, read_element))
        located: dict[Path, bool] = {}
        parts = references.operands(tree) if isinstance(tree, references.TextTemplate) else (tree,)
        for path in dict.fromkeys(path for part in parts for path in paths(part)):
            # Of one element, that part of the list is of interest
            places = locate(Path(references.ITEM)) if is_list and path in used else locate(path)
            located |= {place: path in used or located.get(place, False) for place in places}
        return [
            self._trace_value(place, instance, upto, depth) if is_used else {"path": str(place), "unused": True}
            for place, is_used in located.items()
        ]
