"""Runs that a reset left behind, and what an anonymous delegate reads."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.admission import Work
from acts.language.messages import read_request
from acts.machines import commands
from acts.machines.agent_run import AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.machines.commands import SendRecord, StartTimer
from acts.machines.events import (
    Begin,
    CallEnded,
    ChildEnded,
    ChildStarted,
    DecisionReceived,
    RecordEnded,
    RecordReceived,
    RunReset,
    TimerFired,
)
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.plan.validate import validate_parsed
from acts.tree.child_requests import anonymous_request, child_schema
from acts.tree.records import AnonymousCall, Capabilities, ContextRef, DelegateInput, TreePosition
from acts.tree.signal_records import ChildReset, Resync, RunEnded, Superseded

NOW = "2026-01-01T00:00:00.000Z"
SOURCE = ContextRef(workflowId="r", runId="run", messageCount=3)
TOOLS: list[dict[str, Any]] = [
    {"type": "tool", "tool": {"type": "object", "properties": {"_tool": {"const": name}, **rest}}}
    for name, rest in (
        ("load", {"_activity": {"const": "load"}, "_outputPath": {"const": "†state.a"}}),
        ("other", {"_delegate": {"const": "d"}, "_outputPath": {"const": "†state.d"}}),
    )
]
LOAD = {"_tool": "load"}
SERVED = ("load",)


def plan_run(calls: list[dict[str, Any]], **config: Any) -> PlanRun:
    raw = {"config": config, "context": [*TOOLS, {"type": "plan", "plan": calls}]}
    prepared = validate_parsed(read_request(raw), {}, SERVED)
    setup = PlanSetup(raw, prepared, Capabilities(served=SERVED), TreePosition(), SOURCE)
    return PlanRun("r", setup, lambda node: f"key of {node.id}")


def test_what_one_workflow_task_has_no_time_for_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = property(lambda work: work.task_steps + work.steps.spent > 0)
    monkeypatch.setattr(Work, "is_spent", spent)
    properties = {"_activity": {"const": "load"}, "_outputPath": {}, "_each": {}, "x": {}}
    tool = {"type": "tool", "tool": {"type": "object", "properties": {"_tool": {"const": "look"}, **properties}}}
    ids, state = "†state.orders[*].id", {"orders": [{"id": 1}]}
    calls = [
        {"_tool": "look", "x": ids, "_outputPath": "†state.a"}, {"_tool": "look", "x": ids, "_outputPath": "†state.b"},
        {"_tool": "look", "_each": [[1], [2], [3]], "x": "†state.a && †item[*]", "_outputPath": "†state.c"},
        {"_tool": "look", "x": f"†state.b && {ids}", "_outputPath": "†state.d"},
    ]  # fmt: skip
    raw = {"context": [tool, {"type": "state", "state": state}, {"type": "plan", "plan": calls}]}
    prepared = validate_parsed(read_request(raw), {}, SERVED)
    run = PlanRun("r", PlanSetup(raw, prepared, Capabilities(served=SERVED), TreePosition(), SOURCE), lambda n: n.id)
    tasks: list[list[Any]] = [[Begin()]]
    starts: list[int] = []
    while tasks:
        made = [command for event in tasks.pop(0) for command in run.handle(event, NOW)] + run.flush(NOW)
        ended = [CallEnded(c.node.key, 7) for c in made if isinstance(c, commands.StartCall)]
        starts.append(len(ended))
        tasks += [ended] if ended else []
        tasks += [[TimerFired(c.name)] for c in made if isinstance(c, StartTimer)]
    assert (run.finished, starts) == ("completed", [0, 0, 2, 1, 1, 0, 1, 1, 0, 0])
    assert run.walk.context.log.state() == {**state, "a": 7, "b": 7, "c": [7, 7, 7], "d": 7}


@pytest.mark.parametrize(("missing", "path", "left"), [("fail", "†state.a", ["call"]), ("wait", "†input.late", [])])
def test_what_an_edit_asks_about_is_all_that_waits(missing: str, path: str, left: list[str]) -> None:
    fields = {"_activity": {"const": "load"}, "_scopes": {"type": "array"}, "x": {"type": "number"}}
    tool = {"type": "tool", "tool": {"type": "object", "properties": {"_tool": {"const": "look"}, **fields}}}
    state = {"type": "state", "state": {"a": 1}}
    plan = {"type": "plan", "plan": [{"_tool": "look", "_scopes": ["†state.a"]}]}
    raw = {"config": {"approve": {"scopes": True}, "missing": missing}, "context": [tool, state, plan]}
    prepared = validate_parsed(read_request(raw), {}, SERVED)
    run = PlanRun("r", PlanSetup(raw, prepared, Capabilities(served=SERVED), TreePosition(), SOURCE), lambda n: n.id)
    run.handle(Begin(), NOW)
    assert [wait.what for wait in run.approvals.pending] == ["scopes"]
    run.handle(DecisionReceived({"call": "1:look", "with": {"_tool": "look", "x": path}}, "edit"), NOW)
    assert ([wait.what for wait in run.approvals.pending], run.notes) == (left, [])


@pytest.mark.parametrize(("path", "waits"), [("†state.own", ["call"]), ("†state.shared", ["plan", "call"])])
def test_an_edit_of_one_call_that_changes_what_others_read_asks_about_the_plan_again(
    path: str, waits: list[str]
) -> None:
    fields = {"_activity": {"const": "load"}, "_outputPath": {"type": "string"}, "x": {}}
    tool = {"type": "tool", "tool": {"type": "object", "properties": {"_tool": {"const": "set"}, **fields}}}
    asked = {**tool["tool"]["properties"], "_tool": {"const": "ask"}, "_approval": {"const": True}}
    more = {"type": "tool", "tool": {"type": "object", "properties": asked}}
    own = {"_tool": "ask", "x": 1, "_outputPath": "†state.own"}
    plan = [own, {"_tool": "set", "x": "†state.own || †state.shared", "_outputPath": "†state.other"}]
    state = {"type": "state", "state": {"shared": 1}}
    raw = {"config": {"approve": {"plan": True}}, "context": [tool, more, state, {"type": "plan", "plan": plan}]}
    prepared = validate_parsed(read_request(raw), {}, SERVED)
    run = PlanRun("r", PlanSetup(raw, prepared, Capabilities(served=SERVED), TreePosition(), SOURCE), lambda n: n.id)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    run.handle(DecisionReceived({}, "approve"), NOW)
    run.flush(NOW)
    edited = {**own, "x": 2, "_outputPath": path}
    run.handle(DecisionReceived({"call": "1:ask", "with": edited}, "edit"), NOW)
    assert sorted(wait.what for wait in run.approvals.pending) == sorted(waits)
    assert not run.notes


def own_input(delegate: str, **fields: Any) -> DelegateInput:
    position = TreePosition(ancestors=("r",), depth=1)
    return DelegateInput(
        delegate=delegate, input={}, context=(), config={"model": "scripted:x"}, position=position, **fields
    )


def anonymous(activity: str) -> DelegateMachine:
    schema = {"type": "object", "properties": {"_tool": {"const": "t"}, "_activity": {"const": activity}}}
    call = AnonymousCall(tool="t", toolSchema=schema, served=bool(activity), id="key", path="†state.x")
    own = own_input("anonymous", call=call)
    prepared = validate_parsed(read_request(anonymous_request(own)), {}, ["t"] if activity else [])
    return AnonymousDelegate("r/1:d", own, own.position, prepared, Capabilities(), SOURCE)


HOSTILE = {
    "start": "†state.secret", "inside": "Dear †{state.secret}", "text": "it is in †input.start", "open": "a †{ b",
    "escaped": "††{x} ††", "deep": {"†state.x": ["†{index}"]}, "null": None, 'a "key".[0]': "††x", "": 1,
}  # fmt: skip


def test_an_anonymous_delegate_reads_no_value_as_a_reference_and_no_control_of_its_tool() -> None:
    meta = {"_each": {"const": "†state.list"}, "_when": {"const": "†state.ready"}, "_activity": {"const": "t"}}
    schema = {"type": "object", "properties": {"_tool": {"const": "t"}, **meta}, "_when": "†state.ready"}
    call = AnonymousCall(tool="t", toolSchema=child_schema(schema), served=True, id="key", path="†state.x")
    own = own_input("anonymous", call=call).model_copy(update={"input": HOSTILE})
    prepared = validate_parsed(read_request(anonymous_request(own)), {}, ["t"])
    machine = AnonymousDelegate("r/1:d", own, own.position, prepared, Capabilities(), SOURCE)
    (start,) = machine.handle(Begin(), NOW)
    assert start.call == {"_tool": "t", "_outputPath": "†state.x", **HOSTILE, "_id": "key"}


STARTED = "2026-01-01T00:00:01.000500+00:00"
SENT = {  # when the message was sent: what the run does
    "": [commands.Stop("new")],  # by a worker of an earlier version
    "2026-01-01T00:00:01.000501+00:00": [commands.Stop("new")],
    STARTED: [],
    "2026-01-01T00:00:01.000499+00:00": [],
}


def walked(**position: Any) -> WalkedDelegate:
    """A delegate that has a plan walked, begun; its place in the tree may have more fields."""
    own = own_input("d")
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}]}
    run = WalkedDelegate("r/1:d", own, own.position.model_copy(update=position), read_request(raw), raw)
    run.handle(Begin(), NOW)
    return run


@pytest.mark.parametrize("sent_at", SENT)
def test_a_run_stops_for_another_only_if_it_was_there_when_that_was_said(sent_at: str) -> None:
    run = walked(startedAt=STARTED)
    message = Superseded(token=run.position.token, workflowId=str(run.position.parent), runId="new", sentAt=sent_at)
    assert run.handle(RecordReceived(message), NOW) == SENT[sent_at]


def test_a_run_of_another_parent_does_not_stop() -> None:
    run = walked(startedAt=STARTED)
    message = Superseded(token=run.position.token, workflowId="root/another", runId="new")
    assert run.handle(RecordReceived(message), NOW) == []


def test_a_run_that_was_reset_says_so_to_its_parent_also_when_its_work_is_over() -> None:
    run = walked()
    position = run.position
    message, *_ = run.handle(RunReset("first"), NOW)
    record = ChildReset(token=position.token, workflowId="r/1:d", firstRunId="first")
    assert message == SendRecord(str(position.parent), record)
    assert message in run.handle(RecordReceived(Resync(token=position.token)), NOW), "its parent was reset later"
    run.finished = "completed"
    assert run.handle(RunReset("first"), NOW) == [message]


def test_a_plan_starts_a_child_again_that_a_reset_of_an_earlier_run_has_ended() -> None:
    run = plan_run([{"_tool": "other"}])
    run.handle(Begin(), NOW)
    run.handle(ChildStarted("1:other", "r/1:other", run_id="latest"), NOW)
    record = ChildReset(token=run.position.token, workflowId="r/1:other", firstRunId="earlier")
    assert run.handle(RecordReceived(record), NOW) == [commands.RestartChild("1:other")]
    assert run.handle(RecordReceived(record), NOW) == [], "it is being started"


def test_a_run_below_the_root_starts_a_child_again_when_the_root_has_forgotten_what_the_first_one_held() -> None:
    """The other way round, the root would forget what waits in the second."""
    for failure in (None, "it is gone"):
        run = walked()
        run.handle(ChildStarted("plan", "r/1:d/plan", run_id="latest"), NOW)
        record = ChildReset(token=run.position.token, workflowId="r/1:d/plan", firstRunId="earlier")
        (message,) = run.handle(RecordReceived(record), NOW)
        assert isinstance(message, SendRecord)
        assert (message.workflow_id, message.record) == ("r", RunEnded(workflowId="r/1:d/plan"))
        assert run.handle(RecordEnded(message.key, failure), NOW) == [commands.RestartChild("plan")]


def test_a_plan_that_was_reset_starts_a_child_again_that_is_gone() -> None:
    run = plan_run([{"_tool": "other"}])
    (start,) = run.handle(Begin(), NOW)
    assert isinstance(start, commands.StartChild)
    run.handle(ChildStarted("1:other", "r/1:other"), NOW)
    message, *_ = run.handle(RunReset(), NOW)
    assert isinstance(message, SendRecord)
    assert (message.workflow_id, message.record) == ("r/1:other", Resync(token=run.position.token))
    (timer,) = run.handle(RecordEnded(message.key, "it is gone"), NOW)
    assert isinstance(timer, StartTimer)
    assert run.handle(TimerFired(timer.name), NOW) == [commands.RestartChild("1:other")]
    run.handle(ChildStarted("1:other", "r/1:other"), NOW)
    run.handle(ChildEnded("1:other", {"status": "completed", "output": 1}), NOW)
    assert run.phase == "completed"
