"""The author of a Message: the Request, a Call (its kind and its place in a plan), or a person. Pure.

A Message written by a Call contains the Call as planned. The rest is derived from the run's record:
the Tools say how a Call was answered; the plan messages and the list of Calls say which Call it was,
and in which tick. An ambiguous fact is None. Text counts as coming from outside unless the Request
certainly contained it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from acts.language import wire
from acts.language.errors import ExpressionError
from acts.language.expression_parser import parse
from acts.language.messages import (
    Data,
    ErrorMessage,
    Message,
    PlanMessage,
)
from acts.language.references import paths
from acts.language.request_reader import read_request
from acts.language.tools import Tool
from acts.language.values import Json, get
from acts.language.wire import EDIT
from acts.tree.decisions import DECISION_KEYS, WORDS

REQUEST: Final = "request"
PROVIDED: Final = "provided"
DECISION: Final = "decision"
ACTIVITY: Final = "activity"
MODEL: Final = "model"
DELEGATE: Final = "delegate"
ENGINE: Final = "engine"
UNKNOWN: Final = "unknown"
# Planners of a Call, beside REQUEST and MODEL: a person who edited this Call; or the model, in a plan
# that a person edited elsewhere
PERSON: Final = "person"
EDITED: Final = "edited"

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

    ``planned`` is who planned the Call: ``request``, ``model``, ``edited``, ``person``. ``error`` is the code of a
    failure. ``is_literal``: the plan contained the result. ``saw_all``: a model saw all data as of the plan's start.
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


class Authors:
    """Finds the author of each data-like Message of a run."""

    def __init__(self, record: RunRecord) -> None:
        self.messages = read_request({"context": list(record.messages)}).context
        self.by_index: dict[int, Data] = {m.index: m for m in self.messages if isinstance(m, Data)}
        self._record = record
        self._request_length = None if record.request is None else len(record.request)
        self._authors: dict[int, Author] = {}
        self._calls = _CallIndex(self.messages)
        self._ticks = _ticks_by_plan(self.messages, self._request_length or 0, record.calls)
        self._items: dict[_Group, dict[str, Mapping[str, Any]]] = {}
        for item in record.calls:
            self._items.setdefault((item.get("tick"), item.get("instance")), {})[str(item.get("id"))] = item
        self._ids: dict[tuple[_Key, str, bool], list[str]] = {}
        self._planned_calls: dict[int, frozenset[str]] = {}

    def find(self, index: int) -> Author:
        """The author of a data-like Message."""
        author = self._authors.get(index)
        if author is None:
            author = self._authors[index] = self._find(self.by_index[index])
        return author

    def _find(self, message: Data) -> Author:
        in_request = self._request_length is not None and message.index < self._request_length
        call = message.raw.get("_call")
        if isinstance(call, dict):
            return self._earlier_call(message, call) if in_request else self._call(message, call)
        if in_request:
            return Author(REQUEST, outside=False, start=message.index)
        word = PROVIDED
        if self._request_length is None:
            word = UNKNOWN
        elif self._is_decision(message):
            word = DECISION
        return Author(word, outside=True, start=message.index)

    def _is_decision(self, message: Data) -> bool:
        """True for the engine's record of a decision; anybody may provide a message that only looks like one."""
        payload = message.payload
        if message.kind != DECISION or not isinstance(payload, dict) or payload.get("decision") not in WORDS:
            return False
        return any(
            payload == {k: v for k, v in record.items() if k in DECISION_KEYS}
            and message.instance in (None, record.get("instance"))
            for record in self._record.decisions
        )

    def _earlier_call(self, message: Data, call: dict[str, Json]) -> Author:
        """Of a Message in the Request that says that a Call of an earlier run wrote it."""
        tool = self._record.tools.get(str(call.get("_tool")))
        start = self._calls.starts[message.index]
        return Author(REQUEST, outside=True, start=start, call=call, tool=tool, id=self._id(message, None))

    def _call(self, message: Data, call: dict[str, Json]) -> Author:
        """Of a Message that a Call of this run wrote."""
        value = message.payload if message.path is None else get(message.payload, message.path.names)
        tool = self._record.tools.get(str(call.get("_tool")))
        behind = (
            UNKNOWN if tool is None else _BEHIND[tool.call_kind(call.get("_delegate") or tool.consts.get("_delegate"))]
        )
        planned, plan = self._planner(message.index), self._calls.plan(message.index)
        tick = None if plan is None else self._ticks.get(plan)
        items = self._items.get((tick, message.instance))
        id_ = self._id(message, items)
        error = _error_code((items or {}).get(str(id_), {}), value)
        is_literal = behind == MODEL and error is None and "_output" in call and call["_output"] == value
        word = ENGINE if error in _ENGINE_CODES else _PLANNER.get(str(planned), UNKNOWN) if is_literal else behind
        scoped = "_scopes" in call or (tool is not None and "_scopes" in tool.consts)
        return Author(
            word, outside=word != REQUEST, start=self._calls.starts[message.index], call=call, tool=tool, id=id_,
            tick=tick, planned=planned, error=error, is_literal=is_literal,
            saw_all=behind == MODEL and error is None and not is_literal and not scoped,
        )  # fmt: skip

    def _planner(self, index: int) -> str | None:
        """Who planned a Call, or None where that cannot be known."""
        request, plan = self._record.request, self._calls.plan(index)
        if request is None or self._request_length is None or plan is None:
            return None
        if plan >= self._request_length:
            unchanged = bool(self._calls.find_positions(self._calls.keys[index]))
            return PERSON if not unchanged else EDITED if self._calls.is_edited(plan) else MODEL
        if plan not in self._planned_calls:
            calls = request[plan].get("plan") if isinstance(request[plan], dict) else None
            self._planned_calls[plan] = frozenset(_key_text(call) for call in calls or ())
        return REQUEST if self._calls.keys[index][2] in self._planned_calls[plan] else PERSON

    def _id(self, message: Data, items: Mapping[str, Mapping[str, Any]] | None) -> str | None:
        """``<position>:<tool>``, or None when it may be one of several Calls."""
        key, path = self._calls.keys[message.index], str(message.path)
        ids = self._ids.get((key, path, items is None))
        if ids is None:
            name = str(message.raw["_call"].get("_tool"))
            ids = [f"{position + 1}:{name}" for position in self._calls.find_positions(key)]
            if items is not None:  # no plan message of an agent has an edited Call, but the list of its Calls does
                ids = [i for i in ids or items if i in items and _has_written(items[i], name, path)]
            self._ids[(key, path, items is None)] = ids
        if len(ids) == 1:
            return ids[0]
        twins = self._calls.twins[key]
        at = bisect_left(twins, self._calls.starts[message.index])
        return ids[at] if len(ids) == len(twins) else None


_Group = tuple[int | None, str | None]
"""The Calls of one tick in one instance."""
_Key = tuple[int | None, str | None, str]
"""What Calls that cannot be told apart share: plan message, instance, the Call as text."""


class _CallIndex:
    """By Message: the plan of its Call, and the first Message of the same Call (a conjunction writes several)."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.keys: dict[int, _Key] = {}
        self.starts: dict[int, int] = {}
        self.twins: dict[_Key, list[int]] = {}
        self._plans: dict[int, PlanMessage] = {}
        self._positions: dict[int, dict[str, list[int]]] = {}
        self._edited: set[int] = set()
        plan: int | None = None
        after_edit = False
        written: tuple[_Key, Json, list[Json]] | None = None
        for message in messages:
            if isinstance(message, PlanMessage):
                plan = message.index
                self._plans[plan] = message
                self._edited |= {plan} if after_edit else set()
                after_edit = False
            after_edit = after_edit or _is_edit(message)
            if not isinstance(message, Data) or not isinstance(message.raw.get("_call"), dict):
                written = None
                continue
            key = (plan, message.instance, _key_text(message.raw["_call"]))
            date, path = message.raw.get("_date"), message.raw.get("_outputPath")
            if written is None or written[:2] != (key, date) or path in written[2]:
                written = (key, date, [])
                self.twins.setdefault(key, []).append(message.index)
            written[2].append(path)
            self.keys[message.index], self.starts[message.index] = key, self.twins[key][-1]

    def plan(self, index: int) -> int | None:
        """The index of the plan message that precedes an output."""
        return self.keys[index][0]

    def is_edited(self, plan: int) -> bool:
        """True when somebody changed a plan of an agent before it ran."""
        return plan in self._edited

    def find_positions(self, key: _Key) -> list[int]:
        """The positions of the Calls in its plan that read like this one."""
        plan, _, text = key
        if plan is None:
            return []
        if plan not in self._positions:
            positions: dict[str, list[int]] = {}
            for position, call in enumerate(self._plans[plan].calls):
                positions.setdefault(_key_text(call), []).append(position)
            self._positions[plan] = positions
        return self._positions[plan].get(text, [])


def _is_edit(message: Message) -> bool:
    """True for the record of a decision that changed a whole plan."""
    payload = message.payload if isinstance(message, Data) and message.kind == DECISION else None
    return isinstance(payload, dict) and (payload.get("decision"), payload.get("what")) == (EDIT, "plan")


def _ticks_by_plan(
    messages: Sequence[Message], request_length: int, calls: Sequence[Mapping[str, Any]]
) -> dict[int, int]:
    """The tick of each plan message that an agent has run. The list of Calls may lack the oldest ticks."""
    after = {m.index: n for m, n in pairwise(messages)}
    plans = [m.index for m in messages if isinstance(m, PlanMessage) and m.index >= request_length]
    plans = [index for index in plans if not _reports_not_run(after.get(index))]
    ticks = sorted({c["tick"] for c in calls if isinstance(c.get("tick"), int)})
    return dict(zip(reversed(plans), reversed(ticks), strict=False))


def _error_code(item: Mapping[str, Any], value: Json) -> str | None:
    """The code of a Call's failure, when the value written is that failure."""
    failure = item.get("error")
    return str(failure.get("code")) if isinstance(failure, dict) and failure == value else None


def _reports_not_run(after: Message | None) -> bool:
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
