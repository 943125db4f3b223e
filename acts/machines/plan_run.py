"""A run that walks a plan: the machine of ``Plan``, of ``Instance`` and of ``Batch``.

It holds the walk and turns its commands into those of a run: what stands behind a Call decides whether
an activity, a request to the model, a child or a run of its own starts. Where requests are limited, a Call that begins
with one waits for its grant; the budget is asked once for all Calls that start together. A person may decide about the
plan, about its Calls, and edit it: an edited plan is validated once, for an update and for its validator. Nothing here
waits for anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from acts.language import wire
from acts.language.config import Rule, join_rules
from acts.language.errors import CallError, DecisionRefused, EngineError, InvalidRequest, format_choices, truncate
from acts.language.messages import Data, Instruction, parse_message, parse_request
from acts.language.references import parse_condition
from acts.language.tools import Tool, hint_words
from acts.language.values import Json, get
from acts.machines import commands, events
from acts.machines.budget import context_bytes, latent_request_size
from acts.machines.call_state import SETTLED, CallState, call_item, error_item, status_from_states
from acts.machines.past import PastCalls
from acts.machines.run_machine import RunMachine
from acts.machines.walk import Walk, date_of, match_calls
from acts.plan.calls import UNIT, PlannedCall, find_rule
from acts.plan.context_log import START
from acts.plan.validate import ValidatedPlan, validate_parsed
from acts.tree import child_requests
from acts.tree.child_requests import Batch, count_calls
from acts.tree.decisions import ACTIVITY, FORM, LIKE, MESSAGE, SHORT_SUBJECT, Decision, PendingApproval
from acts.tree.identity import child_id
from acts.tree.past_run import PastInstance, PastRun, UndoStep, prompt_digest, request_digest
from acts.tree.records import (
    BackgroundInput,
    Capabilities,
    ContextRef,
    InnerPlan,
    InstanceInput,
    PermitLease,
    PlanInput,
    PlanState,
    TreePosition,
)
from acts.tree.signal_records import PlanExtension, TreeSignal
from acts.tree.subjects import call_subject, calls_changes, plan_subject, show
from acts.tree.wire_format import digest

# What of its input a run needs no more when it continues as new
_NOT_CARRIED: Final[dict[str, Any]] = {"request": {}, "capabilities": None, "settled": ()}
# What a child's id may have behind it where the first choice was in use
_SPARE: Final = re.compile(r"(~[0-9a-f-]+)?")
# The keys of a child's report on one instance
REPORT_KEYS: Final = ("status", "state", "calls", "errors", "writes", "resumed", "undo", "undone")
# What one workflow task has no time for is left to the next one, which this timer brings
REST_TIMER: Final = "go on with what is left"
REST_SECONDS: Final = 0.001
ALARM: Final = "wait"
# With each that comes, a digest of all is made: more are refused. A person sees one of so many bytes whole
MAX_HELD_MESSAGES: Final = 20
MAX_SHOWN_MESSAGE: Final = 20_000


@dataclass(frozen=True, slots=True)
class PlanSetup:
    """What a run of a plan knows before it begins."""

    raw: dict[str, Any]  # its Request
    prepared: ValidatedPlan
    capabilities: Capabilities
    position: TreePosition
    source: ContextRef  # the run whose context a model is shown
    input: PlanInput | None = None  # None for a run that a person started
    lease: PermitLease | None = None
    max_request_bytes: int = wire.MAX_PAYLOAD_BYTES  # of one that is edited; more with external storage
    past: PastCalls | None = None  # what the run had done that this one resumes

    @property
    def instances(self) -> tuple[str, ...]:
        return self.input.instances if isinstance(self.input, InstanceInput) else ()

    @property
    def approve(self) -> Any:
        """What the person asked to confirm who started the tree: ``plan`` does not hold for a part of a plan."""
        if self.input is not None and (self.input.part or self.input.approve is not None):
            return self.input.approve
        return child_requests.with_answers(self.raw.get("config") or {}, self.prepared.tools)

    def own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What the run walks itself: all of a plan, or what children of its own do not."""
        if isinstance(self.input, InstanceInput):
            return child_requests.expand_template(prepared, self.instances)
        return child_requests.split_into_children(prepared) if child_requests.needs_children(prepared) else prepared

    @property
    def takes_edits(self) -> bool:
        """False for a child of several instances: which of them an edit is for cannot be said."""
        return len(self.instances) <= 1


class PlanRun(RunMachine):
    """``identify`` gives a Call its ``_id``: stable, and different for every Call of every run.

    ``version`` counts the versions of the plan: each edit makes another.
    """

    asks_about_messages = True
    takes_back_starts = True  # its Calls wait in the walk

    def __init__(self, own: str, setup: PlanSetup, identify: Callable[[PlannedCall], str]) -> None:
        super().__init__(own, setup.position, setup.lease, setup.capabilities)
        self.setup, self.config = setup, setup.prepared.request.config
        self.raw: dict[str, Any] = setup.raw
        self.version = 1
        self.is_approved = not setup.prepared.request.asks_for_plan
        self.held_messages: list[Data] = []
        self._held_shown: list[Json] = []  # of these, once each
        self._unasked: list[str] = []  # Calls about which people are asked once their definitions are known
        self._changed: list[str] = []  # that have started, and have other definitions than were approved
        self.walk = Walk(setup.own_part(setup.prepared), identify, self._may_start, past=setup.past)
        is_part = setup.input is not None and setup.input.part
        self.watched_tools = [] if is_part else [node.tool for node in self.whole_plan.nodes]
        self.walk.describe = self._describe
        self.walk.counts_elements, self.walk.postpones = self.budget.limits_calls, True
        self._late: list[events.CallEnded] = []  # results that a workflow task had no time for
        self._has_rest_timer = False
        self._alarm: datetime | None = None  # when the timer of Calls that wait for a time fires
        if setup.input is not None:
            self.walk.growing = setup.input.isGrowing
            self.walk.until = None if setup.input.until is None else parse_condition(setup.input.until)
        self._waiting_for_grant: dict[str, commands.StartCall | commands.CountElements] = {}
        self._batch: tuple[ValidatedPlan, Batch] | None = None  # with the plan that it was made of
        self._context_bytes: int | None = None  # of the Request, which stays as it is
        self.notes += [p.text() for p in setup.prepared.warnings if p.code == "limitLowered"]
        if setup.past is not None:
            setup.past.digest_instance = self.digest_instance
            for message in map(parse_message, setup.past.provided):
                try:
                    if isinstance(message, Data):
                        self.walk.context.provide(message)
                except InvalidRequest as error:
                    self.note(f"a message to the run that this one resumes was left out: {error.problems[0].message}")
        if setup.input is None:
            self.budget.count_calls(count_calls(setup.prepared))
        else:
            self.budget.take(setup.input.settled)

    @property
    def whole_plan(self) -> ValidatedPlan:
        """The plan as it was written, where the run walks a part of it and children the rest."""
        return self.walk.prepared.unsplit or self.walk.prepared

    @property
    def known_tools(self) -> Mapping[str, Tool]:  # type: ignore[override]
        return self.walk.prepared.tools

    def undo_steps(self) -> list[UndoStep]:
        return self.walk.undo_steps()

    def steps_due(self, status: str) -> list[UndoStep]:
        """An instance that has failed is undone by itself; the plan of a tick leaves it to its agent."""
        if self.undo_asked:
            return [] if self._is_of_tick else self.undo_steps()
        if self.config.onFailure is None:
            return []
        failed = {id_ for id_, state in statuses(self.walk).items() if state == "failed"}
        return [step for step in self.undo_steps() if status == "failed" or step.instance in failed]

    @property
    def _is_of_tick(self) -> bool:
        own = self.setup.input
        return own is not None and own.part and not isinstance(own, InstanceInput)

    @property
    def steps_left(self) -> list[dict[str, Any]]:
        """What undoes what has completed and was not undone here, for the run above."""
        done = () if self.undone is None else {step.id for step in self.steps_due(self.finished or "")}
        return [step.to_json() for step in self.undo_steps() if step.id not in done]

    @property
    def in_flight(self) -> int:
        return self.walk.running + self.is_undoing

    @property
    def can_continue_as_new(self) -> bool:
        return not (self.in_flight or self._waiting_for_grant or self._unpinned)

    @property
    def live_phase(self) -> str:
        """``awaiting`` while something waits for a person and nothing else of the run goes on."""
        if self.is_paused:
            return "paused"
        if not self.is_approved:
            return "awaiting"
        waiting = self.approvals.waits.count_runs_below(self.children.values()) if self.children else 0
        waits = self.walk.running <= waiting and (self.walk.running or self.walk.counts["awaiting"])
        return "awaiting" if waits else "running"

    def flush(self, now: str) -> list[commands.RunCommand]:
        out = super().flush(now)
        if (self._late or self.walk.has_rest) and not self._has_rest_timer and self.finished is None:
            self._has_rest_timer = True
            out.append(commands.StartTimer(REST_TIMER, REST_SECONDS, REST_TIMER))
        self.walk.work.begin_task()
        return out + ([] if self.is_cancelling or self.finished is not None else self._set_alarm(now))

    def _set_alarm(self, now: str) -> list[Any]:
        """One timer for all Calls that wait for a time: for the first of them."""
        due, armed = self.walk.next_wake, self._alarm
        if due == armed:
            return []
        self._alarm, out = due, list[Any]() if armed is None else [commands.CancelTimer(ALARM)]
        if due is not None:
            seconds = max((due - date_of(now)).total_seconds(), REST_SECONDS)
            out.append(commands.StartTimer(ALARM, seconds, f"wait until {due:%Y-%m-%d %H:%M:%S} UTC"))
        return out

    def _timer_fired(self, name: str, now: str) -> list[Any]:
        if name == ALARM:
            self._alarm = None
            return self.perform(self.walk.wake(now), now)
        if name != REST_TIMER:
            return super()._timer_fired(name, now)
        self._has_rest_timer = False
        late, self._late = self._late, []
        ended = [effect for event in late for effect in self._call_ended(event, now)]
        return [*ended, *self.perform(self.walk.go_on_later(now), now)]

    def react(self, event: events.Event, now: str) -> list[Any]:  # noqa: PLR0911 - a row for each event
        walk = self.walk
        match event:
            case events.Begin() if not self.is_approved:
                return self._ask_about_messages(now) + self._ask_about_plan(now)
            case events.Begin():
                return self._ask_about_messages(now) + self.perform(walk.begin(now), now)
            case events.CallEnded():
                return self._call_ended(event, now)
            case events.CallDetached(key):
                return self.perform(walk.completed(key, None, now), now)
            case events.StartPostponed(key):  # it starts later, and asks for its request again
                return [*self.budget.settle(key, None), *self.perform(walk.postponed(key, now), now)]
            case events.ChildEnded():
                return self._child_result(event, now)
            case events.Provided(Data() as message, is_told):
                # What another run says carries no signature
                is_approved = is_told and not self.position.approvers
                return self._join(message, now) if is_approved else self._provide(message, now)
            case events.PauseChanged() | events.HoldChanged():
                return self.perform(walk.advance(now, paused=self.is_paused, draining=self.is_held), now)
            case events.Interrupted(reason):
                below = commands.SignalChildren(wire.INTERRUPT, reason, instances_only=True, is_told=True)
                error = {"code": wire.NOT_RUN, "message": truncate(reason, 300)}
                return [below, *self.perform(walk.cancel(now, error), now), *self._close_stale_waits()]
            case events.CancelRequested():
                return self._cancel(now)
        return []

    def _call_ended(self, event: events.CallEnded, now: str) -> list[Any]:
        if self.walk.work.is_spent:
            self._late.append(event)
            return []
        self.usage.add(event.usage)
        key, out = event.key, self.budget.settle(event.key, event.usage)
        if event.error is None:  # wherever a Message of what undoes would be written: here it is a value
            chosen = event.chosen if self.config.undoes is None else 0
            return out + self.perform(self.walk.completed(key, event.value, now, chosen), now)
        self._waiting_for_grant.pop(key, None)
        return out + self.perform(self.walk.failed(key, event.error, now), now)

    def _fail_start(self, key: str, error: CallError, now: str) -> list[Any]:
        self.permits.release(key)
        return self.perform(self.walk.failed(key, error, now), now)

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        return [*self.approvals.close_all(), *self.perform(self.walk.exhaust(error, now), now)]

    def _child_result(self, event: events.ChildEnded, now: str) -> list[Any]:
        call, report, walk = self.walk.by_key.get(event.key), event.report, self.walk
        if call is None:
            return []
        decisions = (report or {}).get("decisions") or ()
        self.approvals.records += [decision_seen_from_above(call.node, record) for record in decisions]
        if call.node.kind == UNIT:
            reports = reported_instances(call.node, report, event.error)
            return self.perform(walk.completed(event.key, reports, now), now)
        if event.error is not None and event.error.code == wire.DELEGATE_CHANGED and self._is_approved_as(call):
            self._changed.append(event.key)
            return list(self.load_pins((call.node,), anew=True))
        self.walk.inner_plan_ended(event.key, (report or {}).get("undo", ()))
        if event.error is not None or report is None:
            error = event.error or CallError(wire.ENGINE_ERROR, "the child said nothing of its result")
            error = CallError(error.code, error.message, (report or {}).get("details"))
            return self.perform(walk.failed(event.key, error, now), now)
        return self.perform(walk.completed(event.key, report.get("output"), now, report.get("path")), now)

    def _is_approved_as(self, call: CallState) -> bool:
        """True for a Call whose definition a person has approved, with its plan or by itself: another one is asked
        about before it runs. What an end is on its way to is not.
        """
        is_approved = self.position.isGuarded or (call.parent or call).approved is not None
        return is_approved and not (self.is_cancelling or self.walk.cancelling or self.walk.exhausted)

    def check_provided(self, message: Data | Instruction) -> None:
        super().check_provided(message)
        if isinstance(message, Data):
            self.walk.context.check_provided(message)
        self._check_held()

    def _check_held(self) -> None:
        if len(self.held_messages) >= MAX_HELD_MESSAGES:
            raise DecisionRefused(f"{MAX_HELD_MESSAGES} messages wait for a decision already: decide about them first")

    def _provide(self, message: Data, now: str) -> list[Any]:
        """A message joins the context of the plan, and of the children that walk its instances.

        One that comes after the plan was approved is decided about first: nobody has approved its values.
        """
        if self.position.isGuarded and (self.is_approved or self.walk.has_begun):
            self._check_held()
            self.held_messages.append(message)
            return self._ask_about_messages(now)
        return self._join(message, now)

    def _join(self, message: Data, now: str) -> list[Any]:
        signal = commands.SignalChildren(
            wire.PROVIDE, message.raw, message.instance, instances_only=True, is_told=self.position.isGuarded
        )
        out = [signal, *self.perform(self.walk.provide(message, now), now)]
        if not self.is_approved:
            return out + self._ask_about_plan(now)
        return out + self._close_stale_waits()

    def _join_approved(self, message: Data, now: str) -> list[Any]:
        try:
            return self._join(message, now)
        except (InvalidRequest, CallError) as error:
            return [commands.Note(f"a message was refused: {truncate(str(error), 200)}")]

    def _close_stale_waits(self) -> list[Any]:
        """What waits for a decision about a Call that does not need one any more."""
        waits = ((wait, self.walk.find(wait.call, wait.instance)) for wait in self.approvals.waits.own if wait.call)
        stale = [wait for wait, call in waits if call is not None and not call.is_asked_about]
        return [effect for wait in stale for effect in self.approvals.close(wait)]

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """More of a plan that is still being written, or the word that no more follows."""
        if not isinstance(record, PlanExtension):
            return []
        self.permits.total += record.permits
        if not self.walk.growing:
            return []
        if record.dropped is not None:
            return self.react(events.Interrupted(record.dropped), now)
        *context, plan = self.raw["context"]
        messages = [context[message] if isinstance(message, int) else message for message in record.context]
        raw = {**self.raw, "context": [*messages, {**plan, "plan": [*plan["plan"], *record.calls]}]}
        own = self.setup.capabilities
        prepared = validate_parsed(parse_request(raw), own.tools, own.served, is_complete=record.isComplete)
        self.raw = raw
        self.walk.growing = not record.isComplete
        return self.perform(self.walk.change_plan(prepared, now, edited=False), now)

    def _cancel(self, now: str) -> list[Any]:
        self.is_cancelling = self.is_approved = True
        out: list[Any] = [*self.approvals.close_all(), *self.perform(self.walk.cancel(now), now)]
        waiting, self._waiting_for_grant = self._waiting_for_grant, {}
        error = CallError(wire.CANCELLED, "the call was cancelled before it was started")
        for key in waiting:
            out += self._fail_start(key, error, now)
        return out

    def _may_start(self, node: PlannedCall) -> bool:
        """Take the permits of the next Call. One that has waited for its grant of the budget comes before it."""
        if self.permits.waiting and len(self.permits.waiting) >= self.permits.usable:
            return False
        if node.kind == UNIT:
            members, calls = len(node.members), len(self.whole_plan.nodes)
            return self.permits.reserve_for_child(node.key, members, members * calls, self.walk.startable)
        # As many Calls as may be in flight wait for their grant: more would only take memory
        return len(self._waiting_for_grant) < self.permits.limit and self.permits.reserve(node.key)

    @property
    def waiting_starts(self) -> int:
        return super().waiting_starts + self.walk.startable

    def start_held_calls(self, now: str) -> list[Any]:
        return self.perform(self.walk.advance(now), now)

    # -- how Calls start ----------------------------------------------------------------------------

    def perform(self, walk_commands: Iterable[commands.Command], now: str) -> list[Any]:
        """Commands of the walk as effects of the run; the budget is asked once for all Calls that start together."""
        out: list[Any] = []
        asking: list[commands.StartCall] = []
        for command in walk_commands:
            match command:
                case commands.StartCall(node=node) if node.kind != "activity" and self._needs_grant(node):
                    asking.append(command)
                case commands.StartCall():
                    out += self._start(command, None, now)
                case commands.AskHuman():
                    out += self._ask_about_call(command, now)
                case commands.CountElements(node=node, more=more):  # each element counts as a Call
                    self._waiting_for_grant[node.key] = command
                    out += self.budget.request_calls(node.key, more)
                case commands.EndEarly():
                    out.append(command)
                case commands.Finish(status):
                    is_partly_undone = status == "completed" and self.config.undoes and self.config.undoes.problems
                    status = wire.REJECTED if self.undo_asked else "failed" if is_partly_undone else status
                    out += self.finish(status)
        return out + self._ask_budget(asking) if asking else out

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        """A Call has its request, or may be made for its elements: start it, unless it does not run any more."""
        command = self._waiting_for_grant.pop(effect.key, None)
        if isinstance(command, commands.CountElements):
            return self.perform(self.walk.allow_elements(effect.key, now), now)
        call = self.walk.by_key.get(effect.key)
        if command is None or call is None or call.stage != "running":
            return self.budget.settle(effect.key, None)
        return self._start(command, effect, now)

    def on_refused(self, effect: commands.BudgetRefused, now: str) -> list[Any]:
        command = self._waiting_for_grant.pop(effect.key, None)
        if isinstance(command, commands.CountElements):
            too_many = CallError(wire.BUDGET_SPENT, f"{effect.reason}, and each element of _each counts as a call")
            return self.perform(self.walk.allow_elements(effect.key, now, too_many), now)
        error = CallError(wire.BUDGET_SPENT, f"{effect.reason}, and this call needs a request to a model")
        return self._fail_start(effect.key, error, now)

    def _needs_grant(self, node: PlannedCall) -> bool:
        """True for a Call that begins with a grant of the budget. A delegate asks for its requests itself."""
        if node.kind == "delegate":
            return node.is_detached and (self.budget.limits_requests or self.budget.limits_calls)
        return node.kind == "latent" and self.budget.limits_requests

    def _ask_budget(self, starts: list[commands.StartCall]) -> list[Any]:
        out: list[Any] = []
        requests = [c for c in starts if not c.node.is_detached]
        self._waiting_for_grant |= {c.node.key: c for c in starts}
        for command in starts:  # others may need the permit that a Call without a grant cannot use
            self.permits.release(command.node.key)
        if detached := [c for c in starts if c.node.is_detached]:
            # Runs of their own that fire-and-forget Calls may still start
            calls = (c for c in self.walk.calls if c.node.is_detached and c.node.kind == "delegate")
            unstarted = sum(c.own_elements.unstarted if c.stage == "collecting" else not c.has_started for c in calls)
            for command in detached:
                out += self.budget.request_share(command.node.key, 1 + len(detached) + unstarted)
        if not requests:
            return out
        if self._context_bytes is None:
            self._context_bytes = context_bytes(self.walk.prepared.request.context)
        measured = ([c.call, c.context, dict(c.node.tool.schema)] for c in requests)
        size = latent_request_size(self.config, self.price, self._context_bytes, measured)
        return out + self.budget.request([c.node.key for c in requests], size)

    def _start(self, command: commands.StartCall, granted: commands.Granted | None, now: str) -> list[Any]:
        node = command.node
        if node.kind == UNIT:
            return [commands.StartChild(wire.INSTANCE, node.members[0], node.label, self._instance_input(node), node)]
        if node.kind == "latent":
            grant = None if granted is None else granted.request
            return [commands.AskOutput(node, command.call, command.context, self.setup.source, grant)]
        if node.kind == "delegate":
            return self._start_delegate(command, granted, now)
        if not node.is_detached:
            self.queue_watch.record_start(node.key, node.tool.options.taskQueue)
            return [command]
        options = node.tool.options.model_dump(mode="json")
        return self._start_background(
            node, activity=node.tool.activity, options=options, call=command.call, tool=dict(node.tool.schema),
            context=tuple(command.context),
        )  # fmt: skip

    def _start_background(self, node: PlannedCall, **what: Any) -> list[Any]:
        position = self.position
        own = BackgroundInput(label=node.label, token=position.token, storesValues=position.storesValues, **what)
        return [commands.StartBackground(node, own)]

    def _start_delegate(self, command: commands.StartCall, granted: commands.Granted | None, now: str) -> list[Any]:
        node = command.node
        problem = child_requests.depth_problem(self.position, node)
        if problem is not None:
            error = CallError(wire.LIMIT_EXCEEDED, problem)
            return self._fail_start(node.key, error, now)
        config = {**(self.raw.get("config") or {}), "approve": self.setup.approve}
        identity = command.call["_id"]
        below = self.position.delegate(self.own, node.instance, identity)
        position = self.position.detached(identity) if node.is_detached else below
        call = self.walk.by_key[node.key]
        call = call.parent or call
        if call.approved is not None:
            position = position.guarded(call.rule or Rule())
        if position.isGuarded:
            pins = {**position.pins, **self.capabilities.uses.get(str(node.delegate), {})}
            position = position.model_copy(update={"pins": pins})
        share = granted.share if granted is not None and granted.share else None
        plan: InnerPlan | None = None
        if node.walks_plan:
            try:
                plan = child_requests.inner_plan(command.call, self.walk.prepared, self.capabilities)
            except CallError as error:
                return self._fail_start(node.key, error, now)
        own = child_requests.build_delegate_input(
            command.call, command.context, node, config, position, self.capabilities.pins, share, plan
        )
        own = own.model_copy(update={"price": self.price if node.delegate == wire.ANONYMOUS else None})
        if node.is_detached:
            return self._start_background(node, delegate=own)
        return [commands.StartChild(wire.DELEGATE, node.key, node.label, own, node)]

    def digest_instance(self, instance: str) -> str:
        return request_digest(self._find_batch().request_for((instance,), self.walk.context.provided)[0])

    def _find_batch(self) -> Batch:
        whole = self.whole_plan
        if self._batch is None or self._batch[0] is not whole:
            self._batch = (whole, Batch(whole, self.raw.get("config") or {}))
        return self._batch[1]

    def _instance_input(self, node: PlannedCall) -> InstanceInput:
        instance = node.members[0] if len(node.members) == 1 else None
        capabilities = self.capabilities.model_copy(update={"tools": {}})
        request, places = self._find_batch().request_for(node.members, self.walk.context.provided)
        return InstanceInput(
            request=request, instances=tuple(node.members), places=places, capabilities=capabilities,
            context=self.setup.source, position=self.position.child(self.own, instance),
            approve=self.setup.approve, part=True,
            resume=None if self.walk.past is None else self.walk.past.source_for(node.members),
        )  # fmt: skip

    def child_of_instance(self, instance: str) -> str:
        return next((node.members[0] for node in self.walk.nodes if instance in node.members), instance)

    # -- what a person is asked ---------------------------------------------------------------------

    def _ask_about_call(self, command: commands.AskHuman, now: str) -> list[Any]:
        """A Call runs when a person has approved it.

        The approval says for how many elements, and the hints of its Tool.
        """
        node, call = command.node, command.call
        loads = self.load_pins((node,))
        if node.delegate in self._unpinned:
            self._unasked.append(node.key)
            return list(loads)
        about: dict[str, Any] = {"changes": list(command.changes)} if command.changes else {}
        skipped = command.subject.get("skipped", ())
        about |= {"elements": len(call["_each"]) - len(skipped)} if "_each" in call else {}
        answer = node.delegate if node.delegate not in (None, *wire.NOT_LOADED) else node.tool.answer
        answer = node.tool.name if node.element is not None else answer
        about |= {ACTIVITY: answer} if node.element is not None or answer not in (None, node.tool.name) else {}
        rule = command.rule.model_dump() if self.config.approve.rules else None
        behind = [command.subject["answeredBy"], *([call["plan"]] if node.walks_plan else [])]
        about |= {LIKE: digest([node.tool.name, behind, rule])[:SHORT_SUBJECT]}
        about |= {FORM: command.subject[FORM]} if FORM in command.subject else {}
        if hints := [*(["answered by a model"] if node.kind == "latent" else []), *hint_words(node.tool.schema)]:
            about["hints"] = hints
        return self.approvals.open(
            command.what, self.version, command.rule, now, call=node.id, instance=node.instance, about=about,
            subject=command.subject,
        )  # fmt: skip

    def _describe(self, node: PlannedCall, call: dict[str, Any], context: list[dict[str, Any]]) -> dict[str, Json]:
        return call_subject(node, call, context, self.config, self.capabilities)

    def subject_of(self, wait: PendingApproval) -> Json:
        if wait.what == MESSAGE:
            return {"messages": self._held_shown}
        call = None if wait.call is None else self.walk.find(wait.call, wait.instance)
        return self.plan_subject() if call is None else self.walk.subject_of(call, call.resolved or {})

    def plan_subject(self) -> dict[str, Json]:
        whole, context, config = self.whole_plan, self.walk.context, self.config
        request = whole.request
        data = (
            [m.raw for m in (*request.context, *context.provided) if isinstance(m, Data)] if request.instances() else []
        )
        instances = {"count": len(request.instances()), "sha256": digest(data)} if data else None
        return plan_subject(
            request.calls, whole.nodes, lambda path, instance: context.log.read(path, START, instance), config,
            self.capabilities, instances,
        )  # fmt: skip

    def _ask_about_plan(self, now: str) -> list[Any]:
        loads = self.load_pins(self.whole_plan.nodes)
        if self._unpinned:
            return list(loads)
        rule, subject = self._guard if self.walk.has_begun else self.config.approve.plan_rule, self.plan_subject()
        return self.approvals.open("plan", self.version, rule, now, subject=subject)

    def on_pinned(self, now: str) -> list[Any]:
        keys, changed, self._unasked, self._changed = self._unasked, self._changed, [], []
        out = self._hold_plan(now) if changed and self.is_approved and self.position.isGuarded else []
        for key in changed:
            out += self.perform(self.walk.call_off(key, now), now)
        out += self.perform(self.walk.ask_again(keys, now), now)
        return out if self.is_approved else out + self._ask_about_plan(now)

    def _ask_about_messages(self, now: str) -> list[Any]:
        """What was provided since the plan was approved joins its context when a person has approved it."""
        if not self.held_messages:
            return []
        unseen = self.held_messages[len(self._held_shown) :]
        self._held_shown += [show(message.raw, MAX_SHOWN_MESSAGE) for message in unseen]
        subject = {"messages": [*self._held_shown]}
        return self.approvals.open(MESSAGE, self.version, self._guard, now, about=subject, subject=subject)

    @property
    def _guard(self) -> Rule:
        """By which people decide about what changes what was approved: as they did then, also in the runs below."""
        return self.position.guard or self.config.approve.plan_rule

    # -- decisions ----------------------------------------------------------------------------------

    def check_decision(self, decision: Decision, wait: PendingApproval) -> ValidatedPlan | None:
        """The edited plan, validated; None for what is no edit. Raises InvalidRequest, DecisionRefused: it cannot be
        carried out, and why.
        """
        self.check_open(decision)
        call = None if wait.call is None else self.walk.find(wait.call, wait.instance)
        if decision.decision == wire.ANSWER and call is not None:
            self.walk.check_answer(call, decision.output)
        if decision.remember is not None and call is not None:
            self._check_remembered(decision, call)
        if decision.decision != wire.EDIT:
            return None
        prepared = self._validate_edit(decision)
        refusal = self.budget.calls_refusal(count_calls(prepared.unsplit or prepared) - count_calls(self.whole_plan))
        if refusal is not None:
            raise DecisionRefused(refusal)
        if self.walk.has_begun:
            match_calls(self.walk.calls, self._edited_part(prepared))
        self._guard_without(calls_changes(self.walk.prepared.request.calls, prepared.request.calls), wait)
        return prepared

    def _guard_without(self, changes: list[dict[str, Json]], decided: PendingApproval) -> Rule | None:
        """By which people decide about a running plan of which an edit takes Calls beside its own: as about each of
        these. None: it takes none. Raises DecisionRefused: nobody decides about all.
        """
        own = str(decided.call).partition(":")[0]
        places = {str(change["call"]) for change in changes if "from" in change} - {own}
        if not (places and self.is_approved):
            return None
        nodes = [node for node in self.whole_plan.nodes if str(node.index + 1) in places]
        try:
            rules = [find_rule(node, self.config.approve, lambda _: None) for node in nodes]
        except CallError as error:
            raise DecisionRefused(f"edit this call by way of its own wait: {error}") from None
        guard = join_rules([self._guard, *(rule[1] for rule in rules if rule is not None)])
        if guard is None:
            names = format_choices(node.id for node in nodes)
            raise DecisionRefused(f"the edit takes away {names}, and nobody decides about all: edit them one by one")
        return guard

    def _check_remembered(self, decision: Decision, call: CallState) -> None:
        """Raise DecisionRefused where a Call is not like those that a person approves from now on."""
        when = None if decision.remember is None else decision.remember.when
        if when is not None and self.walk.fitting(call, call.resolved or {})(when) is not True:
            raise DecisionRefused(f"remember.when does not hold of {call.node.id} itself: {when}")
        if decision.remembered is not None and call.edited:
            raise DecisionRefused(f"a person has changed {call.node.id}: somebody has to look at it")

    def _validate_edit(self, decision: Decision) -> ValidatedPlan:
        setup, plan = self.setup, self.walk.prepared.request.plan
        if plan is None:
            raise EngineError("a plan without a plan message")
        calls = list(plan.calls if decision.calls is None else decision.calls)
        places = setup.input.places if isinstance(setup.input, InstanceInput) else None
        if not setup.takes_edits:
            text = "this run walks several instances, and takes no edits: set instancesPerChild to 1 for that"
            raise DecisionRefused(text)
        if places is not None and decision.calls is not None:
            raise DecisionRefused("this run walks a part of a plan: one call of it can be edited, and no more")
        if decision.calls is None:
            node = next((n for n in self.whole_plan.nodes if n.id == decision.call), None)
            if node is None:
                raise DecisionRefused(f"there is no call {decision.call}")
            at = node.index if places is None else places.index(node.index)
            calls[at] = child_requests.keep_instance(calls[at], decision.call_with, node.instance)
        request = parse_request(child_requests.edited_request(self.raw, plan.index, calls, setup.max_request_bytes))
        return validate_parsed(request, setup.capabilities.tools, setup.capabilities.served, places)

    def on_decided(self, effect: commands.Decided, now: str) -> list[Any]:
        wait, decision = effect.wait, effect.decision
        if decision.decision == wire.EDIT:
            return self._replan(effect.token, wait, now)
        if decision.decision == wire.UNDO:
            return self._end_undone(decision, wait, now)
        if wait.what == MESSAGE:
            return self._on_messages_decided(decision, now)
        if wait.what != "plan":
            call, reason = self.walk.find(wait.call, wait.instance), decision.reason or ""
            if call is None:
                return []
            return self.perform(self.walk.decide(call.node.key, decision.decision, reason, now, decision.output), now)
        if decision.decision == wire.APPROVE:
            self.is_approved, self.position = True, self.position.guarded(self.config.approve.plan_rule)
            out = self.perform(self.walk.approve(now), now)
            return out + self._close_stale_waits()
        if self.walk.has_begun:
            error = {"code": wire.REJECTED, "message": decision.reason or "nobody decided in time"}
            return self.perform(self.walk.cancel(now, error), now) + self._close_stale_waits()
        return self.finish(wire.REJECTED if decision.decision == wire.REJECT else "failed")

    def _on_messages_decided(self, decision: Decision, now: str) -> list[Any]:
        messages, self.held_messages, self._held_shown = self.held_messages, [], []
        if decision.decision == wire.APPROVE:
            return [effect for message in messages for effect in self._join_approved(message, now)]
        self.note(f"a message was refused: {decision.reason or decision.decision}")
        return []

    def _end_undone(self, decision: Decision, wait: PendingApproval, now: str) -> list[Any]:
        """Start nothing more; when what runs has ended, what completed is undone."""
        self.undo_asked, reason = True, decision.reason or "a person has what completed undone"
        if not self.walk.has_begun:
            return self.finish(wire.REJECTED)
        call = None if wait.call is None else self.walk.find(wait.call, wait.instance)
        rejected = [] if call is None else self.walk.decide(call.node.key, wire.REJECT, reason, now)
        left = self.walk.cancel(now, {"code": wire.REJECTED, "message": reason})
        return self.perform([*rejected, *left], now) + self._close_stale_waits()

    def on_void(self, now: str) -> list[Any]:
        self.walk.void_approvals()
        own = (r for r in self.approvals.records if not {"below", "instance"} & r.keys())
        was_approved = any((r["what"], r["decision"]) == ("plan", wire.APPROVE) for r in own)
        return self._hold_plan(now) if self.is_approved and was_approved else []

    def _hold_plan(self, now: str) -> list[Any]:
        """Start nothing more until a person has approved the plan as it is now."""
        self.is_approved, self.walk.is_held = False, True
        return self._ask_about_plan(now)

    def _edited_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What the run walks of an edited plan; what children walk already stays theirs."""
        by_children = self.walk.prepared.unsplit is not None
        if self.walk.has_begun and by_children and not child_requests.needs_children(prepared):
            raise DecisionRefused("its instances are walked by children: no call of them can depend on a global one")
        return self.setup.own_part(prepared) if by_children or not self.walk.has_begun else prepared

    def _replan(self, prepared: ValidatedPlan, decided: PendingApproval, now: str) -> list[Any]:
        """Walk the edited plan from now on; its waits are for decisions about the new version.

        Whoever decides about a Call may replace it. What an edit takes away besides is a part of what is approved.
        """
        part = self._edited_part(prepared)
        self.budget.count_calls(count_calls(prepared.unsplit or prepared) - count_calls(self.whole_plan))
        out: list[Any] = []
        walk_commands: list[commands.Command] = []
        changes = calls_changes(self.walk.prepared.request.calls, prepared.request.calls)
        self.approvals.record_changes(changes)
        guard = self._guard_without(changes, decided)
        drops = guard is not None
        if self.position.isGuarded and self.is_approved:  # what is written where is what others read
            plans = (self.walk.prepared, part)
            before, after = ({n.index: (n.outcomes, n.error, n.method) for n in plan.nodes} for plan in plans)
            drops = drops or before != after
        if self.walk.has_begun:
            self.walk.is_held = self.walk.is_held or drops
            walk_commands = self.walk.change_plan(part, now)
            waits = {(c.what, c.node.id, c.node.instance) for c in walk_commands if isinstance(c, commands.AskHuman)}
            for wait in self.approvals.waits.own:
                if wait.call is not None and (wait.what, wait.call, wait.instance) not in waits:
                    out += self.approvals.close(wait)
                    same = [n.id for n in self.walk.nodes if n.instance == wait.instance]
                    self.approvals.inherit_deadline(wait, same)
        else:
            self.walk.load(part, self.walk.context.provided, {})
        self.raw = prepared.request.raw
        self.version += 1
        out += self.perform(walk_commands, now)
        if drops:
            self.position = self.position.model_copy(update={"guard": guard or self._guard})
            out += self._hold_plan(now)
        self.approvals.raise_version(self.version, self.plan_subject())
        return out if self.is_approved else [*out, *self.load_pins(self.whole_plan.nodes)]

    def read_facts(self, run_id: str, children: Mapping[str, str]) -> PastRun:
        """What the run has done. It changes nothing.

        ``children`` are the runs that it has started: run id by workflow id, in their order.
        """
        messages = [m.raw for m in self.walk.prepared.request.context]
        members = self.setup.instances
        prompt = prompt_digest(messages, instances=True)
        nodes = sorted(self.whole_plan.nodes, key=lambda node: node.index)
        return PastRun(
            workflowId=self.own, runId=run_id, plan=tuple(dict.fromkeys(node.id for node in nodes)),
            prompt=prompt_digest(messages, instances=False),
            provided=tuple(message.raw for message in self.walk.context.provided), undone=tuple(self._undone_ids()),
            calls=self.walk.read_calls(prompt, members[0] if len(members) == 1 else None),
            instances=() if members else tuple(self._past_instances(children)),
        )  # fmt: skip

    def _undone_ids(self) -> Iterator[str]:
        undoes = () if self.config.undoes is None else self.config.undoes.calls
        for call in self.walk.calls:
            if call.stage == "completed" and call.node.index < len(undoes):
                yield undoes[call.node.index].id

    def _past_instances(self, children: Mapping[str, str]) -> Iterable[PastInstance]:
        units = {id_: call for call in self.walk.calls for id_ in call.node.members}
        for id_, status in statuses(self.walk).items():
            call = units.get(id_)
            if call is None:
                yield PastInstance(id=id_, status=status, digest="")
                continue
            report = {k: v for k, v in (call.value or {}).get(id_, {}).items() if k != "resumed"}
            child = self._child_of(call.node.members[0], children) if call.has_started else None
            yield PastInstance(
                id=id_, status=status, digest=self.digest_instance(id_), workflowId=child,
                report=report if report and status == "completed" else None, runId=children.get(child or ""),
            )  # fmt: skip

    def _child_of(self, first: str, children: Iterable[str]) -> str:
        """The workflow id of the child that walks the instances of which ``first`` is the first."""
        name = child_id(self.own, first)
        spares = [id_ for id_ in children if id_.startswith(name) and _SPARE.fullmatch(id_[len(name) :])]
        return spares[-1] if spares else name

    def snapshot(self) -> PlanState:
        own = self.setup.input
        return PlanState(
            **self.common_snapshot(), request=self.raw, position=self.position, capabilities=self.capabilities,
            walk=self.walk.snapshot(), input=None if own is None else own.model_copy(update=_NOT_CARRIED).to_json(),
            usage=self.usage.to_json(), version=self.version, isApproved=self.is_approved,
            heldMessages=tuple(message.raw for message in self.held_messages),
            past=None if self.walk.past is None else self.walk.past.to_state(self.walk.calls),
        )  # fmt: skip

    def restore(self, state: PlanState) -> None:
        self.walk.restore(state.walk)
        self.walk.is_held = not state.isApproved
        self.is_paused = self.walk.paused
        self.restore_common(state.approvals, state.budget)
        self.usage.add(state.usage)
        self.version, self.is_approved = state.version, state.isApproved
        self.held_messages = [m for m in map(parse_message, state.heldMessages) if isinstance(m, Data)]


# -- the instances of a batch -------------------------------------------------------------------------


def child_progress(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, calls}}`` of each instance that a batch child walks; its Calls once the child has ended."""
    out = {}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        for id_ in node.members:
            report = (call.value or {}).get(id_, {})
            out[id_] = {"status": report.get("status", call.state), "calls": report.get("calls", [])}
    return out


def statuses(walk: Walk) -> dict[str, str]:
    """The status of each instance: ``pending``, ``running``, or the one it ended with."""
    states = {id_: [item["status"]] for id_, item in child_progress(walk).items()}
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        if node.instance is not None:
            states.setdefault(node.instance, []).append(call.state)
    out = {}
    for id_, own in states.items():
        unsettled = [state for state in own if state not in SETTLED]
        is_of_one_state = len(own) == 1 or set(own) == {"pending"}
        out[id_] = status_from_states(own) if not unsettled else unsettled[0] if is_of_one_state else "running"
    return out


def call_summary(calls: Sequence[CallState]) -> dict[str, Any]:
    """``{status, calls, errors}`` of the Calls of one instance."""
    items = {"calls": map(call_item, calls), "errors": filter(None, map(error_item, calls))}
    own = {key: [{k: v for k, v in item.items() if k != "instance"} for item in items[key]] for key in items}
    return {"status": status_from_states(call.state for call in calls), **own}


def calls_by_instance(walk: Walk) -> dict[str, list[CallState]]:
    """The Calls of each instance, in the order in which the plan lists them."""
    out: dict[str, list[CallState]] = {}
    for call in sorted(walk.calls, key=lambda call: call.node.index):
        if call.node.instance is not None:
            out.setdefault(call.node.instance, []).append(call)
    return out


def instance_report(walk: Walk, *, edited: bool, undo: Iterable[dict[str, Any]] = ()) -> dict[str, dict[str, Any]]:
    """What a child reports: ``{id: {status, state, calls, errors, writes, resumed?, undo?}}``.

    ``writes`` are in plan order: ``[place in calls, path, date, edited, value?]``, with the value where ``state`` does
    not show it any more. The run above makes messages of them, from the plan. It does not know a plan that was
    ``edited`` in the child; then each has the method and the Call as planned, else null. ``resumed`` has the ids of the
    Calls that were taken over from an earlier run.
    """
    out, from_past = {}, {} if walk.past is None else walk.past.taken_calls(walk.calls)
    for id_, calls in calls_by_instance(walk).items():
        state, writes = walk.context.log.state(id_), list[list[Json]]()
        for at, call in sorted(enumerate(calls), key=lambda listed: listed[1].rank):
            as_edited = {"method": call.node.method, "planned": call.node.planned} if edited else None
            for path, value, date in call.written:
                in_state = path.kind == "state" and get(state, path.names) == value
                writes.append([at, str(path), date, as_edited, *([] if in_state else [value])])
        resumed = {"resumed": from_past[id_]} if id_ in from_past else {}
        out[id_] = {**call_summary(calls), "state": state, "writes": writes, **resumed}
    for step in undo:
        out[step["instance"]].setdefault("undo", []).append(step)
    return out


def decision_seen_from_above(node: PlannedCall, record: dict[str, Any]) -> dict[str, Any]:
    """A decision that was made in a child: of which instance of this run, or below which Call."""
    if node.members:
        return {"instance": node.members[0], **record}
    # The instances of a delegate are none of ours, and it does not know for whom it works
    inner = {} if record.get("instance") is None else {"inner": record.get("inner", record["instance"])}
    own = {} if node.instance is None else {"instance": node.instance}
    return {**{k: v for k, v in record.items() if k != "instance"}, **inner, "below": node.id, **own}


def reported_instances(node: PlannedCall, report: Any, error: CallError | None) -> dict[str, Any]:
    """The outcome of each instance of a unit, by id; ``error`` where the child said nothing."""
    if isinstance(report, dict) and isinstance(report.get("instances"), dict):
        return dict(report["instances"])
    if isinstance(report, dict) and "status" in report:
        return {node.members[0]: {k: report[k] for k in REPORT_KEYS if k in report}}
    cause = error or CallError(wire.ENGINE_ERROR, "the child that walked it said nothing of it")
    item = {"call": None, "code": cause.code, "message": cause.message}
    status = "cancelled" if cause.code == wire.CANCELLED else "failed"
    nothing = {"status": status, "state": {}, "calls": [], "errors": [item], "writes": []}
    return dict.fromkeys(node.members, nothing)
