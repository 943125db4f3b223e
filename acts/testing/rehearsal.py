"""A rehearsal: one run of a plan with canned results, without a server; and the cases of a test file.

Theory of operation. The machine of a run (``PlanRun``) decides everything, as in a workflow; here is the smallest
driver around it. Calls are answered in plan order, the lowest first, and each decision is sent as soon as what it is
about waits: by serial equivalence any other order gives the same result. Instances are walked in one run instead of
children; the protocol promises the same result for that too.

No I/O and no clock. Time stands still until nothing else can happen; then the next deadline passes. A canned result
is looked up by the Call alone, never by the order in which Calls end.

A test file is read completely, and every problem is reported at once, with its JSON pointer. A part of a State is
compared by the keys that the case names; a list is compared as a whole, and ``{"$absent": true}`` matches what does not
exist.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from acts.language import wire
from acts.language.errors import CallError, InvalidRequest, PlanError, Problem, brief, suggest
from acts.language.messages import Data, parse_message
from acts.language.values import ABSENT, Json, pointer
from acts.machines import commands, events
from acts.machines.approvals import iso
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.run_machine import QUEUE_TIMER
from acts.plan.validate import ValidatedPlan
from acts.tree.child_requests import expand_template
from acts.tree.decisions import WaitKey
from acts.tree.identity import call_identity
from acts.tree.records import Accounting, BackgroundInput, Capabilities, ContextRef, DelegateInput, TreePosition
from acts.views.results import build_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from acts.plan.calls import PlannedCall


APPROVE_ALL: Final = "approve"
AWAITING: Final = "awaiting"
# Dates of a rehearsal begin here, so that they are the same in each
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
# The workflow id of a rehearsed run, and what the ``_id``s of its Calls derive from
RUN_ID: Final = "test"
# A canned result has no usable form, or there is none; the message says what to write
_NO_RESULT: Final = "NoCannedResult"
_CannedResultError: Final = partial(CallError, _NO_RESULT)


def names_of(node: PlannedCall) -> list[str]:
    """The names under which a Call's result may stand, the most particular first."""
    names = list(dict.fromkeys((node.id, _call_id(node), node.tool.name)))
    return names if node.instance is None else [f"{node.instance}/{n}" for n in names] + names


def _call_id(node: PlannedCall) -> str:
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
            chosen, *plain = ("".join(text.split()).replace("†", "") for text in (str(path), *node.outcome_texts))
            if chosen not in plain:
                choices = ", ".join(node.outcome_texts)
                raise _CannedResultError(f"{name}: $path is {brief(path)}; {_describe(node)} can choose {choices}")
            return rest.get("$value"), plain.index(chosen)
        case {"$value": value, **rest} if not rest:
            return value, None
        case dict() if any(key.startswith("$") for key in result):
            forms = "$error, $sequence, $path and $value, which holds any value as it is"
            raise _CannedResultError(
                f"{name}: {brief(sorted(result))} are no keys of a canned result; the forms: {forms}"
            )
    return result, None


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

    ``results`` are by name: of a Tool (``charge``), a Call (``2:charge``) or an element (``2:charge[0]``); in front of
    each may stand the instance (``c1/2:charge``). The most particular name wins. A function gets the Call.
    ``decisions`` are those of ``decide``, or ``approve`` for everything that waits. ``messages`` are provided one after
    another, each when nothing else can happen. ``ends_waiting``: no deadline passes.
    """

    results: Mapping[str, Any]
    decisions: Sequence[Mapping[str, Any]] | str = ()
    messages: Sequence[Any] = ()
    ends_waiting: bool = False


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
    return Rehearsal(run, script)


class Rehearsal:
    """A rehearsed run. ``result`` is that of a ``Plan``; ``status`` is ``awaiting`` for one that still waits.

    ``started`` are the Calls that ran, in plan order; ``complaints`` what the script lacks, or has too much of;
    ``calls`` each Call of the plan with its final state, one per instance.
    """

    def __init__(self, run: PlanRun, script: Script) -> None:
        self.run, self.script = run, script
        self.now = BEGINNING
        self.complaints: list[str] = []
        self._started: list[tuple[tuple[int, int], StartedCall]] = []
        # Commands that start a Call, with the Call, by its place in the plan
        self._in_flight: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}
        self._timers: dict[str, datetime] = {}
        self._decisions = [] if isinstance(script.decisions, str) else list(script.decisions)
        self._messages = list(script.messages)
        self._counts: dict[str, int] = {}
        self._questions: set[WaitKey] = set()  # those that a canned result has answered, or that have none
        self._handle(events.Begin())
        steps = (self._answer_question, self._decide, self._answer_call, self._provide, self._pass_deadline)
        while self.run.finished is None and any(step() for step in steps):
            pass
        unused = [("decision", d, self._refusal(d)) for d in self._decisions]
        unused += [("message", m, "the run ended before") for m in self._messages]
        for kind, value, reason in unused:
            text = json.dumps(value, ensure_ascii=False)[:200]
            self.complaints.append(f"the {kind} {text} was not needed: {reason}")
        self.status = self.run.finished or AWAITING
        self.started = [call for _, call in sorted(self._started, key=lambda pair: pair[0])]
        self.result = build_result(self.run.walk, self.run.usage, self.run.finished)
        if self.run.approvals.records:
            self.result["decisions"] = self.run.approvals.records
        if self.run.undone is not None:
            self.result["undone"] = self.run.undone
        self.calls = list(zip(self.run.walk.nodes, self.run.walk.calls, strict=True))

    # -- what can happen next; False if it cannot -------------------------------------------------

    def _answer_question(self) -> bool:
        """Answer the first Call that a person answers, if there is a canned result; else a decision may."""
        questions = (w for w in self.run.approvals.waits.own if w.what == wire.ANSWER and w.key not in self._questions)
        wait = next(questions, None)
        call = None if wait is None else self.run.walk.find(wait.call, wait.instance)
        if wait is None or call is None:
            return False
        self._questions.add(wait.key)
        about = {"call": wait.call, "by": "the test"} | ({"instance": wait.instance} if wait.instance else {})
        try:
            output, _ = self._find_result(call.node, call.resolved or {})
            decision = {"decision": wire.ANSWER, "output": output, **about}
        except CallError as error:
            if error.code == _NO_RESULT:
                return True
            decision = {"decision": wire.REJECT, "reason": error.message, **about}
        self._record(commands.StartCall(call.node, call.resolved or {}, []))
        self._handle(events.DecisionReceived(decision, None, "answer"))
        return True

    def _decide(self) -> bool:
        """Send the first decision that something waits for."""
        if self.script.decisions == APPROVE_ALL:
            waits = [wait for wait in self.run.approvals.waits.own if wait.what != wire.ANSWER][:1]
            targets = [{"decision": APPROVE_ALL, "call": wait.call, "instance": wait.instance} for wait in waits]
            decisions: list[Mapping[str, Any]] = [{k: v for k, v in target.items() if v} for target in targets]
        else:
            decisions = [decision for decision in self._decisions if not self._refusal(decision)][:1]
            self._decisions = [d for d in self._decisions if not any(d is decision for decision in decisions)]
        for decision in decisions:
            self._handle(events.DecisionReceived(dict(decision), None, "decision"))
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
        command, call = self._in_flight.pop(min(self._in_flight))
        key, value, chosen, failure = command.node.key, None, None, None
        try:
            result, chosen = self._find_result(command.node, call)
            value = json.loads(json.dumps(result))
        except CallError as error:
            failure = error
            if error.code == _NO_RESULT:
                self.complaints.append(error.message)
        if isinstance(command, commands.StartChild):
            report = {"output": value, **({} if chosen is None else {"path": chosen})} if failure is None else None
            self._handle(events.ChildEnded(key, report, failure, accounting=Accounting()))
        else:
            self._handle(events.CallEnded(key, value, chosen, error=failure))
        return True

    def _find_result(self, node: PlannedCall, call: Mapping[str, Any]) -> tuple[Json, int | None]:
        """What a Call that has started returns and, of a model, the index of the outcome that it chooses. Raises
        CallError: it fails, or there is no result for it.
        """
        name = next((n for n in names_of(node) if n in self.script.results), None)
        if name is None:
            text = brief({k: v for k, v in call.items() if not k.startswith("_")}, 200)
            raise _CannedResultError(f"{_describe(node)} has no canned result; it is called with {text}")
        result = self.script.results[name]
        if isinstance(result, dict) and isinstance(listed := result.get("$sequence"), list):
            count = self._counts[name] = self._counts.get(name, 0) + 1
            if count > len(listed):
                text = f"{name}: $sequence has {len(listed)} results, {_describe(node)} needs one more"
                raise _CannedResultError(text)
            result = listed[count - 1]
        if not callable(result):
            return _read_result(name, result, node)
        try:
            return result(dict(call)), None
        except CallError:
            raise
        except Exception as error:
            # An ApplicationError's type is its code, as in a run
            code = getattr(error, "type", None) or type(error).__name__
            raise CallError(str(code), str(getattr(error, "message", None) or error)) from error

    def _provide(self) -> bool:
        if not self._messages:
            return False
        message = parse_message(self._messages.pop(0))
        if isinstance(message, Data):
            self._handle(events.Provided(message))
        else:
            self.complaints.append("only a data, input or state message can be provided")
        return True

    def _pass_deadline(self) -> bool:
        if not self._timers or self.script.ends_waiting:
            return False
        name = min(self._timers, key=lambda n: self._timers[n])
        self.now = max(self.now, self._timers.pop(name))
        self._handle(events.TimerFired(name))
        return True

    # -- the machine ------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        for command in self.run.handle(event, iso(self.now)):
            self._perform(command)
        for command in self.run.flush(iso(self.now)):
            self._perform(command)

    def _perform(self, command: Any) -> None:
        match command:
            case commands.StartCall() | commands.AskOutput() | commands.StartChild(type=wire.DELEGATE):
                place, call = self._record(command)
                self._in_flight[place] = command, call
            case commands.StartChild(name=wire.UNDO):  # here, each of its Calls completes
                calls = [{"state": "completed"} for step in self.run.undo_steps() if step.problem is None]
                report = {"status": "completed", "calls": calls}
                self._handle(events.ChildEnded(wire.UNDO, report, accounting=Accounting()))
            case commands.StartBackground():
                self._record(command)
                self._handle(events.CallDetached(command.node.key))
            case commands.StartEngineActivity():  # the definition of a delegate, which has no content here
                self._handle(events.CallEnded(command.key, {"sha256": ""}))
            case commands.StartTimer() if command.name != QUEUE_TIMER:
                self._timers[command.name] = self.now + timedelta(seconds=command.seconds)
            case commands.CancelTimer():
                self._timers.pop(command.name, None)
            case commands.AnswerUpdate() if command.problem is not None:
                self.complaints.append(f"a decision was refused: {command.problem.message}")
            case _:
                pass  # records for other runs, checks of queues, the end

    def _record(self, command: Any) -> tuple[tuple[int, int], dict[str, Any]]:
        """Note that a Call is started; returns where it stands in plan order, and the Call as it is sent."""
        sent = getattr(command, "input", command)
        if isinstance(sent, BackgroundInput):
            sent = sent.delegate or sent
        call, node = sent.input if isinstance(sent, DelegateInput) else sent.call, command.node
        parameters = {k: v for k, v in call.items() if not k.startswith("_")}
        started = StartedCall(node.id, _call_id(node), node.tool.name, parameters, list(sent.context), node.instance)
        place = self.run.walk.by_key[node.key].rank, -1 if node.element is None else node.element
        self._started.append((place, started))
        return place, call


# == cases of a file ===========================================================================


Status = Literal["completed", "partial", "failed", "rejected", "awaiting"]
Decisions = Literal["approve"] | list[dict[str, Any]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ExpectedCall(_Part):
    """A Call that runs, and what it is called with."""

    call: str
    parameters: dict[str, Any] | None = Field(default=None, alias="with")


class ExpectedError(_Part):
    """A failure that no error path took."""

    call: Any = None
    instance: Any = None
    code: Any = None
    message: Any = None


class ExpectedEnd(_Part):
    """How a run, or one instance of it, ends. Of ``state``, what must be in it; of ``exactState``, all of it."""

    status: Status = "completed"
    state: Any = None
    exactState: Any = None


# A text is the id of a Call
_OfCall: Final = BeforeValidator(lambda row: {"call": row} if isinstance(row, str) else row)


class Expectations(ExpectedEnd):
    """What a case expects. None: nothing is expected of it.

    ``calls`` are the Calls that run, in plan order; ``states`` the final state by Call id.
    """

    calls: list[Annotated[ExpectedCall, _OfCall]] | None = None
    states: dict[str, str] = {}
    errors: list[Annotated[ExpectedError, _OfCall]] | None = None
    instances: dict[str, ExpectedEnd] = {}


class PlanCase(_Part):
    """One case. ``context`` are messages that are added to the plan's, ``provide`` those that come while it runs."""

    name: str = ""
    input: Any = None
    context: list[Any] = []
    results: dict[str, Any] = {}
    decisions: Decisions = []
    provide: list[Any] = []
    expect: Expectations = Expectations()

    @property
    def messages(self) -> list[Any]:
        """The messages that are added to the plan's, the input last."""
        own = [{"type": "input", "input": self.input}] if "input" in self.model_fields_set else []
        return [*self.context, *own]


class CaseFile(_Part):
    """A test file. ``plan`` is the path of the plan, relative to the file; None: the file beside it.

    ``results`` and ``decisions`` are shared by the cases that have none of their own.
    """

    plan: str | None = None
    cases: list[PlanCase] = Field(min_length=1)
    results: dict[str, Any] = {}
    decisions: Decisions = []

    @field_validator("cases")
    @classmethod
    def _have_own_names(cls, cases: list[PlanCase]) -> list[PlanCase]:
        for number, case in enumerate(cases, 1):
            case.name = case.name or f"case {number}"
        names = [case.name for case in cases]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f'two cases are called "{repeated[0]}"')
        return cases


def read_case_file(raw: Json) -> CaseFile:
    """A test file from its JSON; its cases have the results and decisions that they share. Raises InvalidRequest: with
    every problem.
    """
    try:
        file = CaseFile.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest([_problem(item) for item in error.errors(include_url=False)]) from None
    for case in file.cases:
        case.results = {**file.results, **case.results}
        if "decisions" not in case.model_fields_set:
            case.decisions = file.decisions
    return file


_PARTS: Final = (CaseFile, PlanCase, Expectations, ExpectedCall, ExpectedError)
_KEYS: Final = sorted({f.alias or name for part in _PARTS for name, f in part.model_fields.items()})


def _problem(error: ErrorDetails) -> Problem:
    """A problem of the file from one of pydantic's errors."""
    key = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return Problem("testFile", f'unknown key "{key}"', pointer(*error["loc"]), hint=suggest(key, _KEYS))
    return Problem("testFile", f'"{key}": {error["msg"]}', pointer(*error["loc"]))


_ABSENT: Final = {"$absent": True}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference. ``expected`` and ``actual`` are JSON to be compared; both None where the text says it all."""

    text: str
    expected: Json = None
    actual: Json = None

    def to_json(self) -> dict[str, Any]:
        """``{message, expected?, actual?}``"""
        values = {"expected": self.expected, "actual": self.actual}
        return {"message": self.text, **(values if any(v is not None for v in values.values()) else {})}


def find_mismatches(case: PlanCase, rehearsal: Rehearsal) -> list[Mismatch]:
    """Every difference between what happened and what the case expects."""
    expect, nodes, results = case.expect, [node for node, _ in rehearsal.calls], rehearsal.result.get("instances") or {}
    names = [*dict.fromkeys(name for node in nodes for name in (node.tool.name, node.id))]
    all_names, out = {name for node in nodes for name in names_of(node)}, list[Mismatch]()
    for name in case.results:
        if name not in all_names and name.rpartition("[")[0] not in all_names:
            hint = f" ({text})" if (text := suggest(name, names)) else ""
            out.append(Mismatch(f'no call of the plan has the canned result "{name}"{hint}'))
    out += [Mismatch(text) for text in rehearsal.complaints]
    out += _compare_end(expect, rehearsal.status, rehearsal.result)
    if expect.calls is not None:
        out += _compare_calls(expect.calls, rehearsal.started)
    for id_, state in expect.states.items():
        states = {call.state for node, call in rehearsal.calls if id_ in (node.id, f"{node.instance}/{node.id}")}
        if states != {state}:
            out.append(Mismatch(f"{id_} is {', '.join(sorted(states)) or 'no call of the plan'}, not {state}"))
    if expect.errors is not None:
        rows, errors = [row.model_dump(exclude_unset=True) for row in expect.errors], rehearsal.result["errors"]
        if len(rows) != len(errors) or any(row != project(row, dict(e)) for row, e in zip(rows, errors, strict=True)):
            out.append(Mismatch("the errors differ", rows, [dict(error) for error in errors]))
    for id_, end in expect.instances.items():
        if id_ in results:
            out += _compare_end(end, results[id_]["status"], results[id_], f" of the instance {id_}")
        else:
            out.append(Mismatch(f"there is no instance {id_}"))
    return out


def _compare_end(expect: ExpectedEnd, status: str, result: Mapping[str, Any], whose: str = "") -> list[Mismatch]:
    out = []
    if status != expect.status:
        reasons = "".join(f"; {e['call']}: [{e['code']}] {e['message']}" for e in result["errors"][:3])
        out.append(Mismatch(f"the status{whose} is {status}, not {expect.status}{reasons}"))
    part, whole = project(expect.state, result["state"]), result["state"]
    for wanted, actual in ((expect.state, part), (expect.exactState, whole)):
        if wanted is not None and actual != wanted:
            out.append(Mismatch(f"the state{whose} differs", wanted, actual))
    return out


def project(expected: Json, actual: Json) -> Json:
    """The part of a value that an expectation names; ``{"$absent": true}`` for what it says is absent, and is."""
    if expected == _ABSENT:
        return _ABSENT if actual is ABSENT else actual
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return actual
    parts = {k: project(v, actual.get(k, ABSENT)) for k, v in expected.items()}
    return {k: v for k, v in parts.items() if v is not ABSENT}


def _compare_calls(expected: Sequence[ExpectedCall], started: Sequence[StartedCall]) -> list[Mismatch]:
    """Compare the Calls that ran, in plan order. A Call with elements is one row, unless a row names an element."""
    named = [row.call for row in expected]
    by_element = {call.call_id for call in started if call.id in named}
    actual: dict[tuple[str, str | None], StartedCall] = {}
    for call in started:
        actual.setdefault((call.id if call.call_id in by_element else call.call_id, call.instance), call)
    ids = [id_ for id_, _ in actual]
    if ids != named:
        return [Mismatch("other calls ran", named, ids)]
    out = []
    for row, call in zip(expected, actual.values(), strict=True):
        parameters = project(row.parameters, call.parameters)
        if row.parameters is not None and parameters != row.parameters:
            out.append(Mismatch(f"{row.call} is called with other parameters", row.parameters, parameters))
    return out
