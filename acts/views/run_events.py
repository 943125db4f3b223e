"""What happens in a run, as its history says: one ordered stream of events.

A ``HistoryView`` is shown the events of one run's history, in their order, and yields what they mean to whoever
watches: starts, results, decisions, waits, ticks. It sees nothing but the history, so an ended run yields the same as
one that was watched. Laws of this file: it waits for nothing and asks nobody. It knows the words of Temporal's
histories (the messages of its API, whose payloads are decrypted already), and none of its SDK. A value longer than
``MAX_VALUE`` is named by its size and digest; secrets are masked, as they are in histories.

*An offset* names one event for ever: its time, its id, and the run that first recorded it, so that the events before a
reset keep theirs. *The order* of a tree is by time, then by depth; the time of an event is never before that of an
earlier event of its run, whatever the server says: it records some of them later than they happened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final

from acts.language import wire
from acts.language.errors import ActsError, truncate
from acts.language.strict_json import read_json, unpack, write_json
from acts.language.values import Json
from acts.tree.identity import root_identity, tree_token
from acts.tree.search_attributes import PHASE, WAITING
from acts.tree.wire_format import TYPE_KEY

# Each type of event, and what it has besides ``offset``, ``time``, ``type`` and ``run``
TYPES: Final[Mapping[str, str]] = {
    "runStarted": "workflow; parent? is the run above it",
    "runEnded": "workflow, status, output?, error?, usage?, undeclared?: what no Tool declares and took an error path, "
    "by Call (of a set, counts); the stream ends when all runs of the tree have ended",
    "runContinued": "it goes on as a new run of the same id (continue-as-new)",
    "runReset": "earlierRun, its run id: a person has reset it; what that had done after this point does not count",
    "phaseChanged": "phase, waiting: what the search attributes say (`acts setup`)",
    "cancelRequested": "by? whom",
    "paused": "nothing more starts",
    "resumed": "it goes on after a pause",
    "provided": "kind: a message was sent to it",
    "taskFailed": "error: its worker cannot go on; the server tries again",
    "tickStarted": "tick, model: a planner is asked",
    "modelAnswered": "tick, calls (their number), output?, usage?, error?",
    "tickEnded": "tick: what was planned has ended",
    "modelWaiting": "model, reason, seconds, nextTry; without seconds it waits no more",
    "callStarted": "call, tool, instance?, id, parameters, and activity, model, or delegate with its child run",
    "callEnded": "call, tool, instance?, state, result?, error?, usage?, attempts?",
    "waitOpened": "what, call?, instance?, version, subject?, since, deadline?, who?, of?, approvals?, waiting?: "
    "people decide; of the root itself with how many wait there",
    "waitClosed": "what, call?, instance?: it waits no more",
    "decision": "decision, what?, call?, instance?, by?, reason?, outcome: accepted, refused, or sent (a signal)",
    "text": "tick? or call?, message, delta, isComplete?: words of a model as they come; no history has them",
}
# What a root has in its memo of what waits in itself: {"opened": [facts], "closed": [keys], "waiting": how many}
WAITS_MEMO: Final = "ActsWaits"
WAIT_FACTS: Final = (
    "workflowId", "what", "call", "instance", "version", "subject", "since", "deadline", "elements", "hints", "who",
    "of", "approvals",
)  # fmt: skip
# Longer ones are named by size and digest: a page shows a value of a few lines, and the run has it whole
MAX_VALUE: Final = 4096
# What is parsed for the names in it; 1 MiB takes 10 ms
MAX_PARSED: Final = 1024 * 1024
MAX_RESULT: Final = wire.MAX_PAYLOAD_BYTES  # all that a run returns; how each Call ended is in it
MAX_MESSAGE: Final = 1_000  # characters of an error
_SUFFIX: Final = "_event_attributes"
_KEY: Final = re.compile(r"(?:(.*)/)?(\d+:[^/]*)", re.DOTALL)
_OFFSET: Final = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,8}(?:\.[0-9a-f]{1,8})?)-([0-9a-f]{12})")
_MICRO: Final = 1_000_000
_MAX_HELD: Final = 10 * _MICRO  # a run below answers in 0.1 s; where one does not, the stream goes on
# The server's numbers (temporalio.api.enums), which the core cannot import
_CAUSE_RESET: Final = 20
_CONTINUED: Final = 1
_CANCELLED: Final = {"code": wire.CANCELLED, "message": "it was cancelled"}
_TERMINATED: Final = {"code": "TerminatedError", "message": "its run was terminated"}
_TIMED_OUT: Final = {"code": wire.TIMEOUT, "message": "its run took too long"}


_CallKey = tuple[str | None, str | None]


class EventsRefused(ActsError):
    """An offset that is malformed or names no event of the run (any more), or a filter that admits nothing."""


def offset_micros(offset: str) -> int:
    """The time in an offset, in microseconds since 1970. Raises EventsRefused: it is none."""
    match = _OFFSET.fullmatch(offset)
    if match is None:
        text = f"{truncate(offset, 60)!r} is no offset: take one from an event, such as 6438ad1c9d3f0-1b-0a1b2c3d4e5f"
        raise EventsRefused(f"{text}, or none to read from the beginning")
    return int(match[1], 16)


def _is_held(accepted: int, now: int) -> bool:
    """True while a decision may still come where it was accepted: before what it lets start, here or in a run below."""
    return now - accepted < _MAX_HELD


def missing_offset(offset: str) -> EventsRefused:
    text = f"the event {offset} is not in this run: another run has it, it was reset, or its history is deleted"
    return EventsRefused(f"{text}; read from the beginning")


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event. ``run`` is a workflow id, ``time`` in UTC; ``order`` places it in the stream of its tree."""

    type: str
    run: str
    offset: str = ""
    order: tuple[int, int, str, int, int, int] = field(default=(0, 0, "", 0, 0, 0), compare=False)
    call: str | None = None
    tool: str | None = None
    instance: str | None = None
    tick: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.order[0] // _MICRO, UTC).strftime("%Y-%m-%dT%H:%M:%S") + (
            f".{self.order[0] % _MICRO:06d}Z"
        )

    def to_json(self) -> dict[str, Any]:
        """``{offset, time, type, run, call?, tool?, instance?, tick?, …}``; ``TYPES`` says what else."""
        own = {"offset": self.offset, "time": self.time} if self.offset else {}
        names = {"call": self.call, "tool": self.tool, "instance": self.instance, "tick": self.tick}
        return {**own, "type": self.type, "run": self.run, **{k: v for k, v in names.items() if v is not None},
                **self.data}  # fmt: skip


def words_event(run: str, key: str, message: str, pieces: Sequence[str]) -> RunEvent:
    """Words of the answer to a request, which is known by the key of its tick or Call; a piece "" ends the message."""
    tick = key.removeprefix("tick-")
    is_tick = tick != key and tick.isdecimal()
    data = {"message": message, "delta": "".join(pieces), **({"isComplete": True} if "" in pieces else {})}
    names: dict[str, Any] = (
        {"tick": int(tick)} if is_tick else dict(zip(("instance", "call"), _split_key(key), strict=True))
    )
    return RunEvent("text", run, data=data, **names)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; an empty part admits all. ``run`` admits the runs at and below one."""

    types: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()  # ids of Calls, or names of Tools
    instance: str | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(self.types - TYPES.keys()):
            raise EventsRefused(
                f"there is no type of event {truncate(unknown[0], 60)!r}; there are: {', '.join(TYPES)}"
            )

    def admits(self, event: RunEvent) -> bool:
        return (
            (not self.types or event.type in self.types)
            and (not self.calls or event.call in self.calls or event.tool in self.calls)
            and self.instance in (None, event.instance)
            and (self.run is None or event.run == self.run or event.run.startswith(f"{self.run}/"))
        )


@dataclass(frozen=True, slots=True)
class RunPlace:
    """One run of a tree: ``link`` counts the runs of its id before it, ``depth`` the runs above it."""

    workflow_id: str
    run_id: str
    link: int = 0
    depth: int = 0
    parent: str | None = None
    instance: str | None = None
    token: str | None = None  # of the tree: who does not know it cannot say what waits; None: not known
    reset_of: str | None = None  # the run id that it takes the place of: the events that both have are passed over


@dataclass(slots=True)
class _Work:
    """An Activity, a request to a model, or a child that is in flight."""

    kind: str  # call, tick, or run
    call: str | None = None
    tool: str | None = None
    instance: str | None = None
    tick: int | None = None
    attempts: int = 1
    data: dict[str, Any] = field(default_factory=dict)


class HistoryView:
    """The history of one run.

    ``children`` are the runs that it has started so far, ``next_run_id`` is the run that continues it, ``ended`` how it
    ended.
    """

    def __init__(self, place: RunPlace) -> None:
        self.place, self.workflow, self.ended, self.next_run_id = place, "", "", ""
        self.last_id = self.micros = self._count = 0
        self.children: list[RunPlace] = []
        self._starting: dict[int, int] = {}
        self._is_silent = place.reset_of is not None
        self._work: dict[int, _Work] = {}
        self._children: dict[int, _Work] = {}
        self._updates: dict[int, tuple[Any, int]] = {}
        self._origin, self._token = "", place.token
        self._tick: int | None = None
        # Calls by id and instance: those that have started or ended, and the Tools of those that are in flight
        self._calls: set[_CallKey] = set()
        self._open: dict[_CallKey, str | None] = {}

    def held_from(self, now: int, never: int) -> int:
        """From when on more may come: a child that was initiated then has not started yet, a decision has no answer."""
        updates = (at for _, at in self._updates.values() if _is_held(at, now))
        return min((*self._starting.values(), *updates), default=never)

    def next(self) -> HistoryView:
        """The view of the run that continues this one."""
        place = self.place
        after = HistoryView(replace(place, run_id=self.next_run_id, link=place.link + 1, token=self._token))
        after.micros, after._calls, after._open, after._tick = self.micros, self._calls, self._open, self._tick
        return after

    def wants(self, event: Any) -> bool:
        """True for an event whose payloads are read."""
        return str(event.WhichOneof("attributes")).removesuffix(_SUFFIX) in self._READERS

    def read(self, event: Any) -> list[RunEvent]:
        """What the next event of the history says."""
        time = event.event_time
        self.micros = max(self.micros, time.seconds * _MICRO + time.nanos // 1000)
        self.last_id, self._count = event.event_id, 0
        name = str(event.WhichOneof("attributes"))
        reader = self._READERS.get(name.removesuffix(_SUFFIX))
        if reader is None:
            return []
        was_silent = self._is_silent
        events = list(reader(self, getattr(event, name)))
        return [] if was_silent and self._is_silent else events

    def _event(
        self, type_: str, call: str | None = None, tool: str | None = None, instance: str | None = None,
        tick: int | None = None, **data: Any,
    ) -> RunEvent:  # fmt: skip
        place, at = self.place, self._count
        self._count += 1
        offset = f"{self.micros:x}-{self.last_id:x}{f'.{at:x}' if at else ''}-{self._origin}"
        order = (self.micros, place.depth, place.workflow_id, place.link, self.last_id, at)
        own = {key: value for key, value in data.items() if value is not None}
        return RunEvent(type_, place.workflow_id, offset, order, call, tool, instance or place.instance, tick, own)

    # -- the run ---------------------------------------------------------------------------------

    def _started(self, a: Any) -> Iterator[RunEvent]:
        place, self.workflow = self.place, a.workflow_type.name
        origin = f"{place.workflow_id}\0{a.original_execution_run_id}"
        self._origin = hashlib.sha256(origin.encode(errors="replace")).hexdigest()[:12]
        is_continued = a.initiator == _CONTINUED and bool(a.continued_execution_run_id)
        first = _first(a.input)
        is_root = not place.parent and not a.cron_schedule
        if is_root and first is not None and not is_reference(first) and TYPE_KEY not in first.metadata:
            # The Request. A run that was started with the name of a plan goes on with it as a new one: the last counts
            identity = root_identity(place.workflow_id, a.first_execution_run_id)
            self._token = tree_token(identity, first.data)
        if not is_continued:
            yield self._event("runStarted", workflow=self.workflow, parent=place.parent)

    def _completed(self, a: Any) -> Iterator[RunEvent]:
        yield from self._end("completed", _object(_first(a.result), MAX_RESULT, is_own=True))

    def _failed(self, a: Any) -> Iterator[RunEvent]:
        details = _cause(a.failure).application_failure_info.details
        yield from self._end("failed", _object(_first(details), MAX_RESULT, is_own=True), _error_of(a.failure))

    def _end(
        self, status: str, report: Mapping[str, Any] = MappingProxyType({}), error: dict[str, Any] | None = None
    ) -> Iterator[RunEvent]:
        self.ended = status
        if self.workflow in (wire.PLAN, wire.INSTANCE):
            yield from self._settle(report.get("calls"), None)
        instances = report.get("instances")
        if self.workflow == wire.INSTANCE and isinstance(instances, dict):
            for name, item in instances.items():
                yield from self._settle(_field(item, "calls"), name)
        for (call, instance), tool in list(self._open.items()):  # nobody waits for them any more
            self._record_end((call, instance))
            yield self._event("callEnded", call, tool, instance, state="cancelled")
        yield from self._end_tick()
        output = _brief("output", report["output"]) if "output" in report else {}
        usage = report.get("usage") if isinstance(report.get("usage"), dict) else None
        end = {"status": _text(report.get("status")) or status, "error": error, "usage": usage, **output}
        end["undeclared"] = _undeclared(report)
        yield self._event("runEnded", workflow=self.workflow, **end)

    def _settle(self, calls: Json, instance: str | None) -> Iterator[RunEvent]:
        """The ends of the Calls of a result that left no trace of their own: skipped, rejected, failed at the door."""
        for item in calls if isinstance(calls, list) else ():
            call, own = _text(_field(item, "id")), _text(_field(item, "instance"))
            key = (call, own or instance or self.place.instance)
            if key in self._calls and key not in self._open:
                continue
            tool, state = _text(_field(item, "tool")), _text(_field(item, "state"))
            if state not in (None, "pending", "awaiting", "ready", "running"):
                self._record_end(key)
                yield self._event("callEnded", call, tool, key[1], state=state, error=_field(item, "error"))

    def _continued(self, a: Any) -> Iterator[RunEvent]:
        self.ended, self.next_run_id = "continued", a.new_execution_run_id
        yield self._event("runContinued", workflow=self.workflow)

    def _task_failed(self, a: Any) -> Iterator[RunEvent]:
        if a.cause == _CAUSE_RESET:
            if a.base_run_id == self.place.reset_of:
                self._is_silent = False
            yield self._event("runReset", earlierRun=a.base_run_id)
        elif a.failure.message:
            yield self._event("taskFailed", error=_error_of(a.failure))

    def _cancel_requested(self, a: Any) -> Iterator[RunEvent]:
        yield self._event("cancelRequested", by=a.identity or None)

    def _attributes_changed(self, a: Any) -> Iterator[RunEvent]:
        fields = a.search_attributes.indexed_fields
        values = {name: _parse(fields[name]) for name in (PHASE, WAITING) if name in fields}
        if values:
            yield self._event("phaseChanged", phase=values.get(PHASE), waiting=values.get(WAITING))

    # -- Activities --------------------------------------------------------------------------------

    def _scheduled(self, a: Any) -> Iterator[RunEvent]:
        type_, key = a.activity_type.name, a.activity_id
        first = _first(a.input)
        if type_ == wire.MODEL:
            question = _object(first)
            if question.get("ask") == "solution":
                yield from self._start_tick(question)
                return
            call = question["call"] if isinstance(question.get("call"), dict) else {}
            work = _work_of(key, call, _text(question.get("tool")), model=question.get("model"))
        elif type_.startswith("acts."):
            return
        else:
            call = _object(first)
            work = _work_of(key, call, _text(call.get("_tool")), activity=type_)
        self._work[self.last_id] = work
        yield from self._start_call(work, call, first)

    def _start_call(self, work: _Work, call: Mapping[str, Any], payload: Any) -> Iterator[RunEvent]:
        """A Call that is scheduled again, since a worker did not have its Activity, has started already."""
        key = (work.call, work.instance or self.place.instance)
        if key in self._calls:
            return
        self._calls.add(key)
        self._open[key] = work.tool
        values = {name: value for name, value in call.items() if not name.startswith("_")}
        is_small = payload is not None and len(payload.data) <= MAX_VALUE
        fields = {"parameters": values} if is_small else _brief("parameters", values)
        fields = fields if call or payload is None else _brief_payload("parameters", payload)
        yield self._event("callStarted", work.call, work.tool, work.instance, id=call.get("_id"), **fields, **work.data)

    def _start_tick(self, question: Mapping[str, Any]) -> Iterator[RunEvent]:
        yield from self._end_tick()
        tick = question.get("tick", 1)
        self._tick = tick if isinstance(tick, int) else None
        self._work[self.last_id] = _Work("tick", tick=self._tick)
        yield self._event("tickStarted", tick=self._tick, model=question.get("model"))

    def _end_tick(self) -> Iterator[RunEvent]:
        tick, self._tick = self._tick, None
        if tick is not None:
            yield self._event("tickEnded", tick=tick)

    def _attempt_started(self, a: Any) -> Iterator[RunEvent]:
        if (work := self._work.get(a.scheduled_event_id)) is not None:
            work.attempts = a.attempt
        yield from ()

    def _activity_completed(self, a: Any) -> Iterator[RunEvent]:
        work = self._work.pop(a.scheduled_event_id, None)
        payload = _first(a.result)
        if work is not None and work.kind == "tick":
            yield from self._answer(work, _object(payload))
        elif work is not None and "model" in work.data:
            answer = _object(payload)
            fields = _brief("result", answer.get("output"))
            yield self._call_ended(work, "completed", usage=answer.get("usage"), **fields)
        elif work is not None:
            yield self._call_ended(work, "completed", **_brief_payload("result", payload))

    def _answer(self, work: _Work, answer: Mapping[str, Any]) -> Iterator[RunEvent]:
        solution = answer.get("solution")
        calls, output = _field(solution, "calls"), _field(solution, "output")
        count = len(calls) if isinstance(calls, list) else 0
        fields = {} if output is None else _brief("output", output)
        usage, error = answer.get("usage"), answer.get("unusable")
        yield self._event("modelAnswered", tick=work.tick, calls=count, usage=usage, error=error, **fields)
        if not count:
            yield from self._end_tick()

    def _activity_ended(self, a: Any, state: str = "failed") -> Iterator[RunEvent]:
        work = self._work.pop(a.scheduled_event_id, None)
        if work is None:
            return
        error = _error_of(a.failure) if state == "failed" else _CANCELLED
        if work.kind == "tick":
            yield self._event("modelAnswered", tick=work.tick, calls=0, error=error)
        elif error["code"] != wire.NOT_SERVED:  # another worker takes it
            yield self._call_ended(work, state, error=error)

    def _call_ended(self, work: _Work, state: str, **data: Any) -> RunEvent:
        self._record_end((work.call, work.instance or self.place.instance))
        attempts = work.attempts if work.attempts > 1 else None
        return self._event("callEnded", work.call, work.tool, work.instance, state=state, attempts=attempts, **data)

    def _record_end(self, key: _CallKey) -> None:
        self._calls.add(key)
        self._open.pop(key, None)

    def _marked(self, a: Any) -> Iterator[RunEvent]:
        """A local Activity leaves nothing but its outcome."""
        data = _object(_first(a.details["data"])) if a.marker_name == "core_local_activity" else {}
        type_ = str(data.get("activity_type") or "acts.")
        if type_.startswith("acts."):
            return
        work = _work_of(str(data.get("activity_id")), {}, activity=type_)
        work.attempts = data["attempt"] if isinstance(data.get("attempt"), int) else 1
        error = _error_of(a.failure) if a.HasField("failure") else None
        if error is not None and error["code"] == wire.LOCAL_DEFERRED:  # an ordinary one returns how it ended
            return
        yield from self._start_call(work, {}, None)
        result = _first(a.details["result"]) if "result" in a.details else None
        fields = _brief_payload("result", result) if error is None else {}
        yield self._call_ended(work, "completed" if error is None else "failed", error=error, **fields)

    # -- children ----------------------------------------------------------------------------------

    def _child_initiated(self, a: Any) -> Iterator[RunEvent]:
        type_, id_ = a.workflow_type.name, a.workflow_id
        name = id_.removeprefix(f"{self.place.workflow_id}/").partition("~")[0]
        work, payload = _Work("run"), _first(a.input)
        if type_ == wire.DELEGATE:
            own = _object(payload)
            call = {"_instance": _field(own.get("position"), "instance")}
            work = _work_of(name, call, delegate=own.get("delegate"), input=own.get("input"), child=id_)
        elif type_ == wire.BACKGROUND:
            work = replace(_work_of(name, {}, child=id_), kind="background")
        elif type_ == wire.INSTANCE:
            members = _object(payload, is_own=True).get("instances")
            work.instance = _text(members[0]) if isinstance(members, list) and len(members) == 1 else None
        work.tick = self._tick if name == f"plan-{self._tick}" else None
        self._children[self.last_id] = work
        self._starting[self.last_id] = self.micros
        yield from ()

    def _child_started(self, a: Any) -> Iterator[RunEvent]:
        self._starting.pop(a.initiated_event_id, None)
        work = self._children.get(a.initiated_event_id)
        if work is None:
            return
        child, place = a.workflow_execution, self.place
        if work.kind == "background":  # it outlives its tree
            del self._children[a.initiated_event_id]
            yield from self._start_call(work, {}, None)
            yield self._call_ended(work, "detached")
            return
        instance = work.instance or place.instance
        below = RunPlace(child.workflow_id, child.run_id, 0, place.depth + 1, place.workflow_id, instance, self._token)
        self.children.append(below)
        if work.kind == "call":
            values = work.data.pop("input", None)
            yield from self._start_call(work, values if isinstance(values, dict) else {}, None)

    def _child_refused(self, a: Any) -> Iterator[RunEvent]:
        self._starting.pop(a.initiated_event_id, None)
        self._children.pop(a.initiated_event_id, None)
        yield from ()

    def _child_completed(self, a: Any) -> Iterator[RunEvent]:
        report = _object(_first(a.result), MAX_RESULT, is_own=True)
        yield from self._end_child(a, "completed", **_brief("result", report.get("output")))

    def _end_child(self, a: Any, state: str, **data: Any) -> Iterator[RunEvent]:
        work = self._children.pop(a.initiated_event_id, None)
        if work is not None and work.tick is not None and work.tick == self._tick:
            yield from self._end_tick()
        if work is not None and work.kind == "call":
            yield self._call_ended(work, state, **data)

    # -- people, and other runs --------------------------------------------------------------------

    def _signaled(self, a: Any) -> Iterator[RunEvent]:
        name, fields = a.signal_name, _object(_first(a.input))
        if name in (wire.APPROVE, wire.REJECT, wire.EDIT, wire.ANSWER, wire.REVOKE, wire.UNDO):
            yield self._decision({**fields, "decision": name}, "sent")
        elif name in (wire.PAUSE, wire.RESUME):
            yield self._event("paused" if name == wire.PAUSE else "resumed", instance=_text(fields.get("instance")))
        elif name == wire.PROVIDE:
            yield self._event("provided", kind=_text(fields.get("kind") or fields.get("type") or "text"))
        elif name in ("pendingChanged", "modelWait") and self._token in (None, fields.get("token")):
            yield from self._waits(fields) if name == "pendingChanged" else self._model_wait(fields)

    def _waits(self, record: Mapping[str, Any]) -> Iterator[RunEvent]:
        """A run below has told this root what waits there; or what waits in the root itself has changed."""
        opened, closed = record.get("opened"), record.get("closed")
        for key in closed if isinstance(closed, list) else ():
            source, what, call, instance, *_ = map(_text, (*(key if isinstance(key, list) else ()), *[None] * 4))
            yield self._event("waitClosed", call, _tool_of(call), instance, source=source, what=what)
        for wait in opened if isinstance(opened, list) else ():
            call, instance, source = (_text(_field(wait, name)) for name in ("call", "instance", "workflowId"))
            data = {name: _field(wait, name) for name in WAIT_FACTS if name not in ("call", "instance", "workflowId")}
            data["waiting"] = record.get("waiting")
            yield self._event("waitOpened", call, _tool_of(call), instance, source=source, **data)

    def _memo_changed(self, a: Any) -> Iterator[RunEvent]:
        if WAITS_MEMO in a.upserted_memo.fields:
            yield from self._waits(_object(a.upserted_memo.fields[WAITS_MEMO]))

    def _model_wait(self, record: Mapping[str, Any]) -> Iterator[RunEvent]:
        data = {key: record.get(key) or None for key in ("model", "reason", "seconds", "nextTry")}
        yield self._event("modelWaiting", source=record.get("workflowId"), **data)

    def _update_accepted(self, a: Any) -> Iterator[RunEvent]:
        self._updates[self.last_id] = a.accepted_request.input, self.micros
        yield from ()

    def _update_completed(self, a: Any) -> Iterator[RunEvent]:
        own, accepted = self._updates.pop(a.accepted_event_id, (None, 0))
        fields = _object(_first(own.args)) if own is not None else {}
        is_refused = a.outcome.HasField("failure")
        if own is not None and own.name in (wire.DECIDE, wire.ANSWER):
            fields |= {"decision": wire.ANSWER} if own.name == wire.ANSWER else {}
            error = _error_of(a.outcome.failure) if is_refused else None
            records = _object(_first(a.outcome.success)).get("decisions")  # the answer is the status after it
            last = records[-1] if isinstance(records, list) and records else None
            if isinstance(last, dict) and "workflowId" not in fields and last.get("decision") == fields.get("decision"):
                fields = {**last, **fields}
            now = self.micros, self.last_id
            if _is_held(accepted, self.micros):
                self.micros, self.last_id = accepted, a.accepted_event_id
            decision = self._decision(fields, "refused" if is_refused else "accepted", error)
            self.micros, self.last_id = now
            yield decision
        elif own is not None and own.name == wire.PROVIDE and not is_refused:
            yield self._event("provided", kind=_text(fields.get("kind") or fields.get("type") or "text"))

    def _decision(self, fields: Mapping[str, Any], outcome: str, error: Any = None) -> RunEvent:
        call, by, source = (_text(fields.get(key)) for key in ("call", "by", "workflowId"))
        reason = _text(fields.get("reason")) or _text(fields.get("note"))
        return self._event(
            "decision", call, _tool_of(call), _text(fields.get("instance")), outcome=outcome, by=by, reason=reason,
            decision=_text(fields.get("decision")), what=_text(fields.get("what")), source=source, error=error,
            version=fields.get("version"),
        )  # fmt: skip

    # By the name of the attributes of an event, less ``_SUFFIX``; all others say nothing to whoever watches
    _READERS: ClassVar[Mapping[str, Callable[[Any, Any], Iterator[RunEvent]]]] = {
        "workflow_execution_started": _started,
        "workflow_execution_completed": _completed,
        "workflow_execution_failed": _failed,
        "workflow_execution_canceled": lambda self, _: self._end("cancelled"),
        "workflow_execution_terminated": lambda self, _: self._end("terminated"),
        "workflow_execution_timed_out": lambda self, _: self._end("timedOut"),
        "workflow_execution_continued_as_new": _continued,
        "workflow_execution_cancel_requested": _cancel_requested,
        "workflow_execution_signaled": _signaled,
        "workflow_execution_update_accepted": _update_accepted,
        "workflow_execution_update_completed": _update_completed,
        "workflow_task_failed": _task_failed,
        "upsert_workflow_search_attributes": _attributes_changed,
        "workflow_properties_modified": _memo_changed,
        "activity_task_scheduled": _scheduled,
        "activity_task_started": _attempt_started,
        "activity_task_completed": _activity_completed,
        "activity_task_failed": _activity_ended,
        "activity_task_timed_out": _activity_ended,
        "activity_task_canceled": lambda self, a: self._activity_ended(a, "cancelled"),
        "marker_recorded": _marked,
        "start_child_workflow_execution_initiated": _child_initiated,
        "start_child_workflow_execution_failed": _child_refused,
        "child_workflow_execution_started": _child_started,
        "child_workflow_execution_completed": _child_completed,
        "child_workflow_execution_failed": lambda self, a: self._end_child(a, "failed", error=_error_of(a.failure)),
        "child_workflow_execution_canceled": lambda self, a: self._end_child(a, "cancelled", error=_CANCELLED),
        "child_workflow_execution_terminated": lambda self, a: self._end_child(a, "failed", error=_TERMINATED),
        "child_workflow_execution_timed_out": lambda self, a: self._end_child(a, "failed", error=_TIMED_OUT),
    }


# -- payloads and failures -------------------------------------------------------------------------


def _encoding(payload: Any) -> bytes:
    encoding: bytes = payload.metadata.get("encoding", b"")
    return encoding


def is_reference(payload: Any) -> bool:
    """True for a payload that stands for a value in external storage."""
    return bool(payload.external_payloads) or _encoding(payload) == b"json/external-storage-reference"


def _parse(payload: Any, *, is_own: bool = False) -> Json:
    """The JSON of a payload; None where it has none, is stored outside, or cannot be read.

    ``is_own``: a run of ours made it, and may have compressed it; from others nothing is unpacked.
    """
    if payload is None or not payload.data or is_reference(payload):
        return None
    try:
        return read_json(unpack(payload.data) if is_own and _encoding(payload) == b"binary/plain" else payload.data)
    except (ValueError, RecursionError):
        return None


def _first(payloads: Any) -> Any:
    return payloads.payloads[0] if payloads.payloads else None


def _object(payload: Any, limit: int = MAX_PARSED, *, is_own: bool = False) -> dict[str, Any]:
    """The object in a payload; {} where it is none, or too long to be read for a few names in it."""
    value = _parse(payload, is_own=is_own) if payload is not None and len(payload.data) <= limit else None
    return value if isinstance(value, dict) else {}


def _brief(name: str, value: Json) -> dict[str, Any]:
    data = write_json(value)
    return {name: value} if len(data) <= MAX_VALUE else _omitted(name, data)


def _brief_payload(name: str, payload: Any) -> dict[str, Any]:
    if payload is None or (len(payload.data) <= MAX_VALUE and not is_reference(payload)):
        return {name: _parse(payload)}
    if payload.external_payloads:
        return {f"{name}Omitted": {"bytes": payload.external_payloads[0].size_bytes, "isStored": True}}
    return _omitted(name, payload.data)


def _omitted(name: str, data: bytes) -> dict[str, Any]:
    return {f"{name}Omitted": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}


def _cause(failure: Any) -> Any:
    """What failed in an Activity or a child, without the envelopes."""
    while failure.HasField("cause") and failure.WhichOneof("failure_info") in (
        "activity_failure_info", "child_workflow_execution_failure_info",
    ):  # fmt: skip
        failure = failure.cause
    return failure


def _error_of(failure: Any) -> dict[str, Any]:
    """``{code, message}``, as the Call of a plan has it."""
    cause = _cause(failure)
    kind = cause.WhichOneof("failure_info") or ""
    codes = {"timeout_failure_info": wire.TIMEOUT, "canceled_failure_info": wire.CANCELLED}
    code = codes.get(kind) or cause.application_failure_info.type or "ApplicationError"
    message = cause.message
    if cause.HasField("encoded_attributes"):
        message = _object(cause.encoded_attributes).get("message") or message
    return {"code": code, "message": truncate(str(message), MAX_MESSAGE)}


def _field(value: Json, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _undeclared(report: Mapping[str, Any]) -> Json:
    calls = report.get("calls")
    codes = {str(_field(c, "id")): _text(_field(c, "undeclared")) for c in calls} if isinstance(calls, list) else {}
    return {call: text for call, text in codes.items() if text} or _field(report.get("instances"), "undeclared")


def _text(value: Any) -> str | None:
    return truncate(value, MAX_MESSAGE) if isinstance(value, str) and value else None


def _split_key(key: str) -> tuple[str | None, str]:
    """The instance and the id of a Call, of the key that its Activity or its child is named by."""
    match = _KEY.fullmatch(key)
    return (match[1], match[2]) if match else (None, key)


def _work_of(key: str, call: Mapping[str, Any], tool: str | None = None, **data: Any) -> _Work:
    instance, id_ = _split_key(key)
    return _Work("call", id_, tool or _tool_of(id_), _text(call.get("_instance")) or instance, data=data)


def _tool_of(call: str | None) -> str | None:
    """``refund``, of ``2:refund`` and of ``2:refund[0]``."""
    name = call.partition(":")[2] if call else ""
    return re.sub(r"\[\d+\]$", "", name) or None
