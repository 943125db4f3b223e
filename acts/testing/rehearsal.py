"""A rehearsal: one run of a plan with canned results, without a server.

Theory of operation. The machine of a run (``PlanRun``) decides everything, as in a workflow; here is the smallest
driver around it. Calls are answered in plan order, the lowest first, and each decision is sent as soon as what it is
about waits: by serial equivalence any other order gives the same result. Instances are walked in one run instead of
children; the protocol promises the same result for that too.

No I/O and no clock. Time stands still until nothing else can happen; then the next deadline passes. A canned result
is looked up by the Call alone, never by the order in which Calls end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language import wire
from acts.language.errors import CallError, PlanError, brief
from acts.language.messages import Data, parse_message
from acts.language.values import Json
from acts.machines.approvals import iso
from acts.machines.commands import (
    AnswerUpdate,
    AskOutput,
    CancelTimer,
    StartBackground,
    StartCall,
    StartChild,
    StartTimer,
)
from acts.machines.events import (
    Begin,
    CallDetached,
    CallEnded,
    ChildEnded,
    DecisionReceived,
    Event,
    Provided,
    TimerFired,
)
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.run_machine import QUEUE_TIMER
from acts.plan.validate import ValidatedPlan
from acts.tree.child_requests import expand_template
from acts.tree.identity import call_identity
from acts.tree.records import Accounting, Capabilities, ContextRef, TreePosition
from acts.views.results import build_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.machines.call_state import CallState
    from acts.plan.calls import PlannedCall


APPROVE_ALL: Final = "approve"
# Dates of a rehearsal begin here, so that they are the same in each
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
# The workflow id of a rehearsed run, and what the ``_id``s of its Calls derive from
RUN_ID: Final = "test"
_UPDATE: Final = "decision"


class CannedResultError(CallError):
    """A canned result has no usable form, or there is none; the message says what to write."""

    def __init__(self, text: str) -> None:
        super().__init__("NoCannedResult", text)


@dataclass
class CannedResults:
    """Results by name: of a Tool (``charge``), a Call (``2:charge``) or an element (``2:charge[0]``); in front of each
    may stand the instance (``c1/2:charge``). The most particular name wins. A function gets the Call.
    """

    by_name: Mapping[str, Any]
    _counts: dict[str, int] = field(default_factory=dict)

    def answer(self, node: PlannedCall, call: Mapping[str, Any]) -> tuple[Json, int | None]:
        """What a Call that has started returns and, of a model, the index of the outcome that it chooses.

        Raises:
            CallError: it fails. CannedResultError: there is no result for it.
        """
        name = next((n for n in names_of(node) if n in self.by_name), None)
        if name is None:
            text = brief({k: v for k, v in call.items() if not k.startswith("_")}, 200)
            raise CannedResultError(f"{_describe(node)} has no canned result; it is called with {text}")
        result = self.by_name[name]
        if isinstance(result, dict) and isinstance(listed := result.get("$sequence"), list):
            count = self._counts[name] = self._counts.get(name, 0) + 1
            if count > len(listed):
                raise CannedResultError(
                    f"{name}: $sequence has {len(listed)} results, {_describe(node)} needs one more"
                )
            result = listed[count - 1]
        return _call_function(result, call) if callable(result) else _read_result(name, result, node)


def names_of(node: PlannedCall) -> list[str]:
    """The names under which a Call's result may stand, the most particular first."""
    names = list(dict.fromkeys((node.id, _call_id(node), node.tool.name)))
    return names if node.instance is None else [f"{node.instance}/{n}" for n in names] + names


def unknown_names(by_name: Iterable[str], nodes: Iterable[PlannedCall]) -> list[str]:
    """The names of canned results that no Call of the plan can have."""
    known = {name for node in nodes for name in names_of(node)}
    return [name for name in by_name if name not in known and name.rpartition("[")[0] not in known]


def _call_id(node: PlannedCall) -> str:
    """The id of the Call, also of an element."""
    return node.id if node.element is None else node.id.rpartition("[")[0]


def _describe(node: PlannedCall) -> str:
    return node.id if node.instance is None else f"{node.id} [{node.instance}]"


def _read_result(name: str, result: Any, node: PlannedCall) -> tuple[Json, int | None]:
    match result:
        case {"$error": str(code), **rest} if not rest:
            raise CallError(code, f"a canned failure of {name}")
        case {"$error": {"code": str(code), **error}, **rest} if not rest:
            raise CallError(code, str(error.get("message", f"a canned failure of {name}")), error.get("details"))
        case {"$path": path, **rest} if set(rest) <= {"$value"}:
            plain = [_without_spaces(text) for text in node.outcome_texts]
            if _without_spaces(str(path)) not in plain:
                choices = ", ".join(node.outcome_texts)
                raise CannedResultError(f"{name}: $path is {brief(path)}; {_describe(node)} can choose {choices}")
            return rest.get("$value"), plain.index(_without_spaces(str(path)))
        case {"$value": value, **rest} if not rest:
            return value, None
        case dict() if any(key.startswith("$") for key in result):
            forms = "$error, $sequence, $path and $value, which holds any value as it is"
            raise CannedResultError(
                f"{name}: {brief(sorted(result))} are no keys of a canned result; the forms: {forms}"
            )
    return result, None


def _without_spaces(text: str) -> str:
    return "".join(text.split()).replace("†", "")


def _call_function(function: Callable[[dict[str, Any]], Any], call: Mapping[str, Any]) -> tuple[Json, None]:
    try:
        return function(dict(call)), None
    except CallError:
        raise
    except Exception as error:
        # An ApplicationError's type is its code, as in a run
        code = getattr(error, "type", None) or type(error).__name__
        raise CallError(str(code), str(getattr(error, "message", None) or error)) from error


@dataclass(frozen=True, slots=True)
class StartedCall:
    """A Call, or an element, that was started: what its Activity, its model or its delegate was called with."""

    id: str
    call_id: str
    tool: str
    parameters: dict[str, Any]
    context: list[dict[str, Any]]
    instance: str | None = None


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
    """A run that walks its instances itself, with the Calls of all of them in one walk."""

    def own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        return expand_template(prepared, prepared.request.instances())


def rehearse(
    prepared: ValidatedPlan, script: Script, tools: Mapping[str, Any] | None = None, served: Sequence[str] = ()
) -> Rehearsal:
    """Run a plan with canned results; ``tools`` and ``served`` are what it was validated with."""
    request = prepared.request
    position = TreePosition(identity=RUN_ID, token=RUN_ID).with_budget(RUN_ID, request.config.budget)
    position = position.with_limit(request.config.maxParallel, None)
    source = ContextRef(workflowId=RUN_ID, runId=RUN_ID, messageCount=len(request.context))
    capabilities = Capabilities(tools=dict(tools or {}), served=tuple(served))
    setup = _WholePlan(request.raw, prepared, capabilities, position, source)
    run = PlanRun(RUN_ID, setup, lambda node: call_identity(RUN_ID, node.instance, node.id))
    return _Driver(run, script).run_to_end()


class _Driver:
    def __init__(self, run: PlanRun, script: Script) -> None:
        self.run, self.script = run, script
        self.now = BEGINNING
        self.complaints: list[str] = []
        self._started: list[tuple[tuple[int, int], StartedCall]] = []
        self._in_flight: dict[str, Any] = {}  # commands that start a Call, by its key
        self._timers: dict[str, datetime] = {}
        self._decisions = [] if isinstance(script.decisions, str) else list(script.decisions)
        self._messages = list(script.messages)

    def run_to_end(self) -> Rehearsal:
        """Let everything happen that can."""
        self._handle(Begin())
        while self.run.finished is None and (
            self._decide() or self._answer_call() or self._provide() or self._pass_deadline()
        ):
            pass
        self.complaints += [f"the decision {_shorten(d)} was not needed: {self._refusal(d)}" for d in self._decisions]
        self.complaints += [f"the message {_shorten(m)} was not needed: the run ended before" for m in self._messages]
        walk = self.run.walk
        started = [call for _, call in sorted(self._started, key=lambda pair: pair[0])]
        result = build_result(walk, self.run.usage, self.run.finished)
        if self.run.approvals.records:
            result["decisions"] = self.run.approvals.records
        calls = list(zip(walk.nodes, walk.calls, strict=True))
        return Rehearsal(self.run.finished or "awaiting", result, started, calls, self.complaints)

    # -- what can happen next; False if it cannot -------------------------------------------------

    def _decide(self) -> bool:
        """Send the first decision that something waits for."""
        if self.script.decisions == APPROVE_ALL:
            waits = [*self.run.approvals.waits.own]
            targets = [{"call": wait.call, "instance": wait.instance} for wait in waits[:1]]
            decisions: list[Mapping[str, Any]] = [
                {"decision": APPROVE_ALL, **{k: v for k, v in t.items() if v}} for t in targets
            ]
        else:
            decisions = [decision for decision in self._decisions if not self._refusal(decision)][:1]
            self._decisions = [d for d in self._decisions if not any(d is decision for decision in decisions)]
        for decision in decisions:
            self._handle(DecisionReceived(dict(decision), None, _UPDATE))
        return bool(decisions)

    def _refusal(self, decision: Mapping[str, Any]) -> str:
        """Why a decision cannot be carried out now; "" if it can."""
        if self.run.finished is not None:
            return "the run had ended"
        try:
            self.run.approvals.judge(dict(decision))
        except (PlanError, CallError) as error:
            return str(error)
        return ""

    def _answer_call(self) -> bool:
        """Answer the first Call in plan order."""
        if not self._in_flight:
            return False
        key = min(self._in_flight, key=lambda k: self._place(self._in_flight[k].node))
        command = self._in_flight.pop(key)
        value, chosen, failure = None, None, None
        try:
            value, chosen = self.script.results.answer(command.node, _sent(command)[0])
            value = json.loads(json.dumps(value))
        except CallError as error:
            failure = error
            if isinstance(error, CannedResultError):
                self.complaints.append(error.message)
        if isinstance(command, StartChild):
            report = {"output": value, **({} if chosen is None else {"path": chosen})} if failure is None else None
            self._handle(ChildEnded(key, report, failure, accounting=Accounting()))
        else:
            self._handle(CallEnded(key, value, chosen) if failure is None else CallEnded(key, error=failure))
        return True

    def _provide(self) -> bool:
        if not self._messages:
            return False
        message = parse_message(self._messages.pop(0))
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
        for command in self.run.handle(event, iso(self.now)):
            self._perform(command)
        for command in self.run.flush(iso(self.now)):
            self._perform(command)

    def _perform(self, command: Any) -> None:
        match command:
            case StartCall() | AskOutput() | StartChild(type=wire.DELEGATE):
                node: Any = command.node
                self._in_flight[node.key] = command
                self._record(node, *_sent(command))
            case StartBackground():
                self._record(command.node, *_sent(command))
                self._handle(CallDetached(command.node.key))
            case StartTimer() if command.name != QUEUE_TIMER:
                self._timers[command.name] = self.now + timedelta(seconds=command.seconds)
            case CancelTimer():
                self._timers.pop(command.name, None)
            case AnswerUpdate() if command.problem is not None:
                self.complaints.append(f"a decision was refused: {command.problem.message}")
            case _:
                pass  # records for other runs, checks of queues, the end

    def _record(self, node: PlannedCall, call: Mapping[str, Any], context: list[dict[str, Any]]) -> None:
        parameters = {k: v for k, v in call.items() if not k.startswith("_")}
        started = StartedCall(node.id, _call_id(node), node.tool.name, parameters, context, node.instance)
        self._started.append((self._place(node), started))

    def _place(self, node: PlannedCall) -> tuple[int, int]:
        """Where a Call or an element stands in plan order."""
        return self.run.walk.by_key[node.key].rank, -1 if node.element is None else node.element


def _sent(command: Any) -> tuple[dict[str, Any], list[Any]]:
    """The Call and the context that what answers it is sent."""
    if isinstance(command, StartCall | AskOutput):
        return command.call, command.context
    if isinstance(command, StartChild):
        delegate: Any = command.input
        return delegate.input, list(delegate.context)
    own = command.input.delegate
    return (command.input.call, list(command.input.context)) if own is None else (own.input, list(own.context))


def _shorten(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:200]
