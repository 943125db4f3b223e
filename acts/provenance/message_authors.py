"""Who wrote a Message: the Request, a Call (and what ran behind it, which of the plan it was), a person.

A Message that a Call wrote carries the Call as it was planned. The rest is put together from
what the run tells: its Tools say what runs behind a Call, its plan messages and the list of
its Calls which of them this one was, and in which tick. What cannot be told for certain is
left open; whether text came from outside is then answered with yes.
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
from acts.language.messages import Data, ErrorMessage, Message, PlanMessage, read_request
from acts.language.references import parse, paths
from acts.language.tools import Tool
from acts.language.values import Json, get
from acts.tree.decisions import DECIDED, EDIT, WORDS

REQUEST: Final = "request"
PROVIDED: Final = "provided"
DECISION: Final = "decision"
ACTIVITY: Final = "activity"
MODEL: Final = "model"
DELEGATE: Final = "delegate"
ENGINE: Final = "engine"
UNKNOWN: Final = "unknown"
# Who planned a Call, beside REQUEST and MODEL: somebody who edited the plan, or the model and then
# somebody who changed some of it before it ran
PERSON: Final = "person"
EDITED: Final = "edited"

_BEHIND: Final = {"activity": ACTIVITY, "latent": MODEL, "delegate": DELEGATE}
_PLANNER: Final = {PERSON: DECISION, MODEL: MODEL, REQUEST: REQUEST}
# What the engine calls the failures of Calls that are its own. An Activity may use these words
# too, and they quote what was found, so such a text counts as one from outside.
_OUR_CODES: Final = frozenset({
    wire.TIMEOUT, wire.CANCELLED, wire.UNRESOLVED, wire.SCHEMA_MISMATCH, wire.WRONG_KIND, wire.NOT_SERVED,
    wire.NOT_JSON, wire.OUTSIDE_OUTPUT, wire.BUDGET_SPENT, wire.INVALID_ANSWER, wire.RESULT_TOO_LARGE,
    wire.SDK_PAYLOADS_TOO_LARGE, wire.APPROVAL_TIMEOUT,
})  # fmt: skip
# After a plan of an agent that was not run stands an error about no Call, with one of these
_NOT_RUN: Final = (wire.REJECTED, wire.RESULT_TOO_LARGE)


@dataclass(frozen=True)
class RunRecord:
    """What a run tells of itself.

    ``messages`` is its context; ``request`` the context of the Request that it was started
    with (None: not known), ``calls`` and ``decisions`` as the query ``status`` has them.
    """

    messages: Sequence[Json]
    tools: Mapping[str, Tool]
    request: Sequence[Json] | None
    calls: Sequence[Mapping[str, Any]] = ()
    decisions: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Author:
    """Where one Message came from. ``start`` is the first Message of the same Call.

    ``planned`` is who planned the Call: ``request``, ``model``, ``edited``, ``person``. ``error`` is the
    code of a failure. ``given``: its result stood in the plan. ``all_shown``: a model was shown all data as it
    stood when the plan began.
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
    given: bool = False
    all_shown: bool = False


class Authors:
    """Tells of each data-like Message of a run who wrote it."""

    def __init__(self, told: RunRecord) -> None:
        self.messages = read_request({"context": list(told.messages)}).context
        self.by_index: dict[int, Data] = {m.index: m for m in self.messages if isinstance(m, Data)}
        self._told = told
        self._given = None if told.request is None else len(told.request)
        self._known: dict[int, Author] = {}
        self._calls = _Calls(self.messages)
        self._ticks = _ticks(self.messages, self._given or 0, told.calls)
        self._items: dict[_Batch, dict[str, Mapping[str, Any]]] = {}
        for item in told.calls:
            self._items.setdefault((item.get("tick"), item.get("instance")), {})[str(item.get("id"))] = item
        self._ids: dict[tuple[_Key, str, bool], list[str]] = {}
        self._began: dict[int, frozenset[str]] = {}

    def of(self, index: int) -> Author:
        """The origin of a data-like Message."""
        found = self._known.get(index)
        if found is None:
            found = self._known[index] = self._origin(self.by_index[index])
        return found

    def _origin(self, message: Data) -> Author:
        ours = self._given is not None and message.index < self._given
        call = message.raw.get("_call")
        if isinstance(call, dict):
            return self._earlier(message, call) if ours else self._written(message, call)
        if ours:
            return Author(REQUEST, outside=False, start=message.index)
        word = UNKNOWN if self._given is None else DECISION if self._is_decision(message) else PROVIDED
        return Author(word, outside=True, start=message.index)

    def _is_decision(self, message: Data) -> bool:
        """True for what the engine recorded of a decision; anybody may provide what only looks like one."""
        payload = message.payload
        if message.kind != DECISION or not isinstance(payload, dict) or payload.get("decision") not in WORDS:
            return False
        return any(
            payload == {k: v for k, v in record.items() if k in DECIDED}
            and message.instance in (None, record.get("instance"))
            for record in self._told.decisions
        )

    def _earlier(self, message: Data, call: dict[str, Json]) -> Author:
        """Of what the Request holds and says of itself that a Call of an earlier run wrote it."""
        tool = self._told.tools.get(str(call.get("_tool")))
        start = self._calls.starts[message.index]
        return Author(REQUEST, outside=True, start=start, call=call, tool=tool, id=self._id(message, None))

    def _written(self, message: Data, call: dict[str, Json]) -> Author:
        """Of what a Call of this run wrote."""
        value = message.payload if message.path is None else get(message.payload, message.path.names)
        tool = self._told.tools.get(str(call.get("_tool")))
        behind = UNKNOWN if tool is None else _BEHIND[tool.runs(call.get("_delegate") or tool.consts.get("_delegate"))]
        planned, plan = self._planner(message.index), self._calls.plan(message.index)
        tick = None if plan is None else self._ticks.get(plan)
        items = self._items.get((tick, message.instance))
        id_ = self._id(message, items)
        error = _error((items or {}).get(str(id_), {}), value)
        given = behind == MODEL and error is None and "_output" in call and call["_output"] == value
        word = ENGINE if error in _OUR_CODES else _PLANNER.get(str(planned), UNKNOWN) if given else behind
        scoped = "_scopes" in call or (tool is not None and "_scopes" in tool.consts)
        return Author(
            word, outside=word != REQUEST, start=self._calls.starts[message.index], call=call, tool=tool, id=id_,
            tick=tick, planned=planned, error=error, given=given,
            all_shown=behind == MODEL and error is None and not given and not scoped,
        )  # fmt: skip

    def _planner(self, index: int) -> str | None:
        """Who planned a Call; None where nobody can tell."""
        request, plan = self._told.request, self._calls.plan(index)
        if request is None or self._given is None or plan is None:
            return None
        if plan >= self._given:
            as_it_ran = bool(self._calls.alike(self._calls.keys[index]))
            return PERSON if not as_it_ran else EDITED if self._calls.edited(plan) else MODEL
        if plan not in self._began:
            listed = request[plan].get("plan") if isinstance(request[plan], dict) else None
            self._began[plan] = frozenset(_text(call) for call in listed or ())
        return REQUEST if self._calls.keys[index][2] in self._began[plan] else PERSON

    def _id(self, message: Data, items: Mapping[str, Mapping[str, Any]] | None) -> str | None:
        """``<position>:<tool>``, or None where several Calls could be meant."""
        key, path = self._calls.keys[message.index], str(message.path)
        ids = self._ids.get((key, path, items is None))
        if ids is None:
            name = str(message.raw["_call"].get("_tool"))
            ids = [f"{position + 1}:{name}" for position in self._calls.alike(key)]
            if items is not None:  # an edited Call stands in no plan message of an agent, but in the list of its Calls
                ids = [i for i in ids or items if i in items and _wrote(items[i], name, path)]
            self._ids[(key, path, items is None)] = ids
        if len(ids) == 1:
            return ids[0]
        twins = self._calls.twins[key]
        at = bisect_left(twins, self._calls.starts[message.index])
        return ids[at] if len(ids) == len(twins) else None


_Batch = tuple[int | None, str | None]
"""The Calls of one tick in one instance."""
_Key = tuple[int | None, str | None, str]
"""What Calls that cannot be told apart have in common: plan message, instance, the Call as text."""


class _Calls:
    """Which Messages are of one Call (those of a conjunction), and which plan it was of."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.keys: dict[int, _Key] = {}
        self.starts: dict[int, int] = {}
        self.twins: dict[_Key, list[int]] = {}
        self._plans: dict[int, PlanMessage] = {}
        self._places: dict[int, dict[str, list[int]]] = {}
        self._edited: set[int] = set()
        plan: int | None = None
        changed = False
        written: tuple[_Key, Json, list[Json]] | None = None
        for message in messages:
            if isinstance(message, PlanMessage):
                plan = message.index
                self._plans[plan] = message
                self._edited |= {plan} if changed else set()
                changed = False
            changed = changed or _is_edit(message)
            if not isinstance(message, Data) or not isinstance(message.raw.get("_call"), dict):
                written = None
                continue
            key = (plan, message.instance, _text(message.raw["_call"]))
            date, path = message.raw.get("_date"), message.raw.get("_outputPath")
            if written is None or written[:2] != (key, date) or path in written[2]:
                written = (key, date, [])
                self.twins.setdefault(key, []).append(message.index)
            written[2].append(path)
            self.keys[message.index], self.starts[message.index] = key, self.twins[key][-1]

    def plan(self, index: int) -> int | None:
        """The plan message that an output belongs to: outputs follow theirs."""
        return self.keys[index][0]

    def edited(self, plan: int) -> bool:
        """True when somebody changed a plan of an agent before it ran."""
        return plan in self._edited

    def alike(self, key: _Key) -> list[int]:
        """The positions, in its plan, of the Calls that read like this one."""
        plan, _, text = key
        if plan is None:
            return []
        if plan not in self._places:
            places: dict[str, list[int]] = {}
            for position, call in enumerate(self._plans[plan].calls):
                places.setdefault(_text(call), []).append(position)
            self._places[plan] = places
        return self._places[plan].get(text, [])


def _is_edit(message: Message) -> bool:
    """True for the record of a decision that changed a whole plan."""
    payload = message.payload if isinstance(message, Data) and message.kind == DECISION else None
    return isinstance(payload, dict) and (payload.get("decision"), payload.get("what")) == (EDIT, "plan")


def _ticks(messages: Sequence[Message], given: int, calls: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The tick of each plan message that an agent has run. The list of Calls may lack the oldest."""
    after = {m.index: n for m, n in pairwise(messages)}
    plans = (m.index for m in messages if isinstance(m, PlanMessage) and m.index >= given)
    run = [index for index in plans if not _not_run(after.get(index))]
    numbers = sorted({c["tick"] for c in calls if isinstance(c.get("tick"), int)})
    return dict(zip(reversed(run), reversed(numbers), strict=False))


def _error(item: Mapping[str, Any], value: Json) -> str | None:
    """The code of a failure, where what was written is that of its Call."""
    failure = item.get("error")
    return str(failure.get("code")) if isinstance(failure, dict) and failure == value else None


def _not_run(after: Message | None) -> bool:
    """True when what stands after a plan says that it was not run."""
    data = after.data if isinstance(after, ErrorMessage) else None
    error = data.get("error") if isinstance(data, dict) and data.get("call") is None else None
    return isinstance(error, dict) and error.get("code") in _NOT_RUN


def _wrote(item: Mapping[str, Any], tool: str, path: str) -> bool:
    """True when a Call of the list is one of this Tool that wrote this path."""
    text = item.get("outputPath")
    if item.get("tool") != tool or not isinstance(text, str):
        return False
    try:
        return any(str(p) == path for p in paths(parse(text)))
    except ExpressionError:
        return False


def _text(call: Json) -> str:
    """A Call as a key: the same for equal ones."""
    return json.dumps(call, sort_keys=True, ensure_ascii=False)
