"""``Agent``: the loop of planning and walking. A thin shell around ``acts.machines.loop``.

Each tick is one model request (an activity) and one child, a ``Plan`` that walks what
was planned. Neither holds the context: the activity reads it by query, the child is
handed the part that its Calls need. So a tick leaves as much history as there was work
in it, however long the conversation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    is_cancelled_exception,
)

from acts.language.config import Budget
from acts.language.errors import CallError, DecisionRefused, InvalidRequest, truncate
from acts.language.messages import read_request
from acts.language.wire import (
    AGENT,
    APPROVAL_TIMEOUT,
    APPROVE,
    BUDGET_SPENT,
    CONTEXT,
    EDIT,
    GRAPH,
    INVALID_REQUEST,
    LIMIT_EXCEEDED,
    MATERIAL,
    PAUSE,
    PLAN,
    PLAN_QUERY,
    PROVIDE,
    REJECT,
    RESUME,
    STATUS,
)  # fmt: skip
from acts.machines.loop import AskModel, AwaitApproval, Finished, Loop, Next, StartPlan
from acts.simulation.forecast_vs_actual import FIGURES, expected_ranges, sum_tables
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.delegation import Place
from acts.views import approval_page
from acts.views.mermaid import render_graph
from acts.views.web_page import agent_page
from workflows.asking import OPTIONS, ask_solution, material, own_context, usage_of
from workflows.desk import MAX_TOLD
from workflows.dispatch import call_error
from workflows.handlers import AIM, AS_TEXT, aimed_message, data_message
from workflows.member import Member, read_signal
from workflows.parent import failed_with
from workflows.payloads import MAX_PAYLOAD, MAX_RESULT, NOTHING, decode, dump, hand, pack, raw, size, trimmed, unpack
from workflows.plan import FATAL
from workflows.purse import Purse
from workflows.requests import load_upfront, look_up, page_of, read_given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.messages import Request

_HOW = "ask the query context for pages: {offset, limit} or {path}"


class _Stopped(Exception):
    """The run ends here: ``code`` and ``message`` say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@workflow.defn(name=AGENT, failure_exception_types=FATAL)
class AgentWorkflow(Member):
    """Asks the model, walks what it planned, and again, until an output stands."""

    def __init__(self) -> None:
        super().__init__()
        self._verdicts: deque[Decision] = deque()
        self._version = 0
        self._raw: Any = None
        self._registry: dict[str, Any] = {}
        self._loop: Loop | None = None
        self._phase = "planning"
        self._paused: bool | None = None
        self._notes: list[str] = []
        self._provided: list[RawValue] = []
        self._stays = False
        self._forecast: dict[str, Any] | None = None
        self._foreseen: dict[str, Any] | None = None

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, or what the run before handed over."""
        return await self._guarded(request)

    async def _guarded(self, request: RawValue) -> RawValue:
        """The run, its failures made readable."""
        try:
            return await self._run(request)
        except (ApplicationError, workflow.ContinueAsNewError):
            raise
        except InvalidRequest as error:
            self._phase = "failed"
            raise ApplicationError(
                str(error), raw(dump(error.to_json())), type=INVALID_REQUEST, non_retryable=True
            ) from None
        except asyncio.CancelledError:
            self._cancelled()
            raise
        except Exception as error:
            if is_cancelled_exception(error):
                self._cancelled()
                raise
            workflow.logger.exception("the loop broke")
            text = f"{type(error).__name__}: {truncate(str(error))}"
            raise ApplicationError(text, type="EngineError", non_retryable=True) from error

    def _cancelled(self) -> None:
        self._desk.close()
        self._show("cancelled")

    async def _run(self, given: RawValue) -> RawValue:
        carried = unpack(given) or {}
        self._raw = carried["request"] if carried else await self._request_of(given)
        if "place" in carried:
            self._place = Place.from_json(carried["place"])
        parsed = read_request(self._raw)
        self._place = self._place.within(parsed.config.budget)
        self._purse = Purse(Budget(), self._place.bank)
        return await self._work(parsed, carried)

    async def _request_of(self, given: RawValue) -> Any:
        """The Request, from what this run was started with."""
        return read_given(given)

    async def _work(self, parsed: Request, carried: dict[str, Any]) -> RawValue:
        """The loop, from its first tick or from where the run before left off."""
        registry = carried.get("registry")
        if registry is None:
            registry = await look_up(parsed)
            upfront = await load_upfront(parsed, registry)
            if upfront:
                self._raw = {**self._raw, "context": [*self._raw["context"], *upfront]}
                parsed = read_request(self._raw)
        self._registry = registry
        loop = Loop(parsed, registry["tools"], registry["served"])
        if carried:
            loop.restore(carried["loop"])
            self._paused = carried["paused"] if self._paused is None else self._paused
            self._desk.restore(carried.get("desk"))
            self._version = carried.get("version", 0)
            self._foreseen = carried.get("forecast")
            self._provided[:0] = [raw(dump(message)) for message in carried.get("provided", ())]
        self._notes += [p.text() for p in loop.warnings if p.code == "limitLowered"]
        self._loop = loop
        if not loop.proposes:
            await self._waits_again()
        try:
            over = await self._ticks(loop)
        except _Stopped as stop:
            over = Finished("failed", str(stop), stop.code)
        return await self._finish(loop, over)

    # -- the loop --------------------------------------------------------------

    async def _ticks(self, loop: Loop) -> Finished:
        step: Next = loop.begin()
        while not isinstance(step, Finished):
            if self._paused and not self._desk.restoring:  # what waited in the run before can still be decided
                self._show("paused")
                await workflow.wait_condition(lambda: not self._paused)
            step = await self._step(loop, step)
            if isinstance(step, AskModel) and self._overgrown():
                await self._purse.told()  # what is on its way may be lost with the run that sent it
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # what was awaited had just ended well, and so took no notice
            if isinstance(step, AskModel):
                self._renew(loop)
        return step

    async def _step(self, loop: Loop, step: AskModel | AwaitApproval | StartPlan) -> Next:
        if isinstance(step, AskModel):
            return await self._ask(loop, step)
        return await (self._propose(loop) if isinstance(step, AwaitApproval) else self._walk(loop, step))

    async def _propose(self, loop: Loop) -> Next:
        """Wait until somebody approves or rejects the plan of this tick; edits make new versions of it."""
        self._desk.open("plan", self._version, loop.request.config.approve)
        await self._waits_again()
        while True:
            self._show("awaiting")
            self._desk.teller.tell()
            await workflow.wait_condition(lambda: bool(self._verdicts) or self._overgrown())
            if not self._verdicts:
                await self._purse.told()
            if not self._verdicts:
                self._renew(loop)
                continue
            decision = self._verdicts.popleft()
            if decision.decision == REJECT:
                return loop.rejected(decision.reason or "")
            if decision.decision == APPROVE:
                return loop.approved()
            if decision.decision != EDIT:  # an edit was carried out when it came
                raise _Stopped(APPROVAL_TIMEOUT, self._desk.expired or "nobody decided in time")

    @staticmethod
    def _changed(loop: Loop, decision: Decision) -> list[Any]:
        """The proposed Calls as an edit makes them."""
        if decision.calls is not None:
            return list(decision.calls)
        place = next((n.index for n in loop.prepared.nodes if n.id == decision.call), None) if loop.prepared else None
        if place is None:
            raise DecisionRefused(f"there is no call {decision.call} in the plan that waits")
        calls = list(loop.proposed)
        calls[place] = decision.call_with
        return calls

    def _may_be_decided(self, decision: Decision) -> None:
        if decision.decision == EDIT and self._loop is not None:
            self._loop.check_edit(self._changed(self._loop, decision))

    def _may_be_decided_below(self, wait: PendingApproval, decision: Decision) -> None:
        # Of runs further below, only they themselves know what may be changed
        if decision.decision == EDIT and self._loop is not None and self._is_below(wait.workflow_id):
            self._loop.check_walked(decision.call, decision.call_with, decision.calls)

    def _decided(self, wait: PendingApproval, decision: Decision) -> None:
        self._verdicts.append(decision)
        if self._loop is None:
            return
        if decision.decision == EDIT:  # at once: what is decided next is about the new version
            self._loop.edited(self._changed(self._loop, decision))
            self._version += 1
            self._desk.raise_version(self._version)
        if decision.decision in (APPROVE, EDIT):
            self._loop.decision(decision.record(wait, ""))

    def _ready(self) -> bool:
        return self._loop is not None and (self._loop.tick > 0 or self._phase != "planning")

    def _at_rest(self) -> bool:
        return not self._verdicts

    async def _ask(self, loop: Loop, ask: AskModel) -> Next:
        self._absorb(loop)
        self._show("planning")
        config, upto = loop.request.config, len(loop.request.context)
        try:
            grant = (await self._purse.request()).within(loop.grant())
            found = decode(await ask_solution(config, ask.tick, upto, grant))
        except CallError as error:
            raise _Stopped(LIMIT_EXCEEDED, f"tick {ask.tick}: {error.message}, and there is no output") from error
        except ActivityError as error:
            self._purse.settle(usage_of(error))
            if is_cancelled_exception(error):
                raise
            loop.spent.add(usage_of(error))
            failed = call_error(error, OPTIONS, workflow.info().task_queue)
            raise _Stopped(failed.code, f"tick {ask.tick}: the model gave no answer: {failed.message}") from error
        loop.spent.add(found["usage"])
        self._purse.settle(found["usage"])
        self._absorb(loop)
        if "unusable" in found:
            return loop.unusable(**found["unusable"])
        step = loop.answered(found["solution"])
        self._version += isinstance(step, AwaitApproval)
        return step

    async def _walk(self, loop: Loop, plan: StartPlan) -> Next:
        self._show("running")
        handed_on = self._handed_on(loop, plan.request)
        if self._forecast is not None:
            handed_on["forecast"], self._forecast = self._forecast, None
        try:
            given = hand(handed_on)
            await self._purse.more_calls(plan.calls)
        except CallError as error:
            if error.code == BUDGET_SPENT:
                raise _Stopped(LIMIT_EXCEEDED, f"tick {plan.tick}: {error.message}") from error
            loop.started -= plan.calls
            return loop.unusable(error.code, f"what this plan reads is too large for one plan: {error.message}")
        label = f"tick {plan.tick}: {', '.join(plan.ids)}"
        try:
            ended = await self._children.run(PLAN, f"plan-{plan.tick}", given, label, ended=self._desk.forget)
            result = unpack(ended) or decode(ended)
        except CallError as error:
            raise _Stopped(error.code, error.message) from error
        except ChildWorkflowError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.__cause__
            code = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
            told = failed_with(error)
            if isinstance(told, dict):
                loop.spent.add(told.get("usage"))
                self._desk.records += [{**record, "tick": plan.tick} for record in told.get("decisions") or ()]
            raise _Stopped(code, f"tick {plan.tick}: its plan did not end by itself: {cause}") from error
        self._absorb(loop)
        if "forecast" in result:
            self._foreseen = sum_tables(self._foreseen, result["forecast"]) if self._foreseen else result["forecast"]
        decided = [loop.named(record) for record in result.get("decisions", ())]
        self._desk.records += [{**record, "tick": plan.tick} for record in decided]
        for record in decided:
            loop.decision(record)
        return loop.walked(result)

    def _handed_on(self, loop: Loop, request: dict[str, Any]) -> dict[str, Any]:
        """What the run that walks a plan is handed."""
        registry = {"tools": {}, "served": self._registry["served"], "pins": self._registry.get("pins", {})}
        source = own_context(len(loop.request.context)).to_json()
        config = self._raw.get("config") or {}
        whole = {"budget": config["budget"]} if config.get("budget") else {}
        return {
            "request": request, "registry": registry, "source": source, "tree": self._place.to_json(),
            "approve": config.get("approve"), **whole,
        }  # fmt: skip

    def _absorb(self, loop: Loop) -> None:
        """What was provided joins the context between two steps."""
        for given in self._provided:
            try:
                loop.provide(data_message(decode(given)))
            except (InvalidRequest, CallError) as error:
                self._note(f"a message was refused: {truncate(str(error), 200)}")
        self._provided.clear()

    def _overgrown(self) -> bool:
        """True when the history is long enough for a new run, and nothing stands in its way."""
        return not self._stays and workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()

    def _renew(self, loop: Loop) -> None:
        """Continue as new, between two ticks or while a plan waits: its history may be one of stray signals."""
        if not self._overgrown():
            return
        ticked = not loop.proposes
        if ticked:
            loop.untick()
        carried = pack(
            {
                "request": self._raw,
                "registry": self._registry,
                "loop": loop.snapshot(),
                "paused": bool(self._paused),
                "desk": self._desk.snapshot(),
                "version": self._version,
                "place": self._place.to_json(),
                "forecast": self._foreseen,
                "provided": [message for given in self._provided for message in _readable(given)],
                **self._more_carried(),
            }
        )
        if size(carried) <= MAX_PAYLOAD:
            workflow.continue_as_new(carried)
        self._stays = True
        if ticked:
            loop.next()

    def _more_carried(self) -> dict[str, Any]:
        """What a kind of agent carries over besides."""
        return {}

    async def _finish(self, loop: Loop, over: Finished) -> RawValue:
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._purse.told()
        self._show(over.status)
        result = loop.result(over.status)
        if self._desk.records:
            result["decisions"] = self._desk.records
        if self._foreseen is not None:
            result["forecast"] = self._foreseen
        if over.status != "completed":
            result["errors"] = [*result["errors"], {"call": None, "code": over.code, "message": over.message}]
        told = self._delivered(result)
        if over.status == "completed":
            return told
        raise ApplicationError(over.message, told, type=over.code, non_retryable=True)

    def _delivered(self, result: dict[str, Any]) -> RawValue:
        """What whoever started this run is given of its result."""
        return raw(dump(trimmed(result, _HOW)))

    def _show(self, phase: str) -> None:
        self._phase = phase
        if self._loop is not None:
            page = agent_page(self._loop, self._phase_now(), self._notes, self._desk.all(), self._desk.records)
            if phase == "awaiting" and self._loop.prepared is not None:
                page += self._proposed(self._loop)
            workflow.set_current_details(page)

    def _phase_now(self) -> str:
        """The phase; ``awaiting`` also while the plan that is walked says that something waits there."""
        return "awaiting" if self._phase == "running" and self._desk.waiting_below else self._phase

    def _proposed(self, loop: Loop) -> str:
        """The page of the plan that waits, and the forecast of what of it would be walked now."""
        (part, _), prepared = loop.to_walk(), loop.prepared
        found = approval_page.simulate_for_page(part, child=True)
        self._forecast = None if found is None else expected_ranges(found)
        if prepared is not None and part is not prepared:  # the page shows all of it
            whole = approval_page.simulate_for_page(prepared)
            now = {k: v for k, v in (found or {}).items() if k in FIGURES[1:]}
            return approval_page.page(prepared, whole and {**whole, **now})
        return approval_page.page(part, found)

    def _note(self, text: str) -> None:
        self._notes.append(truncate(text, 300))
        del self._notes[:-20]

    # -- signals ---------------------------------------------------------------

    @workflow.signal(name=PAUSE, description=f"Start nothing more; what runs goes on. {AIM}")
    async def pause(self, given: RawValue = NOTHING) -> None:
        """Ask and start nothing more, here and in the plan that is being walked."""
        if not await self._aimed(PAUSE, given):
            self._paused = True
            await self._forward(PAUSE)

    @workflow.signal(name=RESUME, description=f"Go on after pause. {AIM}")
    async def resume(self, given: RawValue = NOTHING) -> None:
        """Go on."""
        if not await self._aimed(RESUME, given):
            self._paused = False
            await self._forward(RESUME)

    async def _aimed(self, name: str, given: RawValue) -> bool:
        """Hand a signal to the one run below that it names: an instance is one of the plan's."""
        aim = read_signal(given)
        if isinstance(aim, dict) and "workflowId" not in aim and isinstance(aim.get("instance"), str):
            await self._forward(name, given)
            return True
        return await self._aimed_below(name, aim)

    @workflow.signal(
        name=PROVIDE, description='Give a message to the agent: {"type": "input", "input": {"name": "value"}}'
    )
    async def provide(self, message: RawValue = NOTHING) -> None:
        """Append a data-like message to the context, before the next tick; what names a run below is for that one."""
        named, plain = aimed_message(read_signal(message))
        if named is not None and await self._aimed_below(PROVIDE, {"workflowId": named}, raw(dump(plain))):
            return
        given = message if named is None else raw(dump(plain))
        self._provided.append(given)
        await self._forward(PROVIDE, given)

    async def _forward(self, name: str, *args: RawValue) -> None:
        await self._children.tell(name, *args)

    # -- queries ---------------------------------------------------------------

    @workflow.query(name=STATUS, description="{phase, tick, calls: [{id, tool, state, tick, error?}], usage, notes?}")
    def status(self, _: RawValue = NOTHING) -> RawValue:
        """Where the run is."""
        return raw(dump(self._told()))

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = {"phase": self._phase_now(), "tick": 0, "calls": [], "usage": {}}
        if self._loop is not None:
            found.update(tick=self._loop.tick, calls=self._loop.current(), usage=self._loop.spent.to_json())
        if waits := len(self._desk.all()):
            found["waits"] = waits
        if self._notes:
            found["notes"] = self._notes
        if self._desk.records:
            found["decisions"] = self._desk.records[-MAX_TOLD:]
        if len(dump(found)) > MAX_RESULT:
            found["calls"] = [{k: v for k, v in c.items() if k != "error"} for c in found["calls"][-10_000:]]
        return found

    @workflow.query(name=PLAN_QUERY, description="The latest plan's calls, as they were written.")
    def plan(self, _: RawValue = NOTHING) -> RawValue:
        """The latest plan."""
        loop = self._loop
        found = loop.request.plan if loop is not None else None
        proposed = loop.proposed if loop is not None else []
        return raw(dump(proposed or (list(found.calls) if found is not None else [])))

    @workflow.query(
        name=CONTEXT,
        description='The messages so far. A page: {"offset": 0, "limit": 1000}. One value: {"path": "†state.name"}.',
    )
    def context(self, page: RawValue = NOTHING) -> RawValue:
        """The whole context, a page of it, or the value at a path."""
        if self._loop is None:
            return raw(dump([]))
        loop = self._loop
        return raw(dump(page_of(
            lambda: [m.raw for m in loop.request.context], loop.value, _page(page),
        )))  # fmt: skip

    @workflow.query(name=MATERIAL, description="For the engine: what a model is shown of this run's context.")
    def material(self, page: RawValue = NOTHING) -> RawValue:
        """A page of the context, and the Tools."""
        return raw(dump(self._material(_page(page))))

    def _material(self, page: Any) -> dict[str, Any]:
        loop = self._loop
        return {"messages": []} if loop is None else material(loop.request, loop.tools.values(), loop.mode, page)

    @workflow.query(name=GRAPH, description=f"The latest plan as a Mermaid flowchart. {AS_TEXT}")
    def graph(self, given: RawValue = NOTHING) -> Any:
        """The latest plan as a drawing."""
        if self._loop is None or self._loop.prepared is None:
            return ""
        return render_graph(self._loop.prepared, {"calls": self._loop.walking()}, read_signal(given))


def _readable(given: RawValue) -> list[Any]:
    """The JSON of a message; what is none would be refused anyway."""
    try:
        return [decode(given)]
    except CallError:
        return []


def _page(page: RawValue) -> Mapping[str, Any] | None:
    found = decode(page) if page.payload.metadata else None
    return found if isinstance(found, dict) else None
