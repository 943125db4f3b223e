"""Whatever comes from outside a run, its machine does not raise, and only its own tree changes its budget."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acts.language.config import Budget
from acts.language.messages import read_request
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.approvals import iso
from acts.machines.events import Begin, DecisionReceived, Event, PauseChanged, RecordReceived
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.run_machine import RunMachine
from acts.plan.validate import validate_parsed
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.records import Capabilities, ContextRef, TreePosition
from acts.tree.signal_records import TreeSignal
from tests.property.simulated_tree import START
from tests.strategies import values
from tests.workflow.foreign import call, tool

Json = Any
TOKEN = "of this tree"  # noqa: S105
NOW = iso(START)
NAMES = st.text(max_size=5)
PLAIN: dict[Json, st.SearchStrategy[Json]] = {
    Any: values, str: NAMES, int: st.integers(0, 2**40), bool: st.booleans(), type(None): st.none(),
    float: st.floats(0, 1e6), Budget: st.builds(Budget, requests=st.none() | st.integers(0, 9), cost=st.none()),
    Decision: st.builds(Decision, decision=st.just("approve"), call=st.none() | NAMES),
    PendingApproval: st.builds(PendingApproval, workflow_id=NAMES, what=NAMES, version=st.integers(), since=NAMES),
}  # fmt: skip


def of_type(annotation: Json) -> st.SearchStrategy[Json]:
    """Values of a field, free-form JSON for ``Any``."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, args))
    if origin is dict:
        return st.dictionaries(of_type(args[0]), of_type(args[1]), max_size=3)
    return PLAIN[annotation] if annotation in PLAIN else records(annotation)


def records(class_: Any) -> st.SearchStrategy[Any]:
    fields = {name: of_type(field.annotation) for name, field in class_.model_fields.items() if name != "v"}
    optional = {
        name: fields.pop(name) for name, f in class_.model_fields.items() if name in fields and not f.is_required()
    }
    return st.fixed_dictionaries(fields, optional=optional).map(lambda drawn: class_(**drawn))


REQUEST = {
    "config": {"approve": {"calls": ["pay"]}, "budget": {"requests": 5}},
    "context": [
        tool("pay", activity="pay"),
        {"type": "plan", "plan": [call("pay", "†state.a", n=1), call("pay", "†state.b")]},
    ],
}
words = st.sampled_from(["approve", "reject", "edit", None])
keys = st.sampled_from(
    ["decision", "call", "plan", "with", "version", "workflowId", "instance", "by", "reason", "note"]
)
texts = st.sampled_from(["approve", "edit", "1:pay", "2:pay", "r", "r/x", "", "†state.a"])
calls = st.dictionaries(
    st.sampled_from(["_tool", "_outputPath", "_when", "n", "_instance"]), texts | values, max_size=4
)
raws = st.dictionaries(keys, texts | values | calls | st.lists(calls, max_size=2), max_size=5) | values
signals = st.one_of([records(class_) for class_ in TreeSignal.__subclasses__()])


def plan_run() -> RunMachine:
    parsed = read_request(REQUEST)
    prepared = validate_parsed(parsed, {}, [])
    position = TreePosition(token=TOKEN).with_budget("r", parsed.config.budget)
    source = ContextRef(workflowId="r", runId="1", messageCount=2)
    setup = PlanSetup(REQUEST, prepared, Capabilities(), position, source)
    return PlanRun("r", setup, lambda node: node.id)


def agent_run() -> RunMachine:
    raw = {"config": {"model": "scripted:x", "budget": {"requests": 5}}, "context": REQUEST["context"]}
    parsed = read_request(raw)
    position = TreePosition(ancestors=("r",), token=TOKEN).with_budget("r/x", Budget(requests=5))
    return AgentRun("r/x", AgentSetup(raw, parsed, Capabilities(), position, "1"))


def all_of(machine: RunMachine) -> Json:
    return machine.snapshot(), machine.phase, machine.approvals.pending


events: st.SearchStrategy[Event] = st.one_of(
    st.builds(DecisionReceived, raws, words, st.none() | st.just("u")),
    st.builds(RecordReceived, signals.map(lambda r: r.model_copy(update={"token": "forged"}))),
    st.builds(PauseChanged, st.booleans()),
)  # fmt: skip
many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("make", [plan_run, agent_run])
def test_no_event_from_outside_makes_a_machine_raise(make: Any) -> None:
    @many
    @given(st.lists(events, max_size=8))
    def check(sent: list[Event]) -> None:
        machine = make()
        machine.handle(Begin(), NOW)
        machine.flush(NOW)
        for event in sent:
            machine.handle(event, NOW)
            machine.flush(NOW)

    check()


@pytest.mark.parametrize("make", [plan_run, agent_run])
def test_a_record_without_the_token_of_the_tree_changes_nothing_but_the_notes(make: Any) -> None:
    @many
    @given(signals)
    def check(record: TreeSignal) -> None:
        machine = make()
        machine.handle(Begin(), NOW)
        before = all_of(machine)
        assert machine.handle(RecordReceived(record), NOW) == []
        assert all_of(machine) == before
        assert "does not come from a run of this tree" in machine.notes[-1]

    check()


@pytest.mark.parametrize("make", [plan_run, agent_run])
def test_whatever_a_run_sends_has_the_token_of_its_tree(make: Any) -> None:
    machine = make()
    sent = [c for c in [*machine.handle(Begin(), NOW), *machine.flush(NOW)] if hasattr(c, "record")]
    assert all(command.record.token == TOKEN for command in sent)
    assert bool(sent) is bool(machine.position.ancestors)
