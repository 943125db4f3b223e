"""The table that moves a Call from stage to stage: its rows, all pairs without a row, and walks that obey it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from acts.language.errors import CallError, EngineError
from acts.machines.call_state import MAX_IGNORED, SETTLED, STAGES, TRANSITIONS, CallState, CallStates
from acts.machines.commands import Command
from acts.machines.past_calls import PastCalls
from acts.machines.run_facts import read_calls
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from acts.tree.batches import split_into_children
from acts.tree.past_run import PastRun
from tests.cases import call, fails, own, row
from tests.property.drive import NOW, Drive, data_message, identify

Json = Any

EVENTS = tuple(dict.fromkeys(event for _, event in TRANSITIONS))
# Events that come from outside of the walk
REPORTS: dict[str, Callable[[Walk, int], list[Command]]] = {
    "completed": lambda walk, rank: walk.completed(rank, {"late": 1}, NOW),
    "failed": lambda walk, rank: walk.failed(rank, CallError("Late", "again"), NOW),
    "children ended": lambda walk, rank: walk.child_ended(rank, {}, NOW),
    "detached": lambda walk, rank: walk.detached(rank, NOW),
    "approve": lambda walk, rank: walk.decide(rank, "approve", "", NOW),
    "reject": lambda walk, rank: walk.decide(rank, "reject", "no", NOW),
    "no decision in time": lambda walk, rank: walk.decide(rank, "fail", "too late", NOW),
}
EXPECTED_STAGE = dict(zip(REPORTS, (*["running"] * 4, *["awaiting"] * 3), strict=True))


def states_in(stage: str) -> CallStates:
    """One Call, in a stage."""
    made = row("one", [call("a", "†state.a")])
    return CallStates(validate_request(made["request"]).nodes, {0: CallState(stage)})


@pytest.mark.parametrize(("stage", "event"), TRANSITIONS, ids=str)
def test_a_row_moves_the_call(stage: str, event: str) -> None:
    states = states_in(stage)
    assert states.move(0, event)
    assert states.by_rank[0].stage == TRANSITIONS[stage, event]
    assert states.ignored == []
    assert states.counts() == {s: int(s == states.by_rank[0].state) for s in states.counts()}
    assert states.unsettled == (states.by_rank[0].stage not in SETTLED)


@pytest.mark.parametrize(("stage", "event"), [p for p in product(STAGES, EVENTS) if p not in TRANSITIONS], ids=str)
def test_a_pair_without_a_row_changes_nothing_and_is_noted(stage: str, event: str) -> None:
    states = states_in(stage)
    before, counts = copy.deepcopy(states.by_rank), states.counts()
    assert not states.move(0, event)
    assert states.by_rank == before
    assert states.counts() == counts
    assert states.ignored == [f'the event "{event}" was ignored: call 1:a is {states.by_rank[0].state}']


@pytest.mark.parametrize("rank", [-1, 1, 10**9])
def test_an_event_for_a_rank_that_the_plan_does_not_have_is_noted(rank: int) -> None:
    states = states_in("running")
    assert not states.move(rank, "reported")
    assert states.ignored == [f'the event "reported" was ignored: the plan has no call of rank {rank}']


def test_the_last_ignored_events_are_kept_and_no_more() -> None:
    states = states_in("completed")
    for _ in range(MAX_IGNORED):
        states.move(0, "started")
    states.move(0, "detached")
    assert len(states.ignored) == MAX_IGNORED
    assert '"detached"' in states.ignored[-1]


@pytest.mark.parametrize("event", ["reported", "detached", "approved", "rejected", "decision_overdue"])
def test_an_event_from_outside_has_a_row_in_one_stage_only(event: str) -> None:
    assert len([stage for stage, name in TRANSITIONS if name == event]) == 1


def test_nothing_leaves_a_final_stage() -> None:
    assert not [stage for stage, _ in TRANSITIONS if stage in SETTLED]
    assert {stage for stage in STAGES if stage not in SETTLED} == {stage for stage, _ in TRANSITIONS}


# -- a walk with a Call in every stage -----------------------------------------------


def drive_through_every_stage() -> Drive:
    """A walk in which, for every stage but ``cancelled``, a Call is in it."""
    made = row(
        "every stage",
        [
            call("running", "†state.l"),
            call("applying", "†state.l", "push"),
            call("pending", "†state.p", x="†state.l"),
            call("awaiting", "†state.w", _approval=True),
            call("rejected", "†state.n", _approval=True),
            call("input", "†state.i", x="†input.late"),
            call("failed", "†state.f"),
            call("skipped", "†state.s", x="†state.f"),
            call("completed", "†state.c"),
            call("detached"),
            call("collecting", "†state.e", _each=[1, 2]),
            call("ready", "†state.r"),
        ],
        results={"applying": 1, "failed": fails(), "completed": 1},
    )
    for schema in made["request"]["context"][0]["tool"].values():
        schema["properties"]["_approval"] = {"type": "boolean"}
    drive = Drive({**made["request"], "config": {"missing": "wait", "maxParallel": 6}}, made["results"])
    drive.perform(drive.walk.decide(drive.rank("5:rejected"), "reject", "no", NOW))
    drive.perform(drive.walk.pause())
    for id_ in ("7:failed", "9:completed", "10:detached", "2:applying"):
        drive.finish(id_)
    return drive


def test_the_walk_of_these_tests_has_a_call_in_every_stage() -> None:
    drive = drive_through_every_stage()
    assert {run.stage for run in drive.walk.calls} == {*STAGES} - {"cancelled"}
    assert drive.state("2:applying") == "running"
    assert drive.state("6:input") == "awaiting"


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_that_does_not_fit_the_stage_of_its_call_changes_nothing(report: str) -> None:
    drive = drive_through_every_stage()
    for rank, run in enumerate(drive.walk.calls):
        if run.stage != EXPECTED_STAGE[report]:
            before = drive.observe(), copy.deepcopy(drive.walk.calls), drive.walk.counts
            assert REPORTS[report](drive.walk, rank) == []
            assert (drive.observe(), drive.walk.calls, drive.walk.counts) == before
            assert f"call {drive.walk.nodes[rank].id} is {run.state}" in drive.walk.ignored[-1]


def test_a_snapshot_is_the_same_after_a_report_that_was_ignored() -> None:
    drive = drive_through_every_stage()
    drive.finish("1:running")
    drive.finish("11:collecting[0]")
    before = copy.deepcopy(drive.walk.snapshot())
    for report in REPORTS.values():
        for rank, run in enumerate(drive.walk.calls):
            if run.stage not in ("running", "awaiting"):
                report(drive.walk, rank)
    assert drive.walk.snapshot() == before


def test_a_call_that_settles_twice_is_an_error_of_the_engine() -> None:
    drive = drive_through_every_stage()
    with pytest.raises(EngineError, match="9:completed is completed"):
        drive.walk.settle(drive.rank("9:completed"), "written", NOW)


# -- every row is needed -------------------------------------------------------------


def walk_through_the_table() -> None:
    """Small plans that take every row of the table."""
    drive = drive_through_every_stage()
    drive.perform(drive.walk.provide(data_message({"type": "input", "late": 1}), NOW))
    drive.perform(drive.walk.decide(drive.rank("4:awaiting"), "approve", "", NOW))
    drive.perform(drive.walk.resume(NOW))
    drive.finish_all()
    drive = drive_through_every_stage()
    drive.perform(drive.walk.cancel(NOW))
    for id_ in ("1:running", "11:collecting[0]"):
        drive.perform(drive.walk.failed(drive.rank(id_), CallError("cancelled", "stopped"), NOW))
    drive = drive_through_every_stage()
    drive.walk.postponed(drive.rank("1:running"), NOW)
    drive = drive_through_every_stage()
    drive.walk.exhaust(CallError("LimitExceeded", "full"), NOW)
    drive = drive_through_every_stage()
    drive.perform(drive.walk.decide(drive.rank("4:awaiting"), "fail", "too late", NOW))
    each = [call("a", _each=[1]), call("b", "†state.b", _each=[]), call("c", "†state.c", _each=[1], x="†item.x")]
    Drive(row("elements", each)["request"], {}).finish_all()
    literal = [call("think", "†state.t", _output=1), call("think2", _output=2), call("a", "†state.a", x="†state.t.b")]
    Drive(row("literal", literal)["request"], {})
    drive = Drive(row("edited", [call("a", "†state.a")])["request"], {})
    new = row("edited", [call("a", "†state.a"), call("think", "†state.t", _output=1)])["request"]
    drive.edit(validate_request(new), {})
    drive.perform(drive.walk.decide(1, "approve", "", NOW))
    earlier = Drive(row("earlier", [call("a"), call("b", "†state.b")])["request"], {"2:b": 1})
    earlier.finish_all()
    past = PastRun(workflowId="old", runId="r", events=1, calls=read_calls(earlier.walk, ""))
    resuming = Walk(earlier.prepared, identify)
    resuming.resume_from(PastCalls({}, (past,)))
    resuming.begin(NOW)
    batch = row("batch", [call("a", "†state.a")], context=[own("A", id=1)])["request"]
    walk = Walk(split_into_children(validate_request(batch)), identify)
    walk.begin(NOW)
    report = {"status": "rejected", "state": {}, "calls": [], "errors": [], "written": []}
    walk.child_ended(0, {"A": report}, NOW)
    assert walk.calls[0].state == "rejected"


def test_every_row_of_the_table_is_taken_by_some_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: set[tuple[str, str]] = set()
    move = CallStates.move

    def noted(states: CallStates, rank: int, event: str) -> bool:
        stage = states.call(rank).stage
        moved = move(states, rank, event)
        if moved:
            rows.add((stage, event))
        return moved

    monkeypatch.setattr(CallStates, "move", noted)
    walk_through_the_table()
    assert rows == set(TRANSITIONS)
