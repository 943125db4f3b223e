"""What a ``Plan`` is told and asked from outside: signals that steer it, queries that show it."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.errors import CallError, InvalidRequest, Problem
from acts.language.messages import Data, parse_message
from acts.language.wire import ASKED, CONTEXT, GRAPH, INSTANCE, MATERIAL, PAUSE, PLAN_QUERY, PROVIDE, RESUME, STATUS
from acts.machines import call_report
from acts.machines.instance_results import child_progress, statuses
from acts.views import results
from acts.views.mermaid import render_graph
from workflows.asking import Asking, material
from workflows.desk import MAX_TOLD
from workflows.member import Member, read_signal
from workflows.payloads import MAX_RESULT, NOTHING, brief, decode, dump, raw
from workflows.requests import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.machines.commands import Command
    from acts.machines.walk import Walk

    Event = Callable[[Walk, str], list[Command]]


AS_TEXT: Final = 'As JSON, wave by wave: {"format": "json"}.'
AIM: Final = 'No input needed; {"workflowId"?, "instance"?} names one run below.'


class PlanHandlers(Member):
    """The handlers of ``Plan``, beside those for decisions."""

    _walk: Walk | None
    _inbox: deque[Event]
    _phase: str
    _notes: list[str]
    _asking: Asking

    def __init__(self) -> None:
        super().__init__()
        self._untaken: deque[tuple[Any, RawValue]] = deque()

    def _phase_now(self) -> str:
        raise NotImplementedError

    # -- signals ---------------------------------------------------------------

    @workflow.signal(name=PAUSE, description=f"Start no more calls; what runs goes on. {AIM}")
    async def pause(self, given: RawValue = NOTHING) -> None:
        """Start no more calls, here and below."""
        if not await self._aimed_below(PAUSE, read_signal(given)):
            self._inbox.append(self._pause)
            await self._children.tell(PAUSE)

    @workflow.signal(name=RESUME, description=f"Go on after pause. {AIM}")
    async def resume(self, given: RawValue = NOTHING) -> None:
        """Go on."""
        if not await self._aimed_below(RESUME, read_signal(given)):
            self._inbox.append(self._resume)
            await self._children.tell(RESUME)

    @workflow.signal(
        name=PROVIDE,
        description='Give a message that the plan waits for: {"type": "input", "input": {"name": "value"}}',
    )
    async def provide(self, message: RawValue = NOTHING) -> None:
        """Append a data-like message to the context; instances get what is theirs, and what is global."""
        found = read_signal(message)
        named, plain = aimed_message(found)
        if named is not None and await self._aimed_below(PROVIDE, {"workflowId": named}, raw(dump(plain))):
            return
        instance = plain.get("_instance") if isinstance(plain, dict) else None
        given = message if named is None else raw(dump(plain))
        self._untaken.append((instance, given))
        self._inbox.append(partial(self._provide, given))
        if isinstance(instance, str):
            await self._children.tell_named(self._child_of(instance), PROVIDE, given)
        else:
            await self._children.tell(PROVIDE, given, type_=INSTANCE)

    def _pause(self, walk: Walk, _now: str) -> list[Command]:
        self._phase = "paused"
        return walk.pause()

    def _resume(self, walk: Walk, _now: str) -> list[Command]:
        self._phase = "running"
        return walk.resume()

    def _untaken_by(self, instances: Sequence[str]) -> list[tuple[str, RawValue]]:
        """What was provided for some instances, and the walk has not taken yet: it is not in what they are handed."""
        return [(PROVIDE, message) for i, message in self._untaken if i is None or i in instances]

    def _child_of(self, instance: str) -> str:
        """The name of the child that walks an instance."""
        return instance

    def _provide(self, message: RawValue, walk: Walk, now: str) -> list[Command]:
        self._untaken.popleft()
        try:
            return walk.provide(data_message(decode(message)), now)
        except CallError as error:
            self._note(f"a message was refused: {error.message}")
            return []

    # -- queries ---------------------------------------------------------------

    @workflow.query(name=STATUS, description="{phase, calls: [{id, tool, state, error?}], usage, notes?}")
    def status(self, _: RawValue = NOTHING) -> RawValue:
        """Where the run is."""
        return raw(dump(self._told()))

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = {"phase": self._phase_now(), "calls": [], "usage": self._asking.spent.to_json()}
        if self._walk is not None:
            found["calls"] = call_report.calls(self._walk)
            if self._walk.prepared.request.instances():
                found["instances"] = statuses(self._walk)
        if waits := len(self._desk.all()):
            found["waits"] = waits
        if self._notes:
            found["notes"] = self._notes
        if self._desk.records:
            found["decisions"] = self._desk.records[-MAX_TOLD:]
        if len(dump(found)) > MAX_RESULT:
            found["calls"] = [{**c, "error": brief([c["error"]])[0]} if "error" in c else c for c in found["calls"]]
        return found

    @workflow.query(name=PLAN_QUERY, description="The plan's calls, as they were written.")
    def plan(self, _: RawValue = NOTHING) -> RawValue:
        """The plan."""
        walk = self._walk
        found = walk.prepared.request.plan if walk is not None else None
        return raw(dump(list(found.calls) if found is not None else []))

    @workflow.query(
        name=CONTEXT,
        description='The messages so far. A page: {"offset": 0, "limit": 1000}. One value: {"path": "†state.name"}.',
    )
    def context(self, page: RawValue = NOTHING) -> RawValue:
        """The whole context, a page of it, or the value at a path."""
        if self._walk is None:
            return raw(dump([]))
        walk = self._walk
        asked = decode(page) if page.payload.metadata else None
        messages = [m.raw for m in walk.prepared.request.context]
        return raw(dump(page_of(lambda: messages + results.appended_messages(walk), walk.value, asked)))

    @workflow.query(name=MATERIAL, description="For the engine: what a model is shown of this run's context.")
    def material(self, page: RawValue = NOTHING) -> RawValue:
        """A page of the context as it stood when the plan began, and the Tools."""
        if self._walk is None:
            return raw(dump({"messages": []}))
        prepared, asked = self._walk.prepared, decode(page)
        mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
        return raw(dump(material(prepared.request, prepared.tools.values(), mode, asked)))

    @workflow.query(
        name=ASKED,
        description="What the calls that wait for a decision here would be called with: "
        "{editable, calls: [{call, instance?, with}]}, as many as fit into an answer.",
    )
    def asked(self, _: RawValue = NOTHING) -> RawValue:
        """What a person has to know who decides."""
        walk, room, calls = self._walk, MAX_RESULT, []
        for wait in self._desk.own() if walk is not None else ():
            rank = walk.find(wait.call, wait.instance) if walk is not None and wait.call is not None else None
            given = walk.runs[rank].resolved if walk is not None and rank is not None else None
            if given is not None:
                item = {"call": wait.call, "with": {k: v for k, v in given.items() if k != "_id"}}
                calls.append(item if wait.instance is None else {**item, "instance": wait.instance})
                room -= len(dump(calls[-1]))
                if room < 0:
                    calls.pop()
                    break
        return raw(dump({"editable": self._takes_edits, "calls": calls}))

    @property
    def _takes_edits(self) -> bool:
        return True

    @workflow.query(name=GRAPH, description=f"The plan as a Mermaid flowchart. {AS_TEXT}")
    def graph(self, given: RawValue = NOTHING) -> Any:
        """The plan as a drawing."""
        if self._walk is None:
            return ""
        told = {"calls": call_report.calls(self._walk), "instances": child_progress(self._walk)}
        return render_graph(self._walk.prepared.whole or self._walk.prepared, told, read_signal(given))


def aimed_message(found: Any) -> tuple[str | None, Any]:
    """The run that a provided message names, and the message without that; its ``instance`` as ``_instance``.

    Only beside a payload in wrapped form: an inline payload may have fields of these names.
    """
    if not isinstance(found, dict) or found.get("type") not in found or not {"workflowId", "instance"} & set(found):
        return None, found
    plain = {k: v for k, v in found.items() if k not in ("workflowId", "instance")}
    if isinstance(found.get("instance"), str):
        plain["_instance"] = found["instance"]
    named = found.get("workflowId")
    return (named if isinstance(named, str) else workflow.info().workflow_id), plain


def data_message(value: Any) -> Data:
    """A message that may be provided from outside.

    Raises:
        InvalidRequest: it is no data-like Message.
    """
    message = parse_message(value)
    if not isinstance(message, Data):
        raise InvalidRequest(
            [Problem("invalidMessage", f"a {message.type} message cannot be provided: only data, input, state")]
        )
    return message
