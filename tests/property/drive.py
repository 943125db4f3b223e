"""Performs the commands of a walk in any order of completion, and compares the outcome with the oracle's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings

from acts.language.errors import CallError, InvalidRequest
from acts.language.messages import Data, parse_message, parse_request
from acts.language.references import Path, parse_condition
from acts.language.strict_json import write_json
from acts.language.values import ABSENT
from acts.language.wire import ANONYMOUS
from acts.machines.agent_run import AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.machines.call_state import SETTLED, call_item
from acts.machines.commands import AskHuman, Command, EndEarly, Finish, StartCall, StartChild, StartTimer
from acts.machines.events import Begin, CallEnded, ChildEnded, TimerFired
from acts.machines.walk import Walk
from acts.plan.calls import PlannedCall
from acts.plan.context_log import END, Log
from acts.plan.graph import Graph
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.child_requests import anonymous_request, build_delegate_input, delegate_request, inner_plan
from acts.tree.past_run import UndoStep
from acts.tree.records import Capabilities, ContextRef, TreePosition, WalkState
from tests import oracle
from tests.cases import row


def many(examples: int) -> settings:
    """So many examples, or as many as ``TEST_EXAMPLES`` says; a busy machine is not a slow engine."""
    return settings(
        max_examples=int(os.environ.get("TEST_EXAMPLES", str(examples))), deadline=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


ENGINE_CODES = {
    *("UnresolvedReference", "WrongKind", "OutsideOutputPath", "eachFailed"),
    *("InvalidRequest", "PlanFailed", "untilUnmet", "computeFailed", "httpStatus", "DelegateNotFound", "PlanNotFound"),
}
DATE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_DECODER = json.JSONDecoder()
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def identify(node: PlannedCall) -> str:
    return f"run/{node.id}"


class Drive:
    """A walk, and a shell that performs its commands. A Call reports when ``finish`` is called for it.

    ``id_`` is the key of a Call or of an element: its id, where the plan is not walked for several instances.
    """

    def __init__(
        self,
        request: dict[str, Any] | ValidatedPlan,
        results: dict[str, Any],
        *,
        growing: bool = False,
        until: str | None = None,
        is_scripted: bool = False,
    ) -> None:
        """``is_scripted``: of compute and of plans inside the plan, too, the results are given."""
        self.is_scripted = is_scripted
        self.prepared = request if isinstance(request, ValidatedPlan) else validate_request(request)
        self.results = results
        self.started: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self.running: list[str] = []
        self.questions: list[str] = []
        self.most_running = 0
        self.final_statuses: list[str] = []
        self.commands: list[Command] = []
        self.inside: list[Drive] = []  # the plans that its Calls had walked
        self.walk = Walk(self.prepared, identify)
        self.walk.growing = growing
        self.walk.until = None if until is None else parse_condition(until)
        self.perform(self.walk.begin(NOW))

    @property
    def is_busy(self) -> bool:
        return bool(self.running) or self.walk.next_wake is not None

    @property
    def open(self) -> int:
        """How many Calls have not settled."""
        return sum(call.stage not in SETTLED for call in self.walk.calls)

    def rank(self, id_: str) -> int:
        """The rank of a Call; an element has that of its Call."""
        return self.walk.by_key[id_].rank

    def node(self, id_: str) -> PlannedCall:
        """The Call, or the element; of an element that had settled when the plan was edited, its Call."""
        by_key = self.walk.by_key
        return (by_key.get(id_) or by_key[oracle.call_of(id_)]).node

    def state(self, id_: str) -> str:
        return self.walk.by_key[id_].state

    def result(self, id_: str) -> Any:
        """The scripted result of a Call or of an element; one for the Call holds for all of its elements."""
        own = self.node(id_).id
        return self.results.get(own, self.results.get(oracle.call_of(own)))

    def perform(self, commands: list[Command]) -> None:
        self.commands += commands
        for command in commands:
            match command:
                case StartCall():
                    id_ = command.node.key
                    assert id_ not in self.started, f"{id_} was started twice"
                    assert command.call["_id"] == self.walk.identify(command.node)
                    parameters = {k: v for k, v in command.call.items() if not k.startswith("_")}
                    self.started[id_] = (json.loads(json.dumps(parameters)), json.loads(json.dumps(command.context)))
                    self.running.append(id_)
                    self.most_running = max(self.most_running, len(self.running))
                case AskHuman():
                    self.questions.append(command.node.id)
                case EndEarly():
                    self.perform(self.walk.cancel(NOW))
                case Finish():
                    self.final_statuses.append(command.status)

    def finish(self, id_: str) -> None:
        """A running Call reports its scripted result or failure, or that it was started."""
        self.running.remove(id_)
        result = self.result(id_)
        parameters, context = self.started[id_]
        if not self.is_scripted and self.node(id_).kind == "delegate":
            result = self.delegate(id_, parameters, context, result)
        elif not self.is_scripted and self.node(id_).tool.name == "compute":
            result = oracle.compute(**parameters)
        if isinstance(result, dict) and set(result) == {"$fail"} and not self.node(id_).is_detached:
            error = call_error(result)
            self.perform(self.walk.failed(id_, error, NOW))
        else:
            self.perform(self.walk.completed(id_, json.loads(json.dumps(result)), NOW))

    def delegate(self, id_: str, parameters: Any, context: list[Any], scripted: Any) -> Any:
        """What the run behind a Call makes of its Activity, of the plan in the Call, or of a definition."""
        node, position = self.node(id_), TreePosition()
        call = {**parameters, "_id": self.walk.identify(node)}
        if node.delegate == ANONYMOUS:
            own = build_delegate_input(call, context, node, {}, position, {})
            return self.answer_alone(AnonymousDelegate(
                id_, own, position, validate_request(anonymous_request(own)), Capabilities(),
                ContextRef(workflowId="run", runId="1", messageCount=0),
            ), scripted, (call, context))  # fmt: skip
        if oracle.is_failure(scripted):
            return scripted
        plan = inner_plan(parameters, self.prepared, Capabilities()) if node.walks_plan else None
        definition, results = {"context": [{"type": "plan", "plan": parameters.get("plan")}]}, scripted
        if plan is None or plan.calls is None:
            definition, results = scripted["definition"], scripted["results"]
        own = build_delegate_input(call, context, node, {}, position, {}, plan=plan)
        request = delegate_request(own, definition)
        delegate = WalkedDelegate(id_, own, position, parse_request(request), request)
        commands, steps = delegate.handle(Begin(), NOW), list[UndoStep]()
        while delegate.finished is None:
            (start,) = [c for c in commands if isinstance(c, StartChild | StartTimer)]
            if isinstance(start, StartTimer):
                commands = delegate.handle(TimerFired(start.name), NOW)
                continue
            report, error = None, None
            try:
                inner = Drive(start.input.request, results, until=start.input.until)
            except InvalidRequest as invalid:
                codes = {p.code for p in invalid.problems if p.fatal}
                error = CallError("InvalidRequest" if codes <= {"cycle", "unknownReference"} else "", str(codes))
            else:
                inner.finish_all()
                self.inside.append(inner)
                (status,) = inner.final_statuses
                report = {"status": status, "errors": [], "context": inner.walk.context.appended()}
                report |= {"reached": inner.walk.is_reached, "undo": [s.to_json() for s in inner.walk.undo_steps()]}
            commands = delegate.handle(ChildEnded(start.key, report, error), NOW)
        steps = [step.to_json() for step in delegate.steps]
        if not self.node(id_).is_detached:
            self.walk.inner_plan_ended(id_, steps)
        return outcome_of(delegate)

    def answer_alone(self, delegate: AnonymousDelegate, scripted: Any, sent: Any) -> Any:
        (start,) = delegate.handle(Begin(), NOW)
        call = {k: v for k, v in start.call.items() if k == "_id" or not k.startswith("_")}
        assert (call, start.context) == sent, "its Activity is called as the Call would be"
        error = call_error(scripted) if oracle.is_failure(scripted) else None
        delegate.handle(CallEnded(start.node.key, None if error else scripted, error=error), NOW)
        return outcome_of(delegate)

    def finish_next(self, order: Sequence[int]) -> None:
        """The most urgent of the running Calls reports, else waits are over; ``order`` lists positions of Calls."""
        if not self.running:
            self.perform(self.walk.wake(LATER))
            return
        self.finish(min(self.running, key=lambda id_: self.urgency(id_, order)))

    def urgency(self, id_: str, order: Sequence[int]) -> tuple[int, int]:
        """As listed in ``order``; the elements of a Call that is at an odd place there report last to first."""
        node = self.node(id_)
        place = order.index(node.index)
        return place, (node.element or 0) * (1 - 2 * (place % 2))

    def finish_all(self, order: Sequence[int] | None = None) -> None:
        while self.is_busy:
            self.finish_next(range(len(self.walk.nodes)) if order is None else order)

    def carry_over(self) -> None:
        """Continue-as-new: the walk becomes JSON, its keys sorted as a codec may do, and is restored from it."""
        snapshot = json.loads(json.dumps(self.walk.snapshot().to_json(), sort_keys=True))
        self.walk = Walk(self.prepared, identify)
        self.walk.restore(WalkState.from_json(snapshot))
        self.perform(self.walk.begin(NOW))

    def extend(self, prepared: ValidatedPlan) -> None:
        """More of a plan that is still being written."""
        self.perform(self.walk.change_plan(prepared, NOW, edited=False))
        self.prepared = prepared

    def edit(self, prepared: ValidatedPlan, results: dict[str, Any]) -> None:
        """A person edits the plan: walk it from now on, with these results."""
        commands = self.walk.change_plan(prepared, NOW)
        self.prepared, self.results, self.final_statuses = prepared, results, []
        self.perform(commands)

    def observe(self) -> dict[str, Any]:
        """Everything about the walk that can be seen from outside."""
        walk = self.walk
        return {
            "states": {n.id: r.state for n, r in zip(walk.nodes, walk.calls, strict=True)},
            "errors": {n.id: r.error for n, r in zip(walk.nodes, walk.calls, strict=True)},
            "paths": {n.id: call_item(walk.calls[rank]).get("outputPath") for rank, n in enumerate(walk.nodes)},
            "appended": walk.context.appended(),
            "views": views(walk.context.log, self.prepared),
        }


def call_error(result: Any) -> CallError:
    return CallError(*result["$fail"].values())


def outcome_of(delegate: DelegateMachine) -> Any:
    """What the run above is told."""
    if delegate.failure is not None:
        failure, details = delegate.failure, delegate.result.get("details")
        return {"$fail": {"type": failure.code, "message": failure.message, "details": details}}
    return delegate.result["output"]


def begin(*plan: dict[str, Any], context: Any = (), results: Any = None, config: Any = None) -> Drive:
    """The walk of these Calls, begun; ``results`` are by Tool."""
    case = row("one of a kind", list(plan), context=context, results=results)
    request = case["request"] if config is None else {**case["request"], "config": config}
    return Drive(request, case["results"])


def data_message(raw: Any) -> Data:
    message = parse_message(raw)
    assert isinstance(message, Data)
    return message


def kinds_of(prepared: ValidatedPlan) -> list[str]:
    kinds = [m.kind for m in prepared.request.data()] + [p.kind for n in prepared.nodes for p in n.writes]
    return list(dict.fromkeys(kinds))


def views(log: Log, prepared: ValidatedPlan) -> dict[str, Any]:
    """The view of every kind that is present, globally and of each instance."""
    out = {}
    for instance in (None, *prepared.request.instances()):
        for kind in kinds_of(prepared):
            value = log.read(Path(kind), END, instance)
            if value is not ABSENT:
                out[f"{instance or ''}†{kind}"] = value
    return out


def plain(value: Any) -> Any:
    """A value without what the oracle does not model: dates, and the wording of the engine's own errors."""
    if isinstance(value, dict):
        value = {k: plain(v) for k, v in value.items() if k != "_date"}
    elif isinstance(value, list):
        value = [plain(v) for v in value]
    elif isinstance(value, str) and DATE.fullmatch(value):
        return oracle.SOME_TEXT
    return without_wording(value)


def without_wording(value: Any) -> Any:
    """A value with one text in place of the messages of the engine's own errors, also of those inside a text."""
    if isinstance(value, str):
        return _without_wording_in_text(value)
    if isinstance(value, list):
        return [without_wording(v) for v in value]
    if not isinstance(value, dict):
        return value
    is_own = value.get("code") in ENGINE_CODES and "message" in value
    return {k: oracle.SOME_TEXT if is_own and k == "message" else without_wording(v) for k, v in value.items()}


def _without_wording_in_text(text: str) -> str:
    """An error is there as JSON, maybe nested in the details of another."""
    out, place = "", 0
    while (start := text.find("{", place)) >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except ValueError:
            value, end = None, start + 1
        other = without_wording(value)
        out += text[place:start] + (text[start:end] if other == value else write_json(other).decode())
        place = end
    return out + text[place:]


def find_dependencies(graph: Graph, rank: int) -> set[int]:
    return {entry for chain, count in graph.waits[rank] for entry in chain.entries[:count]}


def assert_equal_to_the_serial_run(drive: Drive, expected: oracle.Outcome) -> None:
    walk = drive.walk
    assert [n.id for n in walk.nodes] == expected.order
    for rank, node in enumerate(walk.nodes):
        waited_for = {walk.nodes[d].id for d in find_dependencies(drive.prepared.graph, rank)}
        assert waited_for == expected.depends[node.id], f"dependencies of {node.id}"
    observed = drive.observe()
    assert observed["states"] == expected.states
    assert observed["paths"] == expected.paths
    assert {k: plain(e) for k, e in observed["errors"].items() if e} == expected.errors
    assert {k: (plain(p), plain(c)) for k, (p, c) in drive.started.items()} == expected.started
    assert plain(observed["appended"]) == expected.appended
    assert plain(observed["views"]) == expected_views(drive.prepared, expected)


def expected_views(prepared: ValidatedPlan, expected: oracle.Outcome) -> dict[str, Any]:
    out = {}
    for instance in (None, *prepared.request.instances()):
        for kind in kinds_of(prepared):
            view = expected.view(kind, instance)
            if view is not oracle.ABSENT:
                out[f"{instance or ''}†{kind}"] = view
    return out


def assert_nothing_waits_needlessly(drive: Drive, expected: oracle.Outcome) -> None:
    """Every Call whose dependencies have settled runs; every result that no write can refuse any more is written."""
    walk = drive.walk
    settled = {n.id for n, r in zip(walk.nodes, walk.calls, strict=True) if r.state in SETTLED}
    running = {oracle.call_of(id_) for id_ in drive.running}
    for rank, node in enumerate(walk.nodes):
        elements = walk.calls[rank].elements
        assert elements is None or not elements.unstarted
        if node.id in settled or node.id in running:
            continue
        if walk.calls[rank].stage == "applying":
            assert any(w.id not in settled and _may_refuse(w, node) for w in walk.nodes[:rank]), f"{node.id}: result"
        else:
            assert not expected.depends[node.id] <= settled, f"{node.id} waits for nothing"


def _may_refuse(writer: PlannedCall, node: PlannedCall) -> bool:
    visible = writer.instance is None or writer.instance == node.instance
    return visible and any(w.overlaps(p) for w in writer.writes for p in node.writes)
