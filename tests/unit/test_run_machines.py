"""The machines of the three kinds of run, as tables: events in, the commands and the phase that come of them.

A row is a script: each step is an event with what the run wants done because of it. The driver and the server
have no part here; what a run does to its history is in tests/workflow.
"""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import CallError
from acts.language.request_reader import parse_message, read_request
from acts.machines import run_commands as commands
from acts.machines.agent_run import AgentRun
from acts.machines.agent_setup import AgentSetup
from acts.machines.approval_effects import AnswerUpdate, CancelTimer, StartTimer
from acts.machines.budget import SendRecord
from acts.machines.delegate_run import AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    DecisionReceived,
    Event,
    ModelAnswered,
    ModelFailed,
    PauseRequested,
    Provided,
    RecordDelivered,
    RecordLost,
    RecordReceived,
    ResumeRequested,
    RunReset,
    StartsHeld,
    StartsReleased,
    TimerFired,
)
from acts.machines.plan_run import PlanRun
from acts.machines.plan_setup import PlanSetup
from acts.machines.run_machine import RunMachine
from acts.plan.validate import validate_parsed
from acts.tree.delegation import anonymous_request
from acts.tree.records import AnonymousCall, Capabilities, ContextRef, DelegateInput, TreePosition
from acts.tree.signal_records import ChildReset, Resync, RunEnded, Superseded

NOW = "2026-01-01T00:00:00.000Z"
SOURCE = ContextRef(workflowId="r", runId="run", messageCount=3)
USAGE = {"requests": 1, "inputTokens": 10, "outputTokens": 5, "cost": 0.0}
TOOLS: list[dict[str, Any]] = [
    {"type": "tool", "tool": {"type": "object", "properties": {"_tool": {"const": name}, **rest}}}
    for name, rest in (
        ("load", {"_activity": {"const": "load"}, "_outputPath": {"const": "†state.a"}}),
        ("save", {"_activity": {"const": "save"}, "a": {}, "_outputPath": {"const": "†state.b"}}),
        ("pay", {"_activity": {"const": "pay"}, "_approval": {"const": True}, "_outputPath": {"const": "†state.paid"}}),
        ("think", {"_activity": {"const": ""}, "_outputPath": {"const": "†state.t"}}),
        ("other", {"_delegate": {"const": "d"}, "_outputPath": {"const": "†state.d"}}),
    )
]
LOAD, SAVE = {"_tool": "load"}, {"_tool": "save", "a": "†state.a"}
SERVED = ("load", "save", "pay")


def describe(command: Any) -> str:  # noqa: PLR0911 - one line for each kind
    """A command in a word or two: what the tables say of it."""
    match command:
        case commands.StartActivity():
            return f"activity {command.node.id}"
        case commands.AskOutput() | commands.StartDelegate() | commands.StartInstances() | commands.StartBackground():
            return f"{type(command).__name__} {command.node.id}"
        case commands.AskSolution():
            return f"solution {command.tick} of {command.message_count}"
        case commands.StartPlanRun():
            return f"plan {command.name}"
        case commands.SignalChildren():
            return f"children {command.signal}"
        case commands.Finish():
            return f"finish {command.status}"
        case AnswerUpdate():
            return f"answer {command.id} {'refused' if command.problem else 'taken'}"
        case StartTimer() | CancelTimer():
            return type(command).__name__
    return type(command).__name__


Step = tuple[Event, list[str]]


def play(machine: RunMachine, steps: list[Step]) -> None:
    for event, expected in steps:
        assert [describe(c) for c in machine.handle(event, NOW)] == expected, f"{event} in phase {machine.phase}"
        machine.flush(NOW)


def done(key: str, value: Any = 1) -> CallCompleted:
    return CallCompleted(key, value, usage=USAGE if "think" in key else None)


def failed(key: str) -> CallFailed:
    return CallFailed(key, CallError("Declined", "no"))


def decide(word: str, **raw: Any) -> DecisionReceived:
    return DecisionReceived(raw, word)


def note(text: str) -> Provided:
    return Provided(parse_message({"type": "data", "kind": "user", "data": {"note": text}}, 0))  # type: ignore[arg-type]


# -- a plan --------------------------------------------------------------------------------------------


def plan_run(calls: list[dict[str, Any]], **config: Any) -> PlanRun:
    raw = {"config": config, "context": [*TOOLS, {"type": "plan", "plan": calls}]}
    prepared = validate_parsed(read_request(raw), {}, SERVED)
    setup = PlanSetup(raw, prepared, Capabilities(served=SERVED), TreePosition(), SOURCE)
    return PlanRun("r", setup, lambda node: f"key of {node.id}", lambda _prepared: {"requests": 0})


def approved(calls: list[dict[str, Any]]) -> PlanRun:
    return plan_run(calls, approve={"plan": True, "timeout": "1h"})


PLANS: dict[str, tuple[PlanRun, list[Step], str]] = {
    "a call starts when what it reads is there": (
        plan_run([LOAD, SAVE]),
        [(Begin(), ["activity 1:load"]), (done("1:load"), ["activity 2:save"]), (done("2:save"), ["finish completed"])],
        "completed",
    ),
    "a failure skips what needs it": (
        plan_run([LOAD, SAVE]),
        [(Begin(), ["activity 1:load"]), (failed("1:load"), ["finish failed"])],
        "failed",
    ),
    "the end of a call that does not run changes nothing": (
        plan_run([LOAD, SAVE]),
        [(Begin(), ["activity 1:load"]), (done("2:save"), []), (done("9:none"), [])],
        "running",
    ),
    "a paused run starts nothing until it is resumed": (
        plan_run([LOAD, SAVE]),
        [
            (Begin(), ["activity 1:load"]), (PauseRequested(), ["children pause"]), (done("1:load"), []),
            (ResumeRequested(), ["activity 2:save", "children resume"]),
        ],
        "running",
    ),
    "starts that are held before continue-as-new follow when they are released": (
        plan_run([LOAD, SAVE]),
        [
            (Begin(), ["activity 1:load"]), (StartsHeld(), []), (done("1:load"), []),
            (StartsReleased(), ["activity 2:save"]),
        ],
        "running",
    ),
    "a cancelled run starts nothing, and ends when what runs has ended": (
        plan_run([LOAD, SAVE]),
        [(Begin(), ["activity 1:load"]), (CancelRequested(), []), (done("1:load"), ["finish cancelled"])],
        "cancelled",
    ),
    "a call that a person confirms waits, beside the others": (
        plan_run([{"_tool": "pay"}, LOAD]),
        [(Begin(), ["activity 2:load"]), (decide("approve", call="1:pay"), ["activity 1:pay"])],
        "running",
    ),
    "a plan whose one call a person rejects ends": (
        plan_run([{"_tool": "pay"}]),
        [(Begin(), []), (decide("reject", call="1:pay", reason="no"), ["finish rejected"])],
        "rejected",
    ),
    "a plan that waits is walked once it is approved": (
        approved([LOAD]),
        [(Begin(), ["StartTimer"]), (decide("approve"), ["CancelTimer", "activity 1:load"])],
        "running",
    ),
    "a plan that is rejected ends": (
        approved([LOAD]),
        [(Begin(), ["StartTimer"]), (decide("reject", reason="no"), ["CancelTimer", "finish rejected"])],
        "rejected",
    ),
    "an edited plan waits for an approval of its own": (
        approved([LOAD]),
        [
            (Begin(), ["StartTimer"]), (decide("edit", plan=[LOAD, SAVE]), []),
            (decide("approve", version=1), []), (decide("approve", version=2), ["CancelTimer", "activity 1:load"]),
        ],
        "running",
    ),
    "an update is answered, a decision too late as well": (
        approved([LOAD]),
        [
            (Begin(), ["StartTimer"]),
            (
                DecisionReceived({"decision": "approve"}, update="u1"),
                ["CancelTimer", "activity 1:load", "answer u1 taken"],
            ),
            (DecisionReceived({"decision": "approve"}, update="u2"), ["answer u2 refused"]),
        ],
        "running",
    ),
    "a timer that is none of the run changes nothing": (
        approved([LOAD]), [(Begin(), ["StartTimer"]), (TimerFired("x"), [])], "awaiting",
    ),
    "a latent call is a request, a delegated one a child": (
        plan_run([{"_tool": "think"}, {"_tool": "other"}], model="scripted:x"),
        [
            (Begin(), ["AskOutput 1:think", "StartDelegate 2:other"]), (ChildStarted("2:other", "r/2:other"), []),
            (done("1:think"), []),
            (ChildEnded("2:other", {"status": "completed", "output": 1}), ["finish completed"]),
        ],
        "completed",
    ),
    "a child that dies fails its call": (
        plan_run([{"_tool": "other"}], model="scripted:x"),
        [
            (Begin(), ["StartDelegate 1:other"]), (ChildStarted("1:other", "r/1:other"), []),
            (ChildEnded("1:other", None, CallError("terminated", "gone")), ["finish failed"]),
        ],
        "failed",
    ),
    "what is provided reaches the children": (
        plan_run([{"_tool": "think"}], model="scripted:x"),
        [(Begin(), ["AskOutput 1:think"]), (note("x"), ["children provide"])],
        "running",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_plan(name: str) -> None:
    machine, steps, phase = PLANS[name]
    play(machine, steps)
    assert machine.phase == phase


def test_after_its_end_a_plan_takes_no_event_of_its_work() -> None:
    run = plan_run([LOAD])
    play(run, [(Begin(), ["activity 1:load"]), (done("1:load"), ["finish completed"])])
    play(run, [(done("1:load", 2), []), (failed("1:load"), []), (CancelRequested(), []), (note("x"), [])])


# -- an agent -------------------------------------------------------------------------------------------


def agent_run(**config: Any) -> AgentRun:
    raw = {"config": {"model": "scripted:x", **config}, "context": [*TOOLS, {"type": "text", "text": "go"}]}
    request = read_request(raw)
    position = TreePosition().with_budget("r", request.config.budget)
    setup = AgentSetup(raw, request, Capabilities(served=SERVED), position, "run")
    return AgentRun("r", setup, lambda _prepared: {"requests": 0})


def solution(*calls: dict[str, Any], output: Any = None) -> ModelAnswered:
    return ModelAnswered({"solution": {"calls": list(calls), "output": output}, "usage": USAGE})


def plan_report(*ids: str, error: str | None = None) -> dict[str, Any]:
    """What a plan of a tick says of itself."""
    calls = [{"id": id_, "tool": id_[2:], "state": "failed" if error else "completed"} for id_ in ids]
    errors = [{"call": id_, "code": error, "message": "no"} for id_ in ids] if error else []
    return {"status": "failed" if error else "completed", "calls": calls, "context": [], "errors": errors, "usage": {}}


def plan_ended(tick: int, *ids: str, error: str | None = None) -> ChildEnded:
    return ChildEnded(f"plan-{tick}", plan_report(*ids, error=error))


FIRST = f"solution 1 of {len(TOOLS) + 1}"
AGENTS: dict[str, tuple[AgentRun, list[Step], str]] = {
    "an output ends it": (
        agent_run(), [(Begin(), [FIRST]), (solution(output=1), ["finish completed"])], "completed",
    ),
    "a plan is walked by a child": (
        agent_run(), [(Begin(), [FIRST]), (solution(LOAD), ["plan plan-1"])], "running",
    ),
    "an answer that cannot be used is a tick": (
        agent_run(maxTicks=1),
        [
            (Begin(), [FIRST]),
            (ModelAnswered({"unusable": {"code": "modelNotJson", "message": "?"}, "usage": USAGE}), ["finish failed"]),
        ],
        "failed",
    ),
    "a model that gives no answer ends it": (
        agent_run(),
        [(Begin(), [FIRST]), (ModelFailed(CallError("modelGone", "gone"), None), ["finish failed"])],
        "failed",
    ),
    "a paused agent asks nothing until it is resumed": (
        agent_run(),
        [(PauseRequested(), ["children pause"]), (Begin(), []), (ResumeRequested(), ["children resume", FIRST])],
        "planning",
    ),
    "a proposal waits, and its approval starts it": (
        agent_run(approve={"plan": True}),
        [(Begin(), [FIRST]), (solution(LOAD), []), (decide("approve"), ["plan plan-1"])],
        "running",
    ),
    "a rejected proposal is planned again": (
        agent_run(approve={"plan": True}),
        [
            (Begin(), [FIRST]), (solution(LOAD), []),
            (decide("reject", reason="no"), [f"solution 2 of {len(TOOLS) + 3}"]),
        ],
        "planning",
    ),
    "what is provided meanwhile is part of the next request": (
        agent_run(approve={"plan": True}),
        [
            (Begin(), [FIRST]), (solution(LOAD), []), (note("x"), ["children provide"]),
            (decide("reject", reason="no"), [f"solution 2 of {len(TOOLS) + 4}"]),
        ],
        "planning",
    ),
    "a budget of one request allows one": (
        agent_run(budget={"requests": 1}),
        [
            (Begin(), [FIRST]),
            (ModelAnswered({"unusable": {"code": "x", "message": "?"}, "usage": USAGE}), ["finish failed"]),
        ],
        "failed",
    ),
    "a plan that did not end by itself ends it": (
        agent_run(),
        [
            (Begin(), [FIRST]), (solution(LOAD), ["plan plan-1"]), (ChildStarted("plan-1", "r/plan-1"), []),
            (ChildEnded("plan-1", None, CallError("terminated", "gone")), ["finish failed"]),
        ],
        "failed",
    ),
    "a cancelled agent takes no step": (
        agent_run(), [(Begin(), [FIRST]), (CancelRequested(), []), (solution(LOAD), [])], "cancelled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent(name: str) -> None:
    machine, steps, phase = AGENTS[name]
    play(machine, steps)
    assert machine.phase == phase


def test_the_next_tick_follows_the_end_of_a_plan() -> None:
    run = agent_run()
    play(run, [(Begin(), [FIRST]), (solution(LOAD), ["plan plan-1"])])
    (next_request,) = run.handle(plan_ended(1, "1:load"), NOW)
    assert isinstance(next_request, commands.AskSolution)
    assert next_request.tick == 2


# -- a delegate without a planner -------------------------------------------------------------------------


def own_input(delegate: str, **fields: Any) -> DelegateInput:
    position = TreePosition(ancestors=("r",), depth=1)
    return DelegateInput(
        delegate=delegate, input={}, context=(), config={"model": "scripted:x"}, position=position, **fields
    )


def walked() -> DelegateMachine:
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}], "schema": {"type": "integer"}}
    own = own_input("d")
    return WalkedDelegate("r/1:d", own, own.position, read_request(raw), raw)


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
    call = AnonymousCall(tool="t", toolSchema=schema, served=True, id="key", path="†state.x")
    own = own_input("anonymous", call=call).model_copy(update={"input": HOSTILE})
    prepared = validate_parsed(read_request(anonymous_request(own)), {}, ["t"])
    machine = AnonymousDelegate("r/1:d", own, own.position, prepared, Capabilities(), SOURCE)
    (start,) = machine.handle(Begin(), NOW)
    assert start.call == {"_tool": "t", "_outputPath": "†state.x", **HOSTILE, "_id": "key"}


def written(value: Any) -> ChildEnded:
    message = {"type": "state", "state": {"output": value}, "_outputPath": "†state.output"}
    return ChildEnded("plan", {"status": "completed", "context": [message], "errors": [], "calls": []})


DELEGATES: dict[str, tuple[DelegateMachine, list[Step], dict[str, Any]]] = {
    "a definition's plan is walked, and its output is the result": (
        walked(), [(Begin(), ["plan plan"]), (written(1), ["finish completed"])], {"status": "completed", "output": 1},
    ),
    "an output that breaks the definition's schema fails it": (
        walked(), [(Begin(), ["plan plan"]), (written("x"), ["finish failed"])], {"status": "failed"},
    ),
    "what is provided early reaches the plan": (
        walked(),
        [(PauseRequested(), ["children pause"]), (Begin(), []), (note("x"), []),
         (ResumeRequested(), ["children resume", "plan plan", "children provide"])],
        {},
    ),
    "a plan that dies fails it": (
        walked(),
        [(Begin(), ["plan plan"]), (ChildEnded("plan", None, CallError("terminated", "gone")), ["finish failed"])],
        {"status": "failed"},
    ),
    "an explicit call runs its activity": (
        anonymous("t"),
        [(Begin(), ["activity 1:t"]), (done("1:t"), ["finish completed"])],
        {"status": "completed", "output": 1, "path": None},
    ),
    "a latent call is a request": (
        anonymous(""), [(Begin(), ["AskOutput 1:t"]), (failed("1:t"), ["finish failed"])], {"status": "failed"},
    ),
    "a cancelled one does not fail": (
        anonymous("t"), [(Begin(), ["activity 1:t"]), (CancelRequested(), []), (failed("1:t"), [])], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DELEGATES)
def test_a_delegate(name: str) -> None:
    machine, steps, result = DELEGATES[name]
    play(machine, steps)
    assert machine.result == result


# -- runs that a reset left behind ---------------------------------------------------

STARTED = "2026-01-01T00:00:01.000500+00:00"
SENT = {  # when the message was sent: what the run does
    "": [commands.Stop("new")],  # by a worker of an earlier version
    "2026-01-01T00:00:01.000501+00:00": [commands.Stop("new")],
    STARTED: [],
    "2026-01-01T00:00:01.000499+00:00": [],
}


@pytest.mark.parametrize("sent_at", SENT)
def test_a_run_stops_for_another_only_if_it_was_there_when_that_was_said(sent_at: str) -> None:
    own = own_input("d")
    position = own.position.model_copy(update={"token": "t", "startedAt": STARTED})
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}]}
    run = WalkedDelegate("r/1:d", own, position, read_request(raw), raw)
    run.handle(Begin(), NOW)
    message = Superseded(token=position.token, workflowId=str(position.parent), runId="new", sentAt=sent_at)
    assert run.handle(RecordReceived(message), NOW) == SENT[sent_at]


def test_a_run_of_another_parent_does_not_stop() -> None:
    own = own_input("d")
    position = own.position.model_copy(update={"token": "t", "startedAt": STARTED})
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}]}
    run = WalkedDelegate("r/1:d", own, position, read_request(raw), raw)
    run.handle(Begin(), NOW)
    message = Superseded(token=position.token, workflowId="root/another", runId="new")
    assert run.handle(RecordReceived(message), NOW) == []


def test_a_child_does_not_have_the_start_of_its_parent() -> None:
    parent = TreePosition(startedAt=STARTED)
    assert {parent.child("r").startedAt, parent.delegate("r").startedAt, parent.detached().startedAt} == {""}


def test_a_run_that_was_reset_says_so_to_its_parent_also_when_its_work_is_over() -> None:
    own = own_input("d")
    position = own.position
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}]}
    run = WalkedDelegate("r/1:d", own, position, read_request(raw), raw)
    message, *_ = run.handle(RunReset("first"), NOW)
    record = ChildReset(token=position.token, workflowId="r/1:d", firstRunId="first")
    assert message == SendRecord(str(position.parent), "childReset", record)
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
    own = own_input("d")
    raw = {"context": [*TOOLS, {"type": "plan", "run": True, "plan": [LOAD]}]}
    for event in (RecordDelivered, RecordLost):
        run = WalkedDelegate("r/1:d", own, own.position, read_request(raw), raw)
        run.handle(Begin(), NOW)
        run.handle(ChildStarted("plan", "r/1:d/plan", run_id="latest"), NOW)
        record = ChildReset(token=run.position.token, workflowId="r/1:d/plan", firstRunId="earlier")
        (message,) = run.handle(RecordReceived(record), NOW)
        assert isinstance(message, SendRecord)
        assert (message.workflow_id, message.record) == ("r", RunEnded(workflowId="r/1:d/plan"))
        assert run.handle(event(message.key), NOW) == [commands.RestartChild("plan")]


def test_a_plan_that_was_reset_starts_a_child_again_that_is_gone() -> None:
    run = plan_run([{"_tool": "other"}])
    (start,) = run.handle(Begin(), NOW)
    assert describe(start) == "StartDelegate 1:other"
    run.handle(ChildStarted("1:other", "r/1:other"), NOW)
    message, *_ = run.handle(RunReset(), NOW)
    assert isinstance(message, SendRecord)
    assert (message.workflow_id, message.signal) == ("r/1:other", "resync")
    (timer,) = run.handle(RecordLost(message.key), NOW)
    assert isinstance(timer, StartTimer)
    assert run.handle(TimerFired(timer.name), NOW) == [commands.RestartChild("1:other")]
    run.handle(ChildStarted("1:other", "r/1:other"), NOW)
    run.handle(ChildEnded("1:other", {"status": "completed", "output": 1}), NOW)
    assert run.phase == "completed"
