"""``Plan``: walks a plan. A thin shell around ``acts.machines.walk``.

Events (a call settled, a signal came) go into one inbox; the loop feeds them to the
walk in order and performs the commands that come back. Nothing here decides.

Determinism: the worker runs these workflows without the SDK's sandbox (it costs half
of the CPU; see ``docs/performance.md``). What the sandbox would forbid stays out by
these rules: no clock, randomness, I/O, threads or sets; time is ``workflow.now()``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.language.config import Config
from acts.language.errors import ActsError, CallError, DecisionRefused, EngineError, InvalidRequest, truncate
from acts.language.messages import parse_request, read_request
from acts.language.usage import Usage
from acts.language.wire import (
    APPROVAL_TIMEOUT,
    APPROVE,
    EDIT,
    INSTANCE,
    INVALID_REQUEST,
    PLAN,
    PLAN_FAILED,
    REJECT,
    REJECTED,
    RESULT_TOO_LARGE,
)  # fmt: skip
from acts.machines.commands import AskHuman, Command, PlanFinished, StartCall
from acts.machines.walk import Walk
from acts.plan.planned_call import UNIT
from acts.plan.validate import ValidatedPlan, validate_parsed
from acts.simulation.forecast_vs_actual import actual_figures, compare_known, expected_ranges
from acts.tree.batches import keep_instance, needs_children
from acts.tree.decisions import Decision, PendingApproval
from acts.views import approval_page, results
from acts.views.web_page import WebPage
from workflows.asking import OPTIONS, Asking, Source, own_context
from workflows.children import start_background
from workflows.dispatch import Dispatcher, call_error
from workflows.extent import Extent
from workflows.handlers import data_message
from workflows.payloads import (
    MAX_TASK_BYTES,
    NOTHING,
    decode,
    dump,
    fitted,
    raw,
    size,
    trimmed,
    unpack,
)  # fmt: skip
from workflows.renewal import Renewing
from workflows.requests import asks_for_plan, edited_request, load_upfront, look_up, read_given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from acts.plan.planned_call import PlannedCall

    Event = Callable[[Walk, str], list[Command]]

_KEYS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:acts:call")


# Errors of the SDK's own decoding of arguments (a wrong number of them, an unknown
# encoding): they fail the run. Not Exception: that would let a nondeterminism error,
# which a corrected worker heals, kill runs.
FATAL: Final = (ActsError, TypeError, ValueError, KeyError, RuntimeError)


@workflow.defn(name=PLAN, failure_exception_types=FATAL)
class PlanWorkflow(Renewing):
    """Walks the plan of a Request, without a planner."""

    def __init__(self) -> None:
        super().__init__()
        self._inbox: deque[Event] = deque()
        self._walk: Walk | None = None
        self._details: WebPage | None = None
        self._phase = "planning"
        self._notes: list[str] = []
        self._over: str | None = None
        self._handles: dict[str, asyncio.Task[Any]] = {}
        self._version = 1
        self._approved = True
        self._begun = False
        self._proposal = ""
        self._forecast: dict[str, Any] | None = None
        self._dispatch = Dispatcher()
        self._asking = Asking(Config(), Source("", "", 0), Usage(), self._purse)

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, or what the run before, or an agent, handed over."""
        return await self._guarded(request)

    async def _guarded(self, request: RawValue) -> RawValue:
        """The run, its failures made readable."""
        try:
            return await self._run(request)
        except (ApplicationError, asyncio.CancelledError, workflow.ContinueAsNewError):
            raise
        except InvalidRequest as error:
            self._phase = "failed"
            raise ApplicationError(
                str(error), raw(dump(error.to_json())), type=INVALID_REQUEST, non_retryable=True
            ) from None
        except Exception as error:
            # Whatever it is: an input that we did not foresee must not retry this task for ever
            workflow.logger.exception("the walk broke")
            text = f"{type(error).__name__}: {truncate(str(error))}"
            raise ApplicationError(text, type="EngineError", non_retryable=True) from error

    async def _run(self, given: RawValue) -> RawValue:
        carried = unpack(given) or {}
        self._handed = carried.get("handed") or self._handed_over(given) or {}
        self._request = (carried or self._handed).get("request") or read_given(given)
        prepared = await self._prepare((carried or self._handed).get("registry"))
        info = workflow.info()
        shown = self._handed.get("source")
        source = Source.from_json(shown) if shown else own_context(len(prepared.request.context))
        self._take_place(prepared, carried)
        self._asking = Asking(prepared.request.config, source, Usage(), self._purse)
        self._asking.spent.add(carried.get("spent"))
        run_key = f"{info.namespace}/{info.workflow_id}/{info.first_execution_run_id}"
        walk = self._walk = Walk(self._own_part(prepared), partial(_identify, run_key))
        if carried:
            walk.restore(carried["walk"], data_message)
            self._desk.restore(carried.get("desk"))
            self._version = carried.get("version", 1)
            self._extent = Extent(carried.get("before", (0, 0)))
        self._forecast = (carried or self._handed).get("forecast")
        self._details = WebPage(walk)
        self._notes += [p.text() for p in prepared.warnings if p.code == "limitLowered"]
        self._phase = "paused" if walk.paused else "running"
        self._approved = carried.get("approved", True) if carried else not asks_for_plan(prepared.request)
        if self._approved:
            self._inbox.append(Walk.begin)
        else:
            self._desk.open("plan", self._version, prepared.request.config.approve)
        self._begun = True
        try:
            await self._loop()
        except asyncio.CancelledError:
            await self._cancel()
            raise
        return await self._finish()

    async def _prepare(self, registry: dict[str, Any] | None) -> ValidatedPlan:
        """Parse, look up what the worker has (recorded in history), validate."""
        parsed = read_request(self._request)
        if registry is None:
            registry = await look_up(parsed)
            upfront = await load_upfront(parsed, registry)
            if upfront:
                self._request = {**self._request, "context": [*self._request["context"], *upfront]}
                parsed = read_request(self._request)
        self._registry = registry
        return validate_parsed(parsed, registry["tools"], registry["served"], self._handed.get("places"))

    # -- the loop --------------------------------------------------------------

    async def _loop(self) -> None:
        self._show()
        # The plan itself waits; what waited in the run before is not open again yet
        if not self._approved and self._desk.teller.due:
            self._desk.teller.tell()
        while self._over is None:
            if not self._inbox:
                await self._waits_again()
            await workflow.wait_condition(lambda: bool(self._inbox) or self._overgrown())
            held = self._hold()
            while self._inbox:
                event = self._inbox.popleft()
                try:
                    commands = event(self._now_walking, _now())
                except InvalidRequest as error:
                    self._note(f"a message was refused: {error.problems[0].message}")
                    continue
                except DecisionRefused as error:
                    self._note(f"a decision was refused: {truncate(str(error), 200)}")
                    continue
                await self._perform_all(commands)
            if self._goes_on and self._now_walking.quiet and self._due():
                await self._purse.told()  # what is on its way may be lost with the run that sent it
            if self._goes_on and not self._inbox:
                self._renew()
            await self._perform_all(self._now_walking.drain(on=False) if held else ())
            self._show()
            if self._desk.teller.due:
                self._desk.teller.tell()

    @property
    def _goes_on(self) -> bool:
        return self._over is None

    async def _perform_all(self, commands: Iterable[Command]) -> None:
        for command in commands:
            await self._perform(command)

    async def _perform(self, command: Command) -> None:
        if isinstance(command, PlanFinished):
            self._over = command.status
        elif isinstance(command, StartCall):
            await self._start(command)
        elif isinstance(command, AskHuman):
            approve = self._now_walking.prepared.request.config.approve
            node = command.node
            self._desk.open(command.what, self._version, approve, call=node.id, instance=node.instance)

    async def _start(self, command: StartCall) -> None:
        node = command.node
        try:
            if node.kind == "latent":
                await self._make_room(len(dump([command.call, command.context])))
                self._watch(node, self._asking.start(command, self._unasked()))
                return
            if node.kind in (UNIT, "delegate"):
                given = self._unit(node) if node.kind == UNIT else self._errand(command)
                await self._make_room(size(given))
                if node.kind == UNIT:
                    self._children.expect(INSTANCE, node.members[0], self._untaken_by(node.members))
                self._watch(node, asyncio.create_task(self._child(node, given)))
                return
            args, size_ = self._dispatch.arguments(command)
            await self._make_room(size_)
            if node.detached:
                what = {"activity": node.tool.activity, "options": node.tool.options.model_dump(mode="json")}
                task: asyncio.Task[Any] = asyncio.create_task(start_background(node, what, args))
            else:
                task = self._dispatch.activity(node, args)
        except CallError as error:
            self._report_of(node, Walk.failed, error)
            return
        self._watch(node, task)

    def _watch(self, node: PlannedCall, task: asyncio.Task[Any]) -> None:
        self._handles[node.key] = task
        task.add_done_callback(partial(self._settled, node))

    def _unasked(self) -> int:
        """How many latent Calls may still need a request, where that is limited."""
        walk = self._now_walking
        if walk.prepared.request.config.budget.requests is None:
            return 0
        waiting = ("pending", "ready", "awaiting")
        return sum(n.kind == "latent" and r.state in waiting for n, r in zip(walk.nodes, walk.runs, strict=True))

    async def _make_room(self, size_: int) -> None:
        """End this workflow task before its commands outgrow one gRPC message."""
        self._extent.record(0)
        if self._extent.bytes and self._extent.bytes + size_ > MAX_TASK_BYTES:
            await workflow.sleep(timedelta(milliseconds=1), summary="large inputs go in several tasks")
        self._extent.record(size_)

    def _settled(self, node: PlannedCall, task: asyncio.Task[Any]) -> None:
        """An activity or child ended: its outcome becomes an event."""
        self._handles.pop(node.key, None)
        try:
            if node.kind in (UNIT, "delegate") and not node.detached:
                self._ended(node, task.result())
                return
            if node.kind == "latent":
                result, chosen = self._asking.settled(task)
                self._report_of(node, Walk.completed, result, chosen=chosen)
                return
            value = task.result()
            if node.detached:
                self._report_of(node, Walk.detached)
                return
            if node.tool.options.local and value is not None:
                self._extent.record(size(value), 1)
            self._report_of(node, Walk.completed, None if value is None else decode(value))
        except asyncio.CancelledError:
            self._gone(node, "the call was cancelled")
        except Exception as error:  # noqa: BLE001 - whatever came of the call is its outcome
            if node.kind in (UNIT, "delegate"):
                self._broke(node, error)
                return
            latent = node.kind == "latent"
            failed = call_error(error, OPTIONS if latent else node.tool.options, workflow.info().task_queue)
            # The details of a model's failure are what it cost
            self._report_of(node, Walk.failed, CallError(failed.code, failed.message) if latent else failed)

    async def _cancel(self) -> None:
        """Reach what runs, and wait until each has said how it ended."""
        self._phase = "cancelled"
        self._approved = True
        self._desk.close()
        walk = self._now_walking
        self._inbox.append(Walk.cancel)
        for handle in list(self._handles.values()):
            handle.cancel()
        for node, run in zip(walk.nodes, walk.runs, strict=True):  # commands that the cancellation cut off
            if run.state == "running" and run.effect is None and node.key not in self._handles:
                self._gone(node, "the call was cancelled before it was started")
        await self._loop()

    # -- decisions -------------------------------------------------------------

    def _ready(self) -> bool:
        return self._begun

    def _at_rest(self) -> bool:
        return not self._inbox or self._over is not None

    def _may_be_decided(self, decision: Decision) -> None:
        if decision.decision == EDIT:
            prepared = self._edited(decision)
            self._allow_edit(prepared)
            if self._approved:
                self._now_walking.check_change(self._edited_part(prepared))

    def _edited(self, decision: Decision) -> ValidatedPlan:
        """The plan as a decision changes it, validated."""
        plan = self._now_walking.prepared.request.plan
        if plan is None:
            raise EngineError("a plan without a plan message")
        calls = list(decision.calls) if decision.calls is not None else list(plan.calls)
        places = self._handed.get("places")
        if not self._takes_edits:
            raise DecisionRefused(
                "this run walks several instances, and takes no edits: set instancesPerChild to 1 for that"
            )
        if places is not None and decision.calls is not None:
            raise DecisionRefused("this run walks a part of a plan: one call of it can be edited, and no more")
        if decision.calls is None:
            walked = self._now_walking.prepared
            node = next((n for n in (walked.whole or walked).nodes if n.id == decision.call), None)
            if node is None:
                raise DecisionRefused(f"there is no call {decision.call}")
            at = node.index if places is None else places.index(node.index)
            calls[at] = keep_instance(calls[at], decision.call_with, node.instance)
        request = edited_request(self._request, plan.index, calls)
        return validate_parsed(parse_request(request), self._registry["tools"], self._registry["served"], places)

    def _edited_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What this run walks itself of an edited plan; once it has begun, what children walk stays theirs."""
        by_children = self._now_walking.prepared.whole is not None
        if self._approved and by_children and not needs_children(prepared):
            raise DecisionRefused(
                "its instances are walked by children: no call of them can depend on a global one now"
            )
        return self._own_part(prepared) if by_children or not self._approved else prepared

    def _decided(self, wait: PendingApproval, decision: Decision) -> None:
        if decision.decision == EDIT:  # at once: what is decided next is about the new version
            commands = self._change(decision)
            self._inbox.append(lambda _walk, _now: commands)
        elif wait.what == "plan":
            self._inbox.append(partial(self._decided_plan, decision))
        else:
            rank = self._now_walking.find(wait.call, wait.instance)
            if rank is not None:
                self._report_of(self._now_walking.nodes[rank], Walk.decide, decision.decision, decision.reason or "")

    def _decided_plan(self, decision: Decision, walk: Walk, now: str) -> list[Command]:
        if decision.decision == APPROVE:
            self._propose()  # an edit may have come just before: the forecast is that of what runs
            self._approved = True
            return walk.begin(now)
        self._over = REJECTED if decision.decision == REJECT else "failed"
        return []

    def _change(self, decision: Decision) -> list[Command]:
        """Walk the edited plan from now on; it waits for an approval of its own."""
        prepared, walk = self._edited_part(self._edited(decision)), self._now_walking
        commands: list[Command] = []
        if self._approved:
            new, commands = walk.changed_plan(prepared, _now())
            for wait in self._desk.own():
                if new.awaits(wait.call, wait.instance) is None:
                    self._desk.settle(str(wait.call), wait.instance)
                    self._desk.goes_on(wait, [n.id for n in new.nodes if n.instance == wait.instance])
        else:
            new = walk.anew(prepared)
        self._purse.changed(self._more_calls(prepared))
        self._walk, self._request = new, prepared.request.raw
        self._details = WebPage(new)
        self._version += 1
        self._proposal = ""
        self._desk.raise_version(self._version)
        return commands

    # -- the end of a run ------------------------------------------------------

    def _kept(self) -> dict[str, Any]:
        """What the next run is handed."""
        handed_on = {**self._handed, "request": None, "registry": None} if self._handed else None
        return {
            "request": self._request, "registry": self._registry, "handed": handed_on,
            "walk": self._now_walking.snapshot(),
            "spent": self._asking.spent.to_json(), "desk": self._desk.snapshot(), "version": self._version,
            "ledger": self._purse.ledger.to_json(), "approved": self._approved, "forecast": self._forecast,
        }  # fmt: skip

    async def _finish(self) -> RawValue:
        walk = self._now_walking
        self._desk.close()
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._purse.told()
        status = self._phase = str(self._over)
        self._show()
        result = results.build_result(walk, self._asking.spent, status)
        if self._desk.records:
            result["decisions"] = self._desk.records
        return self._delivered(result, status)

    def _delivered(self, result: dict[str, Any], status: str) -> RawValue:
        """What whoever started this run is given of its result."""
        walk = self._now_walking
        if self._handed:
            return self._for_agent(result, walk.provided)
        result = trimmed(self._compared(result), "ask the query context for pages: {offset, limit} or {path}")
        if self._desk.expired is not None and not self._approved:
            raise ApplicationError(self._desk.expired, raw(dump(result)), type=APPROVAL_TIMEOUT, non_retryable=True)
        if status == "failed":
            raise ApplicationError(results.failure_text(walk), raw(dump(result)), type=PLAN_FAILED, non_retryable=True)
        return raw(dump(result))

    def _compared(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result, and in it what came of the forecast that a person was shown."""
        if self._forecast is not None:
            result["forecast"] = compare_known(self._forecast, actual_figures(result) | self._extent.figures(result))
        return result

    def _for_agent(self, result: dict[str, Any], provided: Sequence[Any]) -> RawValue:
        """The result for an agent: all of what was written (it was handed a part of the state only)."""
        del result["state"]
        if "source" in self._handed:
            del result["context"][: len(provided)]  # the agent whose context it is was given them too
        for item in result.get("instances", {}).values():
            del item["state"]
        made = self._purse.ledger.calls - self._purse.ledger.planned
        if made:
            result["made"] = made
        lent = self._purse.ledger.lent.to_json()
        if any(lent.values()):
            result["lent"] = lent
        try:
            return fitted(self._compared(result))
        except CallError as error:
            text = f"the results of this plan are too large to be handed back: {error.message}"
            told = raw(dump({k: result[k] for k in ("usage", "decisions") if k in result}))
            raise ApplicationError(text, told, type=RESULT_TOO_LARGE, non_retryable=True) from None

    def _show(self) -> None:
        if self._details is not None:
            shown = self._details.page(self._phase_now(), self._notes, self._desk.all(), self._desk.records)
            if not self._approved and self._over is None:
                self._propose()
                shown += self._proposal
            workflow.set_current_details(shown)

    def _propose(self) -> None:
        """The page of the plan that waits, and its forecast: made once for each version."""
        if not self._proposal:
            prepared = self._now_walking.prepared
            found = approval_page.simulate_for_page(prepared)
            self._proposal = approval_page.page(prepared, found)
            self._forecast = None if found is None else expected_ranges(found)

    def _phase_now(self) -> str:
        """The phase; ``awaiting`` while something is waited for, and nothing runs but children that wait."""
        walk, below = self._walk, self._desk.waiting_below
        waits = walk is not None and walk.running <= below and (walk.running or walk.counts.get("awaiting"))
        return "awaiting" if self._phase == "running" and (waits or not self._approved) else self._phase

    def _note(self, text: str) -> None:
        self._notes.append(truncate(text, 300))
        del self._notes[:-20]


def _identify(run_key: str, node: PlannedCall) -> str:
    """The idempotency key of a Call: a UUID of the run and the Call, the same for every attempt."""
    return str(uuid.uuid5(_KEYS, f"{run_key}/{node.instance or ''}/{node.id}"))


def _now() -> str:
    return workflow.now().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
