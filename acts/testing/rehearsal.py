"""A rehearsal: one run of a plan with canned results, without a server.

Theory of operation. The machine of a run (``PlanRun``) decides everything, as in a workflow; here is the smallest
driver around it. Calls are answered in plan order, the lowest first, and each decision is sent as soon as what it is
about waits: by serial equivalence any other order gives the same result. Instances are walked in one run instead of
children; the protocol promises the same result for that too.

Laws of this file: no I/O and no clock. Time stands still until nothing else can happen; then the next deadline passes.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, PlanError
from acts.language.messages import Data
from acts.language.request_reader import parse_message
from acts.machines.approval_effects import AnswerUpdate, CancelTimer, StartTimer
from acts.machines.approvals import iso
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallDetached,
    CallFailed,
    ChildEnded,
    DecisionReceived,
    Event,
    Provided,
    TimerFired,
)
from acts.machines.permits import IDLE_TIMER
from acts.machines.plan_run import PlanRun
from acts.machines.plan_setup import PlanSetup
from acts.machines.queue_watch import QUEUE_TIMER
from acts.machines.run_commands import AskOutput, StartActivity, StartBackground, StartDelegate
from acts.plan.validate import ValidatedPlan, is_template
from acts.testing.canned_results import CannedResultError, CannedResults
from acts.tree.batches import copy_for_instances
from acts.tree.identity import call_identity
from acts.tree.records import Accounting, Capabilities, ContextRef, TreePosition
from acts.views.results import build_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.machines.call_state import CallState
    from acts.plan.planned_call import PlannedCall

# Dates of a rehearsal begin here, so that they are the same in each
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
APPROVE_ALL: Final = "approve"
# The workflow id of a rehearsed run, and what the ``_id``s of its Calls derive from
RUN_ID: Final = "test"
# Timers that no person waits for
_OWN_TIMERS: Final = (QUEUE_TIMER, IDLE_TIMER)
_NO_RESULT: Final = "NoCannedResult"
_UPDATE: Final = "decision"


@dataclass(frozen=True, slots=True)
class StartedCall:
    """A Call, or an element, that was started: what its Activity, its model or its delegate was called with."""

    id: str
    tool: str
    parameters: dict[str, Any]
    context: list[dict[str, Any]]
    instance: str | None = None
    element: int | None = None

    @property
    def call_id(self) -> str:
        """The id of the Call, also of an element."""
        return self.id if self.element is None else self.id.rpartition("[")[0]


@dataclass(frozen=True)
class Script:
    """What happens to a rehearsed run from outside.

    ``decisions`` are those of ``decide``, or ``approve`` for everything that waits. ``messages`` are provided one after
    another, each when nothing else can happen. ``ends_waiting``: no deadline passes.
    """

    results: CannedResults
    decisions: Sequence[Mapping[str, Any]] | str = ()
    messages: Sequence[Any] = ()
    ends_waiting: bool = False


@dataclass
class Rehearsal:
    """How a rehearsed run ended. ``result`` is that of a ``Plan``; ``status`` is ``awaiting`` for one that still waits.

    ``started`` are the Calls that ran, in plan order; ``complaints`` what the script lacks, or has too much of;
    ``calls`` each Call of the plan with its final state, one per instance.
    """

    status: str
    result: dict[str, Any]
    started: list[StartedCall]
    calls: list[tuple[PlannedCall, CallState]]
    complaints: list[str] = field(default_factory=list)


class _WholePlan(PlanSetup):
    """A run that walks its instances itself."""

    def own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        return walk_together(prepared)


def walk_together(prepared: ValidatedPlan) -> ValidatedPlan:
    """The plan with the Calls of all instances in one walk."""
    if not is_template(prepared.request, prepared.nodes):
        return prepared
    return copy_for_instances(prepared, prepared.request.instances())


def rehearse(
    prepared: ValidatedPlan, script: Script, tools: Mapping[str, Any] | None = None, served: Sequence[str] = ()
) -> Rehearsal:
    """Run a plan with canned results; ``tools`` and ``served`` are what it was validated with."""
    return _Driver(prepared, script, Capabilities(tools=dict(tools or {}), served=tuple(served))).run_to_end()


class _Driver:
    def __init__(self, prepared: ValidatedPlan, script: Script, capabilities: Capabilities) -> None:
        request = prepared.request
        position = TreePosition(identity=RUN_ID, token=RUN_ID).with_budget(RUN_ID, request.config.budget)
        position = position.with_limit(request.config.maxParallel, None)
        source = ContextRef(workflowId=RUN_ID, runId=RUN_ID, messageCount=len(request.context))
        setup = _WholePlan(request.raw, prepared, capabilities, position, source)
        self.run = PlanRun(RUN_ID, setup, _identify, lambda _: None)
        self.script = script
        self.now = BEGINNING
        self.complaints: list[str] = []
        self.started: list[tuple[tuple[int, int], StartedCall]] = []
        self._in_flight: dict[str, StartActivity | AskOutput | StartDelegate] = {}
        self._timers: dict[str, datetime] = {}
        self._decisions: deque[Mapping[str, Any]] = deque(() if isinstance(script.decisions, str) else script.decisions)
        self._messages = deque(script.messages)

    def run_to_end(self) -> Rehearsal:
        """Let everything happen that can."""
        self._handle(Begin())
        while self.run.finished is None and self._step():
            pass
        self.complaints += [f"the decision {_shown(d)} was not needed: {self._refusal(d)}" for d in self._decisions]
        self.complaints += [f"the message {_shown(m)} was not needed: the run ended before" for m in self._messages]
        walk = self.run.walk
        started = [call for _, call in sorted(self.started, key=lambda pair: pair[0])]
        status = self.run.finished or "awaiting"
        result = build_result(walk, self.run.usage, self.run.finished)
        if self.run.approvals.records:
            result["decisions"] = self.run.approvals.records
        calls = list(zip(walk.nodes, walk.calls, strict=True))
        return Rehearsal(status, result, started, calls, self.complaints)

    # -- what happens next ----------------------------------------------------------------------

    def _step(self) -> bool:
        """One thing that can happen now; False when nothing can."""
        return self._decide() or self._answer_call() or self._provide() or self._pass_deadline()

    def _decide(self) -> bool:
        decision = self._next_decision()
        if decision is None:
            return False
        self._handle(DecisionReceived(dict(decision), None, _UPDATE))
        return True

    def _next_decision(self) -> Mapping[str, Any] | None:
        """The first decision that something waits for."""
        if self.script.decisions == APPROVE_ALL:
            wait = next(iter(self.run.approvals.own_pending), None)
            target = {} if wait is None else {"call": wait.call, "instance": wait.instance}
            return None if wait is None else {"decision": APPROVE_ALL, **{k: v for k, v in target.items() if v}}
        decision = next((d for d in self._decisions if not self._refusal(d)), None)
        if decision is not None:
            self._decisions.remove(decision)
        return decision

    def _refusal(self, decision: Mapping[str, Any]) -> str:
        """Why a decision cannot be carried out now; "" if it can."""
        if self.run.finished is not None:
            return "the run had ended"
        try:
            self.run.approvals.judge(dict(decision), has_children=False)
        except (PlanError, CallError) as error:
            return str(error)
        return ""

    def _answer_call(self) -> bool:
        if not self._in_flight:
            return False
        key = min(self._in_flight, key=lambda k: self._place(self._in_flight[k].node))
        command = self._in_flight.pop(key)
        is_child = isinstance(command, StartDelegate)
        try:
            answer = self.script.results.answer(command.node, _sent(command)[0])
        except CannedResultError as error:
            self.complaints.append(str(error))
            failure = CallError(_NO_RESULT, str(error))
        except CallError as error:
            failure = error
        else:
            value = json.loads(json.dumps(answer.value))
            report = {"output": value, **({} if answer.chosen is None else {"path": answer.chosen})}
            ended = ChildEnded(key, report, None, accounting=Accounting())
            self._handle(ended if is_child else CallCompleted(key, value, answer.chosen))
            return True
        self._handle(ChildEnded(key, None, failure, accounting=Accounting()) if is_child else CallFailed(key, failure))
        return True

    def _provide(self) -> bool:
        if not self._messages:
            return False
        message = parse_message(self._messages.popleft())
        if isinstance(message, Data):
            self._handle(Provided(message))
        else:
            self.complaints.append("only a data, input or state message can be provided")
        return True

    def _pass_deadline(self) -> bool:
        if not self._timers or self.script.ends_waiting:
            return False
        name = min(self._timers, key=lambda n: self._timers[n])
        self.now = max(self.now, self._timers.pop(name))
        self._handle(TimerFired(name))
        return True

    # -- the machine ------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._perform(self.run.handle(event, iso(self.now)))
        self._perform(self.run.flush(iso(self.now)))

    def _perform(self, commands: Sequence[Any]) -> None:
        for command in commands:
            match command:
                case StartActivity() | AskOutput() | StartDelegate():
                    self._in_flight[command.node.key] = command
                    self._record(command.node, *_sent(command))
                case StartBackground():
                    self._record(command.node, *_sent(command))
                    self._handle(CallDetached(command.node.key))
                case StartTimer() if command.name not in _OWN_TIMERS:
                    self._timers[command.name] = self.now + timedelta(seconds=command.seconds)
                case CancelTimer():
                    self._timers.pop(command.name, None)
                case AnswerUpdate() if command.problem is not None:
                    self.complaints.append(f"a decision was refused: {command.problem.message}")
                case _:
                    pass  # records for other runs, checks of queues, the end

    def _record(self, node: PlannedCall, call: Mapping[str, Any], context: list[dict[str, Any]]) -> None:
        parameters = {k: v for k, v in call.items() if not k.startswith("_")}
        started = StartedCall(node.id, node.tool.name, parameters, context, node.instance, node.element)
        self.started.append((self._place(node), started))

    def _place(self, node: PlannedCall) -> tuple[int, int]:
        """Where a Call or an element stands in plan order."""
        walk = self.run.walk
        return walk.states.rank(walk.rows[node.key]), -1 if node.element is None else node.element


def _sent(command: StartActivity | AskOutput | StartDelegate | StartBackground) -> tuple[dict[str, Any], list[Any]]:
    """The Call and the context that what answers it is sent."""
    if isinstance(command, StartActivity | AskOutput):
        return command.call, command.context
    if isinstance(command, StartDelegate):
        return command.input.input, list(command.input.context)
    own = command.input.delegate
    return (command.input.call, list(command.input.context)) if own is None else (own.input, list(own.context))


def _identify(node: PlannedCall) -> str:
    return call_identity(RUN_ID, node.instance, node.id)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:200]
