"""The author of a Message: the Request, a Call (its kind and its place in a plan), or a person. Pure.

A Message written by a Call contains the Call as planned. The rest is derived from the run's record: the Tools say how a
Call was answered; the plan messages and the list of Calls say which Call it was, and in which tick. An ambiguous fact
is None. Text counts as coming from outside unless the Request certainly contained it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from acts.language import wire
from acts.language.errors import ExpressionError
from acts.language.messages import Data, ErrorMessage, Message, PlanMessage, read_request
from acts.language.references import parse, paths
from acts.language.values import Json, get
from acts.tree.decisions import DECISION_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.tools import Tool

REQUEST: Final = "request"
PROVIDED: Final = "provided"
DECISION: Final = "decision"
ACTIVITY: Final = "activity"
MODEL: Final = "model"
DELEGATE: Final = "delegate"
ENGINE: Final = "engine"
UNKNOWN: Final = "unknown"
# Of a Call that is not in the plan as the model, or the Request, had it
PERSON: Final = "person"

_BEHIND: Final = {"activity": ACTIVITY, "latent": MODEL, "delegate": DELEGATE}
_PLANNER: Final = {PERSON: DECISION, MODEL: MODEL, REQUEST: REQUEST}
# The codes of the engine's own failures. Activities may use the same codes, and messages quote values,
# so such text counts as coming from outside.
_ENGINE_CODES: Final = frozenset({
    wire.TIMEOUT, wire.CANCELLED, wire.UNRESOLVED, wire.SCHEMA_MISMATCH, wire.WRONG_KIND, wire.NOT_SERVED,
    wire.NOT_JSON, wire.OUTSIDE_OUTPUT, wire.BUDGET_SPENT, wire.INVALID_ANSWER, wire.RESULT_TOO_LARGE,
    wire.SDK_PAYLOADS_TOO_LARGE, wire.APPROVAL_TIMEOUT,
})  # fmt: skip
# An agent's plan that did not run is followed by an error without a Call, with one of these codes
_NOT_RUN: Final = (wire.REJECTED, wire.RESULT_TOO_LARGE)


@dataclass(frozen=True)
class RunRecord:
    """The data of a run that provenance needs.

    ``messages`` is its context; ``request`` the context of the Request that it was started with (None if
    unknown); ``calls`` and ``decisions`` are in the form of the query ``status``.
    """

    messages: Sequence[Json]
    tools: Mapping[str, Tool]
    request: Sequence[Json] | None
    calls: Sequence[Mapping[str, Any]] = ()
    decisions: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Author:
    """The author of one Message. ``start`` is the index of the first Message of the same Call.

    ``planned`` is who planned the Call: ``request``, ``model``, ``person``. ``error`` is the code of a failure.
    ``is_literal``: the plan contained the result. ``saw_all``: a model saw all data as of the plan's start.
    """

    word: str
    outside: bool
    start: int
    call: Mapping[str, Json] | None = None
    tool: Tool | None = None
    id: str | None = None
    tick: int | None = None
    planned: str | None = None
    error: str | None = None
    is_literal: bool = False
    saw_all: bool = False


@dataclass(frozen=True, slots=True)
class _CallWrite:
    """A Message that a Call wrote: the latest plan message before it, the Call as text, and its first Message."""

    plan: int | None
    text: str
    start: int


class Authors:
    """Finds the author of each data-like Message of a run."""

    def __init__(self, record: RunRecord) -> None:
        self.messages = read_request({"context": list(record.messages)}).context
        self.by_index: dict[int, Data] = {m.index: m for m in self.messages if isinstance(m, Data)}
        self._record = record
        self._length = None if record.request is None else len(record.request)
        self._authors: dict[int, Author] = {}
        self._writes: dict[int, _CallWrite] = {}
        self._positions: dict[int, dict[str, list[int]]] = {}  # by plan message and text of a Call
        self._read_messages()
        self._ticks = self._ticks_by_plan()
        self._items: dict[tuple[Any, Any], dict[str, Mapping[str, Any]]] = {}  # by tick and instance, then by id
        for item in record.calls:
            self._items.setdefault((item.get("tick"), item.get("instance")), {})[str(item.get("id"))] = item

    def _read_messages(self) -> None:
        plan: int | None = None
        last: tuple[Any, ...] = ()
        written: list[Json] = []
        for message in self.messages:
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
            self._writes[message.index] = _CallWrite(plan, key[2], start)

    def _ticks_by_plan(self) -> dict[int, int]:
        """The tick of each plan message that an agent has run. The list of Calls may lack the oldest ticks."""
        after = {m.index: n for m, n in pairwise(self.messages)}
        plans = [plan for plan in self._positions if plan >= (self._length or 0) and not _is_not_run(after.get(plan))]
        ticks = sorted({c["tick"] for c in self._record.calls if isinstance(c.get("tick"), int)})
        return dict(zip(reversed(plans), reversed(ticks), strict=False))

    def find(self, index: int) -> Author:
        """The author of a data-like Message."""
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
            start = self._writes[message.index].start  # the Request says that a Call of an earlier run wrote it
            return Author(REQUEST, outside=True, start=start, call=call, tool=tool, id=self._id(message, None))
        if in_request:
            return Author(REQUEST, outside=False, start=message.index)
        word = UNKNOWN if self._length is None else DECISION if self._is_decision(message) else PROVIDED
        return Author(word, outside=True, start=message.index)

    def _is_decision(self, message: Data) -> bool:
        """True for the engine's record of a decision; anybody may provide a message that only looks like one."""
        return message.kind == DECISION and any(
            message.payload == {k: v for k, v in record.items() if k in DECISION_KEYS}
            and message.instance in (None, record.get("instance"))
            for record in self._record.decisions
        )

    def _find_call(self, message: Data, call: dict[str, Json], tool: Tool | None) -> Author:
        """The author of a Message that a Call of this run wrote."""
        value = message.payload if message.path is None else get(message.payload, message.path.names)
        fixed = tool.consts if tool is not None else {}
        behind = UNKNOWN if tool is None else _BEHIND[tool.call_kind(call.get("_delegate") or fixed.get("_delegate"))]
        write = self._writes[message.index]
        planned, tick = self._planner(write), None if write.plan is None else self._ticks.get(write.plan)
        items = self._items.get((tick, message.instance))
        id_ = self._id(message, items)
        error = _error_code((items or {}).get(str(id_), {}), value)
        is_literal = behind == MODEL and error is None and "_output" in call and call["_output"] == value
        word = ENGINE if error in _ENGINE_CODES else _PLANNER.get(str(planned), UNKNOWN) if is_literal else behind
        saw_all = behind == MODEL and error is None and not is_literal and "_scopes" not in {**fixed, **call}
        return Author(
            word, outside=word != REQUEST, start=write.start, call=call, tool=tool, id=id_, tick=tick,
            planned=planned, error=error, is_literal=is_literal, saw_all=saw_all,
        )  # fmt: skip

    def _planner(self, write: _CallWrite) -> str | None:
        """Who planned a Call, or None where that cannot be known."""
        if self._length is None or write.plan is None:
            return None
        if write.text not in self._positions[write.plan]:
            return PERSON
        return MODEL if write.plan >= self._length else REQUEST

    def _id(self, message: Data, items: Mapping[str, Mapping[str, Any]] | None) -> str | None:
        """``<position>:<tool>``, or None when it may be one of several Calls."""
        write, name = self._writes[message.index], str(message.raw["_call"].get("_tool"))
        positions = [] if write.plan is None else self._positions[write.plan].get(write.text, [])
        ids = [f"{position + 1}:{name}" for position in positions]
        if items is not None:  # no plan message of an agent has an edited Call, but the list of its Calls does
            ids = [i for i in ids or items if i in items and _has_written(items[i], name, str(message.path))]
        return ids[0] if len(ids) == 1 else None


def _error_code(item: Mapping[str, Any], value: Json) -> str | None:
    """The code of a Call's failure, when the value written is that failure."""
    failure = item.get("error")
    return str(failure.get("code")) if isinstance(failure, dict) and failure == value else None


def _is_not_run(after: Message | None) -> bool:
    """True when the Message after a plan reports that the plan did not run."""
    data = after.data if isinstance(after, ErrorMessage) else None
    error = data.get("error") if isinstance(data, dict) and data.get("call") is None else None
    return isinstance(error, dict) and error.get("code") in _NOT_RUN


def _has_written(item: Mapping[str, Any], tool: str, path: str) -> bool:
    """True when an item of the list of Calls is of this Tool and wrote this path."""
    text = item.get("outputPath")
    if item.get("tool") != tool or not isinstance(text, str):
        return False
    try:
        return any(str(p) == path for p in paths(parse(text)))
    except ExpressionError:
        return False


def _key_text(call: Json) -> str:
    """A Call as text: the same for equal ones."""
    return json.dumps(call, sort_keys=True, ensure_ascii=False)
